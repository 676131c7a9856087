"""Isolation groups, zones and regions over bookie names, independent of `state`, to reveal errors in either.

Rules: IsolatedBookieEnsemblePlacementPolicy of Pulsar 4.2, isEnsembleAdheringToPlacementPolicy of
ZoneawareEnsemblePlacementPolicyImpl and newEnsemble of RegionAwareEnsemblePlacementPolicy of BookKeeper 4.17.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from tests.simulation.bookkeeper import windows

Pair = tuple[tuple[str, ...], tuple[str, ...]]
"""Primary and secondary groups."""


@dataclass(frozen=True)
class Groups:
    """The groups of each bookie in the rack map, and those of ledgers whose metadata have none."""

    of_bookie: Mapping[str, tuple[str, ...]]
    writable: Set[str]
    default: Pair = ((), ())
    namespaces: Mapping[str, Pair] | None = None

    def unread(self, text: str) -> bool:
        """Whether the ledger belongs to a namespace, and namespaces were not read yet."""
        return text.startswith('"') and self.namespaces is None

    def of(self, text: str) -> Pair | None:
        """The groups of a ledger with this text; None: all bookies are allowed."""
        if text.startswith("["):
            primary, secondary = json.loads(text)
        else:
            primary, secondary = self.default
            if text and self.namespaces is not None:
                primary, secondary = self.namespaces.get(json.loads(text), self.default)
            if not primary:
                return None
        return None if "*" in primary else (tuple(primary), tuple(secondary))

    def allowed(self, pair: Pair | None, size: int) -> frozenset[str]:
        """The bookies in which Pulsar's class places ensembles of this size."""
        everyone = frozenset(self.of_bookie) | frozenset(self.writable)
        if pair is None or not any(self.of_bookie.values()):
            return everyone
        primary = {bookie for bookie, groups in self.of_bookie.items() if set(groups) & set(pair[0])}
        available = len([bookie for bookie in primary if bookie in self.writable])
        if available >= size:
            return frozenset(primary)
        secondary = {bookie for bookie, groups in self.of_bookie.items() if set(groups) & set(pair[1])}
        if available + len(secondary - primary) >= size:
            return frozenset(primary | secondary)
        alone = {bookie for bookie in everyone if not self.of_bookie.get(bookie)}
        return frozenset(primary | secondary | alone)


def zone_answer(ensemble: Sequence[str], quorum: int, place: Mapping[str, str], least: int, desired: int) -> str:
    """What isEnsembleAdheringToPlacementPolicy returns: FAIL, SOFT or STRICT."""
    if len(ensemble) % quorum or quorum <= least:
        return "FAIL"
    answer = "STRICT"
    for window in windows(ensemble, quorum):
        domains: dict[str, list[str]] = {}
        for bookie in window:
            parts = place.get(bookie, "").split("/")
            if len(parts) != 3:
                return "FAIL"
            domains.setdefault(parts[1], []).append(parts[2])
        if len(domains) < least or any(len(used) > 1 and len(set(used)) == 1 for used in domains.values()):
            return "FAIL"
        if len(domains) < min(quorum, desired):
            answer = "SOFT"
    return answer


@dataclass(frozen=True)
class Regions:
    """Locations "/region/rack" of the bookies, and the settings of the clients."""

    place: Mapping[str, str]
    writable: Set[str]
    listed: tuple[str, ...] = ()
    least: int = 2
    racks: int = 2

    def region(self, bookie: str) -> str:
        return self.place[bookie].split("/")[1]

    def stock(self) -> dict[str, int]:
        """The number of racks with writable bookies in each region."""
        return Counter(place.split("/")[1] for place in {self.place[bookie] for bookie in self.writable})

    def formed(self, ensemble: Sequence[str], acks: int, live: Set[str]) -> bool:
        """Whether newEnsemble can form the ensemble, for E = Qw. ``live``: the members in it that count."""
        stock, least = self.stock(), self.least if self.listed else 0
        members = [bookie for bookie in ensemble if bookie in live]
        absent = len(ensemble) - len(members)
        strict = [b for b in members if self.region(b) in self.listed and stock.get(self.region(b), 0) > 1]
        number = Counter(self.region(bookie) for bookie in members)
        if acks > len(ensemble) or (least and (acks < least or acks <= len(ensemble) - len(ensemble) // least)):
            return False
        if len(stock) > 1 and len(number) < least:
            return False
        covers = len(ensemble) >= len(stock) and (least or min(len(ensemble), self.racks)) <= 2
        if covers and any(stock.get(region, 0) and not number[region] for region in self.listed):
            return False
        if least > 1:
            largest = sorted(Counter(map(self.region, strict)).values())[-(least - 1) :]
            if sum(largest) + absent >= acks:
                return False
        elif not least and self._narrow(ensemble, number, absent, strict):
            return False
        return all(
            len({self.place[b] for b in members if self.region(b) == region}) >= min(number[region], self.racks)
            for region in set(map(self.region, strict))
        )

    def _narrow(self, ensemble: Sequence[str], number: Counter[str], absent: int, strict: Sequence[str]) -> bool:
        """Without durability: whether too few regions have members, all of which are in listed regions."""
        few = len(number) < min(len(ensemble), self.racks)
        return bool(self.listed) and few and len(strict) + absent == len(ensemble)
