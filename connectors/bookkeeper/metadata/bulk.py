"""Decodes ledger metadata, thousands of znodes at a time, with numpy over the received bytes.

Handles what BookKeeper writes: version 3, known fields in any order. All other rows (older versions, unknown fields,
damage) are decoded one by one, so that the result equals `metadata.decode` for each, at about a
tenth of its cost. Passwords are skipped and never copied.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np
import pyarrow as pa

from trueup.connectors.bookkeeper.metadata import metadata
from trueup.connectors.bookkeeper.metadata.metadata import SIZES, ZnodeSource
from trueup.connectors.bookkeeper.metadata.protobuf_columns import (
    NAME_BYTES,
    PAD,
    Array,
    MessagePieces,
    dictionary,
    in_order,
    varints,
    walk,
)
from trueup.connectors.byte_rows import indices
from trueup.connectors.protobuf import varint
from trueup.connectors.zookeeper.requests import Znodes
from trueup.state.bookkeeper.isolation import isolation_of
from trueup.state.bookkeeper.ledgers import Ledgers, concat, entries_of, row
from trueup.state.bookkeeper.observations import FragmentRecord, LedgerRecord, LedgerState, Observation
from trueup.state.common.arrays import spans
from trueup.state.common.errors import BadBytes

_HEAD = np.frombuffer(metadata.KEY + b"3\n", np.uint8)
_NONE = np.iinfo(np.int64).min
# Wire type of each known field of LedgerMetadataFormat; 9 for unknown fields.
_WIRE = np.full(32, 9, np.uint8)
_WIRE[[1, 2, 3, 4, 5, 7, 9, 10, 12]] = 0
_WIRE[[6, 8, 11]] = 2
_QUORUM, _ENSEMBLE, _LENGTH, _LAST, _STATE, _SEGMENT, _ACK, _CTIME, _CUSTOM = 1, 2, 3, 4, 5, 6, 9, 10, 11
_MEMBER, _FIRST, _KEY, _VALUE = 0x0A, 0x10, 0x0A, 0x12  # whole tags, inside segments and custom metadata


@dataclass(slots=True)
class LedgerBatch:
    """Ledgers decoded together, iterable as observations."""

    ledgers: Ledgers
    """One row for each ledger that was found, in the requested order."""
    ack: Array
    """The ack quorum of each row."""
    last_entry: Array
    """The last entry of each row; -1 if the ledger is not closed."""
    length: Array
    """The length of the ledger in each row; 0 if it is not closed."""
    first_entry: Array
    """The first entry of each fragment of these rows."""
    alone: dict[int, LedgerRecord]
    """The record of each row that was decoded separately, by row. Unreadable ledgers have state UNREADABLE."""
    gone: Array
    """The ids of ledgers that do not exist."""
    forbidden: Array
    """The ids of ledgers that may not be read."""
    _raw: bytes
    _custom: MessagePieces

    @property
    def unreadable(self) -> list[int]:
        """Ids of ledgers whose metadata is damaged."""
        return [r["ledger"] for r in self.alone.values() if r["state"] == LedgerState.UNREADABLE]

    @property
    def scalars(self) -> tuple[Array, ...]:
        """The columns with one number of each row, in the order of the fields of `LedgerRecord`."""
        rows = self.ledgers
        first = rows.ledger, rows.mzxid, rows.version, rows.ctime_ms, rows.seen_ms, rows.state, rows.ensemble
        return *first, rows.quorum, self.ack, self.last_entry, self.length

    def __len__(self) -> int:
        return len(self.ledgers)

    def __iter__(self) -> Iterator[Observation]:
        return map(Observation, repeat("ledgers"), keys(self.ledgers.ledger), self.records())

    def records(self) -> Iterator[LedgerRecord]:
        """A journal record for each row."""
        others = self._made()
        for at in range(len(self.ledgers)):
            yield self.alone[at] if at in self.alone else next(others)

    def _made(self) -> Iterator[LedgerRecord]:
        rows = self.ledgers
        codes, forms = self.customs()
        columns = [column.tolist() for column in (*self.scalars, rows.fragments, rows.starts[:-1], codes)]
        names = [rows.names[code] for code in rows.members.tolist()]
        firsts, entry = self.first_entry.tolist(), 0
        for at, values in enumerate(zip(*columns, strict=True)):
            ledger, mzxid, version, ctime, seen, state, size, quorum, ack, last, length, count, member, form = values
            if at in self.alone:
                entry += count
                continue
            fragments: list[FragmentRecord] = []
            for first in firsts[entry : entry + count]:
                fragments.append({"first_entry": first, "bookies": names[member : member + size]})
                member += size
            entry += count
            yield {
                "ledger": ledger,
                "mzxid": mzxid,
                "version": version,
                "ctime_ms": ctime,
                "seen_ms": seen,
                "state": state,
                "ensemble": size,
                "quorum": quorum,
                "ack_quorum": ack,
                "last_entry": last,
                "length": length,
                "fragments": fragments,
                "custom": forms[form],
                "error": "",
            }

    def customs(self) -> tuple[Array, list[dict[str, bytes]]]:
        """Custom metadata as one code per row, and the distinct values by code; the first is empty.

        Ledgers of one topic have equal custom metadata, so each distinct value is parsed once.
        """
        parts, codes = self._custom, np.zeros(len(self), np.int64)
        edges = np.flatnonzero(np.diff(parts.row, prepend=-1, append=-1))
        first, end = edges[:-1], edges[1:]
        whole = np.ones(len(first), bool)
        whole[np.searchsorted(first, _apart(parts), side="right") - 1] = False
        alike = _alike(self._raw, parts.at[first[whole]], (parts.at + parts.size)[end[whole] - 1])
        form = np.empty(len(first), np.int64)
        form[whole] = alike
        form[~whole] = alike.max(initial=-1) + 1 + np.arange(np.count_nonzero(~whole))
        codes[parts.row[first]] = form + 1
        shown = np.unique(form, return_index=True)[1]
        return codes, [{}, *map(self._parsed, first[shown].tolist(), end[shown].tolist())]

    def _parsed(self, first: int, end: int) -> dict[str, bytes]:
        """Parse these entries of custom metadata."""
        parts = self._custom
        spans = zip(parts.at[first:end].tolist(), parts.size[first:end].tolist(), strict=True)
        return dict(_pair(self._raw[at : at + size]) for at, size in spans)


def keys(ledgers: Array) -> list[bytes]:
    """Keys of records about these ledgers: the id, 8 bytes big-endian."""
    raw = ledgers.astype(">i8").tobytes()
    return [raw[at : at + 8] for at in range(0, len(raw), 8)]


def _apart(parts: MessagePieces) -> Array:
    """Entries that do not directly follow the previous one, apart from their own tag and length."""
    gap = parts.at[1:] - parts.at[:-1] - parts.size[:-1]
    usual = 2 + (parts.size[1:] >= 1 << 7) + (parts.size[1:] >= 1 << 14)
    same = parts.row[1:] == parts.row[:-1]
    breaks: Array = np.flatnonzero(same & (gap != usual)) + 1
    return breaks


def _alike(raw: bytes, starts: Array, ends: Array) -> Array:
    """Codes of these ordered, disjoint pieces: 0, 1, .. in order of the first appearance of each content."""
    if not len(starts):
        return np.zeros(0, np.int64)
    edges = np.stack([starts, ends], axis=1).ravel()
    every = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(edges) - 1, [None, pa.py_buffer(edges), pa.py_buffer(raw)]
    )
    pieces = every.take(indices(np.arange(0, len(edges), 2)))
    codes: Array = pieces.dictionary_encode().indices.to_numpy().astype(np.int64)
    return codes


def decode(
    ids: Array, znodes: Sequence[Znodes], path: Callable[[int], str], seen_ms: int, keep: Array | None = None
) -> LedgerBatch:
    """Decode the responses to a multi read of these ledgers.

    ``keep``: a bool for each row, true if it is to be decoded; all others count as not requested. ``path``: returns the
    path of a ledger's znode, for errors.
    """
    raw, at, size = _together(znodes)
    asked = np.ones(len(ids), bool) if keep is None else keep
    there = np.flatnonzero((size >= 0) & asked)
    ids_there, at, data_size = ids[there], at[there], size[there]
    buffer = np.concatenate([np.frombuffer(raw, np.uint8), PAD])
    mzxid, ctime, version = _stats(buffer, at + data_size)
    form = _Form(buffer, at, data_size)
    fields = form.read()
    ctime_ms = np.where(fields[_CTIME] == _NONE, ctime, fields[_CTIME])
    where = RowContext(raw, at, data_size, ids_there, mzxid, version, ctime, path, seen_ms)
    batch = _assemble(form, fields, where, ctime_ms)
    batch.gone = ids[(size == -101) & asked]
    batch.forbidden = ids[(size == -102) & asked]
    return batch


def mzxids(znodes: Sequence[Znodes]) -> Array:
    """The mzxid of each znode, -1 if it is absent: int64."""
    raw, at, size = _together(znodes)
    there = size >= 0
    out = np.full(len(size), -1, np.int64)
    out[there] = _stats(np.frombuffer(raw, np.uint8), at[there] + size[there])[0]
    return out


@dataclass(slots=True)
class RowContext:
    """The context for decoding single rows."""

    raw: bytes
    at: Array
    size: Array
    ledger: Array
    mzxid: Array
    version: Array
    ctime: Array
    path: Callable[[int], str]
    seen_ms: int

    def record(self, at: int) -> LedgerRecord:
        """The record of one row; it can be an unreadable one."""
        ledger, mzxid, version, ctime, start = (
            int(column[at]) for column in (self.ledger, self.mzxid, self.version, self.ctime, self.at)
        )
        where = ZnodeSource(ledger, self.path(ledger), mzxid, version, ctime, self.seen_ms)
        try:
            return metadata.decode(self.raw[start : start + int(self.size[at])], where)
        except BadBytes as error:
            return metadata.unreadable(where, error)


class _Form:
    """Parses all messages in parallel: the first field of each, then the second, and so on."""

    def __init__(self, buffer: Array, at: Array, size: Array) -> None:
        self.buffer, self.rows = buffer, len(at)
        self.ok = size > len(_HEAD)
        for place, byte in enumerate(_HEAD):
            self.ok &= buffer[np.where(self.ok, at + place, 0)] == byte
        self.at, self.size = at, size
        nothing = np.zeros(0, np.int64)
        self.segments = self.custom = self.members = MessagePieces(nothing, nothing, nothing)
        self.first = nothing

    def read(self) -> Array:
        """Scalars by field number, int64[13, rows], `_NONE` if absent; `ok` is false for rows to decode separately."""
        fields = np.full((13, self.rows), _NONE, np.int64)
        rows = np.flatnonzero(self.ok)
        size, start, whole = varints(self.buffer, self.at[rows] + len(_HEAD))
        end = start + size
        good = whole & (size >= 0) & (end <= self.at[rows] + self.size[rows])
        self.ok[rows[~good]] = False
        messages = MessagePieces(rows[good], start[good], size[good])
        pieces: dict[int, list[MessagePieces]] = {_SEGMENT: [], _CUSTOM: []}
        for live, tag, value, at, bad in walk(self.buffer, messages, _message_tags):
            self.ok[messages.row[live[bad]]] = False
            field = tag >> 3
            for number in np.flatnonzero(np.bincount(field[~bad])).tolist():
                some = (field == number) & ~bad
                owners = messages.row[live[some]]
                if number in pieces:
                    pieces[number].append(MessagePieces(owners, at[some], value[some]))
                elif _WIRE[number] == 0:
                    fields[number, owners] = value[some]
                    self.ok[owners[value[some] == _NONE]] = False  # present, but equal to the marker for absent
        self.segments, self.custom = (in_order(pieces[number]) for number in (_SEGMENT, _CUSTOM))
        self._read_segments()
        self._check_custom()
        return fields

    def _read_segments(self) -> None:
        parts, members = self.segments, []
        self.first = np.full(len(parts.row), _NONE, np.int64)
        owners = MessagePieces(np.arange(len(parts.row)), parts.at, parts.size)
        for live, tag, value, at, bad in walk(self.buffer, owners, _segment_tags):
            self.ok[parts.row[live[bad]]] = False
            is_member = (tag == _MEMBER) & ~bad
            members.append(MessagePieces(live[is_member], at[is_member], value[is_member]))
            is_first = (tag == _FIRST) & ~bad
            self.first[live[is_first]] = value[is_first]
        self.members = in_order(members)
        self.ok[parts.row[self.first == _NONE]] = False
        odd = (self.members.size > NAME_BYTES) | (self.buffer[self.members.at + self.members.size - 1] == 0)
        self.ok[parts.row[self.members.row[odd]]] = False

    def _check_custom(self) -> None:
        parts = self.custom
        owners = MessagePieces(np.arange(len(parts.row)), parts.at, parts.size)
        for live, _, _, _, bad in walk(self.buffer, owners, _custom_tags):
            self.ok[parts.row[live[bad]]] = False


def _assemble(form: _Form, fields: Array, where: RowContext, ctime_ms: Array) -> LedgerBatch:
    """Apply the rules of the builder, exclude rows that violate one, and assemble the columns."""
    ok, segments = form.ok, form.segments
    codes, names = dictionary(form.buffer, form.members)
    proper = np.array([metadata.valid_bookie(name) for name in names], bool)
    if not proper.all():
        ok[segments.row[form.members.row[~proper[codes]]]] = False
    fields[_ACK] = np.where(fields[_ACK] == _NONE, fields[_QUORUM], fields[_ACK])
    _check_rules(ok, fields, segments.row, form.first, np.bincount(form.members.row, minlength=len(segments.row)))
    closed = fields[_STATE] == LedgerState.CLOSED
    last = np.where(closed, np.where(fields[_LAST] == _NONE, 0, fields[_LAST]), -1)
    length = np.where(closed, fields[_LENGTH], 0)
    count = np.bincount(segments.row, minlength=form.rows)
    final = np.cumsum(count) - 1
    first = form.first
    entries = entries_of(closed & (count > 0), first[np.where(count > 0, final, 0)] if len(first) else last, last)
    mine = ok[segments.row]
    members = codes[mine[form.members.row]]
    if not ok.all():
        # In a damaged znode, bytes that look like a name may be anything, even a password.
        used, members = np.unique(members, return_inverse=True)
        names = tuple(names[code] for code in used.tolist())
    ledgers = Ledgers(
        ledger=where.ledger[ok],
        mzxid=where.mzxid[ok],
        ctime_ms=ctime_ms[ok],
        seen_ms=np.full(int(ok.sum()), where.seen_ms, np.int64),
        version=where.version[ok],
        fragments=count[ok].astype(np.uint32),
        ensemble=fields[_ENSEMBLE, ok].astype(np.uint16),
        quorum=fields[_QUORUM, ok].astype(np.uint16),
        acks=np.clip(fields[_ACK, ok], 0, fields[_QUORUM, ok]).astype(np.uint16),
        isolation=np.zeros(int(ok.sum()), np.uint32),
        state=fields[_STATE, ok].astype(np.uint8),
        entries=entries[ok],
        members=members.astype(np.uint32),
        names=names,
        isolations=("",),
    )
    renumbered = np.cumsum(ok) - 1
    custom = form.custom.take(ok[form.custom.row])
    custom.row = renumbered[custom.row]
    none = np.zeros(0, np.int64)
    batch = LedgerBatch(ledgers, fields[_ACK, ok], last[ok], length[ok], first[mine], {}, none, none, where.raw, custom)
    batch.ledgers = _isolated(batch)
    return batch if ok.all() else _with_alone(batch, ok, where)


def _isolated(batch: LedgerBatch) -> Ledgers:
    """The ledgers of a batch with the isolation groups of their custom metadata."""
    codes, forms = batch.customs()
    number: dict[str, int] = {}
    table = np.array([number.setdefault(isolation_of(custom), len(number)) for custom in forms], np.uint32)
    return replace(batch.ledgers, isolation=table[codes], isolations=tuple(number))


def _check_rules(ok: Array, fields: Array, owner: Array, first: Array, members: Array) -> None:
    """Required fields; ensemble >= write quorum >= ack quorum; fragments of one size in strictly rising order."""
    ensemble, quorum, ack = fields[_ENSEMBLE], fields[_QUORUM], fields[_ACK]
    ok &= (fields[_STATE] >= LedgerState.OPEN) & (fields[_STATE] <= LedgerState.CLOSED) & (fields[_LENGTH] != _NONE)
    ok &= (quorum >= SIZES.start) & (ensemble < SIZES.stop) & (ensemble >= quorum) & (quorum >= ack)
    ok &= ack >= -(2**31)
    count = np.bincount(owner, minlength=len(ok))
    ok &= count > 0
    ok[owner[members != ensemble[owner]]] = False
    later = owner[1:][(owner[1:] == owner[:-1]) & (first[1:] <= first[:-1])]
    ok[later] = False


def _with_alone(batch: LedgerBatch, ok: Array, where: RowContext) -> LedgerBatch:
    """Merge the rows that were decoded separately."""
    records = [where.record(at) for at in np.flatnonzero(~ok).tolist()]
    order = np.argsort(np.concatenate([np.flatnonzero(ok), np.flatnonzero(~ok)]), kind="stable")
    place = np.argsort(order)
    ledgers = concat([batch.ledgers, *map(_row, records)])
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(ledgers.fragments, dtype=np.int64)])
    first = _with(batch.first_entry, [f["first_entry"] for r in records for f in r["fragments"]])
    return LedgerBatch(
        ledgers.take(order),
        _with(batch.ack, [r["ack_quorum"] for r in records])[order],
        _with(batch.last_entry, [r["last_entry"] for r in records])[order],
        _with(batch.length, [r["length"] for r in records])[order],
        first[spans(starts[order], starts[order + 1])],
        {int(place[len(batch.ledgers) + at]): record for at, record in enumerate(records)},
        batch.gone,
        batch.forbidden,
        batch._raw,
        replace(batch._custom, row=place[batch._custom.row]),
    )


def _with(column: Array, more: list[int]) -> Array:
    return np.concatenate([column, np.array(more, np.int64)])


def _row(record: LedgerRecord) -> Ledgers:
    return row(
        record["ledger"],
        *[fragment["bookies"] for fragment in record["fragments"]],
        quorum=record["quorum"],
        acks=min(max(record["ack_quorum"], 0), record["quorum"]),
        isolation=isolation_of(record["custom"]),
        state=record["state"],
        mzxid=record["mzxid"],
        version=record["version"],
        ctime_ms=record["ctime_ms"],
        seen_ms=record["seen_ms"],
        entries=metadata.entries(record),
    )


def _message_tags(tag: Array) -> Array:
    return np.where(tag < 128, _WIRE[(tag >> 3) & 31], 9)


def _segment_tags(tag: Array) -> Array:
    return np.where(tag == _MEMBER, 2, np.where(tag == _FIRST, 0, 9))


def _custom_tags(tag: Array) -> Array:
    return np.where((tag == _KEY) | (tag == _VALUE), 2, 9)


def _stats(buffer: Array, at: Array) -> tuple[Array, Array, Array]:
    """mzxid, ctime and version of the stats at these offsets."""
    stat = buffer[at[:, None] + np.arange(8, 36)]

    def column(start: int, kind: str) -> Array:
        width = np.dtype(kind).itemsize
        values = np.ascontiguousarray(stat[:, start : start + width]).view(kind).ravel()
        return values.astype(values.dtype.newbyteorder("="))

    return column(0, ">i8"), column(8, ">i8"), column(24, ">i4")


def _together(parts: Sequence[Znodes]) -> tuple[bytes, Array, Array]:
    """All responses concatenated."""
    if len(parts) == 1:
        return parts[0].raw, parts[0].at, parts[0].size
    shift = np.concatenate([np.zeros(1, np.int64), np.cumsum([len(part.raw) for part in parts])])
    none = np.zeros(0, np.int64)
    at = np.concatenate([none, *(part.at + shift[n] for n, part in enumerate(parts))])
    return b"".join(part.raw for part in parts), at, np.concatenate([none, *(part.size for part in parts)])


def _pair(bits: bytes) -> tuple[str, bytes]:
    """Key and value of one entry of the custom metadata."""
    key = value = b""
    at = 0
    while at < len(bits):
        tag = bits[at]
        size, start = varint(bits, at + 1)
        at = start + size
        if tag == _KEY:
            key = bits[start:at]
        else:
            value = bits[start:at]
    return key.decode(errors="replace"), value
