"""Log directories in the world: brokers, their clients and operators, and what Trueup does about them."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.simulation.broker_dirs import EITHER, LATE_MS, MB, OTHER, TRUEUP, BrokerSettings, DirectoryBroker, Partition
from tests.simulation.checkers import Violation
from tests.simulation.instances import Current, Leader, Process
from tests.simulation.logdirs_checkers import BrokerSighting, LogDirCheckers, sighting
from tests.simulation.part import Part, Surroundings
from trueup.connectors.kafka.logdirs.client import DescribedBroker, MoveOutcome, ReplicaLocation
from trueup.state.common.errors import Retry, Stop, TrueupError, Unknown
from trueup.state.logdirs.lifecycle import UNDER_WAY, MoveStage
from trueup.state.logdirs.settings import LogDirsSettings
from trueup.streams.catalog import all_metrics
from trueup.streams.logdirs.manager import LogDirsManager
from trueup.streams.logdirs.metrics import LogDirMetrics
from trueup.streams.logdirs.reconciler import LogDirsReconciler
from trueup.streams.runtime.stream import AWAITING

METRICS = all_metrics("simulated").of(LogDirMetrics)
CLUSTER = "north"
THROTTLES = (0, 20 * MB, 50 * MB)
EXPECTED = UNDER_WAY | {MoveStage.FORGOTTEN}
"""The stages of a move whose order may still arrive."""
REST_MS = 2_400_000
"""The time until all work must be done: a refused move rests for 5 minutes, and a moved replica's source counts as
deleted after 15."""


@dataclass
class LogDirsParts:
    """The classes under test; tests of the simulation replace them by defective ones."""

    manager: type[LogDirsManager] = LogDirsManager


class DirectoryClient:
    """The brokers as one process of Trueup reaches them. See `streams.logdirs.reconciler.Client`."""

    def __init__(self, part: "LogDirsPart", leader: Leader, checkers: Any) -> None:
        self._part, self._brokers, self._checkers = part, part.brokers, checkers
        self._faults, self._live = leader.faults, leader.live
        self._seen: dict[int, BrokerSighting] = {}

    @property
    def _policy(self) -> LogDirsSettings:
        found: LogDirsSettings = self._live.now.table(LogDirsSettings)[CLUSTER]
        return found

    def brokers(self) -> dict[int, str]:
        if self._checkers.over:
            raise Violation("a process that was deposed begins a pass")
        self._faults.seam()
        if self._part.away:
            raise Retry("the brokers", "no response", "try again")
        return {number: "" for number, broker in self._brokers.items() if broker.registered}

    def look(self, brokers: Iterable[int] | None = None) -> list[DescribedBroker]:
        self._seen = {}
        return [self._look(self._brokers[number]) for number in (self._brokers if brokers is None else brokers)]

    def _look(self, broker: DirectoryBroker) -> DescribedBroker:
        self._faults.seam()
        if not broker.up or self._faults.happens(0.03):
            return DescribedBroker(broker.number, None, "it is down")
        self._seen[broker.number] = sighting(broker)
        return DescribedBroker(broker.number, self._seen[broker.number].broker)

    def throttled(self, brokers: Iterable[int]) -> dict[int, int]:
        found = {}
        for number in brokers:
            broker = self._reached(number, acts=False)
            found[number] = broker.shown.throttle
            self._know(number, broker.shown)
        return {number: limit for number, limit in found.items() if limit}

    def throttle(self, broker: int, bytes_per_s: int | None) -> None:
        model, limit = self._reached(broker), bytes_per_s or 0
        self._checkers.throttle(self._seen[broker], limit, self._policy)
        who = self._part.setter_of(broker, limit) if self._checkers.over else TRUEUP
        self._set(model, model.settings._replace(throttle=limit, setter=who * bool(limit)))
        self._know(broker, model.settings)

    def _know(self, number: int, settings: BrokerSettings) -> None:
        self._seen[number] = self._seen[number]._replace(throttle=(settings.throttle, settings.setter))

    def cordon(self, broker: int, paths: list[str]) -> None:
        model, wanted = self._reached(broker), frozenset(paths)
        if not model.supports:
            raise Stop("the broker to support cordons", "an older broker", "upgrade it")
        seen = self._seen[broker]
        self._checkers.cordon(seen, wanted, self._policy)
        late = self._checkers.over
        known = seen.shown.cordons
        cordons = {p: known.get(p, self._part.cordoner_of(broker, p) if late else TRUEUP) for p in sorted(wanted)}
        self._set(model, model.settings._replace(cordons=cordons))

    def cordoned(self, broker: int) -> frozenset[str]:
        return frozenset(self._reached(broker, acts=False).shown.cordons)

    def _reached(self, number: int, acts: bool = True) -> DirectoryBroker:
        """The broker, if it responds. Raises `TrueupError`."""
        self._faults.seam(acts)
        broker = self._brokers[number]
        if not broker.up or self._faults.happens(0.03):
            raise Retry("the broker", "no response", "try again")
        if acts and broker.denied:
            raise Stop("ALTER_CONFIGS", "no permission", "grant it")
        return broker

    def _set(self, broker: DirectoryBroker, settings: BrokerSettings) -> None:
        broker.change(settings, self._part.late_ms())
        self._part.world.note(f"broker {broker.number}: Trueup sets {settings}")
        self._faults.seam()
        if self._faults.happens(self._faults.unknown / 2):
            raise Unknown("the setting", "no response", "observe again")

    def place(self, places: list[ReplicaLocation]) -> list[MoveOutcome]:
        try:
            model = self._reached(places[0].broker)
        except TrueupError as error:
            result = "failed" if isinstance(error, Stop) else "unknown"
            return [MoveOutcome(place, result, str(error)) for place in places]
        self._checkers.order(self._seen[model.number], places, self._policy)
        self._part.world.note(
            f"broker {model.number}: Trueup orders {[(p.topic, p.partition, p.path) for p in places]}"
        )
        if self._faults.happens(self._faults.late / 2):
            due_ms = self._part.world.now_ms + self._part.rng.choice((1_000, 10_000))
            model.late.append((due_ms, lambda: [self._execute(model, place, True) for place in places]))
            return [MoveOutcome(place, "unknown", "no response") for place in places]
        results = [MoveOutcome(place, *self._execute(model, place, self._checkers.over)) for place in places]
        self._faults.seam()
        if self._faults.happens(self._faults.unknown / 2):
            return [MoveOutcome(place, "unknown", "no response") for place in places]
        return results

    def _execute(self, broker: DirectoryBroker, place: ReplicaLocation, late: bool) -> tuple[str, str]:
        """A request that is executed late is Trueup's only if Trueup still counts it as its own."""
        name, who = (place.topic, place.partition), TRUEUP
        if late:
            who = self._part.client_of(broker.number, name, place.path)
        return broker.alter(name, place.path, who)

    def create_topic(self, name: str, assignments: Mapping[int, list[int]], configs: Mapping[str, str]) -> None:
        raise NotImplementedError("no topic is created through Trueup")

    def close(self) -> None:
        pass


