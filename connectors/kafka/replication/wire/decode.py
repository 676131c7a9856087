"""Records of Kafka's batches as records of `connectors.replication.ports`."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.connectors.byte_rows import optional_slices
from trueup.connectors.kafka.protocol.record_batch import APPEND_TIME, Header
from trueup.connectors.kafka.protocol.records import Records, parsed
from trueup.connectors.kafka.protocol.reencode import varint
from trueup.connectors.replication.headers import MARK
from trueup.connectors.replication.packed import MARK_BYTES, SHORT, Content, Earlier, Packed
from trueup.connectors.replication.ports import Columns
from trueup.state.replication.provenance import HEADER

Array = NDArray[Any]
_OURS = HEADER.encode(), MARK.encode()
_ASCII = 128
_PATHS = 16
"""Maximum number of different paths of earlier copies in one response of the form of arrays."""
LEAST = 16
"""Fewer records are read one by one: calls of numpy cost more than they save."""


def decoded(batches: Sequence[tuple[Header, memoryview]], where: str, first: int = 0) -> tuple[Columns, str]:
    """The records of batches (`records.parsed`) from offset ``first`` on, and why the last of them cannot be copied;
    empty: it can. There may be fewer records than the batches have: they end with one that has a name of a header that
    is not text.

    Raises `BadBytes`.
    """
    if sum(header.records for header, _ in batches) < LEAST:
        rows = [row for row in _few(batches) if row[0] >= first]
        if rows:
            return Columns(*zip(*rows, strict=True)), ""
    records = parsed(batches, where)
    start = int(np.searchsorted(records.offsets, first))
    if (content := _content(records)) is not None:
        return Packed(content, slice(start, len(records))), ""
    return _columns(records, start)


def _few(batches: Sequence[tuple[Header, memoryview]]) -> list[tuple[int, Any, Any, int, Any]]:
    """The rows of a few records; none if there is anything unusual, which `parsed` reports."""
    rows, last = list[tuple[int, Any, Any, int, Any]](), -1
    try:
        for header, body in batches:
            at, own = 0, header.attributes & APPEND_TIME
            for _ in range(header.records):
                size, start = varint(body, at)
                at = start + size
                time, delta, key, value, headers, end = _record(body, start + 1)
                offset = header.offset + delta
                if end != at or delta < 0 or offset <= last:
                    return []
                last = offset
                rows.append((offset, key, value, header.last_ms if own else header.first_ms + time, headers))
            if at != len(body):
                return []
    except (IndexError, UnicodeDecodeError):
        return []
    return rows


def _record(body: memoryview, at: int) -> tuple[int, int, Any, Any, list[tuple[str, Any]], int]:
    """Time, offset, key, value and headers of a record after its attributes, and its end. Raises `IndexError`."""
    time, at = varint(body, at)
    delta, at = varint(body, at)
    key, at = _bytes(body, at)
    value, at = _bytes(body, at)
    count, at = varint(body, at)
    if count < 0:
        raise IndexError
    headers = list[tuple[str, Any]]()
    for _ in range(count):
        name, at = _bytes(body, at)
        content, at = _bytes(body, at)
        if name is None:
            raise IndexError
        headers.append((str(name, "utf-8"), content))
    return time, delta, key, value, headers, at


def _bytes(body: memoryview, at: int) -> tuple[bytes | None, int]:
    size, at = varint(body, at)
    end = at + max(size, 0)
    if size < -1 or end > len(body):
        raise IndexError
    return bytes(body[at:end]) if size >= 0 else None, end


class Copies(NamedTuple):
    """The headers of earlier copies: which of all headers they are, the records that have them, where they start, and
    each record's path, as in `Earlier`."""

    own: Array
    rows: Array
    at: Array
    number: Array
    paths: list[bytes]


