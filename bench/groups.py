"""How long a commit of a consumer group takes from the source to the target: every group commits every partition once a
second, while records are written and copied.

Both clusters say it themselves: their own topics of commits hold each with its time. A commit has arrived once the same
offset, or a further one, is committed at the target.
"""

import struct
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.clusters import TOPIC as SETTINGS
from bench.clusters import Clusters
from bench.measure import Failed, cpu_s, tell
from connectors.contract import Endpoint, Partition
from connectors.kafka.committed import Committed
from connectors.sandbox.kafka import Kafka
from connectors.sandbox.mirror import Mirror
from connectors.sandbox.processes import wait_until
from state.errors import TrueupError
from streams.demo.application import Application

TOPIC = "followed"
GROUPS, PARTITIONS = 100, 100
PER_S = 1_000
SECONDS, SKIP_S, AFTER_S = 40.0, 10.0, 10.0
"""How long groups commit, what of that is not counted at the beginning, and how long the last commits may take."""
START_S = 240.0
TIGHTEST: Mapping[str, object] = {
    "emit.checkpoints.interval.seconds": 1, "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": 1, "refresh.groups.interval.seconds": 1,
    "refresh.topics.interval.seconds": 1, "offset.lag.max": 0, "offset.flush.interval.ms": 1_000,
    "groups": "group-.*",
}  # fmt: skip
Commits = dict[tuple[str, int], list[tuple[int, int]]]
"""Of a group in a partition: time in ms and offset, in order."""


class Waits(NamedTuple):
    """Seconds, and seconds of CPU for each second. What never arrived has waited until the end."""

    p50: float
    p99: float
    cores: float


def mirror(clusters: Clusters, root: Path) -> Waits:
    """Through MirrorMaker 2, every interval at its least."""
    _prepare(clusters.source)
    with Mirror(root, clusters.source.bootstrap, clusters.target.bootstrap, TOPIC, TIGHTEST) as running:
        running.start()
        return _measure(clusters, running.target_topic(TOPIC), running.pid or 0)


def ours(clusters: Clusters, root: Path) -> Waits:
    """Through a link of the application, with leases of the default length."""
    for broker in (clusters.source, clusters.target):
        _prepare(broker)
    kafka = {
        name: {"bootstrap": getattr(clusters, name).bootstrap, "bit": n} for n, name in enumerate(("source", "target"))
    }
    link = {"source": "source", "target": "target", "topics": [TOPIC], "groups": ["/group-.*/"], "mode": "enforce"}
    settings = {
        "cluster": {"name": "bench"}, "kafka": kafka, "links": {"bench": link}, "spark": {"memory": "512m"},
        "journal": {"bootstrap": clusters.target.bootstrap},
    }  # fmt: skip
    with Application(settings, root) as running:
        return _measure(clusters, TOPIC, running.pid)


def _prepare(broker: Kafka) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=SETTINGS)])[TOPIC].result(60)


def _measure(clusters: Clusters, to: str, pid: int) -> Waits:
    writer, since_ms = Writer(clusters.source.bootstrap), int(time.time() * 1_000)
    wait_until(writer.accepted, START_S, "a coordinator of groups")
    there = Consumer({"bootstrap.servers": clusters.target.bootstrap, "group.id": "group-0"})
    begun = time.monotonic()

    def followed() -> bool:
        writer.turn(1.0)
        with suppress(KafkaException):  # its coordinator is not there before the first commit
            return any(place.offset > 0 for place in there.committed([TopicPartition(to, 0)], timeout=10))
        return False

    wait_until(followed, START_S, f"a group at {to}")
    there.close()
    tell(f"  the first commit after {time.monotonic() - begun:.0f} s")
    spent, begun, begun_ms = cpu_s(pid), time.monotonic(), int(time.time() * 1_000)
    while time.monotonic() - begun < SECONDS:
        writer.turn(1.0)
    cores = (cpu_s(pid) - spent) / (time.monotonic() - begun)
    time.sleep(AFTER_S)
    here, there_ = (commits(b.bootstrap, t, since_ms) for b, t in ((clusters.source, TOPIC), (clusters.target, to)))
    found = np.array(waits(here, there_, begun_ms + int(SKIP_S * 1_000), int(time.time() * 1_000))) / 1_000
    p50, p99 = np.percentile(found, (50, 99))
    tell(f"  {len(found):,} commits: p50 {p50:.2f} s  p99 {p99:.2f} s  {cores:.2f} cores")
    return Waits(float(p50), float(p99), cores)


