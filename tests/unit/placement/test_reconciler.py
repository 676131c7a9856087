import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import trueup.streams.placement.reconciler as module
from tests.journals import FakeJournal
from trueup.connectors.bookkeeper.metadata.mark_codec import Mark
from trueup.connectors.bookkeeper.placement.mark_creations import MarkOrder
from trueup.connectors.bookkeeper.placement.marks import MarkOutcome
from trueup.state.bookkeeper.ledgers import EMPTY, Column, Ledgers, concat, row
from trueup.state.bookkeeper.marks import MARK, NO_MARKS, MarkRows
from trueup.state.bookkeeper.topology import Bookie, Status, Topology
from trueup.state.common.errors import Retry
from trueup.state.placement.lifecycle import Repair, RepairEvent, RepairStage, advance
from trueup.state.placement.policy.fencing import NO_FORMER, FormerMembers
from trueup.state.placement.repairs import SETTLE_MS
from trueup.state.placement.rules import RULES
from trueup.state.placement.settings import PlacementSettings
from trueup.state.placement.view import FINDING, NO_FINDINGS, BucketAnswer, Rows
from trueup.streams.config.live import LiveSection
from trueup.streams.journal.codec import ledger_key
from trueup.streams.placement.metrics import PlacementMetrics
from trueup.streams.placement.reconciler import PlacementReconciler, lost_members
from trueup.streams.runtime.metrics import Metrics

TOPOLOGY = Topology(
    1,
    0,
    (
        Bookie("a:1", "/a", Status.WRITABLE, 0),
        Bookie("b:1", "/b", Status.LOST, 0),
        Bookie("c:1", "/c", Status.LOST, 0),
        Bookie("d:1", "/d", Status.PENDING, 0),
    ),
)
NOW = 1_000_000


def test_a_mark_names_the_lost_members_of_all_fragments_once():
    rows = concat(
        [row(1, ["a:1", "b:1"], ["c:1", "b:1"], quorum=2), row(2, ["a:1", "d:1"], quorum=2), row(3, ["c:1"], quorum=1)]
    )
    assert lost_members(rows, TOPOLOGY) == [("b:1", "c:1"), (), ("c:1",)]


def test_without_ledgers_no_bookie_is_named():
    assert lost_members(concat([]), TOPOLOGY) == []


class Topics(FakeJournal):
    """A journal in memory. ``stuck``: puts block until this event is set."""

    def __init__(self) -> None:
        super().__init__()
        self.stuck: threading.Event | None = None
        self.waiting = threading.Event()

    def put(self, records: Iterable[tuple[str, bytes, Any]], within_s: float = 30.0) -> None:
        if self.stuck is not None:
            self.waiting.set()
            self.stuck.wait(within_s)
        super().put(records)

    def send(self, parts: Iterable[tuple[str, Sequence[bytes], Sequence[bytes | None]]]) -> None:
        for what, keys, bodies in parts:
            self.put((what, *pair) for pair in zip(keys, bodies, strict=True))

    def there(self, what: str) -> set[int]:
        return {int.from_bytes(k, "big") for (w, k), value in self.taken.items() if w == what and value is not None}


class Bookkeeper:
    """A cluster of two racks, a and b. ``written``: its marks; ``seen``: those that were observed; ``closed``: ledgers
    that may not be read any more."""

    def __init__(self) -> None:
        self.rows: Ledgers = EMPTY
        self.written: dict[int, Mark | None] = {}
        self.seen: MarkRows | None = NO_MARKS
        self.asked = 0
        self.closed = np.zeros(0, np.int64)

    def outdated(self) -> Column:
        return self.closed

    def read(self, ledgers: Sequence[int]) -> Ledgers:
        return self.rows.take(np.isin(self.rows.ledger, ledgers))

    def mark(self, orders: Sequence[MarkOrder]) -> list[MarkOutcome]:
        self.written |= {order.ledger: Mark(order.replicas, order.ctime_ms) for order in orders}
        return [MarkOutcome(order.ledger, "written") for order in orders]

    def marked(self, ledgers: Sequence[int]) -> dict[int, Mark | None]:
        self.asked += 1
        return {ledger: self.written[ledger] for ledger in ledgers if ledger in self.written}

    def withdraw(self, items: Sequence[tuple[int, int]]) -> list[MarkOutcome]:
        return [MarkOutcome(ledger, "withdrawn") for ledger, _ in items]

    def marks(self) -> MarkRows | None:
        return self.seen

    def blocked_reason(self) -> str:
        return ""


