"""Which ledgers of a bucket are unreferenced, and by which rule: a pure function of ledgers and nodes.

Both sides of an owner are in one bucket. A node shows all its references at its version. The absence of an owner's
node proves less, so it leads to a report only.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.deletion.owned_ledgers import OwnedLedgerTable
from trueup.state.deletion.owners import SCHEMA, Component, OwnerStatus, above
from trueup.state.deletion.rules import LEAK_RULES

Rows = NDArray[Any]
LEAK = np.dtype(
    [
        ("ledger", "<i8"),
        ("since_ms", "<i8"),
        ("ctime_ms", "<i8"),
        ("length", "<i8"),
        ("version", "<i4"),
        ("owner", "<u4"),
        ("name", "<u4"),
        ("state", "u1"),
        ("component", "u1"),
        ("verdict", "u1"),
        ("rule", "u1"),
    ]
)
"""A ledger that differs from its owner's record. ``since_ms``: first observation. ``version`` -1: it is missing."""
_CODE = {rule.id.removeprefix("deletion."): code for code, rule in enumerate(LEAK_RULES)}
_VERDICT = np.array([rule.verdict for rule in LEAK_RULES], np.uint8)
_REPORTED = {
    Component.UNKNOWN: "unknown-owner",
    Component.CURSOR: "cursor",
    Component.COMPACTED: "compacted",
    Component.SCHEMA: "schema",
    Component.DELAYED: "delayed",
}


def judge(ledgers: OwnedLedgerTable, nodes: OwnedLedgerTable) -> tuple[Rows, Rows]:
    """`LEAK` rows of a bucket, ordered by id; ``since_ms``: when the newer of both sides was observed. Codes of owner
    and cursor refer to the names of ``ledgers`` followed by those of ``nodes``.

    Also ids, ordered, of ledgers that a node of any kind references and that are not in this bucket with an owner:
    their metadata name another owner or none, or they do not exist.
    """
    rows, of_node = ledgers.rows, np.repeat(np.arange(len(nodes)), nodes.rows["count"])
    data = (nodes.rows["name"] == _code_of(nodes, "")) & ~_schemas(nodes)
    readable = (nodes.rows["status"] == OwnerStatus.READABLE)[of_node]
    owner = _owner_codes(ledgers, nodes)
    entries, at = _counted_by_owner(rows, owner, nodes, of_node)
    needed = np.delete(nodes.listed["ledger"], entries)
    rule = _unlisted(rows, owner, nodes, of_node, data, _hidden(ledgers, nodes))
    dropped = np.zeros(len(rows), bool)
    dropped[at[readable[entries]]] = True  # nodes that are not readable now have what they last showed
    dropped &= (rule != _CODE["owner-unreadable"]) & (rows["state"] != LedgerState.UNREADABLE)
    rule = np.where(dropped, _CODE["dropped"], rule)
    codes = np.where(np.isin(rows["ledger"], needed), -1, rule)
    out = np.zeros(int((codes >= 0).sum()), LEAK)
    picked = rows[codes >= 0]
    for name in ("ledger", "ctime_ms", "length", "version", "owner", "name", "state", "component"):
        out[name] = picked[name]
    out["rule"] = codes[codes >= 0]
    seen = np.zeros(len(ledgers.names) + 1, np.int64)
    np.maximum.at(seen, _ledger_codes(ledgers, nodes), nodes.rows["seen_ms"])
    out["since_ms"] = np.maximum(picked["seen_ms"], seen[:-1][picked["owner"]] if len(picked) else 0)
    missing = _missing(rows, nodes, of_node, data[of_node] & readable, len(ledgers.names))
    out = np.concatenate([out, missing])
    out["verdict"] = _VERDICT[out["rule"]]
    elsewhere = np.setdiff1d(needed, rows["ledger"][rows["component"] != Component.UNKNOWN])
    return out[np.argsort(out["ledger"], kind="stable")], elsewhere


def _counted_by_owner(rows: Rows, owner: Rows, nodes: OwnedLedgerTable, of_node: Rows) -> tuple[Rows, Rows]:
    """The places in ``nodes.listed`` that record a ledger as deleted and are of the owner that its metadata name, and
    the places of these ledgers in ``rows``, which are ordered by id. What another owner records is no proof: only the
    copy of the own owner is verified before a deletion."""
    counted = np.flatnonzero(nodes.listed["dropped"] > 0)
    counted = counted[np.isin(nodes.listed["ledger"][counted], rows["ledger"])]
    at = np.searchsorted(rows["ledger"], nodes.listed["ledger"][counted])
    own = owner[at] == nodes.rows["owner"][of_node[counted]]
    return counted[own], at[own]


