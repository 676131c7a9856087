"""What the API, the status page and the command line know of the running application.

Everything is plain data that goes into JSON as it is. Times are ms since the epoch (`*_ms`), but for `age_ms` and
`oldest_drift_ms`, which are ages. A verdict is "true", "drifted", "blocked" or "unknown".
"""

from dataclasses import asdict
from typing import Any, Protocol

from state.rules import Rule

Row = dict[str, Any]
VERDICTS = ("true", "drifted", "blocked", "unknown")


class Engine(Protocol):
    """The running application. Its methods are called from several threads and return soon."""

    def status(self) -> Row:
        """The whole at a glance.

        version, cluster, mode, paused, ready (bool), started_ms, now_ms, problems (texts), streams [name, state
        (running, waiting, failed, stopped), batch, rows_per_s, batch_ms, behind, restarts, error], sources [name
        (zookeeper, journal, vote, spark), state (up, slow, down), age_ms, detail], counts {verdict: ledgers},
        ledgers, oldest_drift_ms (None: nothing drifted), marks {outstanding, ours, cap}, held (why, or ""),
        spark_ui (address, or "").
        """

    def findings(self, verdict: str | None, rule: str | None, limit: int) -> list[Row]:
        """Ledgers that are not true, riskiest first: ledger, verdict, rule, reason, copies, racks, since_ms,
        version, stage, marked (bool)."""

    def ledgers(self, limit: int, every: bool) -> list[Row]:
        """Rows of ledger, verdict, rule, state, ensemble, quorum, fragments, copies, racks, since_ms, marked; with
        ``every`` also those that are true."""

    def ledger(self, ledger: int) -> Row:
        """One ledger in full, read afresh.

        ledger, state, ensemble, quorum, ack_quorum, version, mzxid, ctime_ms, last_entry, length, fragments
        [first_entry, last_entry, bookies [bookie, rack, status, counts], verdict, rule, copies, racks,
        failing_windows, repair], verdict, rule, reason, changes (texts), since_ms, mark (or None), stage,
        history [at_ms, event, detail].
        Raises `Refused` when there is no such ledger.
        """

    def bookies(self) -> list[Row]:
        """bookie, rack, status (writable, readonly, pending, lost), since_ms, ledgers (None: not counted)."""

    def marks(self) -> list[Row]:
        """ledger, ours (bool), locked_by, ctime_ms, replicas, verdict, stage."""

    def plan(self) -> list[Row]:
        """What would be done, in order: id, kind (mark, withdraw), ledger, rule, reason, copies, racks, stage
        (planned, awaiting approval, approved, marked, working, declined), next_ms (or None), requirements
        {version, epoch}, evidence."""

    def approve(self, ids: list[str] | None) -> list[Row]:
        """Approve these actions of the plan, or all that it holds now; what was approved. Raises `Refused`."""

    def config(self) -> Row:
        """live {key: {value, default, doc}} and fixed {key: value}."""

    def set_config(self, name: str, value: object) -> Row:
        """Set a live key, through the config topic; its new entry. Raises `BadSettings`."""

    def actions(self, limit: int) -> list[Row]:
        """What was done, newest first: at_ms, id, kind, ledger, rule, outcome, detail."""


def rule_row(rule: Rule) -> Row:
    """A rule as the API and the command line give it."""
    return {**asdict(rule), "verdict": rule.verdict.name.lower()}
