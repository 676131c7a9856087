"""The loop of placement with executor copy, without a cluster."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.unit.placement.test_reconciler import NOW, Driven, finding, on_one_rack
from trueup.connectors.bookkeeper.metadata.metadata import gone
from trueup.state.bookkeeper.ledgers import row
from trueup.state.bookkeeper.observations import LedgerRecord, LedgerState
from trueup.state.placement.copies.targets import LedgerMoves, ReplicaMove
from trueup.state.placement.lifecycle import Repair, RepairStage
from trueup.state.placement.policy.fencing import NO_FORMER
from trueup.state.placement.repairs import SETTLE_MS
from trueup.streams.placement.reconciler import PlacementReconciler
from trueup.streams.placement.repairs.copying import CopyOutcome

MOVE = ReplicaMove(0, 0, "a1", "b1", 10)


class Copies:
    """Copies that run until the test ends them."""

    used: Mapping[str, float] = {}

    def __init__(self, room: int = 2) -> None:
        self.running: dict[int, LedgerMoves] = {}
        self.ended: list[CopyOutcome] = []
        self.most, self.refusals = room, dict[int, frozenset[str]]()

    def refusing(self, ledger: int) -> frozenset[str]:
        return self.refusals.get(ledger, frozenset())

    def forget_refusals(self, ledger: int) -> None:
        self.refusals.pop(ledger, None)

    @property
    def room(self) -> int:
        return self.most - len(self.running)

    def begin(self, ledger: int, version: int, moves: LedgerMoves) -> None:
        self.running[ledger] = moves

    def end(self, ledger: int, result: str) -> None:
        self.ended.append(CopyOutcome(ledger, result, "as it ended"))

    def taken(self) -> list[CopyOutcome]:
        ended, self.ended = self.ended, []
        for outcome in ended:
            self.running.pop(outcome.ledger, None)
        return ended


class Copying(Driven):
    """A reconciler whose ledgers have two replicas on one rack, of version 0."""

    def __init__(self, room: int = 2, **policy: Any) -> None:
        super().__init__(executor="copy", copy_enabled=True, **policy)
        self.copies, self.records = Copies(room), {1: record(1), 2: record(2)}
        self.cluster.record = self.records.get  # type: ignore[attr-defined]
        self.reconciler = PlacementReconciler(
            self.cluster,  # type: ignore[arg-type]
            self.journal,  # type: ignore[arg-type]
            self.reconciler._policy,
            self.keeper,  # type: ignore[arg-type]
            self.metrics,
            lambda: self.now_ms,
            1,
            copies=self.copies,
        )
        self.cluster.rows = on_one_rack(1)

    def again(self, after_ms: int = 0) -> None:
        """One pass without a new answer."""
        self.now_ms += after_ms
        self.reconciler.alive()
        self.reconciler.reconcile()


def record(ledger: int, **changes: Any) -> LedgerRecord:
    nothing = gone(ledger, 1, 0)
    fragments = [{"first_entry": 0, "bookies": ["a1", "a2"]}]
    closed = {"state": int(LedgerState.CLOSED), "version": 0, "ensemble": 2, "quorum": 2, "ack_quorum": 2}
    return {**nothing, **closed, "last_entry": 9, "fragments": fragments, **changes}  # type: ignore[typeddict-item]


def test_what_drifted_is_copied_and_not_marked() -> None:
    driven = Copying()
    driven.answer(finding(1))
    assert (driven.copies.running[1].moves, driven.cluster.written) == ((MOVE,), {})
    assert driven.repair(1).stage is RepairStage.COPYING


def test_what_no_worker_can_repair_is_copied() -> None:
    driven = Copying()
    driven.answer(finding(1, "placement.refused-by-target"))
    assert {*driven.copies.running} == {1}


def test_without_the_executor_nothing_is_copied() -> None:
    driven = Copying()
    driven.policy = replace(driven.policy, executor="workers")
    driven.answer(finding(1))
    assert (driven.copies.running, [*driven.cluster.written]) == ({}, [1])


@pytest.mark.parametrize("policy", [{"mode": "observe"}, {"mode": "approve"}, {"paused": True}], ids=str)
def test_nothing_is_copied_that_is_not_permitted(policy: dict[str, Any]) -> None:
    driven = Copying(**policy)
    driven.answer(finding(1))
    assert driven.copies.running == {}


def test_an_approved_copy_begins() -> None:
    driven = Copying(mode="approve")
    driven.answer(finding(1))
    driven.reconciler.approve({1: 0})
    driven.again()
    assert {*driven.copies.running} == {1}


def test_no_more_copies_begin_than_there_is_room_for() -> None:
    driven = Copying(room=1)
    driven.answer(finding(1), finding(2))
    assert ({*driven.copies.running}, driven.reconciler.waiting) == ({1}, {"a copy to end": 1})


def test_a_ledger_that_changed_since_is_not_copied() -> None:
    driven = Copying()
    driven.records[1] = record(1, version=7)
    driven.answer(finding(1))
    assert (driven.copies.running, driven.repair(1).stage) == ({}, RepairStage.DECLINED)


def test_an_open_ledger_is_not_copied() -> None:
    driven = Copying()
    driven.records[1] = record(1, state=int(LedgerState.OPEN))
    driven.answer(finding(1))
    assert driven.copies.running == {}


def test_a_ledger_without_a_bookie_that_can_take_its_replicas_waits() -> None:
    driven = Copying()
    moved = NO_FORMER.merge(row(1, ["a1", "b1"], quorum=2), row(1, ["a1", "a2"], quorum=2, mzxid=9), None)
    driven.cluster.rows = on_one_rack(1)
    driven.answer(
        finding(1, "placement.refused-by-target"), former=replace(moved, until_ms=np.array([NOW + 1_000_000]))
    )
    assert (driven.copies.running, driven.repair(1).stage) == ({}, RepairStage.DECLINED)


@pytest.mark.parametrize(
    ("result", "stage"),
    [
        ("copied", RepairStage.COPIED),
        ("unknown", RepairStage.COPIED),
        ("failed", RepairStage.DECLINED),
        ("refused", RepairStage.DECLINED),
    ],
)
def test_a_copy_that_ended_is_not_safe_before_it_was_observed(result: str, stage: RepairStage) -> None:
    driven = Copying()
    driven.answer(finding(1))
    driven.copies.end(1, result)
    driven.again()
    assert driven.repair(1).stage is stage


def test_a_copy_is_safe_when_the_ledger_is_true() -> None:
    driven = Copying()
    driven.answer(finding(1))
    driven.copies.end(1, "copied")
    driven.answer()
    assert (driven.reconciler.repairs, driven.outcome(1)) == ({}, "safe")


def test_a_copy_after_which_the_ledger_is_still_a_finding_is_tried_again_later() -> None:
    driven = Copying()
    driven.answer(finding(1))
    driven.copies.end(1, "copied")
    driven.again()
    driven.again(SETTLE_MS)
    assert driven.repair(1).stage is RepairStage.DECLINED


def test_a_copy_under_way_goes_on_however_long_it_takes() -> None:
    driven = Copying()
    driven.answer(finding(1))
    driven.again(100 * SETTLE_MS)
    assert driven.repair(1).stage is RepairStage.COPYING


def test_a_copy_of_an_earlier_run_is_tried_again() -> None:
    driven = Copying()
    driven.reconciler.repairs[1] = Repair(1, "placement.too-few-racks", 0, 0, RepairStage.COPYING, NOW - 1)
    driven.answer(finding(1))
    first = driven.repair(1).stage
    driven.again(int(driven.policy.decline_retry_s * 1_000))
    assert (first, driven.repair(1).stage) == (RepairStage.DECLINED, RepairStage.COPYING)


def test_a_bookie_that_refused_a_copy_is_tried_again_when_no_other_one_is_left() -> None:
    driven = Copying()
    driven.copies.refusals[1] = frozenset({"b1"})
    driven.answer(finding(1))
    first = driven.repair(1).stage
    driven.again(int(driven.policy.decline_retry_s * 1_000))
    assert (first, driven.copies.running[1].moves) == (RepairStage.DECLINED, (MOVE,))
