"""The seeds that every test run simulates."""

import pytest

from tests.simulation.deletion.simulation import simulate

SEEDS, ALWAYS, TOGETHER = 1000, 100, 100
"""The first seeds run in every test run, all of them in `make release-check`."""


@pytest.mark.parametrize(
    "first", [pytest.param(n, marks=[pytest.mark.release] if n >= ALWAYS else []) for n in range(0, SEEDS, TOGETHER)]
)
def test_nothing_in_use_is_deleted_and_everything_forgotten_is(first: int) -> None:
    outcomes = [simulate(seed) for seed in range(first, first + TOGETHER)]
    found = [sum(o.deleted for o in outcomes), sum(o.confirmed for o in outcomes), sum(o.crashes for o in outcomes)]
    assert min(found) > 0


def test_a_seed_repeats_itself() -> None:
    assert simulate(7) == simulate(7)
