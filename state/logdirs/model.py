"""Log directories of one broker, as DescribeLogDirs reports them, and the choice for its next partition.

Both strategies of KIP-178 are functions of plain values that a broker plugin could also call. Sizes are bytes; -1 is
a size that the broker did not report (before 3.3, an offline directory, no permission). Directories of one file system
report the same volume; their free bytes are counted once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.state.logdirs.settings import PARTITION, SIZE

_SAME_VOLUME = 0.01
"""Directories are read one by one while the broker writes: readings of one volume differ by up to this share."""


class LogDir(NamedTuple):
    """One directory."""

    path: str
    total: int = -1
    """The size of the volume in bytes, -1 if unknown."""
    usable: int = -1
    """The usable bytes of the volume, -1 if unknown."""
    online: bool = True
    cordoned: bool = False


@dataclass(frozen=True, slots=True)
class Replicas:
    """The replicas of a broker, in columns."""

    topics: tuple[str, ...]
    topic: NDArray[np.int32]
    """The index of the topic in ``topics``."""
    partition: NDArray[np.int32]
    home: NDArray[np.int32]
    """The index of the directory in `Broker.dirs`."""
    size: NDArray[np.int64]
    lag: NDArray[np.int64]
    """The number of offsets by which a future replica is behind the current replica."""
    future: NDArray[np.bool_]
    """Whether the replica is a copy that AlterReplicaLogDirs is making."""

    def __len__(self) -> int:
        return len(self.topic)

    def name(self, row: int) -> tuple[str, int]:
        """Topic and partition of a row."""
        return self.topics[self.topic[row]], int(self.partition[row])


Row = tuple[str, int, int, int, int, bool]
"""Topic, partition, index of the directory, size in bytes, lag in offsets, whether it is a future replica."""


def replicas(rows: Sequence[Row]) -> Replicas:
    """Rows as columns."""
    names = tuple(sorted({row[0] for row in rows}))
    code = {name: at for at, name in enumerate(names)}
    columns = np.array([(code[row[0]], *row[1:]) for row in rows], np.int64).reshape(-1, 6).T
    topic, partition, home = columns[:3].astype(np.int32)
    return Replicas(names, topic, partition, home, columns[3], columns[4], columns[5].astype(bool))


class Ranking(NamedTuple):
    """Directories for the next partition, best first; the strategy used, and the reason if it is not the set one."""

    paths: tuple[str, ...]
    strategy: str
    reason: str = ""


class Moving(NamedTuple):
    """A move in progress: rows of the future replica and of the current one (-1: does not exist)."""

    future: int
    current: int


@dataclass(frozen=True)
class Broker:
    """The state that one broker reports."""

    id: int
    dirs: tuple[LogDir, ...]
    """The directories in the order of log.dirs of the broker, which decides between equal directories."""
    replicas: Replicas = field(default_factory=lambda: replicas(()))
    cordons: bool = True
    """Whether the broker supports cordoned directories (KIP-1066)."""
    freeing: tuple[int, ...] = ()
    """The bytes of moved replicas that are not deleted yet, by directory. Empty if there are none."""

    @cached_property
    def sized(self) -> bool:
        """Whether the sizes of all online directories are known."""
        return all(d.total >= 0 and d.usable >= 0 for d in self.dirs if d.online) and any(d.online for d in self.dirs)

    @cached_property
    def place(self) -> dict[str, int]:
        """Index of each directory by path."""
        return {d.path: at for at, d in enumerate(self.dirs)}

    @cached_property
    def volumes(self) -> NDArray[np.int64]:
        """Volume number of each directory, numbered in order of appearance."""
        return _volumes(self.dirs)

    @cached_property
    def held(self) -> NDArray[np.int64]:
        """Bytes of replicas, by directory."""
        by_dir = np.zeros(len(self.dirs), np.int64)
        np.add.at(by_dir, self.replicas.home, np.maximum(0, self.replicas.size))
        return by_dir

    @cached_property
    def beside(self) -> NDArray[np.int64]:
        """Bytes of each volume that are neither replicas nor waiting for deletion, by volume number."""
        taken = np.zeros(self.volumes.max(initial=-1) + 1, np.int64)
        for d, volume in zip(self.dirs, self.volumes.tolist(), strict=True):
            taken[volume] = d.total - d.usable
        return taken - per_volume(self, self.held + np.array(self.freeing or 0, np.int64))

    @cached_property
    def moving(self) -> tuple[Moving, ...]:
        """Moves in progress."""
        rows = self.replicas
        moves = []
        for future in np.flatnonzero(rows.future).tolist():
            same = (rows.topic == rows.topic[future]) & (rows.partition == rows.partition[future]) & ~rows.future
            current = np.flatnonzero(same)
            moves.append(Moving(future, int(current[0]) if len(current) else -1))
        return tuple(moves)

    @cached_property
    def incoming(self) -> NDArray[np.int64]:
        """Bytes that moves in progress have yet to write, by directory."""
        rows, by_dir = self.replicas, np.zeros(len(self.dirs), np.int64)
        for future, current in self.moving:
            if current >= 0:
                by_dir[rows.home[future]] += max(0, int(rows.size[current] - rows.size[future]))
        return by_dir

    @cached_property
    def outgoing(self) -> NDArray[np.int64]:
        """Bytes that moves will free, by directory (after file.delete.delay.ms)."""
        rows, by_dir = self.replicas, np.zeros(len(self.dirs), np.int64)
        for _, current in self.moving:
            if current >= 0:
                by_dir[rows.home[current]] += int(rows.size[current])
        return by_dir + np.array(self.freeing or 0, np.int64)


def rank(broker: Broker, strategy: str, excluded: Iterable[str] = ()) -> Ranking:
    """Rank the directories for the next partition, without ``excluded`` paths.

    ``partition`` is LogManager.nextLogDirs: uncordoned directories by their number of logs, a moving replica counted
    in both, ties in the order of log.dirs; if all are cordoned, the first online one. ``size``: most usable bytes
    after the moves in progress, ties by ``partition``.
    """
    by_count = _by_count(broker, frozenset(excluded))
    if strategy != SIZE:
        return Ranking(by_count, PARTITION)
    if not broker.sized:
        return Ranking(by_count, PARTITION, f"broker {broker.id} does not report the sizes of its log directories")
    free = usable_after(broker)
    place = {path: at for at, path in enumerate(by_count)}
    ordered = sorted(by_count, key=lambda path: (-free[broker.place[path]], place[path]))
    return Ranking(tuple(ordered), SIZE)


def usable_after(broker: Broker) -> NDArray[np.int64]:
    """Usable bytes of each directory's volume after the moves in progress have written their remaining bytes. Bytes
    that they free count only once they are free."""
    coming = per_volume(broker, broker.incoming)
    return np.array([d.usable for d in broker.dirs], np.int64) - coming[broker.volumes]


def opened(broker: Broker, now_open: Iterable[str], band: float, least: int, excluded: Iterable[str] = ()) -> Ranking:
    """The directories that are open to new partitions; all others are to be cordoned.

    These are the one with the most usable bytes, and all within a share of ``band`` below it. An open directory stays
    open up to twice that distance, which prevents flapping. At least ``least`` directories stay open, whatever they
    hold, to spread a burst of new partitions between two polls.
    """
    passed = frozenset(excluded)
    free_to_choose = replace(broker, dirs=tuple(d._replace(cordoned=False) for d in broker.dirs))
    ranking = rank(free_to_choose, SIZE, passed)
    if ranking.strategy != SIZE or not ranking.paths:
        return Ranking((), ranking.strategy, ranking.reason or "no directory is online and not excluded")
    free, was = usable_after(broker), frozenset(now_open)
    best = float(free[broker.place[ranking.paths[0]]])
    kept = [
        path
        for at, path in enumerate(ranking.paths)
        if at < max(1, least) or best - free[broker.place[path]] <= best * band * (2 if path in was else 1)
    ]
    return Ranking(tuple(kept), SIZE)


def used(broker: Broker) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Used and total bytes of each volume after all moves in progress, with their sources freed."""
    count = broker.volumes.max(initial=-1) + 1
    total, free = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for d, volume in zip(broker.dirs, broker.volumes.tolist(), strict=True):
        if d.online:
            total[volume], free[volume] = d.total, d.usable
    # Bytes that future replicas have written already are part of the used bytes.
    return total - free + per_volume(broker, broker.incoming) - per_volume(broker, broker.outgoing), total


