"""The placement view of one bucket of ledgers: records are folded in, and findings come out.

The rows are stored in a log: a base (sorted by id, one row per ledger) and a tail of later rows. A batch normally only
appends to the tail; the whole log is read when the topology changed, when a row may be older than the known one,
or when a repair may have removed a bookie from a ledger. `Bucket` works on any `Store`: Spark state in the
application, a dictionary in tests, where it is the oracle.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.state.bookkeeper.ledgers import EMPTY, Ledgers, concat
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.bookkeeper.topology import Topology
from trueup.state.common.block_store import Store
from trueup.state.common.bucket_log import BucketLog, LogShape
from trueup.state.common.rules import Verdict
from trueup.state.placement.policy.fencing import NO_FORMER, FormerMembers
from trueup.state.placement.verdicts import Verdicts, judge

Rows = NDArray[Any]
FINDING = np.dtype(
    [
        ("ledger", "<i8"),
        ("mzxid", "<i8"),
        ("since_ms", "<i8"),
        ("ctime_ms", "<i8"),
        ("version", "<i4"),
        ("fragment", "<u4"),
        ("copies", "<u2"),
        ("racks", "<u2"),
        ("verdict", "u1"),
        ("rule", "u1"),
        ("held", "u1"),
    ]
)
"""One finding: a ledger that is not true. ``since_ms``: when it stopped being true, ms since the epoch. ``held``: it
names a bookie of the mass loss that is held."""
NO_FINDINGS: Rows = np.zeros(0, FINDING)

TOMBSTONE_ZXIDS = 1 << 20  # deleted ledgers are removed after this number of writes; no replay goes back further
_SHAPE = struct.Struct("<IIIIq")  # base blocks, base rows, tail blocks, tail rows, newest mzxid


CELLS = ("shape", "topology", "findings", "former")


@dataclass(frozen=True, slots=True)
class BucketAnswer:
    """The result of a batch of one bucket."""

    epoch: int
    full: bool
    """Whether the findings are all findings of the bucket. Otherwise they replace those of the same ledgers. A row with
    the verdict TRUE removes a finding; a full answer has such rows only for ledgers that were deleted."""
    ledgers: int
    """The number of ledgers in the bucket that exist; -1 if they were not counted in this batch."""
    findings: Rows
    former: FormerMembers = NO_FORMER
    """All bookies that may refuse ledgers with findings."""


class Bucket:
    """One batch of one bucket. ``encode`` and ``decode`` convert a topology to the bytes of a cell and back."""

    def __init__(self, store: Store, encode: Callable[[Topology], bytes], decode: Callable[[bytes], Topology]) -> None:
        self._store, self._encode = store, encode
        shape = store.get("shape")
        *rows, self._newest = _SHAPE.unpack(shape) if shape else (*LogShape(), -1)
        self._log = BucketLog(store, LogShape(*rows))
        raw = store.get("topology")
        self.topology = decode(raw) if raw else None
        self.findings: Rows = np.frombuffer(store.get("findings"), FINDING)
        former = store.get("former")
        self.former = FormerMembers.from_bytes(former) if former else NO_FORMER
        self._view: Ledgers | None = None

    def view(self) -> Ledgers:
        """The newest row of every ledger, including deleted ones, unordered."""
        if self._view is None:
            blocks, count = [Ledgers.from_bytes(block) for block in self._store.blocks()], self._log.shape.base_blocks
            base, tail = concat(blocks[:count]), concat(blocks[count:]).latest()
            self._view = _over(base, tail)
        return self._view

    def step(self, arrived: Ledgers, topology: Topology | None = None) -> BucketAnswer | None:
        """Fold in one batch. Returns None if nothing changed that an operator would see."""
        fresh = self._fold(arrived, self.topology or topology)
        full = topology is not None and (self.topology is None or topology.epoch > self.topology.epoch)
        if full and topology is not None:
            self._know(self.former.settle(topology, self.topology))
            self.topology = topology
            self._store.put("topology", self._encode(topology))
        if self.topology is None:
            return None
        findings = self._judge_all(self.topology) if full else self._judge(fresh, self.topology)
        if not (full or len(findings)):
            return None
        count = int((self.view().state != LedgerState.GONE).sum()) if full else -1
        former = self.former.about(self.findings["ledger"])
        return BucketAnswer(self.topology.epoch, full, count, findings, former)

    def _judge_all(self, topology: Topology) -> Rows:
        view = self.view()
        verdicts = judge(view, topology, self.former.at(topology.at_ms))
        # Without its row, a finding whose ledger was deleted could not be told from one that was repaired.
        deleted = (view.state == LedgerState.GONE) & np.isin(view.ledger, self.findings["ledger"])
        findings = _findings(view, verdicts, np.full(len(view), topology.at_ms), self.findings, also=deleted)
        self._keep(merged(NO_FINDINGS, findings))
        return findings

    def _judge(self, fresh: Ledgers, topology: Topology) -> Rows:
        if not len(fresh):
            return NO_FINDINGS
        verdicts = judge(fresh, topology, self.former.at(int(fresh.seen_ms.max())))
        reported = np.isin(fresh.ledger, self.findings["ledger"])
        findings = _findings(fresh, verdicts, fresh.seen_ms, self.findings, also=reported)
        if len(findings):
            self._keep(merged(self.findings, findings))
        return findings

    def _keep(self, findings: Rows) -> None:
        self.findings = findings
        self._store.put("findings", findings.tobytes())

    def _fold(self, arrived: Ledgers, topology: Topology | None) -> Ledgers:
        """Append the new rows of a batch to the log and return them."""
        fresh, before = arrived.latest(), EMPTY
        if not len(fresh):
            return fresh
        # A closed ledger with one write was closed by its writer; any other write may have changed an ensemble.
        moved = fresh.version >= np.where(fresh.state == LedgerState.CLOSED, 2, 1)
        if bool((fresh.mzxid <= self._newest).any()) or (any(self._log.shape) and bool(moved.any())):
            fresh, before = self._against_view(fresh)
        if not len(fresh):
            return fresh
        # Several versions of a ledger in one batch are also successive states.
        before = concat([before, _repeated(arrived)])
        if len(before):
            self._know(self.former.merge(before, fresh, topology))
        self._newest = max(self._newest, int(fresh.mzxid.max()))
        self._view = _over(self._view, fresh) if self._view is not None else None
        self._put(fresh)
        return fresh

    def _against_view(self, fresh: Ledgers) -> tuple[Ledgers, Ledgers]:
        """Rows newer than the view, and the view's rows of these ledgers."""
        view = self.view()
        order = np.argsort(view.ledger, kind="stable")
        if not len(view):
            return fresh, EMPTY
        at = np.minimum(np.searchsorted(view.ledger, fresh.ledger, sorter=order), len(view) - 1)
        before = order[at]
        in_view = view.ledger[before] == fresh.ledger
        newer = ~in_view | (fresh.mzxid > view.mzxid[before])
        return fresh.take(newer), view.take(before[in_view & newer])

    def _know(self, former: FormerMembers) -> None:
        if former is not self.former:
            self.former = former
            self._store.put("former", former.to_bytes())

    def _put(self, fresh: Ledgers) -> None:
        if self._log.append(fresh.to_bytes(), len(fresh)):
            self._compact()
        self._store.put("shape", _SHAPE.pack(*self._log.shape, self._newest))

    def _compact(self) -> None:
        view = self.view().latest()
        view = view.take((view.state != LedgerState.GONE) | (view.mzxid > self._newest - TOMBSTONE_ZXIDS))
        rows = np.arange(len(view))
        self._log.compact(len(view), lambda begin, end: view.take(rows[begin:end]).to_bytes())
        self._view = view


