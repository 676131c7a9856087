"""Verdicts on fragments: whether each adheres, and if not, what BookKeeper can do about it.

The rule is `RackawareEnsemblePlacementPolicyImpl.isEnsembleAdheringToPlacementPolicy` of BookKeeper 4.17: each of the E
windows of Qw members on the ring must span min(Qw, minNumRacksPerWriteQuorum) racks; only known, that is writable,
bookies give a rack; where that number is enforced, no window may touch the default rack.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from trueup.state.bookkeeper.ledgers import MANY, Column
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.bookkeeper.topology import UNKNOWN_RACK, Topology
from trueup.state.common.rules import Verdict
from trueup.state.placement.policy.adherence import Adherence
from trueup.state.placement.policy.bookie_classes import BookieClass, classes_of
from trueup.state.placement.policy.places import places_of
from trueup.state.placement.policy.replacement import LARGEST, Rack, RepairReach, colourable, reach, reachable, refill
from trueup.state.placement.rules import RULES


def _code(name: str) -> int:
    return RULES.code(f"placement.{name}")


ADHERES = _code("adheres")
OPEN = _code("open")
GONE = _code("gone")
LOST = _code("lost-member")
RACKS = _code("too-few-racks")
READONLY = _code("read-only-member")
DEFAULT = _code("default-rack")
NO_WALK = _code("no-walk")
CANNOT = _code("cannot-adhere")
NO_BOOKIES = _code("too-few-bookies")
ALL_LOST = _code("all-copies-lost")
REFUSED = _code("refused-by-target")
WRITER = _code("open-waits-for-writer")
OLDER = _code("open-older-fragment")
OPEN_RACKS = _code("open-not-adhering")
PENDING = _code("pending-member")
DEPTH = _code("odd-rack-depth")
UNREADABLE = _code("unreadable")
UNKNOWN_BOOKIE = _code("unknown-bookie")
UNPLACED = _code("unknown-rack")
OUTSIDE_GROUP = _code("outside-isolation-group")
LEAVES_GROUP = _code("leaves-isolation-group")
UNKNOWN_GROUP = _code("unknown-isolation-group")
SOFTLY = _code("adheres-softly")
DRAINING = _code("draining-member")
OPEN_DRAINING = _code("open-draining-member")
_FAILING = {"rack": RACKS, "isolation": RACKS, "region": _code("too-few-regions"), "zone": _code("too-few-zones")}
"""The rule of closed fragments with live members that do not adhere, by policy."""

BY_RACKS = ("rack", "isolation")
"""Policies that count racks."""
VERDICTS = np.array([rule.verdict for rule in RULES], np.uint8)
"""The `Verdict` of each rule, by code, where workers repair ledgers."""
COPIED: Column = np.isin(
    np.arange(len(RULES)),
    [NO_WALK, REFUSED, OUTSIDE_GROUP, LEAVES_GROUP, DRAINING, _FAILING["region"], _FAILING["zone"]],
)
"""Whether ledgers of each rule, by code, are repaired by copies and not by workers: bool."""
_DRAINED = np.arange(len(RULES))
_DRAINED[[ADHERES, SOFTLY, CANNOT]], _DRAINED[[OPEN, OPEN_RACKS]] = DRAINING, OPEN_DRAINING
"""The rule of a fragment with a draining member instead of another one, by code. Other rules state a higher risk, and
their repair also replaces this member."""
_TABLE = 1 << 22  # patterns are grouped by a table up to this size, above it by sorting


class FragmentStage(IntEnum):
    """The kind of fragment within its ledger."""

    CLOSED = 0
    EMPTY = 1  # of a closed ledger, without entries
    OPEN_OLDER = 2
    OPEN_TAIL = 3


_SHORT = len(FragmentStage)  # this value and above: closed, with 1, 2 .. entries, fewer than members


def _table(*kinds: BookieClass) -> Column:
    return np.isin(np.arange(len(BookieClass)), kinds)


KNOWN = _table(BookieClass.WRITABLE, BookieClass.PENDING_WRITABLE)
LIVELY = KNOWN | _table(BookieClass.ODD, BookieClass.PENDING_ODD)
ABSENT = _table(BookieClass.PENDING_WRITABLE, BookieClass.PENDING_READONLY, BookieClass.PENDING_ODD)
DEAD = _table(BookieClass.LOST, BookieClass.UNKNOWN)


@dataclass(frozen=True, slots=True, eq=False)
class FragmentFacts:
    """Properties of each of ``n`` rings of E members, independent of the state of the ledger."""

    copies: Column  # fewest replicas in any window: int32[n]; pending members count as before
    present: Column  # the same without pending members
    racks: Column  # fewest racks in any window, for the rack depth that gives the fewest: int32[n]
    fails: Column  # does not adhere for each rack depth of writable bookies: bool[n]
    soft: Column  # adheres, but not to what the policy desires: bool[n]
    kinds: Column  # `BookieClass` of each member: uint8[n, E]
    names: Column  # rack of each member: int32[n, E], codes into `BookieClasses.racks`


class FragmentJudge:
    """Judges fragments under one topology. Fragments that no rule distinguishes (a pattern) are judged once."""

    def __init__(self, topology: Topology) -> None:
        self.topology, self.bookie_classes = topology, classes_of(topology)
        self._by_racks = topology.policy.kind in BY_RACKS
        self._enforces = topology.enforce_min_racks and self._by_racks
        self.places = places_of(topology)
        self.verdicts = np.where(COPIED & topology.policy.copies, Verdict.DRIFTED, VERDICTS).astype(np.uint8)
        """The `Verdict` of each rule, by code."""
        self._memo: dict[tuple[object, ...], int] = {}

    def verdict_of(self, rule: int) -> str:
        """The name of the verdict of a rule."""
        return Verdict(int(self.verdicts[rule])).name.lower()

    def classes(self, names: tuple[str, ...]) -> Column:
        """Class of each bookie name in the topology, in the narrowest type."""
        return self.bookie_classes.classes(names).astype(np.min_scalar_type(len(self.bookie_classes.kind)))

    def judge(
        self, members: Column, stages: Column, quorum: int, acks: int, refusing: Mapping[Rack, int] | None = None
    ) -> tuple[Column, Column, Column]:
        """(rule uint8, copies uint16, racks uint16) of each fragment.

        ``members``: classes in ring order, [n, E]; ``stages``: the result of `stages`, [n]; ``quorum``, ``acks``: Qw
        and Qa; ``refusing``: the number of writable bookies of each rack that may refuse the ledger. Fragments without
        entries have 65535 copies.
        """
        sample, which = patterns(members, stages, len(self.bookie_classes.kind))
        facts, stage = self.facts(members[sample], quorum, stages[sample], acks), plain(stages[sample])
        rule = self._rules(facts, stage, quorum, refusing or {})
        leaving = self.bookie_classes.draining[members[sample]].any(axis=1)
        rule = np.where(leaving, _DRAINED[rule], rule)
        copies = np.where(stage == FragmentStage.EMPTY, 0xFFFF, facts.copies)
        return rule.astype(np.uint8)[which], copies.astype(np.uint16)[which], facts.racks.astype(np.uint16)[which]

    def facts(self, members: Column, quorum: int, stages: Column | None = None, acks: int = 0) -> FragmentFacts:
        """Properties of these rings; arguments as in `judge`."""
        kinds, racks = self.bookie_classes.kind[members], self.bookie_classes.rack[members]
        counted, alive = KNOWN[kinds], ~DEAD[kinds]
        spread, fails = self._adherence(racks, counted, quorum)
        for depth in self.bookie_classes.others if self._by_racks else ():
            least, worse = self._adherence(racks, LIVELY[kinds] & (self.bookie_classes.depths[racks] == depth), quorum)
            spread, fails = np.minimum(spread, least), fails | worse
        soft = np.zeros(len(fails), bool)
        if self.places is not None:
            answer = self.places.adherence(racks, counted, quorum, acks)
            fails, soft = answer == Adherence.FAIL, answer == Adherence.SOFT
        copies, present = (fewest(live, quorum, stages) for live in (alive, alive & ~ABSENT[kinds]))
        return FragmentFacts(copies, present, spread, fails, soft, kinds, racks)

    def _adherence(self, racks: Column, counted: Column, quorum: int) -> tuple[Column, Column]:
        """Fewest racks in any window, and whether the ring fails, if BookKeeper counts just the ``counted`` members."""
        spread = fewest_racks(racks, counted, quorum)
        fails = spread < min(quorum, self.topology.min_racks)
        if self._enforces:
            fails |= (counted & (racks == self.bookie_classes.default)).any(axis=1)
        return spread, fails

    def _rules(self, facts: FragmentFacts, stage: Column, quorum: int, refusing: Mapping[Rack, int]) -> Column:
        lost, absent = DEAD[facts.kinds].any(axis=1), ABSENT[facts.kinds].any(axis=1)
        closed, empty = stage <= FragmentStage.EMPTY, stage == FragmentStage.EMPTY
        unplaced = (facts.kinds == BookieClass.UNPLACED).any(axis=1)
        full = (stage == FragmentStage.CLOSED) | (stage == FragmentStage.OPEN_OLDER)
        first_that_holds = [
            ((facts.kinds == BookieClass.UNKNOWN).any(axis=1), UNKNOWN_BOOKIE),
            (lost & full & (facts.copies == 0), ALL_LOST),
            (lost & (stage == FragmentStage.OPEN_OLDER), OLDER),
            (lost & (stage == FragmentStage.OPEN_TAIL), WRITER),
            (lost & ~empty & (facts.present == 0), PENDING),
            (lost, LOST),
            (unplaced & (facts.fails | self._enforces), UNPLACED),
            (facts.fails & ~closed, OPEN_RACKS),
            (facts.fails & absent, PENDING),
            (facts.fails, _FAILING[self.topology.policy.kind]),
            (~closed, OPEN),
            (facts.soft, SOFTLY),
        ]
        conditions, codes = zip(*first_that_holds, strict=True)
        rule: Column = np.select(conditions, codes, ADHERES)
        for code, remedy in ((LOST, self._lost), (RACKS, self._failing)):
            rows = np.flatnonzero(rule == code)
            for at, form in zip(rows.tolist(), self._forms(facts, rows), strict=True):
                excluded = {} if empty[at] else refusing
                key = (code, quorum, form, frozenset(excluded.items()))
                if key not in self._memo:
                    self._memo[key] = remedy(facts, at, quorum, excluded)
                rule[at] = self._memo[key]
        return rule

    def _forms(self, facts: FragmentFacts, rows: Column) -> list[bytes]:
        """One key for all rings that differ only in the names of racks.

        The key holds for each member: kind, first member of the same rack, spare bookies there, whether it is the
        default rack; and how many of the other racks have 0, 1, 2 .. bookies. If racks differ in depth, one may
        contain another, so names are part of the key.
        """
        kinds, racks, size = facts.kinds[rows], facts.names[rows], facts.kinds.shape[1]
        if size > LARGEST:
            return [kind.tobytes() + rack.tobytes() for kind, rack in zip(kinds, racks, strict=True)]
        same = racks[:, :, None] == racks[:, None, :]
        first = same.argmax(axis=2)
        left = self.bookie_classes.writable[racks] - (same & (kinds == BookieClass.WRITABLE)[:, None, :]).sum(axis=2)
        stock = np.minimum(self.bookie_classes.writable, size)
        others = np.tile(np.bincount(stock, minlength=size + 1), (len(rows), 1))
        where, member = np.nonzero(first == np.arange(size))
        np.subtract.at(others, (where, stock[racks[where, member]]), 1)
        default = np.where(racks == self.bookie_classes.default, 1, 0)
        columns = [kinds, first, np.minimum(left, size), default, np.minimum(others, size)]
        if not self.bookie_classes.level:
            columns.append(racks)
        return [form.tobytes() for form in np.concatenate(columns, axis=1).astype(np.int16)]

    def _lost(self, facts: FragmentFacts, at: int, _: int, refusing: Mapping[Rack, int]) -> int:
        """LOST, or the rule that states why BookKeeper cannot replace the lost members. A bookie whose rack is unknown
        need not be the one that it selects, so its refusal alone is no reason."""
        placed = {rack: count for rack, count in refusing.items() if rack != UNKNOWN_RACK}
        if self.refill(facts, at, refusing) or (placed != refusing and self.refill(facts, at, placed, unplaced=False)):
            return LOST
        return REFUSED if refusing and self.refill(facts, at, {}) else NO_BOOKIES

    def _failing(self, facts: FragmentFacts, at: int, quorum: int, refusing: Mapping[Rack, int]) -> int:
        """Why a fragment with only live members fails, or why BookKeeper cannot make it adhere."""
        cause = self.cause(facts.kinds[at], facts.names[at], quorum)
        if cause == DEPTH or self.reachable(facts, at, quorum, refusing):
            return cause
        if refusing and self.reachable(facts, at, quorum, {}):
            return REFUSED
        if self.bookie_classes.unplaced:
            return UNPLACED  # a bookie whose rack is unknown may be the required one
        return NO_WALK if self.colourable(facts.kinds.shape[1], quorum) else CANNOT

    def refill(
        self,
        facts: FragmentFacts,
        at: int,
        refusing: Mapping[Rack, int],
        more: Mapping[Rack, int] | None = None,
        unplaced: bool = True,
    ) -> RepairReach:
        """Whether BookKeeper can replace the absent members by spare bookies and ``more``. Unless racks are enforced,
        it takes a bookie of any rack if no other is left, so those whose rack is unknown are also spares (``unplaced``:
        whether they count)."""
        kinds = facts.kinds[at]
        away = np.flatnonzero(DEAD[kinds] | ABSENT[kinds]).tolist()
        members, spares, _ = self.ring(facts, at, more)
        left = self.bookie_classes.unplaced - int(np.count_nonzero(kinds == BookieClass.UNPLACED))
        if unplaced and left and not self._enforces:
            spares[UNKNOWN_RACK] = spares.get(UNKNOWN_RACK, 0) + left
        return refill(members, away, spares, self._enforces, refusing=refusing)

    def reachable(self, facts: FragmentFacts, at: int, quorum: int, refusing: Mapping[Rack, int]) -> bool:
        """Whether BookKeeper's algorithm can make this ring adhere."""
        members, spares, unknown = self.ring(facts, at)
        policy = (self.topology.min_racks, self.topology.enforce_min_racks)
        return reachable(members, quorum, spares, *policy, unknown=unknown, refusing=refusing)

    def reach(
        self,
        facts: FragmentFacts,
        at: int,
        quorum: int,
        refusing: Mapping[Rack, int],
        more: Mapping[Rack, int] | None = None,
    ) -> RepairReach:
        """How certain a repair is, with ``more`` spare bookies by rack."""
        members, spares, unknown = self.ring(facts, at, more)
        policy = (self.topology.min_racks, self.topology.enforce_min_racks)
        return reach(members, quorum, spares, *policy, unknown=unknown, refusing=refusing)

    def colourable(self, size: int, quorum: int) -> bool:
        """Whether any ring of writable bookies adheres."""
        bookies: dict[Rack, int] = dict(
            zip(self.bookie_classes.racks, self.bookie_classes.writable.tolist(), strict=True)
        )
        return colourable(size, quorum, bookies, self.topology.min_racks, self.topology.enforce_min_racks)

    def cause(self, kinds: Column, racks: Column, quorum: int) -> int:
        """The condition that prevents a failing ring from adhering."""
        if self.bookie_classes.others:
            return DEPTH  # a repair that uses one depth may fail with another
        need = min(quorum, self.topology.min_racks)

        def enough(*more: BookieClass) -> bool:
            counted = np.isin(kinds, [BookieClass.WRITABLE, *more])
            return bool(fewest_racks(racks[None], counted[None], quorum)[0] >= need)

        if enough():
            return DEFAULT
        if enough(BookieClass.READONLY):
            return READONLY
        return DEPTH if enough(BookieClass.READONLY, BookieClass.ODD) else RACKS

    def ring(
        self, facts: FragmentFacts, at: int, more: Mapping[Rack, int] | None = None
    ) -> tuple[tuple[Rack, ...], dict[Rack, int], frozenset[int]]:
        """Racks of the members, spare bookies (and ``more``) by rack, and positions unknown to BookKeeper."""
        kinds, racks, names = facts.kinds[at], facts.names[at], self.bookie_classes.racks
        left = self.bookie_classes.writable - np.bincount(racks[kinds == BookieClass.WRITABLE], minlength=len(names))
        spares: Counter[Rack] = Counter({names[rack]: int(left[rack]) for rack in np.flatnonzero(left > 0).tolist()})
        spares.update(more or {})
        unknown = frozenset(np.flatnonzero(kinds != BookieClass.WRITABLE).tolist())
        return tuple(names[rack] for rack in racks.tolist()), dict(spares), unknown

    def targets(self, bookies: Iterable[str]) -> list[tuple[str, Rack]]:
        """Those of ``bookies`` that a repair could select, each with its rack, ordered by name."""
        classes = self.bookie_classes
        at = [(bookie, classes.of.get(bookie, -1)) for bookie in sorted(bookies)]
        kinds = [BookieClass.WRITABLE, *([] if self._enforces else [BookieClass.UNPLACED])]
        return [(b, classes.racks[classes.rack[c]]) for b, c in at if c >= 0 and classes.kind[c] in kinds]


