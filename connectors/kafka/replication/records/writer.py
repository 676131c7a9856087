"""Writer of Kafka for the generic pump with librdkafka, for options that only librdkafka supports."""

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import cast

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from trueup.connectors.contract import Lease, LogId
from trueup.connectors.kafka.replication.records.clients import (
    REFUSED,
    cluster_of,
    dropped,
    producer,
    served,
    translated,
)
from trueup.connectors.kafka.replication.records.known_leaders import KnownLeaders
from trueup.connectors.kafka.replication.records.reader import ASK_S, cluster_id_of
from trueup.connectors.kafka.replication.records.target import KafkaTarget
from trueup.connectors.replication.ports import Columns, Waiting, Written
from trueup.state.common.errors import Retry, TrueupError

ANSWER_S, IDENTIFY_S = 5.0, 0.1


class KafkaWriter(KafkaTarget):
    """Implements `connectors.replication.ports.Writer` for the target of a lease: a gapless idempotent producer,
    replaced after every failure."""

    def __init__(self, lease: Lease) -> None:
        super().__init__(lease, cluster_of(lease.target))
        self._lease = lease
        self._producer: Producer | None = None
        self._known = KnownLeaders()

    def cluster_id(self) -> str:
        """See `ClusterAdmin.cluster_id`."""
        return cluster_id_of(self._client(), self._lease.target.name)

    def logs_of(self, topic: str) -> list[LogId]:
        """Partitions of a topic."""
        try:
            metadata = self._client().list_topics(topic, ASK_S).topics.get(topic)
        except KafkaException as error:
            raise translated(error.args[0], f"find the partitions of {topic}") from error
        return [LogId(topic, number) for number in sorted(metadata.partitions)] if metadata is not None else []

    def write(self, batches: Mapping[LogId, Columns]) -> dict[LogId, Written]:
        """Produce to several partitions; the first record of a producer is sent to each alone, see `known_leaders`."""
        now, client = time.monotonic(), self._client()
        new = {log: columns.cut(0, 1) for log, columns in batches.items() if not self._known.knows(log, now)}
        if new and (doubts := self._connected(batches)):
            return {log: Written((), error=doubts.get(log, _unsent())) for log in batches}
        first = self._send(new) if new else {}
        rest = {log: columns.cut(log in new) for log, columns in batches.items()} if self._producer is client else {}
        written = self._send(rest) if rest else {}
        if self._producer is client:
            self._known.renew(batches, now)
        return {log: _joined(len(batches[log].offsets), first.get(log), written.get(log)) for log in batches}

    def prepare(self, batches: Mapping[LogId, Columns]) -> Waiting:
        """The same, in one step: librdkafka has one queue of everything that is in flight."""
        return Waiting(partial(self.write, batches))

    def _connected(self, logs: Iterable[LogId]) -> dict[LogId, TrueupError]:
        """Wait until a new producer is connected, which may take long enough for a topic to be recreated. Returns the
        logs that it must not write to."""
        cluster_id_of(self._client(), self._lease.target.name)
        return self._identity.unsure(logs)

    def _send(self, batches: Mapping[LogId, Columns]) -> dict[LogId, Written]:
        """Produce to several partitions and wait for all responses. If one is missing the producer is replaced."""
        answers = {log: Answers(len(columns.offsets)) for log, columns in batches.items()}
        client, failed = self._client(), None
        try:
            for log, columns in batches.items():
                _produce(client, log, columns.columns(), answers[log])
        except (KafkaException, BufferError) as error:
            failed = error.args[0] if isinstance(error, KafkaException) else KafkaError(KafkaError._QUEUE_FULL)
        failed = failed or self._answered(client, answers)
        if failed is not None or any(one.failed for one in answers.values()):
            dropped(client)
            self._producer = None
            self._known.clear()
            self._client()  # it connects while the target is read
        return {log: one.written(failed) for log, one in answers.items()}

    def _answered(self, client: Producer, answers: Mapping[LogId, "Answers"]) -> KafkaError | None:
        """Wait for all responses. Returns the reason if some are missing."""
        begun = asked = time.monotonic()
        while any(one.left for one in answers.values()):
            if any(one.failed for one in answers.values()):
                return KafkaError(KafkaError._STATE, "records before these were not written")
            if error := served(client, 0.02):
                return error
            now = time.monotonic()
            if now - begun > ANSWER_S:
                return KafkaError(KafkaError._TIMED_OUT, "the target did not respond in time")
            if now - asked > IDENTIFY_S:
                asked = now
                for error_of in self._identity.unsure(answers).values():
                    return KafkaError(KafkaError._STATE, str(error_of))
        return None

    def _client(self) -> Producer:
        if self._producer is None:
            self._producer = producer(self._lease.target, self._lease.limits)
        return self._producer

    def close(self) -> None:
        """Close the connections."""
        if self._producer is not None:
            dropped(self._producer)
            self._producer = None
        super().close()


class Answers:
    """The broker's results for records sent to one partition, in order."""

    def __init__(self, count: int) -> None:
        self.left, self.offsets, self.failed = count, list[int](), list[KafkaError]()

    def take(self, error: KafkaError | None, message: Message) -> None:
        """Record one result."""
        self.left -= 1
        if error is not None:
            self.failed.append(error)
        elif not self.failed:
            self.offsets.append(message.offset() or 0)

    def written(self, failed: KafkaError | None) -> Written:
        """The outcome of the records. ``failed``: why some have no result."""
        found = tuple(self.offsets)
        if self.failed and self.failed[0].code() in REFUSED:
            return Written(found, refused=self.failed[0].str())
        if error := self.failed[0] if self.failed else failed if self.left else None:
            return Written(
                found, error=Retry("acknowledged records", error.str(), "their presence at the target is checked")
            )
        return Written(found)


def _unsent() -> Retry:
    """The error of records that were not sent, because records of another partition failed."""
    return Retry("acknowledged records", "a failure in another partition", "their presence at the target is checked")


def _joined(count: int, *parts: Written | None) -> Written:
    """The outcome of ``count`` records that were sent in parts; an unsent part is missing."""
    sent = [part for part in parts if part is not None]
    offsets = tuple(offset for part in sent for offset in part.offsets)
    refused = next((part.refused for part in sent if part.refused), "")
    error = next((part.error for part in sent if part.error is not None), None)
    if not refused and error is None and len(offsets) < count:
        error = _unsent()
    return Written(offsets, refused, error)


def _produce(client: Producer, log: LogId, columns: Columns, answers: Answers) -> None:
    produce, topic, number, take = cast("Callable[..., None]", client.produce), log.topic, log.number, answers.take
    for value, key, stamp, headers in zip(columns.values, columns.keys, columns.stamps, columns.headers, strict=True):
        produce(topic, value, key, number, on_delivery=take, timestamp=max(0, stamp), headers=list(headers))
