"""What the loss of bookies would do: ledgers without a replica of some entries, ledgers with fewer replicas, bytes to
copy.

Entry ``e`` is written to ``Qw`` members of its fragment, from member ``e mod E`` on (RoundRobinDistributionSchedule). A
fragment of an open ledger counts as if it had entries at every member.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

import numpy as np

from trueup.state.bookkeeper.ledgers import MANY, Column, Ledgers
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.common.arrays import spans
from trueup.state.placement.policy.fragments import FragmentStage, fewest, stages

NOW = "now"
"""The name of the loss without any failure: that of the bookies that are missing already."""
NAMED = 10
"""Maximum number of ledgers that a loss names."""
_STORED = (LedgerState.OPEN, LedgerState.IN_RECOVERY, LedgerState.CLOSED)


@dataclass(slots=True)
class FailureEffect:
    """The effect of one failure, with the bookies that are missing already. A ledger counts by its weakest entries,
    those with the fewest replicas left."""

    name: str
    bookies: int
    ledgers: int = 0
    """The number of ledgers that name a failing bookie in a fragment with entries."""
    lost: int = 0
    """The number of ledgers whose weakest entries have no replica left."""
    one_copy: int = 0
    """The number of ledgers whose weakest entries have one of several replicas left."""
    fewer: int = 0
    """The number of ledgers whose weakest entries have two or more replicas left, but fewer than the write quorum."""
    open: int = 0
    """The number of ledgers in ``ledgers`` that are open or in recovery."""
    unwritable: int = 0
    """The number of ledgers in ``open`` whose ensemble is larger than the number of writable bookies left."""
    unrepairable: int = 0
    """The number of closed ledgers that miss a replica and whose ensemble is larger than the number of writable bookies
    left."""
    to_copy: float = 0.0
    """The bytes of closed ledgers that workers write to new bookies, if all entries of a ledger have one size. It is an
    upper bound: a worker leaves out the entries of each batch (rereplicationEntryBatchSize) before the first and after
    the last one that a replaced bookie stored."""
    named: list[int] = field(default_factory=list)
    """The ids of some of the lost ledgers, at most `NAMED`."""


class WhatIf:
    """Folds ledgers into the losses of these failures, and into the loss without any failure, `NOW`. ``failures``: the
    bookies of each failure, by its name; ``members``: the bookies that have a cookie or a registration; ``registered``:
    the bookies that are registered now; ``writable``: the bookies that accept entries now."""

    def __init__(
        self, failures: Mapping[str, Set[str]], members: Set[str], registered: Set[str], writable: Set[str]
    ) -> None:
        self._failures, self._registered, self._writable = failures, registered, writable
        # A bookie that was decommissioned has no cookie: only the ledgers name it.
        self.missing = {*members} - registered
        everything = {NOW: self.missing, **failures}
        self.losses = {name: FailureEffect(name, len(bookies)) for name, bookies in everything.items()}
        self.ledgers = 0

    def add(self, rows: Ledgers, last_entry: Column, length: Column, first_entry: Column) -> None:
        """Fold ledgers. ``last_entry`` and ``length``: the last entry and the bytes of each row; ``first_entry``: the
        first entry of each fragment. Unreadable and deleted ledgers do not count."""
        self.ledgers += int(np.isin(rows.state, _STORED).sum())
        rings = _Rings.of(rows, last_entry, length, first_entry)
        named = np.zeros(len(rows.names), bool)
        named[rows.members] = True
        missing = named & np.array([bookie not in self._registered for bookie in rows.names], bool)
        self.missing.update(rows.names[at] for at in np.flatnonzero(missing).tolist())
        self.losses[NOW].bookies = len(self.missing)
        for name, bookies in {NOW: self.missing, **self._failures}.items():
            dead = np.array([bookie in bookies for bookie in rows.names], bool)
            left = len(self._writable - bookies)
            for ring in rings:
                ring.lose(self.losses[name], dead, dead | missing, left)


@dataclass(frozen=True, slots=True, eq=False)
class _Rings:
    """Fragments of one ensemble size and write quorum."""

    members: Column
    stage: Column
    size: Column
    """The bytes of each fragment; 0 if its ledger is not closed."""
    owner: Column
    """The ledger of each fragment, as a position in the columns ``ledger`` and ``closed``."""
    quorum: int
    ledger: Column
    """The id of each ledger."""
    closed: Column
    """Whether each ledger is closed."""

    @staticmethod
    def of(rows: Ledgers, last_entry: Column, length: Column, first_entry: Column) -> Sequence["_Rings"]:
        """The fragments of these ledgers, by shape."""
        stored = np.isin(rows.state, _STORED)
        shape = rows.ensemble.astype(np.int64) << 16 | rows.quorum
        firsts = np.concatenate([np.zeros(1, np.int64), np.cumsum(rows.fragments, dtype=np.int64)])
        rings = []
        for code in np.unique(shape[stored]).tolist():
            at = np.flatnonzero(stored & (shape == code))
            count = rows.fragments[at].astype(np.int64)
            owner = np.repeat(np.arange(len(at)), count)
            first = first_entry[spans(firsts[at], firsts[at + 1])]
            ledgers, ring, tail = rows.take(at), code >> 16, _tails(count)
            closed = ledgers.state == LedgerState.CLOSED
            entries = np.where(tail, last_entry[at][owner] + 1, np.append(first[1:], 0)) - first
            writing = tail & ~closed[owner]
            state = np.where(writing, LedgerState.OPEN, LedgerState.CLOSED)
            share = np.maximum(entries, 0) / np.maximum(last_entry[at] + 1, 1)[owner]
            # The first entry of the fragment is written from this member on.
            turned = (np.arange(ring) + (first % ring)[:, None]) % ring
            rings.append(
                _Rings(
                    np.take_along_axis(ledgers.members.reshape(-1, ring), turned, axis=1),
                    stages(state, np.clip(entries, 0, MANY - 1).astype(np.uint8), ring),
                    np.where(closed, length[at], 0)[owner] * share,
                    owner,
                    code & 0xFFFF,
                    ledgers.ledger,
                    closed,
                )
            )
        return rings

    def lose(self, loss: FailureEffect, dead: Column, gone: Column, left: int) -> None:
        """Add the effect on these fragments. ``dead``: whether each bookie fails; ``gone``: whether each bookie is
        missing after the failure; ``left``: the number of writable bookies after the failure."""
        there = dead[self.members]
        hit = np.flatnonzero(there.any(axis=1) & (self.stage != FragmentStage.EMPTY))
        if not len(hit):
            return
        copies = fewest(~gone[self.members[hit]], self.quorum, self.stage[hit])
        weakest = np.full(len(self.ledger), self.quorum + 1, np.int64)
        np.minimum.at(weakest, self.owner[hit], copies)
        touched, ring = weakest <= self.quorum, self.members.shape[1]
        lost = weakest == 0
        loss.ledgers += int(touched.sum())
        loss.lost += int(lost.sum())
        loss.one_copy += int(((weakest == 1) & (self.quorum > 1)).sum())
        loss.fewer += int(((weakest > 1) & (weakest < self.quorum)).sum())
        writing = int((touched & ~self.closed).sum())
        loss.open += writing
        if ring > left:
            loss.unwritable += writing
            loss.unrepairable += int((touched & self.closed & (weakest < self.quorum)).sum())
        # A worker writes every entry of a fragment to each bookie that replaces one, whichever entries that one stored
        # (LedgerFragmentReplicator.replicateFragmentInternal).
        targets = there[hit].sum(axis=1)
        loss.to_copy += float((self.size[hit] * targets * (copies > 0)).sum())
        loss.named = sorted([*loss.named, *self.ledger[lost][:NAMED].tolist()])[:NAMED]


def _tails(count: Column) -> Column:
    """Whether each fragment is the last one of its ledger."""
    tail = np.zeros(int(count.sum()), bool)
    tail[np.cumsum(count)[count > 0] - 1] = True
    return tail
