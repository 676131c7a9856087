"""The seeds of the simulation of read priorities, and writes that the checkers must refuse."""

import pytest

from tests.simulation.checkers import Violation
from tests.simulation.read_priority.simulation import Simulation
from tests.simulation.read_priority.world import BK, FIELD, TS

CHUNK = 20
SEEDS = [
    pytest.param(at, marks=[pytest.mark.release] if at >= 100 else [], id=f"{at}-{at + CHUNK - 1}")
    for at in range(0, 1_000, CHUNK)
]


@pytest.mark.parametrize("first", SEEDS)
def test_policies_are_changed_only_as_declared_or_needed(first: int) -> None:
    for seed in range(first, first + CHUNK):
        try:
            Simulation(seed).run()
        except Violation as violation:
            raise AssertionError(f"seed {seed}: {violation}") from violation


def test_simulated_changes_happen() -> None:
    runs = [Simulation(seed) for seed in range(10)]
    for run in runs:
        run.run()
    assert sum(run.checker.writes for run in runs) > 20


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("t/a", {FIELD: BK}),
        ("t/a/one", {FIELD: BK}),
        ("t/a", None),
        ("t/a", {FIELD: TS, "managedLedgerOffloadDriver": "other"}),
    ],
)
def test_a_checker_finds_a_wrong_write(name: str, body: dict[str, object] | None) -> None:
    made = Simulation(1)
    made.world.calm()
    made.admin.calm = made.journal.calm = True
    made.reconciler.reconcile()
    before = made.world.policies[name] = {**made.world.made(), FIELD: TS}
    merged = None if body is None else {**before, **body}
    with pytest.raises(Violation):
        made.checker.written(name, before, merged)
