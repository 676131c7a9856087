"""Ledgers in columns: 46 bytes for each ledger, and 2 or 4 bytes for each ensemble member.

A `Ledgers` is a set of rows; several rows of one ledger are its versions, and the newest wins. The serialized form is
self-contained (it includes the bookie names), so a state store can hold it as a blob and evolve it by the header.
"""

import struct
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.common.arrays import spans
from trueup.state.common.errors import BadBytes

Column = NDArray[Any]
_MAGIC, _FORM = b"TL", 3
MANY = 255
"""Value of ``entries``: this number or more, or not known."""
_HEAD = struct.Struct("<2sBBIIII")  # magic, form, bytes a member, rows, members, bytes of names and of isolations
_ROW = {
    "ledger": "<i8",
    "mzxid": "<i8",
    "ctime_ms": "<i8",
    "seen_ms": "<i8",
    "version": "<i4",
    "fragments": "<u4",
    "ensemble": "<u2",
    "quorum": "<u2",
    "acks": "<u2",
    "isolation": "<u4",
    "state": "u1",
    "entries": "u1",
}


@dataclass(frozen=True, slots=True, eq=False)
class Ledgers:
    """``n`` ledgers in columns. The members are listed fragment by fragment in ring order, as codes of bookies."""

    ledger: Column
    """int64: the id of the ledger."""
    mzxid: Column
    """int64: the zxid of the write that this row shows. The newest row of a ledger wins."""
    ctime_ms: Column
    """int64: when the ledger was created, ms since the epoch."""
    seen_ms: Column
    """int64: when the metadata of the ledger were read, ms since the epoch."""
    version: Column
    """int32: the version of the znode."""
    fragments: Column
    """uint32: the number of fragments, each of E members."""
    ensemble: Column
    """uint16: E, the number of bookies per fragment."""
    quorum: Column
    """uint16: Qw, the number of replicas per entry."""
    acks: Column
    """uint16: Qa, the number of replicas that a writer waits for."""
    isolation: Column
    """uint32: the code of the isolation groups in its custom metadata."""
    state: Column
    """uint8: the `LedgerState`."""
    entries: Column
    """uint8: the number of entries in the last fragment of a closed ledger, if that fragment has none or the ledger has
    no other fragment; otherwise `MANY`."""
    members: Column
    """uint16 or uint32: the code of each member, ``sum(fragments * ensemble)`` in total."""
    names: tuple[str, ...] = field(default=())
    """The id of each bookie, by code."""
    isolations: tuple[str, ...] = field(default=())
    """The isolation groups as text (`state.bookkeeper.isolation`), by code."""

    def __len__(self) -> int:
        return len(self.ledger)

    @property
    def starts(self) -> Column:
        """The offset of each row's members, plus the end: int64[n + 1]."""
        out = np.zeros(len(self) + 1, np.int64)
        np.cumsum(self.fragments.astype(np.int64) * self.ensemble, out=out[1:])
        return out

    def take(self, rows: Column) -> "Ledgers":
        """The rows at these positions (int), or where the mask is true (bool), in that order."""
        if rows.dtype == bool:
            if rows.all():
                return self
            rows = np.flatnonzero(rows)
        starts = self.starts
        return Ledgers(
            **{name: getattr(self, name)[rows] for name in _ROW},
            members=self.members[spans(starts[rows], starts[rows + 1])],
            names=self.names,
            isolations=self.isolations,
        )

    def naming(self, bookies: Set[str]) -> Column:
        """Whether each row has a member among these bookies: bool."""
        return self.having(np.array([name in bookies for name in self.names], bool))

    def having(self, which: Column) -> Column:
        """Whether each row has a member for which this is true: bool. ``which``: bool, one for each of ``names``."""
        rows = np.zeros(len(self), bool)
        rows[np.searchsorted(self.starts, np.flatnonzero(which[self.members]), "right") - 1] = True
        return rows

    def latest(self) -> "Ledgers":
        """The newest row of each ledger, ordered by id. Replayed and stale rows have no effect."""
        if len(self) < 2 or bool((self.ledger[1:] > self.ledger[:-1]).all()):
            return self
        order = np.lexsort((self.mzxid, self.ledger))
        ids = self.ledger[order]
        last = np.ones(len(ids), bool)
        last[:-1] = ids[1:] != ids[:-1]
        return self.take(order[last])

    def find(self, ids: Column) -> Column:
        """The position of each id, -1 if absent. Requires rows in the order of `latest`."""
        if not len(self):
            return np.full(len(ids), -1, np.int64)
        at = np.minimum(np.searchsorted(self.ledger, ids), len(self) - 1)
        return np.where(self.ledger[at] == ids, at, -1)

    def ensembles(self, row: int) -> list[list[str]]:
        """The bookies of each fragment of one row."""
        start, size = int(self.starts[row]), int(self.ensemble[row])
        codes = self.members[start : start + int(self.fragments[row]) * size].tolist()
        return [[self.names[c] for c in codes[k : k + size]] for k in range(0, len(codes), size or 1)]

    def to_bytes(self) -> bytes:
        """Serialize the rows as a self-contained blob."""
        width = "<u2" if len(self.names) <= 0x10000 else "<u4"
        names, isolations = ("\n".join(texts).encode() for texts in (self.names, self.isolations))
        sizes = len(self), len(self.members), len(names), len(isolations)
        head = _HEAD.pack(_MAGIC, _FORM, int(width[2]), *sizes)
        columns = [np.ascontiguousarray(getattr(self, name), dtype).tobytes() for name, dtype in _ROW.items()]
        return b"".join([head, *columns, self.members.astype(width).tobytes(), names, isolations])

    @staticmethod
    def from_bytes(blob: bytes, where: str = "the state") -> "Ledgers":
        """Parse the output of `to_bytes`. Raises `BadBytes` for anything else."""
        if len(blob) < _HEAD.size or blob[:2] != _MAGIC or blob[2] != _FORM:
            raise BadBytes(where, 0, f"a block of ledgers of form {_FORM}", repr(blob[:3]), "rebuild the view")
        _, _, width, rows, members, names, isolations = _HEAD.unpack_from(blob)
        at, columns = _HEAD.size, {}
        for name, dtype in [*_ROW.items(), ("members", f"<u{width}")]:
            count = members if name == "members" else rows
            columns[name] = np.frombuffer(blob, dtype, count, at)
            at += columns[name].nbytes
        text, more = blob[at : at + names].decode(), blob[at + names : at + names + isolations].decode()
        # The text of ledgers without groups is empty, so one empty text and none cannot be told apart by their bytes.
        return Ledgers(
            **columns, names=tuple(text.split("\n")) if text else (), isolations=tuple(more.split("\n")) if rows else ()
        )


