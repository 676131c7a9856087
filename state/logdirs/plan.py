"""Which replicas to move between the log directories of one broker, and which of those moves may start now.

The plan brings the difference between the fullest and the emptiest volume (`logdirs.skew`) down to a target with few
bytes: never more than the fewest possible and one replica for each volume that gives. Moves stay on their broker.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.state.logdirs.model import Broker, skew, spread, usable_after, used


@dataclass(frozen=True, slots=True)
class Balance:
    """What a plan has to keep to. ``target``: the largest skew that is good enough, as a share. ``headroom_share`` of
    a volume, and at least ``headroom_bytes``, stay usable at any moment, both copies of what moves counted.

    ``least_bytes``: smaller replicas are not worth a move. ``at_once``: moves of one broker at the same time.
    """

    target: float = 0.1
    headroom_share: float = 0.05
    headroom_bytes: int = 1 << 30
    least_bytes: int = 1 << 20
    at_once: int = 1
    topics: frozenset[str] = frozenset()  # not to be moved
    paths: frozenset[str] = frozenset()  # neither given to nor taken from


class Move(NamedTuple):
    """One replica to another directory. ``skew``: of the broker once this and all moves before it are done."""

    broker: int
    topic: str
    partition: int
    source: str
    target: str
    bytes: int
    skew: float

    @property
    def what(self) -> tuple[str, int, str, str]:
        """What tells one move of a broker from another, as in `state.logdirs.lifecycle.Relocation`."""
        return self.topic, self.partition, self.source, self.target


class Plan(NamedTuple):
    """Moves in the order in which they should start; why there are none, or why they do not reach the target."""

    moves: tuple[Move, ...]
    before: float
    after: float
    reason: str = ""


def plan(broker: Broker, policy: Balance) -> Plan:
    """The moves that bring a broker to the target. Counts what is under way as done."""
    now = skew(broker)
    if not broker.sized:
        return Plan((), now, now, "its directories' sizes are not known")
    if not all(d.online for d in broker.dirs):
        return Plan((), now, now, "a directory is offline: the broker refuses every move until it is back")
    if now <= policy.target:
        return Plan((), now, now)
    made = _Balancing(broker, policy)
    moves = made.run()
    reason = "" if made.skew <= policy.target else "no replica that may move fits anywhere without passing the headroom"
    return Plan(tuple(moves), now, made.skew, reason)


def startable(broker: Broker, moves: Sequence[Move], policy: Balance) -> list[Move]:
    """Of a plan, what may start now: one move at a time into or out of a directory, ``at_once`` in all, the headroom
    kept with what is under way still to be written."""
    if not all(d.online for d in broker.dirs):
        return []
    rows = broker.replicas
    busy = {broker.dirs[rows.home[row]].path for pair in broker.moving for row in pair if row >= 0}
    free, left = usable_after(broker), policy.at_once - len(broker.moving)
    chosen: list[Move] = []
    for move in moves:
        place = broker.place.get(move.target)
        if len(chosen) >= left or place is None:
            continue
        room = free[place] - move.bytes >= headroom(policy, broker.dirs[place].total)
        if room and not broker.dirs[place].cordoned and not busy & {move.source, move.target}:
            chosen.append(move)
            busy |= {move.source, move.target}
    return chosen


def fewest_bytes(after: NDArray[np.int64], total: NDArray[np.int64], target: float) -> tuple[float, float]:
    """Lower bound on the bytes to move until the skew is ``target``, and the lower edge of the band it leads to.

    A band [edge, edge + target] asks the volumes above it to give and those below it to take; the larger of the two
    sums must move. That is convex in the edge, with its corners where a volume meets an edge of the band.
    """
    shares = after / total
    edges = np.unique(np.concatenate([shares, shares - target]))
    give = (np.maximum(0.0, shares - (edges[:, None] + target)) * total).sum(axis=1)
    take = (np.maximum(0.0, edges[:, None] - shares) * total).sum(axis=1)
    # Between two corners the sums cross at most once; there the larger of them is smallest.
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
    """Bytes that stay usable on a volume of ``total`` bytes."""
    return max(policy.headroom_bytes, int(total * policy.headroom_share))


class _Balancing:
    """The making of one plan. Volumes stand for their directories; of several on one, the least used is moved to."""

    def __init__(self, broker: Broker, policy: Balance) -> None:
        self._broker, self._policy = broker, policy
        after, total = used(broker)
        self._after, self._total = after.astype(float), total.astype(float)
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
        """As it will be after the moves so far."""
        return spread(self._after, self._total)

    def run(self) -> list[Move]:
        """Moves until the target is reached or nothing helps."""
        moves: list[Move] = []
        while self.skew > self._policy.target:
            move = self._next()
            if move is None:
                break
            moves.append(move)
        return moves

    def _next(self) -> Move | None:
        """One move that brings what is above the band into it, or what is below it."""
        return self._towards(self._edge) or self._towards(self._lower_edge())

    def _lower_edge(self) -> float:
        """Of the band that is cheapest to reach from here."""
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
        """The replica whose size serves best. The target stays below the top of the band, the source above its
        edge, or at least both between where they were: no move makes the skew worse."""
        gap = self._shares[source] - self._shares[target]
        if gap <= 0:
            return None
        most = gap / (1 / self._total[source] + 1 / self._total[target])  # both equally full
        kept = (edge + self._policy.target) * self._total[target] - self._after[target]
        cap = max(most, min(kept, self._after[source] - edge * self._total[source]))
        need = max(over, 0.0) or max(under, 0.0)
        at = self._fitting(source, need, min(cap, self._open[target]))
        if at is None:
            at = self._larger(source, target, min(cap, self._open[target]))
        return None if at is None else self._move(self._shelf(source).pop(at)[1], source, target)

    def _fitting(self, volume: int, need: float, cap: float) -> int | None:
        """Place on the shelf of the smallest replica that is ``need`` or more, else of the largest; none over
        ``cap``."""
        shelf = self._shelf(volume)
        end = bisect_right(shelf, (int(cap), len(self._broker.replicas)))
        at = bisect_left(shelf, (int(np.ceil(need)), -1), 0, end)
        return at if at < end else end - 1 if end else None

    def _larger(self, source: int, target: int, cap: float) -> int | None:
        """Place on the shelf of the smallest replica over ``cap``, if moving it makes the skew smaller even so."""
        shelf = self._shelf(source)
        at = bisect_right(shelf, (int(cap), len(self._broker.replicas)))
        if at == len(shelf) or shelf[at][0] > self._open[target]:
            return None
        after = self._after.copy()
        after[[source, target]] += (-shelf[at][0], shelf[at][0])
        return at if spread(after, self._total) < self.skew else None

    def _move(self, row: int, source: int, target: int) -> Move:
        rows, size = self._broker.replicas, int(self._broker.replicas.size[row])
        home = self._home(target)
        self._after[source] -= size
        self._after[target] += size
        self._open[target] -= size  # what moves away is freed too late to count on
        self._counts[home] += 1
        topic, partition = rows.name(row)
        path = self._broker.dirs[rows.home[row]].path
        return Move(self._broker.id, topic, partition, path, self._broker.dirs[home].path, size, self.skew)

    def _home(self, volume: int) -> int:
        dirs = self._broker.dirs
        here = [at for at in self._dirs if self._broker.volumes[at] == volume and not dirs[at].cordoned]
        return min(here, key=lambda at: (int(self._counts[at]), at))

    def _shelf(self, volume: int) -> list[tuple[int, int]]:
        """(size, row) of the replicas on a volume that may be moved, by size."""
        if volume not in self._shelves:
            rows, policy = self._broker.replicas, self._policy
            barred = [at for at, topic in enumerate(rows.topics) if topic in policy.topics]
            under_way = [row for pair in self._broker.moving for row in pair if row >= 0]
            free = ~rows.future & (rows.size >= max(1, policy.least_bytes)) & ~np.isin(rows.topic, barred)
            free[under_way] = False
            free &= np.isin(rows.home, [at for at in self._dirs if self._broker.volumes[at] == volume])
            found = np.flatnonzero(free)
            self._shelves[volume] = sorted(zip(rows.size[found].tolist(), found.tolist(), strict=True))
        return self._shelves[volume]

    def _room(self) -> NDArray[np.float64]:
        """Bytes that may still be written to each volume; none where no directory of it may be given to."""
        free = usable_after(self._broker)
        room = np.zeros(len(self._total))
        for at in self._dirs:
            if not self._broker.dirs[at].cordoned:
                kept = headroom(self._policy, self._broker.dirs[at].total)
                room[self._broker.volumes[at]] = max(0.0, float(free[at] - kept))
        return room