def _content(records: Records) -> Content | None:
    """The records in the form of arrays; None: not all headers are short with a name in ASCII, or those of earlier
    copies are not the last ones of their records."""
    copies = _copies(records)
    if copies is None:
        return None
    headings, data, others = records.headings, records.data, ~copies.own
    counts, head_end, earlier = records.counts.copy(), records.end.copy(), None
    if len(copies.rows):
        counts[copies.rows] -= len(_OURS)
        head_end[copies.rows] = copies.at
        earlier = Earlier(copies.number, copies.paths, lambda: _columns(records, 0)[0])
    names, values = headings.name_end - headings.name_at, headings.value_end - headings.value_at
    names, values, values_at = names[others], values[others], headings.value_at[others]
    if (head_end - records.head_at).sum() != (names + values + 2).sum() or values_at.min(initial=0) < 0:
        return None
    if max(names.max(initial=0), values.max(initial=0)) >= SHORT:
        return None
    names_at = headings.name_at[others]
    if np.frombuffer(data, np.uint8)[ranges(names_at, names)].max(initial=0) >= _ASCII:
        return None
    return Content(
        records.offsets, records.stamps, data, records.key_at, records.key_end, records.value_at,
        records.value_end, data, records.head_at, head_end, counts, names_at - 1, values_at - 1, earlier,
        body_at=records.body_at if (records.head_at - records.count_at == 1).all() else None,
    )  # fmt: skip


def _copies(records: Records) -> Copies | None:
    """The headers of earlier copies; None: they are not the last two of their records, or have too many values."""
    headings, raw = records.headings, np.frombuffer(records.data, np.uint8)
    path, mark = (_alike(raw, headings.name_at, headings.name_end, name) for name in _OURS)
    at = np.flatnonzero(path)
    rows, start, end = headings.row[at], headings.value_at[at], headings.value_end[at]
    marked = mark & (headings.value_end - headings.value_at == MARK_BYTES)
    last = np.cumsum(records.counts) - 1
    if len(at) != mark.sum() or (at + 1 != last[rows]).any() or not marked[at + 1].all() or start.min(initial=0) < 0:
        return None
    number, paths, left = np.zeros(len(records), np.int64), [b""], np.arange(len(at))
    while len(left):
        if len(paths) == _PATHS:
            return None
        value = bytes(records.data[start[left[0]] : end[left[0]]])
        same = _alike(raw, start[left], end[left], value)
        number[rows[left[same]]] = len(paths)
        paths.append(value)
        left = left[~same]
    return Copies(path | mark, rows, headings.name_at[at] - 1, number, paths)


def _alike(raw: Array, starts: Array, ends: Array, value: bytes) -> Array:
    """Whether each of these ranges of bytes is ``value``."""
    found: Array = ends - starts == len(value)
    places = np.flatnonzero(found)
    same = raw[starts[places][:, None] + np.arange(len(value))] == np.frombuffer(value, np.uint8)
    found[places] = same.all(axis=1)
    return found


def ranges(starts: Array, lengths: Array) -> Array:
    """The places of some ranges, one range after another."""
    before = np.cumsum(lengths) - lengths
    found: Array = np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)
    return found


def _columns(records: Records, start: int) -> tuple[Columns, str]:
    """The records from row ``start`` on."""
    headings, data = records.headings, memoryview(records.data)
    places = zip(headings.name_at.tolist(), headings.name_end.tolist(), strict=True)
    known, pairs = dict[bytes, str](), list[tuple[str, bytes | None]]()
    values = optional_slices(data, headings.value_at, headings.value_end)
    stop, refused = len(records), ""
    for row, (at, end), value in zip(headings.row.tolist(), places, values, strict=True):
        raw = bytes(data[at:end])
        name = known.get(raw)
        if name is None:
            try:
                name = known[raw] = raw.decode()
            except UnicodeDecodeError as error:
                if row >= start:
                    stop, refused = row + 1, f"the name of a header is not text: {error}"
                    pairs += [("", None)] * (len(values) - len(pairs))
                    break
                name = ""
        pairs.append((name, value))
    edges = np.concatenate(([0], np.cumsum(records.counts))).tolist()
    headers = [pairs[first:last] for first, last in pairwise(edges)]
    keys = optional_slices(data, records.key_at, records.key_end)
    bodies = optional_slices(data, records.value_at, records.value_end)
    return Columns(records.offsets.tolist(), keys, bodies, records.stamps.tolist(), headers).cut(start, stop), refused
