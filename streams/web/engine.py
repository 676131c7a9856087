"""What the API, the status page and the command line know of the running application.

Everything is plain data that goes into JSON as it is. Times are ms since the epoch (`*_ms`), but for `age_ms` and
`oldest_drift_ms`, which are ages. A verdict is "true", "drifted", "blocked" or "unknown".
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Protocol

from trueup.state.common.rules import Rule

Row = dict[str, Any]
VERDICTS = ("true", "drifted", "blocked", "unknown")


class Engine(Protocol):
    """The running application. Its methods are called from several threads and return soon."""

    def status(self) -> Row:
        """The whole at a glance.

        version, cluster, mode, paused, ready (bool), started_ms, now_ms, problems (texts), streams [name, state
        (running, waiting, failed, stopped), batch, rows_per_s, batch_ms, behind, restarts, error], sources [name
        (zookeeper, journal, vote, spark), state (up, slow, down), age_ms, detail], counts {verdict: ledgers},
        ledgers, not_judged (of the unknown ones, those that wait for a verdict in their present version),
        oldest_drift_ms (None: nothing drifted), marks {outstanding, ours, cap}, held (why, or ""),
        unbound (why neither hold nor approve binds BookKeeper's Auditor, or ""),
        watches_ledgers (bool: without it all that concerns ledgers is empty), links [as `links` says], logdirs [kafka,
        mode, strategy, paused, brokers, directories, skew (of the worst broker), rules {rule: brokers}, planned
        (moves), planned_bytes, moving, at_ms, reason], spark_ui (address, or ""), subjects [name, mode, paused,
        counts {verdict or state: number}, oldest_ms] of the streams that run, deletion (None: no deletion stream)
        {mode, paused, unreferenced (ledgers), bytes, forgotten [namespace, rule, ledgers, bytes], markers
        {stage: count}, oldest_ms (None: no marker), complete}.
        """

    def incomplete(self, noun: str) -> str:
        """Why the list of this noun (a name of `/api`, or "all ledgers") may lack rows or show old ones; empty if it is
        whole."""

    def findings(self, verdict: str | None, rule: str | None, limit: int, stream: str = "placement") -> list[Row]:
        """What a stream finds other than declared, the most urgent first: what it is about, verdict, rule, reason,
        since_ms, stage; of ledgers also copies, racks, version, marked (bool)."""

    def rows(self, noun: str, query: Mapping[str, Any]) -> list[Row]:
        """The list of a noun of a stream, by the parameters that it declares.

        ledgers: ledger, verdict, rule, state, ensemble, quorum, fragments, copies, racks, since_ms, marked; with all
        "true" also those that are true.
        bookies: bookie, rack, status (writable, readonly, pending, lost), since_ms, ledgers (None: not counted).
        marks: ledger, ours (bool), locked_by, ctime_ms, replicas, verdict, stage.
        unreferenced: ledgers that nobody points to, longest forgotten first: ledger, owner, cursor, component, rule,
        reason, verdict, state, bytes, since_ms, ctime_ms, version, stage (of its deletion).
        markers: deletions under way: id, ledger, owner, rule, stage, bytes, since_ms, at_ms, approved, attempts,
        next_ms (None: at once), bookies, pending (those that have not said that it is gone), detail.
        links: link, source, target, mode, paused, state, reason, down {cluster that does not answer: why}, path,
        topics, partitions, stopped (partitions that need a person), lag_records, lag_ms (age of the oldest record not
        copied, 0: none, -1: not known), leases (held now; 0: nothing is written), rounds, taken_ms, error,
        heartbeat_age_ms and heartbeat_lag_ms (-1: none arrived), differences (changes due at the target), groups,
        group_lag (records that a group has read and that are not copied); since this run began copied, bytes, dropped,
        skipped, dismissed, filtered, lost, repeated, foreign.
        directories: kafka, broker, path, volume (number), total, usable, used, bytes (of replicas; all sizes -1: not
        told), partitions, incoming, outgoing, online (bool), cordoned (ours, others or ""), and of the broker strategy,
        skew, rule, reason, at_ms.
        """

    def describe(self, noun: str, names: Mapping[str, Any]) -> Any:
        """Everything about one thing of a stream. Raises `Refused` when there is none.

        ledger, read afresh: ledger, state, ensemble, quorum, ack_quorum, version, mzxid, ctime_ms, last_entry, length,
        fragments [first_entry, last_entry, bookies [bookie, rack, status, counts], verdict, rule, copies, racks,
        failing_windows, repair], verdict, rule, reason, changes (texts), since_ms, mark (or None), stage, history
        [at_ms, event, detail], owned (None: no deletion stream) {component, owner, cursor, rule, reason, since_ms,
        nodes [path, status, version, points, ledgers, highest, error], marker (a row of markers, or None), objects
        (texts)}.
        link: a row of links with path_reason, by_topic [topic, target_topic, partitions, stage (the first in the order
        of docs/links.md), stopped, lag_records, lag_ms, error] and copies [topic, partition, target_topic,
        target_partition, stage, start, offset, source_end, target_end, lag_records, lag_ms, path, runs, reset, at_ms,
        error, stopped, refill_until (-1: nothing is refilled)] of every partition, checkpoints [group, source, target,
        committed, translated, present, lag, action, reason], unreadable (texts), heartbeat_error (what the clusters
        answered to the last heartbeat) and remedies [rule, remedy] of all that is wrong.
        refill: rows of what the target of a link lost and its source holds: link, topic, target_topic, partitions,
        records, bytes (-1: not known), stage (planned, waiting, blocked, copying), reason.
        broker: kafka, broker, mode, strategy, skew, after (of the plan), rule, reason, at_ms, throttles (ours),
        directories [rows of directories], moves [of the plan], largest [topic, partition, path, bytes].
        """

    def execute(self, verb: str, names: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
        """Carry out a verb of a stream. Raises `Refused`.

        reset: let a link go on at other source offsets (``to``: earliest, latest or a number), for all its partitions
        or these (topic-number); rows of partition, offset. What was copied stays copied.
        refill: copy to the target of a link what it lost and its source holds; rows as of `describe` refill.
        topic: make a topic in directories that the strategy chooses; rows of partition, broker, path.
        deletion: order the deletion of a ledger; its row of `markers`.
        """

    def plan(self) -> list[Row]:
        """What would be done, in order: id, kind (mark, withdraw, move, cordon, of links others), ledger, rule,
        reason, copies, racks, stage
        (planned, awaiting approval, approved, marked, working, declined), next_ms (or None), requirements
        {version, epoch}, evidence."""

    def approve(self, ids: list[str] | None) -> list[Row]:
        """Approve these actions of the plan, or all that it holds now; what was approved. Raises `Refused`."""

    def config(self) -> Row:
        """live {key: {value, default, doc}} and fixed {key: value}."""

    def set_config(self, name: str, value: object) -> Row:
        """Set a live key, through the config topic; its new entry. Raises `BadSettings`."""

    def actions(self, limit: int) -> list[Row]:
        """What was done, newest first: at_ms, id, kind, ledger, link, broker (None: not about one), rule (why),
        outcome, detail, who. It is kept for journal.history_days, restarts or not."""


def rule_row(rule: Rule) -> Row:
    """A rule as the API and the command line give it."""
    return {**asdict(rule), "verdict": rule.verdict.name.lower()}
