"""Links compared with MirrorMaker 2 and Spark's Kafka connector, on the same two brokers, one after the other.

    python -m bench.replication [--only copy|latency|groups] [--quick] [-o table|json]

Prints one table and writes bench/results/replication.json. With --only, figures that were not measured are kept. The
exit code is 0 if everything was measured, even if targets are missed, and 1 if a measurement failed.
"""

import argparse
import math
import random
import shutil
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from bench.common import memory
from bench.common.keeping import keep
from bench.common.measure import tell
from bench.common.rows import Row, less, more, worst
from bench.replication import contenders, costs, groups, latency
from bench.replication.clusters import Clusters, Load
from bench.replication.contenders import Contender, Copied, Runs
from bench.replication.groups import Size, Waits
from bench.replication.latency import Lags

RESULTS = Path(__file__).parents[1] / "results" / "replication.json"
PARTS = ("copy", "latency", "groups")
PROMISE_S = 2.0
LARGE, SMALL = 900, 10
LOADS = (
    Load(100, LARGE, 5_400_000),
    Load(100, SMALL, 1_000_000),
    Load(1_000, LARGE, 1_400_000),
    Load(1_000, SMALL, 500_000),
)
"""Every path copies for more than a second."""
QUICK = (Load(100, LARGE, 1_500_000), Load(100, SMALL, 400_000))
ROUNDS = 3
PATHS = ("batches", "records")
OWN = (*PATHS, "auto")
MIRROR_TUNED, MIRROR_SHIPPED = "MirrorMaker 2, tuned", "MirrorMaker 2 as shipped"
CONTENDERS: Mapping[str, Contender] = {
    MIRROR_TUNED: contenders.mirror(tuned=True),
    **{path: contenders.ours(path) for path in OWN},
    MIRROR_SHIPPED: contenders.mirror(tuned=False),
    "Spark's Kafka connector": contenders.spark,
}
NAMES = tuple(CONTENDERS)
FOR_ALL = (MIRROR_TUNED, *OWN)
"""The other contenders run only with the first load because they take long."""
AGAIN = 3
"""Copies by each of Trueup's paths in a round: one takes a second or two, and differs by up to 20 % from the next."""
WORSE = 1.15
"""Maximum ratio to the better path."""
MOST_WARM, SETTLED = 9, 0.85
"""Maximum number of copies before the first round, and the ratio of the brokers' CPU of two of them from which on the
brokers no longer become faster."""


def main() -> int:
    """Measure, print, and write the results."""
    chosen = _arguments()
    kept = None if chosen.quick else RESULTS
    return keep(lambda root: _measure(chosen, root), kept, chosen.output, part=bool(chosen.only))


def _measure(chosen: argparse.Namespace, root: Path) -> list[Row]:
    parts, rounds = chosen.only or PARTS, 1 if chosen.quick else ROUNDS
    found: list[Row] = []
    with Clusters(root / "clusters") as clusters:
        if "copy" in parts:
            runs: dict[Load, Runs] = {}
            for number, each in enumerate(QUICK if chosen.quick else LOADS):
                names = FOR_ALL if chosen.quick or number else NAMES
                runs[each] = copies(clusters, each, names, rounds, root)
                found += _rows(each, runs[each])
            found += costs.rows(runs)
        if "latency" in parts:
            found += _lag_rows(lags(clusters, rounds, root))
        if "groups" in parts:
            size = groups.QUICK if chosen.quick else groups.FULL
            found += _wait_rows(size, followed(clusters, size, rounds, root))
    return found


def copies(clusters: Clusters, each: Load, names: Sequence[str], rounds: int, root: Path) -> Runs:
    """Run every contender in each round, in a different order each time, because leftovers of one run slow the next."""
    clusters.fill(each)
    for path in PATHS:
        _warm(clusters, each, path, root / f"{each.topic}-warm-{path}")
    found = defaultdict(list)
    for number in range(rounds):
        several = defaultdict[str, list[Copied]](list)
        for name in order(names, random.Random(number)):
            tell(f"{each.name}: {name}, round {number + 1} of {rounds}")
            place = root / f"{each.topic}-{number}-{names.index(name)}-{len(several[name])}"
            several[name].append(_copied(clusters, each, name, place))
        for name, copied in several.items():
            found[name].append(contenders.together(copied))
    return found


def order(names: Sequence[str], chance: random.Random) -> Sequence[str]:
    """The contenders in random order. Trueup's own follow each other, because the paths are compared by the round:
    `AGAIN` times, each time in another order."""
    own = [name for name in OWN if name in names]
    again = [name for _ in range(AGAIN) for name in chance.sample(own, len(own))]
    blocks = [[name] for name in names if name not in OWN] + [again]
    return [name for block in chance.sample(blocks, len(blocks)) for name in block]


def _warm(clusters: Clusters, each: Load, path: str, place: Path) -> None:
    """Copies that do not count: brokers that have not served this load yet use several times more CPU."""
    before_us = math.inf
    for _ in range(MOST_WARM):
        tell(f"{each.name}: {path}, warming up")
        broker_us = _copied(clusters, each, path, place).broker_us
        if broker_us >= SETTLED * before_us:
            return
        before_us = broker_us


def _copied(clusters: Clusters, each: Load, name: str, place: Path) -> Copied:
    """One copy, of which nothing is left afterwards."""
    memory.ready()
    found = CONTENDERS[name](clusters, each, place)
    clusters.clean()
    shutil.rmtree(place, ignore_errors=True)
    return found


