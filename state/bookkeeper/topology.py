"""Bookies as decisions see them: the rack and liveness of each, and the policy in force.

A `Topology` is one full value with an epoch; the newest epoch wins. It includes the policy, so that a verdict
is a function of (ledger, topology) only.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

UNKNOWN_RACK = "?"
"""The rack of a bookie for which the rack map has not answered: unknown, and not the default rack either."""


class Status(IntEnum):
    """Liveness of a bookie. Only WRITABLE bookies give a rack to BookKeeper's adherence rule."""

    WRITABLE = 1
    READONLY = 2
    PENDING = 3  # recently lost; judged by its earlier status until the grace period ends
    LOST = 4


@dataclass(frozen=True, slots=True)
class PlacementPolicy:
    """The ensemblePlacementPolicy of the clients that write ledgers, with its settings beside the minimum of racks."""

    kind: str = "rack"
    """rack, region, zone or isolation."""
    regions: tuple[str, ...] = ()
    """reppRegionsToWrite."""
    min_regions: int = 2
    """reppMinimumRegionsForDurability."""
    min_zones: int = 2
    """minNumZonesPerWriteQuorum."""
    desired_zones: int = 3
    """desiredNumZonesPerWriteQuorum."""
    groups: tuple[str, ...] = ()
    """The isolationBookieGroups of ledgers whose metadata have none."""
    secondary_groups: tuple[str, ...] = ()
    """secondaryIsolationBookieGroups."""
    workers_isolate: bool = False
    """Whether AutoRecovery workers respect the groups when they replace a lost bookie."""
    leave_isolation: bool = False
    """Whether a repair may move replicas out of the groups of their ledger."""
    copies: bool = False
    """Whether Trueup copies ledgers itself, also those that workers cannot repair."""
    drain: tuple[str, ...] = ()
    """Bookies whose replicas move to other bookies."""


class NamespaceGroups(NamedTuple):
    """The isolation groups of one namespace of Pulsar."""

    name: str
    """tenant/namespace"""
    primary: tuple[str, ...]
    secondary: tuple[str, ...] = ()
    readable: bool = True
    """Whether its policies can be decoded."""


@dataclass(frozen=True, slots=True)
class Bookie:
    """One bookie."""

    id: str
    rack: str | None
    """The rack in the rack map. None: the bookie is not in the map (the default rack). `UNKNOWN_RACK`: the rack map has
    not answered."""
    status: Status
    since_ms: int
    """When this status began, ms since the epoch."""
    registered_zxid: int = 0
    """The zxid of the current registration, or of the last one while the bookie is away; 0 if none is known."""
    was: Status = Status.WRITABLE  # while PENDING: the status before
    begun_zxid: int = 0
    """The zxid of the first registration since the bookie was last away. A bookie that turns read-only or writable
    registers again in the same process, which does not change this zxid."""
    held: bool = False
    """Whether the bookie went away in the mass loss that is held. It is PENDING or LOST like any other bookie, and no
    mark is written for ledgers that name it."""
    groups: tuple[str, ...] | None = None
    """The groups of the rack map that list it. None: the rack map has no groups, or has not answered."""


@dataclass(frozen=True, slots=True)
class Topology:
    """All bookies ever registered, and the policy that ledgers are judged by."""

    epoch: int
    """The number of this value: at least ``at_ms``, and higher than that of every earlier value."""
    at_ms: int
    bookies: tuple[Bookie, ...]
    min_racks: int = 2
    enforce_min_racks: bool = False
    held: str = ""
    """Why losses are not acted upon until an operator intervenes or enough bookies return: too large a share of the
    bookies went away at once. Empty if nothing is held."""
    released: int = -1
    """The value of placement.release_hold when the hold began; a higher value releases the hold. -1 if nothing is held
    or the value is unknown."""
    collect_ms: int = 86_400_000
    """The gcOverreplicatedLedgerWaitTime of the bookies, in ms."""
    policy: PlacementPolicy = PlacementPolicy()
    namespaces: tuple[NamespaceGroups, ...] | None = None
    """The namespaces with isolation groups. None: they were not read."""
    restarted: int = 0
    """The value of placement.restarted, a counter. A higher value states that bookies which registered again were
    restarted."""
