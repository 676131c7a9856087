"""Assigns the partitions of a new topic to brokers, and on each broker to a directory.

Brokers with few replicas come first, and racks alternate. On a broker the directory follows the strategy
(`logdirs.rank`): `partition` as if each partition were created before the next one is assigned; `size` in proportion
to usable bytes, because the partitions of a new topic are all empty and would otherwise share one directory.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from trueup.state.common.counts import many
from trueup.state.common.errors import Refused
from trueup.state.logdirs.model import Broker, rank, usable_after
from trueup.state.logdirs.settings import SIZE

Seat = tuple[int, str]
"""Broker and path."""


def seats(
    brokers: Sequence[Broker],
    racks: Mapping[int, str],
    partitions: int,
    replicas: int,
    strategy: str,
    excluded: Iterable[str] = (),
) -> list[list[Seat]]:
    """Replicas of each partition, the leader first. Raises `Refused` if there are too few brokers."""
    passed = frozenset(excluded)
    able = [broker for broker in brokers if rank(broker, strategy, passed).paths]
    if len(able) < replicas:
        found = f"{len(able)} with an open directory that is online"
        raise Refused(f"at least {many(replicas, 'broker')}", found, "request fewer replicas")
    order = _order(able, racks)
    shelves = {broker.id: _Shelf(broker, strategy, passed) for broker in able}
    return [
        [(broker, shelves[broker].take()) for broker in _chosen(order, racks, number, replicas)]
        for number in range(partitions)
    ]


class _Shelf:
    """The directories of one broker, and the number of new partitions assigned to each."""

    def __init__(self, broker: Broker, strategy: str, passed: frozenset[str]) -> None:
        ranking = rank(broker, strategy, passed)
        self._paths, self._given = ranking.paths, Counter[str]()
        self._sized = ranking.strategy == SIZE
        places = [broker.place[path] for path in self._paths]
        free, homes = usable_after(broker), Counter(broker.replicas.home.tolist())
        self._free = {path: int(free[at]) for path, at in zip(self._paths, places, strict=True)}
        self._had = {path: homes[at] for path, at in zip(self._paths, places, strict=True)}

    def take(self) -> str:
        """Assign one more partition and return its directory."""
        path = max(self._paths, key=self._worth)  # max returns the first of several: ties keep the ranking
        self._given[path] += 1
        return path

    def _worth(self, path: str) -> float:
        given = self._given[path]
        return self._free[path] / (given + 1) if self._sized else -(self._had[path] + given)


def _order(brokers: Sequence[Broker], racks: Mapping[int, str]) -> list[int]:
    """Broker ids with alternating racks."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(brokers, key=lambda b: (len(b.replicas), b.id)):
        by_rack.setdefault(racks.get(broker.id, ""), []).append(broker.id)
    return [id_ for row in zip_longest(*by_rack.values()) for id_ in row if id_ is not None]


def _chosen(order: Sequence[int], racks: Mapping[int, str], number: int, replicas: int) -> list[int]:
    """Brokers of one partition, in different racks while possible. Each round of leaders shifts the followers by one,
    so that the followers of a broker's partitions are spread."""
    begin, shift = number % len(order), number // len(order)
    brokers, rest = [order[begin]], [*order[begin + 1 :], *order[:begin]]
    rest = rest[shift % max(1, len(rest)) :] + rest[: shift % max(1, len(rest))]
    while len(brokers) < replicas:
        used = {racks.get(id_, "") for id_ in brokers}
        brokers.append(next((id_ for id_ in rest if racks.get(id_, "") not in used), rest[0]))
        rest.remove(brokers[-1])
    return brokers
