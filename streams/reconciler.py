"""Closes the loop: answers of the stream onto the board, repairs forward, orders to the connector.

Runs in the driver, in foreachBatch and at every tick. All of it may be lost at any instant: the board comes back
with the first epoch of a run, the repairs from their topic, and an order is remembered before it is carried out.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from pyspark.sql import DataFrame

from connectors.bookkeeper.actions import MarkOrder, Outcome
from state.board import Board, Cleared, Plan, observe, plan, wanted
from state.errors import Refused, TrueupError
from state.ledgers import Ledgers
from state.placement import judge, strangers
from state.repairs import ENDS, Event, Repair, Stage, advance
from state.rules import RULES, Verdict
from state.settings import Placement
from state.topology import Status, Topology
from state.view import Rows
from streams.codec import ledger_key
from streams.journal import Journal
from streams.keeper import Keeper
from streams.metrics import Metrics
from streams.placement import answer_of

log = logging.getLogger(__name__)
ORDERS_AT_ONCE = 2_000
HISTORY = 10_000
FIRST_WAIT_MS, LONGEST_WAIT_MS = 500, 30_000
STRANGERS_AT_ONCE = 1_000
_UNKNOWN_BOOKIE = RULES.code("placement.unknown-bookie")


class Cluster(Protocol):
    """What the loop needs of a connector."""

    def read(self, ledgers: Sequence[int]) -> Ledgers:
        """Fresh rows of these ledgers; those that are gone are left out."""

    def mark(self, orders: Sequence[MarkOrder]) -> list[Outcome]:
        """Write marks, each on its own requirements."""

    def withdraw(self, ledger: int, version: int) -> Outcome:
        """Take a mark back if it still has this znode version."""

    def obstacle(self) -> str:
        """Why nothing may be changed now; empty if it may."""


class Reconciler:
    """The board, the repairs and the orders. Safe to use from several threads."""

    def __init__(
        self,
        cluster: Cluster,
        journal: Journal,
        policy: Callable[[], Placement],
        keeper: Keeper,
        metrics: Metrics,
        clock: Callable[[], int],
        buckets: int,
    ) -> None:
        self._cluster, self._journal, self._metrics = cluster, journal, metrics
        self._policy, self._keeper, self._clock, self._buckets = policy, keeper, clock, buckets
        self.lock = threading.RLock()
        self.board = Board()
        self.repairs: dict[int, Repair] = {}
        self.history: deque[dict[str, Any]] = deque(maxlen=HISTORY)
        self.waiting: dict[str, int] = {}
        self.obstacle = "starting"
        self._tokens, self._tokens_ms = 0.0, 0
        self._asked = b""
        self._failures, self._again_ms = 0, 0

    def load(self) -> None:
        """Take up the repairs of earlier runs."""
        for record in self._journal.read("repairs"):
            ledger = int.from_bytes(record.key, "big")
            if record.value is None:
                self.repairs.pop(ledger, None)
            else:
                self.repairs[ledger] = Repair(**{**record.value, "stage": Stage(record.value["stage"])})

    def batch(self, frame: DataFrame, _batch: int) -> None:
        """Sink of the placement stream. A repeated batch changes nothing."""
        rows = frame.toArrow().to_pylist()
        if rows:
            with self.lock:
                said = [answer_of(row) for row in rows]
                cleared = [self.board.apply(bucket, answer) for bucket, answer in said]
                self._heard(cleared)
                self.turn(cleared)
            # Nobody who wants to know or to approve waits for those who follow the topic.
            self._publish([answer.findings for _, answer in said], cleared)

    def turn(self, cleared: Iterable[Cleared] = ()) -> None:
        """Look at what is known now and order what is due."""
        with self.lock:
            policy, now_ms = self._policy(), self._clock()
            if not self.complete:
                # What a bucket has not said in this run is not true for that.
                self.obstacle = "the view is not complete yet"
                return
            deleted = frozenset(i for c in cleared for i in c.ledger[c.deleted].tolist())
            self._remember(observe(self.board, self.repairs, policy, now_ms, deleted))
            before, self.obstacle = self.obstacle, self._cluster.obstacle()
            if self.obstacle:
                return
            self._introduce()
            if now_ms < self._again_ms:
                self.obstacle = before
                return
            due = plan(self.board, self.repairs, policy, now_ms, self._rate(policy, now_ms))
            self.waiting = dict(due.waiting)
            self._carry_out(due, now_ms)

    def approve(self, ledgers: Sequence[int] | None) -> list[int]:
        """An operator's yes to these ledgers (None: to all that wait); those it was given to."""
        with self.lock:
            now_ms = self._clock()
            rows = wanted(self.board, self.repairs, now_ms)
            if ledgers is not None:
                missing = sorted(set(ledgers) - set(rows["ledger"].tolist()))
                if missing:
                    raise Refused("ledgers of the present plan", f"{missing}", "look at `trueup plan` again")
                rows = rows[np.isin(rows["ledger"], ledgers)]
            fresh = [self._fresh(row) for row in rows]
            changed = [advance(r, Event.APPROVE, now_ms, "by an operator") for r in fresh if r.stage != Stage.APPROVED]
            self.repairs.update({repair.ledger: repair for repair in changed})
            self._remember(changed)
            self.turn()
            return [repair.ledger for repair in fresh]

    @property
    def complete(self) -> bool:
        """Whether every bucket has answered in this run."""
        first = self._keeper.first_epoch
        return first is not None and self.board.settled(self._buckets, first)

    def _rate(self, policy: Placement, now_ms: int) -> int:
        """Marks that the rate limit leaves: a bucket that holds one second's worth, or one mark."""
        passed = max(0, now_ms - self._tokens_ms) / 1000 * policy.marks_per_s
        self._tokens = min(max(policy.marks_per_s, 1.0), self._tokens + passed)
        self._tokens_ms = now_ms
        return int(self._tokens)

    def _introduce(self) -> None:
        """Tell the keeper of bookies that ledgers name and nobody registered."""
        rows = self.board.findings[self.board.findings["rule"] == _UNKNOWN_BOOKIE][:STRANGERS_AT_ONCE]
        asked, topology = rows["ledger"].tobytes() + rows["mzxid"].tobytes(), self._keeper.topology
        if not len(rows) or asked == self._asked or topology is None:
            return
        try:
            self._keeper.strange(strangers(self._cluster.read(rows["ledger"].tolist()), topology))
        except TrueupError as error:
            log.warning("unknown bookies not looked up", extra={"problem": str(error)})
        else:
            self._asked = asked

    def _carry_out(self, due: Plan, now_ms: int) -> None:
        try:
            for repair in due.withdrawals:
                self._withdraw(repair, now_ms)
            for at in range(0, len(due.marks), ORDERS_AT_ONCE):
                self._mark(due.marks[at : at + ORDERS_AT_ONCE], now_ms)
        except TrueupError as error:
            self.obstacle = str(error)
            log.warning("orders interrupted", extra={"problem": str(error)})

    def _mark(self, rows: Rows, now_ms: int) -> None:
        """Order marks: read the ledgers once more, judge them again, remember the orders, write."""
        topology = self._keeper.topology
        assert topology is not None, "a view is complete only after a topology"
        fresh = self._cluster.read(rows["ledger"].tolist())
        found = dict(zip(rows["ledger"].tolist(), rows, strict=True))
        # What was decided on, and maybe approved, is one version; the view decides afresh on a later one.
        versions = zip(fresh.ledger.tolist(), fresh.version.tolist(), strict=True)
        decided = np.array([found[ledger]["version"] == version for ledger, version in versions], bool)
        still = fresh.take(decided & (judge(fresh, topology).verdict == Verdict.DRIFTED))
        orders, repairs = [], []
        columns = (still.ledger.tolist(), still.version.tolist(), lost_members(still, topology))
        for ledger, version, lost in zip(*columns, strict=True):
            known = self._fresh(found[ledger])
            # The mark of an order that was given up may be there unseen: with the same ctime it is known for ours.
            repair = replace(known, version=version, mark_ctime_ms=known.mark_ctime_ms or now_ms)
            repairs.append(advance(repair, Event.ORDER, now_ms))
            orders.append(MarkOrder(ledger, version, lost, repair.mark_ctime_ms))
        self.repairs.update({repair.ledger: repair for repair in repairs})
        self._remember(repairs)
        self._tokens -= len(orders)
        outcomes = self._cluster.mark(orders)
        self._remember([r for o in outcomes if (r := self._outcome(o, now_ms)) is not None])
        self._back_off(outcomes, now_ms)

    def _back_off(self, outcomes: Sequence[Outcome], now_ms: int) -> None:
        """Where none of the marks could be written, the next ones wait: each time twice as long."""
        if not outcomes or any(o.result not in ("retry", "failed") for o in outcomes):
            self._failures = 0
            return
        wait_ms = min(FIRST_WAIT_MS << min(self._failures, 16), LONGEST_WAIT_MS)
        self._failures, self._again_ms = self._failures + 1, now_ms + wait_ms
        self.obstacle = f"no mark could be written: {outcomes[0].detail}"
        log.warning("orders interrupted", extra={"problem": self.obstacle, "again_in_ms": wait_ms})

    def _outcome(self, outcome: Outcome, now_ms: int) -> Repair | None:
        self._metrics.action("mark", outcome.result)
        if outcome.result in ("written", "already", "unknown"):
            # Only an observation says whether the mark is there, and whose it is.
            return None
        detail = f"{outcome.result}: {outcome.detail}"
        return advance(self.repairs.pop(outcome.ledger), Event.REFUSE, now_ms, detail)

    def _withdraw(self, repair: Repair, now_ms: int) -> None:
        mark = self.board.mark(repair.ledger)
        if mark is None:
            return
        outcome = self._cluster.withdraw(repair.ledger, int(mark["version"]))
        self._metrics.action("withdraw", outcome.result)
        if outcome.result == "withdrawn":
            del self.repairs[repair.ledger]
            self._remember([advance(repair, Event.WITHDRAW, now_ms, repair.detail)])

    def _fresh(self, finding: Rows) -> Repair:
        """The repair of a finding, with the memory of earlier attempts."""
        ledger = int(finding["ledger"])
        known = self.repairs.get(ledger)
        rule, version = RULES[int(finding["rule"])].id, int(finding["version"])
        if known is not None:
            return replace(known, rule=rule, version=version)
        return Repair(ledger, rule, version, int(finding["since_ms"]))

    def _remember(self, repairs: Sequence[Repair]) -> None:
        """Put repairs on their topic, and the newest into the history."""
        if not repairs:
            return
        for repair in repairs:
            self._metrics.repair(repair.stage)
        self.history.extend(entry(repair) for repair in repairs)
        self._journal.put(
            ("repairs", ledger_key(r.ledger), None if r.stage in ENDS else {**as_record(r)}) for r in repairs
        )

    def _heard(self, cleared: Iterable[Cleared]) -> None:
        now_ms = self._clock()
        codes, counts = np.unique(self.board.findings["rule"], return_counts=True)
        self._metrics.findings(
            {RULES[code].id: count for code, count in zip(codes.tolist(), counts.tolist(), strict=True)}
        )
        for part in cleared:
            for since_ms in part.since_ms[~part.deleted].tolist():
                self._metrics.healed((now_ms - since_ms) / 1000)

    def _publish(self, findings: Iterable[Rows], cleared: Iterable[Cleared]) -> None:
        """Findings for whoever follows them; the board itself does not depend on this topic."""
        records: list[tuple[str, bytes, Any]] = []
        for rows in findings:
            standing = rows[rows["verdict"] != Verdict.TRUE]
            records += [("findings", ledger_key(int(row["ledger"])), finding_record(row)) for row in standing]
        records += [("findings", ledger_key(i), None) for part in cleared for i in part.ledger.tolist()]
        try:
            self._journal.put(records)
        except TrueupError as error:
            log.warning("findings not published", extra={"problem": str(error)})


