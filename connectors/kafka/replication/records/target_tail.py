"""Where a copy stopped, as the target itself tells: the newest marks in the tails of its partitions.

The search goes from the end backwards in growing spans until every source partition asked for was met, or down to the
**floor**: the end that the target had when the position was acknowledged, before which nothing newer can stand.
Records that are found tell which offsets of the source they are, so what a killed predecessor wrote and never reported
is known exactly.
"""

import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple, cast

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from trueup.connectors.contract import Endpoint, Limits, LogId
from trueup.connectors.kafka.replication.records.clients import Bounds, consumer, translated
from trueup.connectors.kafka.replication.records.headers import Headers, mark_of
from trueup.state.common.errors import Retry

FIRST, GROWTH = 64, 16
WHOLE = 200_000
"""A tail of at most so many offsets is read whole."""
MOST = 1_000_000
"""Without a floor, own records further from the end than this are not looked for."""
TIMEOUT_S = 30.0


class Met(NamedTuple):
    """A record of ours in the target: its source offset and its place."""

    source: int
    target: int


class Search:
    """The tail of one target partition, read backwards. ``floors``: for each prefix wanted, -1 if not known."""

    def __init__(self, bounds: Bounds, floors: Mapping[bytes, int]) -> None:
        start, self.low = bounds
        self.met: dict[bytes, list[Met]] = {prefix: [] for prefix in floors}
        lowest = min(floors.values())
        self._floor = max(start, lowest if lowest >= 0 else self.low - MOST)
        length = self.low - self._floor
        self._size = length if lowest >= 0 and length <= WHOLE else FIRST

    def span(self) -> tuple[int, int] | None:
        """The next offsets [from, to) to read; None: the search is over."""
        if self.low <= self._floor or all(self.met.values()):
            return None
        return max(self._floor, self.low - self._size), self.low

    def read(self, low: int, records: Iterable[tuple[bytes, Met]]) -> None:
        """Take the marks of the span that begins at ``low``, in order."""
        new: dict[bytes, list[Met]] = {prefix: [] for prefix in self.met}
        for prefix, met in records:
            if prefix in new:
                new[prefix].append(met)
        for prefix, found in new.items():
            self.met[prefix][:0] = found
        self.low, self._size = low, self._size * GROWTH


class Tails:
    """Reads tails of one cluster."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._consumer: Consumer | None = None

    def run(self, searches: Mapping[LogId, Search]) -> None:
        """Bring all searches to their ends. Raises `Retry` when the cluster does not deliver."""
        while spans := {target: span for target, search in searches.items() if (span := search.span())}:
            found = self._read(spans)
            for target, (low, _) in spans.items():
                searches[target].read(low, found[target])

    def _read(self, spans: Mapping[LogId, tuple[int, int]]) -> dict[LogId, list[tuple[bytes, Met]]]:
        source = self._open()
        source.assign([TopicPartition(t.topic, t.number, low) for t, (low, _) in spans.items()])
        found: dict[LogId, list[tuple[bytes, Met]]] = {target: [] for target in spans}
        left, deadline = set(spans), time.monotonic() + TIMEOUT_S
        while left:
            if time.monotonic() > deadline:
                raise Retry(f"the tails of {_names(left)}", f"nothing for {TIMEOUT_S:.0f} s", "look at the target")
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
            self._consumer = consumer(self._endpoint, limits, _unheard, **ours)
        return self._consumer

    def close(self) -> None:
        """Let go of the connections."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


def _sort(
    message: Message,
    spans: Mapping[LogId, tuple[int, int]],
    found: Mapping[LogId, list[tuple[bytes, Met]]],
    left: set[LogId],
) -> None:
    """Put a message, or the news that a partition's end was met, where it belongs. Raises our errors."""
    target, error = LogId(message.topic() or "", message.partition() or 0), message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise translated(error, f"read the tail of {target}")
    offset = message.offset()
    if target not in left or offset is None:
        return
    if error is None and offset < spans[target][1] and (mark := mark_of(cast("Headers | None", message.headers()))):
        found[target].append((mark[0], Met(mark[1], offset)))
    if error is not None or offset >= spans[target][1] - 1:
        left.discard(target)


def _unheard(_error: KafkaError) -> None:
    """A broker that cannot be reached shows as a tail that does not come."""


def _names(partitions: Iterable[LogId]) -> str:
    return ", ".join(map(str, sorted(partitions)))
