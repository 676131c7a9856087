"""Mutation tests of the simulation: the checkers detect each planted defect."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import trueup.streams.placement.reconciler as reconciler
from tests.simulation.instances import Process
from tests.simulation.placing import PlacementParts
from tests.simulation.planted import complaint
from tests.simulation.simulation import Parts
from trueup.state.bookkeeper.ledgers import Ledgers
from trueup.state.bookkeeper.topology import Topology
from trueup.state.common.rules import Verdict
from trueup.state.placement.board import RepairPlan, plan
from trueup.state.placement.lifecycle import RepairEvent, advance
from trueup.state.placement.policy.fencing import FormerMembers
from trueup.state.placement.settings import PlacementSettings
from trueup.state.placement.verdicts import Verdicts, judge
from trueup.state.placement.view import Bucket, Rows
from trueup.streams.bookkeeper.keeper import TopologyKeeper
from trueup.streams.placement.judging import Judging
from trueup.streams.placement.reconciler import MarkOrder, PlacementReconciler

PLACEMENT = ("placement",)


def of_placement(parts: PlacementParts | None = None, says: str = "") -> str:
    """The complaint about placement with these parts."""
    found = complaint(says, Parts(placement=parts or PlacementParts()), PLACEMENT)
    return "" if found.startswith("no complaint") else found


def drifted(chosen: Callable[[Ledgers, Verdicts], Rows]) -> Callable[..., Verdicts]:
    """A `judge` that also returns drifted for these rows."""

    def judged(ledgers: Ledgers, topology: Topology, *rest: Any) -> Verdicts:
        result = judge(ledgers, topology, *rest)
        return replace(result, verdict=np.where(chosen(ledgers, result), np.uint8(Verdict.DRIFTED), result.verdict))

    return judged


class Blind(PlacementReconciler):
    """Orders the board's findings without judging them again; the newest version passes the connector's check."""

    def _order(self, rows: Rows, fresh: Ledgers, now_ms: int) -> list[MarkOrder]:
        known = {repair.ledger: repair for repair in self._fresh(rows)}
        orders = []
        for ledger, version in zip(fresh.ledger.tolist(), fresh.version.tolist(), strict=True):
            repair = known[ledger]._replace(version=version, mark_ctime_ms=now_ms)
            self.repairs[ledger] = advance(repair, RepairEvent.ORDER, now_ms)
            orders.append(MarkOrder(ledger, version, (), now_ms))
        return orders


class Forgetful(PlacementReconciler):
    def load(self) -> None:
        pass


class Hasty(PlacementReconciler):
    """Acts before every bucket has answered."""

    @property
    def complete(self) -> bool:
        return self._keeper.topology is not None


class Late(PlacementReconciler):
    """Persists an order after its execution."""

    def _mark(self, rows: Rows, now_ms: int) -> None:
        kept, held = self._journal, []

        class Holding:
            def put(self, records: Any) -> None:
                held.extend(records)

        self._journal = Holding()
        try:
            super()._mark(rows, now_ms)
        finally:
            self._journal = kept
        kept.put(held)


class Oblivious(Bucket):
    """Ignores which bookies may refuse a ledger."""

    def _know(self, former: FormerMembers) -> None:
        pass


class Stale(Bucket):
    """Treats the last row that arrived as the newest."""

    def _fold(self, arrived: Ledgers, topology: Topology | None) -> Ledgers:
        return super()._fold(replace(arrived, mzxid=self._newest + 1 + np.arange(len(arrived))), topology)


class Deaf(Bucket):
    """Does not judge again after a change of the bookies."""

    def _judge_all(self, topology: Topology) -> Rows:
        return self.findings if len(self.findings) else super()._judge_all(topology)


class Rash(TopologyKeeper):
    """Treats missing bookies as lost at once, however many."""

    def settle(self) -> None:
        policy = self._policy
        self._policy = policy.changed(lambda policy: replace(policy, grace_s=0.0, hold_share=1.0))
        try:
            super().settle()
        finally:
            self._policy = policy


class Sanguine(Judging):
    """Counts published ledgers as judged."""

    def published(self, observations: Any) -> None:
        pass


class Dated(PlacementReconciler):
    """Treats verdicts for an earlier bookie topology as current."""

    @property
    def settled(self) -> bool:
        return self.complete


@pytest.mark.parametrize(
    "parts", [PlacementParts(judging=Sanguine), PlacementParts(reconciler=Dated)], ids=["sanguine", "dated"]
)
def test_an_api_that_reports_more_than_was_judged_is_caught(parts: PlacementParts):
    assert "the API" in of_placement(parts, "the API")


@pytest.mark.parametrize(
    "parts",
    [
        PlacementParts(reconciler=Blind),
        PlacementParts(reconciler=Forgetful),
        PlacementParts(reconciler=Hasty),
        PlacementParts(reconciler=Late),
        PlacementParts(bucket=Oblivious),
        PlacementParts(bucket=Stale),
        PlacementParts(bucket=Deaf),
        PlacementParts(keeper=Rash),
    ],
    ids=["blind", "forgetful", "hasty", "late", "oblivious", "stale", "deaf", "rash"],
)
def test_a_defective_part_is_caught(parts: PlacementParts):
    assert of_placement(parts)


class Unfenced(Process):
    """ZooKeeper takes the changes of an earlier leader."""

    def refused(self, epoch: int) -> bool:
        return False


def test_a_leader_that_acts_after_the_next_one_is_caught():
    assert "acted after" in complaint("acted after", Parts(process=Unfenced), PLACEMENT)


def planned(change: Callable[[PlacementSettings], PlacementSettings]) -> Callable[..., RepairPlan]:
    """A plan under a policy other than the one in force."""
    return lambda board, repairs, policy, *rest: plan(board, repairs, change(policy), *rest)


@pytest.mark.parametrize(
    ("policy", "says"),
    [({"max_marks": 1000}, "the cap is"), ({"mode": "enforce"}, "observe|approved"), ({"paused": False}, "paused")],
    ids=["no cap", "no mode", "no pause"],
)
def test_a_policy_that_is_not_kept_is_caught(monkeypatch: pytest.MonkeyPatch, policy: dict[str, Any], says: str):
    monkeypatch.setattr(reconciler, "plan", planned(lambda in_force: replace(in_force, **policy)))
    assert re.search(says, of_placement(None, says))


@pytest.mark.parametrize(
    "chosen",
    [
        lambda ledgers, _: ledgers.state == 1,
        lambda _, result: result.verdict == Verdict.BLOCKED,
        lambda _, result: result.verdict == Verdict.UNKNOWN,
        lambda _, result: result.verdict == Verdict.TRUE,
    ],
    ids=["open", "blocked", "unknown", "healthy"],
)
def test_a_wrong_judgement_is_caught(monkeypatch: pytest.MonkeyPatch, chosen: Callable[[Ledgers, Verdicts], Rows]):
    monkeypatch.setattr("trueup.state.placement.view.judge", drifted(chosen))
    monkeypatch.setattr(reconciler, "judge", drifted(chosen))
    assert of_placement()


def test_a_mark_of_a_held_ledger_is_caught(monkeypatch: pytest.MonkeyPatch):
    def unheld(ledgers: Ledgers, topology: Topology, *rest: Any) -> Verdicts:
        return replace(judge(ledgers, topology, *rest), held=np.zeros(len(ledgers), bool))

    monkeypatch.setattr("trueup.state.placement.view.judge", unheld)
    monkeypatch.setattr(reconciler, "judge", unheld)
    assert "was held" in of_placement(None, "was held")


def test_marks_of_others_are_watched(monkeypatch: pytest.MonkeyPatch):
    class Greedy(PlacementReconciler):
        def reconcile(self) -> None:
            super().reconcile()
            for mark in self.board.marks if self._policy.current.mode == "enforce" else ():
                self._cluster.withdraw([(int(mark["ledger"]), int(mark["version"]))])

    assert "was withdrawn" in of_placement(PlacementParts(reconciler=Greedy), "was withdrawn")
