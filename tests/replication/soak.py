"""Links under faults of workers, brokers, connections and the application, for a chosen time: does every record exist
exactly once?

    python -m tests.replication.soak [--minutes N] [--every-s N] [--per-s N] [--seed N] [-o table|json]

Two clusters have a topic of the same name for each path. All kinds of writers write to both topics on both clusters,
and four links copy in both directions. Links connect to the clusters through relays. A fault is counted if records
arrived on all four ways before it and after it. Workers are killed as often as brokers are killed or stopped. The
application is not killed in the second half, so that its memory can be compared. Finally, all logs are compared record
by record. Writes bench/results/soak.json. The exit code is 1 if a record is lost, duplicated, reordered or altered, or
if no records arrive after a fault.
"""

import argparse
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import NamedTuple

import psutil
from confluent_kafka import KafkaException

from bench.common.keeping import keep
from bench.common.measure import Failed, tell
from bench.common.rows import Row, alone, less
from tests.e2e.trueup import Trueup
from tests.replication.arrivals import Arrivals
from tests.replication.audit import Audit, audit, ends
from tests.replication.faults import Faults
from tests.replication.pair import QUICK, Pair
from tests.replication.relayed import Relayed
from tests.replication.writers import Site, Writers
from trueup.connectors.sandbox.servers.kafka import Kafka

RESULTS = Path(__file__).parents[2] / "bench" / "results" / "soak.json"
PATHS, SIDES = ("batches", "records"), ("east", "west")
PARTITIONS = 2
LOOK_S = 60.0
FREEZE_S, RELAY_S = 12.0, 8.0
BACK_S = 240.0
"""Maximum seconds until links copy again after a fault."""
WEIGHTS = {"worker": 4}
"""Workers as often as both brokers, which are killed and stopped."""
FLAT = 0.9


class Size(NamedTuple):
    """Memory and open files of the application and its child processes."""

    megabytes: float
    files: int


def main() -> int:
    """Run, print, and write the results."""
    chosen = arguments("tests.replication.soak", "Links under faults, long", 60.0, 15.0)
    return keep(lambda root: _soak(chosen, root), RESULTS, chosen.output)


def _soak(chosen: argparse.Namespace, root: Path) -> list[Row]:
    numbers = count()
    with ExitStack() as stack:
        pair = stack.enter_context(RelayedPair(lambda: root / f"server{next(numbers)}"))
        sites = {path: _sites(pair, pair.topic(PARTITIONS)) for path in PATHS}
        trueup = stack.enter_context(_linked(pair, sites, root / "trueup"))
        writers = {path: stack.enter_context(Writers(each, per_s=chosen.per_s)) for path, each in sites.items()}
        arrivals = stack.enter_context(Arrivals(chain.from_iterable(sites.values())))
        kinds, done = _kinds(pair, trueup), Counter[str]()
        sizes: list[Size] = []
        for number, spared in enumerate(("", "application")):
            some = {name: act for name, act in kinds.items() if name != spared}
            works = partial(arrivals.wait_all, BACK_S)
            with Faults(some, chosen.every_s, chosen.seed + number, WEIGHTS, works) as faults:
                sizes = _watch(trueup, sites, faults, chosen.minutes * 30)
            done += faults.done
        return _rows({path: audit(sites[path], writers[path]) for path in PATHS}, done, sizes, chosen.minutes)


class RelayedPair(Pair):
    """Two clusters that the application reaches through relays, and writers directly."""

    def broker(self, root: Path) -> Relayed:
        return Relayed(root, QUICK)


