"""BookKeeper's rack-aware placement over bookie names, independent of `state`, to reveal errors in either.

Rules: isEnsembleAdheringToPlacementPolicy, replaceBookie and replaceToAdherePlacementPolicy of
RackawareEnsemblePlacementPolicyImpl (4.17). Where BookKeeper shuffles, a function calls ``pick`` with the candidates:
the workers of the model draw one at random, `every` iterates over all.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

DEFAULT = "/default-rack"
Pick = Callable[[Sequence[str]], str]
T = TypeVar("T")


@dataclass(frozen=True)
class Racks:
    """Input of a worker's placement policy: rack of every bookie, writable bookies, and settings."""

    rack: Mapping[str, str]
    writable: frozenset[str]
    least: int = 2
    enforce: bool = False

    def choosable(self) -> list[str]:
        return [b for b in sorted(self.writable) if not (self.enforce and self.rack[b] == DEFAULT)]


def windows(ensemble: Sequence[T], quorum: int) -> list[list[T]]:
    return [[ensemble[(i + j) % len(ensemble)] for j in range(quorum)] for i in range(len(ensemble))]


def adheres(ensemble: Sequence[str], quorum: int, racks: Racks) -> bool:
    for window in windows(ensemble, quorum):
        seen = {racks.rack[b] for b in window if b in racks.writable}
        if len(seen) < min(quorum, racks.least) or (racks.enforce and DEFAULT in seen):
            return False
    return True


def refill(ensemble: Sequence[str], lost: Sequence[int], racks: Racks, pick: Pick) -> dict[int, str] | None:
    """A replacement for each lost position, chosen in turn against the unchanged ensemble; None: too few bookies."""
    chosen: dict[int, str] = {}
    for at in sorted(lost):
        free = [b for b in racks.choosable() if b not in ensemble and b not in chosen.values()]
        others = {racks.rack[b] for b in ensemble if b != ensemble[at]}
        best = [b for b in free if racks.rack[b] == racks.rack[ensemble[at]]]
        best = best or [b for b in free if racks.rack[b] not in others]
        best = best or ([] if racks.enforce else free)
        if not best:
            return None
        chosen[at] = pick(best)
    return chosen


def relocate(ensemble: Sequence[str], quorum: int, racks: Racks, pick: Pick) -> list[str] | None:
    """The resulting ensemble over the walks from all starts, selected as in replaceToAdherePlacementPolicy."""
    best: list[str] | None = None
    fewest = len(ensemble) + 1
    for start in range(len(ensemble)) if worth_walking(quorum, racks) else ():
        found = walk(ensemble, quorum, racks, start, pick)
        if found is not None and moved(ensemble, found) < fewest:
            best, fewest = found, moved(ensemble, found)
            if fewest == 1:
                break
    return best


def worth_walking(quorum: int, racks: Racks) -> bool:
    return len({racks.rack[b] for b in racks.writable}) >= max(2, min(quorum, racks.least))


def moved(before: Sequence[str], after: Sequence[str]) -> int:
    return sum(a != b for a, b in zip(before, after, strict=True))


def walk(ensemble: Sequence[str], quorum: int, racks: Racks, start: int, pick: Pick) -> list[str] | None:
    """One walk around the ensemble; None if it gets stuck."""
    size, need = len(ensemble), min(quorum, racks.least)
    provisional, usable = list(ensemble), set(racks.choosable())
    taken: list[str] = []
    for step in range(size):
        at = (start + step) % size
        fits = [b for b in sorted(usable) if b not in taken and covers(taken, b, size, quorum, need, racks)]
        if provisional[at] in fits:
            taken.append(provisional[at])
            continue
        near = {racks.rack[provisional[(at + direction * k) % size]] for k in range(1, need) for direction in (-1, 1)}
        last = racks.rack[taken[-1]] if taken else None
        apart = [b for b in fits if racks.rack[b] != last]
        options = [b for b in fits if need > 1 and racks.rack[b] not in near and b not in provisional]
        options = options or [b for b in apart if b not in provisional] or apart
        if not options:
            return None
        provisional[at] = pick(options)
        taken.append(provisional[at])
    return provisional if adheres(provisional, quorum, racks) else None


def covers(taken: Sequence[str], candidate: str, size: int, quorum: int, need: int, racks: Racks) -> bool:
    """Whether, with this candidate, every window that contains the next position can still reach enough racks."""
    if quorum < 2:
        return True
    at = len(taken)
    for first in range(at - quorum + 1, at + 1):
        places = [(first + j) % size for j in range(quorum)]
        seen = {racks.rack[taken[p]] for p in places if p < at} | {racks.rack[candidate]}
        if len(seen) + sum(p > at for p in places) < need:
            return False
    return True


def every(run: Callable[[Pick], T], alike: Callable[[str], object]) -> Iterator[T]:
    """Results of ``run`` for all choices. Of candidates that are equal under ``alike``, one is tried."""
    script: list[int] = []
    while True:
        widths: list[int] = []

        def pick(options: Sequence[str], widths: list[int] = widths) -> str:
            distinct = list({alike(b): b for b in reversed(options)}.values())
            widths.append(len(distinct))
            if len(widths) > len(script):
                script.append(0)
            return distinct[script[len(widths) - 1]]

        yield run(pick)
        while script and script[-1] + 1 >= widths[len(script) - 1]:
            script.pop()
        if not script:
            return
        script[-1] += 1


def can_refill(ensemble: Sequence[str], lost: Sequence[int], racks: Racks, refusing: frozenset[str]) -> bool:
    """Whether some choice succeeds, with every new member accepting the copy."""

    def alike(bookie: str) -> object:
        return racks.rack[bookie], bookie in refusing

    found = every(lambda pick: refill(ensemble, lost, racks, pick), alike)
    return any(f is not None and not refusing & set(f.values()) for f in found)


def can_relocate(ensemble: Sequence[str], quorum: int, racks: Racks, refusing: frozenset[str]) -> bool:
    """Whether some choice succeeds: a clean walk exists that no other start has to beat."""

    def alike(bookie: str) -> object:
        return bookie if bookie in ensemble else (racks.rack[bookie], bookie in refusing)

    if not worth_walking(quorum, racks):
        return False
    size = len(ensemble)
    found: list[set[tuple[int, bool]]] = []
    for start in range(size):
        ends = every(lambda pick, start=start: walk(ensemble, quorum, racks, start, pick), alike)
        found.append(
            {(size + 1, False) if e is None else (moved(ensemble, e), _clean(ensemble, e, refusing)) for e in ends}
        )
    return any(
        clean
        and moves <= size
        and all(max(n for n, _ in other) > moves for other in found[:at])
        and all(max(n for n, _ in other) >= moves for other in found[at + 1 :])
        for at, mine in enumerate(found)
        for moves, clean in mine
    )


def _clean(before: Sequence[str], after: Sequence[str], refusing: frozenset[str]) -> bool:
    return not any(b in refusing for a, b in zip(before, after, strict=True) if a != b)