def _rows(each: Load, runs: Runs) -> list[Row]:
    tuned = runs[MIRROR_TUNED]
    large = each.batch == LARGE
    found = [
        *_beside(
            f"{each.name}: batches; peer: {MIRROR_TUNED}",
            tuned,
            runs["batches"],
            20.0 if large else 0.0,
            4.0 if large else 0.0,
            each,
        ),
        *_beside(f"{each.name}: records; peer: {MIRROR_TUNED}", tuned, runs["records"], 3.0, 0.0, each),
    ]
    found += _choice(f"{each.name}: auto; peer: the better path", runs)
    for name in set(runs) - set(FOR_ALL):
        found += _beside(f"{each.name}: auto; peer: {name}", runs[name], runs["auto"], 0.0, 0.0, each)
    return found


def _choice(what: str, runs: Runs) -> list[Row]:
    """The chosen path compared with the path that uses less CPU, of copier and brokers together: in each round, of
    which the worst one counts."""
    better = runs[min(PATHS, key=lambda path: median(c.total_us for c in runs[path]))]
    both = list(zip(better, runs["auto"], strict=True))
    return [
        worst([less(f"{what}, CPU in all", "us/record", [b.total_us], [a.total_us], 1 / WORSE) for b, a in both]),
        worst([less("  CPU of the copier", "us/record", [b.cpu_us], [a.cpu_us], 1 / WORSE) for b, a in both]),
        worst([more("  records a second", "1/s", [b.per_s], [a.per_s], 1 / WORSE) for b, a in both]),
    ]


def _beside(what: str, peer: Sequence[Copied], own: Sequence[Copied], cpu: float, rate: float, each: Load) -> list[Row]:
    """Client CPU, broker CPU, and rates of two contenders."""
    megabyte = each.size / 1e6
    return [
        less(what, "us/record", [c.cpu_us for c in peer], [c.cpu_us for c in own], cpu),
        less("  CPU of both brokers", "us/record", [c.broker_us for c in peer], [c.broker_us for c in own]),
        more("  records a second", "1/s", [c.per_s for c in peer], [c.per_s for c in own], rate),
        more("  values a second", "MB/s", [c.per_s * megabyte for c in peer], [c.per_s * megabyte for c in own]),
    ]


def lags(clusters: Clusters, rounds: int, root: Path) -> Mapping[str, Sequence[Lags]]:
    """Run the contenders in each round, in a different order each time. MirrorMaker 2 tuned for throughput is slower in
    this measurement and runs once. The runs before do not count: the p99 of any contender is several times higher on
    brokers that have just started."""
    for name in (MIRROR_SHIPPED, "batches"):
        _lag(clusters, name, root / f"latency-warm-{NAMES.index(name)}", "warming up")
    found = defaultdict(list)
    for number in range(rounds):
        names = [MIRROR_SHIPPED, *PATHS, *([MIRROR_TUNED] if number == 0 else [])]
        for name in random.Random(number).sample(names, len(names)):
            place = root / f"latency-{number}-{NAMES.index(name)}"
            found[name].append(_lag(clusters, name, place, f"round {number + 1} of {rounds}"))
    return found


def _lag(clusters: Clusters, name: str, place: Path, when: str) -> Lags:
    """One measurement, of which nothing is left at the clusters."""
    tell(f"latency: {name}, {when}")
    ours = name in PATHS
    found = latency.ours(clusters, name, place) if ours else latency.mirror(clusters, name == MIRROR_TUNED, place)
    clusters.clean()
    return found


def _lag_rows(found: Mapping[str, Sequence[Lags]]) -> list[Row]:
    rows_: list[Row] = []
    for peer in (MIRROR_SHIPPED, MIRROR_TUNED):
        for path in PATHS:
            what = f"Latency at {latency.PER_S:,} records/s, p99: {path}; peer: {peer}"
            one, own = found[peer], found[path]
            target = 1.5 if peer == MIRROR_SHIPPED else 0.0
            rows_ += [
                less(what, "ms", [lag.p99 for lag in one], [lag.p99 for lag in own], target),
                less("  p50", "ms", [lag.p50 for lag in one], [lag.p50 for lag in own]),
                less("  cores", "", [lag.cores for lag in one], [lag.cores for lag in own]),
            ]
    return rows_


def followed(clusters: Clusters, size: Size, rounds: int, root: Path) -> Mapping[str, Sequence[Waits]]:
    """Run consumer groups through both contenders in turn."""
    found = defaultdict(list)
    for number in range(rounds):
        for name, contender in (("ours", groups.ours), ("mirror", groups.mirror)):
            tell(f"groups: {name}, round {number + 1} of {rounds}")
            found[name].append(contender(clusters, size, root / f"groups-{number}-{name}"))
            clusters.clean()
    return found


def _wait_rows(size: Size, found: Mapping[str, Sequence[Waits]]) -> list[Row]:
    one, own = found["mirror"], found["ours"]
    what = f"Groups, {size.groups} on {size.partitions} partitions, from commit to commit, p99"
    return [
        less(f"{what}; peer: MirrorMaker 2 at its tightest", "s", [w.p99 for w in one], [w.p99 for w in own], 1.0),
        less(f"  p99 beside the {PROMISE_S:g} s that are promised", "s", [PROMISE_S], [w.p99 for w in own], 1.0),
        less("  p50", "s", [w.p50 for w in one], [w.p50 for w in own]),
        less("  cores", "", [w.cores for w in one], [w.cores for w in own]),
    ]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.replication", description="Benchmarks of links")
    parser.add_argument("--only", action="append", choices=PARTS, help="measure this part; may be given again")
    parser.add_argument(
        "--quick", action="store_true", help="one round, fewer records and groups, 100 B alone; nothing is kept"
    )
    parser.add_argument("-o", dest="output", choices=("table", "json"), default="table", help="what to print")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
