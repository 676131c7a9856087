"""The properties that each message of a copy has in addition, for many messages together."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.connectors.rocketmq.replication import names

Array = NDArray[Any]
_DIGITS = 13
_MILLENNIA = 10 ** (_DIGITS - 1), 10**_DIGITS
"""Times of birth whose text has `_DIGITS` digits: from 2001 to 2286."""
_POWERS = 10 ** np.arange(_DIGITS - 1, -1, -1)
_BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_TIME = names.TIME + names.VALUE
TIME_BYTES = len(names.TIME) + _DIGITS + 2
"""Bytes of the time of birth, the last of these properties."""
_MARK_END = b"==" + names.NEXT
WIDTH = TIME_BYTES + len(names.MARKED) + 22 + len(_MARK_END)
"""Bytes of the properties of a message besides the clusters passed."""


def datable(stamps: Array) -> bool:
    """Whether these times, in ms since 1970, have the usual number of digits."""
    return bool(stamps.min() >= _MILLENNIA[0] and stamps.max() < _MILLENNIA[1])


def tails(path: bytes, marks: Array, stamps: Array) -> Array:
    """The properties of each message, one a row: the clusters passed, the mark, and the time of birth. ``marks``: 16
    bytes a row."""
    digits = stamps[:, None] // _POWERS % 10 + ord("0")
    padded = np.zeros((len(stamps), 18), np.uint8)
    padded[:, :16] = marks
    text = _in_base64(padded)[:, :22]
    columns = [_same(path + names.MARKED), text, _same(_MARK_END + _TIME), digits, _same(names.NEXT)]
    return np.hstack([np.broadcast_to(each, (len(stamps), each.shape[-1])) for each in columns]).astype(np.uint8)


def _same(raw: bytes) -> Array:
    """A column with these bytes in every row."""
    return np.frombuffer(raw, np.uint8)


def _in_base64(raw: Array) -> Array:
    """The text of each row, whose length is a multiple of 3."""
    threes = raw.reshape(len(raw), -1, 3).astype(np.uint32)
    whole = threes[:, :, 0] << 16 | threes[:, :, 1] << 8 | threes[:, :, 2]
    found: Array = _BASE64[(whole[:, :, None] >> np.array([18, 12, 6, 0], np.uint32) & 63).reshape(len(raw), -1)]
    return found
