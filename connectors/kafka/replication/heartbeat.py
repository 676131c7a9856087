"""Heartbeats of a link: written to the source, read back there, brought to the target, read there (RIP-45's way).

One process does all of it, so lags are differences of one clock. A heartbeat is a record whose key names the link and
its source cluster; links that share a topic, and two-way links with one name for it on both sides, read past each
other's. Only what was read back from the source goes on: what arrives proves that both clusters write and read.
"""

import json
import time
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from trueup.connectors.closing import Closing
from trueup.connectors.contract import Endpoint
from trueup.connectors.kafka.client.admin import MISSING, Admin, code_of
from trueup.connectors.kafka.client.metadata import Discovery
from trueup.connectors.kafka.client.options import librdkafka
from trueup.state.common.errors import TrueupError

RETENTION_MS = 3_600_000
TIMEOUT_MS = 5_000
_TAIL = -2_000 - 100
"""librdkafka's RD_KAFKA_OFFSET_TAIL(100): so many records before the end."""


class Beat(NamedTuple):
    """What heartbeats tell. Times are ms since the epoch by our clock, 0: never; lags ms, -1: not known yet.

    ``sent_ms``: when the newest that the source acknowledged was written; ``left_ms`` and ``arrived_ms``: when the
    newest that was read at the source, at the target, was written. ``source_lag_ms`` and ``lag_ms``: how long that took
    to be read there. ``source_error`` and ``target_error``: what that side said last, since it last did well.
    """

    sent_ms: int = 0
    left_ms: int = 0
    arrived_ms: int = 0
    source_lag_ms: int = -1
    lag_ms: int = -1
    source_error: str = ""
    target_error: str = ""


class Heartbeat(Closing):
    """The heartbeats of one link. Not thread-safe; to be called every few seconds.

    ``relay``: we bring them to the target; without it the link does, as records like others. ``target_topic``: what
    the topic is called there, the same unless given. Raises `BadSettings`; what brokers say is told in `Beat`.
    """

    def __init__(
        self, link: str, source: Endpoint, target: Endpoint, topic: str, target_topic: str = "", relay: bool = True
    ) -> None:
        self._key = json.dumps([link, source.name]).encode()
        self._relay = relay
        self._began_ms = _now_ms()
        self._source, self._target = _Side(source, topic), _Side(target, target_topic or topic)
        self._beat = Beat()

    def close(self) -> None:
        """Let go of all connections; what is under way is lost."""
        self._source.close()
        self._target.close()

    def beat(self, wait_s: float = 2.0) -> Beat:
        """Write one heartbeat and follow it, and those before it, until it arrived or ``wait_s`` seconds passed."""
        sent_ms, deadline = _now_ms(), time.monotonic() + wait_s
        self._source.prepare()
        self._target.prepare()
        self._source.write(self._key, sent_ms)
        while True:
            self._look()
            if self._beat.arrived_ms >= sent_ms or time.monotonic() >= deadline:
                return self._beat

    def _look(self) -> None:
        for sent_ms in self._source.read(self._key):
            if self._relay and sent_ms > self._beat.left_ms:
                self._target.write(self._key, sent_ms)
            self._beat = self._beat._replace(
                left_ms=max(sent_ms, self._beat.left_ms), source_lag_ms=self._lag(sent_ms, self._beat.source_lag_ms)
            )
        for sent_ms in self._target.read(self._key):
            self._beat = self._beat._replace(
                arrived_ms=max(sent_ms, self._beat.arrived_ms), lag_ms=self._lag(sent_ms, self._beat.lag_ms)
            )
        self._beat = self._beat._replace(
            sent_ms=max(self._source.written_ms, self._beat.sent_ms),
            source_error=self._source.error,
            target_error=self._target.error,
        )

    def _lag(self, sent_ms: int, before: int) -> int:
        """Of what was written before we began to look nobody knows when it arrived."""
        return _now_ms() - sent_ms if sent_ms >= self._began_ms else before


class _Side:
    """The heartbeat topic of one cluster. Errors are kept, not raised, and forgotten when it does well again."""

    def __init__(self, endpoint: Endpoint, topic: str) -> None:
        self._endpoint, self._topic = endpoint, topic
        self.error, self.written_ms, self._ready = "", 0, False
        soon = {"topic_metadata_refresh_interval_ms": 10_000, "topic_metadata_propagation_max_ms": TIMEOUT_MS}
        writing = {"message_timeout_ms": TIMEOUT_MS, "linger_ms": 0}
        reading = {"enable_auto_commit": False, "auto_offset_reset": "latest", "fetch_wait_max_ms": 100}
        self._producer = Producer(librdkafka(endpoint, **soon, **writing, error_cb=self._heard))
        self._consumer = Consumer(librdkafka(endpoint, **soon, **reading, group_id="trueup", error_cb=self._heard))

    def prepare(self) -> None:
        """Make the topic if it is missing, and begin to read near its end."""
        if self._ready:
            return
        try:
            with Admin(self._endpoint, TIMEOUT_MS / 1_000) as admin:
                self._make(Discovery(self._endpoint, admin))
        except TrueupError as error:
            self.error = str(error)
            return
        self._consumer.assign([TopicPartition(self._topic, 0, _TAIL)])
        self._ready = True

    def _make(self, cluster: Discovery) -> None:
        if cluster.topics([self._topic], configs=False):
            return
        config = {"cleanup.policy": "delete", "retention.ms": str(RETENTION_MS)}
        new = [NewTopic(self._topic, 1, -1, config=config)]
        answer = cluster.admin.do_each("create topic", cluster.admin.client.create_topics, new)[self._topic]
        if isinstance(answer, TrueupError) and code_of(answer) != KafkaError.TOPIC_ALREADY_EXISTS:
            raise answer

    def write(self, key: bytes, sent_ms: int) -> None:
        """Send one; whether it was acknowledged is told by `written_ms` later."""

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                self.written_ms, self.error = max(self.written_ms, sent_ms), ""
            else:
                self._heard(error)

        try:
            self._producer.produce(self._topic, str(sent_ms).encode(), key, partition=0, on_delivery=delivered)
        except (BufferError, KafkaException) as error:
            self.error = str(error)

    def read(self, key: bytes) -> list[int]:
        """When those that came were written. Waits a moment for the first."""
        self._producer.poll(0)
        if not self._ready:
            return []
        values = [message.value() for message in self._consumer.consume(100, 0.02) if self._ours(message, key)]
        return [int(value) for value in values if value is not None and value.isdigit()]

    def _ours(self, message: Message, key: bytes) -> bool:
        if (error := message.error()) is not None:
            self._heard(error)
            return False
        self.error = ""
        return message.key() == key

    def close(self) -> None:
        self._producer.purge()
        self._consumer.close()

    def _heard(self, error: KafkaError) -> None:
        """One connection of many that broke is nothing to tell; a topic that is gone is made anew."""
        if error.code() != KafkaError._TRANSPORT:
            self.error = f"{self._endpoint.name}: {error.name()}: {error.str()}"
        self._ready = self._ready and error.code() not in MISSING


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
