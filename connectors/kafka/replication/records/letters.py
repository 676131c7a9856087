"""Writes dead letters to a Kafka cluster."""

import time

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from trueup.connectors.contract import Lease
from trueup.connectors.kafka.replication.records.clients import BATCH_BYTES, dropped, producer, served
from trueup.connectors.replication.headers import Headers
from trueup.connectors.replication.transforms import Record

TIMEOUT_S = 20.0


class KafkaLetters:
    """Implements `connectors.replication.failures.Letters`."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._producer: Producer | None = None

    def write(self, topic: str, record: Record, headers: Headers) -> str:
        """Write and wait. Returns the error, empty if it was acknowledged."""
        answers: list[KafkaError | None] = []

        def on_result(error: KafkaError | None, _message: Message) -> None:
            answers.append(error)

        client = self._client()
        try:
            client.produce(
                topic,
                record.value,
                record.key,
                on_delivery=on_result,
                timestamp=max(0, record.timestamp),
                headers=headers,
            )
        except KafkaException as error:
            return str(error.args[0].str())
        deadline, failed = time.monotonic() + TIMEOUT_S, None
        while not answers and not failed and time.monotonic() < deadline:
            failed = served(client, 0.05)
        if not answers:
            self.close()
            return failed.str() if failed else f"not acknowledged within {TIMEOUT_S:.0f} s"
        return answers[0].str() if answers[0] else ""

    def _client(self) -> Producer:
        if self._producer is None:
            lease = self._lease
            self._producer = producer(
                lease.target, lease.limits, lambda _error: None, BATCH_BYTES, enable_gapless_guarantee=False
            )
        return self._producer

    def close(self) -> None:
        """Close the connections."""
        if self._producer is not None:
            dropped(self._producer, 0.0)
            self._producer = None
