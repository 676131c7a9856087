"""The loop of placement: applies the stream's answers to the board, advances repairs, and orders changes.

Runs in the driver, in foreachBatch and at every tick. It tolerates a crash at any point: the board is rebuilt with the
first epoch of a run, repairs are loaded from their topic, and an order is written to the journal before it is executed.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Protocol

import numpy as np
from pyspark.sql import DataFrame

from trueup.connectors.bookkeeper.metadata.mark_codec import Mark
from trueup.connectors.bookkeeper.metadata.queries import ahead
from trueup.connectors.bookkeeper.placement.mark_creations import MarkOrder
from trueup.connectors.bookkeeper.placement.marks import MarkOutcome
from trueup.state.bookkeeper.ledgers import Column, Ledgers
from trueup.state.bookkeeper.marks import NO_MARKS, MarkRows
from trueup.state.bookkeeper.observations import LedgerRecord, LedgerState
from trueup.state.bookkeeper.topology import Status, Topology
from trueup.state.common.backoff import backoff
from trueup.state.common.errors import Retry, TrueupError
from trueup.state.common.token_bucket import TokenBucket
from trueup.state.placement.board import (
    MARKED,
    Board,
    ClearedFindings,
    FindingAges,
    RepairPlan,
    by_rule,
    plan,
    repairable,
    unheld,
    wanted,
)
from trueup.state.placement.copies.targets import LedgerMoves, MovePlanner
from trueup.state.placement.lifecycle import (
    ENDS,
    Repair,
    RepairEvent,
    RepairStage,
    advance,
    declined,
    renewed,
    withdrawn,
)
from trueup.state.placement.policy.fencing import FormerMembers
from trueup.state.placement.repairs import observe, unseen
from trueup.state.placement.rules import RULES
from trueup.state.placement.settings import PlacementSettings
from trueup.state.placement.verdicts import judge, unregistered
from trueup.state.placement.view import Rows
from trueup.streams.bookkeeper.keeper import TopologyKeeper
from trueup.streams.config.live import LiveSection
from trueup.streams.journal.codec import ledger_key
from trueup.streams.journal.history import ITSELF, History
from trueup.streams.journal.history_row import HistoryRow
from trueup.streams.journal.journal import Journal
from trueup.streams.journal.topic import Put, Record
from trueup.streams.placement.findings_topic import FindingsTopic
from trueup.streams.placement.metrics import PlacementMetrics
from trueup.streams.placement.query import answer_of
from trueup.streams.placement.repairs.copying import CopyOutcome
from trueup.streams.placement.topics import REPAIRS

log = logging.getLogger(__name__)
FIRST_ORDERS, ORDERS_AT_ONCE = 500, 3_000
"""Orders of the first part, for which the writer waits, and of the other ones."""
FIRST_WAIT_MS, LONGEST_WAIT_MS = 500, 30_000
BURST_MS = 1000.0  # burst of the rate limit, as a time at that rate
UNREGISTERED_AT_ONCE = 1_000
LOOK_MS = 1_000  # interval of reads for marks that were not observed
LEAST_SILENCE_MS = 30_000  # an idle query reports every 10 s
APPROVE_S = 5.0
_UNKNOWN_BOOKIE = RULES.code("placement.unknown-bookie")
_NAME_LOST = [
    RULES.code(f"placement.{name}")
    for name in (
        "unreadable",
        "unknown-bookie",
        "lost-member",
        "all-copies-lost",
        "too-few-bookies",
        "refused-by-target",
        "pending-member",
        "open-waits-for-writer",
        "open-older-fragment",
    )
]
"""Rules of ledgers that name a lost bookie, or may name one."""


class PlacementCluster(Protocol):
    """The operations of the connector that the loop needs."""

    def read(self, ledgers: Sequence[int]) -> Ledgers:
        """Current rows of these ledgers, without those that do not exist or may not be read."""

    def outdated(self) -> Column:
        """Ledgers that were read earlier and may not be read now: int64."""

    def mark(self, orders: Sequence[MarkOrder]) -> list[MarkOutcome]:
        """Write marks, each if its requirements hold."""

    def marked(self, ledgers: Sequence[int]) -> Mapping[int, Mark | None]:
        """Current marks of these ledgers."""

    def withdraw(self, items: Sequence[tuple[int, int]]) -> list[MarkOutcome]:
        """Delete the marks of these ledgers that still have this znode version."""

    def marks(self) -> MarkRows | None:
        """All marks and locks as observed; None until they were read."""

    def blocked_reason(self) -> str:
        """Why no changes are possible now; empty if they are."""

    def record(self, ledger: int) -> LedgerRecord | None:
        """The current metadata of a ledger; None if it does not exist."""


class Copies(Protocol):
    """The operations of `streams.placement.repairs.copying.CopiesUnderWay` that the loop needs."""

    @property
    def running(self) -> Collection[int]:
        """The ledgers that are copied now, or whose outcome was not taken yet."""

    @property
    def room(self) -> int:
        """The number of copies that can begin now."""

    @property
    def used(self) -> Mapping[str, float]:
        """The share of its disks that each bookie uses, as far as it is known."""

    def begin(self, ledger: int, version: int, moves: LedgerMoves) -> None:
        """Copy a ledger whose metadata have this version."""

    def taken(self) -> list[CopyOutcome]:
        """The outcomes since the last call."""

    def refusing(self, ledger: int) -> frozenset[str]:
        """The bookies that refused earlier copies of a ledger."""

    def forget_refusals(self, ledger: int) -> None:
        """Try these bookies again."""


class PlacementReconciler:
    """The board, the repairs and the orders. Safe to use from several threads."""

    def __init__(
        self,
        cluster: PlacementCluster,
        journal: Journal,
        policy: LiveSection[PlacementSettings],
        keeper: TopologyKeeper,
        metrics: PlacementMetrics,
        clock: Callable[[], int],
        buckets: int,
        history: History | None = None,
        caught_up: Callable[[], bool] = lambda: True,
        old_workers: Callable[[], bool] = lambda: False,
        copies: Copies | None = None,
    ) -> None:
        self._copies = copies
        self._caught_up, self._old_workers = caught_up, old_workers
        self._cluster, self._journal, self._metrics = cluster, journal, metrics
        self._policy, self._keeper, self._clock, self._buckets = policy, keeper, clock, buckets
        # Changes wait for journal and cluster under `_acting`. `lock` is held only briefly, so readers do not wait.
        self._acting = threading.RLock()
        self.lock = threading.RLock()
        self.board = Board()
        self.repairs: dict[int, Repair] = {}
        self.history = history or History()
        self.waiting: dict[str, int] = {}
        self.blocked_reason = "starting"
        self._cleared: list[ClearedFindings] = []
        self._unsaved: dict[int, Repair] = {}
        self._topic = FindingsTopic(journal)
        self._alive_ms = clock()
        self._tokens = TokenBucket(policy.current.marks_per_s / 1000, BURST_MS, clock())
        self._asked, self._looked_ms = b"", 0
        self._failures, self._again_ms = 0, 0

    def load(self) -> None:
        """Load the repairs of earlier runs, and the findings that they published."""
        self.board = Board(self._topic.load())
        self.repairs = {repair.ledger: repair for repair in self._journal.newest(REPAIRS).values()}

    def lose_view(self) -> None:
        """The view was lost: nothing is known until every bucket has answered again."""
        with self._acting, self.lock:
            findings = self.board.findings
            self.board, self._cleared = Board(FindingAges(findings["ledger"], findings["since_ms"])), []
            self._topic.restart()
            self.blocked_reason = "the view is not complete yet"

    def alive(self) -> None:
        """The stream reported progress."""
        self._alive_ms = self._clock()

    def unnamed(self) -> int | None:
        """The epoch in force if no ledger names a bookie that is lost in it; None otherwise. Each ledger that names one
        has a finding of one of these rules."""
        topology = self._keeper.topology
        with self.lock:
            if topology is None or not self.complete or not self.board.settled(self._buckets, topology.epoch):
                return None
            return None if np.isin(self.board.findings["rule"], _NAME_LOST).any() else topology.epoch

    def silent(self) -> str:
        """Why the stream's answers are outdated: it has not reported for too long. Empty if they are current."""
        silent_ms = self._clock() - self._alive_ms
        if silent_ms <= max(self._policy.current.stale_s * 1000, LEAST_SILENCE_MS):
            return ""
        return f"the placement stream has not reported progress for {silent_ms // 1000} s"

    def batch(self, frame: DataFrame, _batch: int) -> None:
        """Sink of the placement stream; idempotent. What the journal does not accept now is written again later, so the
        stream does not wait for it."""
        self.alive()
        rows = frame.toArrow().to_pylist()
        if not rows:
            return
        with self.lock:
            answers = [(bucket, self.board.aged(answer)) for bucket, answer in map(answer_of, rows)]
            cleared = [self.board.apply(bucket, answer) for bucket, answer in answers]
            self._cleared += cleared
            self._count_findings(cleared)
        try:
            self.reconcile()
        except TrueupError as error:
            self.blocked_reason = str(error)
            log.warning("repairs not written to the journal yet", extra={"problem": str(error)})
        # Status and approvals do not wait for the findings topic.
        self._topic.publish([answer.findings for _, answer in answers], cleared, self._all_findings)

    def reconcile(self) -> None:
        """Observe, and order what is due. Raises `Retry` if the journal does not accept writes."""
        with self._acting:
            now_ms, marks = self._clock(), self._cluster.marks()
            with self.lock:
                self.board.marks = NO_MARKS if marks is None else marks
                self.board.outdated = self._cluster.outdated()
            if not self.complete or marks is None:
                # Without an answer of its bucket in this run, a ledger is not known to be true.
                self.blocked_reason = "the view is not complete yet"
                return
            with self.lock:
                self.board.whole()
            self._observe(now_ms)
            before, self.blocked_reason = self.blocked_reason, self.silent() or self._cluster.blocked_reason()
            if self.blocked_reason:
                return
            self._report_unregistered()
            if now_ms < self._again_ms:
                self.blocked_reason = before
                return
            policy = self._policy.current
            with self.lock:
                rate, old_workers = self._rate(policy, now_ms), self._old_workers()
                room = self._copies.room if self._copies else 0
                due = plan(self.board, self.repairs, policy, now_ms, rate, old_workers, room)
                self.waiting = dict(due.waiting)
            self._execute(due, now_ms)

    def _observe(self, now_ms: int) -> None:
        """Apply observations to the repairs, and write these to the journal."""
        absent, policy = self._absent(now_ms), self._policy.current
        ended = self._copies.taken() if self._copies else []
        copying = {*self._copies.running} if self._copies else set()
        with self.lock:
            copied = self._copied(ended, now_ms)
            cleared, self._cleared = self._cleared, []
            deleted = frozenset(i for c in cleared for i in c.ledger[c.deleted].tolist())
            changed = observe(self.board, self.repairs, policy, now_ms, deleted, absent, copying)
        self._remember([*copied, *changed])

    def _absent(self, now_ms: int) -> frozenset[int]:
        """Orders whose mark does not exist although it is overdue. The marks are read from ZooKeeper: an existing mark
        that is considered missing would be written a second time, beyond the cap."""
        with self.lock:
            late = unseen(self.board, self.repairs, now_ms)
        if not late or now_ms - self._looked_ms < LOOK_MS:
            return frozenset()
        self._looked_ms = now_ms
        try:
            marks = self._cluster.marked(late)
        except TrueupError as error:
            log.warning("marks not read", extra={"problem": str(error)})
            return frozenset()
        # A mark that may not be read may be ours.
        present = {i for i, mark in marks.items() if mark is None or mark.ctime_ms == self.repairs[i].mark_ctime_ms}
        return frozenset(late) - present

    def approve(self, versions: Mapping[int, int]) -> list[int]:
        """Approve the repair of each of these ledgers that still waits in this version; returns the approved ones. They
        are ordered by the next reconcile. Raises `Retry`, without a change, if the approval cannot be written to the
        journal soon."""
        if not self._acting.acquire(timeout=APPROVE_S):
            raise Retry(
                "the reconciler to be free",
                f"busy for {APPROVE_S:.0f} s: {self.blocked_reason or 'orders are executed'}",
                "try again",
            )
        try:
            now_ms = self._clock()
            with self.lock:
                rows = unheld(wanted(self.board, self.repairs, self._policy.current, now_ms))
            fresh = [repair for repair in self._fresh(rows) if versions.get(repair.ledger) == repair.version]
            changed = [
                advance(r, RepairEvent.APPROVE, now_ms, "by an operator")
                for r in fresh
                if r.stage != RepairStage.APPROVED
            ]
            self._journal.put(map(_record, changed), APPROVE_S)
            self._take(changed)
            self._report(changed)
            return [repair.ledger for repair in fresh]
        finally:
            self._acting.release()

    @property
    def _answered(self) -> bool:
        first = self._keeper.first_epoch
        return first is not None and self.board.settled(self._buckets, first)

    @property
    def complete(self) -> bool:
        """Whether every bucket has answered in this run, after everything that the journal held."""
        return self._answered and self._caught_up()

    @property
    def settled(self) -> bool:
        """Whether every bucket has judged by the topology in force."""
        topology = self._keeper.topology
        return self.complete and topology is not None and self.board.settled(self._buckets, topology.epoch)

    def _rate(self, policy: PlacementSettings, now_ms: int) -> int:
        """Number of marks that the rate limit allows now."""
        self._tokens.limit(policy.marks_per_s / 1000)
        return int(self._tokens.room(now_ms))

    def _report_unregistered(self) -> None:
        """Report bookies that ledgers name and that were never registered to the keeper."""
        with self.lock:
            rows = self.board.findings[self.board.findings["rule"] == _UNKNOWN_BOOKIE]
            rows = rows[~np.isin(rows["ledger"], self.board.outdated)][:UNREGISTERED_AT_ONCE]
        asked, topology = rows["ledger"].tobytes() + rows["mzxid"].tobytes(), self._keeper.topology
        if not len(rows) or asked == self._asked or topology is None:
            return
        try:
            self._keeper.add_unregistered(unregistered(self._cluster.read(rows["ledger"].tolist()), topology))
        except TrueupError as error:
            log.warning("unregistered bookies not determined", extra={"problem": str(error)})
        else:
            self._asked = asked

    def _execute(self, due: RepairPlan, now_ms: int) -> None:
        try:
            if due.withdrawals:
                self._withdraw(due.withdrawals, now_ms)
            if len(due.marks):
                self._mark(due.marks, now_ms)
            if len(due.copies):
                self._copy(due.copies, now_ms)
        except TrueupError as error:
            self.blocked_reason = str(error)
            log.warning("orders interrupted", extra={"problem": str(error)})

    def _copy(self, rows: Rows, now_ms: int) -> None:
        """Begin copies of ledgers whose current metadata still need one."""
        assert self._copies is not None, "without copies the plan has none"
        rows = rows[np.argsort(rows["ledger"])]
        fresh = self._cluster.read(rows["ledger"].tolist())
        topology, former, findings, due = self._due(rows, fresh, repairable(self._policy.current), now_ms)
        planner = MovePlanner(topology, self._copies.used)
        for repair, row in zip(self._fresh(findings), np.flatnonzero(due).tolist(), strict=True):
            refusing = former.of(repair.ledger) | self._copies.refusing(repair.ledger)
            moves = self._moves(planner, repair, fresh.isolations[int(fresh.isolation[row])], refusing)
            begun = advance(repair, RepairEvent.COPY, now_ms, moves.text)
            if not moves.moves:
                self._copies.forget_refusals(repair.ledger)
                begun = declined(
                    begun, now_ms, self._first_wait_ms, detail="no bookie is left that can take the replicas"
                )
            self._take([begun])
            self._remember([begun])
            if moves.moves:
                self._copies.begin(repair.ledger, repair.version, moves)

    def copy_of(self, record: LedgerRecord, isolation: str) -> tuple[LedgerMoves, Mapping[str, float]] | None:
        """How a ledger would be copied now, with the share of its disks that each bookie uses. None if Trueup does not
        copy it: the workers repair ledgers, or it is not closed."""
        topology, closed = self._keeper.topology, record["state"] == LedgerState.CLOSED
        if self._copies is None or topology is None or not topology.policy.copies or not closed:
            return None
        with self.lock:
            former = self.board.former.at(self._clock())
        refusing = former.of(record["ledger"]) | self._copies.refusing(record["ledger"])
        return MovePlanner(topology, self._copies.used).moves(record, isolation, refusing), self._copies.used

    def _moves(self, planner: MovePlanner, repair: Repair, isolation: str, refusing: Set[str]) -> LedgerMoves:
        """The moves for a ledger; none if its metadata are not those of the decision."""
        record = self._cluster.record(repair.ledger)
        if record is None or record["version"] != repair.version or record["state"] != LedgerState.CLOSED:
            return LedgerMoves()
        return planner.moves(record, isolation, frozenset(refusing))

    def _copied(self, outcomes: Sequence[CopyOutcome], now_ms: int) -> list[Repair]:
        """Apply the ends of copies. Only an observation shows whether the ledger is true. Returns the changed
        repairs."""
        changed = []
        for outcome in outcomes:
            repair = self.repairs.get(outcome.ledger)
            self._metrics.action("copy", outcome.result, 1)
            if repair is None or repair.stage is not RepairStage.COPYING:
                continue
            if outcome.result in ("copied", "unknown"):
                after = advance(repair, RepairEvent.DONE, now_ms, outcome.detail)
            else:
                after = declined(repair, now_ms, self._first_wait_ms, detail=outcome.detail)
            self.repairs[repair.ledger] = after
            changed.append(after)
        return changed

    @property
    def _first_wait_ms(self) -> int:
        return int(self._policy.current.decline_retry_s * 1000)

    def _mark(self, rows: Rows, now_ms: int) -> None:
        """Order marks in parts. While one part is written, the next is prepared and the one after it is read."""
        pending: Future[list[MarkOutcome]] | None = None
        edges = pairwise([0, *range(FIRST_ORDERS, len(rows), ORDERS_AT_ONCE), len(rows)])
        parts = (some[np.argsort(some["ledger"])] for some in (rows[first:last] for first, last in edges))
        with ThreadPoolExecutor(1, "marks") as writer:
            try:
                for some, fresh in ahead((some, self._cluster.read(some["ledger"].tolist())) for some in parts):
                    orders = self._order(some, fresh, now_ms)
                    before, pending = pending, writer.submit(self._cluster.mark, orders)
                    if before is not None:
                        self._written(before.result(), now_ms)
            finally:
                if pending is not None:
                    self._written(pending.result(), now_ms)

    def _order(self, rows: Rows, fresh: Ledgers, now_ms: int) -> list[MarkOrder]:
        """Judge current reads of the ledgers and write the orders to the journal."""
        topology, _, findings, due = self._due(rows, fresh, MARKED, now_ms)
        orders, repairs = [], []
        for prior, lost in zip(self._fresh(findings), lost_members(fresh.take(due), topology), strict=True):
            # The mark of an abandoned order may exist unobserved; the same ctime identifies it as ours.
            repair = advance(prior, RepairEvent.ORDER, now_ms, mark_ctime_ms=prior.mark_ctime_ms or now_ms)
            repairs.append(repair)
            orders.append(MarkOrder(repair.ledger, repair.version, lost, repair.mark_ctime_ms))
        self._take(repairs)
        self._remember(repairs)
        self._tokens.take(len(orders))
        return orders

    def _due(
        self, rows: Rows, fresh: Ledgers, rules: Rows, now_ms: int
    ) -> tuple[Topology, FormerMembers, Rows, Column]:
        """Judge current reads of the ledgers of these findings. Returns the topology, the bookies that may refuse
        ledgers, the findings that are due, and which of the reads these are: bool. ``rules``: whether ledgers of each
        rule are due, by code."""
        topology = self._keeper.topology
        assert topology is not None, "a view is complete only after a topology"
        findings = rows[np.searchsorted(rows["ledger"], fresh.ledger)]
        with self.lock:
            former = self.board.former.at(now_ms)
        now = judge(fresh, topology, former)
        # The decision, and an approval, hold for one version of the ledger; the view judges later versions.
        due = (findings["version"] == fresh.version) & rules[now.rule] & ~now.held
        return topology, former, findings[due], due

    def _written(self, outcomes: Sequence[MarkOutcome], now_ms: int) -> None:
        self._count("mark", outcomes)
        # Only an observation shows whether a mark exists, and its owner.
        failed = [o for o in outcomes if o.result not in ("written", "already", "unknown")]
        with self.lock:
            details = [(self.repairs.pop(o.ledger), f"{o.result}: {o.detail}") for o in failed]
        self._remember([advance(repair, RepairEvent.REFUSE, now_ms, detail) for repair, detail in details])
        self._back_off(outcomes, now_ms)

    def _back_off(self, outcomes: Sequence[MarkOutcome], now_ms: int) -> None:
        """Delay the next marks if none of these could be written; the delay doubles with each failure."""
        if not outcomes or any(o.result not in ("retry", "failed") for o in outcomes):
            self._failures = 0
            return
        wait_ms = backoff(FIRST_WAIT_MS, self._failures, LONGEST_WAIT_MS)
        self._failures, self._again_ms = self._failures + 1, now_ms + wait_ms
        self.blocked_reason = f"no mark could be written: {outcomes[0].detail}"
        log.warning("orders interrupted", extra={"problem": self.blocked_reason, "again_in_ms": wait_ms})

    def _count(self, kind: str, outcomes: Sequence[MarkOutcome]) -> None:
        for result, count in Counter(outcome.result for outcome in outcomes).items():
            self._metrics.action(kind, result, count)

    def _withdraw(self, repairs: Sequence[Repair], now_ms: int) -> None:
        with self.lock:
            marks = [(repair.ledger, self.board.mark(repair.ledger)) for repair in repairs]
        outcomes = self._cluster.withdraw([(i, int(mark["version"])) for i, mark in marks if mark is not None])
        self._count("withdraw", outcomes)
        with self.lock:
            gone = [self.repairs.pop(o.ledger) for o in outcomes if o.result == "withdrawn"]
            changed = [withdrawn(repair, now_ms, int(self._policy.current.decline_retry_s * 1000)) for repair in gone]
            self._take(repair for repair in changed if repair.stage not in ENDS)
        self._remember(changed)

    def _fresh(self, findings: Rows) -> Iterator[Repair]:
        """The repair of each finding, with the state of earlier attempts for the same reason."""
        columns = (findings[name].tolist() for name in ("ledger", "rule", "version", "since_ms"))
        for ledger, code, version, since_ms in zip(*columns, strict=True):
            prior, rule = self.repairs.get(ledger), RULES[code].id
            if prior is not None and renewed(prior, rule):
                prior = prior._replace(attempts=0, next_ms=0)
            yield (
                Repair(ledger, rule, version, since_ms) if prior is None else prior._replace(rule=rule, version=version)
            )

    def _take(self, repairs: Iterable[Repair]) -> None:
        with self.lock:
            self.repairs.update({repair.ledger: repair for repair in repairs})

    def _remember(self, repairs: Sequence[Repair]) -> None:
        """Write repairs to their topic and to the history. Raises `Retry`; they are then written before any later
        repairs."""
        self._report(repairs)
        self._unsaved.update({repair.ledger: repair for repair in repairs})
        if self._unsaved:
            self._journal.put(map(_record, self._unsaved.values()))
            self._unsaved = {}

    def _report(self, repairs: Sequence[Repair]) -> None:
        for stage, count in Counter(repair.stage for repair in repairs).items():
            self._metrics.repair(stage, count)
        self.history.add(*(entry(repair) for repair in repairs if repair.stage is not RepairStage.APPROVED))

    def _count_findings(self, cleared: Iterable[ClearedFindings]) -> None:
        now_ms, topology = self._clock(), self._keeper.topology
        self._metrics.findings(by_rule(self.board.findings))
        for part in cleared:
            for since_ms in part.since_ms[part.wrong & ~part.deleted].tolist():
                self._metrics.healed((now_ms - since_ms) / 1000)
        if topology is not None:
            self._keeper.again_ms = self.board.former.next_ms(topology.at_ms)

    def _all_findings(self) -> Rows | None:
        """All findings; None until every bucket has answered."""
        with self.lock:
            return self.board.findings if self._answered else None


