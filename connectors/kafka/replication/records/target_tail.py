"""Tails of partitions of a Kafka cluster, for the searches of `connectors.replication.tail`."""

import time
from collections.abc import Iterable, Mapping
from typing import cast

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from trueup.connectors.contract import Endpoint, Limits, LogId
from trueup.connectors.kafka.client.cluster import KafkaClient
from trueup.connectors.kafka.replication.records.clients import bounds, consumer, translated
from trueup.connectors.replication.headers import Headers, mark_of
from trueup.connectors.replication.tail import Bounds, Met, TailSearch
from trueup.state.common.errors import Retry, TrueupError

TIMEOUT_S = 30.0


class KafkaTails:
    """Implements `connectors.replication.tail.Tails`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._consumer: Consumer | None = None

    def run(self, searches: Mapping[LogId, TailSearch]) -> dict[LogId, TrueupError]:
        """Run all searches to their ends. Raises `Retry` if the cluster does not deliver records, and `Stop` if it
        refuses any of them."""
        while spans := {target: span for target, search in searches.items() if (span := search.span())}:
            found = self._read(spans)
            for target, (low, _) in spans.items():
                searches[target].read(low, found[target])
        return {}

    def _read(self, spans: Mapping[LogId, tuple[int, int]]) -> dict[LogId, list[tuple[bytes, Met]]]:
        source = self._open()
        source.assign([TopicPartition(t.topic, t.number, low) for t, (low, _) in spans.items()])
        found: dict[LogId, list[tuple[bytes, Met]]] = {target: [] for target in spans}
        left, deadline = set(spans), time.monotonic() + TIMEOUT_S
        while left:
            if time.monotonic() > deadline:
                raise Retry(f"the tails of {_names(left)}", f"no records for {TIMEOUT_S:.0f} s", "check the target")
            messages: list[Message | None] = [*source.consume(2_000, 0)]
            for message in messages or [source.poll(0.2)]:
                if message is not None:
                    _sort(message, spans, found, left)
        source.unassign()
        return found

    def _open(self) -> Consumer:
        if self._consumer is None:
            limits = Limits(fetch_bytes=1 << 18)
            ours = {"isolation_level": "read_uncommitted", "queued_min_messages": 2_000}
            self._consumer = consumer(self._endpoint, limits, **ours)
        return self._consumer

    def close(self) -> None:
        """Close the connections."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


def _sort(
    message: Message,
    spans: Mapping[LogId, tuple[int, int]],
    found: Mapping[LogId, list[tuple[bytes, Met]]],
    left: set[LogId],
) -> None:
    """Add a message, or the end of a partition, to its result. Raises `TrueupError`."""
    target, error = LogId(message.topic() or "", message.partition() or 0), message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise translated(error, f"read the tail of {target}")
    offset = message.offset()
    if target not in left or offset is None:
        return
    if error is None and offset < spans[target][1] and (mark := mark_of(cast("Headers | None", message.headers()))):
        found[target].append((mark[0], Met(mark[1], offset)))
    if error is not None and offset < spans[target][1]:
        low, high = spans[target]
        raise Retry(f"the tail of {target}, {low} to {high}", f"that it ends at {offset}", "wait for its new leader")
    if error is not None or offset >= spans[target][1] - 1:
        left.discard(target)


def _names(partitions: Iterable[LogId]) -> str:
    return ", ".join(map(str, sorted(partitions)))


class TargetEnds:
    """Start and end of target partitions, after everything that their leaders have is replicated: before that, records
    are hidden and may belong to this copy. ``cluster`` None: its options do not permit this query."""

    def __init__(self, endpoint: Endpoint, cluster: KafkaClient | None) -> None:
        self._endpoint, self._cluster = endpoint, cluster

    def __call__(self, targets: Iterable[LogId]) -> dict[LogId, Bounds | TrueupError]:
        """Start and end, or the error."""
        wanted = set(targets)
        if self._cluster is None:
            return bounds(self._endpoint, wanted)
        self._cluster.refresh(target.topic for target in wanted)
        settled = self._cluster.settled(wanted)
        wrong = {target: end for target, end in settled.items() if isinstance(end, TrueupError)}
        return {**bounds(self._endpoint, wanted), **wrong}
