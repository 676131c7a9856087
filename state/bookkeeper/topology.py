"""Bookies as decisions see them: the rack and liveness of each, and the policy in force.

A `Topology` is one full value with an epoch; the newest epoch wins. It includes the policy, so that a verdict
is a function of (ledger, topology) only.
"""

from dataclasses import dataclass
from enum import IntEnum

UNKNOWN_RACK = "?"
"""The rack of a bookie for which the rack map has not answered: unknown, and not the default rack either."""


class Status(IntEnum):
    """Liveness of a bookie. Only WRITABLE bookies give a rack to BookKeeper's adherence rule."""

    WRITABLE = 1
    READONLY = 2
    PENDING = 3  # recently lost; judged by its earlier status until the grace period ends
    LOST = 4


@dataclass(frozen=True, slots=True)
class Bookie:
    """One bookie. ``since_ms``: start of this status. ``rack`` None: not in the rack map (the
    default rack); `UNKNOWN_RACK`: the rack map has not answered.

    ``registered_zxid``: of the current registration; ``begun_zxid``: of the first one since the bookie was last away,
    because a bookie that turns read-only or writable registers again in the same process.

    ``held``: it went away in the mass loss that is held. It is PENDING or LOST like any other bookie, and no mark is
    written for ledgers that name it.
    """

    id: str
    rack: str | None
    status: Status
    since_ms: int
    registered_zxid: int = 0
    was: Status = Status.WRITABLE  # while PENDING: the status before
    begun_zxid: int = 0
    held: bool = False


@dataclass(frozen=True, slots=True)
class Topology:
    """All bookies ever registered, and the policy that ledgers are judged by.

    ``held`` is empty, or the reason why losses are not acted upon until an operator intervenes
    (too large a share of the bookies went away at once). ``released``: the value of placement.release_hold when the
    hold began, which a later value must exceed; -1 if nothing is held or the value is unknown.

    ``collect_ms``: gcOverreplicatedLedgerWaitTime of the bookies. ``restarted``: placement.restarted, a counter; a
    higher value states that bookies which registered again were restarted.
    """

    epoch: int
    at_ms: int
    bookies: tuple[Bookie, ...]
    min_racks: int = 2
    enforce_min_racks: bool = False
    held: str = ""
    released: int = -1
    collect_ms: int = 86_400_000
    restarted: int = 0
