"""The deletion view of one bucket of owners: records are folded in, and unreferenced ledgers come out.

Ledgers are stored in a log, nodes and findings in a cell each. Every step judges the whole bucket: this takes
milliseconds, and a ledger becomes unreferenced by a change of its owner, not of its own metadata.
"""

import struct
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np

from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.common.block_store import Store
from trueup.state.common.bucket_log import BLOCK_ROWS, BucketLog, LogShape
from trueup.state.common.rules import Verdict
from trueup.state.deletion.orphan_objects import LOST
from trueup.state.deletion.owned_ledgers import (
    NO_LEDGERS,
    NO_NODES,
    OwnedLedgerTable,
    joined,
    newest_ledgers,
    newest_nodes,
    packed,
    unclaimed,
)
from trueup.state.deletion.rules import LEAK_RULES
from trueup.state.deletion.verdicts import LEAK, Rows, judge

CELLS = ("shape", "nodes", "leaks", "elsewhere")
_SHAPE = struct.Struct("<II")  # rows of the base, of the tail


@dataclass(frozen=True, slots=True, eq=False)
class Leaks:
    """The findings of a bucket."""

    rows: Rows
    """All `LEAK` rows of the bucket."""
    names: tuple[str, ...]
    """The text of each code in the rows."""
    ledgers: int
    """The number of ledgers in the bucket, without those that cannot be read and whose owner is unknown."""
    elsewhere: Rows = field(default_factory=lambda: np.zeros(0, np.int64))
    """int64, ordered: the ids of ledgers that nodes of the bucket reference and that are not in the bucket."""


def agreed(parts: Sequence[Leaks]) -> Sequence[Leaks]:
    """Combine the results of all buckets. A ledger that one bucket holds and a node of another bucket references is
    referenced by an owner that it does not name: it is neither unreferenced nor missing."""
    parts = _unclaimed_once(parts)
    rows = np.concatenate([np.zeros(0, LEAK), *(part.rows for part in parts)])
    ledgers = np.unique(rows["ledger"][rows["version"] >= 0])
    used = np.zeros(len(ledgers), bool)
    for part in parts:  # far more ledgers are referenced than found
        used |= _among(ledgers, part.elsewhere)
    if not used.any():
        return parts
    return [replace(part, rows=part.rows[~np.isin(part.rows["ledger"], ledgers[used])]) for part in parts]


def _among(ledgers: Rows, ids: Rows) -> Rows:
    """Whether each of these is in ordered ids."""
    if not len(ids):
        return np.zeros(len(ledgers), bool)
    hits: Rows = ids[np.minimum(np.searchsorted(ids, ledgers), len(ids) - 1)] == ledgers
    return hits


def _unclaimed_once(parts: Sequence[Leaks]) -> Sequence[Leaks]:
    """The same with one row of each ledger that cannot be read and whose owner is unknown in every bucket: all of them
    have a row of such a ledger, and the bucket of its owner may know it."""
    blind = [unclaimed(part.rows) for part in parts]
    if not any(some.any() for some in blind):
        return parts
    ids = np.concatenate([part.rows["ledger"][some] for part, some in zip(parts, blind, strict=True)])
    _, first, counts = np.unique(ids, return_index=True, return_counts=True)
    keep = np.zeros(len(ids), bool)
    keep[first[counts == len(parts)]] = True
    kept = np.split(keep, np.cumsum([some.sum() for some in blind])[:-1])
    for some, mine in zip(blind, kept, strict=True):
        some[some] = ~mine
    return [
        replace(part, rows=part.rows[~some]) if some.any() else part for part, some in zip(parts, blind, strict=True)
    ]


def settled(part: Leaks, before_ms: int) -> Leaks:
    """The same without ledgers that are missing since ``before_ms`` (ms since the epoch) or later."""
    fresh = np.isin(part.rows["rule"], _MISSING) & (part.rows["since_ms"] > before_ms)
    return replace(part, rows=part.rows[~fresh]) if fresh.any() else part


def entered(parts: Sequence[Leaks], before: Sequence[Leaks], now_ms: int) -> Sequence[Leaks]:
    """The same. A ledger that may be deleted, and might not in ``before``, the previous view, counts as unreferenced
    since ``now_ms`` (ms since the epoch) at the earliest: the time of its row is of itself and its owner, and does not
    show that another node referenced it until now."""
    deletable = _deletable(before)
    deletable = deletable[np.argsort(deletable["ledger"], kind="stable")]
    return [_not_before(part, deletable, now_ms) for part in parts]


def departed(parts: Sequence[Leaks], before: Sequence[Leaks]) -> set[int]:
    """Ids of ledgers that might be deleted in ``before``, the previous view, and may not in ``parts``."""
    ids: list[int] = np.setdiff1d(_deletable(before)["ledger"], _deletable(parts)["ledger"]).tolist()
    return set(ids)


def confirmed(part: Leaks, absent: Set[int]) -> Leaks:
    """The same without missing ledgers that are not in ``absent``: those may exist and be unreadable."""
    doubtful = (part.rows["rule"] == _MISSING[0]) & ~np.isin(part.rows["ledger"], list(absent))
    return replace(part, rows=part.rows[~doubtful]) if doubtful.any() else part


