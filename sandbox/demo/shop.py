"""A shop whose orders are written to one cluster at a time and read by a group; what all systems share, and Kafka.

An order's key is ``cluster-number``. An order that was sent but not acknowledged is not sent again. It may or may not
exist, so it counts neither as lost nor as duplicate.
"""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from trueup.connectors.embedded.kafka import Kafka
from trueup.sandbox.demo.waiting import STILL_S, Say, silent, start, wait_for
from trueup.state.common.counts import many

TOPIC, GROUP, PARTITIONS = "orders", "billing", 4
PER_S = 500.0
COMMIT_S, LEAVE_S, PAUSE_S = 0.25, 2.0, 0.01
TOGETHER = 50_000
"""Maximum number of records of one read."""
ANSWER_S = 10.0
Log = dict[int, list[str]]
"""Keys of each partition, in order."""


class ShopSite(Protocol):
    """A cluster of the shop, with its servers. The topic has `PARTITIONS` partitions."""

    @property
    def name(self) -> str:
        """Its name in links and keys."""

    @property
    def address(self) -> str:
        """Its address for clients."""

    def up(self) -> None:
        """Start it and wait until it responds."""

    def kill(self) -> None:
        """SIGKILL."""

    def log(self) -> Log:
        """All orders."""

    def ends(self) -> list[int]:
        """End offset of each partition."""

    def committed(self) -> list[int]:
        """Committed offset of the group in each partition; 0 or negative: none."""


class Orders:
    """The writers. They can move between clusters while they write. ``acknowledged``: the keys of the orders that each
    cluster acknowledged, by the name of the cluster."""

    def __init__(self, writers: int = 1, per_s: float = PER_S) -> None:
        self.acknowledged: dict[str, set[str]] = {}
        self.per_s = per_s
        self._writers = writers
        self._sent: Counter[tuple[str, int]] = Counter()
        self._extra = 0
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def begin(self, cluster: str, address: str) -> None:
        """Write to this cluster from now on."""
        self.end()
        self._stop = threading.Event()
        self.acknowledged.setdefault(cluster, set())
        shared = (cluster, address, self._stop)
        self._threads = [
            threading.Thread(target=self.write, args=(*shared, number), daemon=True) for number in range(self._writers)
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Stop writing; orders that are not acknowledged soon are abandoned."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def burst(self, orders: int) -> None:
        """Write this many orders at once, then continue at the normal rate."""
        self._extra += orders // self._writers

    @property
    def count(self) -> int:
        """Orders acknowledged by any cluster."""
        return sum(map(len, self.acknowledged.values()))

    @property
    def wanted(self) -> set[str]:
        """The keys of all acknowledged orders."""
        return set().union(*self.acknowledged.values())

    @property
    def sent(self) -> int:
        """Orders sent, acknowledged or not."""
        return sum(self._sent.values())

    def ordered(self, key: str) -> bool:
        """Whether the order has a place in the order of production."""
        return bool(key)

    def write(self, cluster: str, address: str, stop: threading.Event, writer: int) -> None:
        """Write orders until it has to stop; the body of each writer's thread."""
        raise NotImplementedError

    def due(self, cluster: str, stop: threading.Event, writer: int) -> Iterator[int]:
        """The number of each order of a writer, when it is due, until the writer has to stop."""
        begun, sent, first = time.monotonic(), 0, self._extra
        while not stop.wait(PAUSE_S):
            rate = self.per_s / self._writers
            for _ in range(int((time.monotonic() - begun) * rate) + self._extra - first - sent):
                if stop.is_set():
                    return
                number = writer + self._writers * self._sent[cluster, writer]
                sent += 1
                self._sent[cluster, writer] += 1
                yield number


class Billing:
    """What the consumer group read. ``first``: the first order read in each partition, by cluster. ``again_s``: the
    seconds between the first read of the earliest order that was read again after a move, and the last read before that
    move."""

    def __init__(self) -> None:
        self.read: Counter[str] = Counter()
        self.again_s = 0.0
        self._read_s: dict[str, float] = {}
        self._last_s = self._left_s = 0.0
        self.first: dict[str, dict[int, str]] = defaultdict(dict)
        self.at_move: set[str] = set()
        self.error = ""

    def begin(self, cluster: str, address: str, fresh: bool) -> None:
        """Continue on this cluster from its committed offsets. ``fresh``: the group has none yet."""
        self.end()
        self._left_s = self._last_s
        self.at_move = set(self.read)
        self.join(cluster, address, fresh)

    def join(self, cluster: str, address: str, fresh: bool) -> None:
        """Start the member of the group."""
        raise NotImplementedError

    def end(self) -> None:
        """Leave the group."""
        raise NotImplementedError

    def take(self, cluster: str, partition: int, key: str) -> None:
        """Count an order that was read."""
        self.read[key] += 1
        self._last_s = time.monotonic()
        if self._read_s.setdefault(key, self._last_s) <= self._left_s:
            self.again_s = max(self.again_s, self._left_s - self._read_s[key])
        self.first[cluster].setdefault(partition, key)


class KafkaOrders(Orders):
    """One writer, which sends without waiting."""

    def write(self, cluster: str, address: str, stop: threading.Event, writer: int) -> None:
        """Produce until it has to stop."""
        producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "linger.ms": 5,
                "log_level": 0,
                "message.timeout.ms": 30_000,
            }
        )
        kept = self.acknowledged[cluster]

        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is None:
                kept.add(message.key().decode())

        for number in self.due(cluster, stop, writer):
            producer.produce(
                TOPIC, b"order", f"{cluster}-{number}", partition=number % PARTITIONS, on_delivery=delivered
            )
            producer.poll(0)
        producer.flush(5)
        producer.purge()
        producer.flush(5)


