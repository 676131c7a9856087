"""Messages in chunks of which the first chunks are before the start of a read."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Protocol

from trueup.connectors.pulsar.protocol.chunks import Chunks
from trueup.connectors.pulsar.protocol.message import Message
from trueup.state.common.errors import Stop
from trueup.state.read_priority.positions import EntryPosition, LedgerRange
from trueup.state.read_priority.tiers import LedgerInfo
from trueup.streams.topic_reader.fallback import ServedEntry

LOOK_BACK = 10_000
"""Maximum number of entries before a read in which the first chunk of a message is looked for."""
_FIRST_LOOK = 16
Entries = Callable[[LedgerRange], Iterable[ServedEntry[list[Message]]]]


class Losses(Protocol):
    """What a read leaves out."""

    missing: Counter[int]
    """The number of entries that no tier had, by ledger."""
    trimmed: list[int]
    """The ledgers that left the topic during the read."""


class JoinedChunks:
    """The messages of a read that begins at ``start``. ``ledgers``: the ledgers of the topic; ``entries``: reads a part
    of a ledger, and adds what it leaves out to ``losses``."""

    def __init__(
        self, chunks: Chunks, start: EntryPosition, ledgers: Sequence[LedgerInfo], entries: Entries, losses: Losses
    ) -> None:
        self._chunks, self._start, self._ledgers = chunks, start, ledgers
        self._entries, self._losses = entries, losses
        self._sought = set[str]()

    @property
    def dropped(self) -> int:
        """The number of dropped chunks."""
        return self._chunks.dropped

    def add(self, message: Message) -> Message | None:
        """See `Chunks.add`; at the first chunk of a message in this read, those before the start are read. Raises
        `Retry`."""
        chunk = message.chunk
        if chunk is not None and chunk.uuid not in self._sought and not message.encrypted:
            self._sought.add(chunk.uuid)
            if chunk.id:
                for earlier in self._earlier(chunk.uuid):
                    self._chunks.add(earlier)
        return self._chunks.add(message)

    def _earlier(self, uuid: str) -> list[Message]:
        """The chunks of a message before the start, in order, from its last first chunk on. A loss or a transaction
        before the start is none of the read: it ends the search."""
        chunks, missing, trimmed = list[Message](), Counter(self._losses.missing), [*self._losses.trimmed]
        with suppress(Stop):
            for part in _backwards(self._ledgers, self._start):
                messages = (message for served in self._entries(part) for message in served.content)
                some = [message for message in messages if message.chunk and message.chunk.uuid == uuid]
                chunks = some + chunks
                if any(message.chunk is not None and message.chunk.id == 0 for message in some):
                    break
        self._losses.missing, self._losses.trimmed = missing, trimmed
        return chunks


def _backwards(ledgers: Sequence[LedgerInfo], start: EntryPosition) -> Iterator[LedgerRange]:
    """Parts before a position, the last one first, of increasing size, `LOOK_BACK` entries together."""
    size, left, end = _FIRST_LOOK, LOOK_BACK, start.entry
    for info in sorted(ledgers, key=lambda ledger: -ledger.ledger):
        if info.ledger > start.ledger:
            continue
        if info.ledger < start.ledger:
            end = info.entries
        while end > 0 and left > 0:
            first = max(0, end - min(size, left))
            yield LedgerRange(info, first, end - 1)
            left, size, end = left - (end - first), size * 2, first
