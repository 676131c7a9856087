"""The journal: Kafka topics that hold what was observed, decided and set; compacted, so read from the start
they are the snapshot. The history alone is not: its rows expire.

A publish returns when the brokers have acknowledged everything, or raises `Retry` and nothing may be assumed;
the caller publishes the same again, which is harmless, as the newest version of a key wins.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import fastavro
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_exponential

from trueup.connectors.bookkeeper.metadata.bulk import Batch, keys
from trueup.state.bookkeeper.observations import Observation
from trueup.state.common.errors import Retry, Stop, TrueupError
from trueup.state.settings.settings import Journal as JournalSettings
from trueup.streams.journal.channel import Channel
from trueup.streams.journal.codec import SCHEMAS, decode, read, schema_text
from trueup.streams.journal.encode import encode_all, ledger_bodies

log = logging.getLogger(__name__)
FLUSH_S = 30.0
ASK_S = 2.0
_PARTITIONED = frozenset({"ledgers", "marks"})
_COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
_CONFIGS = {"reports": {"cleanup.policy": "delete", "retention.ms": "600000", "segment.ms": "600000"}}
"""Of topics that are read while they are written, and never again."""
HISTORY = "history"
DAY_MS = 86_400_000
_PERMANENT = frozenset({
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED,
})  # fmt: skip


class Record(NamedTuple):
    """One record read back. ``value`` None: the key was removed. ``where`` is topic, partition and offset in words."""

    key: bytes
    value: Any
    where: str
    offset: int


Bad = Callable[[Record, TrueupError], None]
"""Told of a record that does not parse; its value is None then."""


class Journal:
    """The topics of one cluster. Safe to use from several threads."""

    def __init__(self, bootstrap: str, settings: JournalSettings, cluster: str) -> None:
        self.bootstrap, self.settings, self._cluster = bootstrap, settings, cluster
        self.client: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "reconnect.backoff.max.ms": 5_000,
            "logger": logging.getLogger("librdkafka"),
            **settings.options,
        }
        self._producer = Producer(
            {
                **self.client,
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 5,
                "batch.size": 500_000,
                "queue.buffering.max.messages": 1_000_000,
                "delivery.report.only.error": True,
                "on_delivery": self._delivered,
            }
        )
        self._lock = threading.Lock()
        self._failed: list[KafkaError] = []
        self._asking = threading.Lock()
        self._asker: Consumer | None = None

    def topic(self, what: str) -> str:
        """Full name of a topic."""
        return f"{self.settings.prefix}.{self._cluster}.{what}"

    def create(self, timeout_s: float = 60.0) -> None:
        """Create the topics that are missing and wait until every one has leaders."""
        admin, configs = AdminClient(self.client), {**_CONFIGS, HISTORY: self._expires()}
        new = [
            NewTopic(self.topic(what), self.settings.partitions if what in _PARTITIONED else 1,
                     self.settings.replication, config=configs.get(what, _COMPACTED))
            for what in SCHEMAS
        ]  # fmt: skip
        for name, future in admin.create_topics(new, operation_timeout=timeout_s).items():
            try:
                future.result(timeout_s)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise translated(error.args[0], f"create topic {name}") from error
        deadline = time.monotonic() + timeout_s
        while missing := self._without_leader(admin):
            if time.monotonic() > deadline:
                raise Retry("leaders for all topics", f"none for {', '.join(missing)}", "look at the journal's brokers")
            time.sleep(0.05)
        self._keep(admin, timeout_s)

    def _expires(self) -> dict[str, str]:
        return {"cleanup.policy": "delete", "retention.ms": str(self.settings.history_days * DAY_MS)}

    def _keep(self, admin: Any, timeout_s: float) -> None:
        """Have the history keep its rows for as long as the settings say now, where that is allowed."""
        entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                   for name, value in self._expires().items()]  # fmt: skip
        asked = ConfigResource(ResourceType.TOPIC, self.topic(HISTORY), incremental_configs=entries)
        try:
            admin.incremental_alter_configs([asked])[asked].result(timeout_s)
        except KafkaException as error:
            log.warning("the retention of the history stays", extra={"problem": error.args[0].str()})

    def forget(self, topics: Iterable[str], timeout_s: float = 60.0) -> list[str]:
        """Delete these topics with all their records, and make them again, empty; their full names. Blocks. Raises
        `Retry`, and `Stop` where the brokers do not allow it."""
        admin, names = AdminClient(self.client), [self.topic(what) for what in topics]
        # The client has to outlive its futures: one that is collected first fails them.
        for name, future in admin.delete_topics(names, operation_timeout=timeout_s).items():
            try:
                future.result(timeout_s)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise translated(error.args[0], f"delete topic {name}") from error
        self.create(timeout_s)
        return names

    def _without_leader(self, admin: Any) -> list[str]:
        topics = admin.list_topics(timeout=10).topics
        names = [self.topic(what) for what in SCHEMAS]
        return [n for n in names if n not in topics or any(p.leader < 0 for p in topics[n].partitions.values())]

    def identity(self) -> str:
        """The id of the ledger topic: another one after the journal was lost and made anew."""
        admin, topic = AdminClient(self.client), self.topic("ledgers")
        try:
            # The client has to outlive its futures: one that is collected first fails them.
            return str(admin.describe_topics(TopicCollection([topic]))[topic].result(30).topic_id)
        except KafkaException as error:
            raise translated(error.args[0], f"describe topic {topic}") from error

    def publish(self, observations: Iterable[Observation]) -> None:
        """Write observations and wait until they are acknowledged. Raises `Retry`, or `Stop` for good."""
        if isinstance(observations, Batch):
            self.send([("ledgers", keys(observations.ledgers.ledger), ledger_bodies(observations))])
        else:
            self.put((o.topic, o.key, o.value) for o in observations)

    def put(self, records: Iterable[tuple[str, bytes, Any]], within_s: float = FLUSH_S) -> None:
        """Write (topic, key, record or None) and wait until all are acknowledged, about so long at most."""
        parts: list[tuple[str, list[bytes], list[bytes | None]]] = []
        for what, some in groupby(records, key=itemgetter(0)):
            pairs = [(key, value) for _, key, value in some]
            bodies = iter(encode_all(what, [value for _, value in pairs if value is not None]))
            parts.append((what, [key for key, _ in pairs], [v if v is None else next(bodies) for _, v in pairs]))
        self.send(parts, within_s)

    def send(
        self, parts: Iterable[tuple[str, Sequence[bytes], Sequence[bytes | None]]], within_s: float = FLUSH_S
    ) -> None:
        """`put` of (topic, keys, bodies): what is encoded already. A body of None removes its key."""
        if not self._lock.acquire(timeout=within_s):
            raise Retry("the journal's turn", f"others have waited for it for {within_s:.0f} s", "try again")
        try:
            self._failed.clear()
            produce = self._producer.produce
            for what, all_keys, bodies in parts:
                topic = self.topic(what)
                for key, body in zip(all_keys, bodies, strict=True):
                    try:
                        produce(topic, body, key)
                    except BufferError:
                        self._produce_later(topic, key, body)
            left = self._producer.flush(within_s)
            if self._failed:
                raise translated(self._failed[0], "write to the journal")
            if left:
                self._producer.purge()
                raise Retry("acknowledged records", f"{left} unacknowledged after {within_s:.0f} s", "try again")
        finally:
            self._lock.release()

    def _produce_later(self, topic: str, key: bytes, body: bytes | None) -> None:
        """Once there is room."""
        while True:
            self._producer.poll(0.1)
            with suppress(BufferError):
                self._producer.produce(topic, body, key)
                return

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._failed.append(error)

    def read(
        self, what: str, head: int | None = None, bad: Bad | None = None, last: int | None = None
    ) -> Iterator[Record]:
        """Every record of a topic up to its present end, in order of each partition; with ``head`` only so many
        leading fields of each (a bare Avro body can be read from its front), with ``last`` only so many of the
        newest of each partition. Those that do not parse go to ``bad``;
        without it they raise `BadBytes`."""
        parse = _head(what, head) if head else None
        for message in self._messages(what, last):
            body = message.value()
            if parse and body is not None:
                yield Record(message.key() or b"", parse(body, _place(message)), _place(message), _offset(message))
            elif (record := _parsed(what, message, bad)) is not None:
                yield record

    def _messages(self, what: str, last: int | None) -> Iterator[Message]:
        consumer = Consumer({**self.client, "group.id": "trueup", "enable.auto.commit": False, "fetch.wait.max.ms": 50})
        try:
            topic = self.topic(what)
            places = ends(consumer, topic)
            begins = dict.fromkeys(places, OFFSET_BEGINNING)
            if last is not None:
                # Asked for its beginning, a partition of which all has expired would tell no position.
                begins = {p: max(_start(consumer, topic, p), end - last) for p, end in places.items()}
            consumer.assign([TopicPartition(topic, p, begin) for p, begin in begins.items()])
            left = {p for p, end in places.items() if end > max(0, begins[p])}
            while left:
                yield from _good(consumer.consume(10_000, 0.5), f"read topic {topic}")
                for place in consumer.position([TopicPartition(topic, p) for p in left]):
                    if place.offset >= places[place.partition]:
                        left.discard(place.partition)
        except KafkaException as error:
            raise translated(error.args[0], f"read topic {self.topic(what)}") from error
        finally:
            consumer.close()

    def follow(
        self, what: str, stop: threading.Event, seen: Callable[[Record], None], bad: Bad, begin: int = OFFSET_BEGINNING
    ) -> None:
        """Call ``seen`` with every record of a one-partition topic, old and new, or from OFFSET_END on the new ones,
        until ``stop``; ``bad`` for those that do not parse. Blocks."""
        consumer = Consumer({**self.client, "group.id": "trueup", "enable.auto.commit": False})
        try:
            consumer.assign([TopicPartition(self.topic(what), 0, begin)])
            while not stop.is_set():
                message = consumer.poll(0.2)
                if message is None or message.error() is not None:
                    continue
                record = _parsed(what, message, bad)
                if record is not None:
                    seen(record)
        finally:
            consumer.close()

    def channel(self, what: str) -> Channel:
        """Where others publish to a topic."""
        return Channel(self.topic(what), (("bootstrap.servers", self.bootstrap), *self.settings.options.items()))

    def ends(self, what: str) -> dict[int, int]:
        """Where each partition of a topic ends now. Raises `Retry`."""
        with self._asking:
            if self._asker is None:
                self._asker = Consumer({**self.client, "group.id": "trueup", "enable.auto.commit": False})
            return _ends(self._asker, self.topic(what), ASK_S)

    def reachable(self, timeout_s: float = 2.0) -> bool:
        """Whether a broker answers."""
        try:
            self._producer.list_topics(self.topic("config"), timeout=timeout_s)
        except KafkaException:
            return False
        return True


def translated(error: KafkaError, doing: str) -> TrueupError:
    """Our error for one of the client's."""
    kind = Stop if error.code() in _PERMANENT else Retry
    todo = "check the journal's rights and limits" if kind is Stop else "try again"
    return kind(f"to {doing}", error.str(), todo)


