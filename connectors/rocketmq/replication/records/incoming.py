"""Records of another system as messages of RocketMQ, for all records of a response together.

What `columns.Encoder` does for one record after another is done here if all have the usual form: a key that is text or
null, and headers that become properties of the same names. Headers become properties where they are, see
`replication.packed`; bodies, keys and properties are slices of the response.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.connectors.byte_rows import Column, cuts, joined, ranges, rows_of, split, whole
from trueup.connectors.replication.packed import Packed
from trueup.connectors.rocketmq.protocol import batch, properties
from trueup.connectors.rocketmq.protocol.batch import MessageBatch
from trueup.connectors.rocketmq.protocol.block import WORD, PropertyNames, hash_of, titles_in
from trueup.connectors.rocketmq.replication.records import names
from trueup.connectors.rocketmq.replication.records.binding import Binding
from trueup.connectors.rocketmq.replication.records.copied import TIME_BYTES, WIDTH, BoundParts, datable, tails
from trueup.connectors.rocketmq.replication.records.plain import repeated

Array = NDArray[Any]
LEAST = 24
"""Records for which arrays pay."""
_RESERVED = PropertyNames(names.RESERVED)
_KEYS = names.KEYS + names.VALUE
_LENGTH = 2
"""Bytes of the length of properties."""


class Incoming:
    """The parts of messages: body, key with its separator, and properties that were headers."""

    def __init__(self, records: Packed, keys: Column, heads: Column, uniques: Array) -> None:
        content, rows = records.content, records.rows
        body_at, body_end = content.value_at[rows], content.value_end[rows]
        self._bodies, self._body_bytes = ranges(content.data, body_at, body_end), body_end - body_at
        self._keys, self._heads, self._prefix = keys, heads, records.prefix
        self._passed, self._own = records.passed[0], WIDTH + len(names.path_of(*records.passed))
        self._parts = BoundParts(content.offsets[rows], content.stamps[rows], self._body_bytes, uniques)
        self._keyed = content.key_at[rows] >= 0
        key_bytes = content.key_end[rows] - content.key_at[rows] + len(_KEYS) + 1
        self._more = content.head_end[rows] - content.head_at[rows] + np.where(self._keyed, key_bytes, 0)

    @property
    def fits(self) -> bool:
        """Whether no message can have too many bytes of properties."""
        return int(self._more.max()) + self._own <= properties.MOST_SENT

    def batches(self, most: int, binding: Binding) -> Iterator[MessageBatch]:
        """Batches of at most about ``most`` bytes, or of one message, for this queue."""
        sizes = self._body_bytes + self._more + batch.size_of(0, self._own)
        return map(partial(self._batch, binding), cuts(sizes, most))

    def _batch(self, binding: Binding, rows: slice) -> MessageBatch:
        parts, count = self._parts.cut(rows), rows.stop - rows.start
        stamps, born = parts.stamps, int(parts.stamps[0])
        tags = tails(binding, self._passed, self._prefix, born, parts)
        width = tags.shape[1] - np.where(stamps == born, TIME_BYTES, 0)
        start, more = np.arange(count) * tags.shape[1], self._more[rows] + width
        heads = np.zeros((count, 5), ">i4")  # size, 0, 0, flag, length of the body
        heads[:, 0], heads[:, 4] = batch.size_of(0, 0) + self._body_bytes[rows] + more, self._body_bytes[rows]
        lengths = np.empty((count, _LENGTH + len(_KEYS)), np.uint8)
        lengths[:, 0], lengths[:, 1], lengths[:, _LENGTH:] = more >> 8, more & 0xFF, np.frombuffer(_KEYS, np.uint8)
        mask = np.ones(lengths.shape, bool)
        mask[:, _LENGTH:] = self._keyed[rows, None]
        middles = split(lengths[mask], np.concatenate(([0], np.cumsum(mask.sum(axis=1)))))
        columns = (
            rows_of(heads),
            self._bodies[rows],
            middles,
            self._keys[rows],
            self._heads[rows],
            ranges(tags, start, start + width),
        )
        return MessageBatch(count, born, 0, joined(columns))


def incoming(records: Packed) -> Incoming | None:
    """The messages for records of a copy; None if not all have the usual form."""
    content, rows = records.content, records.rows
    usual = len(records.offsets) >= LEAST and len(records.passed) == 1 and _is_text(records.passed[0], 0, 0)
    if not usual or content.value_at[rows].min() < 0 or not datable(content.stamps[rows]):
        return None
    keys = _keys(records)
    heads = None if keys is None else _heads(records)
    if keys is None or heads is None:
        return None
    messages = Incoming(records, keys, *heads)
    return messages if messages.fits else None


def _keys(records: Packed) -> Column | None:
    """Each key with a separator, or nothing for null; None if one is empty or not text."""
    content, rows = records.content, records.rows
    at, end = content.key_at[rows], content.key_end[rows]
    given = at >= 0
    if (at == end)[given].any():
        return None
    if not given.any():
        return ranges(b"", at, end)
    low, high = int(at[given].min()), int(end.max()) + 1
    raw = np.zeros(high - low, np.uint8)
    raw[:-1] = np.frombuffer(content.data, np.uint8, high - low - 1, low)
    raw[end[given] - low] = names.NEXT[0]
    keys = ranges(raw, np.where(given, at - low, -1), end + 1 - low)
    return keys if _is_text(bytes(whole(keys)), 0, int(given.sum())) else None


def _heads(records: Packed) -> tuple[Column, Array] | None:
    """The properties for the headers of each record, and `BoundParts.uniques`; None if not all can be properties."""
    content, rows = records.content, records.rows
    edges = np.concatenate(([0], np.cumsum(content.counts)))
    first = edges[rows.start : rows.stop + 1]
    some = slice(int(first[0]), int(first[-1]))
    names_at, values_at = content.names_at[some], content.values_at[some]
    at, end = content.head_at[rows], content.head_end[rows]
    if not len(names_at):
        return ranges(b"", np.full(len(at), -1), end), np.zeros(len(at), np.uint64)
    low, high = int(at[0]), int(end[-1]) + 1
    names_at, values_at, at, end = names_at - low, values_at - low, at - low, end - low
    padded = np.zeros(high - low + 2 * WORD, np.uint8)
    raw = padded[WORD:-WORD]
    raw[:] = np.frombuffer(content.heads, np.uint8, high - low, low)
    raw[names_at], raw[values_at] = names.NEXT[0], names.VALUE[0]
    given = content.counts[rows] > 0
    raw[end[given]] = names.NEXT[0]
    column = ranges(raw, np.where(given, at + 1, -1), end + 1)
    text = bytes(whole(column))
    if names.TRANSIENT in text or not _is_text(text, len(names_at), len(names_at)):
        return None
    if (names_at + 1 == values_at).any():
        return None
    titles, first = titles_in(padded, names_at + 1, values_at), first - first[0]
    if _RESERVED.has(titles).any() or (content.counts[rows].max() > 1 and repeated(titles, first)):
        return None
    return column, _uniques(padded, titles.hashes, first, values_at, np.append(names_at[1:], end[-1]), end)


def _uniques(padded: Array, titles: Array, first: Array, values_at: Array, following: Array, end: Array) -> Array:
    """The hash of UNIQ_KEY of each record. ``following``: the place of the header after each header. The header after
    the last one of a record belongs to another record; the last header of a record ends at ``end``."""
    hashes = np.zeros(len(end), np.uint64)
    if len(at := np.flatnonzero(titles == np.uint64(hash_of(names.UNIQUE)))):
        record = np.searchsorted(first, at, side="right") - 1
        last = np.where(at + 1 == first[record + 1], end[record], following[at])
        hashes[record] = titles_in(padded, values_at[at] + 1, last).hashes
    return hashes


def _is_text(raw: bytes, values: int, ends: int) -> bool:
    """Whether this is UTF-8 with these numbers of separators."""
    if raw.count(names.VALUE) != values or raw.count(names.NEXT) != ends:
        return False
    try:
        return raw.isascii() or bool(raw.decode())
    except UnicodeDecodeError:
        return False
