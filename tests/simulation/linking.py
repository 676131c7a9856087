"""The links of one process of Trueup over the simulated log clusters: the real manager, links, monitors, alignment,
group sync, resets, refills and pump."""

import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from random import Random
from typing import Any

from tests.simulation.faults import Faults
from tests.simulation.journal import ProcessJournal
from tests.simulation.link_admins import LogAdmin
from tests.simulation.link_checkers import LinkCheckers
from tests.simulation.link_ports import WorkerKilled, WorkerPorts
from tests.simulation.link_workers import Executors, SimulatedTime, TaskError
from tests.simulation.logs import LogClusters
from trueup.connectors.replication.pump import Pump
from trueup.state.common.errors import TrueupError
from trueup.streams.catalog import all_metrics
from trueup.streams.config.live import Live
from trueup.streams.journal.topic import CONFIG
from trueup.streams.replication.links.ends import LinkEnds
from trueup.streams.replication.links.link import Link
from trueup.streams.replication.links.monitor import LinkMonitor
from trueup.streams.replication.manager import LinkManager
from trueup.streams.replication.metrics import LinkMetrics
from trueup.streams.replication.topics import OFFSETS
from trueup.streams.runtime.stream import AWAITING

METRICS = all_metrics("simulated").of(LinkMetrics)
CLUSTERS = {
    "kafka": {"east": {"bootstrap": "127.0.0.1:9092", "bit": 0}, "west": {"bootstrap": "127.0.0.1:9093", "bit": 1}},
    "rocketmq": {"south": {"namesrv": "127.0.0.1:9876", "bit": 2}},
}
NO_TOPIC = "the source shows the link's user no topic of the link"
TOPOLOGIES = (
    "east-west",
    "east-west",
    "east-west west-east",
    "east-west west-east",
    "east-west west-east",
    "east-west west-east west-south",
    "east-west west-south south-east",
    "east-west west-east west-south south-west",
    "west-south",
)


@dataclass
class LinkParts:
    """The classes under test; tests of the simulation replace them by defective ones."""

    manager: type[LinkManager] = LinkManager
    connector: type[Pump] = Pump
    trusting: bool = False
    """Whether readers believe the headers of every record."""


def declared(rng: Random) -> dict[str, Any]:
    """Random settings of clusters and links."""
    topics = rng.choice((["orders", "bills"], ["orders"], ["/orders|bills|other/"]))
    common = {
        "topics": topics,
        "copy": "records",
        "mode": rng.choice(("enforce", "enforce", "enforce", "enforce", "approve", "observe")),
        "start": rng.choice(("earliest", "earliest", "latest")),
        "lease_s": rng.choice((1.0, 2.0)),
        "tasks": rng.choice((1, 1, 2)),
        "groups": rng.choice(([], ["/.*/"])),
        "paused": rng.random() < 0.1,
    }
    links = {}
    for name in rng.choice(TOPOLOGIES).split():
        source, _, target = name.partition("-")
        links[name] = {**common, "source": source, "target": target}
        if rng.random() < 0.2:
            links[name] |= {"failures": "dead-letter", "dead_letter_topic": "letters"}
    return {**CLUSTERS, "links": links}


class OrderedJournal(ProcessJournal):
    """The journal of a process. The links write several copies together in any order: here it is always the same."""

    def put(self, records: Iterable[tuple[str, bytes, Any]], within_s: float = 0.0) -> None:
        super().put(sorted(records, key=_base), within_s)


def _base(record: tuple[str, bytes, Any]) -> bytes:
    return record[1].rpartition(b"/")[0] if record[0] == OFFSETS else record[1]


