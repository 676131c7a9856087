"""The heartbeats' topic of a Kafka cluster: one partition, records of one hour."""

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from trueup.connectors.closing import Closing
from trueup.connectors.contract import Endpoint
from trueup.connectors.kafka.client.admin import MISSING, Admin, code_of
from trueup.connectors.kafka.client.metadata import Discovery
from trueup.connectors.kafka.client.options import client_errors, librdkafka
from trueup.connectors.replaced import Replaced
from trueup.state.common.errors import TrueupError

RETENTION_MS = 3_600_000
TIMEOUT_MS = 5_000
FLUSH_S = 1.0
_TAIL = -2_000 - 100
"""librdkafka's RD_KAFKA_OFFSET_TAIL(100): 100 records before the end."""


class KafkaHeartbeats(Closing):
    """Implements `connectors.replication.ports.HeartbeatLog`. Raises `BadSettings`."""

    def __init__(self, endpoint: Endpoint, topic: str) -> None:
        self._endpoint, self._topic = endpoint, topic
        self.error, self.written_ms, self._ready = "", 0, False
        self._replaced = Replaced(endpoint.security)
        self._producer, self._consumer = self._connect()

    def _connect(self) -> tuple[Producer, Consumer]:
        soon = {"topic_metadata_refresh_interval_ms": 10_000, "topic_metadata_propagation_max_ms": TIMEOUT_MS}
        writing = {"message_timeout_ms": TIMEOUT_MS, "linger_ms": 0}
        reading = {"enable_auto_commit": False, "auto_offset_reset": "latest", "fetch_wait_max_ms": 100}
        with client_errors(self._endpoint.name):
            return (
                Producer(librdkafka(self._endpoint, **soon, **writing, error_cb=self._on_error)),
                Consumer(librdkafka(self._endpoint, **soon, **reading, group_id="trueup", error_cb=self._on_error)),
            )

    def prepare(self) -> None:
        """Create the topic if it is missing, and start to read near its end; again with new clients after a file of
        section security was replaced."""
        try:
            renewed = self._replaced.renewed(self._connect)
        except TrueupError as error:
            self.error = str(error)
            return
        if renewed is not None:
            self.close()
            self._producer, self._consumer = renewed
            self._ready = False
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
        """Send a heartbeat without waiting; `written_ms` shows its acknowledgement later."""

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                self.written_ms, self.error = max(self.written_ms, sent_ms), ""
            else:
                self._on_error(error)

        try:
            self._producer.produce(self._topic, str(sent_ms).encode(), key, partition=0, on_delivery=delivered)
        except (BufferError, KafkaException) as error:
            self.error = str(error)

    def read(self, key: bytes) -> list[int]:
        """The send times of received heartbeats. Waits briefly for the first."""
        self._producer.poll(0)
        if not self._ready:
            return []
        values = [message.value() for message in self._consumer.consume(100, 0.02) if self._ours(message, key)]
        return [int(value) for value in values if value is not None and value.isdigit()]

    def _ours(self, message: Message, key: bytes) -> bool:
        if (error := message.error()) is not None:
            self._on_error(error)
            return False
        self.error = ""
        return message.key() == key

    def close(self) -> None:
        """Close all connections; heartbeats in flight are lost."""
        self._producer.purge()
        self._producer.flush(FLUSH_S)  # results that are not delivered would keep the producer, and this object, alive
        self._consumer.close()

    def _on_error(self, error: KafkaError) -> None:
        """A single broken connection is not reported; a missing topic is created again."""
        if error.code() != KafkaError._TRANSPORT:
            self.error = f"{self._endpoint.name}: {error.name()}: {error.str()}"
        self._ready = self._ready and error.code() not in MISSING
