"""Links from and to RocketMQ clusters compared with copiers that use the Java clients, on the same brokers.

    python -m bench.rocketmq [--quick] [--only DIRECTION] [-o table|json]

Prints one table and writes bench/results/rocketmq.json, unless it is quick or has a part alone. The exit code is 0 if
everything was measured, even if targets are missed, and 1 if a measurement failed.
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
from bench.replication.clusters import Load
from bench.replication.latency import PER_S, Lags
from bench.rocketmq import contenders, latency
from bench.rocketmq.clusters import FILLED, SHORT, Clusters, Direction
from bench.rocketmq.contenders import CONTENDERS, Run

RESULTS = Path(__file__).parents[1] / "results" / "rocketmq.json"
LOADS = (Load(100, FILLED, 1_200_000), Load(1_000, FILLED, 500_000))
QUICK = (Load(100, FILLED, 600_000),)
ROUNDS = 3
PEER = "peer: Java clients"


def main() -> int:
    """Measure, print, and write the results."""
    chosen = _arguments()
    kept = None if chosen.quick or chosen.only else RESULTS
    return keep(lambda root: _measure(chosen.quick, chosen.only, root), kept, chosen.output)


def _measure(quick: bool, only: Sequence[str], root: Path) -> list[Row]:
    rounds, found = 1 if quick else ROUNDS, list[Row]()
    with Clusters(root / "clusters") as clusters:
        for load in QUICK if quick else LOADS:
            clusters.fill(load)
            for name, direction in clusters.directions.items():
                if not only or direction.short in only:
                    found += _rows(f"{name}, {load.size} B", _copies(name, direction, load, rounds, root))
        if not only:
            found += _lag_rows(_lags(clusters, rounds, root))
    return found


def _copies(what: str, direction: Direction, load: Load, rounds: int, root: Path) -> Mapping[str, Sequence[Run]]:
    found = defaultdict(list)
    for number in range(rounds):
        for name in random.Random(number).sample([*CONTENDERS], len(CONTENDERS)):
            tell(f"{what}, {load.size} B: {name}, round {number + 1} of {rounds}")
            place = root / f"{load.topic}-{number}-{name}"
            found[name].append(contenders.run(name, direction, load, place))
            shutil.rmtree(place, ignore_errors=True)
    return found


def _rows(what: str, runs: Mapping[str, Sequence[Run]]) -> list[Row]:
    peer, own = ([run.copied for run in runs[name]] for name in CONTENDERS)
    what = f"{what}, one core, CPU of the copier; {PEER}"
    return [
        less(what, "us/message", [c.cpu_us for c in peer], [c.cpu_us for c in own], 2.0),
        less("  CPU of both brokers", "us/message", [c.broker_us for c in peer], [c.broker_us for c in own]),
        more("  messages a second", "1/s", [c.per_s for c in peer], [c.per_s for c in own], 1.3),
        less("  memory", "MB", [run.megabytes for run in runs["java"]], [run.megabytes for run in runs["ours"]]),
    ]


def _lags(clusters: Clusters, rounds: int, root: Path) -> Mapping[str, Sequence[Lags]]:
    found = defaultdict(list)
    for number in range(rounds):
        for name in CONTENDERS:
            tell(f"latency: {name}, round {number + 1} of {rounds}")
            found[name].append(latency.run(name, clusters, root / f"latency-{number}-{name}"))
    return found


def _lag_rows(found: Mapping[str, Sequence[Lags]]) -> list[Row]:
    peer, own = (found[name] for name in CONTENDERS)
    return [
        less(f"Latency at {PER_S:,} messages/s, p99; {PEER}", "ms", [x.p99 for x in peer], [x.p99 for x in own], 1.0),
        less("  p50", "ms", [x.p50 for x in peer], [x.p50 for x in own]),
        less("  cores", "", [x.cores for x in peer], [x.cores for x in own]),
    ]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.rocketmq", description="Benchmarks of links with RocketMQ")
    parser.add_argument("--quick", action="store_true", help="one round, fewer messages, 100 B alone; nothing is kept")
    parser.add_argument(
        "--only", action="append", default=[], choices=SHORT, help="copies of this direction alone; can be repeated"
    )
    parser.add_argument("-o", dest="output", choices=("table", "json"), default="table", help="what to print")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