def stages(state: Column, entries: Column, ring: int, tail: Column | None = None) -> Column:
    """`FragmentStage` of each fragment of ``ring`` members, plus the number of entries if they do not reach every
    window; ``tail``: whether a fragment is the last of its ledger (None: all are)."""
    last = np.ones(len(state), bool) if tail is None else tail
    held = entries.astype(np.int16)
    some = np.where(held < min(ring, MANY), held + (_SHORT - 1), FragmentStage.CLOSED)
    closed = np.where(last, np.where(held == 0, FragmentStage.EMPTY, some), FragmentStage.CLOSED)
    stage = np.where(
        state == LedgerState.CLOSED, closed, np.where(last, FragmentStage.OPEN_TAIL, FragmentStage.OPEN_OLDER)
    )
    return stage.astype(np.int16)


def plain(stages: Column) -> Column:
    """`FragmentStage` without the number of entries."""
    return np.where(stages < _SHORT, stages, FragmentStage.CLOSED)


def patterns(members: Column, stages: Column, classes: int) -> tuple[Column, Column]:
    """(one row of each distinct pattern, pattern of each row)."""
    key, limit = stages.astype(np.int32), int(stages.max(initial=0)) + 1
    for column in members.T:
        if limit * classes > _TABLE:
            key, limit = _dense(key.astype(np.int64), limit)
        key = key * key.dtype.type(classes) + column
        limit *= classes
    key, limit = _dense(key, limit)
    sample = np.zeros(limit, np.int64)
    sample[key] = np.arange(len(key))
    return sample, key


