"""Stored messages, as brokers return them one after another (MessageDecoder.java, decode), as columns.

The layout of one, big-endian: int32 size, magic, CRC of the body, queue, flag; int64 offset in the queue and in the
commit log; int32 system flag; int64 time of birth; host of birth (4 or 16 bytes) and int32 port; int64 time of storing;
host and port of storing; int32 deliveries; int64 offset of the prepared transaction; int32 length and body; int8 (magic
2: int16) length and topic; int16 length and properties.
"""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from trueup.connectors.rocketmq.protocol import flags
from trueup.state.common.errors import BadBytes

_SHORT = struct.Struct(">h")
_IN_V6 = flags.BORN_IN_V6 | flags.STORED_IN_V6
_HOST_V4, _HOST_V6 = 8, 20
CRC_BITS = 0x7FFFFFFF


def _form(sys: int) -> struct.Struct:
    """From the size of a message to the length of its body, without the hosts."""
    born = _HOST_V6 if sys & flags.BORN_IN_V6 else _HOST_V4
    kept = _HOST_V6 if sys & flags.STORED_IN_V6 else _HOST_V4
    return struct.Struct(f">iiiiiqqiq{born}xq{kept}xiqi")


_FORMS = {sys: _form(sys) for sys in (0, flags.BORN_IN_V6, flags.STORED_IN_V6, _IN_V6)}
_LENGTHS = 3
"""Bytes of the lengths of a topic and of properties."""
SHORTEST = _FORMS[0].size + _LENGTHS
"""Bytes of a message without content."""
_HOST_END = struct.calcsize(">iqi")
"""Bytes between the host of storing and the body."""


@dataclass(frozen=True, slots=True)
class StoredMessages:
    """Messages in the order of their bytes, as columns."""

    data: memoryview
    """The bytes of all messages, one after another."""
    bodies: Sequence[memoryview] = ()
    """The bodies as stored. A body is compressed if its system flag has the bit `COMPRESSED`."""
    properties: Sequence[memoryview] = ()
    queues: Sequence[int] = ()
    flags: Sequence[int] = ()
    """The flags that applications set."""
    offsets: Sequence[int] = ()
    """The offsets in the queues."""
    physical: Sequence[int] = ()
    """The offsets in the commit log."""
    sys: Sequence[int] = ()
    """The system flags. Their bits are in the module `flags`."""
    born: Sequence[int] = ()
    """The times of birth in ms since 1970."""
    stored: Sequence[int] = ()
    """The times at which the broker stored the messages, in ms since 1970."""
    deliveries: Sequence[int] = ()
    body_at: Sequence[int] = ()
    topic_at: Sequence[int] = ()
    topic_end: Sequence[int] = ()

    def __len__(self) -> int:
        return len(self.offsets)

    def topics(self) -> list[str]:
        """The topics, which brokers keep valid UTF-8."""
        places = zip(self.topic_at, self.topic_end, strict=True)
        return [str(self.data[at:end], "utf-8", "replace") for at, end in places]

    def message_id(self, row: int) -> str:
        """The id of a message in its broker's commit log: host, port and offset, in hexadecimal."""
        end = self.body_at[row] - _HOST_END
        host = self.data[end - (_HOST_V6 if self.sys[row] & flags.STORED_IN_V6 else _HOST_V4) : end]
        return (bytes(host) + self.physical[row].to_bytes(8, "big", signed=True)).hex().upper()


def decode(data: memoryview, where: str) -> StoredMessages:
    """All messages in these bytes, with bodies that match their CRC. Raises `BadBytes` at the first other byte.

    One loop over plain numbers: brokers return 8 or 32 messages at a time by default, for which arrays cost more.
    """
    at, whole, rows = 0, len(data), []
    plain, short, crc32 = _FORMS[0], _SHORT.unpack_from, zlib.crc32
    while at < whole:
        if whole - at < SHORTEST:
            raise _bad(where, at, f"a message of at least {SHORTEST} bytes", whole - at)
        form, fixed = plain, plain.unpack_from(data, at)
        size, magic, crc, queue, flag, offset, physical, sys, born, stored, deliveries, _, length = fixed
        end = at + size
        if not SHORTEST <= size <= whole - at:
            raise _bad(where, at, f"the size of a message, {SHORTEST} to {whole - at}", size)
        if sys & _IN_V6:
            form = _FORMS[sys & _IN_V6]
            if form.size + _LENGTHS > size:
                raise _bad(where, at + 36, "hosts of 4 or 16 bytes within the message", sys)
            *_, stored, deliveries, _, length = form.unpack_from(data, at)
        body_at = at + form.size
        body_end = body_at + length
        if length < 0 or body_end + _LENGTHS > end:
            raise _bad(where, body_at - 4, "a body within the message", length)
        if magic == flags.MAGIC_1:
            topic_at, topic = body_end + 1, data[body_end]
        elif magic == flags.MAGIC_2:
            topic_at, topic = body_end + 2, short(data, body_end)[0]
        else:
            raise _bad(where, at + 4, "the magic of a message", magic)
        topic_end = topic_at + topic
        if topic < 0 or topic_end + _SHORT.size > end:
            raise _bad(where, body_end, "a topic within the message", topic)
        more, properties_at = short(data, topic_end)[0], topic_end + _SHORT.size
        if more < 0 or properties_at + more > end:
            raise _bad(where, topic_end, "properties within the message", more)
        body = data[body_at:body_end]
        if (crc32(body) ^ crc) & CRC_BITS:
            raise _bad(where, at + 8, "the CRC of the body", crc)
        properties = data[properties_at : properties_at + more]
        rows.append(
            (
                body,
                properties,
                queue,
                flag,
                offset,
                physical,
                sys,
                born,
                stored,
                deliveries,
                body_at,
                topic_at,
                topic_end,
            )
        )
        at = end
    return StoredMessages(data, *zip(*rows, strict=True))


def _bad(where: str, at: int, expected: str, found: int) -> BadBytes:
    return BadBytes(where, at, expected, str(found), "read it with another client")
