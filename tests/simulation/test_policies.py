"""Placement under isolation groups, zones and regions: no checker complains, and each detects its planted defects."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from tests.simulation.planted import complaint
from tests.simulation.policy_checkers import IsolationCheckers
from tests.simulation.simulation import simulate
from trueup.state.placement.isolation import IsolationJudge
from trueup.state.placement.policy import fragments, places
from trueup.state.placement.policy.adherence import Adherence
from trueup.state.placement.policy.fragments import NO_BOOKIES, FragmentJudge
from trueup.state.placement.policy.groups import IsolationGroups, groups_of
from trueup.state.placement.rules import RULES

PLACEMENT = ("placement",)
POLICIES = ("isolation", "zone", "region")
SEEDS, ALWAYS, TOGETHER = 300, 12, 12
"""The first seeds of each policy run in every test run, all of them in `make release-check`."""
HAPPENS = ("steps", "crashes", "marks", "repaired")
"""What happens in every group of seeds."""


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "first", [pytest.param(n, marks=[pytest.mark.release] if n >= ALWAYS else []) for n in range(0, SEEDS, TOGETHER)]
)
def test_no_checker_complains(policy: str, first: int) -> None:
    outcomes = [vars(simulate(seed, None, PLACEMENT, policy)) for seed in range(first, first + TOGETHER)]
    names = (*HAPPENS, "watched") if policy == "isolation" else HAPPENS
    assert [name for name in names if not sum(outcome[name] for outcome in outcomes)] == []


@pytest.fixture(autouse=True)
def no_groups_of_other_tests() -> Iterator[None]:
    """A defective class leaves its answers in the cache."""
    groups_of.cache_clear()
    yield
    groups_of.cache_clear()


def planted(says: str, policy: str) -> str:
    """The complaint about placement under this policy."""
    return complaint(says, None, PLACEMENT, policy)


def unmoved(_judge: IsolationJudge, rings: Any, *_rest: Any) -> tuple[Any, Any, Any]:
    """No repair leaves the groups."""
    none = np.zeros(len(rings), bool)
    return none, ~none, none


def test_groups_that_are_ignored_when_marking_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IsolationJudge, "_repairs", unmoved)
    assert "was marked while it was LEAVES" in planted("was LEAVES", "isolation")


def test_a_replica_that_leaves_its_groups_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's move is a violation by itself, whatever the judgement of the mark."""
    monkeypatch.setattr(IsolationJudge, "_repairs", unmoved)
    monkeypatch.setattr(IsolationCheckers, "marking", lambda *_: None)
    monkeypatch.setattr(IsolationCheckers, "shown", lambda *_: None)
    assert "through a mark of ours" in planted("through a mark of ours", "isolation")


def test_secondary_groups_that_are_always_allowed_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def generous(groups: IsolationGroups, primary: frozenset[str], secondary: frozenset[str], _size: int) -> Any:
        return groups._in(primary) | groups._in(secondary)

    monkeypatch.setattr(IsolationGroups, "_select", generous)
    assert not planted("", "isolation").startswith("no complaint")


def test_namespaces_that_workers_are_believed_to_know_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IsolationGroups, "respected", lambda groups, _: groups._respected)
    assert not planted("", "isolation").startswith("no complaint")


def test_replacements_that_workers_move_again_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "trueup.state.placement.isolation.refilled", lambda *given, **named: (fragments.refill(*given[:3]), True)
    )
    assert "was LEAVES" in planted("was LEAVES", "isolation")


def marked_for(rules: Sequence[int]) -> Any:
    """`FragmentJudge._rules` that has fragments of these rules marked."""
    judged = FragmentJudge._rules

    def rule(*given: Any) -> Any:
        answer = judged(*given)
        return np.where(np.isin(answer, rules), RULES.code("placement.too-few-racks"), answer)

    return rule


@pytest.mark.parametrize("policy", ["zone", "region"])
def test_a_mark_for_placement_alone_is_caught(monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    monkeypatch.setattr(FragmentJudge, "_rules", marked_for([RULES.code(f"placement.too-few-{policy}s")]))
    assert "was marked for its placement" in planted("for its placement", policy)


def test_soft_that_is_taken_for_fail_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = places.zones.zone_adherence

    def strict(*given: Any) -> Any:
        answer = answers(*given)
        return np.where(answer == Adherence.SOFT, np.uint8(Adherence.FAIL), answer)

    monkeypatch.setattr(places.zones, "zone_adherence", strict)
    assert not planted("", "zone").startswith("no complaint")


def test_lost_members_that_are_never_marked_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FragmentJudge, "_lost", lambda *_: NO_BOOKIES)
    assert not planted("", "region").startswith("no complaint")
