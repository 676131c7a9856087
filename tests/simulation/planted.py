"""Defects that are planted into a run: the intended checker finds each of them."""

import re
from collections.abc import Collection

from tests.simulation.checkers import Violation
from tests.simulation.simulation import Parts, simulate

SEEDS = 300
"""Maximum number of seeds until a planted defect is found."""


def complaint(
    says: str, parts: Parts | None = None, only: Collection[str] = (), policy: str = "rack", seeds: int = SEEDS
) -> str:
    """Message of the first violation that a checker describes so; else of the last one. ``only``: the parts of the
    world, see `Simulation`."""
    message = f"no complaint within {seeds} seeds"
    for seed in range(seeds):
        try:
            simulate(seed, parts, only, policy)
        except Violation as error:
            message = str(error)
            if re.search(says, message):
                break
    return message
