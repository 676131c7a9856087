"""One entry: its headers and the metadata of its messages (Commands.java, serializeMetadataAndPayload).

The layout, big-endian: optionally 0x0e02, uint32 length and BrokerEntryMetadata; optionally 0x0e01 and the CRC-32C of
all bytes after it; uint32 length and MessageMetadata; the payload. Neither number can be the start of a length, which
would be more than 200 MB.
"""

import struct
from typing import Any, NamedTuple

from crc32c import crc32c
from google.protobuf.message import DecodeError

from trueup.connectors.pulsar.protocol import fields
from trueup.state.common.errors import BadBytes

_BROKER, _CHECKSUM = b"\x0e\x02", b"\x0e\x01"
_NUMBER, _USUAL = struct.Struct(">I"), struct.Struct(">2sII")
_CHECKED = 6
"""The offset behind a checksum of what the checksum is of."""
ADVICE = "read it with a Pulsar consumer: if that discards the entry too, the stored bytes are damaged"


class Entry(NamedTuple):
    """A parsed entry."""

    last_index: int
    """The broker's index of the last message, or -1 if there is none."""
    broker_ms: int
    """When the broker received the entry, in ms since 1970, or 0 if that is unknown."""
    metadata: Any
    """The metadata: a `fields.MessageMetadata`."""
    payload: memoryview
    """The payload as it is stored."""


def entry_of(data: memoryview, where: str) -> Entry:
    """Parse the bytes of an entry and verify its checksum, if it has one. Raises `BadBytes`."""
    last_index, broker_ms, at = -1, 0, 0
    if data[:2] == _BROKER:
        broker = fields.BrokerEntryMetadata()
        at = _parsed(broker, data, 2, where)
        broker_ms = broker.broker_timestamp
        last_index = broker.index if broker.HasField("index") else -1
    if data[at : at + 2] == _CHECKSUM:
        at = _checked(data, at + 2, where)
    metadata = fields.MessageMetadata()
    at = _parsed(metadata, data, at, where)
    return Entry(last_index, broker_ms, metadata, data[at:])


class EntryLayout(NamedTuple):
    """The offsets of the parts of an entry."""

    broker_end: int
    """The end of the BrokerEntryMetadata, or 0 if there is none."""
    start: int
    """The start of the MessageMetadata."""
    end: int
    """The end of the MessageMetadata."""


def layout_of(data: bytes, where: str) -> EntryLayout:
    """The parts of an entry, with its checksum verified, but its metadata not parsed. Raises `BadBytes`."""
    at = broker_end = 0
    if data[:2] == _BROKER:
        at = broker_end = _end(data, 2, where)
    if len(data) - at >= _USUAL.size:
        magic, checksum, length = _USUAL.unpack_from(data, at)
        start, end = at + _USUAL.size, at + _USUAL.size + length
        if magic == _CHECKSUM and end <= len(data) and crc32c(memoryview(data)[at + _CHECKED :]) == checksum:
            return EntryLayout(broker_end, start, end)
    if data[at : at + 2] == _CHECKSUM:
        at = _checked(memoryview(data), at + 2, where)
    return EntryLayout(broker_end, at + _NUMBER.size, _end(data, at, where))


def _number(data: memoryview | bytes, at: int, where: str) -> int:
    if len(data) - at < _NUMBER.size:
        raise BadBytes(where, at, "a number of 4 bytes", f"{len(data) - at} bytes", ADVICE)
    number: int = _NUMBER.unpack_from(data, at)[0]
    return number


def _parsed(message: Any, data: memoryview, at: int, where: str) -> int:
    """Fill a message whose length is at this offset, and return the offset after it."""
    start, end = at + _NUMBER.size, _end(data, at, where)
    try:
        message.ParseFromString(data[start:end])
    except DecodeError as error:
        raise BadBytes(where, start, message.DESCRIPTOR.name, "other bytes", ADVICE) from error
    if not message.IsInitialized():
        name = message.DESCRIPTOR.name
        raise BadBytes(where, start, f"all required fields of {name}", "other fields", ADVICE)
    return end


def _end(data: memoryview | bytes, at: int, where: str) -> int:
    """The end of metadata whose length is at this offset."""
    length, start = _number(data, at, where), at + _NUMBER.size
    if length > len(data) - start:
        raise BadBytes(where, at, f"the length of metadata, at most {len(data) - start} bytes", str(length), ADVICE)
    return start + length


def _checked(data: memoryview, at: int, where: str) -> int:
    """Verify the checksum at this offset, and return the offset after it."""
    expected, start = _number(data, at, where), at + _NUMBER.size
    checksum = crc32c(data[start:])
    if checksum != expected:
        raise BadBytes(where, at, f"the checksum of the entry, {checksum:#010x}", f"{expected:#010x}", ADVICE)
    return start
