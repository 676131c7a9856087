"""Two Kafka clusters of one broker each, topics to copy between them, and the end offsets at the target."""

import os
import random
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.common.measure import cpu_s, tell
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import wait_until

PARTITIONS = 4
FIRST_MS = 1_790_000_000_000
TOPIC = {"retention.ms": "-1", "max.message.bytes": "4000000", "file.delete.delay.ms": "0"}
VALUES = 4_096
_WORDS = (b"order", b"ledger", b"amount", b"status", b"PENDING", b"account", b"currency", b"EUR", b"reconcile")


class Load(NamedTuple):
    """A topic to copy: ``records`` records of ``size`` bytes in batches of ``batch``."""

    size: int
    batch: int
    records: int

    @property
    def topic(self) -> str:
        return f"load-{self.size}-{self.batch}"

    @property
    def name(self) -> str:
        return f"{self.size} B, {self.batch} a batch"


class Clusters:
    """The source and the target, with the same JVM settings."""

    def __init__(self, root: Path) -> None:
        self.source, self.target = Kafka(root / "source", "512m"), Kafka(root / "target", "512m")
        self._kept: set[str] = set()

    def __enter__(self) -> Self:
        for broker in (self.source, self.target):
            broker.start()
        for broker in (self.source, self.target):
            broker.wait_ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.source.close()
        self.target.close()

    @property
    def pids(self) -> tuple[int, int]:
        return self.source.pid or 0, self.target.pid or 0

    def cpu_s(self) -> float:
        """CPU seconds of both brokers."""
        return cpu_s(*self.pids)

    def fill(self, load: Load) -> None:
        """Write a load once. See `write`."""
        tell(f"writing {load.records:,} records of {load.name}")
        self.create(self.source, load.topic)
        self._kept.add(load.topic)
        write(self.source.bootstrap, load)

    def ends(self, topic: str) -> "Ends":
        """The end offsets of a topic of the target."""
        return Ends(self.target.bootstrap, topic)

    def create(self, broker: Kafka, topic: str) -> None:
        create(broker.bootstrap, topic)

    def clean(self) -> None:
        """Delete all topics except the loads, so that the next run starts empty and without pending disk writes."""
        for broker in (self.source, self.target):
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            doomed = [topic for topic in admin.list_topics(timeout=60).topics if not self._spared(topic)]
            _settle(admin.delete_topics(doomed).values() if doomed else ())
            wait_until(lambda: not set(doomed) & set(admin.list_topics(timeout=60).topics), 60, "topics deleted")  # noqa: B023
        os.sync()

    def _spared(self, topic: str) -> bool:
        return topic in self._kept or topic.startswith("__")


class Ends:
    """The end offsets of a topic, for frequent polling."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "log_level": 0})
        self._partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]

    def records(self) -> int:
        """Number of records, 0 before the topic exists."""
        total = 0
        for partition in self._partitions:
            with suppress(KafkaException):
                total += self._consumer.get_watermark_offsets(partition, timeout=5.0)[1]
        return total

    def close(self) -> None:
        self._consumer.close()


def create(bootstrap: str, topic: str) -> None:
    """A topic with `PARTITIONS` partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=TOPIC)])[topic].result(60)


def write(bootstrap: str, load: Load) -> None:
    """Write a load, with lz4, keys, one header and explicit timestamps."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": "lz4",
            "linger.ms": 50,
            "batch.num.messages": load.batch,
            "batch.size": 1_900_000,
            "message.max.bytes": 2_000_000,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 500_000,
        }
    )
    values = values_of(load.size)
    for number in range(load.records):
        while True:
            try:
                producer.produce(
                    load.topic,
                    values[number * 2_654_435_761 % VALUES],
                    b"%08d" % number,
                    number // load.batch % PARTITIONS,
                    timestamp=FIRST_MS + number,
                    headers=[("trace", b"abcdef")],
                )
                break
            except BufferError:
                producer.poll(0.05)
        if not number % 10_000:
            producer.poll(0)
    assert producer.flush(120) == 0


def _settle(futures: Iterable["Future[None]"]) -> None:
    for future in futures:
        future.result(60)


def values_of(size: int) -> Sequence[bytes]:
    """Half random, half words. lz4 compresses it to about two thirds."""
    dice = random.Random(7)
    found = []
    for _ in range(VALUES):
        value = b""
        while len(value) < size:
            value += dice.randbytes(8) + b'"' + dice.choice(_WORDS) + b'":' + dice.choice(_WORDS)
        found.append(value[:size])
    return found