class Writer:
    """Writes records, and commits for every group what was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self._groups = Committed(Endpoint("source", bootstrap, 0))
        self._ends = [0] * PARTITIONS
        self._sent = 0

    def accepted(self) -> bool:
        """Whether the source takes commits by now."""
        with suppress(TrueupError):
            self.turn(1.0)
            return True
        return False

    def turn(self, seconds: float) -> None:
        """Write for so long at the rate, then commit."""
        begun, sent = time.monotonic(), 0
        while (spent := time.monotonic() - begun) < seconds:
            for _ in range(int(spent * PER_S) - sent):
                self._producer.produce(TOPIC, b"x" * 100, partition=self._sent % PARTITIONS, on_delivery=self._taken)
                self._sent, sent = self._sent + 1, sent + 1
            self._producer.poll(0)
            time.sleep(0.005)
        places = {Partition(TOPIC, number): end for number, end in enumerate(self._ends)}
        for number in range(GROUPS):
            refused = [why for why in self._groups.commit(f"group-{number}", places).values() if why]
            if refused:
                raise Failed(f"the source did not take commits: {refused[0]}")

    def _taken(self, error: object, message: object) -> None:
        if error is None:
            self._ends[message.partition()] = message.offset() + 1  # type: ignore[attr-defined]


def waits(here: Commits, there: Commits, from_ms: int, end_ms: int) -> list[int]:
    """How long each commit took since a moment, in ms."""
    found = []
    for key, made in here.items():
        arrived = iter(there.get(key, ()))
        at_ms, reached = 0, -1
        for when_ms, offset in made:
            while reached < offset and at_ms < end_ms:
                at_ms, reached = next(arrived, (end_ms, -1))
            if when_ms >= from_ms:
                found.append(max(0, at_ms - when_ms))
    return found


def commits(bootstrap: str, topic: str, since_ms: int) -> Commits:
    """Every commit of a topic's offsets since a moment that a cluster holds."""
    found: Commits = defaultdict(list)
    for key, value, stamp_ms in _read(bootstrap):
        version, size = struct.unpack_from(">hh", key)
        if version > 1 or stamp_ms < since_ms:
            continue
        group, rest = key[4 : 4 + size].decode(), key[4 + size :]
        (size,) = struct.unpack_from(">h", rest)
        if rest[2 : 2 + size].decode() == topic and group.startswith("group-"):
            (number,) = struct.unpack_from(">i", rest, 2 + size)
            found[group, number].append((stamp_ms, struct.unpack_from(">hq", value)[1]))
    return found


def _read(bootstrap: str) -> Iterator[tuple[bytes, bytes, int]]:
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False})
    name = "__consumer_offsets"
    places = [
        TopicPartition(name, number, 0) for number in reader.list_topics(name, timeout=30).topics[name].partitions
    ]
    ends = {place.partition: reader.get_watermark_offsets(place, timeout=30)[1] for place in places}
    reader.assign(places)
    left = {number for number, end in ends.items() if end}
    while left:
        for message in reader.consume(10_000, 0.5):
            key, value = message.key(), message.value()
            if message.error() is None and key is not None and value is not None:
                yield key, value, message.timestamp()[1]
        left -= {
            p.partition
            for p in reader.position([TopicPartition(name, n) for n in left])
            if p.offset >= ends[p.partition]
        }
    reader.close()
