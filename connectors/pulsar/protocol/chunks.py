"""Messages that were stored in chunks (ConsumerImpl, processMessageChunk), joined again.

Chunks of several messages can alternate; those of one message are in order. Like Pulsar's consumer, `Chunks` ignores a
chunk that it has already, starts again at another first chunk, and drops a message of which a chunk is missing.
"""

from dataclasses import dataclass, field

from trueup.connectors.pulsar.protocol.entry import ADVICE
from trueup.connectors.pulsar.protocol.message import MOST, Chunk, Message, opened
from trueup.state.common.counts import many
from trueup.state.common.errors import BadBytes


@dataclass(slots=True)
class _Parts:
    """The chunks of a message so far."""

    first: tuple[int, int]
    """The ledger and the entry of the first chunk."""
    size: int = 0
    """The size of all chunks in bytes."""
    values: list[bytes] = field(default_factory=list)


class Chunks:
    """Messages of one topic that are not complete yet: at most ``messages``, of at most ``size`` bytes together.

    Beyond that the oldest is dropped. ``dropped``: chunks that became part of no message; ``repeated``: chunks that
    were ignored because they were there already. Every chunk is in a returned message, waits, or is counted.
    """

    def __init__(self, where: str, messages: int = 100, size: int = MOST) -> None:
        self._where, self._messages, self._size = where, messages, size
        self._waiting: dict[str, _Parts] = {}
        self._held = 0
        self.dropped = self.repeated = 0

    @property
    def oldest(self) -> tuple[int, int] | None:
        """Ledger and entry of the first chunk that still waits: who stops here reads from there again."""
        return next(iter(self._waiting.values())).first if self._waiting else None

    def add(self, message: Message) -> Message | None:
        """The message with this last chunk, decompressed, with the last chunk's id and metadata; None for other chunks.

        Messages without chunks are returned as they are. So are encrypted chunks, because each is encrypted on its own.
        Raises `BadBytes` if the chunks do not have the announced size or cannot be decompressed.
        """
        chunk = message.chunk
        if chunk is None or message.encrypted:
            return message
        if chunk.id == 0:
            self._begin(chunk, message)
        parts = self._waiting.get(chunk.uuid)
        if parts is None or chunk.id > len(parts.values):
            self._drop(chunk.uuid)
            self.dropped += 1
        elif chunk.id < len(parts.values):
            self.repeated += 1
        else:
            return self._append(parts, chunk, message)
        return None

    def _begin(self, chunk: Chunk, message: Message) -> None:
        self._drop(chunk.uuid)
        # One that can never fit must not displace others first.
        if chunk.total_size <= self._size:
            self._waiting[chunk.uuid] = _Parts((message.ledger, message.entry))

    def _append(self, parts: _Parts, chunk: Chunk, message: Message) -> Message | None:
        value = message.value or b""
        parts.values.append(value)
        parts.size += len(value)
        self._held += len(value)
        if chunk.id == chunk.count - 1:
            self._forget(chunk.uuid)
            return self._joined(parts, chunk, message)
        while len(self._waiting) > self._messages or self._held > self._size:
            self._drop(next(iter(self._waiting)))
        return None

    def _joined(self, parts: _Parts, chunk: Chunk, message: Message) -> Message:
        where = f"{self._where}, entry {message.entry} of ledger {message.ledger}"
        if parts.size != chunk.total_size:
            raise BadBytes(
                where, 0, f"{chunk.total_size} bytes in {many(chunk.count, 'chunk')}", str(parts.size), ADVICE
            )
        value = opened(b"".join(parts.values), chunk.codec, chunk.size, where)
        return message._replace(value=value, chunk=None)

    def _drop(self, uuid: str) -> None:
        parts = self._forget(uuid)
        self.dropped += len(parts.values) if parts else 0

    def _forget(self, uuid: str) -> _Parts | None:
        parts = self._waiting.pop(uuid, None)
        self._held -= parts.size if parts else 0
        return parts
