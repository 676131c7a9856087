"""Clusters whose clients use another policy than the rack-aware one: isolation groups, zones, or regions.

Workers with Pulsar's class respect groups only when they replace a lost bookie, and those of the metadata of the
ledger, or of their own configuration. Under zones and regions workers replace lost bookies, and move no other replica.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

from tests.simulation.bookkeeper import refill
from tests.simulation.model import Bookie, Ledger, World
from tests.simulation.policies import Groups, Pair, Regions, zone_answer

NAMESPACES = ("t/one", "t/two")


@dataclass(frozen=True)
class Move:
    """A worker moved replicas of a ledger."""

    ledger: int
    authors: tuple[str, ...]
    """The authors of the mark at that time."""
    targets: tuple[str, ...]
    circumstances: object


class IsolationWorld(World):
    """Bookies in groups, and ledgers that belong into them."""

    def __init__(self, rng: Random, least: int, enforce: bool) -> None:
        super().__init__(rng, least, enforce)
        self.names = ("a", "b", "c")[: rng.choice((2, 2, 3))]
        self.isolates = rng.random() < 0.5
        """Whether workers use Pulsar's class."""
        self.default: Pair = rng.choice((((), ()), ((), ()), (("a",), ()), (("a",), ("b",))))
        self.namespaces: dict[str, Pair] = {}
        self.answers = rng.random() < 0.7
        """Whether the rack map was read."""
        self.moves: list[Move] = []

    # The rack map

    def start(
        self, name: str, rack: str | None = None, state: str = "writable", process: str = "new", turned: bool = False
    ) -> None:
        joins = name not in self.bookies
        super().start(name, rack, state, process, turned)
        if joins:
            self.bookies[name].groups = self.drawn()

    def drawn(self) -> tuple[str, ...]:
        """The groups of a bookie: one of them, sometimes none or two."""
        count = self.rng.choice((0, 1, 1, 1, 1, 1, 1, 2))
        return tuple(sorted(self.rng.sample(self.names, count)))

    def regroup(self, bookie: str) -> None:
        groups = self.bookies[bookie].groups = self.drawn()
        self.write("bookies")
        self.note(f"{bookie} is in the groups {groups}")

    def listed(self) -> list[tuple[Bookie, tuple[str, ...] | None]]:
        return [(bookie, bookie.groups if self.answers else None) for bookie in self.bookies.values()]

    def groups(self) -> Groups:
        """As the brokers know them."""
        return Groups(
            {b.id: b.groups for b in self.bookies.values() if b.cookie or b.state != "down"},
            self.racks().writable,
            self.default,
            self.namespaces,
        )

    # Writers

    def draft(self, size: int, quorum: int) -> Ledger:
        ledger, rng = super().draft(size, quorum), self.rng
        primary = [rng.choice(self.names)] if rng.random() < 0.9 else list(self.names[:2])
        secondary = [rng.choice(self.names)] if rng.random() < 0.4 else []
        texts = json.dumps([primary, [name for name in secondary if name not in primary]]), ""
        return replace(ledger, isolation=rng.choice((texts[0], texts[0], "", json.dumps(rng.choice(NAMESPACES)))))

    def choosable(self, ledger: Ledger, size: int) -> list[str]:
        """Sometimes the groups were others when the ledger was written."""
        usable, groups = super().choosable(ledger, size), self.groups()
        if self.rng.random() < 0.15:
            return usable
        allowed = groups.allowed(groups.of(ledger.isolation), size)
        return [bookie for bookie in usable if bookie in allowed]

    def replacements_of_writer(
        self, ledger: Ledger, ensemble: Sequence[str], lost: Sequence[int]
    ) -> dict[int, str] | None:
        return self._within(self.groups(), ledger, ensemble, lost)

    # Workers

    def worker_groups(self) -> Groups:
        """As workers of Pulsar's class know them: no namespaces."""
        return replace(self.groups(), namespaces=None)

    def replacements(self, ledger: Ledger, ensemble: Sequence[str], lost: Sequence[int]) -> dict[int, str] | None:
        if not self.isolates:
            return super().replacements(ledger, ensemble, lost)
        return self._within(self.worker_groups(), ledger, ensemble, lost)

    def _within(
        self, groups: Groups, ledger: Ledger, ensemble: Sequence[str], lost: Sequence[int]
    ) -> dict[int, str] | None:
        racks = self.racks()
        allowed = groups.allowed(groups.of(ledger.isolation), len(ensemble))
        return refill(ensemble, lost, replace(racks, writable=racks.writable & allowed), self.rng.choice)

    def _move(self, ledger: Ledger, at: int, targets: dict[int, str]) -> bool:
        done, mark = super()._move(ledger, at, targets), self.marks.get(ledger.id)
        if done:
            authors = mark.authors if mark else ()
            self.moves.append(Move(ledger.id, authors, tuple(targets.values()), self.circumstances()))
        return done

    def circumstances(self) -> object:
        """What the targets of workers depend on."""
        bookies = self.bookies.values()
        return circumstances(
            {b.id: b.groups for b in bookies if b.state != "down"}, self.racks().writable, self.namespaces
        )


