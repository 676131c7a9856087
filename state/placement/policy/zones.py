"""Adherence to zones and upgrade domains.

The rule is `ZoneawareEnsemblePlacementPolicyImpl.isEnsembleAdheringToPlacementPolicy` of BookKeeper 4.17.3. A location
has exactly two parts, "/zone/upgradeDomain". Lost and read-only members count like writable ones: the class asks the
rack map for every member and caches the answer for the life of its process, so it ignores a later change of location.
The answer depends neither on Qa nor on enforceStrictZoneawarePlacement. It is FAIL for all ledgers with Qw = 2 under
the defaults (2 zones at least, 3 desired).
"""

from enum import IntFlag
from typing import Final

import numpy as np

from trueup.state.bookkeeper.ledgers import Column
from trueup.state.placement.policy.adherence import Adherence, alike, distinct_windows, groups

REPAIRS_PLACEMENT: Final = False
"""Whether workers move replicas of live members. The policy has no replaceToAdherePlacementPolicy.

`BookKeeperAdmin` catches the UnsupportedOperationException and returns no target, so that the fragment fails with
BKLedgerRecoveryException. If repairedPlacementPolicyNotAdheringBookieEnable is set, a worker replaces lost members of
such a ledger, but never removes its mark: it tries again for as long as a fragment fails.

Lost members are replaced by `replaceBookie`. Its result can fail where the ensemble adhered before: with
enforceStrictZoneawarePlacement=false it is any bookie, and otherwise only the zone and the domain of the new bookie
are checked. It throws NullPointerException if min(Qw, desired zones) < the minimum of zones.
"""
DEFAULT_PLACE: Final = ("default-zone", "default-upgradedomain")
"""The place of bookies without a location. It is as good as none."""


class ZoneCondition(IntFlag):
    """Conditions of the policy. All but DESIRED are necessary."""

    SIZE = 1
    """E is a multiple of Qw."""
    QUORUM = 2
    """Qw is greater than minNumZonesPerWriteQuorum."""
    PLACE = 4
    """Every member has a place."""
    ZONES = 8
    """Every window spans minNumZonesPerWriteQuorum zones."""
    DOMAINS = 16
    """Members of a window that share a zone span two upgrade domains."""
    DESIRED = 32
    """Every window spans min(Qw, desiredNumZonesPerWriteQuorum) zones."""


def zone_place(location: str) -> tuple[str, str] | None:
    """Zone and upgrade domain of a location. None if the policy has no place for it.

    Repeated separators count once. The policy throws IllegalArgumentException for a location without a leading "/";
    this function returns None.
    """
    parts = tuple(filter(None, location.split("/")))
    if not location.startswith("/") or len(parts) != 2 or parts == DEFAULT_PLACE:
        return None
    return parts


def broken_conditions(
    zones: Column, domains: Column, placed: Column, quorum: int, min_zones: int, desired_zones: int
) -> Column:
    """Conditions that ``n`` rings of E members break: a set of `ZoneCondition` each, uint8[n].

    ``zones`` and ``domains``: codes, int[n, E]; domains of different zones are never compared. ``placed``: whether
    the member has a place, bool[n, E]. ``quorum``: Qw. ``min_zones`` and ``desired_zones``: the settings
    minNumZonesPerWriteQuorum and desiredNumZonesPerWriteQuorum.
    """
    size = zones.shape[1]
    broken = np.zeros(len(zones), np.uint8)

    def add(rings: Column | bool, condition: ZoneCondition) -> None:
        np.bitwise_or(broken, np.uint8(condition), out=broken, where=rings)

    add(size % quorum > 0, ZoneCondition.SIZE)
    add(quorum <= min_zones, ZoneCondition.QUORUM)
    add(~placed.all(axis=1) | (size == 0), ZoneCondition.PLACE)
    for window in distinct_windows(size, quorum):
        zone = alike(zones[:, window], placed[:, window])
        place = zone & alike(domains[:, window], placed[:, window])
        spread = np.count_nonzero(groups(zone), axis=1)
        crowded = (zone.sum(axis=2) > 1) & (zone == place).all(axis=2)
        add(spread < min_zones, ZoneCondition.ZONES)
        add(crowded.any(axis=1), ZoneCondition.DOMAINS)
        add(spread < min(quorum, desired_zones), ZoneCondition.DESIRED)
    return broken


def zone_adherence(
    zones: Column, domains: Column, placed: Column, quorum: int, min_zones: int, desired_zones: int
) -> Column:
    """`Adherence` of ``n`` rings: uint8[n]. Arguments as in `broken_conditions`.

    STRICT: every window spans the desired zones, or Qw zones. SOFT: every window spans ``min_zones`` zones.
    """
    broken = broken_conditions(zones, domains, placed, quorum, min_zones, desired_zones)
    necessary = broken & ~np.uint8(ZoneCondition.DESIRED)
    answers: Column = np.select([necessary > 0, broken > 0], [Adherence.FAIL, Adherence.SOFT], Adherence.STRICT)
    return answers.astype(np.uint8)