class OwnerBucket:
    """One batch of one bucket."""

    def __init__(self, store: Store) -> None:
        self._store = store
        shape = store.get("shape")
        base, tail = _SHAPE.unpack(shape) if shape else (0, 0)
        raw = store.get("nodes")
        self.nodes = OwnedLedgerTable.from_bytes(raw) if raw else NO_NODES
        blocks = [OwnedLedgerTable.from_bytes(block) for block in store.blocks()]
        base_blocks = -(-base // BLOCK_ROWS)
        self._log = BucketLog(store, LogShape(base_blocks, base, len(blocks) - base_blocks, tail))
        self.ledgers = _present(joined(blocks)) if blocks else NO_LEDGERS
        self._leaks: Rows = np.frombuffer(store.get("leaks"), LEAK)
        self._elsewhere: Rows = np.frombuffer(store.get("elsewhere"), np.int64)

    def step(
        self, ledgers: OwnedLedgerTable = NO_LEDGERS, nodes: OwnedLedgerTable = NO_NODES, asked: bool = False
    ) -> Leaks | None:
        """Fold in a batch. Returns None if nothing that is reported changed and ``asked`` is false.

        Rows of ledgers that are deleted or cannot be read go to all buckets, because only the bucket with the ledger
        knows its owner. All buckets keep a row of a ledger that cannot be read: the owner of one that no bucket knows
        is known once it can be read, and only to the bucket of that owner.
        """
        self._fold(ledgers)
        if len(nodes):
            self.nodes = packed(newest_nodes(joined([self.nodes, nodes])))
            self._store.put("nodes", self.nodes.to_bytes())
        findings, elsewhere = judge(self.ledgers, self.nodes)
        leaks = _since(_gone_since(findings, ledgers.rows), self._leaks)
        same = np.array_equal(leaks[_COMPARED], self._leaks[_COMPARED]) and np.array_equal(elsewhere, self._elsewhere)
        if not same:
            self._store.put("leaks", leaks.tobytes())
            self._store.put("elsewhere", elsewhere.tobytes())
        elif not asked:
            return None
        self._leaks, self._elsewhere = leaks, elsewhere
        names = np.array([*self.ledgers.names, *self.nodes.names], object)
        codes, rows = np.unique(np.concatenate([leaks["owner"], leaks["name"]]), return_inverse=True), leaks.copy()
        rows["owner"], rows["name"] = np.split(codes[1], 2)
        count = int((~unclaimed(self.ledgers.rows)).sum())
        return Leaks(rows, tuple(names[codes[0]].tolist()) if len(leaks) else (), count, elsewhere)

    def _fold(self, arrived: OwnedLedgerTable) -> None:
        ids, alive = arrived.rows["ledger"], arrived.rows["state"] != LedgerState.GONE
        held = np.isin(ids, np.concatenate([self.ledgers.rows["ledger"], ids[alive]]))
        fresh = OwnedLedgerTable(arrived.rows[held | alive], arrived.names)
        if len(fresh):
            self.ledgers = _present(joined([self.ledgers, fresh]))
            if self._log.append(fresh.to_bytes(), len(fresh)):
                self._compact()
            self._store.put("shape", _SHAPE.pack(self._log.shape.base_rows, self._log.shape.tail_rows))

    def _compact(self) -> None:
        self.ledgers = packed(self.ledgers)
        rows, names = self.ledgers.rows, self.ledgers.names
        self._log.compact(len(rows), lambda begin, end: OwnedLedgerTable(rows[begin:end], names).to_bytes())


_MISSING = [LEAK_RULES.code(rule) for rule in ("deletion.missing", LOST)]
_COMPARED = ["ledger", "since_ms", "version", "state", "length", "rule"]


def _deletable(parts: Sequence[Leaks]) -> Rows:
    rows = np.concatenate([np.zeros(0, LEAK), *(part.rows for part in parts)])
    deletable: Rows = rows[rows["verdict"] == Verdict.DRIFTED]
    return deletable


def _not_before(part: Leaks, deletable: Rows, now_ms: int) -> Leaks:
    at = np.flatnonzero(part.rows["verdict"] == Verdict.DRIFTED)
    if not len(at):
        return part
    rows, earliest = part.rows.copy(), np.full(len(at), now_ms, np.int64)
    if len(deletable):
        place = np.minimum(np.searchsorted(deletable["ledger"], rows["ledger"][at]), len(deletable) - 1)
        earliest = np.where(deletable["ledger"][place] == rows["ledger"][at], deletable["since_ms"][place], earliest)
    rows["since_ms"][at] = np.maximum(rows["since_ms"][at], earliest)
    return replace(part, rows=rows)


def _present(table: OwnedLedgerTable) -> OwnedLedgerTable:
    newest = newest_ledgers(table)
    return OwnedLedgerTable(newest.rows[newest.rows["state"] != LedgerState.GONE], newest.names)


def _gone_since(findings: Rows, arrived: Rows) -> Rows:
    """A ledger is missing since its deletion was observed: its owner may have listed it for years."""
    gone = arrived[arrived["state"] == LedgerState.GONE]
    missing = np.flatnonzero(findings["version"] < 0)
    if not len(gone) or not len(missing):
        return findings
    gone = gone[np.lexsort((gone["seen_ms"], gone["ledger"]))]
    ids = findings["ledger"][missing]
    last = np.maximum(np.searchsorted(gone["ledger"], ids, side="right") - 1, 0)
    seen_ms = np.where(gone["ledger"][last] == ids, gone["seen_ms"][last], 0)
    findings["since_ms"][missing] = np.maximum(findings["since_ms"][missing], seen_ms)
    return findings


def _since(findings: Rows, before: Rows) -> Rows:
    """The present findings; a finding that existed before keeps its time."""
    if not len(before) or not len(findings):
        return findings
    at = np.minimum(np.searchsorted(before["ledger"], findings["ledger"]), len(before) - 1)
    same = (before["ledger"][at] == findings["ledger"]) & (before["rule"][at] == findings["rule"])
    findings["since_ms"] = np.where(same, before["since_ms"][at], findings["since_ms"])
    return findings
