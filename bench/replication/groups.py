"""Delay of consumer group commits from the source to the target. Each group commits all partitions about once per
second, one group after the other, while records are written and copied.

The measurement does not poll. The clusters' offsets topics contain every commit with its timestamp and are read
afterwards. A commit has arrived when the same or a higher offset is committed at the target. Both contenders begin with
empty topics, so a record has the same offset on both sides.
"""

import struct
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.common.measure import Failed, cpu_s, tell
from bench.replication.clusters import TOPIC as SETTINGS
from bench.replication.clusters import Clusters
from trueup.connectors.closing import Closing
from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.kafka.client.group_offsets import KafkaGroups
from trueup.connectors.replication.ports import GroupCommits
from trueup.sandbox.demo.application import DemoApplication
from trueup.sandbox.servers.mirrormaker import Mirror
from trueup.state.common.errors import TrueupError

TOPIC, COMMITS = "followed", "__consumer_offsets"
PER_S = 1_000
SKIP_S, AFTER_S = 5.0, 5.0
"""Seconds of commits before and after the measured period, because the last commits need time to arrive."""
START_S = 240.0
TIGHTEST: Mapping[str, object] = {
    "emit.checkpoints.interval.seconds": 1,
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": 1,
    "refresh.groups.interval.seconds": 1,
    "refresh.topics.interval.seconds": 1,
    "offset.lag.max": 0,
    "offset.flush.interval.ms": 1_000,
    "groups": "group-.*",
}
Commits = dict[tuple[str, int], list[tuple[int, int]]]
"""Time in ms and offset of each commit, in order, by group and partition."""


class Size(NamedTuple):
    """Number of groups, partitions of the topic that each group reads, and seconds of commits."""

    groups: int
    partitions: int
    seconds: float

    @property
    def names(self) -> list[str]:
        return [f"group-{number}" for number in range(self.groups)]


FULL, QUICK = Size(100, 100, 20.0), Size(10, 10, 15.0)


class Waits(NamedTuple):
    """Delays in seconds, and CPU seconds per second. A commit that never arrives counts as delayed until the end."""

    p50: float
    p99: float
    cores: float


def mirror(clusters: Clusters, size: Size, root: Path) -> Waits:
    """Groups through MirrorMaker 2 with minimum intervals."""
    _prepare(clusters.source, size)
    with Mirror(root, clusters.source.bootstrap, clusters.target.bootstrap, TOPIC, TIGHTEST) as running:
        running.start()
        return _measure(clusters, size, running.target_topic(TOPIC), running.pid or 0)


def ours(clusters: Clusters, size: Size, root: Path) -> Waits:
    """Groups through a Trueup link with leases of the default length."""
    for broker in (clusters.source, clusters.target):
        _prepare(broker, size)
    kafka = {
        name: {"bootstrap": getattr(clusters, name).bootstrap, "bit": n} for n, name in enumerate(("source", "target"))
    }
    link = {"source": "source", "target": "target", "topics": [TOPIC], "groups": ["/group-.*/"], "mode": "enforce"}
    settings = {
        "cluster": {"name": "bench"},
        "kafka": kafka,
        "links": {"bench": link},
        "spark": {"memory": "512m"},
        "journal": {"bootstrap": clusters.target.bootstrap},
    }
    with DemoApplication(settings, root) as running:
        return _measure(clusters, size, TOPIC, running.pid)


def _prepare(broker: Kafka, size: Size) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, size.partitions, 1, config=SETTINGS)])[TOPIC].result(60)


def _measure(clusters: Clusters, size: Size, to: str, pid: int) -> Waits:
    with Writer(clusters.source.bootstrap, size) as writer, _groups("target", clusters.target.bootstrap) as there:
        since_ms, begun = int(time.time() * 1_000), time.monotonic()
        wait_until(writer.accepted, START_S, "the source to take commits of all groups")

        def followed() -> bool:
            writer.write(1.0)
            return _all_at(there, size, to)

        wait_until(followed, START_S, f"all groups at {to}")
        tell(f"  all groups after {time.monotonic() - begun:.0f} s")
        writer.write(SKIP_S)
        spent, begun, begun_ms = cpu_s(pid), time.monotonic(), int(time.time() * 1_000)
        writer.write(size.seconds)
        cores, end_ms = (cpu_s(pid) - spent) / (time.monotonic() - begun), int(time.time() * 1_000)
        writer.write(AFTER_S)
    here, arrived = (commits(b.bootstrap, t, since_ms) for b, t in ((clusters.source, TOPIC), (clusters.target, to)))
    found = np.array(waits(here, arrived, range(begun_ms, end_ms), int(time.time() * 1_000))) / 1_000
    if not len(found):
        raise Failed("no commit was found at the source")
    p50, p99 = np.percentile(found, (50, 99))
    tell(f"  {len(found):,} commits: p50 {p50:.2f} s  p99 {p99:.2f} s  {cores:.2f} cores")
    return Waits(float(p50), float(p99), cores)