class LogDirPasses:
    """The log directories of one leader."""

    def __init__(self, manager: LogDirsManager, checkers: Current, part: "LogDirsPart") -> None:
        self.manager, self._checkers, self._part = manager, checkers, part

    @property
    def dirs(self) -> LogDirsReconciler:
        """The reconciler of the cluster."""
        return self.manager.by_name[CLUSTER]

    def depose(self) -> None:
        """Another process leads from now on."""
        self._checkers.over = True

    def queue(self) -> None:
        """Every pass queries the brokers."""

    def step(self) -> None:
        """One pass. Raises `Crash`."""
        try:
            self.manager._pass(self.dirs)
        except TrueupError as error:
            self._part.world.note(f"a pass failed: {error}")

    def close(self) -> None:
        """The process ended."""


class LogDirsPart(Part):
    """Brokers with log directories, their clients, and the balancer of Trueup."""

    name = "logdirs"
    rounds = 2

    def __init__(self, around: Surroundings, parts: LogDirsParts) -> None:
        super().__init__(around)
        self.parts, rng = parts, self.rng
        clock = around.processes[0].clock
        self.brokers = {number: DirectoryBroker(number, rng, clock) for number in range(1, rng.choice((2, 2, 3)))}
        self.checkers = LogDirCheckers(self.world, self.log, self.brokers, CLUSTER)
        self.away, self._topics, self._until_ms, self._lag = False, 0, 0, rng.choice((0.0, 0.1, 0.4))
        for broker in self.brokers.values():
            broker.now_ms = self.world.now_ms
            for _ in range(rng.randint(3, 8)):
                self._create(broker)

    def sections(self) -> Mapping[str, Any]:
        rng = self.rng
        chosen = {
            "mode": rng.choice(("enforce", "enforce", "enforce", "approve", "observe")),
            "strategy": rng.choice(("size", "size", "partition")),
            "target_skew": rng.choice((0.05, 0.1, 0.2)),
            "headroom_share": rng.choice((0.02, 0.05, 0.1)),
            "headroom_bytes": rng.choice((0, 100 * MB)),
            "least_bytes": rng.choice((1, 20)) * MB,
            "throttle_bytes_per_s": rng.choice(THROTTLES),
            "at_once": rng.choice((1, 1, 2, 4)),
            "open_dirs": rng.choice((1, 1, 2)),
            "band": rng.choice((0.0, 0.1)),
            "exclude": rng.choice(([], [], ["t1"])),
            "exclude_dirs": rng.choice(([], [], [], ["/d1"])),
        }
        return {"kafka": {CLUSTER: {"bootstrap": "127.0.0.1:9094", "bit": 3}}, "logdirs": {CLUSTER: chosen}}

    @property
    def passes(self) -> LogDirPasses | None:
        """The stream of the present leader."""
        found: LogDirPasses | None = self.around.stream(self.name)
        return found

    def begin(self, process: Process, leader: Leader, _made: Callable[[str], Any]) -> LogDirPasses:
        current: Any = Current(self.checkers)
        manager = self.parts.manager(
            leader.live,
            leader.journal,  # type: ignore[arg-type]
            METRICS,
            leader.clock,
            lambda _: DirectoryClient(self, leader, current),
        )
        manager.load()
        return LogDirPasses(manager, current, self)

    def late_ms(self) -> int:
        """The time until a broker shows a setting."""
        return self.rng.randint(0, LATE_MS) if self.rng.random() < self._lag else 0

    def client_of(self, broker: int, name: Partition, path: str) -> str:
        """The client that a move belongs to if another client, or an earlier process, orders what Trueup may have."""
        moves = self.checkers.believed(broker).moves
        mine = any((m.topic, m.partition, m.target) == (*name, path) and m.stage in EXPECTED for m in moves)
        return EITHER if mine else OTHER

    def setter_of(self, broker: int, limit: int) -> str:
        """The client that a throttle belongs to, likewise."""
        return EITHER if limit in self.checkers.believed(broker).throttles else OTHER

    def cordoner_of(self, broker: int, path: str) -> str:
        """The client that a cordon belongs to, likewise."""
        return EITHER if path in self.checkers.believed(broker).cordoned else OTHER

    def advanced(self) -> None:
        self.checkers.share()
        for broker in self.brokers.values():
            broker.advance(self.world.now_ms)
        self.checkers.advanced()

    # Events

    def happen(self) -> None:
        for _ in range(self.rng.randint(0, 3)):
            broker = self.rng.choice(list(self.brokers.values()))
            self.rng.choice(
                (self._write, self._write, self._write, self._move, self._set, self._fail, self._operate, self._operate)
            )(broker)

    def _create(self, broker: DirectoryBroker) -> None:
        self._topics += self.rng.random() < 0.5
        name = (f"t{self._topics}", self.rng.randint(0, 3))
        small, large = self.rng.choice(((1, 40), (50, 300)))
        chosen = broker.dirs[0].path if self.rng.random() < 0.4 else ""
        broker.create(name, self.rng.randint(small, large) * MB, chosen)

    def _write(self, broker: DirectoryBroker) -> None:
        what = self.rng.random()
        if what < 0.4 and len(broker.held) < 12 and broker.up:
            self._create(broker)
        elif what < 0.5 and broker.held:
            topic = self.rng.choice(sorted(broker.held))[0]
            broker.delete(topic)
            self.world.note(f"broker {broker.number}: {topic} is deleted")
        elif broker.up:
            broker.grow()

    def _move(self, broker: DirectoryBroker) -> None:
        """Another client moves a replica, or cancels a move."""
        if not broker.held or not broker.up or self.rng.random() < 0.5:
            return
        name = self.rng.choice(sorted(broker.held))
        path = self.rng.choice(broker.dirs).path
        if broker.fit(name, path) or path == broker.held[name].home:
            found = broker.alter(name, path, self.client_of(broker.number, name, path))
            self.world.note(f"broker {broker.number}: another client moves {name} to {path}: {found}")

    def _set(self, broker: DirectoryBroker) -> None:
        """Another client changes cordons or the throttle. What equals a change of Trueup counts as Trueup's."""
        rng, number, settings = self.rng, broker.number, broker.settings
        if rng.random() < 0.5:
            chosen = sorted(d.path for d in broker.dirs if rng.random() < 0.3)
            if rng.random() < 0.5:
                chosen = sorted({*chosen, *settings.cordons})
            known = settings.cordons
            settings = settings._replace(cordons={p: known.get(p, self.cordoner_of(number, p)) for p in chosen})
        else:
            limit = rng.choice((0, 0, 5 * MB, 33 * MB, 20 * MB))
            settings = settings._replace(throttle=limit, setter=self.setter_of(number, limit) * bool(limit))
        broker.change(settings, self.late_ms())
        self.world.note(f"broker {broker.number}: another client sets {settings}")

    def _fail(self, broker: DirectoryBroker) -> None:
        rng, what = self.rng, self.rng.random()
        if what < 0.2:
            self.away = not self.away
        elif what < 0.3:
            broker.denied = not broker.denied
        elif what < 0.4:
            broker.lively = not broker.lively
        elif what < 0.6:
            directory = rng.choice(broker.dirs)
            directory.online = not directory.online
            self.world.note(f"broker {broker.number}: {directory.path} is {'on' if directory.online else 'off'}line")
        elif broker.up and what < 0.8:
            broker.up, broker.registered = False, rng.random() < 0.5
            self.world.note(f"broker {broker.number} is down")
        else:
            self._restart(broker)

    def _restart(self, broker: DirectoryBroker) -> None:
        broker.restart(self.rng.random() < 0.5)
        broker.registered = True
        self.world.note(f"broker {broker.number} starts")

    def _operate(self, _broker: DirectoryBroker) -> None:
        rng = self.rng
        self._configure(
            *rng.choice(
                (
                    ("mode", rng.choice(("enforce", "enforce", "approve", "observe"))),
                    ("paused", rng.random() < 0.3),
                    ("strategy", rng.choice(("size", "size", "partition"))),
                    ("throttle_bytes_per_s", rng.choice(THROTTLES)),
                    ("target_skew", rng.choice((0.05, 0.2))),
                    ("at_once", rng.choice((1, 3))),
                )
            )
        )
        self._approve(0.5)

    def _configure(self, key: str, value: object) -> None:
        name = f"logdirs.{CLUSTER}.{key}"
        record = {"name": name, "value": json.dumps(value), "at_ms": self.world.now_ms, "by": "operator"}
        self.log.append("config", name.encode(), record)
        self.world.note(f"{name} set to {value}")

    def _approve(self, share: float) -> None:
        """An operator approves some of the actions that wait."""
        passes = self.passes
        if passes is not None:
            rows = [row for row in passes.manager.plan() if row.stage == AWAITING and self.rng.random() < share]
            self.checkers.approve(rows)
            passes.manager.approve(rows)

    # The end

    def end_faults(self) -> None:
        rng = self.rng
        self.away, self._lag = False, 0.0
        for broker in self.brokers.values():
            broker.denied, broker.lively = False, True
            if not broker.up and rng.random() < 0.9:
                self._restart(broker)
            for directory in broker.dirs:
                directory.online = directory.online or rng.random() < 0.8
        self._configure("mode", rng.choice(("enforce", "enforce", "approve", "observe")))
        self._configure("paused", rng.random() < 0.1)
        self._until_ms = self.world.now_ms + REST_MS

    def calm(self) -> None:
        self._approve(1.0)

    def quiet(self) -> bool:
        """No work is left: no copies, unshown settings, moves of Trueup or moves that may start."""
        passes = self.passes
        if passes is None or self.world.now_ms < self._until_ms or passes.dirs.problem:
            return False
        return not any(self._busy(passes.dirs, broker) for broker in self.brokers.values() if broker.up)

    def _busy(self, dirs: LogDirsReconciler, broker: DirectoryBroker) -> bool:
        decision = dirs.known[broker.number].decision if broker.number in dirs.known else None
        if decision is None or broker.pending or broker.late:
            return True
        if not all(d.online for d in broker.dirs):
            return decision.cordon is not None
        return bool(broker.moves() or decision.start or decision.cancel or decision.cordon is not None)

    def ended(self) -> None:
        assert self.passes is not None, "it was quiet"
        self.checkers.settled(self.passes.dirs)

    def counted(self) -> Mapping[str, int]:
        return {"moved": self.checkers.moved}

    def left(self) -> str:
        dirs = self.passes.dirs if self.passes else None
        return f"{[(n, b.moves()) for n, b in self.brokers.items()]}, {dirs.problem if dirs else 'no leader'}"