class Links:
    """One process from its start to its crash. ``clock``: the time of Trueup, ms since the epoch; ``silent_ms``: when
    another process may have granted leases for the last time."""

    def __init__(
        self,
        live: Live,
        journal: ProcessJournal,
        clusters: LogClusters,
        faults: Faults,
        clock: Callable[[], int],
        checkers: LinkCheckers,
        parts: LinkParts | None = None,
        silent_ms: int = 0,
    ) -> None:
        parts = parts or LinkParts()
        self.live, self.clusters, self.faults, self.checkers = live, clusters, faults, checkers
        self._log = journal.log
        self._rng = faults.rng
        self.clock = lambda: clock() + clusters.ahead_ms
        self.ports = WorkerPorts(
            clusters, faults, checkers, journal.epoch, self._rng.choice((0.0, 0.05, 0.2)), trusting=parts.trusting
        )
        self.executors = Executors(self.ports, parts.connector)
        self._time = SimulatedTime(self.ports, self.clock)
        self.manager = parts.manager(live, journal, METRICS, self.clock, self._ends, silent_ms=silent_ms)
        self._new = set[str]()

    def _ends(self, link: Link) -> LinkEnds:
        return LinkEnds(link, lambda endpoint: LogAdmin(self.ports, endpoint, link.name))

    def load(self) -> None:
        """Load the positions of earlier processes, and start the queries of the links."""
        with self._running():
            self.manager.load()
        self._new = set(self.manager.by_name)
        self.checkers.started(self)

    def _running(self) -> Any:
        return self._time.running(self.executors.connector_of(self.ports))

    def step(self) -> None:
        """The loops and a round of leases of some links, in any order; then the API is compared with the world."""
        work: list[Callable[[], None]] = []
        for name, watch in self.manager.watches.items():
            work += [part for part in self._loops(watch) if not self.faults.on or self._rng.random() < 0.7]
            work.append(lambda name=name: self._round(self.manager.by_name[name]))  # type: ignore[misc]
        self._rng.shuffle(work)
        with self._running():
            for part in work:
                self._tried(part)
            if not self.faults.on or self._rng.random() < 0.4:
                self._answer()

    def _loops(self, watch: LinkMonitor) -> list[Callable[[], None]]:
        beat = [watch.heart] if not self.faults.on or self._rng.random() < 0.6 else []
        return [watch.look, watch.align, watch.committed, lambda: self._move(watch), watch.move_back, *beat]

    def _move(self, watch: LinkMonitor) -> None:
        watch.link.grown.set()  # `move` waits for it
        watch.move()

    def _tried(self, part: Callable[[], None]) -> None:
        """Run a part as a supervisor does, which runs it again after an error."""
        try:
            part()
        except TrueupError as error:
            self.checkers.note(f"a loop failed: {error}")
        self.faults.seam()

    def _round(self, link: Link) -> None:
        """One micro-batch of the query of a link. After a failure the query is started again."""
        try:
            if link.name in self._new:
                link.begin()
                self._new.discard(link.name)
            self.executors.linger(link.name)
            if orders := link.orders():
                self.checkers.leased(link, orders)
                answers = self.executors.lend(orders)
                self.checkers.answered(link, orders, answers)
                self.faults.seam()
                link.take(answers)
        except (TrueupError, TaskError, WorkerKilled) as error:
            self.checkers.note(f"the query of {link.name} failed: {error!r}")
            self._new.add(link.name)

    def _answer(self) -> None:
        """Compare the answers of the API with the world, right after both clusters were observed."""
        for watch in self.manager.watches.values():
            self._tried(watch.look)
        for row in self.rows():
            self.checkers.answer(self, row)

    def rows(self) -> list[dict[str, Any]]:
        """The links as the API shows them."""
        return [asdict(row) for row in self.manager.rows()]

    def die(self) -> None:
        """The process crashed."""
        with self._running():
            self.executors.die()

    # Operators

    def approve(self) -> None:
        """An operator approves everything that waits."""
        self.manager.approve([row for row in self.manager.plan() if row.stage == AWAITING])

    def recommended(self) -> list[str]:
        """The commands that the plan recommends."""
        return [str(row.evidence["command"]) for row in self.manager.plan() if row.evidence.get("command")]

    def execute(self, command: str) -> None:
        """Execute a command line as the command line client does. Raises `TrueupError`."""
        words = shlex.split(command)
        self.checkers.note(f"operator: {command}")
        with self._running():
            if words[1] == "config":
                name, value = words[3], words[4] if len(words) > 4 else ""
                self.set(name, [one for one in value.split(",") if one])
            elif words[2] == "refill":
                self.checkers.refills.add(words[3])
                self._changing(lambda: self.manager.refill(words[3], True))
            else:
                self._reset(words[3], words)

    def _reset(self, name: str, words: list[str]) -> None:
        to, link = words[words.index("--to") + 1], self.manager.by_name[name]
        given = [pair for pair in pairwise(words) if pair[0] in ("--topic", "--partition")]
        parts = [value for option, value in given if option == "--partition"]
        topics = {value for option, value in given if option == "--topic"}
        parts += [str(source) for source in sorted(link.copies) if source.topic in topics]
        self._changing(lambda: self.manager.reset(name, parts or None, to, True))

    def _changing(self, act: Callable[[], object]) -> None:
        """Execute a command that sets positions, also of the opposite link."""
        before = {name: self.checkers.resetting(link) for name, link in self.manager.by_name.items()}
        try:
            act()
        finally:
            for name, link in self.manager.by_name.items():
                self.checkers.reset(link, before[name])

    def set(self, name: str, value: Any) -> None:
        """Set a live key, or restore its value with None."""
        self.checkers.config(name, value)
        record = {"name": name, "value": json.dumps(value), "at_ms": self.clock(), "by": "operator"}
        self._log.append(CONFIG, name.encode(), None if value is None else record)
        self.live.load()


def settled(rows: Iterable[Mapping[str, Any]]) -> bool:
    """Whether every link is up and has no lag, or has no topic."""
    return all((row["lag_records"] == 0 and row["state"] == "up") or row["reason"] == NO_TOPIC for row in rows)
