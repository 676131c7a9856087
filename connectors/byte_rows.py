"""Bytes of many rows at once: ranges of a buffer, rows of an array, columns put together, and rows in requests."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def cuts(sizes: Array, most: int) -> Iterator[slice]:
    """Consecutive rows of together at most ``most``, or one row that is larger. ``sizes``: of each row."""
    until, at = np.cumsum(sizes), 0
    while at < len(until):
        limit = (until[at - 1] if at else 0) + most
        last = max(at + 1, int(np.searchsorted(until, limit, side="right")))
        yield slice(at, last)
        at = last


def rows_of(made: Array) -> list[bytes]:
    """The bytes of each row of a two-dimensional array."""
    found: list[bytes] = np.ascontiguousarray(made).view(f"V{made.itemsize * made.shape[1]}")[:, 0].tolist()
    return found


def slices(data: bytes, starts: Array, ends: Array) -> list[bytes]:
    """Ranges of bytes."""
    return [data[at:end] for at, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def optional_slices(data: memoryview, starts: Array, ends: Array) -> list[bytes | None]:
    """Ranges of bytes; a negative start: None."""
    return [None if at < 0 else bytes(data[at:end]) for at, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def joined(columns: Sequence[Sequence[bytes]]) -> bytes:
    """The items of each row, one row after another. ``columns`` have the same number of rows."""
    found = [b""] * (len(columns) * len(columns[0]))
    for place, column in enumerate(columns):
        found[place :: len(columns)] = column
    return b"".join(found)
