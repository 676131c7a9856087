"""The records of batches of version 2 as arrays, and back (DefaultRecord.java; the layout is in `reencode`).

A record starts where the one before it ends. This is one loop. All other numbers of all records are read together,
column by column.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.connectors.kafka.protocol.record_batch import APPEND_TIME, BatchHeader
from trueup.state.common.counts import many
from trueup.state.common.errors import BadBytes

Array = NDArray[Any]
_PAD = 16
"""Bytes behind the records, so that numbers are read before their ends are compared with that of the record."""
_BITS = 63
_TOGETHER = 32
"""Headers of a record that are read together with those of others. Further ones are read one after another."""


@dataclass(frozen=True, slots=True)
class Headings:
    """All headers of some records in order, with one item for each header. Ends are exclusive."""

    row: Array
    """The number of the record that has the header."""
    name_at: Array
    name_end: Array
    value_at: Array
    """The start of the value. -1: the value is null."""
    value_end: Array


@dataclass(frozen=True, slots=True)
class Records:
    """Records as places in their bytes, with one item for each record. Ends are exclusive."""

    data: bytearray
    """The bytes of all records. All places refer to these bytes."""
    offsets: Array
    stamps: Array
    """The timestamp in ms since 1970."""
    body_at: Array
    """The place of the length of the key."""
    key_at: Array
    """The start of the key. -1: the key is null."""
    key_end: Array
    value_at: Array
    """The start of the value. -1: the value is null."""
    value_end: Array
    count_at: Array
    """The place of the number of headers."""
    head_at: Array
    """The start of the headers, behind their number."""
    end: Array
    """The end of the headers, which is also the end of the record."""
    counts: Array
    headings: Headings

    def __len__(self) -> int:
        return len(self.offsets)


def parsed(batches: Sequence[tuple[BatchHeader, memoryview]], where: str) -> Records:
    """The records of batches, which are given as headers and decompressed records. Raises `BadBytes`."""
    data = bytearray().join([*(body for _, body in batches), bytes(_PAD)])
    starts, whole = list[int](), 0
    for header, body in batches:
        _divide(header, data, whole, whole + len(body), starts, where)
        whole += len(body)
    at = np.array(starts, np.int64)
    cursor = _Cursor(np.frombuffer(data, np.uint8), at, np.append(at[1:], whole), where, whole)
    if (cursor.number() < 0).any():
        raise cursor.bad("records with a length")
    cursor.skip(1)  # attributes
    times, deltas = cursor.number(), cursor.number()
    body_at = cursor.at
    key_at, key_end = cursor.part()
    value_at, value_end = cursor.part()
    count_at, counts = cursor.at, cursor.count()
    head_at = cursor.at.copy()
    headings = _headings(cursor, counts)
    if not (cursor.at == cursor.end).all():
        raise cursor.bad("records without other bytes")
    records = [header.records for header, _ in batches]
    offsets: Array = deltas + np.repeat(np.array([header.offset for header, _ in batches], np.int64), records)
    if (deltas < 0).any() or (np.diff(offsets) <= 0).any():
        raise cursor.bad("records in the order of their offsets")
    return Records(
        data,
        offsets,
        _stamps(batches, records, times),
        body_at,
        key_at,
        key_end,
        value_at,
        value_end,
        count_at,
        head_at,
        cursor.end,
        counts,
        headings,
    )


def _divide(header: BatchHeader, data: bytearray, at: int, last: int, starts: list[int], where: str) -> None:
    """Add the start of each record of the batch in these bytes: where its length is."""
    todo, start = "read it with another client", starts.append
    if header.records < 0:
        raise BadBytes(where, 57, "a number of records", str(header.records), todo)
    try:
        for _ in range(header.records):
            start(at)
            size = data[at]
            if size < 128:
                at += 1 + (size >> 1)
                continue
            size += data[at + 1] << 7
            if size < 1 << 14:
                at += 2 + (size - 128 >> 1)
            else:
                at = _behind(data, at + 2, size - 128)
    except IndexError as error:
        raise BadBytes(
            where, at, f"{many(header.records, 'record')} at offset {header.offset}", "fewer", todo
        ) from error
    if at != last:
        raise BadBytes(where, at, f"the end of the batch at offset {header.offset}", "other bytes", todo)


def _behind(data: bytearray, at: int, size: int) -> int:
    """The end of a record whose length has at least three bytes, of which two were read."""
    shift = 14
    while True:
        size += (data[at] << shift) - (1 << shift)
        at += 1
        if size < 1 << shift + 7:
            return at + (size >> 1)
        shift += 7
        if shift > _BITS:
            raise IndexError


def _stamps(batches: Iterable[tuple[BatchHeader, memoryview]], records: Sequence[int], times: Array) -> Array:
    """The times of records: those that the log set, or their own."""
    appended = [bool(header.attributes & APPEND_TIME) for header, _ in batches]
    base = [header.last_ms if own else header.first_ms for own, (header, _) in zip(appended, batches, strict=True)]
    stamps: Array = np.repeat(np.array(base, np.int64), records)
    return stamps + np.where(np.repeat(np.array(appended, bool), records), 0, times)


class _Cursor:
    """A place in each of some records, which moves over their parts."""

    def __init__(self, raw: Array, at: Array, end: Array, where: str, whole: int) -> None:
        self._raw, self.at, self.end, self._where, self._whole = raw, at, end, where, whole

    def bad(self, expected: str) -> BadBytes:
        return BadBytes(self._where, self._whole, expected, "other bytes", "read it with another client")

    def skip(self, count: int) -> None:
        """Pass some bytes."""
        self._go(self.at + count)

    def number(self) -> Array:
        """The next varint of each."""
        raw, at = self._raw, self.at
        byte = raw[at]
        value = (byte & 127).astype(np.uint64)
        at, more, shift = at + 1, byte > 127, 7
        while more.any():
            if shift > _BITS:
                raise self.bad("varints of at most ten bytes")
            byte = np.where(more, raw[np.minimum(at, len(raw) - 1)], 0)
            value |= (byte & 127).astype(np.uint64) << np.uint64(shift)
            at, more, shift = at + more, byte > 127, shift + 7
        self._go(at)
        numbers: Array = (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64)
        return numbers

    def count(self) -> Array:
        """The next number of headers of each."""
        counts = self.number()
        if (counts < 0).any() or (2 * counts > self.end - self.at).any():
            raise self.bad("headers within their records")
        return counts

    def part(self, null: bool = True) -> tuple[Array, Array]:
        """Start and end of the next part of each, after its length; the start is -1 if it is null."""
        length = self.number()
        if (length < (-1 if null else 0)).any() or (length > self.end - self.at).any():
            raise self.bad("parts within their records")
        start = self.at
        self.at = start + np.maximum(length, 0)
        return np.where(length < 0, -1, start), np.where(length < 0, -1, self.at)

    def of(self, rows: Array) -> "_Cursor":
        """The places in some of the records."""
        return _Cursor(self._raw, self.at[rows], self.end[rows], self._where, self._whole)

    def _go(self, at: Array) -> None:
        if (at > self.end).any():
            raise self.bad("numbers within their records")
        self.at = at


def _headings(cursor: _Cursor, counts: Array) -> Headings:
    """The headers of all records, of which ``cursor`` passes them."""
    headings = list[tuple[Array, ...]]()
    left, most = np.flatnonzero(counts), int(counts.max(initial=0))
    for number in range(min(most, _TOGETHER)):
        left = left[counts[left] > number]
        few = cursor.of(left)
        headings.append((left, *few.part(null=False), *few.part()))
        cursor.at[left] = few.at
    for row in left.tolist() if most > _TOGETHER else ():
        for _ in range(int(counts[row]) - _TOGETHER):
            single = cursor.of(np.array([row]))
            headings.append((np.array([row]), *single.part(null=False), *single.part()))
            cursor.at[row] = single.at[0]
    if not headings:
        return Headings(*np.zeros((5, 0), np.int64))
    columns = [np.concatenate(parts) for parts in zip(*headings, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    return Headings(*(column[order] for column in columns))
