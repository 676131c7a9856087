"""Stored messages of one response as arrays, if all of them have the usual form.

The usual form: hosts of 4 bytes, a topic of at most 127 bytes, no batches that are stored as one message, properties of
which each has a name, a value and a separator at its end. Everything else, also damage, is left to `stored.decode`,
which takes three times as long for each message.
"""

import struct
from collections.abc import Iterable
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from trueup.connectors.byte_rows import ranges, whole
from trueup.connectors.rocketmq.protocol import flags
from trueup.connectors.rocketmq.protocol.stored import CRC_BITS, SHORTEST

Array = NDArray[Any]
LEAST = 32
"""Messages for which arrays pay."""
_HEAD = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">i4"),
        ("crc", ">u4"),
        ("queue", ">i4"),
        ("flag", ">i4"),
        ("offset", ">i8"),
        ("physical", ">i8"),
        ("sys", ">i4"),
        ("born", ">i8"),
        ("born_host", "V8"),
        ("stored", ">i8"),
        ("stored_host", "V8"),
        ("deliveries", ">i4"),
        ("prepared", ">i8"),
        ("length", ">i4"),
    ]
)
"""The bytes of a message before its body."""
_BYTES = np.dtype((np.void, _HEAD.itemsize))
_SIZE = struct.Struct(">i")
_UNUSUAL = flags.BORN_IN_V6 | flags.STORED_IN_V6 | flags.INNER_BATCH
_VALUE, _NEXT = 1, 2
WORD, _FACTOR = 8, np.uint64(0x9E37_79B9_7F4A_7C15)
SURE = 2 * WORD
"""Bytes of a name that `NumericNames` has whole."""


class Block:
    """Messages in the order of their bytes, as arrays.

    ``data``, ``offsets``, ``stored``, ``born``, ``sys`` and ``flags``: see the fields of `stored.StoredMessages`.
    ``places``: the offsets as a big-endian array. ``body_at`` and ``body_end``: the start and end of each body in
    ``data``. ``more_at`` and ``more_end``: the start and end of the properties of each message in ``data``.
    """

    def __init__(self, data: memoryview, head: Array, starts: Array, more_at: Array, more_end: Array) -> None:
        self.data = data
        self.offsets: list[int] = head["offset"].tolist()
        self.stored: list[int] = head["stored"].tolist()
        self.places, self.born = head["offset"], head["born"].astype(np.int64)
        self.sys, self.flags = head["sys"], head["flag"]
        self.body_at = starts + _HEAD.itemsize
        self.body_end = self.body_at + head["length"]
        self.more_at, self.more_end = more_at, more_end

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def bodies(self) -> list[bytes]:
        """The bodies as they are stored."""
        return [bytes(self.data[at:end]) for at, end in zip(self.body_at.tolist(), self.body_end.tolist(), strict=True)]


def scan(data: memoryview) -> Block | None:
    """The messages in these bytes; None if one has another form, is damaged, or there are few."""
    starts = _starts(data)
    if len(starts) < LEAST:
        return None
    raw, at = np.frombuffer(data, np.uint8), np.array(starts)
    head = np.ndarray((len(data) - _HEAD.itemsize,), _BYTES, data, strides=(1,))[at].view(_HEAD)
    body_at, end = at + _HEAD.itemsize, at + head["size"]
    body_end = body_at + head["length"]
    usual = (head["magic"] == flags.MAGIC_1) & (head["sys"] & _UNUSUAL == 0) & (head["length"] >= 0)
    if not (usual & (body_end + 3 <= end)).all():
        return None
    topic = raw[body_end].astype(np.int64)
    more_at = body_end + 3 + topic
    if not ((topic > 0) & (more_at <= end)).all():
        return None
    more = raw[more_at - 2].astype(np.int64) << 8 | raw[more_at - 1]
    if not ((more < 1 << 15) & (more_at + more <= end)).all():
        return None
    block = Block(data, head, at, more_at, more_at + more)
    return block if _match(block, head["crc"]) else None


def _starts(data: memoryview) -> list[int]:
    """Where messages start; none if one of them does not end within the data."""
    at, last, starts, size = 0, len(data) - SHORTEST, list[int](), _SIZE.unpack_from
    while at <= last:
        length = size(data, at)[0]
        if length < SHORTEST:
            return []
        starts.append(at)
        at += length
    return starts if at == len(data) else []


def _match(block: Block, checksums: Array) -> bool:
    """Whether all bodies match their CRC."""
    places = zip(block.body_at.tolist(), block.body_end.tolist(), strict=True)
    crcs = np.array([crc32(block.data[at:end]) for at, end in places], np.uint32)
    return not ((crcs ^ checksums) & CRC_BITS).any()


class NumericNames(NamedTuple):
    """Names of properties as numbers. The two words of a name of up to `SURE` bytes contain all bytes of the name."""

    first: Array
    """The first 8 bytes of each name as a little-endian word; the whole name if it has fewer than 8 bytes."""
    last: Array
    """The last 8 bytes of each name as a little-endian word; the whole name if it has fewer than 8 bytes."""
    length: Array
    """The length of each name in bytes."""
    hashes: Array
    """One number for each name, computed from both words and the length; see `hash_of`."""