def skew(broker: Broker) -> float:
    """Difference between the fullest and the emptiest volume, as shares of their size; 0.0 where unknown."""
    if not broker.sized:
        return 0.0
    after, total = used(broker)
    return spread(after[total > 0], total[total > 0])


def spread(after: NDArray[Any], total: NDArray[Any]) -> float:
    """Difference between the fullest and the emptiest volume, for these used and total bytes; 0.0 for none."""
    shares = after / total
    return float(shares.max() - shares.min()) if len(shares) else 0.0


def per_volume(broker: Broker, by_dir: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sums by volume number."""
    sums = np.zeros(broker.volumes.max(initial=-1) + 1, np.int64)
    np.add.at(sums, broker.volumes, by_dir)
    return sums


def _by_count(broker: Broker, passed: frozenset[str]) -> tuple[str, ...]:
    counts = np.bincount(broker.replicas.home, minlength=len(broker.dirs))
    live = [at for at, d in enumerate(broker.dirs) if d.online and d.path not in passed]
    ready = [at for at in live if not broker.dirs[at].cordoned] or live[:1]
    return tuple(broker.dirs[at].path for at in sorted(ready, key=lambda at: (int(counts[at]), at)))


def _volumes(dirs: Sequence[LogDir]) -> NDArray[np.int64]:
    """Group directories with the same total and (nearly) the same usable bytes into one volume.

    Two equal disks with equal contents are also grouped. This is harmless: nothing needs to move between them, and
    their free space is underestimated rather than overestimated.
    """
    numbers: list[int] = []
    first: list[LogDir] = []
    for d in dirs:
        near = (n for n, other in enumerate(first) if _one_volume(d, other))
        number = next(near, len(first))
        if number == len(first):
            first.append(d)
        numbers.append(number)
    return np.array(numbers, np.int64)


def _one_volume(log_dir: LogDir, other: LogDir) -> bool:
    sized = log_dir.online and other.online and log_dir.total > 0
    return sized and log_dir.total == other.total and abs(log_dir.usable - other.usable) <= log_dir.total * _SAME_VOLUME
