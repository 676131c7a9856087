"""The deletion view of one bucket of owners: what arrived is folded in, what is forgotten comes out.

Ledgers live in a log, nodes and findings in a cell each. Every step judges the whole bucket: it takes milliseconds, and
a ledger is forgotten through what its owner says and not through anything of its own.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.common.block_store import Store
from trueup.state.common.bucket_log import BLOCK_ROWS, BucketLog, Shape
from trueup.state.deletion.orphan_objects import LOST
from trueup.state.deletion.owned_ledgers import (
    NO_LEDGERS,
    NO_NODES,
    Table,
    joined,
    newest_ledgers,
    newest_nodes,
    packed,
)
from trueup.state.deletion.rules import LEAK_RULES
from trueup.state.deletion.verdicts import LEAK, Rows, judge

CELLS = ("shape", "nodes", "leaks")
_SHAPE = struct.Struct("<II")  # rows of the base, of the tail


@dataclass(frozen=True, slots=True, eq=False)
class Leaks:
    """All `LEAK` rows of a bucket, with the names that their codes stand for, and how many ledgers it holds."""

    rows: Rows
    names: tuple[str, ...]
    ledgers: int


def agreed(parts: Sequence[Leaks]) -> Sequence[Leaks]:
    """What these buckets say together. A ledger that one of them holds and another calls missing is pointed to by an
    owner that it does not name: it is neither forgotten nor missing."""
    rows = np.concatenate([np.zeros(0, LEAK), *(part.rows for part in parts)])
    missing = rows["version"] < 0
    used = np.intersect1d(rows["ledger"][missing], rows["ledger"][~missing])
    if not len(used):
        return parts
    return [replace(part, rows=part.rows[~np.isin(part.rows["ledger"], used)]) for part in parts]


def settled(part: Leaks, before_ms: int) -> Leaks:
    """The same without what is missing only since ``before_ms``, in ms since the epoch, or later."""
    fresh = np.isin(part.rows["rule"], _MISSING) & (part.rows["since_ms"] > before_ms)
    return replace(part, rows=part.rows[~fresh]) if fresh.any() else part


class OwnerBucket:
    """One batch of one bucket."""

    def __init__(self, store: Store) -> None:
        self._store = store
        shape = store.get("shape")
        base, tail = _SHAPE.unpack(shape) if shape else (0, 0)
        raw = store.get("nodes")
        self.nodes = Table.from_bytes(raw) if raw else NO_NODES
        blocks = [Table.from_bytes(block) for block in store.blocks()]
        base_blocks = -(-base // BLOCK_ROWS)
        self._log = BucketLog(store, Shape(base_blocks, base, len(blocks) - base_blocks, tail))
        self.ledgers = _present(joined(blocks)) if blocks else NO_LEDGERS
        self._leaks: Rows = np.frombuffer(store.get("leaks"), LEAK)

    def step(self, ledgers: Table = NO_LEDGERS, nodes: Table = NO_NODES, asked: bool = False) -> Leaks | None:
        """Fold a batch in. None if nothing that is forgotten, or was, changed, and nobody asked.

        Rows of ledgers that are gone go to all buckets, as only the one that has the ledger knows whose it was.
        """
        self._fold(ledgers)
        if len(nodes):
            self.nodes = packed(newest_nodes(joined([self.nodes, nodes])))
            self._store.put("nodes", self.nodes.to_bytes())
        leaks = _since(_gone_since(judge(self.ledgers, self.nodes), ledgers.rows), self._leaks)
        if not np.array_equal(leaks[_COMPARED], self._leaks[_COMPARED]):
            self._store.put("leaks", leaks.tobytes())
        elif not asked:
            return None
        self._leaks = leaks
        names = np.array([*self.ledgers.names, *self.nodes.names], object)
        codes, rows = np.unique(np.concatenate([leaks["owner"], leaks["name"]]), return_inverse=True), leaks.copy()
        rows["owner"], rows["name"] = np.split(codes[1], 2)
        return Leaks(rows, tuple(names[codes[0]].tolist()) if len(leaks) else (), len(self.ledgers))

    def _fold(self, arrived: Table) -> None:
        ids, alive = arrived.rows["ledger"], arrived.rows["state"] != LedgerState.GONE
        known = np.isin(ids, np.concatenate([self.ledgers.rows["ledger"], ids[alive]]))
        fresh = Table(arrived.rows[known | alive], arrived.names)
        if len(fresh):
            self.ledgers = _present(joined([self.ledgers, fresh]))
            if self._log.append(fresh.to_bytes(), len(fresh)):
                self._compact()
            self._store.put("shape", _SHAPE.pack(self._log.shape.base_rows, self._log.shape.tail_rows))

    def _compact(self) -> None:
        self.ledgers = packed(self.ledgers)
        rows, names = self.ledgers.rows, self.ledgers.names
        self._log.compact(len(rows), lambda begin, end: Table(rows[begin:end], names).to_bytes())


_MISSING = [LEAK_RULES.code(rule) for rule in ("deletion.missing", LOST)]
_COMPARED = ["ledger", "since_ms", "version", "state", "length", "rule"]


def _present(table: Table) -> Table:
    newest = newest_ledgers(table)
    return Table(newest.rows[newest.rows["state"] != LedgerState.GONE], newest.names)


def _gone_since(found: Rows, arrived: Rows) -> Rows:
    """What is missing is so since its ledger was seen to be gone: its owner may have listed it for years."""
    gone = arrived[arrived["state"] == LedgerState.GONE]
    missing = np.flatnonzero(found["version"] < 0)
    if not len(gone) or not len(missing):
        return found
    gone = gone[np.lexsort((gone["seen_ms"], gone["ledger"]))]
    ids = found["ledger"][missing]
    last = np.maximum(np.searchsorted(gone["ledger"], ids, side="right") - 1, 0)
    seen_ms = np.where(gone["ledger"][last] == ids, gone["seen_ms"][last], 0)
    found["since_ms"][missing] = np.maximum(found["since_ms"][missing], seen_ms)
    return found


def _since(found: Rows, before: Rows) -> Rows:
    """What is found now; what was said of the same ledger before keeps the time from which it holds."""
    if not len(before) or not len(found):
        return found
    at = np.minimum(np.searchsorted(before["ledger"], found["ledger"]), len(before) - 1)
    same = (before["ledger"][at] == found["ledger"]) & (before["rule"][at] == found["rule"])
    found["since_ms"] = np.where(same, before["since_ms"][at], found["since_ms"])
    return found
