"""Ledgers with their owners, and the references of owners, in columns: the content of the deletion view."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.common.errors import BadBytes
from trueup.state.deletion.owners import Component, OwnerStatus, Pointers

Rows = NDArray[Any]
OWNED = np.dtype(
    [
        ("ledger", "<i8"),
        ("mzxid", "<i8"),
        ("ctime_ms", "<i8"),
        ("seen_ms", "<i8"),
        ("last_entry", "<i8"),
        ("length", "<i8"),
        ("version", "<i4"),
        ("owner", "<u4"),
        ("name", "<u4"),
        ("state", "u1"),
        ("component", "u1"),
    ]
)
"""One ledger: its metadata, with `state.deletion.owners.Component` and the codes of owner and cursor."""
NODE = np.dtype(
    [
        ("path", "<u4"),
        ("owner", "<u4"),
        ("name", "<u4"),
        ("error", "<u4"),
        ("mzxid", "<i8"),
        ("seen_ms", "<i8"),
        ("version", "<i4"),
        ("count", "<u4"),
        ("status", "u1"),
        ("elsewhere", "u1"),
    ]
)
"""One node that references ``count`` ledgers: `state.deletion.owners.Pointers` with codes for its texts."""
LISTED = np.dtype([("ledger", "<i8"), ("dropped", "u1")])
_HEAD = struct.Struct("<2sBBIII")
_MAGIC, _FORM = b"TO", 1


@dataclass(frozen=True, slots=True, eq=False)
class OwnedLedgerTable:
    """Ledgers or nodes in columns. Texts are replaced by codes."""

    rows: Rows
    """The rows, of the type `OWNED` or `NODE`."""
    names: tuple[str, ...] = ()
    """The text of each code."""
    listed: Rows = field(default_factory=lambda: np.zeros(0, LISTED))
    """The list items of all rows, concatenated, of the type `LISTED`."""

    def __len__(self) -> int:
        return len(self.rows)

    def text(self, column: str, row: int) -> str:
        """The text of a code."""
        return self.names[int(self.rows[column][row])]

    def to_bytes(self) -> bytes:
        """Serialize the table."""
        names = "\n".join(self.names).encode()
        kind = 1 if self.rows.dtype == NODE else 0
        head = _HEAD.pack(_MAGIC, _FORM, kind, len(self.rows), len(self.listed), len(names))
        return b"".join([head, self.rows.tobytes(), self.listed.tobytes(), names])

    @classmethod
    def from_bytes(cls, blob: bytes, where: str = "the state") -> Self:
        """Parse the output of `to_bytes`. Raises `BadBytes` for anything else."""
        if len(blob) < _HEAD.size or blob[:2] != _MAGIC or blob[2] != _FORM:
            raise BadBytes(where, 0, f"a table of form {_FORM}", repr(blob[:3]), "rebuild the view")
        _, _, kind, count, listed, size = _HEAD.unpack_from(blob)
        rows = np.frombuffer(blob, NODE if kind else OWNED, count, _HEAD.size)
        at = _HEAD.size + rows.nbytes
        ids = np.frombuffer(blob, LISTED, listed, at)
        text = blob[at + ids.nbytes : at + ids.nbytes + size].decode()
        return cls(rows, tuple(text.split("\n")) if size else ("",) if count else (), ids)


NO_LEDGERS, NO_NODES = OwnedLedgerTable(np.zeros(0, OWNED)), OwnedLedgerTable(np.zeros(0, NODE))
_CODES = ("path", "owner", "name", "error")


def joined(tables: Sequence[OwnedLedgerTable]) -> OwnedLedgerTable:
    """All rows of tables of one type, with one shared set of names."""
    some = [table for table in tables if len(table)] or list(tables[:1])
    if len(some) == 1:
        return some[0]
    names = {name: code for code, name in enumerate(dict.fromkeys(chain(*(table.names for table in some))))}
    parts = []
    for table in some:
        codes = np.fromiter((names[name] for name in table.names), np.uint32, len(table.names))
        rows = table.rows.copy()
        for column in set(_CODES) & set(rows.dtype.names or ()):
            rows[column] = codes[rows[column]]
        parts.append(rows)
    return OwnedLedgerTable(np.concatenate(parts), tuple(names), np.concatenate([table.listed for table in some]))


def nodes_of(pointers: Iterable[Pointers]) -> OwnedLedgerTable:
    """Nodes in columns."""
    nodes = list(pointers)
    names: dict[str, int] = {}
    rows, listed = np.zeros(len(nodes), NODE), []
    for at, node in enumerate(nodes):
        dropped = set(node.dropped)
        texts = (node.path, node.owner, node.name, node.error.replace("\n", " "))
        codes = (names.setdefault(text, len(names)) for text in texts)
        rows[at] = (*codes, node.mzxid, node.seen_ms, node.version, len(node.ledgers), node.status, node.elsewhere)
        listed += [(ledger, ledger in dropped) for ledger in node.ledgers]
    return OwnedLedgerTable(rows, tuple(names), np.array(listed, LISTED))


def newest_nodes(table: OwnedLedgerTable) -> OwnedLedgerTable:
    """The newest row of each path, without deleted nodes. An unreadable node keeps the references that it had when it
    could be read: it may still have them."""
    rows = table.rows
    order = np.lexsort((rows["mzxid"], rows["path"]))
    paths = rows["path"][order]
    last = order[np.append(paths[1:] != paths[:-1], True)] if len(order) else order
    keep = np.zeros(len(rows), bool)
    keep[last] = True
    keep &= rows["status"] != OwnerStatus.GONE
    source = np.arange(len(rows))
    for place in np.flatnonzero((rows["status"][order] == OwnerStatus.UNREADABLE) & keep[order]).tolist():
        source[order[place]] = order[_last_read(rows, order, place)]
    return _with_lists(table, keep, source[keep])


def _last_read(rows: Rows, order: Rows, place: int) -> int:
    """The place in ``order``, by path and age, of the last row of the same path that had references or was readable."""
    at = place
    while rows["status"][order[at]] == OwnerStatus.UNREADABLE and not rows["count"][order[at]]:
        if not at or rows["path"][order[at - 1]] != rows["path"][order[place]]:
            return place
        at -= 1
    return at


def _with_lists(table: OwnedLedgerTable, keep: Rows, source: Rows) -> OwnedLedgerTable:
    """The rows to ``keep``, each with the list of the row in ``source``."""
    if np.array_equal(np.flatnonzero(keep), source):
        return OwnedLedgerTable(table.rows[keep], table.names, table.listed[np.repeat(keep, table.rows["count"])])
    rows, ends = table.rows[keep], np.cumsum(table.rows["count"])
    rows["count"] = np.where(table.rows["status"][source] == OwnerStatus.GONE, 0, table.rows["count"][source])
    parts = [table.listed[ends[at] - count : ends[at]] for at, count in zip(source, rows["count"], strict=True)]
    return OwnedLedgerTable(rows, table.names, np.concatenate(parts))


def newest_ledgers(table: OwnedLedgerTable) -> OwnedLedgerTable:
    """The newest row of each ledger, ordered by id. A ledger whose metadata cannot be read now keeps the owner that an
    earlier row names: custom metadata never change."""
    rows = table.rows
    order = np.lexsort((rows["mzxid"], rows["ledger"]))
    ids = rows["ledger"][order]
    ends = np.flatnonzero(np.append(ids[1:] != ids[:-1], True)) if len(order) else order
    newest = rows[order[ends]]
    blind = unclaimed(newest)
    if blind.any():
        ordered = rows[order]
        telling = (ordered["component"] != Component.UNKNOWN) | (ordered["state"] == LedgerState.GONE)
        source = np.maximum.accumulate(np.where(telling, np.arange(len(ordered)), -1))[ends[blind]]
        same = (ids[source] == newest["ledger"][blind]) & (ordered["state"][source] != LedgerState.GONE)
        places, source = np.flatnonzero(blind)[same], source[same]  # -1 is the last row, which names no owner
        for name in ("component", "owner", "name"):
            newest[name][places] = ordered[name][source]
    return OwnedLedgerTable(newest, table.names)


def unclaimed(rows: Rows) -> Rows:
    """Whether each `OWNED` row is of a ledger whose metadata cannot be read, and whose owner is not known."""
    mask: Rows = (rows["state"] == LedgerState.UNREADABLE) & (rows["component"] == Component.UNKNOWN)
    return mask


def packed(table: OwnedLedgerTable) -> OwnedLedgerTable:
    """The same rows without unused names."""
    columns = [name for name in _CODES if name in (table.rows.dtype.names or ())]
    used = np.unique(np.concatenate([table.rows[name] for name in columns]))
    rows = table.rows.copy()
    for name in columns:
        rows[name] = np.searchsorted(used, rows[name])
    return OwnedLedgerTable(rows, tuple(table.names[code] for code in used.tolist()), table.listed)
