"""Reader of Kafka for the generic pump with librdkafka, for options and batches that only librdkafka supports."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from trueup.connectors.contract import Lease, LogId
from trueup.connectors.kafka.client.cluster import KafkaClient
from trueup.connectors.kafka.client.topic_ids import id_of
from trueup.connectors.kafka.replication.records.clients import bounds, cluster_of, consumer, translated
from trueup.connectors.kafka.replication.records.source_guard import SourceGuard
from trueup.connectors.kafka.replication.records.topic_identity import Identity
from trueup.connectors.replication.ports import Columns, Read
from trueup.connectors.replication.tail import Bounds
from trueup.state.common.errors import Retry, TrueupError

ASK_S, GUARD_S = 6.0, 5.0


class SourceChecks:
    """Finds partitions of a source that must not be copied."""

    def __init__(self, lease: Lease, cluster: KafkaClient | None) -> None:
        self.identity = Identity(cluster, {a.source.topic: id_of(a.source_id) for a in lease.assignments})
        self._guard, self._guarded_s = SourceGuard(lease, cluster), 0.0
        self._blocked_reasons: dict[LogId, TrueupError] = {}

    def unsure(self, logs: Iterable[LogId], read: Iterable[LogId]) -> dict[LogId, TrueupError]:
        """Partitions of recreated topics; at intervals also partitions that links with copy: batches write to.
        ``read``: all that are read."""
        wanted = list(logs)
        found = self.identity.unsure(wanted)
        if time.monotonic() - self._guarded_s > GUARD_S:
            self._blocked_reasons = self._guard.blocked_reasons({*wanted, *read})
            self._guarded_s = time.monotonic()
        return {**{log: self._blocked_reasons[log] for log in wanted if log in self._blocked_reasons}, **found}

    def close(self) -> None:
        """Close the connections."""
        self.identity.close()


class KafkaReader:
    """Implements `connectors.replication.ports.Reader` for the source of a lease, with one object per record."""

    lag_s = 0.0

    def __init__(self, lease: Lease) -> None:
        self._lease, self._checks = lease, SourceChecks(lease, cluster_of(lease.source))
        self._read_from: set[LogId] = set()
        self._consumer: Consumer = consumer(lease.source, lease.limits)

    def cluster_id(self) -> str:
        """See `ClusterAdmin.cluster_id`."""
        return cluster_id_of(self._consumer, self._lease.source.name)

    def bounds(self, logs: Iterable[LogId]) -> dict[LogId, Bounds | TrueupError]:
        """Start and end of partitions."""
        return bounds(self._lease.source, logs)

    def unsure(self, logs: Iterable[LogId]) -> dict[LogId, TrueupError]:
        """See `SourceChecks`."""
        return self._checks.unsure(logs, self._read_from)

    def seek(self, places: Mapping[LogId, int]) -> None:
        """Read these partitions from these offsets."""
        self._read_from = set(places)
        self._consumer.assign([TopicPartition(log.topic, log.number, offset) for log, offset in places.items()])

    def poll(self, most: int, wait_s: float) -> dict[LogId, Read]:
        """The next records."""
        messages = list(self._consumer.consume(most, 0))
        if not messages and (one := self._consumer.poll(wait_s)) is not None:
            messages = [one]
        by_log: dict[LogId, list[Message]] = {}
        for message in messages:
            by_log.setdefault(LogId(message.topic() or "", message.partition() or 0), []).append(message)
        return {log: self._read(log, some) for log, some in by_log.items()}

    def _read(self, log: LogId, messages: Sequence[Message]) -> Read:
        good = [message for message in messages if message.error() is None]
        after = (good[-1].offset() or 0) + 1 if good else -1
        for message in messages:
            error = message.error()
            if error is None:
                continue
            if error.code() != KafkaError._PARTITION_EOF:
                return Read(Columns(), -1, error=translated(error, f"read {log} of {self._lease.source.name}"))
            after = max(after, message.offset() or 0)
        start, end = self._consumer.get_watermark_offsets(TopicPartition(log.topic, log.number), cached=True)
        idle = messages[-1].error() is not None
        return Read(_columns(good), after, idle, bounds=Bounds(start, end))

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()
        self._checks.close()


def _columns(messages: Sequence[Message]) -> Columns:
    return Columns(
        [message.offset() or 0 for message in messages],
        [message.key() for message in messages],
        [message.value() for message in messages],
        [message.timestamp()[1] for message in messages],
        [cast("Sequence[tuple[str, bytes | None]]", message.headers() or ()) for message in messages],
    )


def cluster_id_of(client: Consumer | Producer, name: str) -> str:
    """The id of the cluster of a client. Raises `Retry`, or `Stop`."""
    try:
        found = client.list_topics(timeout=ASK_S).cluster_id
    except KafkaException as error:
        raise translated(error.args[0], f"read the cluster id of {name}") from error
    if not found:
        raise Retry(f"{name} to have a cluster id", "none yet", "the request is retried")
    return str(found)