def lost_members(ledgers: Ledgers, topology: Topology) -> list[tuple[str, ...]]:
    """Of each ledger, the lost bookies in any of its fragments: what BookKeeper's mark lists as missing replicas."""
    gone = {bookie.id for bookie in topology.bookies if bookie.status is Status.LOST}
    lost = np.array([name in gone for name in ledgers.names], bool)
    hits = np.flatnonzero(lost[ledgers.members]) if len(lost) else np.zeros(0, np.int64)
    owners = np.repeat(np.arange(len(ledgers)), np.diff(ledgers.starts))[hits]
    found: list[dict[str, None]] = [{} for _ in range(len(ledgers))]
    for row, code in zip(owners.tolist(), ledgers.members[hits].tolist(), strict=True):
        found[row][ledgers.names[code]] = None
    return [tuple(names) for names in found]


def as_record(repair: Repair) -> dict[str, Any]:
    """A repair as a record of its topic."""
    return {name: getattr(repair, name) for name in Repair.__slots__} | {"stage": repair.stage.value}


def entry(repair: Repair) -> dict[str, Any]:
    """A repair as a line of the history."""
    return {
        "at_ms": repair.at_ms, "id": action_id(repair.ledger, repair.version), "kind": "repair",
        "ledger": repair.ledger, "rule": repair.rule, "outcome": repair.stage.value, "detail": repair.detail,
    }  # fmt: skip


def action_id(ledger: int, version: int) -> str:
    """Name of the action that repairs a ledger as it was at a version."""
    return f"repair-{ledger}-v{version}"


def finding_record(row: Rows) -> dict[str, Any]:
    """A finding as a record of its topic."""
    rule = RULES[int(row["rule"])]
    numbers = ("ledger", "since_ms", "version", "mzxid", "copies", "racks", "fragment")
    return {**{n: int(row[n]) for n in numbers}, "verdict": rule.verdict.name.lower(), "rule": rule.id}
