"""A shop on Kafka: orders are written to one cluster at a time, and a group reads them.

An order's key is ``cluster-number``. An order that was sent but not acknowledged is not sent again. It may or may not
exist, so it counts neither as lost nor as duplicate.
"""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from trueup.connectors.sandbox.jvm.processes import wait_until

TOPIC, GROUP, PARTITIONS = "orders", "billing", 4
PER_S = 500.0
COMMIT_S, LEAVE_S = 0.25, 2.0
Log = dict[int, list[str]]
"""Keys of each partition, in order."""


class ShopOrders:
    """The writer. It can move between clusters while it writes."""

    def __init__(self) -> None:
        self.acknowledged: dict[str, set[str]] = defaultdict(set)
        self.sent = 0
        self._next: Counter[str] = Counter()
        self._extra = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, cluster: str, bootstrap: str) -> None:
        """Write to this cluster from now on."""
        self.end()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(cluster, bootstrap, self._stop), daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop writing; orders that are not acknowledged soon are abandoned."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def burst(self, orders: int) -> None:
        """Write this many orders at once, then continue at the normal rate."""
        self._extra += orders

    @property
    def count(self) -> int:
        """Orders acknowledged by any cluster."""
        return sum(map(len, self.acknowledged.values()))

    def _run(self, cluster: str, bootstrap: str, stop: threading.Event) -> None:
        producer = Producer({
            "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0,
            "message.timeout.ms": 30_000,
        })  # fmt: skip
        kept, begun, sent, first = self.acknowledged[cluster], time.monotonic(), 0, self._extra
        number = self._next[cluster]

        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is None:
                kept.add(message.key().decode())

        while not stop.wait(0.01):
            for _ in range(int((time.monotonic() - begun) * PER_S) + self._extra - first - sent):
                producer.produce(
                    TOPIC, b"order", f"{cluster}-{number}", partition=number % PARTITIONS, on_delivery=delivered
                )
                sent, number = sent + 1, number + 1
            producer.poll(0)
        producer.flush(5)
        producer.purge()
        producer.flush(5)
        self.sent += sent
        self._next[cluster] = number


class Billing:
    """The consumer group: one member that commits often. ``first``: first offset read in each partition. ``again_s``:
    reading time, up to the last order read before the move, of orders that were read again after it."""

    def __init__(self) -> None:
        self.read: Counter[str] = Counter()
        self.again_s = 0.0
        self._read_s: dict[str, float] = {}
        self._last_s = self._left_s = 0.0
        self.first: dict[str, dict[int, str]] = defaultdict(dict)
        self.at_move: set[str] = set()
        self.error = ""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, cluster: str, bootstrap: str, reset: str) -> None:
        """Continue on this cluster from its committed offsets; ``reset`` is auto.offset.reset."""
        self.end()
        self._left_s = self._last_s
        self.at_move, self._stop = set(self.read), threading.Event()
        arguments = (cluster, bootstrap, reset, self._stop)
        self._thread = threading.Thread(target=self._run, args=arguments, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Leave the group."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(LEAVE_S)  # closing a member of a killed cluster may take long; it reads nothing more

    def _run(self, cluster: str, bootstrap: str, reset: str, stop: threading.Event) -> None:
        consumer = Consumer({
            "bootstrap.servers": bootstrap, "group.id": GROUP, "auto.offset.reset": reset, "log_level": 0,
            "enable.auto.commit": False, "session.timeout.ms": 6_000,
        })  # fmt: skip
        consumer.subscribe([TOPIC])
        due = time.monotonic() + COMMIT_S
        while not stop.is_set():
            message = consumer.poll(0.1)
            if message is not None:
                self._take(cluster, message)
            if time.monotonic() >= due:
                with suppress(KafkaException):  # no record was read yet
                    consumer.commit(asynchronous=True)
                due = time.monotonic() + COMMIT_S
        consumer.close()

    def _take(self, cluster: str, message: Any) -> None:
        if message.error() is None:
            key = message.key().decode()
            self.read[key] += 1
            self._last_s = time.monotonic()
            if self._read_s.setdefault(key, self._last_s) <= self._left_s:
                self.again_s = max(self.again_s, self._left_s - self._read_s[key])
            self.first[cluster].setdefault(message.partition(), key)
        elif message.error().code() == KafkaError._AUTO_OFFSET_RESET:
            self.error = f"partition {message.partition()} at {cluster}: {message.error().str()}"


def whole(bootstrap: str, limit_s: float = 60.0) -> Log:
    """All records of the topic on a cluster."""
    consumer = _reader(bootstrap)
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    found: Log = {number: [] for number in range(PARTITIONS)}
    ended: set[int] = set()

    def all_read() -> bool:
        messages: list[Any] = consumer.consume(5_000, 0.5)
        for message in messages:
            if message.error() is None:
                found[message.partition()].append(message.key().decode())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
        return len(ended) == PARTITIONS

    wait_until(all_read, limit_s, f"all of {TOPIC} read")
    consumer.close()
    return found


def ends(bootstrap: str) -> list[int]:
    """End offset of each partition. Raises `KafkaException` if the cluster does not respond."""
    return _ask(bootstrap, lambda c, p: int(c.get_watermark_offsets(p, timeout=10)[1]))


def committed(bootstrap: str) -> list[int]:
    """Committed offset of the group in each partition; negative: none."""
    return _ask(bootstrap, lambda c, p: int(c.committed([p], timeout=10)[0].offset))


def _ask(bootstrap: str, what: Callable[[Any, TopicPartition], int]) -> list[int]:
    consumer = _reader(bootstrap)
    try:
        return [what(consumer, TopicPartition(TOPIC, number)) for number in range(PARTITIONS)]
    finally:
        consumer.close()


def _reader(bootstrap: str) -> Consumer:
    return Consumer({
        "bootstrap.servers": bootstrap, "group.id": GROUP, "enable.partition.eof": True, "enable.auto.commit": False,
        "log_level": 0,
    })  # fmt: skip
