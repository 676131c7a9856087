"""Links for as long as one likes, while workers, brokers and the application are killed: is every record there once?

    python -m tests.replication.soak [--minutes N] [--every-s N] [--per-s N] [--seed N] [-o table|json]

Two clusters, and a topic of the same name for each path: writers of all kinds write to both of both, four links copy
both ways. In the second half the application itself is left alone, so that what it takes of memory can be compared.
Then all logs are compared, record by record. Writes bench/results/soak.json. Exit 1 when anything is lost, doubled,
out of order or changed.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple

import psutil
from confluent_kafka import KafkaException

from bench.keeping import keep
from bench.measure import Failed, tell
from bench.rows import Row, alone
from tests.e2e.trueup import Trueup
from tests.replication.audit import Audit, audit, ends
from tests.replication.faults import Faults
from tests.replication.pair import Pair
from tests.replication.writers import Site, Writers

RESULTS = Path(__file__).parents[2] / "bench" / "results" / "soak.json"
PATHS, SIDES = ("batches", "records"), ("east", "west")
PARTITIONS = 2
LOOK_S = 60.0


class Size(NamedTuple):
    """What the application and all it started take."""

    megabytes: float
    files: int


def main() -> int:
    """Run, print, keep."""
    chosen = _arguments()
    return keep(lambda root: _soak(chosen, root), RESULTS, chosen.output)


def _soak(chosen: argparse.Namespace, root: Path) -> list[Row]:
    numbers = count()
    with ExitStack() as stack:
        pair = stack.enter_context(Pair(lambda: root / f"server{next(numbers)}"))
        sites = {path: _sites(pair, pair.topic(PARTITIONS)) for path in PATHS}
        trueup = stack.enter_context(_linked(pair, sites, root / "trueup"))
        writers = {path: stack.enter_context(Writers(each, per_s=chosen.per_s)) for path, each in sites.items()}
        brokers = {side: getattr(pair, side).restart for side in SIDES}
        kinds = {"worker": lambda: _kill_worker(trueup), **{f"broker {side}": act for side, act in brokers.items()}}
        done, half_s = Counter[str](), chosen.minutes * 30
        sizes = []
        for number, some in enumerate(({**kinds, "application": lambda: _kill(trueup)}, kinds)):
            with Faults(some, chosen.every_s, chosen.seed + number) as faults:
                _watch(trueup, sites, half_s)
            done += faults.done
            sizes.append(_size(trueup))
        return _rows({path: audit(sites[path], writers[path]) for path in PATHS}, done, sizes, chosen.minutes)


def _sites(pair: Pair, topic: str) -> list[Site]:
    return [pair.site(side, topic, PARTITIONS) for side in SIDES]


@contextmanager
def _linked(pair: Pair, sites: dict[str, list[Site]], root: Path) -> Iterator[Trueup]:
    """The application with two opposite links on each topic."""
    links = {
        f"{path}-{source}": {
            "source": source, "target": target, "topics": [each[0].topic], "copy": path, "mode": "enforce",
        }
        for path, each in sites.items() for source, target in (SIDES, SIDES[::-1])
    }  # fmt: skip
    kafka = {side: {"bootstrap": getattr(pair, side).bootstrap, "bit": bit} for bit, side in enumerate(SIDES)}
    with Trueup(None, root, kafka=kafka, links=links) as made:
        made.start()
        yield made


def _watch(trueup: Trueup, sites: dict[str, list[Site]], for_s: float) -> None:
    """Say every minute how things are."""
    until_s = time.monotonic() + for_s
    while (left_s := until_s - time.monotonic()) > 0:
        time.sleep(min(LOOK_S, left_s))
        there = "; ".join(f"{path} {_standing(each)}" for path, each in sites.items())
        size = _size(trueup)
        tell(f"{there}; {size.megabytes:,.0f} MB, {size.files} open files")


def _standing(sites: list[Site]) -> str:
    try:
        return " and ".join(f"{sum(ends(site)):,}" for site in sites)
    except KafkaException as error:  # of a broker that was just killed
        return str(error.args[0])


def _kill_worker(trueup: Trueup) -> None:
    """SIGKILL one of the processes that hold leases, if there are any now."""
    for process in trueup.workers()[:1]:
        process.kill()


def _kill(trueup: Trueup) -> None:
    trueup.kill()
    trueup.start()


def _size(trueup: Trueup) -> Size:
    """0 of a process that ends meanwhile."""
    megabytes, files = 0.0, 0
    for process in trueup.processes():
        try:
            megabytes += process.memory_full_info().pss / 1e6
            files += process.num_fds()
        except psutil.NoSuchProcess:
            continue
    return Size(megabytes, files)


def _rows(audits: dict[str, Audit], done: Counter[str], sizes: list[Size], minutes: float) -> list[Row]:
    wrong = [path for path, found in audits.items() if not found.right]
    if wrong:
        raise Failed(f"records that are not as they should be: {', '.join(wrong)}: {audits}")
    rows = [alone("Minutes", "", [minutes])]
    rows += [alone(f"  killed: {name}", "times", [times]) for name, times in sorted(done.items())]
    for path, found in audits.items():
        for side, verdict in found.clusters.items():
            rows.append(alone(f"{path}, {side}: records", "", [verdict.records]))
            rows.append(alone("  missing, doubled, out of order, altered, extra or lost", "", [verdict.faults]))
    for when, size in zip(("after half the time", "in the end"), sizes, strict=True):
        rows.append(alone(f"Memory of the application and Spark {when}", "MB", [size.megabytes]))
        rows.append(alone("  open files", "", [size.files]))
    return rows


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.replication.soak", description="Links under faults, long")
    parser.add_argument("--minutes", type=float, default=60.0, metavar="N", help="how long to write (default 60)")
    parser.add_argument("--every-s", type=float, default=45.0, metavar="N", help="between two kills (default 45)")
    parser.add_argument("--per-s", type=float, default=60.0, metavar="N", help="records of a writer (default 60)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the faults (default 1)")
    parser.add_argument("-o", dest="output", choices=("table", "json"), default="table", help="what to print")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