def circumstances(groups: dict[str, tuple[str, ...]], writable: Iterable[str], namespaces: object) -> object:
    return tuple(sorted(groups.items())), frozenset(writable), repr(namespaces)


class PlacedWorld(World):
    """Locations have two parts, and workers only replace lost bookies."""

    def __init__(self, rng: Random, least: int, _enforce: bool) -> None:
        super().__init__(rng, least, False)

    def part(self, bookie: str) -> str:
        """The zone or region of a bookie."""
        return (self.bookies[bookie].rack or "/").split("/")[1]

    def places(self) -> dict[str, str]:
        return {bookie.id: bookie.rack for bookie in self.bookies.values()}

    def replacements(self, _ledger: Ledger, ensemble: Sequence[str], lost: Sequence[int]) -> dict[int, str] | None:
        """A bookie of the same location or part comes first; any other will do."""
        targets: dict[int, str] = {}
        for at in lost:
            free = [b for b in self.racks().choosable() if b not in ensemble and b not in targets.values()]
            same = [b for b in free if self.bookies[b].rack == self.bookies[ensemble[at]].rack]
            options = same or [b for b in free if self.part(b) == self.part(ensemble[at])] or free
            if not options:
                return None
            targets[at] = self.rng.choice(options)
        return targets


class ZoneWorld(PlacedWorld):
    """ZoneawareEnsemblePlacementPolicy without enforceStrictZoneawarePlacement."""

    def __init__(self, rng: Random, least: int, enforce: bool) -> None:
        super().__init__(rng, least, enforce)
        self.min_zones, self.desired_zones = rng.choice((1, 2, 2)), rng.choice((2, 3, 3))

    def suits(self, ledger: Ledger, ensemble: Sequence[str]) -> bool:
        return not self.misplaced(ledger, ensemble)

    def misplaced(self, ledger: Ledger, ensemble: Sequence[str]) -> bool:
        return zone_answer(ensemble, ledger.quorum, self.places(), self.min_zones, self.desired_zones) == "FAIL"

    def _relocate(self, _ledger: Ledger, _at: int) -> bool:
        return False


class RegionWorld(PlacedWorld):
    """RegionAwareEnsemblePlacementPolicy. Ensembles have the size of the write quorum."""

    def __init__(self, rng: Random, least: int, enforce: bool) -> None:
        super().__init__(rng, least, enforce)
        self.listed_regions: tuple[str, ...] = rng.choice(((), ("east", "west"), ("east", "west", "south")))
        self.min_regions = rng.choice((1, 2, 2, 3))

    def regions(self) -> Regions:
        return Regions(self.places(), self.racks().writable, self.listed_regions, self.min_regions, self.least)

    def draft(self, size: int, quorum: int) -> Ledger:
        return replace(super().draft(size, size), acks=self.rng.randint(max(1, size - 1), size))

    def suits(self, ledger: Ledger, ensemble: Sequence[str]) -> bool:
        return self.regions().formed(ensemble, ledger.acks, set(ensemble))

    def misplaced(self, _ledger: Ledger, _ensemble: Sequence[str]) -> bool:
        return False