def _hidden(ledgers: OwnedLedgerTable, nodes: OwnedLedgerTable) -> Rows:
    """Whether the owner of each ledger is in a directory without permission to read it."""
    forbidden = (nodes.rows["status"] == OwnerStatus.UNREADABLE) & (nodes.rows["version"] < 0)
    closed = {nodes.names[code] for code in set(nodes.rows["owner"][forbidden].tolist())}
    if not closed or not len(ledgers):
        return np.zeros(len(ledgers), bool)
    names = np.fromiter((not closed.isdisjoint(above(name)) for name in ledgers.names), bool, len(ledgers.names))
    hidden: Rows = names[ledgers.rows["owner"]]
    return hidden


def _unlisted(rows: Rows, owner: Rows, nodes: OwnedLedgerTable, of_node: Rows, data: Rows, hidden: Rows) -> Rows:
    """The rule for each ledger if no node references it. ``owner``: its code among the nodes' names, or -1."""
    size = len(nodes.names) + 1  # the last element is for owners without a node
    top, unreadable, present = np.full(size, -1, np.int64), np.zeros(size, bool), np.zeros(size, bool)
    owners = nodes.rows["owner"]
    np.maximum.at(top, owners[of_node][data[of_node]], nodes.listed["ledger"][data[of_node]])
    unreadable[owners[nodes.rows["status"] == OwnerStatus.UNREADABLE]] = True
    present[owners[data]] = True
    empty = (rows["state"] == LedgerState.CLOSED) & (rows["last_entry"] < 0)
    later = top[owner] > rows["ledger"]
    settled = np.isin(rows["state"], (LedgerState.CLOSED, LedgerState.OPEN))
    rule = np.where(
        later & settled, np.where(empty, _CODE["forgotten-empty"], _CODE["forgotten"]), _CODE["not-superseded"]
    )
    rule = np.where(present[owner], rule, _CODE["owner-gone"])
    for component, name in _REPORTED.items():
        rule = np.where(rows["component"] == component, _CODE[name], rule)
    blind = (unreadable[owner] | (hidden & ~present[owner])) & (rows["component"] != Component.UNKNOWN)
    return np.where(blind, _CODE["owner-unreadable"], rule)


def _missing(rows: Rows, nodes: OwnedLedgerTable, of_node: Rows, data: Rows, shift: int) -> Rows:
    """Ledgers that managed ledgers list and that do not exist. ``data``: whether each listed ledger is of a node of
    data that is readable now."""
    gone = data & (nodes.listed["dropped"] == 0) & ~np.isin(nodes.listed["ledger"], rows["ledger"])
    out = np.zeros(int(gone.sum()), LEAK)
    node = nodes.rows[of_node[gone]]
    out["ledger"], out["version"], out["component"] = nodes.listed["ledger"][gone], -1, Component.DATA
    out["since_ms"], out["owner"], out["name"] = node["seen_ms"], node["owner"] + shift, node["name"] + shift
    out["rule"] = _CODE["missing"]
    return out


def _code_of(table: OwnedLedgerTable, text: str) -> int:
    return table.names.index(text) if text in table.names else -1


def _schemas(nodes: OwnedLedgerTable) -> Rows:
    """Whether each node is a schema locator."""
    of_schemas = np.fromiter((name.startswith(SCHEMA) for name in nodes.names), bool, len(nodes.names))
    return of_schemas[nodes.rows["owner"]] if len(of_schemas) else np.zeros(len(nodes), bool)


def _owner_codes(ledgers: OwnedLedgerTable, nodes: OwnedLedgerTable) -> Rows:
    """The code of each ledger's owner among the nodes' names; -1 if no node has it."""
    codes = {name: code for code, name in enumerate(nodes.names)}
    table = np.fromiter((codes.get(name, -1) for name in ledgers.names), np.int64, len(ledgers.names))
    return table[ledgers.rows["owner"]] if len(table) else np.full(len(ledgers), -1)


def _ledger_codes(ledgers: OwnedLedgerTable, nodes: OwnedLedgerTable) -> Rows:
    """The code of each node's owner among the ledgers' names; their number if no ledger has it."""
    codes = {name: code for code, name in enumerate(ledgers.names)}
    table = np.fromiter((codes.get(name, len(codes)) for name in nodes.names), np.int64, len(nodes.names))
    return table[nodes.rows["owner"]] if len(table) else np.zeros(0, np.int64)