def merged(findings: Rows, fresh: Rows) -> Rows:
    """Findings after a delta: its findings replace those of the same ledger, TRUE removes them. Sorted by id."""
    rest = findings[~np.isin(findings["ledger"], fresh["ledger"])]
    both = np.concatenate([rest, fresh[fresh["verdict"] != Verdict.TRUE]])
    return both[np.argsort(both["ledger"], kind="stable")]


def _repeated(rows: Ledgers) -> Ledgers:
    """All rows of ledgers that have several rows."""
    ids, counts = np.unique(rows.ledger, return_counts=True)
    return rows.take(np.isin(rows.ledger, ids[counts > 1])) if len(ids) < len(rows) else EMPTY


def _over(base: Ledgers, tail: Ledgers) -> Ledgers:
    """All rows of the tail, and the rows of the base that it does not replace."""
    if not len(base) or not len(tail):
        return tail if len(tail) else base
    return concat([base.take(~np.isin(base.ledger, tail.ledger)), tail])


def _findings(rows: Ledgers, verdicts: Verdicts, since: Rows, before: Rows, also: Rows | None = None) -> Rows:
    """Findings of the rows that are not true (and of ``also``); a ledger keeps the time of its first drift."""
    untrue = verdicts.verdict != Verdict.TRUE
    pick = np.flatnonzero(untrue if also is None else untrue | also)
    out = np.zeros(len(pick), FINDING)
    for name in ("ledger", "mzxid", "ctime_ms", "version"):
        out[name] = getattr(rows, name)[pick]
    for name in ("fragment", "copies", "racks", "verdict", "rule", "held"):
        out[name] = getattr(verdicts, name)[pick]
    out["since_ms"] = since[pick]
    if len(before) and len(out):
        at = np.minimum(np.searchsorted(before["ledger"], out["ledger"]), len(before) - 1)
        out["since_ms"] = np.where(before["ledger"][at] == out["ledger"], before["since_ms"][at], out["since_ms"])
    return out


__all__ = ["CELLS", "EMPTY", "FINDING", "Bucket", "BucketAnswer", "merged"]
