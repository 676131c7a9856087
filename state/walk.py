"""What BookKeeper can make of an ensemble with the bookies at hand.

`reach` goes through `RackawareEnsemblePlacementPolicyImpl.replaceToAdherePlacementPolicy` (4.17, BP-54) with every
outcome of its random choices; `refill` does so for `replaceBookie` as `BookKeeperAdmin.getReplacementBookiesByIndexes`
calls it. `colourable` asks whether any good arrangement exists at all. Disk weights are ignored.

Racks are locations ("/rack1"); None is `/default-rack`. A bookie outside the ensemble only counts by its rack, and by
whether it would refuse the ledger.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache, reduce
from operator import or_
from typing import NamedTuple

DEFAULT_RACK = "/default-rack"
LARGEST = 64  # larger rings are not searched
STATES = 20_000  # a search that has seen so many situations stops and says so

Rack = str | None
_Outcome = tuple[int, bool]  # copies moved (-1: the walk failed), whether every target takes them
_FAILED: _Outcome = (-1, False)


class Sure(IntEnum):
    """Whether an attempt succeeds."""

    NEVER = 0
    SOMETIMES = 1  # it depends on random choices, and a worker tries again
    ALWAYS = 2


@dataclass(frozen=True, slots=True)
class Reach:
    """``moves``: the fewest copies a successful attempt moves (0: none can succeed, or none need move).

    ``cut``: the search stopped at a bound (`STATES`, `LARGEST`), so NEVER means that no way was found, and ALWAYS is
    not claimed.
    """

    sure: Sure
    moves: int = 0
    cut: bool = False

    def __bool__(self) -> bool:
        return self.sure > Sure.NEVER


_NEVER, _CUT = Reach(Sure.NEVER), Reach(Sure.NEVER, cut=True)


class _Seat(NamedTuple):
    """A member: its rack (-1: not known), racks within its location as bits, and whether it may be kept."""

    rack: int
    shade: int
    may: bool


class _Pool(NamedTuple):
    """Spare bookies that are alike."""

    rack: int
    refuses: bool
    size: int


class _Place(NamedTuple):
    """Where a walk is: the place to fill, racks chosen so far, members used ahead as bits, spares left by kind."""

    at: int
    chosen: tuple[int, ...]
    used: int
    free: tuple[int, ...]


_Task = tuple[tuple[_Seat, ...], int, int, tuple[_Pool, ...], int]


def windows(size: int, quorum: int) -> tuple[tuple[int, ...], ...]:
    """Positions of each of the ``size`` windows of ``quorum`` members on the ring."""
    return tuple(tuple((i + j) % size for j in range(quorum)) for i in range(size))


def reach(
    members: Sequence[Rack],
    quorum: int,
    spares: Mapping[Rack, int],
    min_racks: int = 2,
    enforce: bool = False,
    *,
    unknown: Collection[int] = (),
    refusing: Mapping[Rack, int] | None = None,
    local: Rack = None,
) -> Reach:
    """Can BookKeeper move the copies of this ensemble so that it adheres?

    ``members``: rack of each member in ring order. ``unknown``: positions of members that BookKeeper does not know
    (lost, read-only); it must replace them, but their racks still steer its choices. ``spares``: writable bookies
    outside the ensemble by rack, of which ``refusing`` would not take this ledger. ``local``: rack of the worker.
    """
    ready = _ready(members, quorum, spares, min_racks, enforce, unknown, refusing or {}, local)
    return ready if isinstance(ready, Reach) else _walks(*ready)


def reachable(
    members: Sequence[Rack],
    quorum: int,
    spares: Mapping[Rack, int],
    min_racks: int = 2,
    enforce: bool = False,
    *,
    unknown: Collection[int] = (),
    refusing: Mapping[Rack, int] | None = None,
) -> bool:
    """Whether `reach` says more than NEVER; cheaper, for it stops at the first way found."""
    if refusing:
        return bool(reach(members, quorum, spares, min_racks, enforce, unknown=unknown, refusing=refusing))
    ready = _ready(members, quorum, spares, min_racks, enforce, unknown, {}, None)
    return bool(ready) if isinstance(ready, Reach) else _any_walk(*ready)


def refill(
    members: Sequence[Rack],
    lost: Collection[int],
    spares: Mapping[Rack, int],
    enforce: bool = False,
    *,
    refusing: Mapping[Rack, int] | None = None,
) -> Reach:
    """Can BookKeeper find a bookie in place of every lost member?

    It chooses one after the other in ring order against the unchanged ensemble: a bookie in the rack of the lost one,
    else one in a rack where no other member stands, else (not enforced) any. One failure fails the whole fragment.
    """
    if not enforce and not refusing:
        return Reach(Sure.ALWAYS, len(lost)) if sum(spares.values()) >= len(lost) else _NEVER
    if len(lost) > LARGEST:
        return _CUT
    racks = [rack or DEFAULT_RACK for rack in members]
    banned = DEFAULT_RACK if enforce else ""
    pool = {(rack, no): count for rack, no, count in _pools(spares, refusing or {}) if rack != banned}
    todo = sorted(lost)
    steps = [(racks[i], frozenset(racks[:i] + racks[i + 1 :])) for i in todo]
    outcomes = _refills(tuple(steps), tuple(sorted(pool.items())), enforce)
    return _verdict(outcomes, len(todo))


def colourable(size: int, quorum: int, bookies: Mapping[Rack, int], min_racks: int = 2, enforce: bool = False) -> bool:
    """Does any ring of ``size`` of these writable bookies adhere? True too where the search was cut."""
    need = min(quorum, min_racks)
    counts = [n for rack, n in bookies.items() if n > 0 and not (enforce and (rack or DEFAULT_RACK) == DEFAULT_RACK)]
    if not 0 < quorum <= size or sum(counts) < size or len(counts) < need:
        return False
    if need <= 1 or quorum == size or size > LARGEST:
        return True
    return _colours(size, quorum, need, tuple(sorted((min(n, size) for n in counts), reverse=True)[:size]))


def _ready(members: Sequence[Rack], quorum: int, spares: Mapping[Rack, int], min_racks: int, enforce: bool,
           unknown: Collection[int], refusing: Mapping[Rack, int], local: Rack) -> Reach | _Task:  # fmt: skip
    """The answer where it needs no search, else the search, with racks numbered so that like ones look alike."""
    size, need = len(members), min(quorum, min_racks)
    racks = [rack or DEFAULT_RACK for rack in members]
    pools = _pools(spares, refusing)
    known = [racks[i] for i in range(size) if i not in unknown]
    alive = {*known, *(rack for rack, _, _ in pools)}
    if 0 < quorum <= size and _adheres(racks, frozenset(unknown), quorum, need, enforce):
        return Reach(Sure.ALWAYS)
    if not 0 < quorum <= size or len(alive) < max(2, need):
        return _NEVER
    if size > LARGEST:
        return _CUT
    rest = sorted((rack for rack, _, _ in pools), key=lambda rack: [-min(n, size) for r, _, n in pools if r == rack])
    number = {rack: n for n, rack in enumerate(dict.fromkeys([*known, *rest]))}
    banned = DEFAULT_RACK if enforce else ""
    ring = tuple(
        _Seat(
            number[racks[i]] if i not in unknown else -1,
            _shade(racks[i], number),
            i not in unknown and racks[i] != banned,
        )
        for i in range(size)
    )
    pool = tuple(sorted(_Pool(number[rack], no, min(count, size)) for rack, no, count in pools if rack != banned))
    return ring, quorum, need, pool, _home(local, number)


def _pools(spares: Mapping[Rack, int], refusing: Mapping[Rack, int]) -> list[tuple[str, bool, int]]:
    """(rack, refuses, count) of all spare bookies, empty ones left out."""
    out: list[tuple[str, bool, int]] = []
    for rack in sorted(spares, key=lambda rack: rack or DEFAULT_RACK):
        no = min(refusing.get(rack, 0), spares[rack])
        name = rack or DEFAULT_RACK
        out += [(name, kind, n) for kind, n in ((False, spares[rack] - no), (True, no)) if n > 0]
    return out


def _adheres(racks: Sequence[str], unknown: frozenset[int], quorum: int, need: int, enforce: bool) -> bool:
    for window in windows(len(racks), quorum):
        seen = {racks[i] for i in window if i not in unknown}
        if len(seen) < need or (enforce and DEFAULT_RACK in seen):
            return False
    return True


def _shade(rack: str, number: Mapping[str, int]) -> int:
    """Known racks below a location, as bits: what "~location" leaves out of a scope."""
    return sum(1 << n for other, n in number.items() if other == rack or other.startswith(rack + "/"))


def _home(local: Rack, number: Mapping[str, int]) -> int:
    """Racks from which the first bookie may come when the start itself cannot stay, as bits."""
    everywhere = (1 << len(number)) - 1
    return everywhere if local is None or local == DEFAULT_RACK else _shade(local, number)


@lru_cache(maxsize=65_536)
def _any_walk(ring: tuple[_Seat, ...], quorum: int, need: int, pool: tuple[_Pool, ...], home: int) -> bool:
    left = STATES
    for start in range(len(ring)):
        walk = _Walk(ring[start:] + ring[:start], quorum, need, pool, home, left)
        if walk.succeeds(walk.start):
            return True
        left = walk.left
    return False


@lru_cache(maxsize=4_096)
def _walks(ring: tuple[_Seat, ...], quorum: int, need: int, pool: tuple[_Pool, ...], home: int) -> Reach:
    """All starts together, as replaceToAdherePlacementPolicy combines them: the first with the fewest moves wins."""
    left, outcomes = STATES, []
    for start in range(len(ring)):
        walk = _Walk(ring[start:] + ring[:start], quorum, need, pool, home, left)
        outcomes.append(walk.outcomes(walk.start))
        left = walk.left
    good: set[_Outcome] = set()
    for at, found in enumerate(outcomes):
        for moves, clean in found - {_FAILED}:
            before = all(any(o == _FAILED or o[0] > moves for o in other) for other in outcomes[:at])
            after = all(any(o == _FAILED or o[0] >= moves for o in other) for other in outcomes[at + 1 :])
            if before and after:
                good.add((moves, clean))
    if all(_FAILED in found for found in outcomes):
        good.add(_FAILED)
    return _verdict(good, cut=left <= 0)


def _verdict(outcomes: Iterable[_Outcome], moves: int | None = None, cut: bool = False) -> Reach:
    outcomes = set(outcomes)
    clean = [n for n, takes in outcomes if takes]
    if not clean:
        return Reach(Sure.NEVER, 0, cut)
    sure = Sure.ALWAYS if len(clean) == len(outcomes) and not cut else Sure.SOMETIMES
    return Reach(sure, min(clean) if moves is None else moves, cut)


class _Walk:
    """The walk round one ring, from its first member, over all random choices.

    Spare bookies are counts by pool (rack, refuses); a member that was moved away joins the pool of its rack.
    """

    def __init__(self, ring: tuple[_Seat, ...], quorum: int, need: int, pool: tuple[_Pool, ...], home: int,
                 states: int) -> None:  # fmt: skip
        self.ring, self.size, self.quorum, self.need, self.home = ring, len(ring), quorum, need, home
        self.left = states
        stock = {(seat.rack, False): 0 for seat in ring if seat.may}
        stock.update({(rack, refuses): count for rack, refuses, count in pool})
        self.kinds = tuple(stock)
        self.kind_at = {kind: at for at, kind in enumerate(self.kinds)}
        self.shown = reduce(or_, (seat.shade for seat in ring), 0)
        self.start = _Place(0, (), 0, tuple(stock.values()))
        self.memo: dict[object, frozenset[_Outcome]] = {}
        self.failed: set[object] = set()

    def outcomes(self, here: _Place) -> frozenset[_Outcome]:
        """Every (copies moved, clean) that can come of it from here, and `_FAILED` if it can fail."""
        if here.at == self.size:
            return frozenset({(0, True)})
        key = self._key(here)
        if key not in self.memo:
            self.left -= 1
            out: set[_Outcome] = set()
            for moved, takes, there in self._steps(here) if self.left > 0 else ():
                for moves, clean in self.outcomes(there):
                    out.add(_FAILED if moves < 0 else (moves + moved, clean and takes))
            self.memo[key] = frozenset(out or {_FAILED})
        return self.memo[key]

    def succeeds(self, here: _Place) -> bool:
        """Whether it can succeed from here."""
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

    def _key(self, here: _Place) -> object:
        """What later choices can see: both ends of what was chosen, as far as a window reaches, and what is left."""
        reach, at, chosen = max(self.quorum - 1, 1), here.at, here.chosen
        if at > 2 * reach:
            chosen = chosen[:reach] + chosen[at - reach :]
        return at, chosen, here.used >> at, tuple(min(count, self.size - at) for count in here.free)

    def _steps(self, here: _Place) -> Iterator[tuple[int, bool, _Place]]:
        """(copies moved, whether the target takes it, where that leads) of each choice for this place."""
        at, chosen, used, free = here
        seat, fits = self.ring[at], self._fits(at, chosen)
        stays = seat.may and not used >> at & 1
        if stays and fits(seat.rack):
            yield 0, True, _Place(at + 1, (*chosen, seat.rack), used, free)
            return
        for kind, member in self._choices(here, fits):
            rack, refuses = self.kinds[kind]
            left = list(free)
            if stays:
                left[self.kind_at[seat.rack, False]] += 1
            if member < 0:
                left[kind] -= 1
            taken = used | (1 << member if member >= 0 else 0)
            yield 1, not refuses, _Place(at + 1, (*chosen, rack), taken, tuple(left))

    def _fits(self, at: int, chosen: tuple[int, ...]) -> Callable[[int], bool]:
        """RRTopologyAwareCoverageEnsemble.apply: can every window of this place still get enough racks?"""
        if self.quorum < 2:
            return lambda _: True
        lacks = []
        for start in range(at - self.quorum + 1, at + 1):
            seen = [chosen[i] for i in ((start + j) % self.size for j in range(self.quorum)) if i < at]
            room = self.quorum - len(seen) - 1
            lacks.append((frozenset(seen), self.need - room))
        return lambda rack: all(len(seen) + (rack not in seen) >= least for seen, least in lacks)

    def _choices(self, here: _Place, fits: Callable[[int], bool]) -> list[tuple[int, int]]:
        """Candidates of the first condition that has any, as (kind, position of the member or -1)."""
        at, chosen, used, free = here
        around = self._around(at, chosen)
        scope = ~(1 << chosen[-1]) if chosen else self.home
        pools = [k for k, count in enumerate(free) if count and fits(self.kinds[k][0])]
        first = [k for k in pools if self.need > 1 and not around >> self.kinds[k][0] & 1]
        second = first or [k for k in pools if scope >> self.kinds[k][0] & 1]
        if second:
            return [(k, -1) for k in self._distinct(second, chosen, free)]
        return [
            (self.kind_at[seat.rack, False], i)
            for i, seat in enumerate(self.ring)
            if i > at and seat.may and not used >> i & 1 and scope >> seat.rack & 1 and fits(seat.rack)
        ]

    def _around(self, at: int, chosen: tuple[int, ...]) -> int:
        """Racks of the need - 1 members on either side, as bits; members still ahead count as they stand."""
        bits = 0
        for step in range(1, self.need):
            for i in ((at - step) % self.size, (at + step) % self.size):
                bits |= 1 << chosen[i] if i < at else self.ring[i].shade
        return bits

    def _distinct(self, pools: list[int], chosen: tuple[int, ...], free: tuple[int, ...]) -> list[int]:
        """One pool for all that differ in name only: same stock, in racks that neither members nor choices show."""
        out: dict[object, int] = {}
        for kind in pools:
            rack, refuses = self.kinds[kind]
            pair = (self.kind_at.get((rack, no), -1) for no in (False, True))
            stock = tuple(free[at] if at >= 0 else 0 for at in pair)
            unseen = not self.shown >> rack & 1 and rack not in chosen
            out.setdefault((stock, refuses, self.home >> rack & 1) if unseen else kind, kind)
        return list(out.values())


@lru_cache(maxsize=16_384)
def _refills(steps: tuple[tuple[str, frozenset[str]], ...], pool: tuple[tuple[tuple[str, bool], int], ...],
             enforce: bool) -> frozenset[_Outcome]:  # fmt: skip
    if not steps:
        return frozenset({(0, True)})
    (rack, others), rest = steps[0], steps[1:]
    stock = {kind: count for kind, count in pool if count}
    choice = [k for k in stock if k[0] == rack] or [k for k in stock if k[0] not in others]
    if not choice and not enforce:
        choice = list(stock)
    out: set[_Outcome] = set()
    for kind in choice:
        left = tuple((k, count - (k == kind)) for k, count in pool)
        for moves, clean in _refills(rest, left, enforce):
            out.add(_FAILED if moves < 0 else (moves + 1, clean and not kind[1]))
    return frozenset(out or {_FAILED})


@lru_cache(maxsize=4_096)
def _colours(size: int, quorum: int, need: int, counts: tuple[int, ...]) -> bool:
    """Depth-first over rings; racks of equal stock that are not in use yet are tried once."""
    ring: list[int] = []
    stock, budget = list(counts), [STATES]

    def fits(rack: int) -> bool:
        at = len(ring)
        for start in range(at - quorum + 1, at + 1):
            seen = {ring[i] for i in ((start + j) % size for j in range(quorum)) if i < at}
            inside = sum(i < at for i in ((start + j) % size for j in range(quorum)))
            if len(seen | {rack}) + quorum - inside - 1 < need:
                return False
        return True

    def place() -> bool:
        if len(ring) == size:
            return True
        budget[0] -= 1
        if budget[0] <= 0:
            return True
        tried: set[int] = set()
        for rack in sorted(range(len(stock)), key=lambda r: -stock[r]):
            if not stock[rack] or (rack not in ring and stock[rack] in tried) or not fits(rack):
                continue
            tried |= set() if rack in ring else {stock[rack]}
            ring.append(rack)
            stock[rack] -= 1
            if place():
                return True
            ring.pop()
            stock[rack] += 1
        return False

    return place()