class Bookies:
    """The state of a keeper."""

    first_epoch = 1
    again_ms: int | None = None

    def __init__(self) -> None:
        names = (("a1", "/a"), ("a2", "/a"), ("b1", "/b"))
        self.topology = Topology(1, 0, tuple(Bookie(b, rack, Status.WRITABLE, 0) for b, rack in names))


class Healed(PlacementMetrics):
    """Metrics that also list the repair times."""

    def __init__(self) -> None:
        super().__init__(Metrics(cluster="unit"))
        self.times: list[float] = []

    def healed(self, seconds: float) -> None:
        self.times.append(seconds)


class Driven:
    """A reconciler with all its dependencies exposed."""

    def __init__(self, **policy: Any) -> None:
        self.journal, self.cluster, self.keeper, self.metrics = Topics(), Bookkeeper(), Bookies(), Healed()
        self.now_ms, self.policy = NOW, PlacementSettings(**{"mode": "enforce", **policy})
        now = LiveSection(lambda: self.policy)
        parts: tuple[Any, ...] = (self.cluster, self.journal, now, self.keeper, self.metrics)
        self.read = True
        self.reconciler = PlacementReconciler(*parts, lambda: self.now_ms, 1, caught_up=lambda: self.read)

    def answer(
        self, *findings: Rows, marks: MarkRows | None = NO_MARKS, former: FormerMembers = NO_FORMER, full: bool = True
    ) -> None:
        """A batch in which the only bucket answers with its full state or with changes. ``marks``: all that are there
        now."""
        self.cluster.seen = marks
        answer = BucketAnswer(1, full, 9, np.concatenate([NO_FINDINGS, *findings]), former)
        self.reconciler.batch(Frame(answer), 0)  # type: ignore[arg-type]

    def repair(self, ledger: int) -> Repair:
        return self.reconciler.repairs[ledger]

    def outcome(self, ledger: int) -> str:
        return next(e.outcome for e in reversed(self.reconciler.history.rows()) if e.ledger == ledger)


class Frame:
    """One answer in the form that the sink receives."""

    def __init__(self, answer: BucketAnswer) -> None:
        self._answer = answer

    def toArrow(self) -> "Frame":  # noqa: N802
        return self

    def to_pylist(self) -> list[dict[str, Any]]:
        answer = self._answer
        return [
            {
                "bucket": 0,
                "epoch": answer.epoch,
                "full": answer.full,
                "ledgers": answer.ledgers,
                "findings": answer.findings.tobytes(),
                "former": answer.former.to_bytes(),
            }
        ]


def finding(ledger: int, rule: str = "placement.too-few-racks", version: int = 0, copies: int = 2) -> Rows:
    code = RULES.code(rule)
    return np.array([(ledger, 1, NOW - 5_000, 0, version, 0, copies, 1, RULES[code].verdict, code, 0)], FINDING)


def on_one_rack(ledger: int) -> Ledgers:
    return row(ledger, ["a1", "a2"], quorum=2)


def ordered(driven: Driven, ledger: int = 1) -> None:
    """Order a mark for a ledger. The mark is not observed yet."""
    driven.cluster.rows = on_one_rack(ledger)
    driven.answer(finding(ledger))


def test_what_drifted_is_marked():
    driven = Driven()
    ordered(driven)
    assert (list(driven.cluster.written), driven.repair(1).stage) == ([1], RepairStage.ORDERED)


def test_a_repair_of_a_lost_member_counts_its_own_attempts():
    driven = Driven()
    a1, a2, b1 = driven.keeper.topology.bookies
    driven.keeper.topology = replace(driven.keeper.topology, bookies=(a1, replace(a2, status=Status.LOST), b1))
    driven.reconciler.repairs[1] = Repair(
        1, "placement.too-few-racks", 0, 0, RepairStage.DECLINED, NOW, 77, attempts=9, next_ms=NOW + 86_400_000
    )
    driven.cluster.rows = on_one_rack(1)
    driven.answer(finding(1, "placement.lost-member", copies=1))
    assert (driven.repair(1).stage, driven.repair(1).attempts) == (RepairStage.ORDERED, 0)


