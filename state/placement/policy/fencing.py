"""Which bookies may refuse which ledgers because they held them before.

BookKeeper 4.17 and 4.18 (`bookie/HandleFactoryImpl`): a bookie that collects a ledger for which its process has a
write handle (the ledger received an entry or a fence since the start) remembers this, and answers
LedgerFencedAndDeleted to new replicas. The memory ends with the process, or 7 days after the last request, including
refused ones. A replica is collected within gcOverreplicatedLedgerWaitTime after the metadata stopped naming the bookie
(`ScanAndCompareGarbageCollector`), counted from the start of the process.

ZooKeeper does not distinguish a restart from an expired session. Therefore:

- a bookie that was registered when the metadata dropped it may refuse from then on. A new registration proves nothing;
- a bookie that was away at that time cannot have collected before it returns. Its old replica is accepted until it is
  collected: the bookie may refuse from gcOverreplicatedLedgerWaitTime after its return;
- both end 7 days after the last possible moment of collection, or when an operator states that bookies which
  registered again were restarted (`Topology.restarted`).
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trueup.state.bookkeeper.ledgers import Column, Ledgers
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.bookkeeper.topology import Status, Topology
from trueup.state.common.arrays import spans
from trueup.state.common.errors import BadBytes

REFUSES_MS = 7 * 86_400_000
SLACK_MS = 3_600_000  # collection runs every gcWaitTime and takes time
AWAY_MS = 90 * 86_400_000  # a bookie that is away for longer has restarted
NEVER = np.iinfo(np.int64).max

_MAGIC, _FORM = b"TF", 2
_HEAD = struct.Struct("<2sBxII")  # magic, form, rows, bytes of names
_ROW = {"ledger": "<i8", "dropped_zxid": "<i8", "from_ms": "<i8", "until_ms": "<i8", "bookie": "<u4"}
_REGISTERED = (Status.WRITABLE, Status.READONLY)


def _empty(dtype: str) -> Column:
    return np.zeros(0, dtype)


@dataclass(frozen=True, slots=True, eq=False)
class FormerMembers:
    """``n`` pairs of ledger and bookie, in the order of ledger ids."""

    ledger: Column = field(default_factory=lambda: _empty("<i8"))
    """int64: the id of the ledger."""
    dropped_zxid: Column = field(default_factory=lambda: _empty("<i8"))
    """int64: the zxid of the write after which the metadata no longer named the bookie."""
    from_ms: Column = field(default_factory=lambda: _empty("<i8"))
    """int64: the start of the time in which the bookie may refuse, ms since the epoch; `NEVER` while it is away."""
    until_ms: Column = field(default_factory=lambda: _empty("<i8"))
    """int64: the end of the time in which the bookie may refuse, ms since the epoch."""
    bookie: Column = field(default_factory=lambda: _empty("<u4"))
    """uint32: the code of the bookie."""
    names: tuple[str, ...] = ()
    """The id of each bookie, by code."""

    def __len__(self) -> int:
        return len(self.ledger)

    def of(self, ledger: int) -> frozenset[str]:
        """Bookies of all pairs of this ledger, at any time."""
        first, last = np.searchsorted(self.ledger, [ledger, ledger + 1])
        return frozenset(self.names[code] for code in self.bookie[first:last].tolist())

    def at(self, now_ms: int) -> "FormerMembers":
        """The pairs in force now: these bookies may refuse these ledgers."""
        return self._take((self.from_ms <= now_ms) & (now_ms < self.until_ms))

    def about(self, ledgers: Column) -> "FormerMembers":
        """The pairs of these ledgers."""
        return self._take(np.isin(self.ledger, ledgers)) if len(self) else self

    def next_ms(self, now_ms: int) -> int:
        """When the next pair starts or ends; `NEVER` if none does by itself."""
        moments = np.concatenate([self.from_ms, self.until_ms[self.from_ms < NEVER]])
        return int(moments[moments > now_ms].min(initial=NEVER))

    def merge(self, before: Ledgers, after: Ledgers, seen: Topology | None) -> "FormerMembers":
        """Remember the bookies that the metadata dropped on the way to ``after``.

        ``after`` holds the newest row of each ledger, ``before`` any number of older rows. Pairs of current members
        and of deleted ledgers are removed. ``seen``: the last known topology. Returns itself if nothing
        changed.
        """
        if not len(after):
            return self
        code = {name: at for at, name in enumerate(self.names)}
        old, new = _pairs(before, code), _pairs(after, code)
        rows = {ledger: at for at, ledger in enumerate(after.ledger.tolist())}
        gone = set(after.ledger[after.state == LedgerState.GONE].tolist())
        dropped = {pair for pair in old - new if pair[0] in rows and pair[0] not in gone}
        mine = list(zip(self.ledger.tolist(), self.bookie.tolist(), strict=True))
        stays = np.array([pair not in new and pair[0] not in gone for pair in mine], bool)
        fresh = sorted(dropped.difference(mine))
        if not fresh and stays.all():
            return self
        names, at = tuple(code), np.array([rows[ledger] for ledger, _ in fresh], np.int64)
        zxids, times = after.mzxid[at].tolist(), after.seen_ms[at].tolist()
        spans_ms = _Spans(seen)
        limits = [
            spans_ms.dropped(names[bookie], zxid, now_ms)
            for (_, bookie), zxid, now_ms in zip(fresh, zxids, times, strict=True)
        ]
        added = FormerMembers(
            np.array([ledger for ledger, _ in fresh], np.int64),
            np.array(zxids, np.int64),
            np.array([first for first, _ in limits], np.int64),
            np.array([last for _, last in limits], np.int64),
            np.array([bookie for _, bookie in fresh], np.uint32),
            names,
        )
        return _sorted([replace(self._take(stays), names=names), added], names)

    def settle(self, now: Topology, before: Topology | None) -> "FormerMembers":
        """The memory under a new topology; returns itself if nothing changed.

        The time of bookies that returned starts, and ended pairs are removed. If ``restarted`` was increased, pairs
        of bookies that registered since the drop are also removed.
        """
        if not len(self):
            return self
        spans_ms = _Spans(now)
        returned = self.from_ms == NEVER
        returned &= np.array([name in spans_ms.registered for name in self.names], bool)[self.bookie]
        first, last = spans_ms.returned(now.at_ms)
        kept = self
        if returned.any():
            begins, ends = np.where(returned, first, self.from_ms), np.where(returned, last, self.until_ms)
            kept = replace(self, from_ms=begins, until_ms=ends)
        stays = kept.until_ms > now.at_ms
        if before is not None and now.restarted > before.restarted:
            begun = np.array([spans_ms.registered.get(name, 0) for name in self.names], np.int64)
            stays &= begun[self.bookie] <= self.dropped_zxid
        return kept._take(stays)

    def _take(self, rows: Column) -> "FormerMembers":
        if rows.all():
            return self
        kept = {name: getattr(self, name)[rows] for name in _ROW}
        return replace(self, **kept)

    def to_bytes(self) -> bytes:
        """Serialize the pairs."""
        used, codes = np.unique(self.bookie, return_inverse=True)
        names = "\n".join(self.names[at] for at in used.tolist()).encode()
        held = {name: getattr(self, name) for name in _ROW} | {"bookie": codes}
        columns = [np.ascontiguousarray(held[name], dtype).tobytes() for name, dtype in _ROW.items()]
        return b"".join([_HEAD.pack(_MAGIC, _FORM, len(self), len(names)), *columns, names])

    @staticmethod
    def from_bytes(blob: bytes, where: str = "the state") -> "FormerMembers":
        """Parse the output of `to_bytes`. Raises `BadBytes` for anything else."""
        if len(blob) < _HEAD.size or blob[:2] != _MAGIC or blob[2] != _FORM:
            raise BadBytes(where, 0, f"a block of dropped replicas of form {_FORM}", repr(blob[:3]), "rebuild the view")
        _, _, rows, names = _HEAD.unpack_from(blob)
        expected = _HEAD.size + rows * sum(np.dtype(dtype).itemsize for dtype in _ROW.values()) + names
        if len(blob) != expected:
            raise BadBytes(where, len(blob), f"{expected} bytes", f"{len(blob)} bytes", "rebuild the view")
        at, columns = _HEAD.size, {}
        for name, dtype in _ROW.items():
            columns[name] = np.frombuffer(blob, dtype, rows, at)
            at += columns[name].nbytes
        text = blob[at:].decode()
        return FormerMembers(**columns, names=tuple(text.split("\n")) if text else ())


NO_FORMER = FormerMembers()


class _Spans:
    """The time in which a bookie may refuse, under one topology."""

    def __init__(self, seen: Topology | None) -> None:
        bookies = seen.bookies if seen else ()
        self._known = seen is not None
        self._collected_ms = (seen.collect_ms if seen else 0) + SLACK_MS
        self.registered = {b.id: b.begun_zxid for b in bookies if b.status in _REGISTERED}

    def dropped(self, bookie: str, zxid: int, now_ms: int) -> tuple[int, int]:
        """For a bookie that the write ``zxid``, read now, removed from the metadata."""
        begun = self.registered.get(bookie)
        if not self._known or (begun is not None and begun <= zxid):
            return now_ms, now_ms + self._collected_ms + REFUSES_MS
        return (NEVER, now_ms + AWAY_MS) if begun is None else self.returned(now_ms)

    def returned(self, now_ms: int) -> tuple[int, int]:
        """For a bookie that was away when it was dropped, and registers now."""
        begins = now_ms + self._collected_ms - SLACK_MS
        return begins, begins + SLACK_MS + REFUSES_MS


def joined(parts: Iterable[FormerMembers]) -> FormerMembers:
    """All pairs of all parts. The parts have no ledger in common."""
    code: dict[str, int] = {}
    recoded = []
    for part in parts:
        codes = np.array([code.setdefault(name, len(code)) for name in part.names], np.uint32)
        recoded.append(replace(part, bookie=codes[part.bookie]) if len(part) else NO_FORMER)
    return _sorted(recoded, tuple(code)) if code else NO_FORMER


def _pairs(ledgers: Ledgers, code: dict[str, int]) -> set[tuple[int, int]]:
    """(ledger, code) of every member of every fragment; new names are added to ``code``."""
    codes = np.array([code.setdefault(name, len(code)) for name in ledgers.names], np.uint32)
    starts = ledgers.starts
    ids = np.repeat(ledgers.ledger, np.diff(starts))
    members = codes[ledgers.members[spans(starts[:-1], starts[1:])]] if len(ids) else codes[:0]
    return set(zip(ids.tolist(), members.tolist(), strict=True))


def _sorted(parts: Sequence[FormerMembers], names: tuple[str, ...]) -> FormerMembers:
    """Pairs ordered by ledger, with unused names removed. The codes refer to ``names``."""
    columns: dict[str, Any] = {
        name: np.concatenate([_empty(dtype), *(getattr(part, name) for part in parts)]) for name, dtype in _ROW.items()
    }
    order = np.lexsort((columns["bookie"], columns["ledger"]))
    used, codes = np.unique(columns["bookie"][order], return_inverse=True)
    columns = {name: column[order] for name, column in columns.items()} | {"bookie": codes.astype(np.uint32)}
    return FormerMembers(**columns, names=tuple(names[at] for at in used.tolist()))
