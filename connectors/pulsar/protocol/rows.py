"""The messages of many entries at once, as arrays of positions in their bytes: no object for each message.

What `message.messages_of` gives for the same entries, for entries of the usual kind: without encryption, chunks,
transactions and markers. Others, and damage, are refused (`lockstep.UnusualError`): `messages_of` parses those.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.connectors.pulsar import codecs
from trueup.connectors.pulsar.protocol.entry import EntryLayout
from trueup.connectors.pulsar.protocol.lockstep import PADDING, Fields, UnusualError, fields_of
from trueup.connectors.pulsar.protocol.message import MOST_MESSAGES, opened
from trueup.state.common.errors import BadBytes

Array = NDArray[Any]
_BROKER = {1: "number", 2: "number"}
_ENTRY = {
    1: "bytes",
    2: "number",
    3: "number",
    4: "inner",
    5: "bytes",
    6: "bytes",
    8: "number",
    9: "number",
    11: "number",
    12: "number",
    16: "bytes",
    17: "number",
    18: "bytes",
    19: "number",
    24: "number",
    25: "number",
    30: "number",
}
"""Fields of MessageMetadata; 24 is highest_sequence_id, which batches have."""
_SINGLE = {
    1: "inner",
    2: "bytes",
    3: "number",
    4: "number",
    5: "number",
    6: "number",
    7: "bytes",
    8: "number",
    9: "number",
    10: "number",
}
_PAIR = {1: "bytes", 2: "bytes"}
_SIZE = struct.Struct(">I")
_LARGEST = (1 << 31) - 1
_SIZED, _SHORT, _LONGEST_SIZE = 0x18, 128, 3
"""Tag of the size of a value; numbers of one byte; bytes of tag and size up to 16 KB."""
_SHORTEST_RUN, _TRIES = 8, 8
"""Messages are compared with the one before only while that pays."""


MOST_TOGETHER, MESSAGES_TOGETHER = 1 << 25, 1 << 17
"""Maximum bytes without compression, and messages, of several entries."""


class TooMuchError(UnusualError):
    """Together, these entries need too much memory."""


class Span(NamedTuple):
    """Ranges of `MessageRows.data`, one for each row of a column, in ascending order."""

    starts: Array
    ends: Array
    there: Array
    """Whether each row has a range. A row without a range has no bytes at all, not even empty bytes."""


class Pairs(NamedTuple):
    """The properties of messages. Names can repeat."""

    rows: Array
    """The row of each property's message, in ascending order."""
    names: Span
    values: Span


@dataclass(frozen=True, slots=True)
class MessageRows:
    """Messages in columns. A column has a row for each message, unless a row for each entry is stated. Times are in ms
    since 1970, or 0 if there is none."""

    data: bytes
    """The bytes that contain what spans refer to."""
    at: Array
    """The row of each message's entry in the columns with a row for each entry."""
    entry: Array
    batch_index: Array
    publish_ms: Array
    event_ms: Array
    sequence: Array
    key: Span
    encoded: Array
    """Whether each key is base64."""
    ordering_key: Span
    value: Span
    producer: Span
    """The producer, with a row for each entry."""
    schema_version: Span
    """The version of the schema, with a row for each entry."""
    properties: Pairs


class EntryBytes(NamedTuple):
    """Entries and their bytes, with the layout that `entry.layout_of` found."""

    entries: Sequence[int]
    stored: Sequence[bytes]
    layouts: Sequence[EntryLayout]


