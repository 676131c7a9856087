"""Which replicas to move between the log directories of one broker, and which of these moves may start now.

The plan reduces the difference between the fullest and the emptiest volume (`logdirs.skew`) to a target with few
bytes: at most the minimum plus one replica per source volume. Moves stay on their broker.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.state.logdirs.model import Broker, skew, spread, usable_after, used

_TRIED = 100
"""The number of replicas of falling size that are tried for one pair of volumes."""
_EQUAL = 1e-9
"""The difference of two shares that counts as none."""


@dataclass(frozen=True, slots=True)
class Balance:
    """The constraints of a plan."""

    target: float = 0.1
    """The largest acceptable skew, as a share."""
    headroom_share: float = 0.05
    """The minimum share of a volume that stays usable at any time, with both copies of a moving replica counted."""
    headroom_bytes: int = 1 << 30
    """The minimum number of bytes of a volume that stay usable at any time. The larger of the two minimums applies."""
    least_bytes: int = 1 << 20
    """The minimum size in bytes of a replica that is moved."""
    at_once: int = 1
    """The maximum number of concurrent moves per broker."""
    topics: frozenset[str] = frozenset()  # excluded topics
    paths: frozenset[str] = frozenset()  # excluded as source and target


class Move(NamedTuple):
    """A move of one replica to another directory."""

    broker: int
    topic: str
    partition: int
    source: str
    target: str
    bytes: int
    skew: float
    """The skew of the broker after this move and all earlier moves."""

    @property
    def what(self) -> tuple[str, int, str, str]:
        """The identity of the move, as in `state.logdirs.lifecycle.Relocation`."""
        return self.topic, self.partition, self.source, self.target


class MovePlan(NamedTuple):
    """Moves in their order of start; the reason if there are none, or if they do not reach the target."""

    moves: tuple[Move, ...]
    before: float
    after: float
    reason: str = ""


def plan(broker: Broker, policy: Balance) -> MovePlan:
    """The moves that bring a broker to the target. Moves in progress count as complete."""
    now = skew(broker)
    if not broker.sized:
        return MovePlan((), now, now, "the sizes of its directories are unknown")
    if not all(d.online for d in broker.dirs):
        return MovePlan((), now, now, "a directory is offline: the broker refuses every move until it returns")
    if now <= policy.target:
        return MovePlan((), now, now)
    balancing = _Balancing(broker, policy)
    moves = balancing.run()
    reason = (
        "" if balancing.skew <= policy.target else "no movable replica fits into another directory within the headroom"
    )
    return MovePlan(tuple(moves), now, balancing.skew, reason)


def startable(broker: Broker, moves: Sequence[Move], policy: Balance) -> list[Move]:
    """The moves of a plan that may start now: one at a time into or out of a directory, ``at_once`` in total, with the
    headroom kept after the remaining writes of moves in progress."""
    if not all(d.online for d in broker.dirs):
        return []
    rows = broker.replicas
    busy = {broker.dirs[rows.home[row]].path for pair in broker.moving for row in pair if row >= 0}
    free, left = usable_after(broker), policy.at_once - len(broker.moving)
    starts: list[Move] = []
    for move in moves:
        place = broker.place.get(move.target)
        if len(starts) >= left or place is None:
            continue
        room = free[place] - move.bytes >= headroom(policy, broker.dirs[place].total)
        if room and not broker.dirs[place].cordoned and not busy & {move.source, move.target}:
            starts.append(move)
            busy |= {move.source, move.target}
    return starts


def fewest_bytes(after: NDArray[np.int64], total: NDArray[np.int64], target: float) -> tuple[float, float]:
    """A lower bound on the bytes to move until the skew is ``target``, and the lower edge of the resulting band.

    For a band [edge, edge + target], volumes above it must give and volumes below it must receive; the larger of the
    two sums must move. It is convex in the edge, with corners where a volume meets an edge of the band.
    """
    shares = after / total
    edges = np.unique(np.concatenate([shares, shares - target]))
    give = (np.maximum(0.0, shares - (edges[:, None] + target)) * total).sum(axis=1)
    take = (np.maximum(0.0, edges[:, None] - shares) * total).sum(axis=1)
    # Between two corners the sums cross at most once; the larger one is smallest there.
    crossing = np.flatnonzero(np.diff(np.sign(give - take)) != 0)
    for at in crossing.tolist():
        slope = (take[at + 1] - take[at] - give[at + 1] + give[at]) / (edges[at + 1] - edges[at])
        edges = np.append(edges, edges[at] + (give[at] - take[at]) / slope)
    give = (np.maximum(0.0, shares - (edges[:, None] + target)) * total).sum(axis=1)
    take = (np.maximum(0.0, edges[:, None] - shares) * total).sum(axis=1)
    bytes_ = np.maximum(give, take)
    best = int(bytes_.argmin())
    return float(bytes_[best]), float(edges[best])


def headroom(policy: Balance, total: int) -> int:
    """Bytes that must stay usable on a volume of ``total`` bytes."""
    return max(policy.headroom_bytes, int(total * policy.headroom_share))


def _each(broker: Broker) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Used and total bytes as `used` returns them, as if each directory were on a volume of its own."""
    total = np.array([d.total for d in broker.dirs], np.float64)
    usable = np.array([d.usable for d in broker.dirs], np.float64)
    return total - usable + broker.incoming - broker.outgoing, total


