"""The properties that each message of a copy has in addition, for many messages together."""

from binascii import b2a_base64
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.connectors.rocketmq.replication.records import names

Array = NDArray[Any]
_DIGITS = 13
_MILLENNIA = 10 ** (_DIGITS - 1), 10**_DIGITS
"""Times of birth whose text has `_DIGITS` digits: from 2001 to 2286."""
_LOW = 6
"""Digits that differ between messages of a response; the others rarely do."""
_BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_MARK = 22
"""Characters of a mark in base64, without the padding."""
_TIME = names.TIME + names.VALUE
TIME_BYTES = len(names.TIME) + _DIGITS + 2
"""Bytes of the time of birth, the last of these properties."""
_MARK_END = b"==" + names.NEXT
WIDTH = TIME_BYTES + len(names.MARKED) + _MARK + len(_MARK_END)
"""Bytes of the properties of a message besides the clusters passed."""


def datable(stamps: Array) -> bool:
    """Whether these times, in ms since 1970, have the usual number of digits."""
    return bool(stamps.min() >= _MILLENNIA[0] and stamps.max() < _MILLENNIA[1])


def tails(path: bytes, prefix: bytes, offsets: Array, stamps: Array) -> Array:
    """The properties of each message, one a row: the clusters passed, the mark (`headers.marks`), and the time of
    birth, which is `datable`."""
    before, between = path + names.MARKED, _MARK_END + _TIME
    form = before + bytes(_MARK) + between + bytes(_DIGITS) + names.NEXT
    made = np.empty((len(stamps), len(form)), np.uint8)
    made[:] = np.frombuffer(form, np.uint8)
    _put_marks(made[:, len(before) : len(before) + _MARK], prefix, offsets)
    _put_digits(made[:, -_DIGITS - 1 : -1], stamps)
    return made


def _put_marks(rows: Array, prefix: bytes, offsets: Array) -> None:
    """Base64 of a prefix of 8 bytes and a big-endian int64. Often only the last 4 bytes differ, of 6 characters."""
    offsets = offsets.astype(np.int64)
    high = offsets >> 32
    for value, chosen in _groups(high):
        text = b2a_base64(prefix + (value << 32).to_bytes(8, "big", signed=True), newline=False)[:_MARK]
        rows[chosen] = np.frombuffer(text, np.uint8)
    low = (offsets & 0xFFFF_FFFF).astype(np.uint32)
    for place, shift in enumerate((26, 20, 14, 8, 2)):
        rows[:, _MARK - 6 + place] = _BASE64[low >> np.uint32(shift) & np.uint32(63)]
    rows[:, -1] = _BASE64[low << np.uint32(4) & np.uint32(63)]


def _groups(values: Array) -> Iterator[tuple[int, Array | slice]]:
    """Each of the values, which are few, with its rows."""
    if int(values.min()) == int(values.max()):
        yield int(values[0]), slice(None)
    else:
        yield from ((value, values == value) for value in np.unique(values).tolist())


def _put_digits(rows: Array, stamps: Array) -> None:
    """The decimal digits of numbers with as many of them as there are columns."""
    high, low = np.divmod(stamps.astype(np.int64), 10**_LOW)
    for value, chosen in _groups(high):
        rows[chosen, :-_LOW] = np.frombuffer(b"%d" % value, np.uint8)
    left = low.astype(np.uint32)
    for place in range(1, _LOW + 1):
        following = left // np.uint32(10)
        rows[:, -place] = left - following * np.uint32(10) + np.uint32(ord("0"))
        left = following
