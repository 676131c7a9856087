"""Delay of a message from a producer at the source to a reader at the target, at 1,000 messages per second."""

import struct
import threading
import time
from pathlib import Path

import numpy as np

from bench.common.measure import cpu_s, tell
from bench.replication.contenders import TO
from bench.replication.latency import PER_S, SECONDS, SKIP_S, START_S, Lags
from bench.rocketmq.clusters import BROKER, Cluster, Clusters, Direction, stamped
from bench.rocketmq.contenders import CONTENDERS, Watched
from trueup.connectors.contract import Assignment, Lease, LogId, Position
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.rocketmq.client import messages
from trueup.connectors.rocketmq.client.connection import PendingRequest
from trueup.connectors.rocketmq.replication.reader import RocketMqReader

TOPIC = "steady"


def run(name: str, clusters: Clusters, root: Path) -> Lags:
    """Messages through one contender, without hand-overs between leases."""
    for cluster in (clusters.source, clusters.target):
        cluster.renew()
    logs, there = clusters.source.create(TOPIC), clusters.target.create(TO)
    running = Watched(CONTENDERS[name](Direction(clusters.source, clusters.target), TOPIC, root), core=None)
    running.start()
    try:
        with Reader(clusters.target, there) as reader:
            _first(clusters.source, logs, reader)
            return _measure(clusters.source, logs, reader, running.pid or 0)
    finally:
        running.kill()


class Reader:
    """Reads new messages in a thread and stores the delay of each in seconds."""

    def __init__(self, cluster: Cluster, logs: list[LogId]) -> None:
        self.waits_s: list[float] = []
        assignments = tuple(Assignment(log, log, Position(), 0) for log in logs)
        lease = Lease("bench", cluster.endpoint(), cluster.endpoint(), 2, "records", assignments)
        self._reader, self._stop = RocketMqReader(lease), threading.Event()
        self._reader.seek(dict.fromkeys(logs, 0))
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Reader":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        self._reader.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            for read in self._reader.poll(1_000, 0.05).values():
                now = time.time()
                self.waits_s += (now - struct.unpack_from(">d", body or b"")[0] for body in read.records.values)


def _first(source: Cluster, logs: list[LogId], reader: Reader) -> None:
    """Wait until messages of every queue arrive."""
    for log in logs:
        source.client.ask(BROKER, messages.send(log, stamped(), time.time_ns() // 1_000_000))
    wait_until(lambda: len(reader.waits_s) == len(logs), START_S, f"messages at {TO}")
    reader.waits_s.clear()


def _measure(source: Cluster, logs: list[LogId], reader: Reader, pid: int) -> Lags:
    spent, begun = cpu_s(pid), time.monotonic()
    written = _write(source, logs)
    cores = (cpu_s(pid) - spent) / (time.monotonic() - begun)
    wait_until(lambda: len(reader.waits_s) >= written, 30.0, f"{written} messages at {TO}")
    waits = np.array(reader.waits_s[int(SKIP_S * PER_S) :]) * 1_000
    p50, p99 = np.percentile(waits, (50, 99))
    tell(f"  p50 {p50:.1f} ms  p99 {p99:.1f} ms  {cores:.2f} cores")
    return Lags(float(p50), float(p99), cores)


def _write(source: Cluster, logs: list[LogId]) -> int:
    """Send messages one by one, each with its time. Returns their number."""
    begun, sent, pending = time.monotonic(), 0, list[PendingRequest]()
    with source.client.connect(BROKER) as connection:
        while (spent := time.monotonic() - begun) < SECONDS:
            for _ in range(int(spent * PER_S) - sent):
                log = logs[sent % len(logs)]
                pending.append(connection.submit(messages.send(log, stamped(), time.time_ns() // 1_000_000)))
                sent += 1
            time.sleep(0.002)
            while pending and connection.arrived(pending[0]):
                connection.wait(pending.pop(0))
        for each in pending:
            connection.wait(each)
    return sent
