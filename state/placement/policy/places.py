"""Regions or zones of the bookies of a topology, for the policies that judge by them."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from trueup.state.bookkeeper.ledgers import Column
from trueup.state.bookkeeper.topology import Topology
from trueup.state.placement.policy import regions, zones
from trueup.state.placement.policy.bookie_classes import classes_of
from trueup.state.placement.policy.regions import RegionCondition, RegionRules, region_place
from trueup.state.placement.policy.zones import ZoneCondition, zone_place

ZONE_TEXTS = {
    ZoneCondition.SIZE: "E is no multiple of Qw",
    ZoneCondition.QUORUM: "Qw is not above minNumZonesPerWriteQuorum (placement.min_zones)",
    ZoneCondition.PLACE: "a member has no location /zone/upgradeDomain",
    ZoneCondition.ZONES: "a write quorum spans fewer zones than minNumZonesPerWriteQuorum (placement.min_zones)",
    ZoneCondition.DOMAINS: "members of a write quorum in one zone share their upgrade domain",
    ZoneCondition.DESIRED: (
        "a write quorum spans fewer zones than desiredNumZonesPerWriteQuorum (placement.desired_zones)"
    ),
}
REGION_TEXTS = {
    RegionCondition.QUORUMS: "Qa is too small for reppMinimumRegionsForDurability (placement.min_regions)",
    RegionCondition.DEFAULT: "a member is in the default rack",
    RegionCondition.REGIONS: "the ensemble spans fewer regions than placement.min_regions",
    RegionCondition.COVERED: "a region of placement.regions has no member",
    RegionCondition.DURABLE: "Qa members of a write quorum lie in fewer regions than placement.min_regions",
    RegionCondition.SPREAD: "a write quorum spans fewer regions than placement.min_racks",
    RegionCondition.RACKS: "members of a region span fewer racks than placement.min_racks",
    RegionCondition.LISTED: "a member is in a region that placement.regions does not list",
}


class Places(Protocol):
    """The places of a topology under one policy."""

    @property
    def names(self) -> tuple[str, ...]:
        """The region or zone of each rack, by rack code; empty for a rack without one."""

    def adherence(self, racks: Column, counted: Column, quorum: int, acks: int) -> Column:
        """`Adherence` of each ring. ``racks``: rack code of each member, [n, E]; ``counted``: whether it is writable;
        ``quorum``, ``acks``: Qw and Qa."""

    def broken(self, racks: Column, counted: Column, quorum: int, acks: int) -> list[str]:
        """What one ring breaks, [1, E]: conditions that make it fail, otherwise those that make it soft."""


@dataclass(frozen=True, slots=True, eq=False)
class _Zones:
    names: tuple[str, ...]
    zone: Column
    domain: Column
    placed: Column
    least: int
    desired: int

    def adherence(self, racks: Column, counted: Column, quorum: int, acks: int) -> Column:  # noqa: ARG002
        return zones.zone_adherence(*self._ring(racks), quorum, self.least, self.desired)

    def broken(self, racks: Column, counted: Column, quorum: int, acks: int) -> list[str]:  # noqa: ARG002
        broken = ZoneCondition(int(zones.broken_conditions(*self._ring(racks), quorum, self.least, self.desired)[0]))
        return [ZONE_TEXTS[condition] for condition in broken & ~ZoneCondition.DESIRED or broken]

    def _ring(self, racks: Column) -> tuple[Column, Column, Column]:
        return self.zone[racks], self.domain[racks], self.placed[racks]


@dataclass(frozen=True, slots=True, eq=False)
class _Regions:
    names: tuple[str, ...]
    region: Column
    stock: Column
    rules: RegionRules

    def adherence(self, racks: Column, counted: Column, quorum: int, acks: int) -> Column:
        return regions.region_adherence(*self._ring(racks, counted), quorum, acks, self.rules, self.stock)

    def broken(self, racks: Column, counted: Column, quorum: int, acks: int) -> list[str]:
        failed, tolerated = regions.broken_guarantees(*self._ring(racks, counted), quorum, acks, self.rules, self.stock)
        return [REGION_TEXTS[condition] for condition in RegionCondition(int(failed[0] or tolerated[0]))]

    def _ring(self, racks: Column, counted: Column) -> tuple[Column, Column, Column]:
        region = self.region[racks]
        return region, racks, counted & (region >= 0)


@lru_cache(maxsize=8)
def places_of(topology: Topology) -> Places | None:
    """The places of a topology; None under a policy that counts racks."""
    if topology.policy.kind == "zone":
        return _zones(topology)
    return _regions(topology) if topology.policy.kind == "region" else None


def _zones(topology: Topology) -> _Zones:
    places = [zone_place(rack) for rack in classes_of(topology).racks]
    zone, domain = ([place[at] if place else "" for place in places] for at in (0, 1))
    placed = np.array([place is not None for place in places], bool)
    policy = topology.policy
    return _Zones(tuple(zone), _codes(zone), _codes(domain), placed, policy.min_zones, policy.desired_zones)


def _regions(topology: Topology) -> _Regions:
    classes, policy = classes_of(topology), topology.policy
    names = [place[0] if (place := region_place(rack)) else "" for rack in classes.racks]
    number = {name: code for code, name in enumerate(dict.fromkeys([*filter(None, names), *policy.regions]))}
    region = np.array([number.get(name, -1) for name in names], np.int32)
    stocked = region[(classes.writable > 0) & (region >= 0)]
    rules = RegionRules(
        tuple(number[name] for name in policy.regions),
        policy.min_regions,
        topology.min_racks,
        topology.enforce_min_racks,
        default=number.get(regions.DEFAULT_PLACE[0], -1),
    )
    return _Regions(tuple(names), region, np.bincount(stocked, minlength=len(number) or 1), rules)


def _codes(names: list[str]) -> Column:
    codes: Column = np.unique(np.array(names), return_inverse=True)[1].astype(np.int32)
    return codes
