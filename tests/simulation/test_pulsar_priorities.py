"""Mutation tests of the simulation of read priorities: the checkers detect each planted defect and wrong write."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.simulation.checkers import Violation
from tests.simulation.planted import complaint
from tests.simulation.priorities import Admin, CheckedCopies, PriorityParts
from tests.simulation.pulsar_part import PulsarPart, PulsarParts
from tests.simulation.simulation import Parts, Simulation
from tests.simulation.store import BK, FIELD, TS
from trueup.connectors.pulsar.admin.client import PolicyScope
from trueup.connectors.pulsar.admin.policies import OffloadPolicy
from trueup.state.read_priority import plan
from trueup.state.read_priority.copies import CopyState
from trueup.state.read_priority.settings import ReadPrioritySettings
from trueup.streams.config.live import LiveSection
from trueup.streams.read_priority.reconciler import ReadPriorityReconciler

PULSAR = ("placement", "pulsar")
pytestmark = pytest.mark.release


def of_priorities(says: str, parts: PriorityParts | None = None) -> str:
    """The complaint about read priorities with these parts."""
    return complaint(says, Parts(pulsar=PulsarParts(priorities=parts or PriorityParts())), PULSAR)


def under(change: Callable[[ReadPrioritySettings], ReadPrioritySettings]) -> type[ReadPriorityReconciler]:
    """A reconciler under other settings than those in force."""

    class Under(ReadPriorityReconciler):
        def __init__(self, policy: LiveSection[ReadPrioritySettings], *parts: Any) -> None:
            super().__init__(policy.changed(change), *parts)

    return Under


class Incomplete(Admin):
    """Loses a field of a policy that it returns."""

    def policy(self, scope: PolicyScope) -> OffloadPolicy:
        body = super().policy(scope).body()
        body.pop("maxThreads", None)
        return OffloadPolicy(body or None)


class Trusting(CheckedCopies):
    """Takes a bookie without a response for one that has the ledger."""

    def _answer(self, bookie: str, holds: bool) -> CopyState:
        return CopyState.WHOLE if self._brokers.world.up(bookie) and holds else CopyState.GONE


class Confident(CheckedCopies):
    """Takes every copy in BookKeeper for whole."""

    def _state(self, number: int) -> CopyState:
        return CopyState.WHOLE


DEFECTS = {
    "without approval": (under(lambda s: replace(s, mode="enforce")), "in mode observe|without an approval"),
    "impatient": (under(lambda s: replace(s, stall_looks=1)), "neither declared nor needed"),
    "hasty": (under(lambda s: replace(s, settle_looks=1, settle_s=0.0)), "neither declared nor needed"),
    "undeclared": (under(lambda s: replace(s, declared={"t/b": "tiered-storage-first"})), "which is not declared"),
}
"""Defective reconcilers, each with what the checkers say of it."""


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defective_reconciler_is_caught(name: str) -> None:
    reconciler, says = DEFECTS[name]
    assert re.search(says, of_priorities(says, PriorityParts(reconciler=reconciler)))


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        (PriorityParts(admin=Incomplete), "fields of .* were lost"),
        (PriorityParts(copies=Confident), "may stall|neither declared nor needed|is declared"),
        (PriorityParts(copies=Trusting), "may stall|neither declared nor needed"),
    ],
    ids=["incomplete", "confident", "trusting"],
)
def test_a_defective_observation_is_caught(parts: PriorityParts, says: str) -> None:
    assert re.search(says, of_priorities(says, parts))


def test_a_namespace_that_harms_topics_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "harmed", lambda *_: "")
    assert "may stall" in of_priorities("may stall")


def test_a_policy_with_credentials_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OffloadPolicy, "without_secrets", lambda policy: policy)
    says = "has credentials, or no driver"
    assert says in of_priorities(says)


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("t/a", {FIELD: BK}),
        ("t/a/one", {FIELD: BK}),
        ("t/a", None),
        ("t/a", {FIELD: TS, "managedLedgerOffloadDriver": "other"}),
    ],
)
def test_a_wrong_write_is_caught(name: str, body: dict[str, object] | None) -> None:
    simulation = Simulation(1, None, PULSAR)
    simulation.end_faults()
    simulation.advance(1_000)
    part: PulsarPart = simulation.parts["pulsar"]  # type: ignore[assignment]
    before = part.policies.stored[name] = {**part.policies.made(), FIELD: TS}
    merged = None if body is None else {**before, **body}
    with pytest.raises(Violation):
        part.priority_checkers.written(name, before, merged, part.chosen)
