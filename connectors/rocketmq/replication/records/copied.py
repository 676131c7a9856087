"""The tags of copies (names.py), for many messages together."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.connectors.rocketmq.replication.records import names
from trueup.connectors.rocketmq.replication.records.binding import WORD, Binding, digest, unsigned

Array = NDArray[Any]
_DIGITS = 13
_MILLENNIA = 10 ** (_DIGITS - 1), 10**_DIGITS
"""Times of birth whose text has `_DIGITS` digits: from 2001 to 2286."""
_LOW = 6
"""Digits that differ between messages of a response; the others rarely do."""
_MARK = names.MARK_BYTES // 3 * 4
"""Characters of a mark and a digest in base64, which need no padding."""
_TIME = names.TIME + names.VALUE
TIME_BYTES = len(names.TIME) + _DIGITS + 2
"""Bytes of the time of birth, the last of these properties."""
WIDTH = TIME_BYTES + len(names.MARKED) + _MARK + len(names.NEXT)
"""Bytes of the properties of a message besides the clusters passed."""


def datable(stamps: Array) -> bool:
    """Whether these times, in ms since 1970, have the usual number of digits."""
    return bool(stamps.min() >= _MILLENNIA[0] and stamps.max() < _MILLENNIA[1])


class BoundParts(NamedTuple):
    """The parts of messages to which their tags are bound (`binding.digest`)."""

    offsets: Array
    """The source offsets."""
    stamps: Array
    """The times of birth of messages, or the timestamps of records of another system, in ms since 1970."""
    sizes: Array
    """The sizes of the bodies in bytes."""
    uniques: Array
    """The hashes of the property UNIQ_KEY (`block.hash_of`); 0 for a message without the property."""

    def cut(self, rows: slice) -> "BoundParts":
        """Some of the messages."""
        return BoundParts(*(part[rows] for part in self))


def tails(binding: Binding, passed: bytes, prefix: bytes, born: int, parts: BoundParts) -> Array:
    """The tag of each message, one a row: the clusters passed, the mark (`headers.marks`) with the digest, and the time
    of birth, which is `datable`."""
    before, between = names.path_of(passed) + names.MARKED, names.NEXT + _TIME
    form = before + bytes(_MARK) + between + bytes(_DIGITS) + names.NEXT
    rows = np.empty((len(parts.stamps), len(form)), np.uint8)
    rows[:] = np.frombuffer(form, np.uint8)
    rows[:, len(before) : len(before) + _MARK] = _marks(binding.seed(passed, prefix), prefix, born, parts)
    _put_digits(rows[:, -_DIGITS - 1 : -1], parts.stamps)
    return rows


def _marks(seed: int, prefix: bytes, born: int, parts: BoundParts) -> Array:
    """The characters of the marks with their digests: prefix, source offset and digest have 8 bytes each."""
    offsets, stamps, sizes = map(unsigned, parts[:3])
    raw = np.empty((len(offsets), names.MARK_BYTES // WORD), ">u8")
    raw[:, 0], raw[:, 1] = int.from_bytes(prefix, "big"), offsets
    raw[:, 2] = digest(seed, born, offsets, stamps, sizes, parts.uniques)
    return np.frombuffer(names.to_base64(raw.tobytes()), np.uint8).reshape(-1, _MARK)


def _groups(values: Array) -> Iterator[tuple[int, Array | slice]]:
    """Each of the values, which are few, with its rows."""
    if int(values.min()) == int(values.max()):
        yield int(values[0]), slice(None)
    else:
        yield from ((value, values == value) for value in np.unique(values).tolist())


def _put_digits(rows: Array, stamps: Array) -> None:
    """The decimal digits of numbers with as many of them as there are columns."""
    high, low = np.divmod(stamps.astype(np.int64), 10**_LOW)
    for value, members in _groups(high):
        rows[members, :-_LOW] = np.frombuffer(b"%d" % value, np.uint8)
    left = low.astype(np.uint32)
    for place in range(1, _LOW + 1):
        following = left // np.uint32(10)
        rows[:, -place] = left - following * np.uint32(10) + np.uint32(ord("0"))
        left = following
