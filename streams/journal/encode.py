"""Avro bodies of many records at once, from columns (Avro specification, binary encoding).

A body is a row of tokens: longs (zigzag varints; an int is one too) and blobs (bytes made before, such as a string
with its length). Where the tokens of all rows begin follows from their sizes, so that numpy writes all of them in
step: about a quarter of what one record after the other costs.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trueup.streams.journal.codec import encode, schema_text

Array = NDArray[Any]
FEW = 32
"""Records up to this number are encoded one by one: that costs less."""
_STRINGS = {"type": "array", "items": "string"}
_BYTES = bytes(range(0x80))
_LONGER = np.uint64(1) << np.arange(7, 64, 7, dtype=np.uint64)  # from each of these on a varint is a byte longer
_PLAIN = frozenset({"int", "long", "string", "strings"})


class Bodies:
    """Bodies under construction. ``tokens`` int64[n]: how many each of them has; those not set are the long 0."""

    def __init__(self, tokens: Array) -> None:
        self._ends = np.cumsum(tokens)
        self.starts = self._ends - tokens
        count = int(self._ends[-1]) if len(tokens) else 0
        self._value = np.zeros(count, np.uint64)
        self._blobs: list[tuple[Array, Array, Sequence[bytes]]] = []

    def longs(self, at: Array, values: Array) -> None:
        """Put longs at these tokens."""
        signed = values.astype(np.int64)
        self._value[at] = ((signed << 1) ^ (signed >> 63)).view(np.uint64)

    def blobs(self, at: Array, codes: Array, table: Sequence[bytes]) -> None:
        """Put ``table[code]`` at each of these tokens."""
        self._blobs.append((at, codes, table))

    def bytes(self) -> list[bytes]:
        """The finished bodies."""
        # Every token is one of a pool: a byte that is a small long, a longer long, or an entry of a table.
        long = np.flatnonzero(self._value >= len(_BYTES))
        longs, long_sizes = _varints(self._value[long])
        code = self._value.view(np.int64)
        code[long] = np.arange(len(_BYTES), len(_BYTES) + len(long))
        pool, sizes = [_BYTES, longs], [np.ones(len(_BYTES), np.int64), long_sizes]
        taken = len(_BYTES) + len(long)
        for at, codes, table in self._blobs:
            code[at] = codes + taken
            pool += table
            sizes.append(np.fromiter(map(len, table), np.int64, len(table)))
            taken += len(table)
        raw, edges = _joined(b"".join(pool), np.concatenate(sizes), code)
        return [
            raw[start:end]
            for start, end in zip(edges[self.starts].tolist(), edges[self._ends].tolist(), strict=True)
        ]  # fmt: skip


def text(value: str) -> bytes:
    """A string with its length."""
    return blob(value.encode())


def blob(value: bytes) -> bytes:
    """Bytes with their length."""
    return long(len(value)) + value


def long(value: int) -> bytes:
    """One long."""
    left, out = value << 1 if value >= 0 else ~(value << 1), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((*out, left))


def texts(values: tuple[str, ...]) -> bytes:
    """An array of strings."""
    return b"".join([long(len(values)), *map(text, values), long(0)]) if values else long(0)


def coded(values: Sequence[Any] | Array, form: Callable[[Any], bytes] = text) -> tuple[Array, list[bytes]]:
    """Values as codes into a table of what ``form`` makes of each."""
    table = {value: code for code, value in enumerate(dict.fromkeys(values))}
    return np.fromiter((table[value] for value in values), np.int64, len(values)), [form(value) for value in table]


def encode_all(topic: str, records: Sequence[Any]) -> list[bytes]:
    """`streams.journal.codec.encode` of each of these: all of them mappings, or all named tuples."""
    fields = _flat(topic)
    if not fields or len(records) <= FEW:
        return [encode(topic, record) for record in records]
    if hasattr(records[0], "_fields"):
        return encode_columns(topic, dict(zip(records[0]._fields, zip(*records, strict=True), strict=True)))
    return encode_columns(topic, {name: [record[name] for record in records] for name, _ in fields})


def encode_columns(topic: str, columns: Mapping[str, Sequence[Any] | Array]) -> list[bytes]:
    """The same of records whose fields stand in columns. All of them are longs, strings and arrays of strings."""
    fields = _flat(topic)
    made = Bodies(np.full(len(columns[fields[0][0]]), len(fields)))
    for place, (name, kind) in enumerate(fields):
        if kind == "string":
            made.blobs(made.starts + place, *coded(columns[name]))
        elif kind == "strings":
            made.blobs(made.starts + place, *coded([tuple(value) for value in columns[name]], texts))
        else:
            made.longs(made.starts + place, np.asarray(columns[name], np.int64))
    return made.bytes()


@cache
def _flat(topic: str) -> list[tuple[str, str]]:
    """Name and type of each field, if all of them are longs, strings and arrays of strings."""
    told = [(field["name"], field["type"]) for field in json.loads(schema_text(topic))["fields"]]
    fields = [(name, "strings" if kind == _STRINGS else kind) for name, kind in told]
    return fields if all(isinstance(kind, str) and kind in _PLAIN for _, kind in fields) else []


def _joined(pool: bytes, sizes: Array, codes: Array) -> tuple[bytes, Array]:
    """These pieces of a pool one after the other, and where each begins and the last ends. ``sizes`` of all pieces."""
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    pieces = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(sizes), [None, pa.py_buffer(ends), pa.py_buffer(pool)]
    )
    _, edges, content = pieces.take(pa.array(codes)).buffers()
    raw = content.to_pybytes() if content is not None else b""
    return raw, np.frombuffer(edges, np.int64, len(codes) + 1)


def _varints(values: Array) -> tuple[bytes, Array]:
    """All of them, one after the other, and the size of each."""
    sizes = np.searchsorted(_LONGER, values, side="right") + 1
    ends = np.cumsum(sizes)
    out = np.zeros(int(sizes.sum()), np.uint8)
    at = ends - sizes
    while len(at):
        more = values > 0x7F
        out[at] = (values & np.uint64(0x7F)).astype(np.uint8) | more.astype(np.uint8) << 7
        at, values = at[more] + 1, values[more] >> np.uint64(7)
    return out.tobytes(), sizes
