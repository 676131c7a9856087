"""Records of `connectors.replication.ports` as record batches (version 2; the layout of a record is in `reencode`)."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.connectors.kafka.protocol.compression import closed
from trueup.connectors.kafka.protocol.record_batch import Header, assemble
from trueup.connectors.replication.headers import MARK
from trueup.connectors.replication.packed import MARK_BYTES, Packed
from trueup.connectors.replication.ports import Columns
from trueup.state.replication.provenance import HEADER

Array = NDArray[Any]
BATCH_BYTES = 512 << 10
"""Below the lowest common max.message.bytes, so that a batch is refused only because of a record in it."""
_BYTES = np.arange(10, dtype=np.uint64)
_NULL = 1
_AROUND = 32
"""At least the bytes of a record besides its parts and the lengths of headers."""


@dataclass(frozen=True, slots=True)
class Sender:
    """The producer of a batch: its id and epoch, and the sequence number of the first record."""

    producer_id: int
    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Records:
    """Records with the parts that are sent: ``middles``: everything between the value and the mark, with the number of
    headers. ``ends``: marks. Null keys and values are None in ``keys`` and ``values``."""

    stamps: Array
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    counts: Array
    heads: Sequence[bytes]
    ends: Sequence[bytes]

    def batches(self, codec: int, most: int = BATCH_BYTES) -> Iterator["Batch"]:
        """Batches of at most about ``most`` bytes before compression, or of one record."""
        lengths = [_sizes(self.keys), _sizes(self.values), *(_sizes(each) for each in (self.heads, self.ends))]
        until, at = np.cumsum(sum(np.maximum(each, 0) for each in lengths) + _AROUND), 0
        while at < len(until):
            limit = (until[at - 1] if at else 0) + most
            last = max(at + 1, int(np.searchsorted(until, limit, side="right")))
            yield self._batch(slice(at, last), [each[at:last] for each in lengths], codec)
            at = last

    def _batch(self, rows: slice, lengths: Sequence[Array], codec: int) -> "Batch":
        stamps, count = self.stamps[rows], rows.stop - rows.start
        key, value, head, end = lengths
        fields = [stamps - stamps[0], np.arange(count), key, value, self.counts[rows]]
        texts = [_varints(each) for each in fields]
        size = 1 + sum(width for _, width in texts) + sum(np.maximum(each, 0) for each in (key, value)) + head + end
        starts = _pieces([_varints(size), _attributes(count), *texts[:3]])
        columns = (
            starts, [each or b"" for each in self.keys[rows]], _pieces(texts[3:4]),
            [each or b"" for each in self.values[rows]], _pieces(texts[4:]), self.heads[rows], self.ends[rows],
        )  # fmt: skip
        parts = [b""] * (len(columns) * count)
        for place, column in enumerate(columns):
            parts[place :: len(columns)] = column
        return Batch(count, int(stamps[0]), int(stamps.max()), codec, closed(codec, b"".join(parts)))


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch without its producer. Times in ms since 1970."""

    records: int
    first_ms: int
    last_ms: int
    codec: int
    body: bytes

    def sent_by(self, sender: Sender) -> memoryview:
        """The bytes of the batch."""
        header = Header(
            0, 0, -1, 2, 0, self.codec, self.records - 1, self.first_ms, self.last_ms, sender.producer_id, sender.epoch,
            sender.sequence, self.records,
        )  # fmt: skip
        return assemble(header, self.body)


def records_of(columns: Columns) -> Records:
    """The parts of records. A record without a time has that of now."""
    if isinstance(columns, Packed) and columns.prefix:
        return _of_packed(columns)
    columns = columns.columns()
    known = dict[str, bytes]()
    heads = [
        b"".join([(known.get(name) or _named(known, name)) + _part(content) for name, content in headers])
        for headers in columns.headers
    ]
    counts = _sizes(columns.headers)
    return Records(_times(columns.stamps), columns.keys, columns.values, counts, heads, [b""] * len(heads))


