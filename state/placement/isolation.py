"""Verdicts on ledgers with isolation groups: members outside them, and repairs that would leave them.

Workers select replacements in all racks, whatever the groups of a ledger: `replaceToAdherePlacementPolicy` of Pulsar's
class is BookKeeper's own, and `replaceBookie` respects the groups only in workers with `isolationBookieGroups`. So a
ledger is not marked if a bookie outside its groups could receive a replica.
"""

from collections import Counter
from typing import Any

import numpy as np

from trueup.state.bookkeeper.ledgers import Column, Ledgers
from trueup.state.common.arrays import spans
from trueup.state.common.rules import Verdict
from trueup.state.placement.policy.bookie_classes import BookieClass
from trueup.state.placement.policy.fragments import (
    ABSENT,
    DEAD,
    GONE,
    LEAVES_GROUP,
    NO_BOOKIES,
    OUTSIDE_GROUP,
    UNKNOWN_GROUP,
    VERDICTS,
    FragmentJudge,
)
from trueup.state.placement.policy.groups import groups_of
from trueup.state.placement.policy.replacement import refilled
from trueup.state.placement.rules import RULES

_DRIFTED = VERDICTS == Verdict.DRIFTED
_JUDGED = _DRIFTED | ((VERDICTS == Verdict.TRUE) & (np.arange(len(RULES)) != GONE))
"""Rules of ledgers that are marked, or true, unless their groups forbid it."""
_AWAY = ABSENT | DEAD
_TARGET = np.isin(np.arange(len(BookieClass)), [BookieClass.WRITABLE, BookieClass.ODD, BookieClass.UNPLACED])