def lost_members(ledgers: Ledgers, topology: Topology) -> list[tuple[str, ...]]:
    """For each ledger, the lost bookies in any of its fragments: the missing replicas in BookKeeper's mark."""
    gone = {bookie.id for bookie in topology.bookies if bookie.status is Status.LOST}
    lost = np.array([name in gone for name in ledgers.names], bool)
    hits = np.flatnonzero(lost[ledgers.members]) if len(lost) else np.zeros(0, np.int64)
    owners = np.repeat(np.arange(len(ledgers)), np.diff(ledgers.starts))[hits]
    members: list[dict[str, None]] = [{} for _ in range(len(ledgers))]
    for row, code in zip(owners.tolist(), ledgers.members[hits].tolist(), strict=True):
        members[row][ledgers.names[code]] = None
    return [tuple(names) for names in members]


def _record(repair: Repair) -> Put:
    return REPAIRS, ledger_key(repair.ledger), None if repair.stage in ENDS else repair


def repair_of(record: Record) -> Repair:
    """The inverse of `_record`."""
    return Repair(**{**record, "stage": RepairStage(record["stage"])})


def entry(repair: Repair) -> HistoryRow:
    """A repair as a row of the history."""
    return HistoryRow(
        repair.at_ms,
        action_id(repair.ledger, repair.version),
        "repair",
        repair.stage.value,
        repair.ledger,
        rule=repair.rule,
        detail=repair.detail,
        who=ITSELF,
    )


def action_id(ledger: int, version: int) -> str:
    """Name of the action that repairs a version of a ledger."""
    return f"repair-{ledger}-v{version}"
