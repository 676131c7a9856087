"""CPU of a record through a link, and of a ledger into the view of placement: a Spark cluster beside local mode.

    python -m bench.cluster [--only link|placement] [--rounds N] [--quick] [-o table|json]

Both have two task slots: local[2], and two workers of one core on this machine. A run starts a session, handles a first
part of the records, and is measured on the others; runs of both alternate. CPU is that of driver, workers, executors.
Prints one table and writes bench/results/cluster.json.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from bench.common import jobs
from bench.common.keeping import keep
from bench.common.measure import cpu_s, tell
from bench.common.rows import Row, less
from bench.replication.clusters import Clusters, Load
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import wait_until
from trueup.sandbox.servers.spark import StandaloneSpark

RESULTS = Path(__file__).parents[1] / "results" / "cluster.json"
PARTS = ("link", "placement")
ROUNDS, LIMIT_S = 3, 900.0
LEDGERS, QUICK_LEDGERS = (300_000, 1_300_000), (100_000, 300_000)
LOAD, QUICK_LOAD = Load(100, 100, 2_000_000), Load(100, 100, 600_000)
FIRST = 5
"""One in this number of records is handled before the measurement."""
TARGET = 1 / 1.3
LOCAL, CLUSTER = "local", "cluster"
ON_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.executor.memory": "1g"}
Found = dict[str, list[float]]


def main() -> int:
    """Measure, print, and write the results."""
    chosen = _arguments()
    kept = None if chosen.quick or chosen.only else RESULTS
    return keep(lambda root: _measure(chosen, root), kept, chosen.output)


def _measure(chosen: argparse.Namespace, root: Path) -> list[Row]:
    load, ledgers = (QUICK_LOAD, QUICK_LEDGERS) if chosen.quick else (LOAD, LEDGERS)
    parts = chosen.only or PARTS
    found: dict[str, Found] = defaultdict(lambda: defaultdict(list))
    with StandaloneSpark(root / "spark", memory="1536m") as spark, Clusters(root / "kafka") as clusters:
        spark.up()
        if "link" in parts:
            clusters.fill(load)
        for number in range(chosen.rounds):
            for kind in (LOCAL, CLUSTER):
                place = root / f"{kind}{number}"
                for path in ("records", "batches") if "link" in parts else ():
                    cost = _link(clusters, load, path, _of(kind, spark, place / path), place / path)
                    found[f"Link, path {path}, {load.name}: CPU of a record"][kind].append(cost)
                if "placement" in parts:
                    cost = _placement(ledgers, _of(kind, spark, place / "view"), place / "view")
                    found[f"Placement, {ledgers[1]:,} ledgers in the view: CPU of a ledger"][kind].append(cost)
    return [_row(what, by_kind) for what, by_kind in found.items()]


def _row(what: str, found: Found) -> Row:
    return less(f"{what} on a cluster; peer: local[2]", "us", found[LOCAL], found[CLUSTER], TARGET)


def _of(kind: str, spark: StandaloneSpark, data: Path) -> Mapping[str, object]:
    """The part of a job that depends on where tasks run."""
    if kind == LOCAL:
        return {"spark": {"master": "local[2]", "memory": "1g"}, "workers": []}
    chosen = {"master": spark.url, "checkpoint": f"file://{data}", "conf": ON_LOOPBACK, "memory": "1g"}
    return {"spark": chosen, "workers": [worker.pid for worker in spark.workers.values()]}


def _link(clusters: Clusters, load: Load, path: str, where: Mapping[str, object], place: Path) -> float:
    """Microseconds of a record."""
    to = f"copy-{place.parent.name}-{path}"
    clusters.create(clusters.target, to)
    job = {
        **where,
        "source": clusters.source.bootstrap,
        "target": clusters.target.bootstrap,
        "topic": load.topic,
        "to": to,
        "path": path,
        "lease_s": 10.0,
        "data": str(place),
    }
    process = jobs.driver("bench.replication.drive_tail", job, place)
    ends = clusters.ends(to)
    process.start()
    try:
        pids = (process.pid or 0, *where["workers"])  # type: ignore[misc]
        wait_until(lambda: ends.records() >= load.records // FIRST, LIMIT_S, "the first records")
        before, spent = ends.records(), cpu_s(*pids)
        wait_until(lambda: ends.records() >= load.records, LIMIT_S, "all records")
        found = (cpu_s(*pids) - spent) / (load.records - before) * 1e6
    finally:
        process.kill()
        ends.close()
    tell(f"{place}: {found:.2f} us")
    clusters.clean()
    return found


def _placement(ledgers: tuple[int, int], where: Mapping[str, object], place: Path) -> float:
    """Microseconds of a ledger."""
    with Kafka(place / "journal") as broker:
        broker.up()
        job = {**where, "bootstrap": broker.bootstrap, "data": str(place / "data"), "sizes": ledgers, "deaths": 0}
        results = jobs.run("bench.placement.drive_stream", job, place, LIMIT_S)
    last = [found for found in results if found["what"] == "ingest"][-1]
    return float(last["cpu_s"] / last["records"] * 1e6)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description="A Spark cluster beside local mode")
    parser.add_argument("--only", action="append", choices=PARTS, help="measure this part; nothing is kept")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="runs of each")
    parser.add_argument("--quick", action="store_true", help="fewer records; nothing is kept")
    parser.add_argument("-o", dest="output", choices=("table", "json"), default="table", help="what to print")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
