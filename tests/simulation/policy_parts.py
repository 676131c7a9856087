"""Placement under another policy than the rack-aware one: what happens to the cluster and to its settings."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tests.simulation.copy_part import CopyPart
from tests.simulation.copy_world import CopyWorld
from tests.simulation.instances import Leader, Process
from tests.simulation.model import World
from tests.simulation.placement_part import PlacementPart
from tests.simulation.placing import Placing
from tests.simulation.policy_checkers import IsolationCheckers, RegionCheckers, ZoneCheckers
from tests.simulation.policy_worlds import NAMESPACES, IsolationWorld, PlacedWorld, RegionWorld, ZoneWorld
from trueup.state.bookkeeper.topology import NamespaceGroups
from trueup.state.common.errors import Retry
from trueup.state.placement.settings import PlacementSettings


class IsolationPart(PlacementPart):
    """Bookies change their groups, namespaces theirs, and operators decide whether replicas may leave them."""

    world: IsolationWorld
    checkers: IsolationCheckers
    watch = IsolationCheckers

    def sections(self) -> Mapping[str, Any]:
        return {**super().sections(), "racks": {"source": "pulsar"}}

    def _policy(self) -> PlacementSettings:
        world = self.world
        return replace(
            super()._policy(),
            policy="isolation",
            groups=list(world.default[0]),
            secondary_groups=list(world.default[1]),
            workers_isolate=world.isolates and self.rng.random() < 0.9,
            leave_isolation=self.rng.random() < 0.1,
        )

    def begin(self, process: Process, leader: Leader, made: Callable[[str], Any]) -> Placing:
        placing = super().begin(process, leader, made)
        if self.rng.random() < 0.7:
            self._tell(placing)
        return placing

    def _tell(self, placing: Placing) -> None:
        """The process reads the groups of the namespaces."""
        placing.checkers.grouped(dict(self.world.namespaces), placing.clock())
        told = [NamespaceGroups(name, *pair) for name, pair in sorted(self.world.namespaces.items())]
        placing.keeper.group(tuple(told))

    def happen(self) -> None:
        super().happen()
        rng, world = self.rng, self.world
        what = rng.random()
        if what < 0.1:
            world.regroup(rng.choice(list(world.bookies)))
        elif what < 0.15:
            self._namespace()
        elif what < 0.2:
            world.answers = not world.answers
            world.write("bookies")
        elif what < 0.25:
            self._set("placement.leave_isolation", rng.random() < 0.3)
        elif what < 0.3 and world.isolates:
            self._set("placement.workers_isolate", rng.random() < 0.7)
        if rng.random() < 0.3:
            self._read_namespaces()

    def _namespace(self) -> None:
        rng, world = self.rng, self.world
        name = rng.choice(NAMESPACES)
        if name in world.namespaces and rng.random() < 0.3:
            del world.namespaces[name]
        else:
            primary, secondary = rng.sample(world.names, 2)
            world.namespaces[name] = (primary,), rng.choice(((), (secondary,)))
        world.note(f"namespaces have the groups {world.namespaces}")

    def _read_namespaces(self) -> None:
        placing, leader = self.placing, self.around.leader
        if placing is not None and leader is not None:
            with self.around.crashes(leader), suppress(Retry):
                self._tell(placing)

    def end_faults(self) -> None:
        super().end_faults()
        self.world.answers = True
        self.world.write("bookies")
        self._set("placement.workers_isolate", self.world.isolates)
        self._set("placement.leave_isolation", self.rng.random() < 0.15)

    def calm(self) -> None:
        self._read_namespaces()
        super().calm()

    def counted(self) -> Mapping[str, int]:
        return {**super().counted(), "watched": self.checkers.watched}


class PlacedPart(PlacementPart):
    """Zones or regions fail as a whole."""

    world: PlacedWorld

    def _near(self, bookie: str) -> list[str]:
        return [other for other in self.world.bookies if self.world.part(other) == self.world.part(bookie)]

    def _create(self) -> None:
        rng, number = self.rng, self.world.next_ledger
        quorum = rng.choice((2, 3, 3, 3, 4))
        self.world.create(quorum * rng.choice((1, 1, 1, 2)), quorum, rng.random() < 0.7)
        self.own |= {number} & self.world.ledgers.keys()


class ZonePart(PlacedPart):
    world: ZoneWorld
    watch = ZoneCheckers

    def _policy(self) -> PlacementSettings:
        world = self.world
        return replace(super()._policy(), policy="zone", min_zones=world.min_zones, desired_zones=world.desired_zones)

    def _locations(self) -> list[str]:
        return [f"/z{zone}/u{domain}" for domain in range(self.rng.choice((1, 2))) for zone in range(3)]

    def happen(self) -> None:
        super().happen()
        if self.rng.random() < 0.05:
            self._set("placement.desired_zones", self.rng.choice((2, 3)))

    def end_faults(self) -> None:
        super().end_faults()
        self.world.moves_racks = self.rng.random() < 0.3


class RegionPart(PlacedPart):
    world: RegionWorld
    watch = RegionCheckers

    def _policy(self) -> PlacementSettings:
        world = self.world
        return replace(
            super()._policy(), policy="region", regions=list(world.listed_regions), min_regions=world.min_regions
        )

    def _locations(self) -> list[str]:
        regions = self.world.listed_regions or ("east", "west")
        more = [*regions, "north"] if self.rng.random() < 0.2 else regions
        return [f"/{region}/r{rack}" for rack in range(self.rng.choice((1, 2, 2))) for region in more]

    def happen(self) -> None:
        super().happen()
        if self.rng.random() < 0.05:
            self._set("placement.min_regions", self.rng.choice((1, 2)))


POLICIES: Mapping[str, tuple[type[World], type[PlacementPart]]] = {
    "rack": (World, PlacementPart),
    "isolation": (IsolationWorld, IsolationPart),
    "zone": (ZoneWorld, ZonePart),
    "region": (RegionWorld, RegionPart),
    "copy": (CopyWorld, CopyPart),
}
