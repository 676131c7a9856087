"""Encodes many records at once as Avro bodies, from columns (Avro specification, binary encoding).

A body is a sequence of tokens: longs (zigzag varints, also for int) and blobs (encoded bytes, such as a string with its
length). The start of every token follows from the sizes, so that numpy writes all rows together, at about a quarter of
the cost of encoding record by record.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from trueup.state.common.arrays import Array
from trueup.streams.journal.codec import encode, schema_text

FEW = 32
"""Up to this number, records are encoded one by one, which is faster."""
_STRINGS = {"type": "array", "items": "string"}
_BYTES = bytes(range(0x80))
_LONGER = np.uint64(1) << np.arange(7, 64, 7, dtype=np.uint64)  # thresholds at which a varint is one byte longer
_PLAIN = frozenset({"int", "long", "string", "strings"})


class Field(NamedTuple):
    """A field of a record."""

    name: str
    kind: str
    optional: bool
    """Whether the field may be null."""


class BodyWriter:
    """Bodies under construction. ``tokens`` int64[n]: number of tokens per body; unset tokens are the long 0."""

    def __init__(self, tokens: Array) -> None:
        self._ends = np.cumsum(tokens)
        self.starts = self._ends - tokens
        count = int(self._ends[-1]) if len(tokens) else 0
        self._value = np.zeros(count, np.uint64)
        self._blobs: list[tuple[Array, Array, Sequence[bytes]]] = []

    def longs(self, at: Array, values: Array) -> None:
        """Set these tokens to longs."""
        signed = values.astype(np.int64)
        self._value[at] = ((signed << 1) ^ (signed >> 63)).view(np.uint64)

    def blobs(self, at: Array, codes: Array, table: Sequence[bytes]) -> None:
        """Set these tokens to ``table[code]``."""
        self._blobs.append((at, codes, table))

    def bytes(self) -> list[bytes]:
        """The finished bodies."""
        # Every token refers to a pool of one-byte longs, longer longs, and entries of tables.
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
            raw[start:end] for start, end in zip(edges[self.starts].tolist(), edges[self._ends].tolist(), strict=True)
        ]


def text(value: str) -> bytes:
    """The encoding of a string: length and bytes."""
    return blob(value.encode())


def blob(value: bytes) -> bytes:
    """The encoding of bytes: length and bytes."""
    return long(len(value)) + value


def long(value: int) -> bytes:
    """The encoding of a long."""
    left, out = value << 1 if value >= 0 else ~(value << 1), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((*out, left))


def texts(values: tuple[str, ...]) -> bytes:
    """The encoding of an array of strings."""
    return b"".join([long(len(values)), *map(text, values), long(0)]) if values else long(0)


def coded(values: Sequence[object] | Array, form: Callable[[Any], bytes] = text) -> tuple[Array, list[bytes]]:
    """Values as codes into a table of distinct values, each encoded by ``form``."""
    table = {value: code for code, value in enumerate(dict.fromkeys(values))}
    if len(table) == 1:  # as of most columns of text, such as the kind of an action
        codes = np.zeros(len(values), np.int64)
    else:
        codes = np.fromiter((table[value] for value in values), np.int64, len(values))
    return codes, [form(value) for value in table]


def encode_all(topic: str, records: Sequence[Any]) -> list[bytes]:
    """`streams.journal.codec.encode` for many records, which are all mappings or all named tuples."""
    fields = _flat(topic)
    if not fields or len(records) <= FEW:
        return [encode(topic, record) for record in records]
    if hasattr(records[0], "_fields"):
        return encode_columns(topic, dict(zip(records[0]._fields, zip(*records, strict=True), strict=True)))
    return encode_columns(topic, {field.name: [record[field.name] for record in records] for field in fields})


def encode_columns(topic: str, columns: Mapping[str, Sequence[object] | Array]) -> list[bytes]:
    """`encode_all` for records given as columns. All fields are longs, strings or arrays of strings, or one of these or
    null."""
    fields, count = _flat(topic), len(next(iter(columns.values())))
    # A field that may be null begins with its branch, 0 for null.
    some = {
        field.name: np.fromiter((value is not None for value in columns[field.name]), bool, count)
        for field in fields
        if field.optional
    }
    writer = BodyWriter(sum((1 + present for present in some.values()), np.full(count, len(fields) - len(some))))
    at = writer.starts
    for name, kind, optional in fields:
        places, values = at, columns[name]
        if optional:
            writer.longs(at, some[name])
            at = at + some[name]
            places, values = at[some[name]], [value for value in values if value is not None]
        _column(writer, places, kind, values)
        at = at + 1
    return writer.bytes()


def _column(writer: BodyWriter, at: Array, kind: str, values: Sequence[Any] | Array) -> None:
    """Set these tokens to values of a type without null."""
    if kind == "string":
        writer.blobs(at, *coded(values))
    elif kind == "strings":
        writer.blobs(at, *coded([tuple(value) for value in values], texts))
    else:
        writer.longs(at, np.asarray(values, np.int64))


@cache
def _flat(topic: str) -> list[Field]:
    """The fields, if all of them are longs, strings or arrays of strings, or one of these or null; else empty."""
    fields = []
    for declared in json.loads(schema_text(topic))["fields"]:
        kind = declared["type"]
        optional = isinstance(kind, list) and len(kind) == 2 and kind[0] == "null"
        kind = kind[1] if optional else kind
        fields.append(Field(declared["name"], "strings" if kind == _STRINGS else kind, optional))
    return fields if all(isinstance(field.kind, str) and field.kind in _PLAIN for field in fields) else []


def _joined(pool: bytes, sizes: Array, codes: Array) -> tuple[bytes, Array]:
    """The concatenation of these pieces of a pool, and their boundaries. ``sizes``: the size of each piece of the
    pool."""
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    pieces = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(sizes), [None, pa.py_buffer(ends), pa.py_buffer(pool)]
    )
    # pa.array would import pandas, which takes 40 MB.
    order = np.ascontiguousarray(codes, np.int64)
    taken = pieces.take(pa.Array.from_buffers(pa.int64(), len(order), [None, pa.py_buffer(order)]))
    _, edges, content = taken.buffers()
    raw = content.to_pybytes() if content is not None else b""
    return raw, np.frombuffer(edges, np.int64, len(codes) + 1)


def _varints(values: Array) -> tuple[bytes, Array]:
    """The varints of these values, concatenated, and their sizes."""
    sizes = np.searchsorted(_LONGER, values, side="right") + 1
    ends = np.cumsum(sizes)
    out = np.zeros(int(sizes.sum()), np.uint8)
    at = ends - sizes
    while len(at):
        more = values > 0x7F
        out[at] = (values & np.uint64(0x7F)).astype(np.uint8) | more.astype(np.uint8) << 7
        at, values = at[more] + 1, values[more] >> np.uint64(7)
    return out.tobytes(), sizes
