"""Record batches, version 2: header, boundaries, and changes by a copy (KIP-98; DefaultRecordBatch.java)."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from trueup.connectors.kafka.protocol.message_sets import upgraded
from trueup.state.common.errors import BadBytes

HEADER_BYTES = 61
CODEC, APPEND_TIME, TRANSACTIONAL, CONTROL, HORIZON = 0x07, 0x08, 0x10, 0x20, 0x40
"""Bits of the attributes: codec, timestamp type (log append time), and KIP-534's delete horizon."""
SEQUENCES = 1 << 31
"""Sequence numbers count from 0 to 2^31 - 1 and then restart at 0."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_SIZES = struct.Struct(">qiib")
_PRODUCER = struct.Struct(">qhi")
_LONG = struct.Struct(">q")
_CRC_ATTRIBUTES = struct.Struct(">Ih")
_CRC_AT, _ATTRIBUTES_AT, _BASE_TIME_AT, _PRODUCER_AT = 17, 21, 27, 43
_SIZE_FIELDS = 12
"""Bytes before those counted by the length field."""
_MAGIC, _CRC = 2, (1 << 32) - 1
_SHORTEST = {0: 14, 1: 22, _MAGIC: HEADER_BYTES - _SIZE_FIELDS}
"""The least value of the length field by version."""
_TODO = "read it with another client"


class BatchHeader(NamedTuple):
    """The first 61 bytes of a batch. Times are in ms."""

    offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_delta: int
    """The original offset of the last record, relative to the offset of the batch."""
    first_ms: int
    last_ms: int
    producer_id: int
    epoch: int
    sequence: int
    records: int

    @property
    def following(self) -> int:
        """The offset after the batch."""
        return self.offset + self.last_delta + 1

    @property
    def dense(self) -> bool:
        """Whether a broker would accept the batch unchanged: no gaps, and no traces of the log cleaner."""
        return self.last_delta + 1 == self.records and not self.attributes & HORIZON

    @property
    def last_sequence(self) -> int:
        """Sequence number of its last record, also if records were removed by compaction."""
        return (self.sequence + self.last_delta) % SEQUENCES


def walk(buffer: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Header and bytes of each whole batch; a truncated one at the end is omitted. Older formats are given as batches
    of version 2. Raises `BadBytes` for an unknown format, an invalid length, and bytes without a whole batch, which no
    broker sends since Kafka 0.10.1 (KIP-74)."""
    return (batch_of(magic, entry) for magic, entry in entries(buffer))


def entries(buffer: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Like `walk`, in the stored format: its version, and the bytes of each whole batch or message."""
    at, size = 0, len(buffer)
    while at + _SIZES.size <= size:
        offset, length, _, magic = _SIZES.unpack_from(buffer, at)
        where, end = f"the batch at offset {offset}", at + _SIZE_FIELDS + length
        if magic not in _SHORTEST:
            todo = "upgrade Trueup, or leave the topic out"
            raise BadBytes(where, _SIZES.size - 1, "a format of version 0, 1 or 2", f"version {magic}", todo)
        if length < _SHORTEST[magic]:
            raise BadBytes(where, 8, "its length", str(length), _TODO)
        if end > size:
            break
        yield magic, buffer[at:end]
        at = end
    if size and not at:
        raise BadBytes("a response", size, "a whole batch", "the end", "check the disks of the broker")


def batch_of(magic: int, entry: memoryview) -> tuple[BatchHeader, memoryview]:
    """Header and bytes of a batch, or of the batch that a message becomes, which has no producer id. Its
    checksum is wrong if the checksum of the message is wrong. Raises `BadBytes`."""
    if magic == _MAGIC:
        return header_of(entry), entry
    old = upgraded(entry)
    none = -1
    batch = assemble(
        BatchHeader(
            old.offset,
            0,
            none,
            _MAGIC,
            0,
            old.codec,
            old.last_delta,
            old.first_ms,
            old.last_ms,
            none,
            none,
            none,
            old.records,
        ),
        old.body,
    )
    header = header_of(batch)
    return (header if old.sound else header._replace(crc=~header.crc & _CRC)), batch


def header_of(batch: memoryview | bytes | bytearray) -> BatchHeader:
    """The header of one whole batch."""
    return BatchHeader._make(_HEADER.unpack_from(batch))


def sound(header: BatchHeader, batch: memoryview) -> bool:
    """Whether the checksum matches the bytes."""
    return crc32c(batch[_ATTRIBUTES_AT:]) == header.crc


def readdress(batch: memoryview, producer_id: int, sequence: int, attributes: int) -> None:
    """Convert it, in place, to a batch of another producer (epoch 0) with a new checksum. Records are not read."""
    _LONG.pack_into(batch, 0, 0)
    _PRODUCER.pack_into(batch, _PRODUCER_AT, producer_id, 0, sequence)
    _CRC_ATTRIBUTES.pack_into(batch, _CRC_AT, 0, attributes)
    _CRC_ATTRIBUTES.pack_into(batch, _CRC_AT, crc32c(batch[_ATTRIBUTES_AT:]), attributes)


def assemble(header: BatchHeader, body: bytes | bytearray) -> memoryview:
    """A batch with this header and these (compressed) records; length and checksum are computed."""
    batch = bytearray(_HEADER.pack(*header)) + body
    _SIZES.pack_into(batch, 0, header.offset, len(batch) - _SIZE_FIELDS, header.leader_epoch, header.magic)
    view = memoryview(batch)
    _CRC_ATTRIBUTES.pack_into(batch, _CRC_AT, crc32c(view[_ATTRIBUTES_AT:]), header.attributes)
    return view


def digest(batch: memoryview) -> int:
    """A digest of a batch's records and base time, independent of their producer and offset."""
    return crc32c(batch[HEADER_BYTES:], crc32c(batch[_BASE_TIME_AT : _BASE_TIME_AT + 8]))
