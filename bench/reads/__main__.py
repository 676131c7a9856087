"""Reads of topics by Trueup compared with Pulsar's Java and Python clients through a broker.

    python -m bench.reads [--quick] [-o table|json]

Prints one table and writes bench/results/reads.json, unless it is quick. The exit code is 0 if everything was
measured, even if targets are missed, and 1 if a measurement failed, or if a contender did not read what was written.
"""

import argparse
import random
import shutil
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.common.keeping import keep
from bench.common.measure import tell
from bench.common.rows import Row, less, more
from bench.reads import contenders
from bench.reads.cluster import Cluster, Load
from bench.reads.contenders import CONTENDERS, PRIORITIES, WARM, Reading, Site

RESULTS = Path(__file__).parents[1] / "results" / "reads.json"
LOADS = (Load(1_024, True, 256_000), Load(1_024, False, 100_000), Load(100, True, 1_000_000), Load(100, False, 200_000))
QUICK_SHARE, ROUNDS = 4, 3
Readings = Mapping[str, Sequence[Reading]]
"""The readings of one load from one tier, by contender."""


def main() -> int:
    """Measure, print, and write the results."""
    chosen = _arguments()
    return keep(lambda root: _measure(chosen.quick, root), None if chosen.quick else RESULTS, chosen.output)


def _measure(quick: bool, root: Path) -> list[Row]:
    share = QUICK_SHARE if quick else 1
    loads = [load._replace(messages=load.messages // share) for load in LOADS]
    found = list[Row]()
    with Cluster(root / "cluster", share) as cluster:
        for load in (WARM, *loads):
            cluster.fill(load)
        for tier in PRIORITIES:
            if tier != "BookKeeper":
                for load in loads:
                    cluster.offload(load)
            readings = _rounds(Site(cluster, loads, tier, root), 1 if quick else ROUNDS)
            for load in loads:
                found += _rows(f"{tier}, {load.name}", readings[load.name], tier != "BookKeeper")
    return found


def _rounds(site: Site, rounds: int) -> Mapping[str, Readings]:
    found: dict[str, dict[str, list[Reading]]] = defaultdict(lambda: defaultdict(list))
    for number in range(rounds):
        for name in random.Random(number).sample([*CONTENDERS], len(CONTENDERS)):
            tell(f"{site.tier}: {name}, round {number + 1} of {rounds}")
            place = site.root / f"{number}-{name}"
            for load, reading in contenders.run(name, site._replace(root=place)).items():
                found[load][name].append(reading)
            shutil.rmtree(place, ignore_errors=True)
    return found


def _rows(what: str, readings: Readings, tiered: bool) -> list[Row]:
    java, python, own = (readings[name] for name in CONTENDERS)
    found = [
        more(f"{what}; peer: Java client", "MB/s", _all(java, "mb_per_s"), _all(own, "mb_per_s"), 1.5),
        more("  peer: Python client", "MB/s", _all(python, "mb_per_s"), _all(own, "mb_per_s"), 3.0),
        less("  CPU of the reader; peer: Java client", "us/message", _all(java, "cpu_us"), _all(own, "cpu_us")),
        less("  CPU of the reader; peer: Python client", "us/message", _all(python, "cpu_us"), _all(own, "cpu_us")),
        less("  CPU of the broker; peer: Java client", "us/message", _all(java, "broker_us"), _all(own, "broker_us")),
        less("  time to the first row; peer: Java client", "s", _all(java, "first_s"), _all(own, "first_s")),
    ]
    if tiered:
        peer, ours = _all(java, "requests_per_gb"), _all(own, "requests_per_gb")
        found.append(less("  requests to the object store; peer: Java client", "1/GB", peer, ours, 5.0))
    return found


def _all(readings: Sequence[Reading], figure: str) -> list[float]:
    return [getattr(reading, figure) for reading in readings]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.reads", description="Benchmarks of reads of topics")
    parser.add_argument("--quick", action="store_true", help="one round, a quarter of the messages; nothing is kept")
    parser.add_argument("-o", dest="output", choices=("table", "json"), default="table", help="what to print")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
