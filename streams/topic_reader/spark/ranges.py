"""Reads one range of entries on an executor.

A message in chunks belongs to the range with its last chunk, whose id it has, as in Pulsar. Chunks before the range are
looked for in earlier entries, so that a message is given out once, wherever ranges and micro-batches end.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from trueup.connectors.pulsar.protocol.chunks import Chunks
from trueup.connectors.pulsar.protocol.lockstep import UnusualError
from trueup.connectors.pulsar.protocol.message import Message
from trueup.connectors.pulsar.protocol.rows import EntryBytes, MessageRows, TooMuchError, rows_of
from trueup.state.common.errors import BadBytes, Refused
from trueup.state.read_priority.positions import EntryPosition, LedgerRange
from trueup.state.read_priority.tiers import LedgerInfo, Tier
from trueup.streams.topic_reader.fallback import ServedEntry
from trueup.streams.topic_reader.look_back import JoinedChunks
from trueup.streams.topic_reader.reader import StoredEntry, was_trimmed
from trueup.streams.topic_reader.spark.planner import EntryRange
from trueup.streams.topic_reader.topics import TopicCatalog

TOGETHER, TOGETHER_BYTES = 8_192, 2 << 20
"""Maximum number and bytes of entries that are parsed together, besides the last one."""
_FIRST_BYTES, _GROWTH = 1 << 16, 4
"""The first ones are fewer, for an early first row."""
Found = tuple[MessageRows | list[Message], Tier]


@dataclass
class RangeReader:
    """The messages of one range. Raises as `TopicReader.read` does, and `Stop` for entries that were trimmed, unless
    these are skipped."""

    topics: TopicCatalog
    wanted: EntryRange
    skip: bool
    """Whether entries that were trimmed are skipped and noted in the report."""

    def messages(self) -> Iterator[Found]:
        """The messages, of some entries together or of one entry at a time, and the tier that served them."""
        part, ledgers = self.wanted, self._ledgers()
        info = next((info for info in ledgers if info.ledger == part.ledger), None)
        if info is None:
            self.topics.report.trimmed.append(part.ledger)
        else:
            chunks = self._joined(ledgers)
            for group in _groups(self.topics.stored(part.topic, LedgerRange(info, part.first, part.last))):
                yield from self._of(group, info, chunks)
            self.topics.report.chunks += chunks.dropped
        if self.topics.report.trimmed and not self.skip:
            expected = f"entries {part.first} to {part.last} of ledger {part.ledger} in {part.topic}"
            raise was_trimmed(expected)

    def _joined(self, ledgers: list[LedgerInfo]) -> JoinedChunks:
        topics, part = self.topics, self.wanted
        start = EntryPosition(part.ledger, part.first)
        entries = partial(topics.entries, part.topic)
        return JoinedChunks(Chunks(str(part.topic)), start, ledgers, entries, topics.report)

    def _of(self, group: list[ServedEntry[StoredEntry]], info: LedgerInfo, chunks: JoinedChunks) -> Iterator[Found]:
        """The messages of entries: together, or each on its own if that is refused."""
        try:
            yield rows_of(_held(group)), group[0].tier
            return
        except TooMuchError:
            half = len(group) // 2
            yield from self._of(group[:half], info, chunks)
            yield from self._of(group[half:], info, chunks)
            return
        except UnusualError:
            pass
        for served in self._apart(group, info):
            messages = served.content
            if messages and messages[0].chunk is not None:
                whole = chunks.add(messages[0])
                messages = [] if whole is None else [whole]
            yield messages, served.tier

    def _apart(self, group: list[ServedEntry[StoredEntry]], info: LedgerInfo) -> Iterator[ServedEntry[list[Message]]]:
        """The messages of each entry. From one on that cannot be parsed, entries are read again, from any tier."""
        for at, served in enumerate(group):
            try:
                messages = self.topics.parsed(info.ledger, served.entry, served.content.data)
            except BadBytes:
                self.topics.report.entries[served.tier] -= len(group) - at
                again = LedgerRange(info, served.entry, group[-1].entry)
                yield from self.topics.entries(self.wanted.topic, again)
                return
            yield ServedEntry(served.entry, messages, served.tier)

    def _ledgers(self) -> list[LedgerInfo]:
        try:
            return self.topics.ledgers(self.wanted.topic)
        except Refused:
            if not self.skip:
                raise
            return []


def _groups(entries: Iterable[ServedEntry[StoredEntry]]) -> Iterator[list[ServedEntry[StoredEntry]]]:
    """Consecutive entries of one tier."""
    group, size, most = list[ServedEntry[StoredEntry]](), 0, _FIRST_BYTES
    for served in entries:
        if group and (
            size >= most
            or len(group) == TOGETHER
            or served.tier is not group[-1].tier
            or served.entry != group[-1].entry + 1
        ):
            yield group
            group, size, most = [], 0, min(most * _GROWTH, TOGETHER_BYTES)
        group.append(served)
        size += len(served.content.data)
    if group:
        yield group


def _held(group: list[ServedEntry[StoredEntry]]) -> EntryBytes:
    content = [served.content for served in group]
    return EntryBytes(
        [served.entry for served in group], [entry.data for entry in content], [entry.layout for entry in content]
    )
