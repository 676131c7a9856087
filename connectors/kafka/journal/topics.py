"""The topics of the journal: creation, acknowledged writes, reads up to the end, following. Keys and bodies are bytes.

Every method except `Announcer.publish` raises `Retry` if a retry can help, and `Stop` if a permission or a limit must
be changed first.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from enum import Enum
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_exponential

from trueup.connectors.kafka.client.security import remedy
from trueup.connectors.kafka.journal.transactions import Part, Transactions, enqueue
from trueup.state.common.errors import Retry, Stop, TrueupError

log = logging.getLogger(__name__)
FLUSH_S = 30.0
ASK_S, MARKED_S, TOGETHER_S = 2.0, 5.0, 0.02
LARGEST = 16 << 20
"""Maximum bytes of a record before compression. Brokers limit the bytes after it."""
ANNOUNCED_MS = 5_000
"""An announcement that is not acknowledged within this time is dropped."""
_PERMANENT = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
    }
)
Ranges = dict[int, tuple[int, int]]
"""The first offset and the end of each partition."""


class TopicRecord(NamedTuple):
    """One record of a topic."""

    key: bytes
    body: bytes | None
    """The value of the record. None: the key was removed."""
    topic: str
    partition: int
    offset: int
    headers: Mapping[str, bytes] = MappingProxyType({})
    """The headers by name. Only a record that removes its key has headers."""

    @property
    def where(self) -> str:
        """Its place as text."""
        return f"topic {self.topic} partition {self.partition} offset {self.offset}"


class TopicSpec(NamedTuple):
    """A topic to create."""

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str]


class TopicClient:
    """Topics of one cluster. ``options``: the options of librdkafka. Safe to use from several threads."""

    def __init__(self, bootstrap: str, options: Mapping[str, Any]) -> None:
        self.client: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "reconnect.backoff.max.ms": 5_000,
            "logger": logging.getLogger("librdkafka"),
            **options,
        }
        self._writes = {
            **self.client,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 5,
            "batch.size": 500_000,
            "queue.buffering.max.messages": 1_000_000,
            "message.max.bytes": LARGEST,
            "delivery.report.only.error": True,
        }
        self._producer = self._made()
        self._transactions: Transactions | None = None
        self._leading: Transactions | None = None
        """What a call of `lead` that raised `Retry` began."""
        self._lock = threading.Lock()
        self._failed: list[KafkaError] = []
        self._asking = threading.Lock()
        self._asker: Consumer | None = None

    def _made(self) -> Producer:
        return Producer({**self._writes, "on_delivery": self._delivered})

    @cached_property
    def _admin(self) -> Any:
        return AdminClient(self.client)

    def create(self, topics: Sequence[TopicSpec], timeout_s: float) -> list[str]:
        """Create missing topics and wait until all have leaders. The right to create is needed only if one is
        missing. Returns the names of the created ones."""
        admin = AdminClient(self.client)
        created = list[str]()
        deadline = time.monotonic() + timeout_s
        while missing := _without_leader(admin, [topic.name for topic in topics]):
            if time.monotonic() > deadline:
                raise Retry("leaders for all topics", f"none for {', '.join(missing)}", "check the journal's brokers")
            # Each time: a broker may list a deleted topic at first.
            absent = [topic for topic in topics if missing.get(topic.name) is Lack.TOPIC]
            created += _create(admin, absent, timeout_s) if absent else []
            time.sleep(0.05)
        return created

    def configure(self, topic: str, config: Mapping[str, str], timeout_s: float) -> None:
        """Set these settings of a topic and keep its others."""
        admin = AdminClient(self.client)
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()
        ]
        asked = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        try:
            admin.incremental_alter_configs([asked])[asked].result(timeout_s)
        except KafkaException as error:
            raise translated(error.args[0], f"set {', '.join(config)} of topic {topic}") from error

    def delete(self, topics: Sequence[str], timeout_s: float) -> None:
        """Delete these topics with all their records, and wait until they are not listed. Blocks."""
        admin = AdminClient(self.client)
        # The client must outlive its futures: a client that is garbage-collected first fails them.
        for name, future in admin.delete_topics(list(topics), operation_timeout=timeout_s).items():
            try:
                future.result(timeout_s)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise translated(error.args[0], f"delete topic {name}") from error
        # The controller answers before the brokers know: `create` would take a listed topic for one that exists.
        deadline = time.monotonic() + timeout_s
        while listed := self.partitions(topics):
            if time.monotonic() > deadline:
                raise Retry("deleted topics not to be listed", f"{listed[0][0]}", "check the journal's brokers")
            time.sleep(0.05)

    def identities(self, topics: Sequence[str], timeout_s: float = 10.0) -> dict[str, str]:
        """The ids of those of these topics that exist."""
        ids = {}
        asked = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=timeout_s)
        for name, future in asked.items():
            try:
                ids[name] = str(_answer(future, timeout_s).topic_id)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise translated(error.args[0], f"describe topic {name}") from error
        return ids

    def configs(self, topics: Sequence[str], timeout_s: float = 10.0) -> dict[str, dict[str, str]]:
        """The effective settings of each topic; none of a topic whose settings may not be read."""
        configs = {}
        asked = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
        for resource, future in self._admin.describe_configs(asked, request_timeout=timeout_s).items():
            try:
                entries = _answer(future, timeout_s)
            except KafkaException as error:
                if error.args[0].code() not in _PERMANENT:
                    raise translated(error.args[0], f"read the settings of topic {resource.name}") from error
                entries = {}
            configs[resource.name] = {name: str(entry.value) for name, entry in entries.items()}
        return configs

    def brokers(self, timeout_s: float) -> int:
        """The number of brokers. Raises `Stop` if the brokers refuse the client, naming the key of the settings."""
        causes = list[str]()
        config = dict[str, Any](self.client, error_cb=lambda error: causes.append(error.str()))
        admin = AdminClient(config)
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return len(admin.list_topics(timeout=min(ASK_S, timeout_s) / 2).brokers)
            except KafkaException as error:
                admin.poll(0)
                for cause in causes:
                    if todo := remedy(cause, "journal"):
                        raise Stop("to query the journal's brokers", cause, todo) from error
                if time.monotonic() > deadline:
                    raise translated(error.args[0], "query the journal's brokers") from error

    def reachable(self, topic: str, timeout_s: float) -> bool:
        """Whether a broker responds."""
        try:
            self._producer.list_topics(topic, timeout=timeout_s)
        except KafkaException:
            return False
        return True

    def lead(self, name: str, fenced: Callable[[str], object], within_s: float) -> None:
        """Write transactions with this transactional.id from now on. The previous owner of the id cannot write any
        more; ``fenced`` is called, with a reason, if this is the case for this one. After `Retry`, call it again with
        the same arguments."""
        # The same client: a request of an earlier one that arrives late would fence a later one.
        transactions = self._leading = self._leading or Transactions(self._writes, name, translated, fenced)
        transactions.begin(within_s)
        with self._lock:
            self._transactions, self._leading = transactions, None

    @property
    def transactional(self) -> bool:
        """Whether writes are transactions."""
        return self._transactions is not None

    def send(self, parts: Iterable[Part], within_s: float = FLUSH_S, partition: int = -1) -> None:
        """Write these records and wait until all are acknowledged, for about ``within_s``. ``partition``: the partition
        of the records, only for writes that are no transactions; -1: the key of a record selects its partition."""
        if not self._lock.acquire(timeout=within_s):
            raise Retry("access to the journal", f"other writers for {within_s:.0f} s", "try again")
        try:
            if self._transactions is not None:
                self._transactions.write(parts, within_s)
                return
            self._failed.clear()
            try:
                enqueue(self._producer, parts, partition)
            except KafkaException as error:
                raise self._refused([error.args[0]]) from error
            left = self._producer.flush(within_s)
            if self._failed:
                raise self._refused(self._failed)
            if left:
                self._producer.purge()
                self._producer.flush(ASK_S)  # what it reports of them would count for the next write
                raise Retry("acknowledged records", f"{left} unacknowledged after {within_s:.0f} s", "try again")
        finally:
            self._lock.release()

    def _refused(self, errors: Sequence[KafkaError]) -> TrueupError:
        """The error of a write that failed with these. A producer with a fatal error never writes again, so a new one
        replaces it."""
        if any(map(is_fatal, errors)):
            log.warning("producer of the journal replaced", extra={"error": errors[0].str()})
            before, self._producer = self._producer, self._made()
            before.purge()
            before.flush(ASK_S)  # results that are not delivered would keep it alive
        return translated(errors[0], "write to the journal")

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._failed.append(error)

    def read(self, topic: str, last: int | None = None) -> Iterator[TopicRecord]:
        """Every record up to the current end, in order within each partition; with ``last``, only this number of the
        newest of each."""
        consumer = Consumer(
            {
                **self.client,
                "group.id": "trueup",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
                "enable.partition.eof": True,
            }
        )
        try:
            # A read from OFFSET_BEGINNING reports no position if all records of the partition expired.
            places = _settled_ranges(consumer, topic)
            if self._transactions is not None:
                places = self._visible(consumer, topic, places)
            begins = {p: first if last is None else max(first, end - last) for p, (first, end) in places.items()}
            consumer.assign([TopicPartition(topic, p, begin) for p, begin in begins.items()])
            left = {p for p, (_, end) in places.items() if end > begins[p]}
            while left:
                messages = consumer.consume(10_000, TOGETHER_S)
                yield from _good(messages, f"read topic {topic}")
                # A position does not pass the marker of a transaction at the end of the log.
                left -= {message.partition() for message in messages if _at_end(message)}
                for place in consumer.position([TopicPartition(topic, p) for p in left]):
                    if place.offset >= places[place.partition][1]:
                        left.discard(place.partition)
        except KafkaException as error:
            raise translated(error.args[0], f"read topic {topic}") from error
        finally:
            consumer.close()

    def _visible(
        self, consumer: Consumer, topic: str, places: dict[int, tuple[int, int]]
    ) -> dict[int, tuple[int, int]]:
        """The first offsets and ends once they include what was committed: a commit is answered before its marker is in
        every log."""
        ends, until_s = self.ends(topic), time.monotonic() + MARKED_S
        while any(places.get(p, (0, 0))[1] < end for p, end in ends.items()) and time.monotonic() < until_s:
            time.sleep(0.02)
            places = _ranges(consumer, topic, 10)
        return places

    def follow(self, topic: str, stop: threading.Event, seen: Callable[[TopicRecord], None], old: bool) -> None:
        """Call ``seen`` with every record of a one-partition topic until ``stop`` is set. If ``old``, start at the
        beginning of the topic, otherwise with new records. Blocks."""
        consumer = Consumer({**self.client, "group.id": "trueup", "enable.auto.commit": False})
        try:
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING if old else OFFSET_END)])
            while not stop.is_set():
                message = consumer.poll(0.2)
                if message is not None and message.error() is None:
                    seen(_entry(message))
        finally:
            consumer.close()

    def partitions(self, topics: Iterable[str], timeout_s: float = 10.0) -> list[tuple[str, int]]:
        """Topic and number of each partition of those of these topics that exist."""
        try:
            existing = self._admin.list_topics(timeout=timeout_s).topics
        except KafkaException as error:
            raise translated(error.args[0], "list the topics of the journal") from error
        return [(topic, number) for topic in topics if topic in existing for number in existing[topic].partitions]

    def follow_all(
        self,
        begins: Mapping[tuple[str, int], int],
        stop: threading.Event,
        seen: Callable[[list[TopicRecord]], None],
        at_once: int,
    ) -> None:
        """Call ``seen`` with the records of these partitions from these offsets on, in the order of each, until
        ``stop``. ``at_once``: the maximum number of records of a call. Blocks."""
        consumer = Consumer(
            {
                **self.client,
                "group.id": "trueup",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "queued.max.messages.kbytes": 8_192,
            }
        )
        try:
            consumer.assign([TopicPartition(topic, number, begin) for (topic, number), begin in begins.items()])
            while not stop.is_set():
                messages = consumer.consume(at_once, 0.2)
                if records := [_entry(message) for message in messages if message.error() is None]:
                    seen(records)
        finally:
            consumer.close()

    def ends(self, topic: str) -> dict[int, int]:
        """The current end of each partition, including transactions whose marker is not written yet."""
        return {partition: end for partition, (_, end) in self.ranges(topic).items()}

    def ranges(self, topic: str) -> Ranges:
        """The first offset and the current end of each partition, including transactions whose marker is not written
        yet."""
        with self._asking:
            if self._asker is None:
                self._asker = Consumer(
                    {
                        **self.client,
                        "group.id": "trueup",
                        "enable.auto.commit": False,
                        "isolation.level": "read_uncommitted",
                    }
                )
            return _ranges(self._asker, topic, ASK_S)


class Announcer:
    """Writes to a topic without waiting; lost records are reported in another way."""

    def __init__(self, client: Mapping[str, Any]) -> None:
        self._client = client
        self._producer = self._made()
        self._lock = threading.Lock()

    def _made(self) -> Producer:
        return Producer(
            {
                **self._client,
                "enable.idempotence": True,
                "linger.ms": 0,
                "compression.type": "lz4",
                "message.timeout.ms": ANNOUNCED_MS,
                "queue.buffering.max.messages": 10_000,
                "message.max.bytes": LARGEST,
                "log_level": 0,
            }
        )

    def publish(self, topic: str, key: bytes, body: bytes) -> None:
        """Write a record if possible. Never raises because of the brokers."""
        producer = self._producer
        try:
            producer.produce(topic, body, key)
            producer.poll(0)
        except BufferError:
            pass
        except KafkaException as error:
            if is_fatal(error.args[0]):
                self._replace(producer)

    def _replace(self, broken: Producer) -> None:
        """Discard a producer that never writes again, unless another thread did."""
        with self._lock:
            if self._producer is not broken:
                return
            self._producer = self._made()
        broken.purge()
        broken.poll(0)


def is_fatal(error: KafkaError) -> bool:
    """Whether a producer with this error fails all later writes."""
    return error.fatal() or error.code() == KafkaError._FATAL


def translated(error: KafkaError, doing: str) -> TrueupError:
    """Trueup's error for one of the client's."""
    kind = Stop if error.code() in _PERMANENT else Retry
    todo = "check the permissions and limits of the journal" if kind is Stop else "try again"
    return kind(f"to {doing}", error.str(), todo)


@retry(retry=retry_if_exception_type(Retry), stop=stop_after_delay(30), wait=wait_exponential(0.1, max=2), reraise=True)
def _settled_ranges(consumer: Consumer, topic: str) -> Ranges:
    """First offset and end of each partition. A newly elected leader may not know them yet, so the request is
    retried."""
    return _ranges(consumer, topic, 10)


def _ranges(consumer: Consumer, topic: str, within_s: float) -> Ranges:
    try:
        partitions = consumer.list_topics(topic, timeout=within_s).topics[topic].partitions
        return {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=within_s) for p in partitions}
    except KafkaException as error:
        raise translated(error.args[0], f"find the end of topic {topic}") from error


def _answer(future: Future[Any], timeout_s: float) -> Any:
    """The answer to a request with this time limit. A process that was stopped meanwhile may be late to see it."""
    try:
        return future.result(timeout_s + ASK_S)
    except TimeoutError as error:
        raise Retry("an answer of the journal's brokers", f"none within {timeout_s:.0f} s", "try again") from error


class Lack(Enum):
    """What keeps a topic from being written."""

    TOPIC = "it is not listed"
    LEADER = "a partition has no leader"


def _create(admin: Any, topics: Sequence[TopicSpec], timeout_s: float) -> list[str]:
    """Create these topics. Returns the names of those that did not exist."""
    new = [
        NewTopic(name, partitions, replication, config=dict(config)) for name, partitions, replication, config in topics
    ]
    created = []
    for name, future in admin.create_topics(new, operation_timeout=timeout_s).items():
        try:
            future.result(timeout_s)
            created.append(name)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise translated(error.args[0], f"create topic {name}") from error
    return created


def _without_leader(admin: Any, names: Sequence[str]) -> dict[str, Lack]:
    """Those of these topics that cannot be written yet."""
    try:
        topics = admin.list_topics(timeout=10).topics
    except KafkaException as error:
        raise translated(error.args[0], "list the topics of the journal") from error
    absent = {name: Lack.TOPIC for name in names if name not in topics}
    existing = [name for name in names if name in topics]
    return absent | {n: Lack.LEADER for n in existing if any(p.leader < 0 for p in topics[n].partitions.values())}


def _good(messages: list[Message], doing: str) -> Iterator[TopicRecord]:
    for message in messages:
        error = message.error()
        if error is None:
            yield _entry(message)
        elif not error.retriable() and not _at_end(message):
            raise translated(error, doing)


def _at_end(message: Message) -> bool:
    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF


def _entry(message: Message) -> TopicRecord:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None, "a message that was read has a topic"
    assert partition is not None, "a message that was read has a partition"
    assert offset is not None, "a message that was read has an offset"
    body = message.value()
    record = TopicRecord(message.key() or b"", body, topic, partition, offset)
    if body is None and (headers := message.headers()):
        return record._replace(headers={name: value for name, value in [*headers] if isinstance(value, bytes)})
    return record
