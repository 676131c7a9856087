"""Records between two systems as arrays, for writers that put requests together from slices of responses.

The headers of a record are one range of bytes in Kafka's layout: for each a byte with twice the length of its name, the
name, a byte with twice the length of its value, the value. Properties of RocketMQ have the same length: their two
separators are where the lengths of the following parts are. So a header becomes a property, and back, in its place.
Records of another form (longer or null headers) are `Columns`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from trueup.connectors.byte_rows import optional_slices
from trueup.connectors.replication.headers import Path, marks
from trueup.connectors.replication.ports import Columns, Native
from trueup.state.replication.provenance import HEADER

Array = NDArray[Any]
SHORT = 64
"""Names and values with fewer bytes have a length of one byte."""
MARK_BYTES = 16


@dataclass(frozen=True, slots=True)
class EarlierHeaders:
    """The headers of earlier copies, which are not among the other headers."""

    number: Array
    """The place of the value of `provenance.HEADER` of each record in ``paths``."""
    paths: Sequence[bytes]
    """The different values of `provenance.HEADER`. An empty value means that no link copied the record."""
    columns: Callable[[], Columns]
    """Returns the records with all headers."""


@dataclass(frozen=True, slots=True)
class Content:
    """The parts of records, shared by all `Packed` of a response.

    An array has one item for each record, unless its description says otherwise. Ends are exclusive.
    """

    offsets: Array
    stamps: Array
    data: bytes | bytearray | memoryview
    """The bytes that contain the keys and values, in order."""
    key_at: Array
    """The start of the key in ``data``. Negative: the key is null."""
    key_end: Array
    value_at: Array
    """The start of the value in ``data``. Negative: the value is null."""
    value_end: Array
    heads: bytes | bytearray | memoryview
    """The bytes that contain the headers, with one more byte behind the last header."""
    head_at: Array
    head_end: Array
    counts: Array
    """The number of headers."""
    names_at: Array
    """The place of the length of each name in ``heads``, with one item for each header of all records, in order."""
    values_at: Array
    """The place of the length of each value in ``heads``, with one item for each header of all records, in order."""
    earlier: EarlierHeaders | None = None
    number: Array | None = None
    """The place of the path in `Packed.passed`. None: all records have the first path."""
    body_at: Array | None = None
    """The place of the length of the key in ``data``. None unless ``data`` contains the records in Kafka's layout up to
    ``head_end``, each with a number of headers of one byte. Writers may change these numbers of headers in ``data``."""

    def only(self, rows: slice, number: Array) -> "Content":
        """The parts of the records in ``rows`` whose ``number`` is not negative, without the headers of earlier
        copies."""
        kept = np.zeros(len(self.offsets), bool)
        kept[rows] = number >= 0
        headers = np.repeat(kept, self.counts)
        return Content(
            self.offsets[kept],
            self.stamps[kept],
            self.data,
            self.key_at[kept],
            self.key_end[kept],
            self.value_at[kept],
            self.value_end[kept],
            self.heads,
            self.head_at[kept],
            self.head_end[kept],
            self.counts[kept],
            self.names_at[headers],
            self.values_at[headers],
            None,
            number[number >= 0],
            None if self.body_at is None else self.body_at[kept],
        )


class Packed(Native):
    """Some records of a response, for any writer."""

    def __new__(cls, content: Content, rows: slice, passed: Sequence[bytes] = (), prefix: bytes = b"") -> Self:
        """The rows of a slice without a step."""
        stamps = cast("Sequence[int]", content.stamps[rows])
        packed = super().__new__(cls, _numbers(content.offsets[rows]), (), (), stamps)
        packed.content, packed.rows, packed.passed, packed.prefix = content, rows, passed, prefix
        return packed

    content: Content
    rows: slice
    passed: Sequence[bytes]
    """All values of `provenance.HEADER` that the copies of the records have (see `replication.headers`). Empty before
    `tagged`."""
    prefix: bytes
    """The prefix of the marks that the copies of the records have (see `replication.headers`). Empty before
    `tagged`."""

    @property
    def size(self) -> int:
        """Bytes of keys and values."""
        content, rows = self.content, self.rows
        keys, values = content.key_end[rows] - content.key_at[rows], content.value_end[rows] - content.value_at[rows]
        return int(keys.sum() + values.sum())

    def cut(self, start: int, stop: int | None = None) -> "Packed":
        """A range of the rows."""
        left = range(self.rows.start, self.rows.stop)[start:stop]
        return Packed(self.content, slice(left.start, left.stop), self.passed, self.prefix)

    def tagged(self, path: Path, prefix: bytes) -> "Packed":
        """The records with the headers of a copy, without those that passed the target."""
        content, rows, earlier = self.content, self.rows, self.content.earlier
        if earlier is None:
            return Packed(content, rows, [path.source_header[1]], prefix)
        place, passed = np.full(len(earlier.paths), -1), list[bytes]()
        for number in np.unique(earlier.number[rows]).tolist():
            if (value := path.onward(earlier.paths[number])) is not None:
                place[number] = len(passed)
                passed.append(value)
        left = content.only(rows, place[earlier.number[rows]])
        return Packed(left, slice(0, len(left.offsets)), passed, prefix)

    def columns(self) -> Columns:
        """Each record on its own, with the headers of a copy after `tagged`, else with those of earlier copies."""
        content, rows = self.content, self.rows
        if content.earlier is not None:
            return content.earlier.columns().cut(rows.start, rows.stop)
        data, heads = memoryview(content.data), memoryview(content.heads)
        given = (_headers(heads, *place) for place in zip(content.head_at[rows], content.head_end[rows], strict=True))
        if self.prefix:
            own = cast("Iterable[tuple[str, bytes]]", marks(self.prefix, self.offsets))
            paths = [self.passed[number] for number in self.numbers.tolist()]
            given = ([*some, (HEADER, path), mark] for some, path, mark in zip(given, paths, own, strict=True))
        keys = optional_slices(data, content.key_at[rows], content.key_end[rows])
        values = optional_slices(data, content.value_at[rows], content.value_end[rows])
        return Columns(self.offsets, keys, values, content.stamps[rows].tolist(), [*given])

    @property
    def numbers(self) -> Array:
        """The place of the path of each record in ``passed``."""
        places = self.content.number
        return np.zeros(len(self.offsets), np.int64) if places is None else places[self.rows]

    def marks(self) -> Array:
        """The values of the marks of the records, one a row (`headers.marks`)."""
        rows = np.zeros((len(self.offsets), MARK_BYTES), np.uint8)
        rows[:, :8] = np.frombuffer(self.prefix, np.uint8)
        rows[:, 8:] = self.content.offsets[self.rows].astype(">i8")[:, None].view(np.uint8)
        return rows


def _numbers(offsets: Array) -> Sequence[int]:
    """The same numbers; without an object for each if they follow one another."""
    if len(offsets) and (np.diff(offsets) == 1).all():
        return range(int(offsets[0]), int(offsets[-1]) + 1)
    numbers: list[int] = offsets.tolist()
    return numbers


def _headers(heads: memoryview, at: int, end: int) -> list[tuple[str, bytes | None]]:
    headers = list[tuple[str, bytes | None]]()
    while at < end:
        middle = at + 1 + heads[at] // 2
        last = middle + 1 + heads[middle] // 2
        headers.append((str(heads[at + 1 : middle], "utf-8"), bytes(heads[middle + 1 : last])))
        at = last
    return headers
