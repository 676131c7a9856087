"""Records of Kafka's batches as records of `connectors.replication.ports`.

The path of a record is that of its batch (`kafka.replication.tags`). The headers of links are removed: applications
copy them. Those of a batch that no link wrote are counted.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.connectors.byte_rows import optional_slices
from trueup.connectors.kafka.protocol.record_batch import APPEND_TIME, BatchHeader
from trueup.connectors.kafka.protocol.records import Records, parsed
from trueup.connectors.kafka.protocol.varints import varint
from trueup.connectors.kafka.replication.tags import ordered
from trueup.connectors.replication.headers import MARK
from trueup.connectors.replication.packed import MARK_BYTES, SHORT, Content, EarlierHeaders, Packed
from trueup.connectors.replication.ports import Columns
from trueup.state.replication.provenance import HEADER

Array = NDArray[Any]
_OURS = HEADER.encode(), MARK.encode()
_NAMES = frozenset({HEADER, MARK})
_ASCII = 128
_PATHS = 16
"""Maximum number of different paths of earlier copies in one response of the form of arrays."""
LEAST = 16
"""Fewer records are read one by one: calls of numpy cost more than they save."""
Texts = Callable[[int], bytes]
"""The path of the records of a batch by its producer id; empty: no link wrote it (`tags.Paths.text`)."""
Given = Sequence[tuple[str, bytes | None]]


class DecodedRecords(NamedTuple):
    """The records of some batches."""

    columns: Columns
    refused: str = ""
    """Why the last of the records cannot be copied. Empty if all records can be copied."""
    foreign_tags: int = 0
    """The number of records that have headers of a link, but were not written by a link."""


def decoded(
    batches: Sequence[tuple[BatchHeader, memoryview]], where: str, texts: Texts, first: int = 0
) -> DecodedRecords:
    """The records of batches (`records.parsed`) from offset ``first`` on. There may be fewer records than the batches
    have: they end with one that has a name of a header that is not text.

    Raises `BadBytes`.
    """
    if sum(header.records for header, _ in batches) < LEAST:
        rows = [row for row in _few(batches, texts) if row[0] >= first]
        if rows:
            *columns, tags = zip(*rows, strict=True)
            return DecodedRecords(Columns(*columns), "", sum(tags))
    records, paths = parsed(batches, where), _Paths.of(batches, texts)
    start = int(np.searchsorted(records.offsets, first))
    if (parts := _content(records, paths)) is not None:
        content, foreign = parts
        return DecodedRecords(Packed(content, slice(start, len(records))), "", int(foreign[start:].sum()))
    return _columns(records, paths, start)


class _Paths(NamedTuple):
    """The path of each record."""

    number: Array
    """The place of the path of each record in ``texts``."""
    texts: list[bytes]
    """The different paths. The first one is empty."""

    @classmethod
    def of(cls, batches: Sequence[tuple[BatchHeader, memoryview]], texts: Texts) -> "_Paths":
        every = [texts(header.producer_id) for header, _ in batches]
        places = {text: at for at, text in enumerate(dict.fromkeys((b"", *every)))}
        numbers = np.array([places[text] for text in every], np.int64)
        return cls(np.repeat(numbers, [header.records for header, _ in batches]), list(places))


def _cleaned(headers: list[tuple[str, bytes | None]], text: bytes) -> tuple[Given, bool]:
    """The headers of a record with its path, and whether it has headers of a link that are not believed."""
    if not text and _NAMES.isdisjoint([name for name, _ in headers]):
        return headers, False
    kept = [header for header in headers if header[0] not in _NAMES]
    if not text:
        return kept, True
    given = next((value for name, value in headers if name == HEADER), None)
    return [*kept, (HEADER, ordered(text, given))], False


def _few(
    batches: Sequence[tuple[BatchHeader, memoryview]], texts: Texts
) -> list[tuple[int, Any, Any, int, Given, bool]]:
    """The rows of a few records, each with whether it has a foreign tag; none if there is anything unusual, which
    `parsed` reports."""
    rows, last = list[tuple[int, Any, Any, int, Given, bool]](), -1
    try:
        for header, body in batches:
            at, own, text = 0, header.attributes & APPEND_TIME, texts(header.producer_id)
            for _ in range(header.records):
                size, start = varint(body, at)
                at = start + size
                time, delta, key, value, headers, end = _record(body, start + 1)
                offset = header.offset + delta
                if end != at or delta < 0 or offset <= last:
                    return []
                last = offset
                stamp = header.last_ms if own else header.first_ms + time
                rows.append((offset, key, value, stamp, *_cleaned(headers, text)))
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


class _LinkHeaders(NamedTuple):
    """The headers of links in some records."""

    own: Array
    """For each header of the records, whether it is a header of a link."""
    rows: Array
    """The numbers of the records that have headers of links."""
    at: Array
    """The start of the headers of links in each of these records."""
    given: _Paths
    """The path of each record according to these headers."""


def _content(records: Records, paths: _Paths) -> tuple[Content, Array] | None:
    """The records in the form of arrays, and which of them have a foreign tag; None: not all headers are short with a
    name in ASCII, or those of links are not the last ones of their records."""
    own = _own_headers(records)
    if own is None:
        return None
    headings, data, others = records.headings, records.data, ~own.own
    counts, head_end, foreign = records.counts.copy(), records.end.copy(), np.zeros(len(records), bool)
    if len(own.rows):
        counts[own.rows] -= len(_OURS)
        head_end[own.rows] = own.at
        foreign[own.rows] = paths.number[own.rows] == 0
    earlier = None
    if len(paths.texts) > 1:
        number, texts = _believed(paths, own.given)
        earlier = EarlierHeaders(number, texts, lambda: _columns(records, paths, 0).columns)
    names, values = headings.name_end - headings.name_at, headings.value_end - headings.value_at
    names, values, values_at = names[others], values[others], headings.value_at[others]
    if (head_end - records.head_at).sum() != (names + values + 2).sum() or values_at.min(initial=0) < 0:
        return None
    if max(names.max(initial=0), values.max(initial=0)) >= SHORT:
        return None
    names_at = headings.name_at[others]
    if np.frombuffer(data, np.uint8)[ranges(names_at, names)].max(initial=0) >= _ASCII:
        return None
    content = Content(
        records.offsets,
        records.stamps,
        data,
        records.key_at,
        records.key_end,
        records.value_at,
        records.value_end,
        data,
        records.head_at,
        head_end,
        counts,
        names_at - 1,
        values_at - 1,
        earlier,
        body_at=records.body_at if (records.head_at - records.count_at == 1).all() else None,
    )
    return content, foreign


def _believed(paths: _Paths, given: _Paths) -> _Paths:
    """The paths of the batches, in the order of the headers where these name the same clusters."""
    several = len(given.texts)
    pairs, number = np.unique(paths.number * several + given.number, return_inverse=True)
    texts = [ordered(paths.texts[pair // several], given.texts[pair % several]) for pair in pairs.tolist()]
    places = {text: at for at, text in enumerate(dict.fromkeys((b"", *texts)))}
    return _Paths(np.array([places[text] for text in texts], np.int64)[number], list(places))


def _own_headers(records: Records) -> _LinkHeaders | None:
    """The headers of links; None: they are not the last two of their records, or have too many values."""
    headings, raw = records.headings, np.frombuffer(records.data, np.uint8)
    path, mark = (_alike(raw, headings.name_at, headings.name_end, name) for name in _OURS)
    at = np.flatnonzero(path)
    rows, start, end = headings.row[at], headings.value_at[at], headings.value_end[at]
    marked = mark & (headings.value_end - headings.value_at == MARK_BYTES)
    last = np.cumsum(records.counts) - 1
    if len(at) != mark.sum() or (at + 1 != last[rows]).any() or not marked[at + 1].all() or start.min(initial=0) < 0:
        return None
    number, texts, left = np.zeros(len(records), np.int64), [b""], np.arange(len(at))
    while len(left):
        if len(texts) == _PATHS:
            return None
        value = bytes(records.data[start[left[0]] : end[left[0]]])
        same = _alike(raw, start[left], end[left], value)
        number[rows[left[same]]] = len(texts)
        texts.append(value)
        left = left[~same]
    return _LinkHeaders(path | mark, rows, headings.name_at[at] - 1, _Paths(number, texts))


def _alike(raw: Array, starts: Array, ends: Array, value: bytes) -> Array:
    """Whether each of these ranges of bytes is ``value``."""
    equal: Array = ends - starts == len(value)
    places = np.flatnonzero(equal)
    same = raw[starts[places][:, None] + np.arange(len(value))] == np.frombuffer(value, np.uint8)
    equal[places] = same.all(axis=1)
    return equal


def ranges(starts: Array, lengths: Array) -> Array:
    """The places of some ranges, one range after another."""
    before = np.cumsum(lengths) - lengths
    places: Array = np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)
    return places


def _columns(records: Records, paths: _Paths, start: int) -> DecodedRecords:
    """The records from row ``start`` on."""
    headings, data = records.headings, memoryview(records.data)
    places = zip(headings.name_at.tolist(), headings.name_end.tolist(), strict=True)
    names, pairs = dict[bytes, str](), list[tuple[str, bytes | None]]()
    values = optional_slices(data, headings.value_at, headings.value_end)
    stop, refused = len(records), ""
    for row, (at, end), value in zip(headings.row.tolist(), places, values, strict=True):
        if row >= stop:
            pairs += [("", None)] * (len(values) - len(pairs))
            break
        raw = bytes(data[at:end])
        name = names.get(raw)
        if name is None:
            try:
                name = names[raw] = raw.decode()
            except UnicodeDecodeError as error:
                name = raw.decode(errors="backslashreplace")  # for a dead letter
                if row >= start:
                    stop, refused = row + 1, f"the name of a header is not text: {error}"
        pairs.append((name, value))
    edges = np.concatenate(([0], np.cumsum(records.counts))).tolist()
    texts = map(paths.texts.__getitem__, paths.number.tolist())
    cleaned = [_cleaned(pairs[first:last], text) for (first, last), text in zip(pairwise(edges), texts, strict=True)]
    headers, foreign = [given for given, _ in cleaned], sum(tagged for _, tagged in cleaned[start:stop])
    keys = optional_slices(data, records.key_at, records.key_end)
    bodies = optional_slices(data, records.value_at, records.value_end)
    columns = Columns(records.offsets.tolist(), keys, bodies, records.stamps.tolist(), headers)
    return DecodedRecords(columns.cut(start, stop), refused, foreign)


def marks_in(batches: Sequence[tuple[BatchHeader, memoryview]], where: str) -> Iterable[tuple[bytes, int, int]]:
    """The marks in records that links wrote (`headers.mark_of`): prefix, source offset, and offset of the record.
    Raises `BadBytes`."""
    records = parsed(batches, where)
    headings, data = records.headings, memoryview(records.data)
    named = _alike(np.frombuffer(data, np.uint8), headings.name_at, headings.name_end, _OURS[1])
    marked = np.flatnonzero(named & (headings.value_end - headings.value_at == MARK_BYTES))
    offsets = records.offsets[headings.row[marked]].tolist()
    for at, offset in zip(headings.value_at[marked].tolist(), offsets, strict=True):
        yield bytes(data[at : at + 8]), int.from_bytes(data[at + 8 : at + MARK_BYTES], "big"), offset
