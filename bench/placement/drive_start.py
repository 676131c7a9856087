"""Start of the application's parts from an empty journal to a complete view, and recovery from a lost connection.

    python -m bench.placement.drive_start JOB.json

The job contains: zookeeper, racks (the rack script), data, ledgers, starts, losses, changes, and touched (metadata by
ledger, in hexadecimal). Standard output contains one JSON object per line. One Spark session serves all starts. Each
start has its own journal, view and ZooKeeper sessions. Lost connections are measured in one additional start through a
relay.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from bench.common.measure import cpu_s
from bench.common.relay import Relay
from bench.placement.drive_stream import say
from trueup.connectors.clock import now_ms
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.state.placement.settings import PLACEMENT, PlacementSettings
from trueup.state.settings.settings import Settings, parse
from trueup.streams.bookkeeper.cluster import BookKeeper
from trueup.streams.bookkeeper.keeper import TopologyKeeper
from trueup.streams.bookkeeper.metrics import ZooKeeperMetrics
from trueup.streams.catalog import all_metrics
from trueup.streams.config.live import Live, LiveSection
from trueup.streams.journal.journal import Journal
from trueup.streams.placement.metrics import PlacementMetrics
from trueup.streams.placement.query import start
from trueup.streams.placement.reconciler import PlacementReconciler
from trueup.streams.placement.repairs.auditor_role import AuditorRole
from trueup.streams.replication.links.worker import SWITCH_S
from trueup.streams.runtime.spark.session import session
from trueup.streams.runtime.supervisor import Supervisor, drain

LIMIT_S = 300.0


class Start:
    """Journal, capture, keeper, stream and reconciler of one start, connected as in `streams.app`."""

    def __init__(self, settings: Settings, bootstrap: str) -> None:
        self._settings = settings
        self._journal = Journal(bootstrap, settings.journal, settings.cluster.name)
        self._journal.create()
        live, metrics = Live(settings, self._journal, now_ms), all_metrics()
        self._keeper = TopologyKeeper(self._journal, live, now_ms)
        self._stop = threading.Event()
        self._supervisor = Supervisor(self._stop, lambda _: None)
        self.cluster = BookKeeper(
            live, self._journal, self._keeper, metrics.of(ZooKeeperMetrics), now_ms, self._supervisor
        )
        policy = LiveSection.of(live, PlacementSettings)
        self.reconciler = PlacementReconciler(
            AuditorRole(self.cluster, policy, self._supervisor.run),
            self._journal,
            policy,
            self._keeper,
            metrics.of(PlacementMetrics),
            now_ms,
            settings.spark.buckets,
        )
        self.reconciler.load()

    def watch(self) -> None:
        """Start observing. Without racks every ledger would have a finding."""
        self.cluster.start()

    def close(self) -> None:
        """Stop observing."""
        self._stop.set()
        self.cluster.close()

    def query(self, spark: SparkSession, checkpoint: Path) -> StreamingQuery:
        """The placement stream of this start."""
        return start(spark, self._journal, self._settings.spark, self.reconciler.batch, f"file://{checkpoint}")

    def taken(self, query: StreamingQuery, ledgers: int) -> bool:
        """Whether the view is complete: every bucket answered, and completed batches contain every ledger."""
        if not self.reconciler.complete:
            if query.exception() is not None:
                raise SystemExit(str(query.exception()))
            return False
        last: Any = query.lastProgress
        read = (
            [json.loads(s["endOffset"]) if isinstance(s["endOffset"], str) else s["endOffset"] for s in last["sources"]]
            if last
            else []
        )
        topic = self._journal.topic("ledgers")
        return sum(sum((end or {}).get(topic, {}).values()) for end in read) >= ledgers

    def written(self) -> int:
        """Number of records written to the ledgers topic so far."""
        return sum(self._journal.ends("ledgers").values())


@contextmanager
def started(job: dict[str, Any], number: int, broker: Kafka, spark: SparkSession, address: str) -> Iterator[Start]:
    """One start, measured until its view is complete. ``address``: ZooKeeper or a relay to it."""
    settings = parse(
        {
            "cluster": {"zookeeper": address, "name": f"start{number}"},
            "racks": {"source": "script", "script": job["racks"]},
        },
        [PLACEMENT],
    )
    made = Start(settings, broker.bootstrap)
    spent, begun = cpu_s(os.getpid()), time.monotonic()
    made.watch()
    query = made.query(spark, Path(job["data"]) / f"checkpoint{number}")
    try:
        wait_until(lambda: made.cluster.health().synced, LIMIT_S, "the capture to be in step")
        captured = time.monotonic() - begun
        wait_until(lambda: made.taken(query, job["ledgers"]), LIMIT_S, "the view to be complete")
        what = "start" if address == job["zookeeper"] else "relayed start"
        say(what=what, s=time.monotonic() - begun, captured_s=captured, cpu_s=cpu_s(os.getpid()) - spent)
        yield made
    finally:
        drain(query)
        made.close()


def lose(start: Start, relay: Relay, direct: ZooKeeperClient, touched: dict[str, str]) -> None:
    """Cut the connection, change ledgers, and restore the connection. Measures from the restoration until the journal
    contains exactly these changes."""
    before, written = start.cluster.health().resyncs, start.written()
    relay.cut()
    wait_until(lambda: not start.cluster.health().connected, LIMIT_S, "the loss to be noticed")
    for path, data in touched.items():
        direct.put(path, bytes.fromhex(data), -1)
    begun = time.monotonic()
    relay.open()
    wait_until(lambda: start.cluster.health().synced, LIMIT_S, "the capture to be in step again")
    taken, health = time.monotonic() - begun, start.cluster.health()
    if health.resyncs != before + 1:
        raise SystemExit("the capture was not resynchronised")
    if (news := start.written() - written) != len(touched):
        raise SystemExit(f"expected the {len(touched)} changed ledgers in the journal; found {news} records")
    say(what="resync", s=taken, compared_s=health.last_resync_s)


def main(path: str) -> None:
    sys.setswitchinterval(SWITCH_S)
    job = json.loads(Path(path).read_text())
    data = Path(job["data"])
    with Kafka(data / "journal") as broker, Relay(job["zookeeper"]) as relay:
        broker.up()
        spark = session(parse({"cluster": {"zookeeper": job["zookeeper"]}}, ()), data)
        for number in range(job["starts"]):
            with started(job, number, broker, spark, job["zookeeper"]):
                pass
        if job["losses"]:
            with started(job, job["starts"], broker, spark, relay.address) as start:
                direct = ZooKeeperClient(job["zookeeper"]).open()
                for _ in range(job["losses"]):
                    lose(start, relay, direct, job["touched"])
                direct.shut()
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
