"""What BookKeeper can make of an ensemble with the bookies at hand.

`reach` goes through `RackawareEnsemblePlacementPolicyImpl.replaceToAdherePlacementPolicy` (4.17, BP-54) with every
outcome of its random choices; `refill` does so for `replaceBookie` as `BookKeeperAdmin.getReplacementBookiesByIndexes`
calls it. `colourable` asks whether any good arrangement exists at all. Disk weights are ignored.

Racks are locations ("/rack1"); None is `/default-rack`. A bookie outside the ensemble only counts by its rack, and by
whether it would refuse the ledger.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

DEFAULT_RACK = "/default-rack"
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

    ``cut``: the search stopped at its bound, so NEVER means "no way was found" and ALWAYS is not claimed.
    """

    sure: Sure
    moves: int = 0
    cut: bool = False

    def __bool__(self) -> bool:
        return self.sure > Sure.NEVER


_NEVER = Reach(Sure.NEVER)


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
    size, need = len(members), min(quorum, min_racks)
    racks = [rack or DEFAULT_RACK for rack in members]
    pools = _pools(spares, refusing or {})
    known = [racks[i] for i in range(size) if i not in unknown]
    alive = {*known, *(rack for rack, _, _ in pools)}
    if 0 < quorum <= size and _adheres(racks, frozenset(unknown), quorum, need, enforce):
        return Reach(Sure.ALWAYS)
    if not 0 < quorum <= size or len(alive) < max(2, need):
        return _NEVER
    rest = sorted((rack for rack, _, _ in pools), key=lambda rack: [-min(n, size) for r, _, n in pools if r == rack])
    number = {rack: n for n, rack in enumerate(dict.fromkeys([*known, *rest]))}
    banned = DEFAULT_RACK if enforce else ""
    ring = tuple(
        (
            number[racks[i]] if i not in unknown else -1,
            _shade(racks[i], number),
            i not in unknown and racks[i] != banned,
        )
        for i in range(size)
    )
    pool = tuple(sorted((number[rack], no, min(count, size)) for rack, no, count in pools if rack != banned))
    return _walks(ring, quorum, need, pool, _home(local, number))


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
    if need <= 1 or quorum == size:
        return True
    return _colours(size, quorum, need, tuple(sorted((min(n, size) for n in counts), reverse=True)[:size]))


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
def _walks(ring: tuple[tuple[int, int, bool], ...], quorum: int, need: int, pool: tuple[tuple[int, bool, int], ...],
           home: int) -> Reach:  # fmt: skip
    """All starts together, as replaceToAdherePlacementPolicy combines them: the first with the fewest moves wins."""
    search = _Walk(quorum, need, pool, home, STATES)
    outcomes = [search.outcomes(ring[start:] + ring[:start]) for start in range(len(ring))]
    good: set[_Outcome] = set()
    for at, found in enumerate(outcomes):
        for moves, clean in found - {_FAILED}:
            before = all(any(o == _FAILED or o[0] > moves for o in other) for other in outcomes[:at])
            after = all(any(o == _FAILED or o[0] >= moves for o in other) for other in outcomes[at + 1 :])
            if before and after:
                good.add((moves, clean))
    if all(_FAILED in found for found in outcomes):
        good.add(_FAILED)
    return _verdict(good, cut=search.left <= 0)


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

    def __init__(self, quorum: int, need: int, pool: tuple[tuple[int, bool, int], ...], home: int, left: int) -> None:
        self.quorum, self.need, self.home, self.left = quorum, need, home, left
        self.given = pool

    def outcomes(self, ring: tuple[tuple[int, int, bool], ...]) -> frozenset[_Outcome]:
        """Every (copies moved, clean) that can come of it, and `_FAILED` if it can fail."""
        self.ring, self.size = ring, len(ring)
        racks = dict.fromkeys(rack for rack, _, may in ring if may)
        kinds = dict.fromkeys([*((rack, no) for rack, no, _ in self.given), *((rack, False) for rack in racks)])
        self.kinds = tuple(kinds)
        counts = {(rack, no): count for rack, no, count in self.given}
        self.of_rack = {rack: at for at, (rack, no) in enumerate(self.kinds) if not no}
        self.shown = 0
        for _, shade, _ in ring:
            self.shown |= shade
        self.memo: dict[tuple[object, ...], frozenset[_Outcome]] = {}
        return self._from(0, (), 0, tuple(counts.get(kind, 0) for kind in self.kinds), -1)

    def _from(self, at: int, chosen: tuple[int, ...], used: int, free: tuple[int, ...],
              prev: int) -> frozenset[_Outcome]:  # fmt: skip
        if at == self.size:
            return frozenset({(0, True)})
        free = tuple(min(count, self.size - at) for count in free)
        key = (self._matter(at, chosen), used, free)
        if key not in self.memo:
            self.left -= 1
            self.memo[key] = self._step(at, chosen, used, free, prev) if self.left > 0 else frozenset({_FAILED})
        return self.memo[key]

    def _matter(self, at: int, chosen: tuple[int, ...]) -> tuple[int, ...]:
        """The choices that later ones can still see: both ends of what was chosen, as far as a window reaches."""
        reach = max(self.quorum - 1, 1)
        return (at, *chosen) if at <= 2 * reach else (at, *chosen[:reach], *chosen[at - reach :])

    def _step(self, at: int, chosen: tuple[int, ...], used: int, free: tuple[int, ...],
              prev: int) -> frozenset[_Outcome]:  # fmt: skip
        rack, _, may = self.ring[at]
        stays = may and not used >> at & 1
        fits = self._fits(at, chosen)
        if stays and fits(rack):
            return self._from(at + 1, (*chosen, rack), used, free, rack)
        out: set[_Outcome] = set()
        for kind, member in self._choices(at, chosen, used, free, prev, fits):
            target, refuses = self.kinds[kind]
            left = list(free)
            if stays:
                left[self.of_rack[rack]] += 1
            if member < 0:
                left[kind] -= 1
            taken = used | (1 << member if member >= 0 else 0)
            for moves, clean in self._from(at + 1, (*chosen, target), taken, tuple(left), target):
                out.add(_FAILED if moves < 0 else (moves + 1, clean and not refuses))
        return frozenset(out or {_FAILED})

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

    def _choices(self, at: int, chosen: tuple[int, ...], used: int, free: tuple[int, ...], prev: int,
                 fits: Callable[[int], bool]) -> list[tuple[int, int]]:  # fmt: skip
        """Candidates of the first condition that has any, as (kind, position of the member or -1)."""
        around = self._around(at, chosen)
        scope = self.home if prev < 0 else ~(1 << prev)
        pools = [k for k, count in enumerate(free) if count and fits(self.kinds[k][0])]
        first = [k for k in pools if self.need > 1 and not around >> self.kinds[k][0] & 1]
        second = first or [k for k in pools if scope >> self.kinds[k][0] & 1]
        if second:
            return [(k, -1) for k in self._distinct(second, chosen, free)]
        ahead = [i for i in range(at + 1, self.size) if self.ring[i][2] and not used >> i & 1]
        return [
            (self.of_rack[self.ring[i][0]], i) for i in ahead if scope >> self.ring[i][0] & 1 and fits(self.ring[i][0])
        ]

    def _around(self, at: int, chosen: tuple[int, ...]) -> int:
        """Racks of the need - 1 members on either side, as bits; members still ahead count as they stand."""
        bits = 0
        for step in range(1, self.need):
            for i in ((at - step) % self.size, (at + step) % self.size):
                bits |= 1 << chosen[i] if i < at else self.ring[i][1]
        return bits

    def _distinct(self, pools: list[int], chosen: tuple[int, ...], free: tuple[int, ...]) -> list[int]:
        """One pool for all that differ in name only: same stock, in racks that neither members nor choices show."""
        out, seen = [], set()
        for kind in pools:
            rack = self.kinds[kind][0]
            if self.shown >> rack & 1 or rack in chosen:
                out.append(kind)
                continue
            like = tuple((free[k], no) for k, (other, no) in enumerate(self.kinds) if other == rack)
            like = (*like, (-1, self.kinds[kind][1]), (-2, bool(self.home >> rack & 1)))
            if like not in seen:
                seen.add(like)
                out.append(kind)
        return out


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
