"""Messages that were parsed together to Arrow columns, without an object for each."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from trueup.connectors.byte_rows import ranges
from trueup.connectors.pulsar.protocol.attributes import decoded
from trueup.connectors.pulsar.protocol.lockstep import Array
from trueup.connectors.pulsar.protocol.rows import MessageRows, Span

LAST_MS = ((1 << 63) - 1) // 1_000


def binary(data: bytes, span: Span) -> pa.Array:
    """The bytes of these ranges; null for rows without."""
    return ranges(data, np.where(span.there, span.starts, -1), span.ends, pa.binary(), nulls=True)


def times(ms: Array, kind: pa.DataType) -> pa.Array:
    """Times in ms; 0 is none. Neither are times that Spark cannot represent."""
    return pa.array(ms * 1_000, kind, mask=(ms <= 0) | (ms > LAST_MS))


def values(rows: MessageRows) -> pa.Array:
    """The column ``value`` as bytes."""
    return binary(rows.data, rows.value)


def column(name: str, rows: MessageRows, kind: pa.DataType) -> pa.Array:
    """One column of `BUILD`."""
    return BUILD[name](rows, kind)


def _keys(rows: MessageRows, kind: pa.DataType) -> pa.Array:
    keys = binary(rows.data, rows.key)
    if not (rows.encoded & rows.key.there).any():
        return keys
    pairs = zip(keys.to_pylist(), rows.encoded.tolist(), strict=True)
    return pa.array([decoded(key) if encoded and key is not None else key for key, encoded in pairs], kind)


def _producers(rows: MessageRows, kind: pa.DataType) -> pa.Array:
    return _text(binary(rows.data, rows.producer), kind).take(pa.array(rows.at))


def _properties(rows: MessageRows, kind: pa.DataType) -> pa.Array:
    """Maps; of a repeated name the last value applies, as in Pulsar's client (MessageImpl.getProperties)."""
    at, names, values = rows.properties
    columns = binary(rows.data, names), binary(rows.data, values)
    if len(at) > len(np.unique(at)) and _repeated(at, columns[0]):
        return _unique(rows, columns, kind)
    bounds = np.searchsorted(at, np.arange(len(rows.at) + 1)).astype(np.int32)
    texts = (_text(array, text_type) for array, text_type in zip(columns, (kind.key_type, kind.item_type), strict=True))
    return pa.MapArray.from_arrays(pa.array(bounds), *texts, type=kind)


def _repeated(at: Array, names: pa.Array) -> bool:
    """Whether two properties of a message have one name."""
    different = names.dictionary_encode()
    ids = at * len(different.dictionary) + different.indices.to_numpy()
    return len(np.unique(ids)) < len(ids)


def _unique(rows: MessageRows, columns: tuple[pa.Array, pa.Array], kind: pa.DataType) -> pa.Array:
    maps: list[dict[bytes, bytes]] = [{} for _ in rows.at]
    for row, name, value in zip(rows.properties.rows.tolist(), *(array.to_pylist() for array in columns), strict=True):
        maps[row][name] = value
    shown = [[tuple(text.decode(errors="replace") for text in pair) for pair in pairs.items()] for pairs in maps]
    return pa.array(shown, kind)


def _text(array: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return array.cast(kind)
    except pa.ArrowInvalid:  # not UTF-8
        return pa.array([None if raw is None else raw.decode(errors="replace") for raw in array.to_pylist()], kind)


BUILD: dict[str, Callable[[MessageRows, pa.DataType], pa.Array]] = {
    "entry": lambda rows, kind: pa.array(rows.entry, kind),
    "batch_index": lambda rows, kind: pa.array(rows.batch_index.astype(np.int32), kind),
    "sequence": lambda rows, kind: pa.array(rows.sequence, kind),
    "publish_time": lambda rows, kind: times(rows.publish_ms, kind),
    "event_time": lambda rows, kind: times(rows.event_ms, kind),
    "encrypted": lambda rows, kind: pa.array(np.zeros(len(rows.at), bool), kind),
    "key": _keys,
    "ordering_key": lambda rows, _: binary(rows.data, rows.ordering_key),
    "value": lambda rows, _: values(rows),
    "producer": _producers,
    "properties": _properties,
    "schema_version": lambda rows, _: binary(rows.data, rows.schema_version).take(pa.array(rows.at)),
}
