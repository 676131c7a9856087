"""Parses many protobuf messages of one type at once: one step of numpy for the next field of every message.

Messages of one producer have the same fields in the same order, so that a step usually sees one tag. What is rare is
not parsed but refused (`UnusualError`), and is then parsed by protobuf itself: unknown tags, long tags, and all damage.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
PADDING = bytes(16)
"""Must follow the bytes of the last message."""
_STEPS = 64
_LONGEST = 10


class UnusualError(Exception):
    """These bytes are not parsed here. They can be valid."""


class Fields(NamedTuple):
    """The fields of messages, by number. If a message has a field several times, the last value counts, as protobuf
    parses it. The repeated message is an exception: all its values are kept. Fields that no message has are left
    out."""

    numbers: dict[int, Array]
    """The value in each message, or 0 if the message does not have the field."""
    spans: dict[int, tuple[Array, Array]]
    """The start and the end of the bytes in each message."""
    there: dict[int, Array]
    """Whether each message has the field."""
    inner: tuple[Array, Array, Array]
    """All values of the repeated message: the row of the containing message, start and end of each, ordered by row."""


def fields_of(data: Array, starts: Array, ends: Array, kinds: Mapping[int, str]) -> Fields:
    """The fields of the messages in these ranges of ``data`` (uint8). ``kinds``: the kind of each field by its number:
    ``number``, ``bytes``, or ``inner`` for at most one repeated message. Raises `UnusualError`."""
    columns, rows, at = _Found(len(starts)), np.arange(len(starts)), starts
    for _ in range(_STEPS):
        open_ = at < ends
        if not open_.all():
            rows, at, ends = rows[open_], at[open_], ends[open_]
        if not len(rows):
            return columns.fields()
        tags, after = data[at].astype(np.int64), at + 1
        if (tags >= 128).any():
            long = tags >= 128
            tags = np.where(long, tags & 127 | data[after].astype(np.int64) << 7, tags)
            after = after + long
        values, after = varints(data, after)
        same = int(tags[0])
        if (tags == same).all():
            at = columns.add(same, kinds, rows, values, after, ends)
            continue
        at = np.empty_like(after)
        for tag in np.unique(tags).tolist():  # an unknown one is refused
            some = tags == tag
            at[some] = columns.add(tag, kinds, rows[some], values[some], after[some], ends[some])
    raise UnusualError


def varints(data: Array, at: Array) -> tuple[Array, Array]:
    """The values (int64) of varints at these offsets, and their ends. Raises `UnusualError`."""
    first = data[at]
    values, ends = (first & 127).astype(np.int64), at + 1
    more = np.flatnonzero(first >= 128)
    for place in range(1, _LONGEST):
        if not len(more):
            return values, ends
        if place == _LONGEST - 1:
            break
        following = data[np.minimum(at[more] + place, len(data) - 1)]
        values[more] |= (following & 127).astype(np.int64) << (7 * place)
        ends[more] += 1
        more = more[following >= 128]
    # Negative numbers have 10 bytes.
    raise UnusualError


class _Found:
    def __init__(self, count: int) -> None:
        self._count = count
        self._numbers, self._there = dict[int, Array](), dict[int, Array]()
        self._spans = dict[int, tuple[Array, Array]]()
        self._inner: list[tuple[Array, Array, Array]] = []

    def add(self, tag: int, kinds: Mapping[int, str], rows: Array, values: Array, after: Array, ends: Array) -> Array:
        """Note one field of these rows, and return where the next one starts. Raises `UnusualError`."""
        number, wire = tag >> 3, tag & 7
        kind = kinds.get(number, "")
        if wire != (0 if kind == "number" else 2) or not kind:
            raise UnusualError
        if wire and (values > ends).any():
            raise UnusualError
        following = after + values if wire else after
        if (following > ends).any():
            raise UnusualError
        if kind == "inner":
            self._inner.append((rows, after, following))
            return following
        if number not in self._there:
            self._there[number] = np.zeros(self._count, bool)
            if wire:
                self._spans[number] = np.zeros(self._count, np.int64), np.zeros(self._count, np.int64)
            else:
                self._numbers[number] = np.zeros(self._count, np.int64)
        self._there[number][rows] = True
        if wire:
            starts, stops = self._spans[number]
            starts[rows], stops[rows] = after, following
        else:
            self._numbers[number][rows] = values
        return following

    def fields(self) -> Fields:
        if not self._inner:
            nothing = np.zeros(0, np.int64)
            return Fields(self._numbers, self._spans, self._there, (nothing, nothing, nothing))
        rows, starts, ends = (np.concatenate(arrays) for arrays in zip(*self._inner, strict=True))
        order = np.argsort(rows, kind="stable")
        return Fields(self._numbers, self._spans, self._there, (rows[order], starts[order], ends[order]))