def entries_of(closed: Column, first_entry: Column, last_entry: Column) -> Column:
    """Compute the column ``entries`` from the first entry of each last fragment and the last entry of each ledger."""
    # Unsigned subtraction cannot overflow.
    beyond = np.minimum(last_entry.astype(np.uint64) - first_entry.astype(np.uint64), np.uint64(MANY - 1))
    entries = np.where(last_entry < first_entry, 0, beyond.astype(np.int64) + 1)
    return np.where(closed & ((entries == 0) | (first_entry == 0)), entries, MANY).astype(np.uint8)


def concat(parts: Sequence[Ledgers]) -> Ledgers:
    """All rows of all parts, with one shared list of names."""
    parts = [part for part in parts if len(part)]
    if len(parts) == 1:
        return parts[0]
    names, members = _shared([(part.names, part.members) for part in parts])
    isolations, isolation = _shared([(part.isolations, part.isolation) for part in parts])
    columns = {
        name: np.concatenate([np.zeros(0, dtype), *(getattr(part, name) for part in parts)])
        for name, dtype in _ROW.items()
    }
    return Ledgers(**columns | {"isolation": isolation}, members=members, names=names, isolations=isolations)


def _shared(parts: Sequence[tuple[Sequence[str], Column]]) -> tuple[tuple[str, ...], Column]:
    """One list of texts for several parts with texts and codes, and the codes of all: uint32."""
    code: dict[str, int] = {}
    codes = [np.zeros(0, np.uint32)]
    for texts, own in parts:
        table = np.array([code.setdefault(text, len(code)) for text in texts], np.uint32)
        codes.append(table[own])
    return tuple(code), np.concatenate(codes)


def row(
    ledger: int,
    *ensembles: Sequence[str],
    quorum: int,
    acks: int | None = None,
    isolation: str = "",
    state: int = LedgerState.CLOSED,
    mzxid: int = 1,
    version: int = 0,
    ctime_ms: int = 0,
    seen_ms: int = 0,
    entries: int = MANY,
) -> Ledgers:
    """Build one ledger from values, for single events and tests."""
    flat = [bookie for ensemble in ensembles for bookie in ensemble]
    names = tuple(dict.fromkeys(flat))
    values = {
        "ledger": ledger,
        "mzxid": mzxid,
        "ctime_ms": ctime_ms,
        "seen_ms": seen_ms,
        "version": version,
        "fragments": len(ensembles),
        "ensemble": len(ensembles[0]) if ensembles else 0,
        "quorum": quorum,
        "acks": quorum if acks is None else acks,
        "isolation": 0,
        "state": state,
        "entries": entries,
    }
    columns = {name: np.array([values[name]], dtype) for name, dtype in _ROW.items()}
    members = np.array([names.index(bookie) for bookie in flat], np.uint32)
    return Ledgers(**columns, members=members, names=names, isolations=(isolation,))


EMPTY = concat([])
