"""The body of a batch, SEND_BATCH_MESSAGE (MessageDecoder.java, encodeMessages).

Of each message: int32 size, 0, 0, flag, length of the body; the body; int16 length and properties. A batch has one
queue, one system flag and one time of birth. Its messages are stored one after another.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

Part = bytes | memoryview
HEAD, _SHORT = struct.Struct(">iiiii"), struct.Struct(">h")
"""The fields before the body, and the length after it."""
_AROUND = HEAD.size + _SHORT.size


class MessageBatch(NamedTuple):
    """The content of one request to store messages."""

    messages: int
    """The number of messages in the body."""
    born: int
    """The time of birth of all messages, in ms since 1970."""
    sys: int
    """The system flag of all messages."""
    body: Part
    """The body of the request, in the layout of `encode`."""


def encode(bodies: Sequence[Part], properties: Sequence[bytes], flags: Sequence[int]) -> bytes:
    """Messages as one body. The properties of each have at most `properties.MOST_SENT` bytes."""
    parts: list[Part] = []
    add, head, short = parts.extend, HEAD.pack, _SHORT.pack
    for body, props, flag in zip(bodies, properties, flags, strict=True):
        size, more = len(body), len(props)
        add((head(_AROUND + size + more, 0, 0, flag, size), body, short(more), props))
    return b"".join(parts)


def size_of(body: int, properties: int) -> int:
    """Bytes of one message in a batch, for these lengths."""
    return _AROUND + body + properties