def _of_packed(records: Packed) -> Records:
    content, rows = records.content, records.rows
    data, heads = bytes(content.data), bytes(content.heads)
    places = zip(content.head_at[rows].tolist(), content.head_end[rows].tolist(), strict=True)
    path = _part(HEADER.encode()) + _part(records.passed) + _part(MARK.encode()) + zigzag(MARK_BYTES)
    ends = np.empty((len(records.offsets), len(path) + MARK_BYTES), np.uint8)
    ends[:, : len(path)], ends[:, len(path) :] = np.frombuffer(path, np.uint8), records.marks()
    return Records(
        _times(content.stamps[rows]), _slices(data, content.key_at[rows], content.key_end[rows]),
        _slices(data, content.value_at[rows], content.value_end[rows]), content.counts[rows] + 2,
        [heads[at:end] for at, end in places], _rows(ends),
    )  # fmt: skip


def _times(stamps: Sequence[int] | Array) -> Array:
    found = np.array(stamps, np.int64)
    return np.where(found > 0, found, time.time_ns() // 1_000_000) if (found <= 0).any() else found


def _slices(data: bytes, starts: Array, ends: Array) -> list[bytes | None]:
    places = zip(starts.tolist(), ends.tolist(), strict=True)
    if starts.min(initial=0) >= 0:
        return [data[at:end] for at, end in places]
    return [data[at:end] if at >= 0 else None for at, end in places]


def _named(known: dict[str, bytes], name: str) -> bytes:
    made = known[name] = _part(name.encode("utf-8", "surrogatepass"))
    return made


def _part(raw: bytes | None) -> bytes:
    return _NULL_LENGTH if raw is None else zigzag(len(raw)) + raw


def zigzag(value: int) -> bytes:
    """A varint of a number that is not negative."""
    left, out = value << 1, bytearray()
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    out.append(left)
    return bytes(out)


_NULL_LENGTH = bytes([_NULL])


def _sizes(parts: Sequence[Any]) -> Array:
    """The lengths of parts; -1: null."""
    try:
        return np.fromiter(map(len, parts), np.int64, len(parts))
    except TypeError:
        return np.array([-1 if part is None else len(part) for part in parts], np.int64)


Piece = tuple[Array, Array]
"""Bytes in the first columns of each row, and their number."""


def _varints(values: Array) -> Piece:
    """The varint of each number."""
    raw = (values.astype(np.int64) << 1 ^ values.astype(np.int64) >> 63).view(np.uint64)
    width = np.ones(len(raw), np.int64)
    left = raw >> np.uint64(7)
    while left.any():
        width += left > 0
        left >>= np.uint64(7)
    most = int(width.max(initial=1))
    made = (raw[:, None] >> (_BYTES[:most] * np.uint64(7))).astype(np.uint8) & 0x7F
    made |= (np.arange(most) + 1 < width[:, None]).view(np.uint8) << 7
    return made, width


def _attributes(count: int) -> Piece:
    return np.zeros((count, 1), np.uint8), np.ones(count, np.int64)


def _pieces(fields: Sequence[Piece]) -> list[bytes]:
    """The fields of each row, one after another."""
    made = np.hstack([piece for piece, _ in fields]) if len(fields) > 1 else fields[0][0]
    if all((width == piece.shape[1]).all() for piece, width in fields):
        return _rows(np.ascontiguousarray(made))
    chosen = np.hstack([np.arange(piece.shape[1]) < width[:, None] for piece, width in fields])
    raw, ends = made[chosen].tobytes(), np.cumsum(chosen.sum(axis=1)).tolist()
    return [raw[at:end] for at, end in zip([0, *ends], ends, strict=False)]


def _rows(made: Array) -> list[bytes]:
    """The bytes of each row."""
    found: list[bytes] = made.view(f"V{made.shape[1]}")[:, 0].tolist()
    return found
