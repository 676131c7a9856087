"""The interface of the running application for the API, the status page and the command line.

Values are plain data that convert to JSON directly. Times are ms since the epoch (`*_ms`), except `age_ms` and
`oldest_drift_ms`, which are ages. A verdict is "true", "drifted", "blocked" or "unknown".
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Protocol

from trueup.state.common.rules import Rule
from trueup.streams.rows import Names, Row, RowQuery

VERDICTS = ("true", "drifted", "blocked", "unknown")
_ANY: Mapping[str, str] = MappingProxyType({})
SELECTORS = {"bookie": "BOOKIE", "namespace": "TENANT/NAMESPACE"}
"""Parameters with any value, and the form of the values."""


class Engine(Protocol):
    """The running application. Its methods are called from several threads and do not block for long."""

    def status(self) -> Row:
        """The status of the application.

        version, cluster, ready (bool), starting (bool: not ready yet since its start), started_ms, now_ms, problems
        (texts), streams [name, state (running, waiting, failed, stopped), batch, rows_per_s, batch_ms, behind,
        restarts, error], sources [`streams.runtime.stream.ObservationSource`], spark_ui (address, or ""), subjects
        [name, mode, paused, counts {verdict or state: number}, oldest_ms] of the streams that run, the fields of all
        streams (the `StatusFields` in ``streams/*/signs.py``; without a BookKeeper cluster all fields about ledgers are
        empty), ha (None: no section ha) {id, role (leader, standby, or starting: it leads, and its streams are not
        loaded yet), epoch, leader (its address, or ""), standbys (addresses of the others), unable (why a standby could
        not lead, apart from its sources)}.
        """

    def incomplete(self, noun: str) -> str:
        """Why the rows of this noun (a name of `/api`, or "all ledgers") may be incomplete or outdated; empty if they
        are complete."""

    def findings(
        self,
        verdict: str | None,
        rule: str | None,
        limit: int,
        stream: str = "placement",
        where: Mapping[str, str] = _ANY,
    ) -> list[Row]:
        """The findings of a stream, the most urgent first. ``where``: selectors that its descriptor names; bookie: the
        bookie of the damaged replica, or a bookie in any ensemble of the ledger; namespace: the namespace of the owner.
        The resource, verdict, rule, reason, since_ms, stage; for ledgers also copies, racks, version, marked and held
        (bool); for replicas of a ledger copies, racks and version are None, and the fields of damages in `describe` are
        added."""

    def rows(self, noun: str, query: RowQuery) -> list[Row]:
        """The rows of a noun of a stream. ``query``: the parameters that the noun declares.

        ledgers: ledger, verdict, rule, state, ensemble, quorum, fragments, copies, racks, since_ms, marked, held; with
        all "true" also ledgers whose verdict is true; with bookie those that have it in any ensemble, with namespace
        those whose owner is in it.
        bookies: bookie, rack, groups, status (writable, readonly, pending, lost), since_ms, ledgers (None: not
        counted).
        marks: ledger, ours (bool; None: it may not be read), locked_by, ctime_ms, replicas, verdict, stage.
        unreferenced: ledgers without a reference, the oldest first, with namespace those whose owner is in it: ledger,
        owner, cursor, component, rule, reason, verdict, state, bytes, since_ms, ctime_ms, version, stage (of its
        deletion).
        deletions: deletions in progress, likewise: id, ledger, owner, rule, stage, bytes, since_ms, at_ms, approved,
        attempts, next_ms (None: at once), bookies, pending (bookies that have not confirmed the deletion), detail.
        links: `streams.replication.signs.LinkRow`.
        directories: kafka, broker, path, volume (number), total, usable, used, bytes (of replicas; all sizes -1: not
        reported), partitions, incoming, outgoing, online (bool), cordoned (ours, others or ""), and of the broker
        strategy, skew, rule, reason, at_ms.
        """

    def describe(self, noun: str, names: Names) -> Row | list[Row]:
        """The details of one resource of a stream. Raises `Refused` if it does not exist.

        ledger, read at the call: ledger, state, ensemble, quorum, ack_quorum, version, mzxid, ctime_ms, last_entry,
        length, fragments [first_entry, last_entry, bookies [bookie, rack, groups, status, counts], verdict, rule,
        copies, racks, failing_windows, broken (texts), repair], verdict, rule, reason, held (bool), isolation (None, or
        primary, secondary, outside, source), changes (texts), since_ms, mark (or None),
        stage, history [at_ms, event, detail], owned (None: no deletion stream) {component, owner, cursor, rule, reason,
        since_ms, nodes [path, status, version, points, ledgers, highest, error], deletion (a row of deletions, or
        None), objects (texts)}, damages (reported replicas) [ledger, bookie, first, last, found (missing or digest),
        confirmed, reporter, at_ms, checked_ms (0: not read by Trueup), detail].
        link: a row of links with path_reason, by_topic [topic, target_topic, partitions, stage (the first in the order
        of docs/links.md), stopped, lag_records, lag_ms, error] and copies [topic, place (the broker of a queue of
        RocketMQ, else empty), partition, target_topic, target_place, target_partition, stage, start, offset,
        source_end, target_end, lag_records, lag_ms, path, runs, reset, at_ms, error, stopped, refill_until (-1: no
        refill)] of every partition, checkpoints [group, source, target, committed,
        translated, present, lag, action, reason], unreadable (texts), heartbeat_error (errors of the last heartbeat)
        and remedies [rule, remedy] of its reasons and errors, untranslated [group, reason] (groups
        without an offset at the target), and ways [topic, partitions, command, does, recommended
        (bool)]: the commands that continue stopped partitions.
        refill: topics that the target of a link lost and its source has: link, topic, target_topic, partitions,
        records, bytes (-1: unknown), stage (planned, waiting, blocked, copying), reason.
        broker: kafka, broker, mode, strategy, skew, after (of the plan), rule, reason, at_ms, throttles (ours),
        directories [rows of directories], moves [of the plan], largest [topic, partition, path, bytes].
        """

    def execute(self, verb: str, names: Names, arguments: Row) -> Row | list[Row]:
        """Execute a verb of a stream. Raises `Refused`.

        reset: continue a link at other source offsets (``to``: earliest, latest or a number), for all its partitions or
        these (topic-number, queues of RocketMQ topic@broker-number); without ``certain`` nothing is set. Rows of
        partition, offset (-1: not set), was, reason (why it is not set) and gone (the source does not have it). Copied
        records remain.
        refill: restore the lost data of a link's target from its source; rows as of `describe` refill.
        topic: create a topic in directories selected by the strategy; rows of partition, broker, path.
        deletion: order the deletion of a ledger; its row of `deletions`.
        replica-reports: remember replicas that a reader found damaged (``replicas``); new, their number. No change.
        """

    def plan(self) -> list[Row]:
        """The actions of the plan, in order: id, kind (mark, withdraw, move, cordon, others for links), ledger, rule,
        reason, copies, racks, stage (planned, held, awaiting approval, approved, marked, working, declined), next_ms
        (or None), requirements {version, epoch}, evidence."""

    def approve(self, ids: list[str] | None) -> list[Row]:
        """Approve these actions of the plan, or all that it contains now. Returns the approved actions. Raises
        `Refused`."""

    def config(self) -> Row:
        """live {key: {value, default, doc}} and fixed {key: value}."""

    def set_config(self, name: str, value: object) -> Row:
        """Set a live key through the config topic. Returns its new entry. Raises `BadSettings`."""

    def actions(self, limit: int, predicate: Callable[[Row], bool] | None = None) -> list[Row]:
        """The history, newest first: at_ms, id, kind, ledger, link, broker (None: does not apply), rule, outcome,
        detail, who. Rows are kept for journal.history_days, also over restarts. ``predicate``: selects from the newest
        10,000."""

    def grouped(self, stream: str) -> Mapping[tuple[str, str], int]:
        """Findings of a stream by rule and verdict."""

    def trends(self, stream: str) -> Row:
        """The numbers of a stream in the last hours: every_ms, at_ms [time], series {name: [number or None]}, both
        lists have the same length; units {name: unit}."""


def rule_row(rule: Rule) -> Row:
    """A rule as a row of the API and the command line."""
    return {**asdict(rule), "verdict": rule.verdict.name.lower()}
