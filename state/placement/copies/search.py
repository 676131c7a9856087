"""The fewest places of a fragment whose bookies must be replaced, so that it has no lost member and adheres.

A place is a position in the ensemble. All sets of places are tried, those with the fewest entries first, with all
classes of bookies (`state.placement.policy.bookie_classes`) for them. So the first ensemble that adheres costs least
among those that only bookies outside of the fragment join. The policy is whatever `FragmentJudge` judges by.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from trueup.state.bookkeeper.ledgers import Column
from trueup.state.placement.policy.fragments import FragmentJudge

MOST_RINGS = 1 << 18
"""Ensembles that are tried for one fragment."""
_SORTED = 12
"""The places of the largest ensemble whose sets of places are ordered by entries. In larger ones, sets with fewer
places come first, which have about as many entries each."""
_TOGETHER = 1 << 14


@dataclass(frozen=True, slots=True)
class RingSearch:
    """The result of a search. ``places`` get bookies of ``classes``, in the same order."""

    places: tuple[int, ...] = ()
    classes: tuple[int, ...] = ()
    adheres: bool = True
    """Whether the fragment adheres then."""
    complete: bool = True
    """Whether all ensembles were tried that are as cheap, and all that are cheaper."""


@dataclass(frozen=True, slots=True)
class Ring:
    """A fragment to be searched."""

    members: Column
    """The class of each member: int[E]."""
    quorum: int
    acks: int
    lost: tuple[int, ...]
    """The places that get another bookie in any case."""
    weights: Sequence[int]
    """The number of entries of each place."""


def cheapest(bench: FragmentJudge, ring: Ring, stock: Mapping[int, int], prices: Mapping[int, float]) -> RingSearch:
    """The cheapest change of a fragment. ``stock``: the number of bookies of each class that may join it; ``prices``: a
    number for each of these classes. Of equally cheap changes, the one with most racks in each write quorum wins, then
    the one with the lowest sum of prices.

    If no ensemble adheres, only the lost places change, to the classes with most racks in each write quorum. Without
    enough bookies for them, the result has no places and does not adhere.
    """
    left = MOST_RINGS
    for places in _sets(ring):
        left -= len(stock) ** len(places)
        if left < 0:
            return _fallback(bench, ring, stock, prices, complete=False)
        rings, choices = _candidates(ring.members, places, stock)
        fails, racks = _judged(bench, rings, ring)
        good = np.flatnonzero(~fails)
        if len(good):
            return RingSearch(places, _best([choices[at] for at in good.tolist()], racks[good], prices))
    return _fallback(bench, ring, stock, prices, complete=True)


def _sets(ring: Ring) -> Iterator[tuple[int, ...]]:
    """Sets of places with all lost ones, those with the fewest entries first."""
    others = [place for place in range(len(ring.members)) if place not in ring.lost]
    counts = range(len(others) + 1)
    every = (tuple(sorted((*ring.lost, *more))) for count in counts for more in combinations(others, count))
    if len(ring.members) > _SORTED:
        return every

    def cost(places: tuple[int, ...]) -> tuple[int, int, tuple[int, ...]]:
        return sum(ring.weights[place] for place in places), len(places), places

    return iter(sorted(every, key=cost))


def _candidates(
    members: Column, places: tuple[int, ...], stock: Mapping[int, int]
) -> tuple[Column, list[tuple[int, ...]]]:
    """The ensembles with other bookies at these places, int[n, E], and the classes of these bookies."""
    choices = [some for some in product(sorted(stock), repeat=len(places)) if _in_stock(some, stock)]
    rings = np.tile(members, (len(choices), 1))
    if places and choices:
        rings[:, places] = np.array(choices)
    return rings, choices


def _in_stock(some: tuple[int, ...], stock: Mapping[int, int]) -> bool:
    return all(some.count(code) <= stock[code] for code in set(some))


def _judged(bench: FragmentJudge, rings: Column, ring: Ring) -> tuple[Column, Column]:
    """Whether each of these ensembles does not adhere, bool[n], and its fewest racks in a write quorum, int64[n]."""
    parts = [rings[at : at + _TOGETHER] for at in range(0, len(rings), _TOGETHER)]
    facts = [bench.facts(part, ring.quorum, acks=ring.acks) for part in parts]
    fails = np.concatenate([np.zeros(0, bool), *(some.fails for some in facts)])
    return fails, np.concatenate([np.zeros(0, np.int64), *(some.racks for some in facts)])


def _fallback(
    bench: FragmentJudge, ring: Ring, stock: Mapping[int, int], prices: Mapping[int, float], *, complete: bool
) -> RingSearch:
    """Other bookies for the lost places alone."""
    rings, choices = _candidates(ring.members, ring.lost, stock)
    if not ring.lost or not choices:
        return RingSearch(adheres=False, complete=complete)
    _, racks = _judged(bench, rings, ring)
    return RingSearch(ring.lost, _best(choices, racks, prices), adheres=False, complete=complete)


def _best(choices: Sequence[tuple[int, ...]], racks: Column, prices: Mapping[int, float]) -> tuple[int, ...]:
    """The choice with most racks, and of these the one with the lowest sum of prices. ``racks``: int64[n]."""
    costs = np.array([sum(prices[code] for code in some) for some in choices])
    return choices[int(np.lexsort((costs, -racks))[0])]
