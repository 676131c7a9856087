"""Bookies as the decisions see them: where each stands, whether it lives, and what policy holds.

A `Topology` is one full value with an epoch; the newest epoch wins. It carries the policy too, so that a verdict
is a function of (ledger, topology) and of nothing else.
"""

from dataclasses import dataclass
from enum import IntEnum

UNKNOWN_RACK = "?"
"""The rack of a bookie for which the rack map has not answered: no location, and not the default rack either."""


class Status(IntEnum):
    """How a bookie stands. Only WRITABLE ones give a rack to BookKeeper's adherence rule."""

    WRITABLE = 1
    READONLY = 2
    PENDING = 3  # lost a moment ago; judged as it was before until the grace has passed
    LOST = 4


@dataclass(frozen=True, slots=True)
class Bookie:
    """One bookie. ``since_ms``: when it took this status. ``rack`` None: the map has none for it (the
    default rack); `UNKNOWN_RACK`: the map has not answered.

    ``registered_zxid``: of its present registration; ``begun_zxid``: of the first one since it was away last, for one
    that turns read-only or writable registers anew in the same process.
    """

    id: str
    rack: str | None
    status: Status
    since_ms: int
    registered_zxid: int = 0
    was: Status = Status.WRITABLE  # while PENDING: the status before
    begun_zxid: int = 0


@dataclass(frozen=True, slots=True)
class Topology:
    """All bookies ever registered, and the policy that ledgers are judged by.

    ``held`` is empty, or the reason why losses are not acted upon until an operator looks
    (too large a share of the bookies went at once). ``released``: value of placement.release_hold when that
    began, which a later value has to exceed; -1 if nothing is held, or if it is not known any more.

    ``collect_ms``: gcOverreplicatedLedgerWaitTime of the bookies. ``restarted``: placement.restarted, a counter; a
    higher one says that bookies which registered anew had been restarted.
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
