"""One run: a world generated from a seed, a period with faults, then one without; checked after every step.

All systems and all streams of Trueup are in one world, with one or two instances. Each seed chooses some of the parts:
what only happens with few of them is found as well.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tests.configuration import parse
from tests.simulation.checkers import Violation
from tests.simulation.faults import Crash, WallClock
from tests.simulation.instances import TAKEOVER_S, TICK_MS, Leader, Process
from tests.simulation.journal import JournalLog
from tests.simulation.link_part import LinkPart
from tests.simulation.linking import LinkParts
from tests.simulation.logdirs_part import LogDirsPart, LogDirsParts
from tests.simulation.part import Part, Stream
from tests.simulation.placing import PlacementParts
from tests.simulation.policy_parts import POLICIES
from tests.simulation.pulsar_part import PulsarPart, PulsarParts
from trueup.state.placement.settings import PLACEMENT
from trueup.state.settings.section import Section
from trueup.streams.config.live import Live

QUIET_STEPS = 500
LONGEST_STEP_MS = 1_800_000
SUBSETS = (
    ("placement",),
    ("placement", "pulsar"),
    ("links",),
    ("placement", "links"),
    ("logdirs",),
    ("placement", "pulsar", "links", "logdirs"),
)
SECTIONS: Mapping[str, Section[Any]] = {"placement": PLACEMENT}


@dataclass
class Parts:
    """The classes under test; tests of the simulation replace them by defective ones."""

    placement: PlacementParts = field(default_factory=PlacementParts)
    pulsar: PulsarParts = field(default_factory=PulsarParts)
    links: LinkParts = field(default_factory=LinkParts)
    logdirs: LogDirsParts = field(default_factory=LogDirsParts)
    process: type[Process] = Process
    live: type[Live] = Live


@dataclass(frozen=True)
class Outcome:
    """Statistics of a run, to verify that it was not empty."""

    seed: int
    steps: int
    crashes: int
    takeovers: int
    marks: int = 0
    repaired: int = 0
    watched: int = 0
    """The number of moves that were compared with isolation groups."""
    deleted: int = 0
    confirmed: int = 0
    removed: int = 0
    """The number of objects that Trueup deleted."""
    policies: int = 0
    copied: int = 0
    recopied: int = 0
    """The number of ledgers whose metadata a copy changed."""
    moved: int = 0
    """The number of replicas that Trueup ordered to move to another directory."""


class Application:
    """The streams of one process that leads, from its start to its crash."""

    def __init__(self, leader: Leader, streams: Mapping[str, Stream], halting: Collection[str]) -> None:
        self._leader, self.streams, self._halting = leader, streams, halting

    def step(self) -> None:
        """One iteration: settings, then each stream. Raises `Crash`."""
        faults = self._leader.faults
        self._leader.live.load()
        for name, stream in self.streams.items():
            with nullcontext() if name in self._halting else faults.unstopped():
                stream.step()


class Simulation:
    """The state of one seed. ``only``: the names of the parts; chosen by the seed if it is empty. ``policy``: the
    placement policy of clients and Trueup."""

    def __init__(self, seed: int, parts: Parts | None = None, only: Collection[str] = (), policy: str = "rack") -> None:
        self.seed, self.rng, self.kinds = seed, Random(seed), parts or Parts()
        rng, self.policy = self.rng, policy
        world, self._placement = POLICIES[policy]
        self.world = world(rng, rng.choice((1, 2, 2, 2, 2, 3)), rng.random() < 0.1)
        self.log, self.time = JournalLog(), WallClock()
        elects = rng.random() < 0.5
        self.processes = [
            self.kinds.process(at, self.world, self.log, rng, self.time, self._made, self._halted, elects)
            for at in range(1 + elects)
        ]
        self.parts: dict[str, Part] = {}
        for part in self._chosen(only):
            self.parts[part.name] = part
        self.settings = self._settings()
        self.steps = self.deaths = self.takeovers = 0

    def _chosen(self, only: Collection[str]) -> Iterator[Part]:
        """Ledgers have a placement, so Pulsar is never without it."""
        names = only or self.rng.choice(SUBSETS)
        if "placement" in names:
            yield self._placement(self, self.kinds.placement)
        if "pulsar" in names:
            yield PulsarPart(self, self.kinds.pulsar)
        if "links" in names:
            yield LinkPart(self, self.kinds.links)
        if "logdirs" in names:
            yield LogDirsPart(self, self.kinds.logdirs)

    def _settings(self) -> Any:
        raw, made = dict[str, Any](), dict[Section[Any], Any]()
        for part in self.parts.values():
            for name, value in part.sections().items():
                if name in SECTIONS:
                    made[SECTIONS[name]] = value
                else:
                    raw[name] = {**raw.get(name, {}), **value}
        settings = parse({"cluster": {"zookeeper": "none:0"}, **raw})
        return replace(settings, sections={**settings.sections, **made})

    def run(self) -> Outcome:
        """Raises `Violation`."""
        for _ in range(self.rng.randint(15, 40) * max(part.rounds for part in self.parts.values())):
            for part in self.parts.values():
                part.happen()
            self.time.stir(self.rng, self.world.now_ms)
            for process in self.processes:
                process.faults.stir()
            self.advance(self.rng.choice((50, 500, 2_000, 8_000)))
        self.end_faults()
        self._settle()
        counted: dict[str, int] = {}
        for part in self.parts.values():
            counted |= part.counted()
        return Outcome(self.seed, self.steps, self.deaths, self.takeovers, **counted)

    # Processes

    @property
    def leader(self) -> Process | None:
        """The process whose streams run."""
        return next((process for process in self.processes if process.leads and not process.stopped), None)

    def stream(self, name: str) -> Any:
        """The stream of a part in the leader; None if there is no leader or no such part."""
        return self.leader.streams.get(name) if self.leader else None

    def _made(self, process: Process, leader: Leader) -> Application:
        """The streams of a process that begins to lead."""
        for other in self.processes:
            other.depose()
        if process.elects:
            self.takeovers += 1
            for part in self.parts.values():
                part.taken_over()
        live = leader.live = self.kinds.live(self.settings, leader.journal, leader.clock)
        live.load()
        streams: dict[str, Stream] = {}
        for name, part in self.parts.items():
            streams[name] = part.begin(process, leader, streams.__getitem__)
        return Application(leader, streams, [name for name, part in self.parts.items() if part.halts])

    def _halted(self, process: Process) -> None:
        """A process is stopped at this place, and the others go on. Then its own supervision may be late."""
        if any(other.stopped for other in self.processes):
            return
        process.stopped = True
        self.world.note(f"process {process.number} is stopped")
        until_ms = self.world.now_ms + int(1000 * TAKEOVER_S * self.rng.choice((0.3, 1.2, 3.0)))
        while self.world.now_ms < until_ms:
            self.advance(TICK_MS)
        process.stopped = False
        self.world.note(f"process {process.number} goes on")
        process.faults.fuse = self.rng.randint(0, 3)

    def lose_checkpoint(self) -> None:
        """All processes crash, and Spark's checkpoints are lost."""
        for process in self.processes:
            self._crashed(process)
        self.world.note("the checkpoints are lost")
        for part in self.parts.values():
            part.compacted()

    @contextmanager
    def crashes(self, process: Process) -> Iterator[None]:
        """Ends a process at a planned crash."""
        try:
            yield
        except Crash:
            self._crashed(process)

    def _crashed(self, process: Process) -> None:
        """The process ends and is started again, a while later if there is another one."""
        self.deaths += process.leads
        process.crash()
        process.down_ms = self.world.now_ms + (self.rng.choice((0, 2_000, 100_000)) if process.elects else 0)
        self.world.note(f"process {process.number} of Trueup crashed")

    # Time

    def advance(self, ms: int) -> None:
        """Some time passes, and each process makes a step."""
        self.steps += 1
        until_ms = self.world.now_ms + ms + sum(part.ahead_ms for part in self.parts.values())
        calm = any(process.calm for process in self.processes)
        while self.world.now_ms < until_ms:
            self.world.advance(until_ms if calm else min(until_ms, self.world.now_ms + TICK_MS))
            for process in self.processes:
                with self.crashes(process):
                    process.tick()
        for part in self.parts.values():
            part.advanced()
        for process in self.processes:
            if not process.stopped:
                process.queue()
            with self.crashes(process):
                process.step()

    # The end

    def end_faults(self) -> None:
        """One process goes on, without faults."""
        self.processes = [self.leader or self.processes[0]]
        for process in self.processes:
            process.faults.end(self.world.now_ms)
            process.calm, process.down_ms = True, 0
        self.world.note("the faults are over")
        for part in self.parts.values():
            part.end_faults()

    def _settle(self) -> None:
        """Within a bounded time no work is left, and the answers show the true state."""
        wait_ms, quiet = 500, 0
        for _ in range(QUIET_STEPS):
            self.advance(wait_ms)
            for part in self.parts.values():
                part.calm()
            found = [part.quiet() for part in self.parts.values()]
            quiet = quiet + 1 if all(found) else 0
            if quiet == 3:
                break
            links = self.parts.get("links")
            if links is None or links.quiet():
                wait_ms = min(max(int(wait_ms * 1.2), 15_000 * quiet), LONGEST_STEP_MS)
        else:
            raise Violation(f"not quiet: {'; '.join(part.left() for part in self.parts.values())}")
        for part in self.parts.values():
            part.ended()


def simulate(seed: int, parts: Parts | None = None, only: Collection[str] = (), policy: str = "rack") -> Outcome:
    """Run one seed. Raises `Violation` with the last events as its notes."""
    simulation = Simulation(seed, parts, only, policy)
    try:
        return simulation.run()
    except Exception as error:
        error.add_note(trace(simulation))
        raise


def trace(simulation: Simulation, lines: int = 40) -> str:
    """How to repeat a run, and its last events."""
    policy = "" if simulation.policy == "rack" else f" --policy {simulation.policy}"
    again = f"python -m tests.simulation --seed {simulation.seed}{policy} --verbose"
    return "\n".join([f"seed {simulation.seed}; repeat with: {again}", *simulation.world.log[-lines:]])