@retry(retry=retry_if_exception_type(Retry), stop=stop_after_delay(30), wait=wait_exponential(0.1, max=2), reraise=True)
def ends(consumer: Consumer, topic: str) -> dict[int, int]:
    """Where each partition ends. A leader that was just elected may not know it yet, so this is asked again."""
    return _ends(consumer, topic, 10)


def _ends(consumer: Consumer, topic: str, within_s: float) -> dict[int, int]:
    try:
        partitions = consumer.list_topics(topic, timeout=within_s).topics[topic].partitions
        return {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=within_s)[1] for p in partitions}
    except KafkaException as error:
        raise translated(error.args[0], f"find the end of topic {topic}") from error


def _start(consumer: Consumer, topic: str, partition: int) -> int:
    return consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)[0]


def _good(messages: list[Message], doing: str) -> Iterator[Message]:
    for message in messages:
        error = message.error()
        if error is None:
            yield message
        elif not error.retriable():
            raise translated(error, doing)


def _parsed(what: str, message: Message, bad: Bad | None) -> Record | None:
    key, body, where = message.key() or b"", message.value(), _place(message)
    try:
        return Record(key, None if body is None else decode(what, body, where), where, _offset(message))
    except TrueupError as error:
        if bad is None:
            raise
        bad(Record(key, None, where, _offset(message)), error)
        return None


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None, "a message that was read has a place"
    return offset


def _place(message: Message) -> str:
    return f"topic {message.topic()} partition {message.partition()} offset {message.offset()}"


def _head(what: str, fields: int) -> Callable[[bytes, str], Any]:
    whole = json.loads(schema_text(what))
    front = fastavro.parse_schema({**whole, "name": whole["name"] + "Head", "fields": whole["fields"][:fields]})
    return lambda body, where: read(body, front, where, f"the beginning of an Avro {SCHEMAS[what]}")