class _Balancing:
    """Creates one plan. Volumes represent their directories; the target on a volume is its least used directory."""

    def __init__(self, broker: Broker, policy: Balance) -> None:
        self._broker, self._policy = broker, policy
        after, total = used(broker)
        self._after, self._total = after.astype(float), total.astype(float)
        self._each, self._sizes = _each(broker)
        self._dirs = [at for at, d in enumerate(broker.dirs) if d.online and d.path not in policy.paths]
        self._open = self._room()
        self._shelves: dict[int, list[tuple[int, int]]] = {}
        self._edge = self._lower_edge()
        self._counts = np.bincount(broker.replicas.home, minlength=len(broker.dirs))

    @property
    def _shares(self) -> NDArray[np.float64]:
        shares: NDArray[np.float64] = self._after / self._total
        return shares

    @property
    def skew(self) -> float:
        """The skew after the moves so far."""
        return spread(self._after, self._total)

    def run(self) -> list[Move]:
        """Add moves until the target is reached or no move helps."""
        moves: list[Move] = []
        while self.skew > self._policy.target:
            move = self._next()
            if move is None:
                break
            moves.append(move)
        return moves

    def _next(self) -> Move | None:
        """One move that brings a volume from above or below the band into it."""
        return self._towards(self._edge) or self._towards(self._lower_edge())

    def _lower_edge(self) -> float:
        """The lower edge of the band that is cheapest to reach from here."""
        self._edge = fewest_bytes(self._after.astype(np.int64), self._total.astype(np.int64), self._policy.target)[1]
        return self._edge

    def _towards(self, edge: float) -> Move | None:
        over = self._after - (edge + self._policy.target) * self._total
        under = edge * self._total - self._after
        for source in np.argsort(-over).tolist():
            for target in np.argsort(-under).tolist():
                if source != target and (over[source] > 0 or under[target] > 0):
                    move = self._between(source, target, edge, over[source], under[target])
                    if move is not None:
                        return move
        return None

    def _between(self, source: int, target: int, edge: float, over: float, under: float) -> Move | None:
        """The replica with the best size. The target stays below the top of the band and of the fullest volume, and the
        source above its edge and the emptiest volume, or both between their present levels: no move increases the
        skew."""
        shares = self._shares
        gap = shares[source] - shares[target]
        if gap <= 0:
            return None
        most = gap / (1 / self._total[source] + 1 / self._total[target])  # makes both equally full
        top, bottom = min(edge + self._policy.target, shares.max()), max(edge, shares.min())
        kept = top * self._total[target] - self._after[target]
        cap = min(max(most, min(kept, self._after[source] - bottom * self._total[source])), self._open[target])
        need = max(over, 0.0) or max(under, 0.0)
        at = self._fitting(source, target, need, cap)
        if at is None:
            at = self._larger(source, target, cap)
        return None if at is None else self._move(self._shelf(source).pop(at)[1], source, target)

    def _fitting(self, source: int, target: int, need: float, cap: float) -> int | None:
        """Index on the shelf of the smallest replica of ``need`` bytes or more, else of the largest; none exceeds
        ``cap``, and each `_settles`."""
        shelf = self._shelf(source)
        end = bisect_right(shelf, (int(cap), len(self._broker.replicas)))
        at = min(bisect_left(shelf, (int(np.ceil(need)), -1), 0, end), end - 1)
        return next((i for i in range(at, max(-1, at - _TRIED), -1) if self._settles(shelf[i], target)), None)

    def _settles(self, replica: tuple[int, int], target: int) -> bool:
        """Whether the move of a replica reduces the skew of directories as if each were on a volume of its own, or
        keeps it and brings the two directories nearer. Equal disks with nearly equal contents count as one volume, and
        as two after a move: without this rule the next plan could return the replica, without an end."""
        size, row = replica
        pair = [int(self._broker.replicas.home[row]), self._home(target)]
        before, after = self._each / self._sizes, self._each.copy()
        after[pair] += (-size, size)
        change = spread(after, self._sizes) - spread(self._each, self._sizes)
        moved = float(size * (1 / self._sizes[pair]).sum())
        nearer = moved < 2 * (before[pair[0]] - before[pair[1]]) - _EQUAL
        return change < -_EQUAL or (change <= _EQUAL and bool(nearer))

    def _larger(self, source: int, target: int, cap: float) -> int | None:
        """Index on the shelf of the smallest replica over ``cap``, if its move still reduces the skew."""
        shelf = self._shelf(source)
        at = bisect_right(shelf, (int(cap), len(self._broker.replicas)))
        if at == len(shelf) or shelf[at][0] > self._open[target]:
            return None
        after = self._after.copy()
        after[[source, target]] += (-shelf[at][0], shelf[at][0])
        return at if spread(after, self._total) < self.skew and self._settles(shelf[at], target) else None

    def _move(self, row: int, source: int, target: int) -> Move:
        rows, size = self._broker.replicas, int(self._broker.replicas.size[row])
        home = self._home(target)
        self._after[source] -= size
        self._after[target] += size
        self._each[[int(rows.home[row]), home]] += (-size, size)
        self._open[target] -= size  # bytes that the source frees are available too late to count
        self._counts[home] += 1
        topic, partition = rows.name(row)
        path = self._broker.dirs[rows.home[row]].path
        return Move(self._broker.id, topic, partition, path, self._broker.dirs[home].path, size, self.skew)

    def _home(self, volume: int) -> int:
        dirs = self._broker.dirs
        here = [at for at in self._dirs if self._broker.volumes[at] == volume and not dirs[at].cordoned]
        return min(here, key=lambda at: (int(self._counts[at]), at))

    def _shelf(self, volume: int) -> list[tuple[int, int]]:
        """(size, row) of the movable replicas of a volume, by size."""
        if volume not in self._shelves:
            rows, policy = self._broker.replicas, self._policy
            excluded = [at for at, topic in enumerate(rows.topics) if topic in policy.topics]
            under_way = [row for pair in self._broker.moving for row in pair if row >= 0]
            free = ~rows.future & (rows.size >= max(1, policy.least_bytes)) & ~np.isin(rows.topic, excluded)
            free[under_way] = False
            free &= np.isin(rows.home, [at for at in self._dirs if self._broker.volumes[at] == volume])
            movable = np.flatnonzero(free)
            self._shelves[volume] = sorted(zip(rows.size[movable].tolist(), movable.tolist(), strict=True))
        return self._shelves[volume]

    def _room(self) -> NDArray[np.float64]:
        """Bytes that may still be written to each volume; none if no directory on it is a permitted target."""
        free = usable_after(self._broker)
        room = np.zeros(len(self._total))
        for at in self._dirs:
            if not self._broker.dirs[at].cordoned:
                kept = headroom(self._policy, self._broker.dirs[at].total)
                room[self._broker.volumes[at]] = max(0.0, float(free[at] - kept))
        return room
