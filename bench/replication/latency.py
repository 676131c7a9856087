"""Delay of a record from a producer at the source to a consumer at the target, at 1,000 records per second."""

import struct
import threading
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.common import jobs
from bench.common.measure import Failed, cpu_s, tell
from bench.replication.clusters import PARTITIONS, Clusters, Ends
from bench.replication.contenders import TO, job_of, mirror_of
from trueup.connectors.embedded.processes import wait_until
from trueup.state.replication.settings import LinkSettings

TOPIC = "steady"
PER_S = 1_000
SKIP_S = 4.0
"""Seconds at the beginning that do not count, because JVMs warm up."""
LEASE_S = LinkSettings("east", "west", [TOPIC]).lease_s
"""As shipped."""
SECONDS = SKIP_S + 2 * LEASE_S
"""The measured time includes two hand-overs between leases."""
START_S = 240.0


class Lags(NamedTuple):
    """Delays in milliseconds, and CPU seconds per second."""

    p50: float
    p99: float
    cores: float


def mirror(clusters: Clusters, tuned: bool, root: Path) -> Lags:
    """Records through MirrorMaker 2."""
    clusters.create(clusters.source, TOPIC)
    with mirror_of(clusters, TOPIC, tuned, root) as running:
        running.start()
        to = running.target_topic(TOPIC)
        _first(clusters, to)
        return measure(clusters, to, running.pid or 0)


def ours(clusters: Clusters, path: str, root: Path) -> Lags:
    """Records through a link as in the application. Hand-overs between leases are included."""
    for broker, topic in ((clusters.source, TOPIC), (clusters.target, TO)):
        clusters.create(broker, topic)
    job = {**job_of(clusters, TOPIC, TO, path), "lease_s": LEASE_S, "data": str(root / "data")}
    running = jobs.driver("bench.replication.drive_tail", job, root)
    running.start()
    try:
        _first(clusters, TO)
        return measure(clusters, TO, running.pid or 0)
    finally:
        running.kill()


def measure(clusters: Clusters, to: str, pid: int) -> Lags:
    """Write for `SECONDS` and read at the target. The first `SKIP_S` seconds do not count."""
    reader = Reader(clusters.target.bootstrap, to)
    spent, begun = cpu_s(pid), time.monotonic()
    written = _write(clusters.source.bootstrap)
    cores = (cpu_s(pid) - spent) / (time.monotonic() - begun)
    wait_until(lambda: len(reader.waits_s) >= written, 30.0, f"{written} records at {to}")
    reader.close()
    waits = np.array(reader.waits_s[int(SKIP_S * PER_S) :]) * 1_000
    p50, p99 = np.percentile(waits, (50, 99))
    tell(f"  p50 {p50:.1f} ms  p99 {p99:.1f} ms  {cores:.2f} cores")
    return Lags(float(p50), float(p99), cores)


class Reader:
    """Reads new records in a thread and stores the delay of each record in seconds."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.waits_s: list[float] = []
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "fetch.wait.max.ms": 50})
        begin = []
        for number in range(PARTITIONS):
            end = self._consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)[1]
            begin.append(TopicPartition(topic, number, end))
        self._consumer.assign(begin)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.1)  # consume(n) would wait for a full list
            if message is not None and message.error() is None:
                self.waits_s.append(time.time() - struct.unpack_from(">d", message.value() or b"")[0])


def _first(clusters: Clusters, to: str) -> None:
    """Wait until records of every partition arrive."""
    ends, producer = Ends(clusters.target.bootstrap, to), Producer({"bootstrap.servers": clusters.source.bootstrap})

    def through() -> bool:
        for number in range(PARTITIONS):
            producer.produce(TOPIC, struct.pack(">d", time.time()), partition=number)
        producer.flush(10)
        return ends.records() >= PARTITIONS

    try:
        wait_until(through, START_S, f"records at {to}")
        sent = Ends(clusters.source.bootstrap, TOPIC)
        wait_until(lambda: ends.records() >= sent.records(), START_S, f"all records at {to}")
        sent.close()
    finally:
        ends.close()


def _write(bootstrap: str) -> int:
    """Send records of 100 B without batching, each with its timestamp. Returns their number."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    begun, sent = time.monotonic(), 0
    while (spent := time.monotonic() - begun) < SECONDS:
        for _ in range(int(spent * PER_S) - sent):
            producer.produce(TOPIC, struct.pack(">d", time.time()) + b"x" * 92, partition=sent % PARTITIONS)
            sent += 1
        producer.poll(0)
        time.sleep(0.002)
    if producer.flush(30):
        raise Failed("the source did not take the records")
    return sent
