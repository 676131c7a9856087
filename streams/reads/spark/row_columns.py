"""Messages that were parsed together to Arrow columns, without an object for each.

Columns of bytes are cut out of one buffer by Arrow: an array of ranges and of the gaps between them, of which every
second item is taken.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from trueup.connectors.pulsar.protocol.attributes import decoded
from trueup.connectors.pulsar.protocol.lockstep import Array
from trueup.connectors.pulsar.protocol.rows import Rows, Span

LAST_MS = ((1 << 63) - 1) // 1_000


def binary(data: pa.Buffer, span: Span) -> Any:
    """The bytes of these ranges; null for rows without."""
    count = len(span.there)
    bounds = np.stack([np.where(span.there, each, 0) for each in (span.starts, span.ends)], axis=1).reshape(-1)
    bounds = np.maximum.accumulate(bounds).astype(np.int32)
    ranges = pa.BinaryArray.from_buffers(pa.binary(), max(0, 2 * count - 1), [None, pa.py_buffer(bounds), data])
    every = pa.array(np.arange(0, 2 * count, 2), mask=None if span.there.all() else ~span.there)
    return ranges.take(every)


def times(ms: Array, kind: Any) -> Any:
    """Times in ms; 0 is none. Neither are times that Spark cannot represent."""
    return pa.array(ms * 1_000, kind, mask=(ms <= 0) | (ms > LAST_MS))


def values(rows: Rows) -> Any:
    """The column ``value`` as bytes."""
    return binary(pa.py_buffer(rows.data), rows.value)


def column(name: str, rows: Rows, kind: Any) -> Any:
    """One column of `BUILD`."""
    return BUILD[name](rows, kind)


def _keys(rows: Rows, kind: Any) -> Any:
    found = binary(pa.py_buffer(rows.data), rows.key)
    if not (rows.encoded & rows.key.there).any():
        return found
    pairs = zip(found.to_pylist(), rows.encoded.tolist(), strict=True)
    return pa.array([decoded(key) if encoded and key is not None else key for key, encoded in pairs], kind)


def _producers(rows: Rows, kind: Any) -> Any:
    found = binary(pa.py_buffer(rows.data), rows.producer)
    try:
        names = found.cast(kind)
    except pa.ArrowInvalid:  # not UTF-8
        names = pa.array([one.decode(errors="replace") for one in found.to_pylist()], kind)
    return names.take(pa.array(rows.at))


def _no_properties(rows: Rows, kind: Any) -> Any:
    nothing = (pa.array([], one) for one in (kind.key_type, kind.item_type))
    return pa.MapArray.from_arrays(pa.array(np.zeros(len(rows.at) + 1, np.int32)), *nothing, type=kind)


BUILD: dict[str, Callable[[Rows, Any], Any]] = {
    "entry": lambda rows, kind: pa.array(rows.entry, kind),
    "batch_index": lambda rows, kind: pa.array(rows.batch_index.astype(np.int32), kind),
    "sequence": lambda rows, kind: pa.array(rows.sequence, kind),
    "publish_time": lambda rows, kind: times(rows.publish_ms, kind),
    "event_time": lambda rows, kind: times(rows.event_ms, kind),
    "encrypted": lambda rows, kind: pa.array(np.zeros(len(rows.at), bool), kind),
    "key": _keys,
    "ordering_key": lambda rows, _: binary(pa.py_buffer(rows.data), rows.ordering_key),
    "value": lambda rows, _: values(rows),
    "producer": _producers,
    "properties": _no_properties,
    "schema_version": lambda rows, _: binary(pa.py_buffer(rows.data), rows.schema_version).take(pa.array(rows.at)),
}
