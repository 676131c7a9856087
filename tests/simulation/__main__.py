"""`python -m tests.simulation --seeds N [--seed FIRST] [--verbose]`: simulate, and stop with 1 if a check fails."""

import argparse
import logging
import subprocess
import sys
import time

from tests.simulation.checkers import Violation
from tests.simulation.simulation import Simulation, simulate, trace

EVERY_S = 1.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Seeded simulation of a cluster.")
    parser.add_argument("--seeds", type=int, default=None, help="how many (1000, or 1 if --seed is given)")
    parser.add_argument("--seed", type=int, default=None, help="the first one")
    parser.add_argument("--verbose", action="store_true", help="show everything that happened")
    given = parser.parse_args()
    first = given.seed or 0
    count = given.seeds if given.seeds is not None else 1000 if given.seed is None else 1
    logging.disable(logging.CRITICAL)
    return _verbose(first, count) if given.verbose else _quick(first, count)


def _verbose(first: int, count: int) -> int:
    failed = 0
    for seed in range(first, first + count):
        simulation = Simulation(seed)
        try:
            print(simulation.run())
        except Violation as error:
            failed += 1
            print(f"FAILED: {error}")
        print(trace(simulation, len(simulation.world.log)))
    return int(failed > 0)


def _quick(first: int, count: int) -> int:
    failed, marks, repaired, crashes = 0, 0, 0, 0
    began = told = time.monotonic()
    for done, seed in enumerate(range(first, first + count), 1):
        try:
            outcome = simulate(seed)
            marks, repaired, crashes = (
                marks + outcome.marks, repaired + outcome.repaired, crashes + outcome.crashes,
            )  # fmt: skip
        except Violation as error:
            failed += 1
            print(f"\nFAILED: {error}", *getattr(error, "__notes__", ()), f"commit {_commit()}", sep="\n")
        if time.monotonic() - told > EVERY_S or done == count:
            told = time.monotonic()
            rate = (told - began) / done * 1000
            print(
                f"\r{done} of {count} seeds, {failed} failed, {rate:.0f} ms each; "
                f"{marks} marks, {repaired} repairs, {crashes} crashes ", end="", flush=True,
            )  # fmt: skip
    print()
    return int(failed > 0)


def _commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