def rows_of(held: EntryBytes) -> MessageRows:
    """The messages of these entries, without those that a compaction removed. Raises `UnusualError`, `TooMuchError`."""
    data = b"".join([*held.stored, PADDING])
    bases = _bases(held.stored)
    layouts = np.array(held.layouts, np.int64).reshape(-1, 3)
    starts, ends = bases[:-1] + layouts[:, 1], bases[:-1] + layouts[:, 2]
    raw = np.frombuffer(data, np.uint8)
    if layouts[:, 0].any():
        some = layouts[:, 0] > 0
        begin = bases[:-1][some]
        fields_of(raw, begin + 6, begin + layouts[some, 0], _BROKER)
    entries = fields_of(raw, starts, ends, _ENTRY)
    _required(entries, len(starts), 1, 2, 3)
    pairs = _pairs(raw, entries)
    numbers = _Numbers(entries, len(starts))
    codec, plain_size = numbers.int32(8), numbers.int32(9)
    limits = bases[1:]
    if codec.any():
        data, ends, limits, moved = _decompressed(held, layouts, codec, plain_size)
        by = moved - bases[:-1]
        entries, pairs = _moved(entries, by), _moved_pairs(pairs, by)
        raw = np.frombuffer(data, np.uint8)
    return _rows(raw, data, held, entries, pairs, ends, limits)


def _bases(pieces: Sequence[bytes]) -> Array:
    bases = np.zeros(len(pieces) + 1, np.int64)
    np.cumsum([len(piece) for piece in pieces], out=bases[1:])
    return bases


class _Numbers:
    """Columns of numbers of parsed fields."""

    def __init__(self, fields: Fields, count: int) -> None:
        self._fields, self._nothing, self._never = fields, np.zeros(count, np.int64), np.zeros(count, bool)

    def of(self, number: int) -> Array:
        return self._fields.numbers.get(number, self._nothing)

    def int32(self, number: int) -> Array:
        numbers = self.of(number)
        if (numbers > _LARGEST).any():
            raise UnusualError  # protobuf cuts it
        return numbers

    def there(self, number: int) -> Array:
        return self._fields.there.get(number, self._never)

    def span(self, number: int) -> tuple[Array, Array]:
        return self._fields.spans.get(number, (self._nothing, self._nothing))


def _required(fields: Fields, count: int, *numbers: int) -> None:
    for number in numbers:
        if count and (number not in fields.there or not fields.there[number].all()):
            raise UnusualError


def _pairs(data: Array, fields: Fields) -> Pairs:
    """The properties of messages, which must have names and values."""
    rows, starts, ends = fields.inner
    inner = fields_of(data, starts, ends, _PAIR)
    _required(inner, len(starts), 1, 2)
    every, parsed = np.ones(len(rows), bool), _Numbers(inner, len(rows))
    return Pairs(rows, Span(*parsed.span(1), every), Span(*parsed.span(2), every))


def _moved_pairs(pairs: Pairs, by: Array) -> Pairs:
    shifts = by[pairs.rows]
    names, values = (Span(span.starts + shifts, span.ends + shifts, span.there) for span in (pairs.names, pairs.values))
    return Pairs(pairs.rows, names, values)


def _chosen(pairs: Pairs, which: Array, rows: Array) -> Pairs:
    """Some properties, with other rows."""
    names, values = (Span(*(array[which] for array in span)) for span in (pairs.names, pairs.values))
    return Pairs(rows[which], names, values)


def _merged(pairs: Pairs, other: Pairs) -> Pairs:
    if not len(pairs.rows) or not len(other.rows):
        return other if len(other.rows) else pairs
    order = np.argsort(np.concatenate([pairs.rows, other.rows]), kind="stable")

    def joined(mine: Array, its: Array) -> Array:
        return np.concatenate([mine, its])[order]

    names, values = (
        Span(*map(joined, mine, its)) for mine, its in ((pairs.names, other.names), (pairs.values, other.values))
    )
    return Pairs(joined(pairs.rows, other.rows), names, values)


