"""Bytes of many rows at once: columns of byte strings, put together row by row, and rows in requests.

A column is an Arrow array, so that no object exists for a row. Its bytes are copied once when it is made from ranges,
as an array of them and of the gaps between them, of which every second item is taken, and once when rows are put
together. Arrays are made from buffers: `pyarrow.array` and `pyarrow.scalar` import pandas, which takes 40 MB.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Array = NDArray[Any]
Bytes = bytes | bytearray | memoryview | Array
Column = Any
"""A `pyarrow.LargeBinaryArray` without nulls, unless another type was asked for."""
_TYPE = pa.large_binary()


def cuts(sizes: Array, most: int) -> Iterator[slice]:
    """Consecutive rows of together at most ``most``, or one row that is larger. ``sizes``: the size of each row."""
    until, at = np.cumsum(sizes), 0
    while at < len(until):
        limit = (until[at - 1] if at else 0) + most
        last = max(at + 1, int(np.searchsorted(until, limit, side="right")))
        yield slice(at, last)
        at = last


def column_of(parts: Sequence[bytes | None]) -> Column:
    """These parts; None: no bytes."""
    some = [part or b"" for part in parts]
    return split(b"".join(some), np.cumsum([0, *map(len, some)]))


def rows_of(array: Array) -> Column:
    """The bytes of each row of a two-dimensional array."""
    return split(np.ascontiguousarray(array), np.arange(len(array) + 1) * (array.itemsize * array.shape[1]))


def split(data: Bytes, edges: Array, kind: pa.DataType = _TYPE) -> Column:
    """Consecutive ranges of bytes: each ends where the next one starts. Nothing is copied.

    ``kind``: the type of the column. Raises `ValueError` if the ranges are not within the data: otherwise Arrow would
    read elsewhere.
    """
    raw, edges = pa.py_buffer(data), np.ascontiguousarray(edges, np.int64)
    if edges[0] < 0 or edges[-1] > raw.size or (edges[1:] < edges[:-1]).any():
        raise ValueError("ranges that do not follow one another within the data")
    if pa.types.is_binary(kind):
        edges = edges.astype(np.int32)
    return pa.Array.from_buffers(kind, len(edges) - 1, [None, pa.py_buffer(edges), raw])


def ranges(data: Bytes, starts: Array, ends: Array, kind: pa.DataType = _TYPE, *, nulls: bool = False) -> Column:
    """Ranges of bytes in their order; a negative start: no bytes, or null with ``nulls``. Raises `ValueError`, see
    `split`."""
    missing = starts < 0
    some = missing.any()
    if some:
        ends = np.maximum.accumulate(np.where(missing, 0, ends))
        starts = np.where(missing, ends, starts)
    edges = np.zeros(2 * len(starts) + 1, np.int64)
    edges[:-1:2], edges[1::2], edges[-1] = starts, ends, ends[-1] if len(ends) else 0
    every = indices(np.arange(0, 2 * len(starts), 2), missing if nulls and some else None)
    return split(data, edges, kind).take(every)


def indices(rows: Array, missing: Array | None = None) -> Any:
    """A `pyarrow.Int64Array` of these rows. ``missing``: a bool for each row, true if it is null."""
    present = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    content = pa.py_buffer(np.ascontiguousarray(rows, np.int64))
    return pa.Array.from_buffers(pa.int64(), len(rows), [present, content])


def joined(columns: Sequence[Column]) -> memoryview:
    """The items of each row, one row after another. ``columns`` have the same number of rows."""
    return whole(pc.binary_join_element_wise(*columns, column_of([b""])[0]))


def whole(column: Column) -> memoryview:
    """The bytes of all rows, one after another."""
    _, edges, raw = column.buffers()
    if not len(column) or raw is None:
        return memoryview(b"")
    first, last = np.frombuffer(edges, np.int64, len(column) + 1, 8 * column.offset)[[0, -1]].tolist()
    return memoryview(raw).cast("B")[first:last]


def optional_slices(data: memoryview, starts: Array, ends: Array) -> list[bytes | None]:
    """Ranges of bytes; a negative start: None."""
    return [None if at < 0 else bytes(data[at:end]) for at, end in zip(starts.tolist(), ends.tolist(), strict=True)]
