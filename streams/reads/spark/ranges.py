"""Reads one range of entries on an executor.

A message in chunks belongs to the range with its last chunk, whose id it has, as in Pulsar. Chunks before the range are
looked for in earlier entries, so that a message is given out once, wherever ranges and micro-batches end.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from trueup.connectors.pulsar.protocol.chunks import Chunks
from trueup.connectors.pulsar.protocol.message import Message
from trueup.connectors.pulsar.topics import Topic
from trueup.state.common.errors import Refused, Stop
from trueup.state.reads.positions import Part
from trueup.state.reads.tiers import LedgerInfo, Tier
from trueup.streams.reads.spark.planner import EntryRange
from trueup.streams.reads.topics import Topics

LOOK_BACK = 10_000
"""Maximum number of entries before a range in which the first chunk of a message is looked for."""
_FIRST_LOOK = 16


@dataclass
class RangeReader:
    """The messages of one range. Raises as `TopicReader.read` does, and `Stop` for entries that were trimmed, unless
    ``skip``, which notes them in the report."""

    topics: Topics
    wanted: EntryRange
    skip: bool
    _sought: set[str] = field(default_factory=set)

    def messages(self) -> Iterator[tuple[list[Message], Tier]]:
        """The messages of each entry, and the tier that served it."""
        wanted, ledgers = self.wanted, self._ledgers()
        info = next((info for info in ledgers if info.ledger == wanted.ledger), None)
        if info is None:
            self.topics.report.trimmed.append(wanted.ledger)
        else:
            chunks = Chunks(str(wanted.topic))
            for served in self.topics.entries(wanted.topic, Part(info, wanted.first, wanted.last)):
                found = served.content
                if found and found[0].chunk is not None:
                    found = self._whole(chunks, found[0], ledgers)
                yield found, served.tier
            self.topics.report.chunks += chunks.dropped
        if self.topics.report.trimmed and not self.skip:
            expected = f"entries {wanted.first} to {wanted.last} of ledger {wanted.ledger} in {wanted.topic}"
            raise Stop(expected, "a ledger that was trimmed", "read again, or skip what is trimmed (missing: skip)")

    def _ledgers(self) -> list[LedgerInfo]:
        try:
            return self.topics.ledgers(self.wanted.topic)
        except Refused:
            if not self.skip:
                raise
            return []

    def _whole(self, chunks: Chunks, message: Message, ledgers: list[LedgerInfo]) -> list[Message]:
        chunk = message.chunk
        assert chunk is not None
        if chunk.uuid not in self._sought and not message.encrypted:
            self._sought.add(chunk.uuid)
            if chunk.id:
                for earlier in self._earlier(chunk.uuid, ledgers):
                    chunks.add(earlier)
        whole = chunks.add(message)
        return [] if whole is None else [whole]

    def _earlier(self, uuid: str, ledgers: list[LedgerInfo]) -> list[Message]:
        """The chunks of a message before the range, in order, from its last first chunk on."""
        found, trimmed = list[Message](), len(self.topics.report.trimmed)
        for part in _backwards(ledgers, self.wanted):
            some = [one for one in self._chunks(self.wanted.topic, part) if one.chunk and one.chunk.uuid == uuid]
            found = some + found
            if any(one.chunk is not None and one.chunk.id == 0 for one in some):
                break
        del self.topics.report.trimmed[trimmed:]  # a loss before the range is none of the range
        return found

    def _chunks(self, topic: Topic, part: Part) -> Iterator[Message]:
        for served in self.topics.entries(topic, part):
            yield from served.content


def _backwards(ledgers: list[LedgerInfo], wanted: EntryRange) -> Iterator[Part]:
    """Parts before a range, the last one first, of increasing size, `LOOK_BACK` entries together."""
    size, left, end = _FIRST_LOOK, LOOK_BACK, wanted.first
    for info in sorted(ledgers, key=lambda one: -one.ledger):
        if info.ledger > wanted.ledger:
            continue
        if info.ledger < wanted.ledger:
            end = info.entries
        while end > 0 and left > 0:
            first = max(0, end - min(size, left))
            yield Part(info, first, end - 1)
            left, size, end = left - (end - first), size * 2, first
