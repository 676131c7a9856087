"""The seeds of the one world that every test run simulates."""

import pytest

from tests.simulation.simulation import SUBSETS, Simulation, simulate

SEEDS, ALWAYS, TOGETHER = 1000, 300, 50
"""The first seeds run in every test run, all of them in `make release-check`."""
ALL = max(SUBSETS, key=len)
RARE = ("seed", "removed", "watched", "recopied")
"""What need not happen in every group of seeds; groups are watched under isolation only, and ledgers are copied with
the executor copy only."""


@pytest.mark.parametrize(
    "first", [pytest.param(n, marks=[pytest.mark.release] if n >= ALWAYS else []) for n in range(0, SEEDS, TOGETHER)]
)
def test_no_checker_complains(first: int) -> None:
    found = [vars(simulate(seed)) for seed in range(first, first + TOGETHER)]
    totals = {name: sum(outcome[name] for outcome in found) for name in found[0]}
    assert [name for name, total in totals.items() if not total and name not in RARE] == []


def test_a_seed_repeats_itself() -> None:
    runs = [Simulation(7, None, ALL) for _ in range(2)]
    outcomes = [run.run() for run in runs]
    assert (outcomes[0], runs[0].world.log) == (outcomes[1], runs[1].world.log)