def _decompressed(held: EntryBytes, layouts: Array, codec: Array, sizes: Array) -> tuple[bytes, Array, Array, Array]:
    """The same bytes with decompressed payloads; where metadata and payloads end, and entries start, in them."""
    pieces, total = list[bytes](), 0
    meta_ends, limits, begins = [], [], []
    entries = zip(held.stored, layouts[:, 2].tolist(), codec.tolist(), sizes.tolist(), strict=True)
    for stored, meta_end, kind, size in entries:
        try:
            plain = stored[meta_end:] if kind == codecs.NONE else opened(memoryview(stored)[meta_end:], kind, size, "")
        except BadBytes:
            raise UnusualError from None
        begins.append(total)
        meta_ends.append(total + meta_end)
        pieces += stored[:meta_end], plain
        total += meta_end + len(plain)
        limits.append(total)
        if total > MOST_TOGETHER and len(begins) > 1:
            raise TooMuchError
    arrays = [np.array(offsets, np.int64) for offsets in (meta_ends, limits, begins)]
    return b"".join([*pieces, PADDING]), arrays[0], arrays[1], arrays[2]


def _moved(fields: Fields, by: Array) -> Fields:
    spans = {number: (starts + by, ends + by) for number, (starts, ends) in fields.spans.items()}
    return fields._replace(spans=spans)


def _rows(
    raw: Array, data: bytes, held: EntryBytes, fields: Fields, pairs: Pairs, begins: Array, limits: Array
) -> MessageRows:
    """Rows of messages from those of entries, whose payloads are between ``begins`` and ``limits``."""
    entries = _Numbers(fields, len(begins))
    batched, counts = entries.there(11), entries.int32(11)
    ids = np.array(held.entries, np.int64)
    producer, schema = (Span(*entries.span(number), entries.there(number)) for number in (1, 16))
    if not batched.any():
        null, no_key = entries.of(25) != 0, entries.of(30) != 0
        return MessageRows(
            data,
            np.arange(len(ids)),
            ids,
            np.full(len(ids), -1),
            entries.of(3),
            entries.of(12),
            entries.of(2),
            Span(*entries.span(6), entries.there(6) & ~no_key),
            entries.of(17) != 0,
            Span(*entries.span(18), entries.there(18)),
            Span(begins, limits, ~null),
            producer,
            schema,
            pairs,
        )
    at, index, starts, ends, after = _walked(data, batched, counts, begins, limits)
    single = fields_of(raw, starts, ends, _SINGLE)
    alone = ~batched[at]
    # Properties of a batch are not those of its messages.
    properties = _merged(_pairs(raw, single), _chosen(pairs, ~batched[pairs.rows], np.searchsorted(at, pairs.rows)))
    messages = _Numbers(single, len(at))
    if not ((messages.int32(3) == after - ends) & messages.there(3) | alone).all():
        raise UnusualError

    def either(own: Array, of_entry: Array) -> Array:
        return np.where(alone, of_entry[at], own)

    def span(own: int, of_entry: int, no: Array) -> Span:
        mine, its = messages.span(own), entries.span(of_entry)
        there = either(messages.there(own), entries.there(of_entry)) & ~no
        return Span(either(mine[0], its[0]), either(mine[1], its[1]), there)

    def inherited(own: int, of_entry: int) -> Array:
        return np.where(messages.there(own), messages.of(own), entries.of(of_entry)[at])

    no_key, null = inherited(10, 30) != 0, inherited(9, 25) != 0
    rows = MessageRows(
        data,
        at,
        ids[at],
        index,
        entries.of(3)[at],
        inherited(5, 12),
        inherited(8, 2),
        span(2, 6, no_key),
        either(messages.of(6), entries.of(17)) != 0,
        span(7, 18, np.zeros(len(at), bool)),
        Span(ends, after, ~null),
        producer,
        schema,
        properties,
    )
    removed = messages.of(4) != 0
    return kept(rows, ~removed) if removed.any() else rows


def kept(rows: MessageRows, which: Array) -> MessageRows:
    """Some of the messages."""

    def span(column: Span) -> Span:
        return Span(*(array[which] for array in column))

    return MessageRows(
        rows.data,
        rows.at[which],
        rows.entry[which],
        rows.batch_index[which],
        rows.publish_ms[which],
        rows.event_ms[which],
        rows.sequence[which],
        span(rows.key),
        rows.encoded[which],
        span(rows.ordering_key),
        span(rows.value),
        rows.producer,
        rows.schema_version,
        _chosen(rows.properties, which[rows.properties.rows], np.cumsum(which)[rows.properties.rows] - 1),
    )


