"""The topology reduced to classes of bookies that no rule distinguishes.

BookKeeper's policy considers only writable bookies, and of those only bookies whose rack has the depth of the bookie
that joined first (`NetworkTopologyImpl.add`). The order of joining differs between processes and cannot be observed.
This module uses the depth of most writable bookies, and among equals that of the oldest registration;
`BookieClasses.depths` has the others.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

import numpy as np

from trueup.state.bookkeeper.ledgers import Column
from trueup.state.bookkeeper.topology import UNKNOWN_RACK, Bookie, Status, Topology
from trueup.state.placement.policy.replacement import DEFAULT_RACK


class BookieClass(IntEnum):
    """How the rules treat a member. PENDING kinds count as before, but cannot send or receive replicas now."""

    WRITABLE = 0
    READONLY = 1
    ODD = 2  # writable, but its rack has another depth
    PENDING_WRITABLE = 3
    PENDING_READONLY = 4
    PENDING_ODD = 5
    LOST = 6
    UNPLACED = 7  # writable, and the rack map has not answered for it
    UNKNOWN = 8  # not in the topology


_PENDING = {
    BookieClass.WRITABLE: BookieClass.PENDING_WRITABLE,
    BookieClass.READONLY: BookieClass.PENDING_READONLY,
    BookieClass.ODD: BookieClass.PENDING_ODD,
}


@dataclass(frozen=True, slots=True, eq=False)
class BookieClasses:
    """The classes of a topology, and its racks. The last class is that of unknown bookies."""

    of: Mapping[str, int]
    """The class of each bookie, by id."""
    kind: Column
    """The `BookieClass` of each class."""
    rack: Column
    """The rack code of each class."""
    held: Column
    """Whether the bookies of each class belong to the mass loss that is held."""
    draining: Column
    """Whether the replicas of the bookies of each class move to other bookies."""
    racks: tuple[str, ...]
    """The name of each rack, by code."""
    default: int
    """The code of the default rack."""
    writable: Column
    """The number of bookies of kind WRITABLE in each rack, by rack code."""
    depth: int
    """The depth of the racks of bookies of kind WRITABLE."""
    level: bool
    """Whether the racks of all bookies have the depth ``depth``."""
    others: tuple[int, ...]
    """The other rack depths of writable bookies."""
    depths: Column
    """The depth of each rack, by code."""
    unplaced: int
    """The number of bookies of kind UNPLACED."""

    @property
    def racks_in_use(self) -> list[str]:
        """Racks that have or had bookies."""
        return [self.racks[rack] for rack in sorted(set(self.rack[:-1].tolist()))]

    def classes(self, names: tuple[str, ...]) -> Column:
        """Class of each name: int32."""
        unknown = len(self.kind) - 1
        return np.array([self.of.get(name, unknown) for name in names], np.int32)


def depth(rack: str) -> int:
    """The depth of a location ("/a" and "/a/": 1); -1 for a location that BookKeeper rejects."""
    parts = rack.removesuffix("/").split("/")
    return len(parts) - 1 if len(parts) > 1 and not parts[0] and all(parts[1:]) else -1


@lru_cache(maxsize=8)
def classes_of(topology: Topology) -> BookieClasses:
    """The classes of a topology."""
    votes = _votes(topology)
    level = max(votes, key=lambda level: votes[level], default=1)
    number: dict[str, int] = {}
    classes: dict[tuple[int, BookieClass, bool, bool], int] = {}
    of = {}
    for bookie in topology.bookies:
        rack, draining = number.setdefault(_location(bookie), len(number)), bookie.id in topology.policy.drain
        of[bookie.id] = classes.setdefault((rack, _kind(bookie, level), bookie.held, draining), len(classes))
    forms = list(classes)
    kinds = [forms[at][:2] for at in of.values()]
    counts = Counter(rack for rack, kind in kinds if kind is BookieClass.WRITABLE)
    keys = [*classes, (number.setdefault(DEFAULT_RACK, len(number)), BookieClass.UNKNOWN, False, False)]
    return BookieClasses(
        of,
        np.array([kind for _, kind, _, _ in keys], np.uint8),
        np.array([rack for rack, _, _, _ in keys], np.int32),
        np.array([held for _, _, held, _ in keys], bool),
        np.array([draining for _, _, _, draining in keys], bool),
        tuple(number),
        number[DEFAULT_RACK],
        np.array([counts[rack] for rack in range(len(number))], np.int32),
        level,
        all(depth(_location(bookie)) == level for bookie in topology.bookies),
        tuple(sorted(votes.keys() - {level})),
        np.array([depth(rack) for rack in number], np.int32),
        sum(kind is BookieClass.UNPLACED for _, kind in kinds),
    )


def _location(bookie: Bookie) -> str:
    """The location that BookKeeper assumes: unmapped bookies share the default rack; "" is an unusable location."""
    return DEFAULT_RACK if bookie.rack is None else bookie.rack


def _was(bookie: Bookie) -> Status:
    return bookie.was if bookie.status is Status.PENDING else bookie.status


def _votes(topology: Topology) -> dict[int, tuple[int, int]]:
    """Each depth that BookKeeper may use: the number of writable bookies, and the oldest registration, negated."""
    votes: dict[int, tuple[int, int]] = {}
    for bookie in topology.bookies:
        level = depth(_location(bookie))
        if _was(bookie) is Status.WRITABLE and level > 0:
            count, oldest = votes.get(level, (0, 0))
            votes[level] = (count + 1, max(oldest, -bookie.registered_zxid) if count else -bookie.registered_zxid)
    return votes


def _kind(bookie: Bookie, level: int) -> BookieClass:
    was = _was(bookie)
    if was in (Status.LOST, Status.PENDING):
        return BookieClass.LOST
    kind = BookieClass.READONLY
    if was is Status.WRITABLE and bookie.rack == UNKNOWN_RACK:
        return BookieClass.PENDING_READONLY if bookie.status is Status.PENDING else BookieClass.UNPLACED
    if was is Status.WRITABLE:
        kind = BookieClass.WRITABLE if depth(_location(bookie)) == level else BookieClass.ODD
    return _PENDING[kind] if bookie.status is Status.PENDING else kind
