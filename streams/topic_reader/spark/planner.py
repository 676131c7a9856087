"""Plans reads of topics on the driver: which topics, from where to where, in which ranges of entries."""

from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

from trueup.connectors.pulsar.topics import PulsarTopic
from trueup.state.common.errors import Refused
from trueup.state.read_priority import offsets
from trueup.state.read_priority.positions import EntryPosition
from trueup.state.read_priority.tiers import LedgerInfo
from trueup.streams.topic_reader.reader import since
from trueup.streams.topic_reader.spark.options import SourceOptions
from trueup.streams.topic_reader.topics import TopicCatalog

_USUAL_BYTES = 1 << 10
"""Assumed size of an entry in a topic without a closed ledger."""


class EntryRange(NamedTuple):
    """A range of entries of one ledger of a topic."""

    topic: PulsarTopic
    ledger: int
    first: int
    """The id of the first entry."""
    last: int
    """The id of the last entry, included."""


class RangePartition(InputPartition):
    """A Spark partition: one range."""

    def __init__(self, value: EntryRange) -> None:
        super().__init__(value)
        self.value: EntryRange


class Planner:
    """Plans reads of the topics that the options name. Raises `Refused` if a topic does not exist, `Retry`,
    `BadBytes`."""

    def __init__(self, topics: TopicCatalog, options: SourceOptions) -> None:
        self._topics, self._options = topics, options

    def topics(self) -> list[PulsarTopic]:
        """The topics and partitions that exist now, each once."""
        options = self._options
        if options.pattern:
            return self._topics.matching(options.namespace, options.pattern)
        return list(dict.fromkeys(topic for name in options.names for topic in self._topics.partitions(name)))

    def ledgers(self, topic: PulsarTopic) -> list[LedgerInfo]:
        """The ledgers of a topic, by id."""
        return self._topics.ledgers(topic)

    def begin(self, ledgers: Sequence[LedgerInfo]) -> EntryPosition:
        """The first position to read, as the option ``from`` says: in a ledger that the topic has, or after all."""
        limits = self._options.range
        remaining = since(list(ledgers), limits.from_ms)
        if limits.first is not None:
            if not offsets.trimmed(ledgers, limits.first):
                return limits.first
            remaining = [info for info in remaining if info.ledger > limits.first.ledger]
        return offsets.begin_of(remaining) if remaining else offsets.end_of(ledgers, -1)

    def now(self, topic: PulsarTopic) -> tuple[list[LedgerInfo], EntryPosition]:
        """The ledgers of a topic, and the position after the last entry to read now: the last readable one, or that of
        the option ``to``."""
        ledgers = self.ledgers(topic)
        try:
            return ledgers, self._end(ledgers)
        except Refused:
            # A ledger can be closed and trimmed meanwhile.
            again = self.ledgers(topic)
            if not self._options.read.skip_missing and again == ledgers:
                raise
            return again, offsets.end_of(again, -1) if again == ledgers else self._end(again)

    def _end(self, ledgers: Sequence[LedgerInfo]) -> EntryPosition:
        newest, last = max(ledgers, key=lambda info: info.ledger, default=None), self._options.range.last
        if newest is None or newest.closed_ms or (last is not None and last.ledger < newest.ledger):
            end = offsets.end_of(ledgers, -1)
        else:
            end = offsets.end_of(ledgers, self._topics.bookkeeper.last(newest.ledger))
        return end if last is None else min(end, EntryPosition(last.ledger, last.entry + 1))

    def ranges(
        self, topic: PulsarTopic, ledgers: Sequence[LedgerInfo], start: EntryPosition, end: EntryPosition
    ) -> list[RangePartition]:
        """The partitions of one topic between two positions."""
        sizes = [info.size / info.entries for info in ledgers if info.entries]
        usual = sum(sizes) / len(sizes) if sizes else _USUAL_BYTES
        partitions = []
        for part in offsets.between(ledgers, start, end):
            for piece in offsets.cut(part, self._entries_per_partition(part.info, usual)):
                assert piece.last is not None
                partitions.append(RangePartition(EntryRange(topic, part.info.ledger, piece.first, piece.last)))
        return partitions

    def _entries_per_partition(self, info: LedgerInfo, usual: float) -> int:
        size = info.size / info.entries if info.entries else usual
        return max(1, int(self._options.partition_bytes / max(size, 1)))

    def batch(self) -> list[RangePartition]:
        """The partitions of a read from ``from`` to ``to``."""
        partitions = []
        for topic in self.topics():
            ledgers, end = self.now(topic)
            partitions += self.ranges(topic, ledgers, self.begin(ledgers), end)
        return partitions