def _dense(key: Column, limit: int) -> tuple[Column, int]:
    """Keys below ``limit`` renumbered without gaps, and their number."""
    if limit > _TABLE:
        used, dense = np.unique(key, return_inverse=True)
        return dense, len(used)
    seen = np.zeros(limit, bool)
    seen[key] = True
    number = np.cumsum(seen) - 1
    return number[key], int(number[-1]) + 1


def fewest(counted: Column, quorum: int, stages: Column | None = None) -> Column:
    """Fewest counted members in any window of each ring that holds an entry: bool[n, E] to int32[n]."""
    total = np.zeros(counted.shape, np.int32)
    for step in range(quorum):
        total += np.roll(counted, -step, axis=1)
    if stages is not None and (short := stages >= _SHORT).any():
        # Entry k is written to the window that begins at member k.
        unused = np.arange(counted.shape[1]) > (stages - _SHORT)[:, None]
        total[short[:, None] & unused] = quorum
    least: Column = total.min(axis=1)
    return least


def fewest_racks(racks: Column, counted: Column, quorum: int) -> Column:
    """Fewest distinct racks of counted members in any window of each ring: int32[n]."""
    total = np.zeros(racks.shape, np.int32)
    for word in range(int(racks.max(initial=0)) // 64 + 1):
        mine = counted & (racks // 64 == word)
        bits = np.where(mine, np.uint64(1) << (racks % 64).astype(np.uint64), np.uint64(0))
        seen = bits
        for step in range(1, quorum):
            seen = seen | np.roll(bits, -step, axis=1)
        total += np.bitwise_count(seen)
    least: Column = total.min(axis=1)
    return least