class KafkaBilling(Billing):
    """One member that commits often."""

    def __init__(self) -> None:
        super().__init__()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def join(self, cluster: str, address: str, fresh: bool) -> None:
        """Read on a thread of its own. Without an offset, a group that is not fresh gets an error."""
        self._stop = threading.Event()
        arguments = (cluster, address, "earliest" if fresh else "error", self._stop)
        self._thread = threading.Thread(target=self._run, args=arguments, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Leave the group."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(LEAVE_S)  # closing a member of a killed cluster may take long; it reads nothing more

    def _run(self, cluster: str, bootstrap: str, reset: str, stop: threading.Event) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": reset,
                "log_level": 0,
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
            }
        )
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
            self.take(cluster, message.partition(), message.key().decode())
        elif message.error().code() == KafkaError._AUTO_OFFSET_RESET:
            self.error = f"partition {message.partition()} at {cluster}: {message.error().str()}"


class KafkaSite:
    """A Kafka broker. ``say``: prints what it waits for."""

    def __init__(self, name: str, broker: Kafka, say: Say = silent) -> None:
        self.name, self.broker, self._say = name, broker, say
        self.address = broker.bootstrap

    def up(self) -> None:
        """Start it and wait until it responds."""
        start({self.name: self.broker}, self._say)

    def kill(self) -> None:
        """SIGKILL."""
        self.broker.kill()

    def log(self) -> Log:
        """All orders."""
        return {number: [record.key().decode() for record in part] for number, part in self.records().items()}

    def records(self) -> dict[int, list[Any]]:
        """All records of each partition."""
        consumer = _reader(self.address)
        records: dict[int, list[Any]] = {number: [] for number in range(PARTITIONS)}
        ended: set[int] = set()

        def all_read() -> bool:
            messages: list[Any] = consumer.consume(TOGETHER, 0.5)
            for message in messages:
                if message.error() is None:
                    records[message.partition()].append(message)
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
            return len(ended) == PARTITIONS

        try:
            consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
            what = f"all of {TOPIC} at {self.name} to be read"
            wait_for(what, all_read, self._say, lambda: many(sum(map(len, records.values())), "record"))
        finally:
            consumer.close()
        return records

    def ends(self) -> list[int]:
        """End offset of each partition."""
        return self._ask("its ends", lambda c, p: int(c.get_watermark_offsets(p, timeout=ANSWER_S)[1]))

    def committed(self) -> list[int]:
        """Committed offset of the group in each partition; negative: none."""
        return self._ask("its offsets", lambda c, p: int(c.committed([p], timeout=ANSWER_S)[0].offset))

    def _ask(self, what: str, ask: Callable[[Any, TopicPartition], int]) -> list[int]:
        """The answer for each partition, as soon as the cluster responds."""
        answers, problem = list[int](), ""

        def answered() -> bool:
            nonlocal problem
            consumer = _reader(self.address)
            try:
                answers[:] = [ask(consumer, TopicPartition(TOPIC, number)) for number in range(PARTITIONS)]
            except KafkaException as error:
                problem = str(error)
                return False
            finally:
                consumer.close()
            return True

        wait_for(f"{self.name} to tell {what}", answered, self._say, lambda: problem)
        return answers


def create(bootstrap: str, topic: NewTopic, say: Say) -> None:
    """Create a topic at a Kafka cluster."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    created = admin.create_topics([topic], request_timeout=STILL_S)[topic.topic]
    wait_for(f"topic {topic.topic} at {bootstrap}", created.done, say)
    created.result()


def keys(log: Log) -> set[str]:
    """All keys of a topic."""
    return {key for part in log.values() for key in part}


def disorder(part: Sequence[str]) -> int:
    """Positions where the orders of one cluster are not in the order of their production."""
    count, last = 0, dict[str, int]()
    for key in part:
        cluster, _, number = key.partition("-")
        count += int(number) < last.get(cluster, -1)
        last[cluster] = int(number)
    return count


def skipped(log: Log, first: dict[int, str], read: set[str]) -> int:
    """Records before the first that the group read in each partition and that it had not read on the other cluster."""
    return sum(len(set(log[number][: log[number].index(key)]) - read) for number, key in first.items())


def _reader(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
