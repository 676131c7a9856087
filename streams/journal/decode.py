"""Decodes the Avro bodies of many records at once into columns; the inverse of `streams.journal.encode`.

A field is decoded for all bodies together, at the current position of each. Arrays must have one block, as Trueup
writes them (Avro permits several). Trailing fields that are not needed are not decoded.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np
import pyarrow as pa

from trueup.state.common.arrays import Array, spans
from trueup.state.common.errors import BadBytes

_LONGEST = 10  # maximum bytes of a varint
_TOP = np.uint64(0x8080_8080_8080_8080)
_FOLDS = (
    (np.uint64(0x007F_007F_007F_007F), 1),
    (np.uint64(0x0000_3FFF_0000_3FFF), 2),
    (np.uint64(0x0000_0000_0FFF_FFFF), 4),
)


T = TypeVar("T")
R = TypeVar("R")


def readable(items: Sequence[T], rows: Callable[[Sequence[T]], R]) -> Iterator[tuple[slice, R | BadBytes]]:
    """The results of ``rows`` for these items, for example bodies: one result for all; if an item is not readable, one
    for each of several parts in their order, and the error of each such item. ``rows`` raises `BadBytes`."""
    todo = [(0, len(items))] if len(items) else []
    while todo:
        first, end = todo.pop()
        try:
            yield slice(first, end), rows(items[first:end])
        except BadBytes as error:
            if end - first == 1:
                yield slice(first, end), error
            else:
                middle = (first + end) // 2
                todo += [(middle, end), (first, middle)]


def good(items: Sequence[T], rows: Callable[[Sequence[T]], R]) -> list[R]:
    """`readable`, without the errors: the parts that are readable."""
    return [part for _, part in readable(items, rows) if not isinstance(part, BadBytes)]


def check_keys(keys: Sequence[bytes], ids: Array, where: str) -> None:
    """Raise `BadBytes` unless each key, of 8 bytes, is its id as int64 big-endian."""
    if b"".join(keys) != ids.astype(">i8").tobytes():
        raise BadBytes(where, 0, "the id of the record as its key", f"{keys[0]!r:.100}", "remove the record")


class BodyReader:
    """A current position in each of these bodies, initially at the start. ``topic``: the topic of the records, for
    errors."""

    def __init__(self, bodies: Sequence[bytes], topic: str) -> None:
        sizes = np.fromiter(map(len, bodies), np.int64, len(bodies))
        self._topic = topic
        self._raw = np.frombuffer(b"".join(bodies) + bytes(_LONGEST), np.uint8)
        self._words = np.ndarray((len(self._raw) - 7,), "<u8", self._raw, strides=(1,))  # the 8 bytes at every position
        self._ends = np.cumsum(sizes)
        self._starts = self._ends - sizes
        self.at = self._starts.copy()
        self.all = np.arange(len(bodies))

    def longs(self, rows: Array) -> Array:
        """The next long of each of these rows, as int64. Raises `BadBytes` if a body ends before."""
        at = self.at[rows]
        value, size = _varints(self._words[at])
        for row in np.flatnonzero(size == 0).tolist():
            value[row], size[row] = _varint(self._raw[at[row] : at[row] + _LONGEST].tolist())
        self._move(rows, at + size)
        return _signed(value)

    def counts(self, rows: Array) -> Array:
        """The next length of each of these rows, of items or bytes. Raises `BadBytes` for a negative length or one
        that exceeds the body."""
        lengths = self.longs(rows)
        self.check((lengths >= 0) & (lengths <= self._ends[rows] - self.at[rows]), rows, "a length within the record")
        return lengths

    def ends(self, rows: Array) -> None:
        """Consume the end of an array in each of these rows. Raises `BadBytes`."""
        self.check(self.longs(rows) == 0, rows, "the end of an array of one block")

    def blobs(self, rows: Array) -> tuple[Array, Array]:
        """Start and length of the next string or bytes of each of these rows."""
        sizes = self.counts(rows)
        starts = self.at[rows]
        self._move(rows, starts + sizes)
        return starts, sizes

    def lists(self, rows: Array) -> tuple[Array, Array]:
        """The next array of longs of each of these rows: its length, and the items of all rows, concatenated. Raises
        `BadBytes`."""
        sizes = self.counts(rows)
        some, items = rows[sizes > 0], sizes[sizes > 0]
        first = np.searchsorted(self._stops, self.at[some])
        self.check(first + items <= len(self._stops), some, "the items of an array")
        which = spans(first, first + items)
        ends, begins = self._stops[which] + 1, self._stops[which - 1] + 1
        begins[np.cumsum(items) - items] = self.at[some]
        self._move(some, self._stops[first + items - 1] + 1)
        value, size = _varints(self._words[begins])
        for at in np.flatnonzero(size == 0).tolist():
            value[at], size[at] = _varint(self._raw[begins[at] : begins[at] + _LONGEST].tolist())
        self.check(begins + size == ends, np.repeat(some, items), "a long")
        self.ends(some)
        return sizes, _signed(value)

    @cached_property
    def _stops(self) -> Array:
        """The positions of bytes that end a varint, if one is there."""
        return np.flatnonzero(self._raw < 0x80)

    def texts(self, starts: Array, sizes: Array) -> tuple[Array, tuple[str, ...]]:
        """Strings as codes (uint32) into a tuple of distinct strings."""
        codes, distinct = self._distinct(starts, sizes, pa.large_binary())
        strings = distinct.to_pylist()
        try:
            return codes, tuple(text.decode() for text in strings)
        except UnicodeDecodeError:
            good = np.array([text.decode(errors="ignore").encode() == text for text in strings])[codes]
            at = starts[np.argmin(good) : np.argmin(good) + 1]
            self.check(np.zeros(1, bool), np.searchsorted(self._ends, at, "right"), "strings of UTF-8")
            raise

    def match(self, starts: Array, sizes: Array, texts: Sequence[bytes]) -> None:
        """Raise `BadBytes` unless these blobs, one of each row, are these texts."""
        self.check(np.fromiter(map(len, texts), np.int64, len(texts)) == sizes, self.all, "its key in the record")
        same = self._raw[spans(starts, starts + sizes)].tobytes() == b"".join(texts)
        self.check(np.full(len(texts), same), self.all, "its key in the record")

    def maps(self, rows: Array) -> tuple[Array, tuple[bytes, ...]]:
        """Maps of strings to bytes as codes (uint32) into a tuple of distinct encoded maps."""
        starts = self.at[rows]
        pairs = self.counts(rows)
        some = np.flatnonzero(pairs)
        for passed in range(int(pairs.max(initial=0))):
            having = rows[pairs > passed]
            self.blobs(having)
            self.blobs(having)
        self.ends(rows[some])
        codes, distinct = self._distinct(starts, self.at[rows] - starts, pa.large_binary())
        return codes, tuple(distinct.to_pylist())

    def rests(self) -> tuple[Array, tuple[bytes, ...]]:
        """The rest of each body, from its position on, as codes (uint32) into a tuple of distinct rests."""
        codes, distinct = self._distinct(self.at, self.left, pa.large_binary())
        return codes, tuple(distinct.to_pylist())

    def _distinct(self, starts: Array, sizes: Array, kind: pa.DataType) -> tuple[Array, pa.Array]:
        edges = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=edges[1:])
        content = self._raw[spans(starts, starts + sizes)]
        array = pa.Array.from_buffers(kind, len(sizes), [None, pa.py_buffer(edges), pa.py_buffer(content)])
        encoded = array.dictionary_encode()
        return encoded.indices.to_numpy().astype(np.uint32), encoded.dictionary

    @property
    def left(self) -> Array:
        """Number of bytes of each body after its position."""
        return self._ends - self.at

    def _move(self, rows: Array, to: Array) -> None:
        self.check(to <= self._ends[rows], rows, "the rest of the record")
        self.at[rows] = to

    def fit(self, column: Array, dtype: np.dtype[np.integer]) -> Array:
        """The column of all rows in another type of integers. Raises `BadBytes` for a number that it cannot hold."""
        range_ = np.iinfo(dtype)
        if column.dtype != dtype and np.can_cast(dtype, column.dtype):
            self.check((column >= range_.min) & (column <= range_.max), self.all, f"numbers that {dtype} holds")
        return column.astype(dtype)

    def check(self, good: Array, rows: Array, expected: str) -> None:
        """Raise `BadBytes` for the first of these rows whose ``good`` is false."""
        if good.all():
            return
        row = int(rows[np.argmin(good)])
        body = self._raw[self._starts[row] : self._ends[row]].tobytes()
        where = f"a record of the topic {self._topic}, {body[:16].hex()}.."
        raise BadBytes(where, int(self.at[row] - self._starts[row]), expected, "other bytes", "remove the record")


def _varints(words: Array) -> tuple[Array, Array]:
    """The varint at the start of each word of 8 bytes, and its size; size 0 if the varint is longer."""
    stop = ~words & _TOP
    upto = ((stop & -stop) << np.uint64(1)) - np.uint64(1)
    bits = words & upto & ~_TOP
    for mask, shift in _FOLDS:  # seven bits of each byte, fourteen of each two, twenty-eight of each four
        bits = bits & mask | (bits & mask << np.uint64(8 * shift)) >> np.uint64(shift)
    return bits, np.where(stop > 0, np.bitwise_count(upto) >> 3, 0).astype(np.int64)


def _signed(value: Array) -> Array:
    """The longs that Avro encodes as these unsigned numbers."""
    longs: Array = (value >> np.uint64(1)).view(np.int64) ^ -(value & np.uint64(1)).view(np.int64)
    return longs


def _varint(content: list[int]) -> tuple[int, int]:
    """The varint at the start of these bytes, and its size."""
    value = size = 0
    for size, byte in enumerate(content, start=1):
        value |= (byte & 0x7F) << 7 * (size - 1)
        if byte < 0x80:
            break
    return value & 0xFFFF_FFFF_FFFF_FFFF, size
