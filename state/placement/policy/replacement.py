"""The ensembles that BookKeeper can form from an ensemble and the available bookies.

`reach` follows `RackawareEnsemblePlacementPolicyImpl.replaceToAdherePlacementPolicy` (4.17, BP-54) through every
outcome of its random choices (`state.placement.policy.ring_walk`), and `refill` does the same for `replaceBookie` as
`BookKeeperAdmin.getReplacementBookiesByIndexes` calls it. `colourable` checks whether any adhering ring exists.
Disk weights (diskWeightBasedPlacementEnabled) are ignored: with them BookKeeper gives up earlier.

Racks are locations ("/rack1"); None is `/default-rack`. Of a bookie outside the ensemble, only its rack counts, and
whether it would refuse the ledger.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from trueup.state.placement.policy.ring_walk import FAILED, Outcome, RingMember, RingWalk, SparePool

DEFAULT_RACK = "/default-rack"
LARGEST = 64  # larger rings are not searched
STATES = 20_000  # a search stops after this number of states and reports that it was cut

Rack = str | None


class Certainty(IntEnum):
    """How certain it is that an attempt succeeds."""

    NEVER = 0
    SOMETIMES = 1  # it depends on random choices, and a worker tries again
    ALWAYS = 2


@dataclass(frozen=True, slots=True)
class RepairReach:
    """How certain a repair is."""

    sure: Certainty
    moves: int = 0
    """The fewest replicas that a successful attempt moves; 0 if no attempt can succeed, or none is needed."""
    cut: bool = False
    """Whether the search stopped at a bound (`STATES`, `LARGEST`). If so, NEVER means that no repair was found, and
    ALWAYS is not returned."""

    def __bool__(self) -> bool:
        return self.sure > Certainty.NEVER


_NEVER, _CUT = RepairReach(Certainty.NEVER), RepairReach(Certainty.NEVER, cut=True)
_Task = tuple[tuple[RingMember, ...], int, int, tuple[SparePool, ...], int]


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
) -> RepairReach:
    """Whether BookKeeper can move replicas of this ensemble so that it adheres.

    ``members``: rack of each member in ring order. ``unknown``: positions of members that BookKeeper does not know
    (lost, read-only); it must replace them, but their racks still influence its choices. ``spares``: writable bookies
    outside the ensemble by rack; ``refusing`` of them would refuse this ledger. ``local``: rack of the worker.
    """
    ready = _ready(members, quorum, spares, min_racks, enforce, unknown, refusing or {}, local)
    return ready if isinstance(ready, RepairReach) else _walks(*ready)


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
    """Whether `reach` returns more than NEVER. Cheaper: it stops at the first solution."""
    if refusing:
        return bool(reach(members, quorum, spares, min_racks, enforce, unknown=unknown, refusing=refusing))
    ready = _ready(members, quorum, spares, min_racks, enforce, unknown, {}, None)
    return bool(ready) if isinstance(ready, RepairReach) else _any_walk(*ready)


def refill(
    members: Sequence[Rack],
    lost: Collection[int],
    spares: Mapping[Rack, int],
    enforce: bool = False,
    *,
    refusing: Mapping[Rack, int] | None = None,
) -> RepairReach:
    """Whether BookKeeper can find a bookie in place of every lost member.

    BookKeeper selects them one by one in ring order against the unchanged ensemble: a bookie in the rack of the lost
    one, else one in a rack without another member, else (not enforced) any. One failure fails the whole fragment.
    The rack of a lost member is the last known one; a worker that started after the loss uses the default rack.
    """
    if not enforce and not refusing:
        return RepairReach(Certainty.ALWAYS, len(lost)) if sum(spares.values()) >= len(lost) else _NEVER
    if len(lost) > LARGEST:
        return _CUT
    racks = [rack or DEFAULT_RACK for rack in members]
    banned = DEFAULT_RACK if enforce else ""
    pool = {(rack, no): count for rack, no, count in _pools(spares, refusing or {}) if rack != banned}
    todo = sorted(lost)
    steps = [(racks[i], frozenset(racks[:i] + racks[i + 1 :])) for i in todo]
    outcomes = _refills(tuple(steps), tuple(sorted(pool.items())), enforce)
    return _verdict(outcomes, len(todo))


def refilled(
    members: Sequence[Rack],
    lost: Collection[int],
    spares: Mapping[Rack, int],
    quorum: int,
    min_racks: int = 2,
    enforce: bool = False,
    *,
    unknown: Collection[int] = (),
) -> tuple[bool, bool]:
    """Whether `refill` can succeed with these spares, and whether the ring then adheres whatever bookies it selects.

    ``unknown``: positions of other members that BookKeeper does not know. A search that is cut does not promise that
    the ring adheres.
    """
    possible = bool(refill(members, lost, spares, enforce))
    todo = sorted(lost)
    if not possible or len(spares) ** len(todo) > STATES:
        return possible, False
    racks = [rack or DEFAULT_RACK for rack in members]
    pool = Counter({rack or DEFAULT_RACK: count for rack, count in spares.items() if count > 0})
    others = frozenset(unknown) - {*todo}
    need = min(quorum, min_racks)
    rings = _rings(tuple(racks), tuple(todo), pool, enforce)
    return True, all(_adheres(ring, others, quorum, need, enforce) for ring in rings)


def _rings(racks: tuple[str, ...], todo: tuple[int, ...], pool: Counter[str], enforce: bool) -> Iterator[list[str]]:
    """Racks of the rings that result from all choices of `refill`."""
    ring = list(racks)

    def place(step: int) -> Iterator[list[str]]:
        if step == len(todo):
            yield ring
            return
        at = todo[step]
        stock = [rack for rack, count in pool.items() if count > 0 and not (enforce and rack == DEFAULT_RACK)]
        others = {*racks[:at], *racks[at + 1 :]}
        choice = [rack for rack in stock if rack == racks[at]] or [rack for rack in stock if rack not in others]
        for rack in choice or ([] if enforce else stock):
            ring[at] = rack
            pool[rack] -= 1
            yield from place(step + 1)
            pool[rack] += 1

    return place(0)


def colourable(size: int, quorum: int, bookies: Mapping[Rack, int], min_racks: int = 2, enforce: bool = False) -> bool:
    """Whether any ring of ``size`` of these writable bookies adheres. Also True if the search was cut."""
    need = min(quorum, min_racks)
    counts = [n for rack, n in bookies.items() if n > 0 and not (enforce and (rack or DEFAULT_RACK) == DEFAULT_RACK)]
    if not 0 < quorum <= size or sum(counts) < size or len(counts) < need:
        return False
    if need <= 1 or quorum == size or size > LARGEST:
        return True
    return _colours(size, quorum, need, tuple(sorted((min(n, size) for n in counts), reverse=True)[:size]))


def _ready(
    members: Sequence[Rack],
    quorum: int,
    spares: Mapping[Rack, int],
    min_racks: int,
    enforce: bool,
    unknown: Collection[int],
    refusing: Mapping[Rack, int],
    local: Rack,
) -> RepairReach | _Task:
    """The answer if it needs no search; otherwise the search, with racks numbered so that equal cases are equal."""
    size, need = len(members), min(quorum, min_racks)
    racks = [rack or DEFAULT_RACK for rack in members]
    pools = _pools(spares, refusing)
    known_racks = [racks[i] for i in range(size) if i not in unknown]
    alive = {*known_racks, *(rack for rack, _, _ in pools)}
    if 0 < quorum <= size and _adheres(racks, frozenset(unknown), quorum, need, enforce):
        return RepairReach(Certainty.ALWAYS)
    if not 0 < quorum <= size or len(alive) < max(2, need):
        return _NEVER
    if size > LARGEST:
        return _CUT
    rest = sorted((rack for rack, _, _ in pools), key=lambda rack: [-min(n, size) for r, _, n in pools if r == rack])
    number = {rack: n for n, rack in enumerate(dict.fromkeys([*known_racks, *rest]))}
    banned = DEFAULT_RACK if enforce else ""
    ring = tuple(
        RingMember(
            number[racks[i]] if i not in unknown else -1,
            _shade(racks[i], number),
            i not in unknown and racks[i] != banned,
        )
        for i in range(size)
    )
    pool = tuple(sorted(SparePool(number[rack], no, min(count, size)) for rack, no, count in pools if rack != banned))
    return ring, quorum, need, pool, _home(local, number)


def _pools(spares: Mapping[Rack, int], refusing: Mapping[Rack, int]) -> list[tuple[str, bool, int]]:
    """(rack, refuses, count) of all spare bookies, without empty pools."""
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
    """Known racks below a location, as bits: the racks that "~location" excludes from a scope."""
    return sum(1 << n for other, n in number.items() if other == rack or other.startswith(rack + "/"))


def _home(local: Rack, number: Mapping[str, int]) -> int:
    """Racks that may provide the first bookie if the first member cannot be kept, as bits."""
    everywhere = (1 << len(number)) - 1
    return everywhere if local is None or local == DEFAULT_RACK else _shade(local, number)


@lru_cache(maxsize=65_536)
def _any_walk(ring: tuple[RingMember, ...], quorum: int, need: int, pool: tuple[SparePool, ...], home: int) -> bool:
    left = STATES
    for start in range(len(ring)):
        walk = RingWalk(ring[start:] + ring[:start], quorum, need, pool, home, left)
        if walk.succeeds(walk.start):
            return True
        left = walk.left
    return False


@lru_cache(maxsize=4_096)
def _walks(ring: tuple[RingMember, ...], quorum: int, need: int, pool: tuple[SparePool, ...], home: int) -> RepairReach:
    """All starts, combined as replaceToAdherePlacementPolicy does: the first one with the fewest moves wins."""
    left, outcomes = STATES, []
    for start in range(len(ring)):
        walk = RingWalk(ring[start:] + ring[:start], quorum, need, pool, home, left)
        outcomes.append(walk.outcomes(walk.start))
        left = walk.left
    good: set[Outcome] = set()
    for at, results in enumerate(outcomes):
        for moves, clean in results - {FAILED}:
            before = all(any(o == FAILED or o[0] > moves for o in other) for other in outcomes[:at])
            after = all(any(o == FAILED or o[0] >= moves for o in other) for other in outcomes[at + 1 :])
            if before and after:
                good.add((moves, clean))
    if all(FAILED in results for results in outcomes):
        good.add(FAILED)
    return _verdict(good, cut=left <= 0)


def _verdict(outcomes: Iterable[Outcome], moves: int | None = None, cut: bool = False) -> RepairReach:
    outcomes = set(outcomes)
    clean = [n for n, takes in outcomes if takes]
    if not clean:
        return RepairReach(Certainty.NEVER, 0, cut)
    sure = Certainty.ALWAYS if len(clean) == len(outcomes) and not cut else Certainty.SOMETIMES
    return RepairReach(sure, min(clean) if moves is None else moves, cut)


@lru_cache(maxsize=16_384)
def _refills(
    steps: tuple[tuple[str, frozenset[str]], ...], pool: tuple[tuple[tuple[str, bool], int], ...], enforce: bool
) -> frozenset[Outcome]:
    if not steps:
        return frozenset({(0, True)})
    (rack, others), rest = steps[0], steps[1:]
    stock = {kind: count for kind, count in pool if count}
    choice = [k for k in stock if k[0] == rack] or [k for k in stock if k[0] not in others]
    if not choice and not enforce:
        choice = list(stock)
    out: set[Outcome] = set()
    for kind in choice:
        left = tuple((k, count - (k == kind)) for k, count in pool)
        for moves, clean in _refills(rest, left, enforce):
            out.add(FAILED if moves < 0 else (moves + 1, clean and not kind[1]))
    return frozenset(out or {FAILED})


@lru_cache(maxsize=4_096)
def _colours(size: int, quorum: int, need: int, counts: tuple[int, ...]) -> bool:
    """Depth-first search over rings; of the unused racks with equal stock, only one is tried."""
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
