"""A topology as placement sees it: bookies in classes that no rule can tell apart.

BookKeeper's policy knows writable bookies only, and of those only the ones whose rack has the depth of the first that
joined (`NetworkTopologyImpl.add`). The order of joining is that of each process and cannot be observed. The depth of
most writable bookies is taken, of the oldest registration among equals; `Standing.depths` has the others.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

import numpy as np

from trueup.state.bookkeeper.ledgers import Column
from trueup.state.bookkeeper.topology import UNKNOWN_RACK, Bookie, Status, Topology
from trueup.state.placement.replacement import DEFAULT_RACK


class Kind(IntEnum):
    """What a member is to the rules. PENDING ones count as they did before, but can take or give nothing now."""

    WRITABLE = 0
    READONLY = 1
    ODD = 2  # writable, but its rack has another depth
    PENDING_WRITABLE = 3
    PENDING_READONLY = 4
    PENDING_ODD = 5
    LOST = 6
    UNPLACED = 7  # writable, and the rack map has not answered for it
    STRANGER = 8  # not in the topology at all


_PENDING = {Kind.WRITABLE: Kind.PENDING_WRITABLE, Kind.READONLY: Kind.PENDING_READONLY, Kind.ODD: Kind.PENDING_ODD}


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """``of``: class of each bookie; ``kind`` and ``rack`` of each class, the last one being a stranger's.

    ``racks``: names by code, ``default`` being that of the default rack; ``writable``: how many known writable bookies
    each has; ``depth``: of their racks; ``level``: whether no bookie stands at another; ``others``: the other depths
    of writable bookies; ``depths``: of each rack by code; ``unplaced``: whether any writable one's is unknown.
    """

    of: Mapping[str, int]
    kind: Column
    rack: Column
    racks: tuple[str, ...]
    default: int
    writable: Column
    depth: int
    level: bool
    others: tuple[int, ...]
    depths: Column
    unplaced: bool

    @property
    def peopled(self) -> list[str]:
        """Racks where bookies stand or stood."""
        return [self.racks[rack] for rack in sorted(set(self.rack[:-1].tolist()))]

    def classes(self, names: tuple[str, ...]) -> Column:
        """Class of each name: int32."""
        stranger = len(self.kind) - 1
        return np.array([self.of.get(name, stranger) for name in names], np.int32)


def depth(rack: str) -> int:
    """How deep a location is ("/a": 1, as "/a/"); -1 for one that BookKeeper does not accept."""
    parts = rack.removesuffix("/").split("/")
    return len(parts) - 1 if len(parts) > 1 and not parts[0] and all(parts[1:]) else -1


@lru_cache(maxsize=8)
def stand(topology: Topology) -> Standing:
    """The classes of a topology."""
    votes = _votes(topology)
    level = max(votes, key=lambda level: votes[level], default=1)
    number: dict[str, int] = {}
    classes: dict[tuple[int, Kind], int] = {}
    of = {}
    for bookie in topology.bookies:
        rack = number.setdefault(_location(bookie), len(number))
        of[bookie.id] = classes.setdefault((rack, _kind(bookie, level)), len(classes))
    counts = Counter(rack for rack, kind in (list(classes)[at] for at in of.values()) if kind is Kind.WRITABLE)
    keys = [*classes, (number.setdefault(DEFAULT_RACK, len(number)), Kind.STRANGER)]
    return Standing(
        of,
        np.array([kind for _, kind in keys], np.uint8),
        np.array([rack for rack, _ in keys], np.int32),
        tuple(number),
        number[DEFAULT_RACK],
        np.array([counts[rack] for rack in range(len(number))], np.int32),
        level,
        all(depth(_location(bookie)) == level for bookie in topology.bookies),
        tuple(sorted(votes.keys() - {level})),
        np.array([depth(rack) for rack in number], np.int32),
        any(kind is Kind.UNPLACED for _, kind in classes),
    )


def _location(bookie: Bookie) -> str:
    """Where BookKeeper takes a bookie to be: unmapped ones share a rack, an unusable location ("") is none."""
    return DEFAULT_RACK if bookie.rack is None else bookie.rack


def _was(bookie: Bookie) -> Status:
    return bookie.was if bookie.status is Status.PENDING else bookie.status


def _votes(topology: Topology) -> dict[int, tuple[int, int]]:
    """Each depth that BookKeeper may go by: how many writable bookies have it, and the oldest registration, negated."""
    votes: dict[int, tuple[int, int]] = {}
    for bookie in topology.bookies:
        level = depth(_location(bookie))
        if _was(bookie) is Status.WRITABLE and level > 0:
            count, oldest = votes.get(level, (0, 0))
            votes[level] = (count + 1, max(oldest, -bookie.registered_zxid) if count else -bookie.registered_zxid)
    return votes


def _kind(bookie: Bookie, level: int) -> Kind:
    was = _was(bookie)
    if was in (Status.LOST, Status.PENDING):
        return Kind.LOST
    kind = Kind.READONLY
    if was is Status.WRITABLE and bookie.rack == UNKNOWN_RACK:
        return Kind.PENDING_READONLY if bookie.status is Status.PENDING else Kind.UNPLACED
    if was is Status.WRITABLE:
        kind = Kind.WRITABLE if depth(_location(bookie)) == level else Kind.ODD
    return _PENDING[kind] if bookie.status is Status.PENDING else kind
