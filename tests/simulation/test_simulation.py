"""The seeds that every test run simulates."""

import pytest

from tests.simulation.simulation import simulate

SEEDS, ALWAYS, TOGETHER = 1000, 100, 50
"""The first seeds run in every test run, all of them in `make release-check`."""


@pytest.mark.parametrize(
    "first", [pytest.param(n, marks=[pytest.mark.release] if n >= ALWAYS else []) for n in range(0, SEEDS, TOGETHER)]
)
def test_no_checker_complains(first: int):
    outcomes = [simulate(seed) for seed in range(first, first + TOGETHER)]
    assert min(sum(o.crashes for o in outcomes), sum(o.marks for o in outcomes), sum(o.repaired for o in outcomes)) > 0


def test_a_seed_repeats_itself():
    assert simulate(7) == simulate(7)