def test_nothing_is_done_before_the_marks_were_read():
    driven = Driven()
    driven.reconciler.repairs = {1: Repair(1, "r", 0, 0, RepairStage.MARKED, NOW, 77)}
    driven.cluster.rows = on_one_rack(2)
    driven.answer(finding(1), finding(2), marks=None)
    assert (driven.cluster.written, driven.repair(1).stage) == ({}, RepairStage.MARKED)


def test_a_fresh_judgement_includes_refusing_bookies():
    driven = Driven()
    driven.cluster.rows = on_one_rack(1)
    moved = NO_FORMER.merge(row(1, ["a1", "b1"], quorum=2), row(1, ["a1", "a2"], quorum=2, mzxid=9), None)
    driven.answer(finding(1), former=replace(moved, until_ms=np.array([NOW + 1])))
    assert driven.cluster.written == {}


def test_the_keeper_receives_the_time_at_which_a_verdict_may_change():
    driven = Driven(mode="observe")
    moved = NO_FORMER.merge(row(1, ["a1", "b1"], quorum=2), row(1, ["a1", "a2"], quorum=2, mzxid=9), None)
    driven.answer(finding(1), former=replace(moved, until_ms=np.array([NOW + 77])))
    assert driven.keeper.again_ms == NOW + 77


def test_an_order_that_does_not_show_is_looked_for_and_found():
    driven = Driven()
    ordered(driven)
    driven.now_ms += SETTLE_MS
    driven.reconciler.alive()
    driven.reconciler.reconcile()
    assert (driven.repair(1).stage, driven.cluster.asked) == (RepairStage.ORDERED, 1)


def test_an_order_that_is_not_there_is_given_up():
    driven = Driven()
    ordered(driven)
    driven.cluster.written.clear()
    driven.now_ms += SETTLE_MS
    driven.reconciler.alive()
    driven.reconciler.reconcile()
    assert driven.repair(1).stage is RepairStage.DECLINED


def test_what_a_worker_did_before_its_mark_was_seen_is_confirmed_with_the_next_answer():
    driven = Driven()
    ordered(driven)
    driven.cluster.written.clear()
    driven.now_ms += 1_000
    driven.answer()
    assert driven.reconciler.history.rows()[-1].outcome == RepairStage.SAFE


def test_an_order_in_the_place_of_which_another_wrote_a_mark_is_given_up():
    driven = Driven()
    ordered(driven)
    driven.cluster.written[1] = Mark(("x",), 5)
    driven.now_ms += SETTLE_MS
    driven.reconciler.reconcile()
    assert driven.repair(1).stage is RepairStage.DECLINED


def test_an_order_is_not_given_up_while_its_mark_may_not_be_read():
    driven = Driven()
    ordered(driven)
    driven.cluster.written[1] = None
    driven.now_ms += SETTLE_MS
    driven.reconciler.reconcile()
    assert driven.repair(1).stage is RepairStage.ORDERED


def test_an_order_is_not_given_up_while_marks_cannot_be_read():
    driven = Driven()
    ordered(driven)
    driven.cluster.marked = lambda _: (_ for _ in ()).throw(Retry("a session", "none", "wait"))  # type: ignore[method-assign]
    driven.now_ms += SETTLE_MS
    driven.reconciler.reconcile()
    assert driven.repair(1).stage is RepairStage.ORDERED


def under_way(driven: Driven, ledger: int = 1) -> None:
    """A repair whose mark was observed."""
    repair = advance(Repair(ledger, "r", 0, 0, mark_ctime_ms=77), RepairEvent.ORDER, NOW)
    driven.reconciler.repairs[ledger] = advance(repair, RepairEvent.APPEAR, NOW)
    driven.answer(finding(ledger), marks=np.array([(ledger, 77, 0, 0)], MARK))


def test_a_ledger_that_was_deleted_while_the_journal_was_away_is_not_taken_for_healed():
    driven = Driven()
    under_way(driven)
    driven.journal.down = True
    for _ in range(2):  # the batch runs again
        driven.answer(finding(1, "placement.gone"), full=False)
    driven.journal.down = False
    driven.reconciler.reconcile()
    assert driven.outcome(1) == "dropped"


def test_what_the_journal_did_not_take_is_given_again():
    driven = Driven()
    under_way(driven)
    driven.answer(finding(1), marks=np.array([(1, 77, 0, 1)], MARK))
    driven.journal.down = True
    driven.answer()
    driven.journal.down = False
    driven.reconciler.reconcile()
    assert driven.journal.there("repairs") == set()


