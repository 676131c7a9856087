"""Records of `connectors.replication.ports` as record batches (version 2; the layout of a record is in `reencode`).

All records of a batch passed the same clusters, because the producer id of the batch says which (`provenance`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.connectors.byte_rows import Bytes, Column, column_of, cuts, indices, joined, ranges, rows_of, split
from trueup.connectors.kafka.protocol.compression import closed
from trueup.connectors.kafka.protocol.record_batch import BatchHeader, assemble
from trueup.connectors.kafka.protocol.varints import zigzag
from trueup.connectors.replication.headers import MARK
from trueup.connectors.replication.packed import MARK_BYTES, SHORT, Content, Packed
from trueup.connectors.replication.ports import Columns
from trueup.state.replication.provenance import HEADER

Array = NDArray[Any]
_LIMITS = [np.uint64(1 << 7 * width) for width in range(1, 10)]
"""The numbers from which on a varint has one byte more."""
LEAST = 16
"""Fewer records are encoded one by one."""
BATCH_BYTES = 1_000_000
"""Below the usual max.message.bytes of 1,048,588, before compression."""
_AROUND = 24
"""At least the bytes of a record before its parts."""
_OWN = 2
"""The headers of a copy."""
_Sized = tuple[Column, Array]
"""A part of each record, and its length; -1: null, which has no bytes."""


@dataclass(frozen=True, slots=True)
class BatchProducer:
    """The producer of a batch."""

    producer_id: int
    epoch: int
    sequence: int
    """The sequence number of the first record."""


@dataclass(frozen=True, slots=True)
class EncodedRecords:
    """Records as arrays, before they are divided into batches."""

    stamps: Array
    sizes: Array
    """The number of bytes of all parts of each record."""
    parts: Sequence[Column]
    """The parts of the records that follow the delta of the offset, in order."""
    path: int = 0
    """The clusters that the records passed, as bits."""

    def __len__(self) -> int:
        return len(self.stamps)

    def cut(self, rows: slice) -> "EncodedRecords":
        """A range of the records."""
        return EncodedRecords(self.stamps[rows], self.sizes[rows], [part[rows] for part in self.parts], self.path)

    def batches(self, codec: int, most: int = BATCH_BYTES) -> Iterator["EncodedBatch"]:
        """Batches of at most about ``most`` bytes before compression, or of one record."""
        for rows in cuts(self.sizes + _AROUND, most):
            yield self.cut(rows)._batch(codec)

    def _batch(self, codec: int) -> "EncodedBatch":
        numbers = np.arange(len(self.stamps))
        fields = [_varints(column) for column in (np.zeros_like(numbers), self.stamps - self.stamps[0], numbers)]
        sizes = np.sum([self.sizes, *(field.width for field in fields)], axis=0)
        raw = joined((_pieces([_varints(sizes), *fields]), *self.parts))
        first_ms, last_ms = int(self.stamps[0]), int(self.stamps.max())
        return EncodedBatch(len(numbers), first_ms, last_ms, codec, len(raw), closed(codec, raw), self.path)


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """A batch without its producer. Times are in ms since 1970."""

    records: int
    first_ms: int
    last_ms: int
    codec: int
    size: int
    """The number of bytes of the records before compression."""
    body: bytes
    path: int = 0
    """The clusters that the records passed, as bits."""

    def sent_by(self, sender: BatchProducer) -> memoryview:
        """The bytes of the batch."""
        header = BatchHeader(
            0,
            0,
            -1,
            2,
            0,
            self.codec,
            self.records - 1,
            self.first_ms,
            self.last_ms,
            sender.producer_id,
            sender.epoch,
            sender.sequence,
            self.records,
        )
        return assemble(header, self.body)


@dataclass(frozen=True, slots=True)
class RecordRows:
    """Like `EncodedRecords`, for a few records, which are encoded one by one: calls of numpy and Arrow cost more
    than they save."""

    rows: Sequence[tuple[int, bytes]]
    """The timestamp of each record, and its key, value and headers as in the layout of a record."""
    path: int = 0
    """The clusters that the records passed, as bits."""

    def __len__(self) -> int:
        return len(self.rows)

    def cut(self, rows: slice) -> "RecordRows":
        """A range of the records."""
        return RecordRows(self.rows[rows], self.path)

    def batches(self, codec: int, most: int = BATCH_BYTES) -> Iterator[EncodedBatch]:
        """See `EncodedRecords`."""
        for rows in cuts(np.array([len(content) + _AROUND for _, content in self.rows]), most):
            yield _few_batch(self.rows[rows], codec, self.path)


def _few_batch(rows: Sequence[tuple[int, bytes]], codec: int, path: int) -> EncodedBatch:
    first, raw = rows[0][0], bytearray()
    for number, (stamp, content) in enumerate(rows):
        record = b"\0" + zigzag(stamp - first) + zigzag(number) + content
        raw += zigzag(len(record)) + record
    return EncodedBatch(len(rows), first, max(stamp for stamp, _ in rows), codec, len(raw), closed(codec, raw), path)


@dataclass(frozen=True, slots=True)
class Stretches:
    """Records in parts of consecutive ones that passed the same clusters."""

    parts: Sequence[EncodedRecords | RecordRows]

    def behind(self, count: int) -> "Stretches":
        """Without the first records."""
        left = list[EncodedRecords | RecordRows]()
        for part in self.parts:
            if count < len(part):
                left.append(part.cut(slice(count, None)))
            count = max(0, count - len(part))
        return Stretches(left)

    def batches(self, codec: int, most: int = BATCH_BYTES) -> Iterator[EncodedBatch]:
        """See `EncodedRecords`."""
        for part in self.parts:
            yield from part.batches(codec, most)


def stretches_of(columns: Columns, path: Callable[[bytes | None], int]) -> Stretches:
    """The records of a copy. ``path``: the bits for the value of the header that has the path (None: no header)."""
    if isinstance(columns, Packed) and columns.prefix:
        paths = [path(text) for text in columns.passed]
        if len(paths) == 1:
            return Stretches([records_of(columns, paths[0])])
        of_row = np.array(paths, np.int64)[columns.numbers].tolist()
    else:
        columns = columns.columns()
        of_row = [path(_path_in(headers)) for headers in columns.headers]
    parts, at = list[EncodedRecords | RecordRows](), 0
    for bits, rows in groupby(of_row):
        end = at + sum(1 for _ in rows)
        parts.append(records_of(columns.cut(at, end), bits))
        at = end
    return Stretches(parts)


def _path_in(headers: Sequence[tuple[str, bytes | None]]) -> bytes | None:
    """The value of the header that has the path, which is one of the last."""
    return next((value for name, value in reversed(headers) if name == HEADER), None)


def records_of(columns: Columns, path: int = 0) -> EncodedRecords | RecordRows:
    """The parts of records that passed the same clusters."""
    few = len(columns.offsets) < LEAST
    if isinstance(columns, Packed) and columns.prefix and not few:
        return _of_packed(columns, path)
    columns = columns.columns()
    names = dict[str, bytes]()
    heads = [
        b"".join([(names.get(name) or _named(names, name)) + _part(content) for name, content in headers])
        for headers in columns.headers
    ]
    if few:
        counts = map(zigzag, map(len, columns.headers))
        parts = zip(map(_part, columns.keys), map(_part, columns.values), counts, heads, strict=True)
        return RecordRows([*zip(map(int, columns.stamps), map(b"".join, parts), strict=True)], path)
    sized = map(_column, (columns.keys, columns.values, heads))
    stamps = np.array(columns.stamps, np.int64)
    return _parts(path, stamps, np.fromiter(map(len, columns.headers), np.int64), *sized)


def _of_packed(records: Packed, path: int) -> EncodedRecords:
    content, rows = records.content, records.rows
    stamps, ends = np.asarray(content.stamps[rows], np.int64), _ends(records)
    if content.body_at is not None and (whole := _whole(content, content.body_at, rows)) is not None:
        return EncodedRecords(stamps, whole[1] + ends[1], (whole[0], ends[0]), path)
    keys = _ranges(content.data, content.key_at[rows], content.key_end[rows])
    values = _ranges(content.data, content.value_at[rows], content.value_end[rows])
    heads = _ranges(content.heads, content.head_at[rows], content.head_end[rows])
    return _parts(path, stamps, content.counts[rows] + _OWN, keys, values, heads, ends)


def _whole(content: Content, body_at: Array, rows: slice) -> _Sized | None:
    """Keys, values and headers as they were read, with the new number of headers in place of that of the source; None
    if it needs more bytes."""
    at, end, counts = body_at[rows], content.head_end[rows], content.counts[rows] + _OWN
    if counts.max() >= SHORT:
        return None
    np.frombuffer(content.data, np.uint8)[content.head_at[rows] - 1] = 2 * counts
    return ranges(content.data, at, end), end - at


def _parts(path: int, stamps: Array, counts: Array, keys: _Sized, values: _Sized, *heads: _Sized) -> EncodedRecords:
    """Records of parts as they are in a batch: after the lengths of key and value, and the number of headers."""
    numbers = [_varints(column) for column in (keys[1], values[1], counts)]
    sizes = [np.maximum(size, 0) for _, size in (keys, values, *heads)] + [number.width for number in numbers]
    key, value, count = (_pieces([number]) for number in numbers)
    parts = key, keys[0], value, values[0], count, *(raw for raw, _ in heads)
    return EncodedRecords(stamps, np.sum(sizes, axis=0), parts, path)


def _ranges(data: Bytes, starts: Array, ends: Array) -> _Sized:
    """Ranges of bytes; a negative start: null."""
    return ranges(data, starts, ends), np.where(starts < 0, -1, ends - starts)


def _column(parts: Sequence[bytes | None]) -> _Sized:
    return column_of(parts), np.array([-1 if part is None else len(part) for part in parts], np.int64)


def _ends(records: Packed) -> _Sized:
    """The headers of a copy."""
    name, mark, marks = _part(HEADER.encode()), _part(MARK.encode()) + zigzag(MARK_BYTES), records.marks()
    paths = [name + _part(passed) + mark for passed in records.passed]
    sizes = np.array([len(path) + MARK_BYTES for path in paths])
    if len(paths) == 1:
        rows = np.empty((len(marks), sizes[0]), np.uint8)
        rows[:, :-MARK_BYTES], rows[:, -MARK_BYTES:] = np.frombuffer(paths[0], np.uint8), marks
        return rows_of(rows), np.full(len(marks), sizes[0])
    numbers = records.numbers
    raw = joined((column_of(paths).take(indices(numbers)), rows_of(marks)))
    return split(raw, np.concatenate(([0], np.cumsum(sizes[numbers])))), sizes[numbers]


def _named(names: dict[str, bytes], name: str) -> bytes:
    part = names[name] = _part(name.encode("utf-8", "surrogatepass"))
    return part


def _part(raw: bytes | None) -> bytes:
    return zigzag(-1) if raw is None else zigzag(len(raw)) + raw


class RowBytes(NamedTuple):
    """A field of each record, as one row of bytes for each record."""

    raw: Array
    width: Array
    """The number of bytes of the field in each row. They are in the first columns."""
    even: bool
    """Whether the bytes of the field fill all columns in every row."""


def _varints(values: Array) -> RowBytes:
    """The varint of each number."""
    raw: Array = (values << 1 ^ values >> 63).view(np.uint64)
    width, most = np.ones(len(raw), np.int64), raw.max(initial=0)
    if most < _LIMITS[0]:
        return RowBytes(raw.astype(np.uint8)[:, None], width, True)
    limits = [limit for limit in _LIMITS if limit <= most]
    for limit in limits:
        width += raw >= limit
    rows = np.empty((len(raw), len(limits) + 1), np.uint8)
    for place in range(len(limits) + 1):
        rows[:, place] = raw >> np.uint64(7 * place) & np.uint64(127)
        rows[:, place] |= (width > place + 1).view(np.uint8) << 7
    return RowBytes(rows, width, int(width.min()) == rows.shape[1])


def _pieces(fields: Sequence[RowBytes]) -> Column:
    """The fields of each row, one after another."""
    raw = np.hstack([field.raw for field in fields])
    if all(field.even for field in fields):
        return rows_of(raw)
    kept, at, widths = np.ones(raw.shape, bool), 0, np.zeros(len(raw), np.int64)
    for field in fields:
        if not field.even:
            for place in range(1, field.raw.shape[1]):
                kept[:, at + place] = field.width > place
        at, widths = at + field.raw.shape[1], widths + field.width
    return split(raw[kept], np.concatenate(([0], np.cumsum(widths))))