def _walked(
    data: bytes, batched: Array, counts: Array, begins: Array, limits: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """For each message: row of its entry, index in the batch, where its metadata start and end, and its value ends. A
    message that is not in a batch has empty metadata. Raises `UnusualError`."""
    starts, ends, after, sizes = list[int](), list[int](), list[int](), list[int]()
    if len(counts) > 1 and counts.sum() > MESSAGES_TOGETHER:
        raise TooMuchError
    for many, count, begin, limit in zip(
        batched.tolist(), counts.tolist(), begins.tolist(), limits.tolist(), strict=True
    ):
        if many:
            if count > MOST_MESSAGES:
                raise UnusualError
            _walk(data, begin, limit, count, starts, ends, after)
        else:
            starts.append(begin)
            ends.append(begin)
            after.append(limit)
        sizes.append(count if many else 1)
    size = np.array(sizes, np.int64)
    at = np.repeat(np.arange(len(size)), size)
    index = np.arange(len(at)) - np.repeat(np.cumsum(size) - size, size)
    arrays = [np.array(offsets, np.int64) for offsets in (starts, ends, after)]
    return at, np.where(batched[at], index, -1), arrays[0], arrays[1], arrays[2]


def _walk(data: bytes, at: int, limit: int, count: int, starts: list[int], ends: list[int], after: list[int]) -> None:
    """The messages of one batch: one by one, or many at once while they have the same sizes. What is found here is
    compared with the parsed metadata afterwards. Raises `UnusualError`."""
    before, tries, left = 0, _TRIES, count
    while left:
        start, end, sized, following = _next(data, at, limit)
        starts.append(start)
        ends.append(end)
        after.append(following)
        left -= 1
        size = following - at
        if size == before and left and tries:
            alike = _alike(data, at, size, min(left, (limit - following) // size), sized - at, end - at)
            for offsets, first in ((starts, start), (ends, end), (after, following)):
                offsets.extend(range(first + size, first + size * (alike + 1), size))
            left -= alike
            following += size * alike
            tries -= alike < _SHORTEST_RUN
        before, at = size, following
    if at != limit:
        raise UnusualError


def _next(data: bytes, at: int, limit: int) -> tuple[int, int, int, int]:
    """Where metadata of a message start and end, where the size of its value is in them, and where its value ends. Keys
    and properties, which have lower numbers, precede that size. Raises `UnusualError`."""
    start = place = at + _SIZE.size
    end = start + _SIZE.unpack_from(data, at)[0]
    if end > limit:
        raise UnusualError
    while data[place] != _SIZED:
        length = data[place + 1]
        place += 2 + length
        if length >= _SHORT:
            more = data[place - length]
            place += 1 + (more - 1 << 7)
            if more >= _SHORT:
                raise UnusualError
        if place >= end:
            raise UnusualError
    sized, size = place, data[place + 1]
    if size >= _SHORT:
        size, shift = size & 127, 7
        place += 1
        while (byte := data[place + 1]) >= _SHORT and shift < 28:
            size |= (byte & 127) << shift
            shift += 7
            place += 1
        size |= byte << shift
    if end + size > limit:
        raise UnusualError
    return start, end, sized, end + size


def _alike(data: bytes, at: int, size: int, most: int, sized: int, end: int) -> int:
    """How many of the next messages have metadata and a value as long as those of the message at this offset.
    ``sized``, ``end``: where, in each, the size of the value is, and where the metadata end."""
    if most < 1:
        return 0
    messages = np.frombuffer(data, np.uint8, (most + 1) * size, at).reshape(most + 1, size)
    last = min(end, sized + _LONGEST_SIZE)
    same = (messages[1:, : _SIZE.size] == messages[0, : _SIZE.size]).all(axis=1)
    same &= (messages[1:, sized:last] == messages[0, sized:last]).all(axis=1)
    return most if same.all() else int(np.argmin(same))
