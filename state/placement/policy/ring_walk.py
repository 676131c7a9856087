"""BookKeeper's walk around one ring, over every outcome of its random choices.

`RackawareEnsemblePlacementPolicyImpl.doReplaceToAdherePlacementPolicy` of BookKeeper 4.17 starts at one member, goes
around the ring once and never back. It keeps a member if every window through it can still span enough racks.
Otherwise it takes any bookie that satisfies the first satisfiable one of three conditions:

1. outside the ensemble, and in a rack of none of the ``need`` - 1 members before and after it,
2. outside the ensemble, and not in the rack of the previous member,
3. not in the rack of the previous member; this can only be a later member of the ring.
"""

from collections.abc import Callable, Iterator
from functools import reduce
from operator import or_
from typing import NamedTuple

Outcome = tuple[int, bool]  # replicas moved, and whether every target accepts them
FAILED: Outcome = (-1, False)


class RingMember(NamedTuple):
    """A member of the ring."""

    rack: int
    """The number of the rack of the member; -1 if BookKeeper does not know the member."""
    shade: int
    """The racks within the location of the member, as bits."""
    may: bool
    """Whether the member may be kept."""


class SparePool(NamedTuple):
    """Spare bookies that are equivalent."""

    rack: int
    refuses: bool
    size: int


class RingPosition(NamedTuple):
    """The state of a walk."""

    at: int
    """The position to fill."""
    chosen: tuple[int, ...]
    """The racks chosen so far."""
    used: int
    """The members that were chosen for an earlier position than their own, as bits."""
    free: tuple[int, ...]
    """The number of spare bookies in each pool."""


class RingWalk:
    """The walk around one ring from its first member, over all random choices.

    Spare bookies are counted by pool (rack, refuses); a replaced member joins the pool of its rack.
    """

    def __init__(
        self, ring: tuple[RingMember, ...], quorum: int, need: int, pool: tuple[SparePool, ...], home: int, states: int
    ) -> None:
        self.ring, self.size, self.quorum, self.need, self.home = ring, len(ring), quorum, need, home
        self.left = states
        stock = {(seat.rack, False): 0 for seat in ring if seat.may}
        stock.update({(rack, refuses): count for rack, refuses, count in pool})
        self.kinds = tuple(stock)
        self.kind_at = {kind: at for at, kind in enumerate(self.kinds)}
        self.shown = reduce(or_, (seat.shade for seat in ring), 0)
        self.start = RingPosition(0, (), 0, tuple(stock.values()))
        self.memo: dict[object, frozenset[Outcome]] = {}
        self.failed: set[object] = set()

    def outcomes(self, here: RingPosition) -> frozenset[Outcome]:
        """Every reachable (replicas moved, clean), plus `FAILED` if the walk can fail."""
        if here.at == self.size:
            return frozenset({(0, True)})
        key = self._key(here)
        if key not in self.memo:
            self.left -= 1
            out: set[Outcome] = set()
            for moved, takes, there in self._steps(here) if self.left > 0 else ():
                for moves, clean in self.outcomes(there):
                    out.add(FAILED if moves < 0 else (moves + moved, clean and takes))
            self.memo[key] = frozenset(out or {FAILED})
        return self.memo[key]

    def succeeds(self, here: RingPosition) -> bool:
        """Whether the walk can succeed from here."""
        if here.at == self.size:
            return True
        key = self._key(here)
        if key in self.failed or self.left <= 0:
            return False
        self.left -= 1
        if any(self.succeeds(there) for _, _, there in self._steps(here)):
            return True
        self.failed.add(key)
        return False

    def _key(self, here: RingPosition) -> object:
        """The state that later choices depend on: the chosen racks within a window of either end, and the spares."""
        reach, at, racks = max(self.quorum - 1, 1), here.at, here.chosen
        if at > 2 * reach:
            racks = racks[:reach] + racks[at - reach :]
        return at, racks, here.used >> at, tuple(min(count, self.size - at) for count in here.free)

    def _steps(self, here: RingPosition) -> Iterator[tuple[int, bool, RingPosition]]:
        """(replicas moved, whether the target accepts, next state) of each choice for this position."""
        at, racks, used, free = here
        seat, fits = self.ring[at], self._fits(at, racks)
        stays = seat.may and not used >> at & 1
        if stays and fits(seat.rack):
            yield 0, True, RingPosition(at + 1, (*racks, seat.rack), used, free)
            return
        for kind, member in self._choices(here, fits):
            rack, refuses = self.kinds[kind]
            left = list(free)
            if stays:
                left[self.kind_at[seat.rack, False]] += 1
            if member < 0:
                left[kind] -= 1
            taken = used | (1 << member if member >= 0 else 0)
            yield 1, not refuses, RingPosition(at + 1, (*racks, rack), taken, tuple(left))

    def _fits(self, at: int, racks: tuple[int, ...]) -> Callable[[int], bool]:
        """RRTopologyAwareCoverageEnsemble.apply: whether every window of this position can still span enough racks."""
        if self.quorum < 2:
            return lambda _: True
        lacks = []
        for start in range(at - self.quorum + 1, at + 1):
            seen = [racks[i] for i in ((start + j) % self.size for j in range(self.quorum)) if i < at]
            room = self.quorum - len(seen) - 1
            lacks.append((frozenset(seen), self.need - room))
        return lambda rack: all(len(seen) + (rack not in seen) >= least for seen, least in lacks)

    def _choices(self, here: RingPosition, fits: Callable[[int], bool]) -> list[tuple[int, int]]:
        """Candidates of the first condition that has any, as (kind, position of the member or -1)."""
        at, racks, used, free = here
        around = self._around(at, racks)
        scope = ~(1 << racks[-1]) if racks else self.home
        pools = [k for k, count in enumerate(free) if count and fits(self.kinds[k][0])]
        first = [k for k in pools if self.need > 1 and not around >> self.kinds[k][0] & 1]
        second = first or [k for k in pools if scope >> self.kinds[k][0] & 1]
        if second:
            return [(k, -1) for k in self._distinct(second, racks, free)]
        return [
            (self.kind_at[seat.rack, False], i)
            for i, seat in enumerate(self.ring)
            if i > at and seat.may and not used >> i & 1 and scope >> seat.rack & 1 and fits(seat.rack)
        ]

    def _around(self, at: int, racks: tuple[int, ...]) -> int:
        """Racks of the need - 1 members on either side, as bits; later members count with their current racks."""
        bits = 0
        for step in range(1, self.need):
            for i in ((at - step) % self.size, (at + step) % self.size):
                bits |= 1 << racks[i] if i < at else self.ring[i].shade
        return bits

    def _distinct(self, pools: list[int], racks: tuple[int, ...], free: tuple[int, ...]) -> list[int]:
        """One pool of each group that differs in name only: same stock, in racks without members or choices."""
        out: dict[object, int] = {}
        for kind in pools:
            rack, refuses = self.kinds[kind]
            pair = (self.kind_at.get((rack, no), -1) for no in (False, True))
            stock = tuple(free[at] if at >= 0 else 0 for at in pair)
            unseen = not self.shown >> rack & 1 and rack not in racks
            out.setdefault((stock, refuses, self.home >> rack & 1) if unseen else kind, kind)
        return list(out.values())