def _titles(first: Array, last: Array, length: Array) -> NumericNames:
    return NumericNames(first, last, length, (first ^ last * _FACTOR) * _FACTOR ^ length)


def hash_of(text: bytes) -> int:
    """The number of `NumericNames.hashes` for one text."""
    first, last = int.from_bytes(text[:WORD], "little"), int.from_bytes(text[-WORD:], "little")
    return ((first ^ last * int(_FACTOR)) * int(_FACTOR) ^ len(text)) & (1 << 64) - 1


class PropertyNames:
    """A set of names of properties."""

    def __init__(self, names: Iterable[bytes]) -> None:
        ordered = sorted(names)
        words = [[int.from_bytes(part, "little") for part in (name[:WORD], name[-WORD:])] for name in ordered]
        first, last = np.array(words, np.uint64).T
        titles = _titles(first, last, np.array(list(map(len, ordered)), np.uint64))
        order = np.argsort(titles.hashes)
        self._known = NumericNames(*(part[order] for part in titles))

    def has(self, titles: NumericNames) -> Array:
        """Which of these are in the set. Names of more than `SURE` bytes may not be."""
        hashes = self._known.hashes
        at = np.minimum(np.searchsorted(hashes, titles.hashes), len(hashes) - 1)
        same = [column[at] == part for column, part in zip(self._known, titles, strict=True)]
        matches: Array = np.logical_and.reduce(same)
        return matches


class PropertyBlock:
    """The properties of messages.

    ``raw``: the bytes of all properties, one after another. ``first``: the place in ``raw`` at which the properties of
    each message start, and as last element the length of ``raw``. ``starts``, ``ends`` and ``lengths``: the start, the
    end and the length of each property with its separators. ``edges``: the number of properties before those of each
    message, and as last element the number of all properties. ``titles``: the names of the properties; None if not
    every property has a name, one separator, and a separator at its end.
    """

    @classmethod
    def of(cls, block: Block) -> "PropertyBlock":
        """The properties of the messages of a block."""
        more = ranges(block.data, block.more_at, block.more_end)
        return cls(bytes(whole(more)), block.more_end - block.more_at)

    def __init__(self, raw: bytes, sizes: Array) -> None:
        self.raw, self.titles = raw, None if raw else _titles(*np.zeros((3, 0), np.uint64))
        self.first = np.concatenate(([0], np.cumsum(sizes)))
        self._padded = padded = np.frombuffer(bytes(WORD) + raw + bytes(WORD), np.uint8)
        given = padded[WORD:-WORD]
        self.ends = np.flatnonzero(given == _NEXT) + 1
        self.starts = starts = np.concatenate(([0], self.ends[:-1]))[: len(self.ends)]
        values = np.flatnonzero(given == _VALUE)
        alike = len(raw) > 0 and len(values) == len(starts) and ((starts < values) & (values < self.ends)).all()
        if alike and ((sizes == 0) | (given[self.first[1:] - 1] == _NEXT)).all():
            self.titles = titles_in(padded, starts, values)
        self.lengths = self.ends - starts
        self.edges = np.searchsorted(self.ends, self.first, side="right")

    def hashes(self, name: bytes) -> Array:
        """A number for the value that the property with this name has in each message (`hash_of`), 0 without it. Asked
        only for properties with names."""
        hashes = np.zeros(len(self.first) - 1, np.uint64)
        assert self.titles is not None, "see above"
        at = np.flatnonzero(self.titles.hashes == np.uint64(hash_of(name)))
        if len(at):
            starts = self.starts[at]
            values = titles_in(self._padded, starts + len(name) + 1, self.ends[at] - 1)
            hashes[np.searchsorted(self.first, starts, side="right") - 1] = values.hashes
        return hashes

    def without(self, mask: Array) -> tuple[bytes, Array]:
        """The bytes without these properties, and ``first`` for these bytes."""
        if not mask.any():
            return self.raw, self.first
        left = np.frombuffer(self.raw, np.uint8)[np.repeat(~mask, self.lengths)]
        ends = np.concatenate(([0], np.cumsum(np.where(mask, 0, self.lengths))))
        return left.tobytes(), ends[self.edges]


def titles_in(padded: Array, starts: Array, ends: Array) -> NumericNames:
    """The names between these places. ``padded``: the bytes, with a word before them and one behind."""
    words = np.ndarray((len(padded) - WORD,), "<u8", padded, strides=(1,))
    length = (ends - starts).astype(np.uint64)
    bits = np.minimum(length, WORD).astype(np.uint64) * np.uint64(8)
    mask = np.where(bits == 64, ~np.uint64(0), (np.uint64(1) << bits % np.uint64(64)) - np.uint64(1))
    first = words[starts + WORD] & mask
    return _titles(first, np.where(bits == 64, words[ends], first), length)
