"""How the placement stream grows with the number of ledgers, in one application on one ZooKeeper server.

    python -m bench.scale [--ledgers N ...] [-o table|json]

For each size: the cold start until the view is complete, the memory of every process, the state on disk, and the time
from the loss of a bookie until its ledgers, a quarter of all, are listed. The mode is observe. Ledgers are metadata
only. The table goes to bench/results/scale.json.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from bench.common.application import Application
from bench.common.keeping import keep
from bench.common.measure import cpu_s, tell
from bench.common.rows import Row, alone
from bench.placement.site import LOST, Site
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.embedded.server import DEFAULT_JVM

RESULTS = Path(__file__).parent / "results" / "scale.json"
SIZES = (100_000, 1_000_000)
LIMIT_S = 3_600.0
MIB = 1 << 20
HEAP_OF = 1_400
"""Bytes of ZooKeeper's heap for each ledger: metadata, paths and the tree, with room for the collector."""


def main() -> int:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description="The placement stream at many ledgers")
    parser.add_argument("--ledgers", nargs="+", type=int, metavar="N", default=SIZES, help=f"sizes, not {SIZES}")
    parser.add_argument("--memory", default="2g", help="spark.memory")
    parser.add_argument("-o", dest="output", choices=("table", "json"), default="table", help="what to print")
    chosen = parser.parse_args()
    return keep(lambda root: _measure(root, sorted(chosen.ledgers), chosen.memory), RESULTS, chosen.output)


def _measure(root: Path, sizes: list[int], memory: str) -> list[Row]:
    heap = f"-Xmx{max(1, sizes[-1] * HEAP_OF >> 30)}g"
    with Site(root / "site", (*DEFAULT_JVM, heap)) as site:
        return [row for ledgers in sizes for row in _at(site, ledgers, memory)]


def _at(site: Site, ledgers: int, memory: str) -> Iterator[Row]:
    size = f"{ledgers:,} ledgers"
    site.fill(ledgers)
    began = time.monotonic()
    with Application(site, {"placement": {"mode": "observe"}, "spark": {"memory": memory}}, LIMIT_S) as application:
        wait_until(lambda: application.counts().get("true") == ledgers, LIMIT_S, f"{size} to be true")
        yield _told(f"Cold start to {size} judged", "s", time.monotonic() - began)
        yield _told(f"  CPU, {size}", "s", cpu_s(application.pid))
        for name, bytes_ in _memory(application.pid).items():
            yield _told(f"  memory of {name}, {size}", "MiB", bytes_ / MIB)
        yield _told(f"  state on disk, {size}", "MiB", application.state_bytes() / MIB)
        lost, spent, killed = len(site.holding(LOST)), cpu_s(application.pid), time.time()
        site.cluster.kill(f"bookie{LOST}")
        gone = site.znodes.gone_s(site.cluster.bookie_id(LOST), killed)
        wait_until(lambda: application.counts().get("drifted") == lost, LIMIT_S, f"{lost:,} ledgers to be listed")
        yield _told(f"Bookie lost to its {lost:,} ledgers listed, {size}", "s", time.time() - gone)
        yield _told(f"  CPU, {size}", "s", cpu_s(application.pid) - spent)
        yield _told(f"  memory of all afterwards, {size}", "MiB", sum(_memory(application.pid).values()) / MIB)
    site.bring_back(LOST)


def _told(what: str, unit: str, value: float) -> Row:
    tell(f"{what}: {value:,.1f} {unit}")
    return alone(what, unit, [value])


def _memory(root: int) -> dict[str, int]:
    """Proportional set size by kind of process: driver, Spark's JVM, journal, workers."""
    found: dict[str, int] = {}
    processes = [psutil.Process(root), *psutil.Process(root).children(recursive=True)]
    for process in processes:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            name = _kind(process, root)
            found[name] = found.get(name, 0) + process.memory_full_info().pss
    return found


def _kind(process: psutil.Process, root: int) -> str:
    words = " ".join(process.cmdline())
    if process.pid == root:
        return "the driver"
    if "java" in words.split(" ", 1)[0]:
        return "Spark's JVM" if "spark" in words else "the journal"
    return "Python workers"


if __name__ == "__main__":
    sys.exit(main())