def test_unpublished_findings_are_published_with_the_next():
    driven = Driven(mode="observe")
    driven.answer(finding(1), finding(2))
    driven.journal.down = True
    driven.answer(finding(2), finding(3))
    driven.journal.down = False
    driven.answer(finding(2), finding(3))
    assert driven.journal.there("findings") == {2, 3}


def test_findings_of_an_earlier_run_are_removed():
    driven = Driven(mode="observe")
    driven.journal.taken["findings", ledger_key(7)] = {
        "ledger": 7,
        "verdict": "drifted",
        "rule": "r",
        "since_ms": 1,
        "version": 0,
        "mzxid": 1,
        "copies": 1,
        "racks": 1,
        "fragment": 0,
    }
    driven.answer(finding(1))
    assert driven.journal.there("findings") == {1}


def blocked(driven: Driven) -> threading.Thread:
    """A turn that is blocked on the journal."""
    driven.journal.stuck = threading.Event()
    thread = threading.Thread(target=lambda: ordered(driven), daemon=True)
    thread.start()
    assert driven.journal.waiting.wait(60)
    return thread


def released(driven: Driven, thread: threading.Thread) -> None:
    assert driven.journal.stuck is not None
    driven.journal.stuck.set()
    thread.join(60)
    assert not thread.is_alive()


def test_readers_do_not_wait_for_the_journal():
    driven = Driven()
    thread = blocked(driven)
    free = driven.reconciler.lock.acquire(timeout=60)
    driven.reconciler.lock.release()
    released(driven, thread)
    assert free


def test_an_approval_is_refused_soon_where_the_journal_keeps_everybody_waiting(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "APPROVE_S", 0.01)
    driven = Driven()
    thread = blocked(driven)
    with pytest.raises(Retry):
        driven.reconciler.approve({1: 3})
    released(driven, thread)


def test_an_approval_that_could_not_be_remembered_was_not_given():
    driven = Driven(mode="approve")
    driven.cluster.rows = on_one_rack(1)
    driven.answer(finding(1))
    driven.journal.down = True
    with pytest.raises(Retry):
        driven.reconciler.approve({1: 3})
    assert driven.reconciler.repairs == {}


def test_nothing_is_changed_while_the_stream_is_silent():
    driven = Driven()
    driven.cluster.rows = on_one_rack(1)
    driven.policy = replace(driven.policy, paused=True)
    driven.answer(finding(1))
    driven.policy = replace(driven.policy, paused=False)
    driven.now_ms += int(driven.policy.stale_s * 1000) + 1
    driven.reconciler.reconcile()
    assert (driven.cluster.written, "not reported progress" in driven.reconciler.blocked_reason) == ({}, True)


@pytest.mark.parametrize(("sign", "quiet"), [(lambda d: d.reconciler.alive(), True), (lambda _: None, False)])
def test_a_progress_report_ends_the_blocked_reason(sign: Callable[[Driven], None], quiet: bool):
    driven = Driven()
    driven.now_ms += 10_000_000
    sign(driven)
    assert (driven.reconciler.silent() == "") is quiet


def test_what_was_unknown_is_not_a_repair():
    driven = Driven(mode="observe")
    driven.answer(finding(1), finding(2, "placement.unreadable"))
    driven.answer()
    assert driven.metrics.times == [5.0]


def test_a_lost_view_leaves_a_repair_as_it_is_until_the_journal_was_read_again():
    driven = Driven()
    ordered(driven)
    before = driven.repair(1)
    driven.read = False
    driven.reconciler.lose_view()
    driven.answer()  # its ledger was not read yet
    assert (driven.repair(1), driven.reconciler.blocked_reason) == (before, "the view is not complete yet")
    driven.read = True
    driven.answer(finding(1))
    assert (driven.repair(1), driven.reconciler.blocked_reason) == (before, "")


def test_a_lost_view_marks_nothing_until_the_journal_was_read_again():
    driven = Driven()
    driven.read = False
    ordered(driven)
    assert (driven.cluster.written, driven.reconciler.complete) == ({}, False)
    driven.read = True
    driven.reconciler.reconcile()
    assert list(driven.cluster.written) == [1]


def test_the_findings_topic_follows_a_view_that_was_lost():
    driven = Driven(mode="observe")
    driven.answer(finding(1), finding(2))
    driven.reconciler.lose_view()
    driven.answer(finding(2))
    assert driven.journal.there("findings") == {2}
