"""Kafka brokers with several log directories, without Trueup: replicas that grow, moves, cordons and throttles.

Sources of the behaviour: LogManager.nextLogDirs, ReplicaManager.alterReplicaLogDirs, ReplicaAlterLogDirsThread, KIP-113
and KIP-1066. A setting is changed at the controller; the broker shows it when it has applied the record of it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from trueup.state.logdirs.model import Broker, LogDir, Row, replicas

MB = 1 << 20
OTHER, TRUEUP, EITHER = "other", "trueup", "either"
"""The clients. `EITHER`: another one made a change that Trueup cannot distinguish from one of its own."""
UNLIMITED = 500 * MB
"""The bytes per second that a broker copies without a throttle."""
DELETE_MS = 30_000
"""file.delete.delay.ms: the time until the bytes of a moved or deleted replica are free."""
LATE_MS = 20_000
"""The longest time until a broker shows a setting. Trueup waits for 30 s."""
STORAGE = ("retry", "a directory of the broker is offline")
STARTED = ("started", "")

Partition = tuple[str, int]


@dataclass(eq=False)
class BrokerVolume:
    """One disk."""

    total: int
    beside: int
    """The bytes of other programs."""
    garbage: list[tuple[int, int]] = field(default_factory=list)
    """The bytes that are deleted, each with the time from which they are free."""


@dataclass(eq=False)
class BrokerDirectory:
    """One log directory."""

    path: str
    disk: BrokerVolume
    online: bool = True


@dataclass
class HeldReplica:
    """A replica, and the copy of it that AlterReplicaLogDirs makes."""

    home: str
    size: int
    future: str = ""
    copied: int = 0
    mover: str = ""
    """The client that ordered the move."""


class BrokerSettings(NamedTuple):
    """The dynamic settings of a broker, with the client that set each."""

    cordons: Mapping[str, str] = {}
    throttle: int = 0
    setter: str = ""


class DirectoryBroker:
    """One broker. ``clock``: the time of Trueup, which waits for settings by it."""

    def __init__(self, number: int, rng: Random, clock: Callable[[], int]) -> None:
        self.number, self._rng, self._clock, self.now_ms = number, rng, clock, 0
        disks = [BrokerVolume(rng.choice((1000, 1000, 2000, 4000)) * MB, 0) for _ in range(rng.randint(2, 4))]
        for disk in disks:
            disk.beside = int(disk.total * rng.choice((0, 0.1, 0.4, 0.7)))
        shared = len(disks) < 4 and rng.random() < 0.3
        self.dirs = [BrokerDirectory(f"/d{at}", disk) for at, disk in enumerate([*disks, *disks[:shared]])]
        self.disks, self.place = disks, {d.path: d for d in self.dirs}
        self.supports = rng.random() < 0.8
        self.sized = rng.random() < 0.95
        self.held: dict[Partition, HeldReplica] = {}
        self.preferred: dict[Partition, str] = {}
        self.settings = self.shown = BrokerSettings()
        self.pending: list[tuple[int, int, BrokerSettings]] = []
        """Settings that the broker does not show yet, with the latest time by both clocks."""
        self.late: list[tuple[int, Callable[[], object]]] = []
        """Requests whose response was lost and that are executed later."""
        self.up = self.registered = self.lively = True
        """Whether the process runs, whether it is registered, and whether copies make progress."""
        self.denied = False
        """Whether ALTER and ALTER_CONFIGS are refused."""

    def usable(self, disk: BrokerVolume) -> int:
        """Free bytes."""
        return disk.total - disk.beside - self._taken(disk) - sum(size for _, size in disk.garbage)

    def coming(self, disk: BrokerVolume) -> int:
        """The bytes that copies have yet to write."""
        return sum(one.size - one.copied for one in self.moves().values() if self.place[one.future].disk is disk)

    def moves(self) -> dict[Partition, HeldReplica]:
        """The replicas that are being moved."""
        return {name: one for name, one in self.held.items() if one.future}

    def _taken(self, disk: BrokerVolume) -> int:
        copied = sum(one.copied for one in self.moves().values() if self.place[one.future].disk is disk)
        return copied + sum(one.size for one in self.held.values() if self.place[one.home].disk is disk)

    def shares(self, garbage: bool = False) -> list[float]:
        """The used share of each disk when all moves are complete, with or without the bytes that are deleted."""
        deleted = {id(d): 0 if garbage else sum(size for _, size in d.garbage) for d in self.disks}
        after = {id(d): d.total - self.usable(d) + self.coming(d) - deleted[id(d)] for d in self.disks}
        for one in self.moves().values():
            after[id(self.place[one.home].disk)] -= one.size
        return [after[id(disk)] / disk.total for disk in self.disks]

    def report(self) -> Broker:
        """The response to DescribeLogDirs."""
        known = [d for d in self.dirs if d.online]
        dirs = tuple(
            LogDir(
                d.path,
                d.disk.total if d.online and self.sized else -1,
                self.usable(d.disk) if d.online and self.sized else -1,
                d.online,
                d.online and self.supports and d.path in self.shown.cordons,
            )
            for d in self.dirs
        )
        rows: list[Row] = []
        for (topic, number), one in self.held.items():
            for path, size, future in ((one.home, one.size, False), (one.future, one.copied, True)):
                if path and self.place[path] in known:
                    rows.append((topic, number, self.dirs.index(self.place[path]), size, one.size - size, future))
        return Broker(self.number, dirs, replicas(rows), self.supports)

    # Time

    def advance(self, now_ms: int) -> None:
        """Time has passed."""
        passed_ms, self.now_ms = now_ms - self.now_ms, now_ms
        for disk in self.disks:
            disk.garbage = [(due_ms, size) for due_ms, size in disk.garbage if due_ms > now_ms]
        for due_ms, execute in [one for one in self.late if one[0] <= now_ms]:
            self.late.remove((due_ms, execute))
            execute()
        if self.up:
            self._show()
            if self.lively:
                self._copy(passed_ms)

    def _show(self) -> None:
        while self.pending and (self.now_ms >= self.pending[0][0] or self._clock() >= self.pending[0][1]):
            self.shown = self.pending.pop(0)[2]

    def _copy(self, passed_ms: int) -> None:
        """Copy one replica after the other, in the order of their names, and switch to those that are complete."""
        left = (self.shown.throttle or UNLIMITED) * passed_ms // 1000
        for _, one in sorted(self.moves().items()):
            if self.place[one.future].online and self.place[one.home].online:
                step = min(left, one.size - one.copied)
                one.copied, left = one.copied + step, left - step
                if one.copied == one.size and self._rng.random() < 0.8:
                    self._free(one.home, one.size)
                    one.home, one.future, one.copied, one.mover = one.future, "", 0, ""

    def _free(self, path: str, size: int) -> None:
        self.place[path].disk.garbage.append((self.now_ms + DELETE_MS, size))

    # Requests

    def change(self, settings: BrokerSettings, late_ms: int = 0) -> None:
        """The controller accepts settings, which the broker shows after ``late_ms``."""
        self.settings = settings
        since_ms = max([self.now_ms + late_ms, *(due_ms for due_ms, _, _ in self.pending)])
        self.pending.append((since_ms, self._clock() + since_ms - self.now_ms, settings))
        if self.up:
            self._show()

    def alter(self, name: Partition, path: str, who: str) -> tuple[str, str]:
        """AlterReplicaLogDirs: the result and the detail of `MoveOutcome`."""
        one = self.held.get(name)
        if path not in self.place:
            return "refused", "the broker has no such directory"
        if not self.place[path].online:
            return STORAGE
        if self.supports and path in self.shown.cordons:
            return "refused", "the directory is cordoned"
        if one is None:
            self.preferred[name] = path
            return "recorded", "the broker has no such replica yet"
        if not self.place[one.home].online or (one.future and not self.place[one.future].online):
            return STORAGE
        if path == one.future:
            one.mover = who
            return STARTED
        if path != one.home and not all(d.online for d in self.dirs):
            return STORAGE
        self._drop(one)
        if path != one.home:
            one.future, one.mover = path, who
        return STARTED

    def _drop(self, one: HeldReplica) -> None:
        """The copy is deleted."""
        if one.copied:
            self._free(one.future, one.copied)
        one.future, one.copied, one.mover = "", 0, ""

    # Applications and operators

    def create(self, name: Partition, size: int, chosen: str = "") -> None:
        """A new replica, in the directory that was chosen for it or in the one with the fewest logs."""
        live = [d.path for d in self.dirs if d.online]
        if name in self.held or not live:
            return
        ready = [p for p in live if not (self.supports and p in self.shown.cordons)] or live[:1]
        counts = {p: sum((one.home == p) + (one.future == p) for one in self.held.values()) for p in ready}
        chosen = self.preferred.pop(name, chosen)
        path = chosen if chosen in live else min(ready, key=lambda p: counts[p])
        room = self.room(self.place[path].disk)
        self.held[name] = HeldReplica(path, max(0, min(size, room)))

    def room(self, disk: BrokerVolume) -> int:
        """The bytes that applications write at most, so that the disk does not become full by their fault."""
        return self.usable(disk) - self.coming(disk) - disk.total // 100

    def grow(self) -> None:
        """Applications write to all replicas."""
        for one in self.held.values():
            more = self._rng.choice((0, 0, 1, 5, 20)) * MB
            places = [self.place[path].disk for path in {one.home, one.future or one.home}]
            if self.place[one.home].online and min(map(self.room, places)) > 2 * more:
                one.size += more

    def delete(self, topic: str) -> None:
        """The replicas of a topic are deleted, while they move as well."""
        for name in [name for name in self.held if name[0] == topic]:
            one = self.held.pop(name)
            self._drop(one)
            self._free(one.home, one.size)

    def restart(self, killed: bool) -> None:
        """The process starts again. A copy that had just begun when it was killed has no topic id and is forgotten."""
        self.up, self.preferred = True, {}
        for one in self.moves().values():
            if killed and not one.copied:
                self._drop(one)
        self.shown, self.pending = self.settings, []  # it reads the metadata before it responds

    def fit(self, name: Partition, path: str) -> bool:
        """Whether another client may move the replica: it leaves space."""
        return self.room(self.place[path].disk) > 2 * self.held[name].size

    def skew(self, garbage: bool = False) -> float:
        """The difference between the fullest and the emptiest disk. ``garbage``: the largest one for an observer who
        does not know which of the used bytes are being deleted."""
        return max(self.shares(garbage)) - min(self.shares())

    def share_settings(self, cordoned: frozenset[str], throttles: frozenset[int]) -> None:
        """Trueup intends what another client set and the broker does not show: both have set it."""

        def both(one: BrokerSettings) -> BrokerSettings:
            hidden = {path for path in cordoned if path in one.cordons and path not in self.shown.cordons}
            same = one.throttle in throttles and one.throttle != self.shown.throttle
            cordons = {p: EITHER if p in hidden and who == OTHER else who for p, who in one.cordons.items()}
            return one._replace(cordons=cordons, setter=EITHER if same and one.setter == OTHER else one.setter)

        if self.pending:
            self.settings = both(self.settings)
            self.pending = [(due_ms, clock_ms, both(one)) for due_ms, clock_ms, one in self.pending]
