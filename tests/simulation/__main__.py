"""`python -m tests.simulation --seeds N [--seed FIRST] [--only PART ...] [--policy POLICY] [--verbose]`: exit code 1 on
failure. A policy other than rack is simulated with the part placement alone."""

import argparse
import logging
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import asdict

from tests.simulation.checkers import Violation
from tests.simulation.policy_parts import POLICIES
from tests.simulation.simulation import SUBSETS, Simulation, simulate

EVERY_S = 1.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Seeded simulation of a world.")
    parser.add_argument("--seeds", type=int, default=None, help="how many (1000, or 1 if --seed is given)")
    parser.add_argument("--seed", type=int, default=None, help="the first one")
    parser.add_argument("--only", nargs="+", default=(), choices=max(SUBSETS, key=len), help="these parts of the world")
    parser.add_argument(
        "--policy", default="rack", choices=POLICIES, help="the placement policy, or copy: rack, repaired by copy"
    )
    parser.add_argument("--verbose", action="store_true", help="show everything that happened")
    given = parser.parse_args()
    first = given.seed or 0
    count = given.seeds if given.seeds is not None else 1000 if given.seed is None else 1
    logging.disable(logging.CRITICAL)
    only = given.only if given.policy == "rack" else ("placement",)
    return (_verbose if given.verbose else _quick)(first, count, only, given.policy)


def _verbose(first: int, count: int, only: Collection[str], policy: str) -> int:
    failed = 0
    for seed in range(first, first + count):
        simulation = Simulation(seed, None, only, policy)
        try:
            print(simulation.run())
        except Violation as error:
            failed += 1
            print(f"FAILED: {error}")
        print(*simulation.world.log, sep="\n")
    return int(failed > 0)


def _quick(first: int, count: int, only: Collection[str], policy: str) -> int:
    failed, seen = 0, Counter[str]()
    began = printed = time.monotonic()
    for done, seed in enumerate(range(first, first + count), 1):
        try:
            seen.update(asdict(simulate(seed, None, only, policy)))
        except Violation as error:
            failed += 1
            print(f"\nFAILED: {error}", *getattr(error, "__notes__", ()), f"commit {_commit()}", sep="\n")
        if time.monotonic() - printed > EVERY_S or done == count:
            printed = time.monotonic()
            rate = (printed - began) / done * 1000
            found = ", ".join(f"{number} {what}" for what, number in seen.items() if what != "seed")
            print(f"\r{done} of {count} seeds, {failed} failed, {rate:.0f} ms each; {found} ", end="", flush=True)
    print()
    return int(failed > 0)


def _commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