class IsolationJudge:
    """Judges rows by their groups."""

    def __init__(self, ledgers: Ledgers, bench: FragmentJudge) -> None:
        self._ledgers, self._bench, self._policy = ledgers, bench, bench.topology.policy
        self._groups = groups_of(bench.topology)
        self._classes = bench.classes(ledgers.names)
        self._kinds = bench.bookie_classes.kind[self._classes]

    def apply(self, rule: Column, fragment: Column) -> None:
        """Replace the rule and the worst fragment of each row that its groups decide."""
        for code, isolation in enumerate(self._ledgers.isolations):
            understood = self._groups.understood(isolation)
            if understood and self._groups.of(isolation) is None:
                continue
            rows = np.flatnonzero((self._ledgers.isolation == code) & _JUDGED[rule])
            if not (understood and self._groups.listed):
                rule[rows] = UNKNOWN_GROUP
                continue
            for size in np.unique(self._ledgers.ensemble[rows]).tolist():
                self._apply(rows[self._ledgers.ensemble[rows] == size], isolation, size, rule, fragment)

    def evidence(self) -> dict[str, Any] | None:
        """The groups of the first row and its members outside them; None if it has no groups."""
        isolation = self._ledgers.isolations[int(self._ledgers.isolation[0])]
        if not self._groups.understood(isolation):
            return {"primary": [], "secondary": [], "outside": [], "source": isolation}
        groups = self._groups.of(isolation)
        if groups is None:
            return None
        allowed = self._groups.allowed(isolation, int(self._ledgers.ensemble[0]))
        members = dict.fromkeys(name for ensemble in self._ledgers.ensembles(0) for name in ensemble)
        outside = [name for name in members if allowed is not None and name not in allowed]
        primary, secondary = map(sorted, groups)
        source = self._groups.source(isolation)
        return {"primary": primary, "secondary": secondary, "outside": outside, "source": source}

    def changes(self, rule: int) -> list[str]:
        """What would change this rule of the first row, if it is one of isolation."""
        groups = self.evidence()
        if groups is None or not groups["outside"] or rule != OUTSIDE_GROUP:
            return []
        names = groups["primary"] or ["no group"]
        return [f"{' and '.join(groups['outside'])} in {' or '.join(names)} of the rack map"]

    def _apply(self, rows: Column, isolation: str, size: int, rule: Column, fragment: Column) -> None:
        allowed = self._groups.allowed(isolation, size)
        if allowed is None:
            return
        inside = np.array([name in allowed for name in self._ledgers.names], bool)
        starts, count = self._ledgers.starts, self._ledgers.fragments[rows].astype(np.int64)
        rings = self._ledgers.members[spans(starts[rows], starts[rows + 1])].reshape(-1, size)
        first = np.cumsum(count) - count
        outside = ~inside[rings].all(axis=1)
        drifted = _DRIFTED[rule[rows]]
        leaves, lasting, short = self._repairs(rings, inside, allowed, np.repeat(rows, count), isolation)
        ahead = np.where(outside, np.arange(len(rings)), len(rings))
        worst = np.minimum.reduceat(ahead, first) - first
        stray = ~drifted & (worst < count)
        conditions = [drifted & _any(leaves, first), drifted & _any(short, first) & ~_any(lasting, first), stray]
        rule[rows] = np.select(conditions, [LEAVES_GROUP, NO_BOOKIES, OUTSIDE_GROUP], rule[rows].astype(np.int64))
        fragment[rows[stray]] = worst[stray]

    def _repairs(
        self, rings: Column, inside: Column, allowed: frozenset[str], owner: Column, isolation: str
    ) -> tuple[Column, Column, Column]:
        """Whether a worker may select a bookie outside the groups for each fragment; whether it finds bookies in place
        of the lost ones; and whether there are too few. ``owner``: the row of each fragment."""
        here, target = inside[rings], _TARGET[self._kinds[rings]]
        permitted = self._policy.leave_isolation
        away: Column = np.count_nonzero(_AWAY[self._kinds[rings]], axis=1) > 0
        lost: Column = np.count_nonzero(DEAD[self._kinds[rings]], axis=1) > 0
        outside = self._targets() - len(self._targets_in(allowed)) > (target & ~here).sum(axis=1)
        moves = self._moves(rings, owner) & ~away
        if not self._groups.respected(isolation):
            return outside & (away | moves) & (not permitted), lost, np.zeros(len(rings), bool)
        filled, adheres = self._refilled(rings, here, allowed, owner, away)
        leaves = outside & np.where(away, filled & ~adheres, moves) & (not permitted)
        return leaves, lost & filled, lost & ~filled

    def _moves(self, rings: Column, owner: Column) -> Column:
        """Whether a worker that repairs the ledger also moves replicas of each fragment for the sake of racks."""
        quorum, moves = self._ledgers.quorum[owner], np.zeros(len(rings), bool)
        for width in np.unique(quorum).tolist():
            some = quorum == width
            moves[some] = self._bench.facts(self._classes[rings[some]], width).fails
        return moves

    def _refilled(
        self, rings: Column, here: Column, allowed: frozenset[str], owner: Column, away: Column
    ) -> tuple[Column, Column]:
        """Whether a worker finds bookies within the groups in place of the absent members of each fragment, and whether
        the fragment then adheres in any case. Where it does not, the worker moves replicas for the sake of racks."""
        filled, adheres = ~away, ~away
        rows = np.flatnonzero(away)
        forms = np.column_stack([self._ledgers.quorum[owner[rows]], self._classes[rings[rows]], here[rows]])
        forms, which = np.unique(forms.astype(np.int64), axis=0, return_inverse=True)
        size = rings.shape[1]
        answers = [self._after(form[1 : size + 1], form[size + 1 :] > 0, allowed, int(form[0])) for form in forms]
        table = np.array(answers, bool).reshape(-1, 2)[which.reshape(-1)]
        filled[rows], adheres[rows] = table[:, 0], table[:, 1]
        return filled, adheres

    def _after(self, ring: Column, here: Column, allowed: frozenset[str], quorum: int) -> tuple[bool, bool]:
        """The same for one ring of classes. ``here``: whether each member is within the groups."""
        classes, topology = self._bench.bookie_classes, self._bench.topology
        kinds, racks = classes.kind[ring], [classes.racks[rack] for rack in classes.rack[ring].tolist()]
        spares = Counter(classes.racks[classes.rack[classes.of[bookie]]] for bookie in self._targets_in(allowed))
        spares.subtract(rack for rack, taken in zip(racks, here & _TARGET[kinds], strict=True) if taken)
        lost, unknown = (np.flatnonzero(kind).tolist() for kind in (_AWAY[kinds], kinds != BookieClass.WRITABLE))
        settings = quorum, topology.min_racks, topology.enforce_min_racks
        filled, adheres = refilled(racks, lost, +spares, *settings, unknown=unknown)
        return filled, adheres and classes.level and not classes.unplaced

    def _targets(self) -> int:
        classes = self._bench.bookie_classes
        return sum(bool(_TARGET[classes.kind[at]]) for at in classes.of.values())

    def _targets_in(self, allowed: frozenset[str]) -> list[str]:
        classes = self._bench.bookie_classes
        return [bookie for bookie in allowed if _TARGET[classes.kind[classes.of[bookie]]]]


def _any(of_fragments: Column, first: Column) -> Column:
    """Whether any fragment of each row is true. ``first``: the first fragment of each row."""
    some: Column = np.logical_or.reduceat(of_fragments, first)
    return some
