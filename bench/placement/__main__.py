"""Trueup's placement stream compared with BookKeeper's Auditor and Spark's Kafka source, on real servers.

    python -m bench.placement [--only lost-bookie|stream|snapshot] [--quick] [-o table|json]

Prints one table and writes bench/results/placement.json. With --only, figures that were not measured are kept. The exit
code is 0 if everything was measured, even if targets are missed, and 1 if a measurement failed.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.common.keeping import keep
from bench.common.rows import Row
from bench.placement import lost_bookie, snapshot, stream
from bench.placement.site import Site

RESULTS = Path(__file__).parents[1] / "results" / "placement.json"
PARTS = ("lost-bookie", "stream", "snapshot")
SIZES, QUICK = (20_000, 200_000), (20_000,)
ROUNDS = 3


def main() -> int:
    """Measure, print, and write the results."""
    chosen = _arguments()
    kept = None if chosen.quick else RESULTS
    return keep(lambda root: _measure(chosen, root), kept, chosen.output, part=bool(chosen.only))


def _measure(chosen: argparse.Namespace, root: Path) -> list[Row]:
    parts = chosen.only or (("lost-bookie",) if chosen.quick else PARTS)
    found: list[Row] = []
    if {"lost-bookie", "snapshot"} & set(parts):
        with Site(root / "site") as site:
            found += _on_site(site, parts, chosen.ledgers or (QUICK if chosen.quick else SIZES), _rounds(chosen))
        shutil.rmtree(root / "site", ignore_errors=True)
    if "stream" in parts:
        found += stream.run(root / "stream", tuple(chosen.stream), _rounds(chosen))
    return found


def _on_site(site: Site, parts: Sequence[str], sizes: Sequence[int], rounds: int) -> list[Row]:
    found: list[Row] = []
    index_s: list[float] = []
    for ledgers in sizes if "lost-bookie" in parts else ():
        made = lost_bookie.run(site, ledgers, rounds)
        index_s = made.index_s
        found += lost_bookie.rows(made)
    if "snapshot" in parts:
        found += snapshot.run(site, site.root / "start", sizes[-1], index_s)
    return found


def _rounds(chosen: argparse.Namespace) -> int:
    return 1 if chosen.quick else ROUNDS


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.placement", description="Benchmarks of the placement stream")
    parser.add_argument("--only", action="append", choices=PARTS, help="measure this part; may be given again")
    parser.add_argument(
        "--quick", action="store_true", help="one round, 20,000 ledgers, lost-bookie unless --only; nothing is kept"
    )
    parser.add_argument("--ledgers", nargs="+", type=int, metavar="N", help=f"ledgers in ZooKeeper, not {SIZES}")
    parser.add_argument("--stream", nargs="+", type=int, metavar="N", default=stream.SIZES, help="ledgers in the view")
    parser.add_argument("-o", dest="output", choices=("table", "json"), default="table", help="what to print")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
