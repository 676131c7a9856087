"""Messages of the formats before version 2 (magic 0 and 1) as the records of a batch of version 2.

Brokers before 4.0 store what was written in an old format as it was, also after an upgrade. Layout of a message
(LegacyRecord.java): offset (8 bytes), size (4), CRC-32 of the rest (4), magic, attributes, only in magic 1 a timestamp
(8), then key and value, each after its length (4 bytes, -1: null). A compressed message contains others in its value
(AbstractLegacyRecordBatch.DeepRecordsIterator). Its offset is that of the last of them. Their own offsets are absolute
in magic 0, and relative in magic 1. If the log set its timestamp, it is that of all of them.
"""

import struct
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

from trueup.connectors.kafka.protocol.compression import LZ4, NONE, closed, opened
from trueup.connectors.kafka.protocol.varints import zigzag
from trueup.state.common.errors import BadBytes

NO_TIME = -1
"""The timestamp of messages of magic 0, also in later formats (RecordBatch.NO_TIMESTAMP)."""
_FIXED = struct.Struct(">qiIbb")
_TIME, _INT = struct.Struct(">q"), struct.Struct(">i")
_CODEC, _APPEND_TIME = 0x07, 0x08
_CRC_FROM, _SIZE_FIELDS = 16, 12
_TODO = "read it with another client"


class LegacyMessage(NamedTuple):
    """One message."""

    offset: int
    magic: int
    attributes: int
    stamp: int
    """The timestamp in ms since 1970, or `NO_TIME`."""
    key: memoryview | None
    value: memoryview | None


class Upgraded(NamedTuple):
    """The values of the header and the (compressed) records of a batch."""

    offset: int
    last_delta: int
    """The offset of the last record, relative to the offset of the batch."""
    codec: int
    first_ms: int
    last_ms: int
    records: int
    body: bytes
    sound: bool
    """Whether the checksum of the message matched. If it did not, there are no records."""


def upgraded(entry: memoryview) -> Upgraded:
    """A whole message, with those in it, as a batch with the same offsets, times, keys, values and codec. Raises
    `BadBytes`."""
    offset, _, crc, _, _ = _FIXED.unpack_from(entry)
    if crc32(entry[_CRC_FROM:]) != crc:
        return Upgraded(offset, 0, NONE, NO_TIME, NO_TIME, 0, b"", sound=False)
    where = f"the message at offset {offset}"
    outer = _message(entry, 0, where)[0]
    codec = outer.attributes & _CODEC
    messages = [outer] if codec == NONE else _inner(outer, codec, where)
    first, stamps = messages[0].offset, [message.stamp for message in messages]
    body = closed(codec, b"".join([_record(message, first, stamps[0]) for message in messages]))
    return Upgraded(first, offset - first, codec, stamps[0], max(stamps), len(messages), body, sound=True)


def _inner(outer: LegacyMessage, codec: int, where: str) -> list[LegacyMessage]:
    """The messages in a compressed one."""
    if codec > LZ4 or outer.value is None:
        raise BadBytes(where, _CRC_FROM, "messages in gzip, snappy or lz4", f"codec {codec}, {outer.value}", _TODO)
    content, at, messages = opened(codec, outer.value, where), 0, list[LegacyMessage]()
    while at < len(content):
        message, at = _message(content, at, where)
        if message.attributes & _CODEC:
            raise BadBytes(where, at, "messages without a codec", "a compressed one in a compressed one", _TODO)
        messages.append(message)
    if not messages:
        raise BadBytes(where, 0, "messages", "none", _TODO)
    # Some versions of librdkafka wrote relative offsets in a message of offset 0.
    base = outer.offset - messages[-1].offset if outer.magic and outer.offset else 0
    offsets = [base + inner.offset for inner in messages]
    if offsets[0] < 0 or offsets[-1] > outer.offset or any(b <= a for a, b in pairwise(offsets)):
        expected = f"offsets in order up to {outer.offset}"
        raise BadBytes(where, 0, expected, f"{offsets[0]} to {offsets[-1]}", _TODO)
    appended = outer.attributes & _APPEND_TIME
    return [
        inner._replace(offset=offset, stamp=outer.stamp if appended and inner.magic else inner.stamp)
        for offset, inner in zip(offsets, messages, strict=True)
    ]


def _message(buffer: memoryview, at: int, where: str) -> tuple[LegacyMessage, int]:
    """The message at a place, and the place behind it."""
    try:
        offset, size, _, magic, attributes = _FIXED.unpack_from(buffer, at)
        end, at, stamp = at + _SIZE_FIELDS + size, at + _FIXED.size, NO_TIME
        if magic not in (0, 1):
            raise BadBytes(where, at, "a message of magic 0 or 1", f"magic {magic}", _TODO)
        if magic:
            (stamp,), at = _TIME.unpack_from(buffer, at), at + _TIME.size
        key, at = _part(buffer, at, end)
        value, at = _part(buffer, at, end)
        if at != end:
            raise IndexError("another size")
    except (struct.error, IndexError) as error:
        raise BadBytes(where, at, "a message", str(error), _TODO) from error
    return LegacyMessage(offset, magic, attributes, stamp, key, value), end


def _part(buffer: memoryview, at: int, end: int) -> tuple[memoryview | None, int]:
    (size,), at = _INT.unpack_from(buffer, at), at + _INT.size
    behind = at + max(size, 0)
    if size < -1 or behind > min(end, len(buffer)):
        raise IndexError(f"a part of {size} bytes")
    return (buffer[at:behind] if size >= 0 else None), behind


def _record(message: LegacyMessage, first: int, first_ms: int) -> bytes:
    """A record of version 2 (the layout is in `reencode`), without headers."""
    record = b"".join(
        (
            b"\0",
            zigzag(message.stamp - first_ms),
            zigzag(message.offset - first),
            _sized(message.key),
            _sized(message.value),
            b"\0",
        )
    )
    return zigzag(len(record)) + record


def _sized(part: memoryview | None) -> bytes:
    return zigzag(-1) if part is None else zigzag(len(part)) + part
