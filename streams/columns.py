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
from numpy.typing import NDArray

from connectors.bookkeeper.bulk import Batch
from state.ledgers import spans
from streams.codec import encode, schema_text

Array = NDArray[Any]
FEW = 32
"""Records up to this number are encoded one by one: that costs less."""
_STRINGS = {"type": "array", "items": "string"}
_PLAIN = frozenset({"int", "long", "string", "strings"})


class Bodies:
    """Bodies under construction. ``tokens`` int64[n]: how many each of them has; those not set are the long 0."""

    def __init__(self, tokens: Array) -> None:
        self._ends = np.cumsum(tokens)
        self.starts = self._ends - tokens
        count = int(self._ends[-1]) if len(tokens) else 0
        self._value = np.zeros(count, np.uint64)
        self._size = np.zeros(count, np.int64)
        self._blobs: list[tuple[Array, Array, Array]] = []

    def longs(self, at: Array, values: Array) -> None:
        """Put longs at these tokens."""
        signed = values.astype(np.int64)
        self._value[at] = ((signed << 1) ^ (signed >> 63)).view(np.uint64)

    def blobs(self, at: Array, codes: Array, table: Sequence[bytes]) -> None:
        """Put ``table[code]`` at each of these tokens."""
        sizes = np.array([len(blob) for blob in table], np.int64)
        begin = (np.cumsum(sizes) - sizes)[codes]
        raw = np.frombuffer(b"".join(table), np.uint8)
        self._size[at] = sizes[codes]
        self._blobs.append((at, raw[spans(begin, begin + sizes[codes])], sizes[codes]))

    def bytes(self) -> list[bytes]:
        """The finished bodies."""
        whole = np.ones(len(self._size), bool)
        for at, _, _ in self._blobs:
            whole[at] = False
        longs = np.flatnonzero(whole)
        self._size[longs] = _varint_sizes(self._value[longs])
        ends = np.cumsum(self._size)
        places = ends - self._size
        out = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
        _write_varints(out, places[longs], self._value[longs])
        for at, content, sizes in self._blobs:
            out[spans(places[at], places[at] + sizes)] = content
        edges = np.concatenate([np.zeros(1, np.int64), ends])
        raw = out.tobytes()
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
    """`streams.codec.encode` of each of these."""
    fields = _flat(topic)
    if not fields or len(records) <= FEW:
        return [encode(topic, record) for record in records]
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


def ledger_bodies(batch: Batch) -> list[bytes]:
    """`streams.codec.encode` of each record of a batch, in the order of the fields of ledger.avsc."""
    rows, fragments = batch.ledgers, batch.ledgers.fragments.astype(np.int64)
    size = rows.ensemble.astype(np.int64)
    block = fragments * (size + 3)  # first entry, number of members, members, end
    some = fragments > 0
    made = Bodies(len(_SCALARS) + some + block + 3)  # number of fragments, block; end, custom metadata, error
    for place, column in enumerate((
        rows.ledger, rows.mzxid, rows.version, rows.ctime_ms, rows.seen_ms, rows.state, rows.ensemble, rows.quorum,
        batch.ack, batch.last_entry, batch.length,
    )):  # fmt: skip
        made.longs(made.starts + place, column)
    at = made.starts + len(_SCALARS)
    made.longs(at[some], fragments[some])
    owner = np.repeat(np.arange(len(rows)), fragments)
    fragment = np.arange(len(owner)) - np.repeat(np.cumsum(fragments) - fragments, fragments)
    begin = (at + some)[owner] + fragment * (size + 3)[owner]
    made.longs(begin, batch.first_entry)
    made.longs(begin + 1, size[owner])
    made.blobs(spans(begin + 2, begin + 2 + size[owner]), rows.members, [text(name) for name in rows.names])
    made.blobs(at + some + block + 1, *_customs(batch))
    bodies = made.bytes()
    for row, record in batch.alone.items():
        bodies[row] = encode("ledgers", record)
    return bodies


_SCALARS = range(11)


def _customs(batch: Batch) -> tuple[Array, list[bytes]]:
    """Custom metadata of each row as codes into a table of Avro maps."""
    table: dict[int, int] = {0: 0}
    made = [long(0)]
    codes = np.zeros(len(batch), np.int64)
    for row, custom in batch.custom().items():
        code = table.setdefault(id(custom), len(made))
        if code == len(made):
            pairs = [text(key) + blob(value) for key, value in custom.items()]
            made.append(b"".join([long(len(pairs)), *pairs, long(0)]) if pairs else long(0))
        codes[row] = code
    return codes, made


def _varint_sizes(values: Array) -> Array:
    sizes = np.ones(len(values), np.int64)
    live = np.flatnonzero(values > 0x7F)
    left = values[live] >> np.uint64(7)
    while len(live):
        sizes[live] += 1
        more = left > 0x7F
        live, left = live[more], left[more] >> np.uint64(7)
    return sizes


def _write_varints(out: Array, at: Array, values: Array) -> None:
    while len(at):
        more = values > 0x7F
        out[at] = (values & np.uint64(0x7F)).astype(np.uint8) | more.astype(np.uint8) << 7
        at, values = at[more] + 1, values[more] >> np.uint64(7)