def _kinds(pair: Pair, trueup: Trueup) -> dict[str, Callable[[], None]]:
    """The faults by name. Each function returns when its fault is over."""
    kinds: dict[str, Callable[[], None]] = {
        "worker": lambda: kill_worker(trueup), "application": lambda: kill(trueup),
    }  # fmt: skip
    for side in SIDES:
        broker = getattr(pair, side)
        kinds |= {
            f"broker {side}": broker.restart,
            f"broker {side} stopped for {FREEZE_S:g} s": partial(_freeze, broker),
            f"relay {side}: connections refused": partial(broker.refuse, RELAY_S),
            f"relay {side}: answers lost": partial(broker.lose, RELAY_S),
            f"relay {side}: data delayed": partial(broker.delay, RELAY_S),
        }
    return kinds


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
    kafka = {side: {"bootstrap": getattr(pair, side).relayed, "bit": bit} for bit, side in enumerate(SIDES)}
    with Trueup(None, root, kafka=kafka, links=links) as made:
        made.start()
        yield made


def _watch(trueup: Trueup, sites: dict[str, list[Site]], faults: Faults, for_s: float) -> list[Size]:
    """Print the state every minute. Returns the sizes of the application."""
    sizes: list[Size] = []

    def state() -> str:
        there = "; ".join(f"{path} {_standing(each)}" for path, each in sites.items())
        sizes.append(_size(trueup))
        return f"{there}; {sizes[-1].megabytes:,.0f} MB, {sizes[-1].files} open files"

    watch(faults, for_s, LOOK_S, state)
    return sizes


def watch(faults: Faults, for_s: float, look_s: float, state: Callable[[], str]) -> None:
    """Print the state at intervals. Ends early if a fault raised an error."""
    until_s = time.monotonic() + for_s
    while (left_s := until_s - time.monotonic()) > 0 and not faults.wait_failed(min(look_s, left_s)):
        tell(f"{state()}; {sum(faults.done.values())} faults")


def _standing(sites: list[Site]) -> str:
    try:
        return " and ".join(f"{sum(ends(site)):,}" for site in sites)
    except KafkaException as error:  # the broker was just killed
        return str(error.args[0])


def kill_worker(trueup: Trueup) -> None:
    """SIGKILL one of the processes that hold leases."""
    random.choice(trueup.workers()).kill()


def kill(trueup: Trueup) -> None:
    """SIGKILL the application, and start it again."""
    trueup.kill()
    trueup.start()


def _freeze(broker: Kafka) -> None:
    """SIGSTOP a broker for `FREEZE_S` seconds."""
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGSTOP)
    time.sleep(FREEZE_S)
    os.kill(broker.pid, signal.SIGCONT)


def _size(trueup: Trueup) -> Size:
    """Total size of the application. A process that ends meanwhile counts as 0."""
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
    rows.append(alone("Faults; links copied before and after each", "times", [sum(done.values())]))
    rows += [alone(f"  {name}", "times", [times]) for name, times in sorted(done.items())]
    for path, found in audits.items():
        for side, verdict in found.clusters.items():
            rows.append(alone(f"{path}, {side}: records", "", [verdict.records]))
            rows.append(alone("  missing, doubled, out of order, altered, extra, lost", "", [verdict.faults]))
    third = max(1, len(sizes) // 3)
    for what, unit, column in (("Memory of the application and Spark", "MB", 0), ("  open files", "", 1)):
        early, late = ([float(size[column]) for size in part] for part in (sizes[:third], sizes[-third:]))
        rows.append(less(f"{what}, last third of second half (peer: first)", unit, early, late, FLAT))
    return rows


def arguments(module: str, description: str, minutes: float, every_s: float) -> argparse.Namespace:
    """The options of a soak, with these defaults."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument(
        "--minutes", type=float, default=minutes, metavar="N", help=f"how long to write (default {minutes:g})"
    )
    parser.add_argument(
        "--every-s",
        type=float,
        default=every_s,
        metavar="N",
        help=f"average rest before a fault (default {every_s:g})",
    )
    parser.add_argument("--per-s", type=float, default=60.0, metavar="N", help="records of a writer (default 60)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the faults (default 1)")
    parser.add_argument("-o", dest="output", choices=("table", "json"), default="table", help="what to print")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