def _groups(name: str, bootstrap: str) -> KafkaGroups:
    return KafkaGroups(Endpoint(name, bootstrap, 0))


def _all_at(there: KafkaGroups, size: Size, to: str) -> bool:
    """Whether every group has an offset in every partition."""
    places = [LogId(to, number) for number in range(size.partitions)]
    with suppress(TrueupError):  # the coordinator does not exist before the first commit
        answers = there.offsets(size.names).values()
        return all(not isinstance(o, TrueupError) and all(o.get(p, 0) for p in places) for o in answers)
    return False


class Writer(Closing):
    """Writes records, and commits the acknowledged offsets for every group."""

    def __init__(self, bootstrap: str, size: Size) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0})
        self._groups, self._size = _groups("source", bootstrap), size
        self._ends = [0] * size.partitions
        self._sent = self._moved = 0

    def close(self) -> None:
        """Flush the producer and close the connections for commits."""
        self._producer.flush(10)
        self._groups.close()

    def accepted(self) -> bool:
        """Whether the source accepts a commit of every group."""
        with suppress(TrueupError):
            return not any(self._commit(name) for name in self._size.names)
        return False

    def write(self, seconds: float) -> None:
        """Write at the fixed rate for this time. Each group commits about once per second, one after the other."""
        begun, sent, moved = time.monotonic(), 0, 0
        while (spent := time.monotonic() - begun) < seconds:
            for _ in range(int(spent * PER_S) - sent):
                number = self._sent % self._size.partitions
                self._producer.produce(TOPIC, b"x" * 100, partition=number, on_delivery=self._taken)
                self._sent, sent = self._sent + 1, sent + 1
            self._producer.poll(0)
            if moved < spent * self._size.groups:
                if why := self._commit(f"group-{self._moved % self._size.groups}"):
                    raise Failed(f"the source did not take a commit: {why}")
                self._moved, moved = self._moved + 1, moved + 1
            else:
                time.sleep(0.002)

    def _commit(self, group: str) -> str:
        """Commit every partition. Returns the error of a rejected commit."""
        places = GroupCommits({LogId(TOPIC, number): end for number, end in enumerate(self._ends)})
        answer = self._groups.commit({group: places})[group]
        return str(answer) if isinstance(answer, TrueupError) else next(filter(None, answer.values()), "")

    def _taken(self, error: object, message: object) -> None:
        if error is None:
            self._ends[message.partition()] = message.offset() + 1  # type: ignore[attr-defined]


def waits(here: Commits, there: Commits, counted_ms: range, end_ms: int) -> list[int]:
    """Delay of each commit in ms, for commits within ``counted_ms`` that advanced the offset."""
    found = []
    for key, made in here.items():
        arrived = iter(there.get(key, ()))
        at_ms, reached, before = 0, -1, -1
        for when_ms, offset in made:
            while reached < offset and at_ms < end_ms:
                at_ms, reached = next(arrived, (end_ms, -1))
            if when_ms in counted_ms and offset > before:
                found.append(max(0, at_ms - when_ms))
            before = offset
    return found


def commits(bootstrap: str, topic: str, since_ms: int) -> Commits:
    """Every commit of a topic's offsets since a time, in this cluster."""
    found: Commits = defaultdict(list)
    for key, value, stamp_ms in _read(bootstrap, since_ms):
        version, size = struct.unpack_from(">hh", key)
        if version > 1 or stamp_ms < since_ms:
            continue  # not a commit
        group, rest = key[4 : 4 + size].decode(), key[4 + size :]
        (size,) = struct.unpack_from(">h", rest)
        if rest[2 : 2 + size].decode() == topic and group.startswith("group-"):
            (number,) = struct.unpack_from(">i", rest, 2 + size)
            found[group, number].append((stamp_ms, struct.unpack_from(">hq", value)[1]))
    return found


def _read(bootstrap: str, since_ms: int) -> Iterator[tuple[bytes, bytes, int]]:
    """Keys, values and timestamps of the offsets topic from a time up to its current end."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False})
    numbers = reader.list_topics(COMMITS, timeout=30).topics[COMMITS].partitions
    ends = {n: reader.get_watermark_offsets(TopicPartition(COMMITS, n), timeout=30)[1] for n in numbers}
    since = reader.offsets_for_times([TopicPartition(COMMITS, n, since_ms) for n in numbers], timeout=30)
    begin = {place.partition: place.offset for place in since if 0 <= place.offset < ends[place.partition]}
    reader.assign([TopicPartition(COMMITS, number, offset) for number, offset in begin.items()])
    left = set(begin)
    while left:
        for message in reader.consume(10_000, 0.5):
            key, value = message.key(), message.value()
            if message.error() is None and key is not None and value is not None:
                yield key, value, message.timestamp()[1]
        places = reader.position([TopicPartition(COMMITS, number) for number in left])
        left -= {place.partition for place in places if place.offset >= ends[place.partition]}
    reader.close()
