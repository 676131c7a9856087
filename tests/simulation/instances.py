"""The processes of Trueup: each elects a leader with the others, leads, is stopped for a while, or crashes."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.simulation.checkers import Violation
from tests.simulation.faults import Crash, Faults, WallClock
from tests.simulation.journal import JournalLog, ProcessJournal
from tests.simulation.model import World
from trueup.state.common.errors import Retry, Stop
from trueup.state.instance.leadership import LeadershipTerms
from trueup.streams.instance.election import Election

TAKEOVER_S = 60.0
TICK_MS = 5_000
"""The interval of signs of life, at most."""


@dataclass
class Leader:
    """What every stream of one leader uses."""

    journal: ProcessJournal
    faults: Faults
    clock: Callable[[], int]
    fence: Callable[[], None]
    """Called in each transaction in ZooKeeper. Raises `Stop` if another leader's changes are taken."""
    silent_ms: int
    """The time of the last sign of a previous leader that did not end in order; 0 if there was none."""
    live: Any = None
    """The settings in force, `streams.config.live.Live`."""

    def act(self) -> None:
        """A write to a cluster follows. Raises `Stop`, as ``fence``."""
        self.faults.seam()
        self.fence()


class Current:
    """The checkers as one process sees them: what a process does after another one leads concerns none of them. No
    attribute of a checker is set through it."""

    def __init__(self, checkers: Any) -> None:
        self._checkers, self.over = checkers, False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._checkers, name)
        return (lambda *_given: None) if self.over and callable(found) else found


class Process:
    """One instance. ``made``: makes the streams of the leader; ``halted``: lets the others go on while it is stopped.
    ``elects``: whether there is a standby."""

    def __init__(
        self,
        number: int,
        world: World,
        log: JournalLog,
        rng: Random,
        time: WallClock,
        made: Callable[["Process", Leader], Any],
        halted: Callable[["Process"], None],
        elects: bool,
    ) -> None:
        self.number, self._world, self._log, self._made = number, world, log, made
        self.faults = Faults(rng, (lambda: halted(self)) if elects else None)
        self.faults.time = time
        self.elects, self.election = elects, None
        self.application: Any = None
        self.stopped = self.calm = False
        self.down_ms = 0
        """The time until which it is down."""
        self._seen_ms, self._awake_s = world.now_ms, 0.0

    @property
    def leads(self) -> bool:
        """Whether its streams run, so that it may act, as far as it knows."""
        return self.application is not None

    @property
    def streams(self) -> Mapping[str, Any]:
        """Its streams by the names of their parts."""
        return self.application.streams if self.application is not None else {}

    def depose(self) -> None:
        """Another process leads from now on."""
        for stream in self.streams.values():
            stream.depose()

    def queue(self) -> None:
        """Events of the clusters arrive."""
        for stream in self.streams.values():
            stream.queue()

    def clock(self) -> int:
        """The time of its clock."""
        return self.faults.clock(self._world.now_ms)

    def tick(self) -> None:
        """Read the signs of life of the others, and write one if it is due. In the calm, time passes slowly for it."""
        passed_s = (self._world.now_ms - self._seen_ms) / 1000
        self._awake_s += min(passed_s, TICK_MS / 1000) if self.calm else passed_s
        self._seen_ms = self._world.now_ms
        if not self.elects or self.stopped or self._world.now_ms < self.down_ms:
            return
        self.election = self.election or self._joined()
        self.election.follow()
        with suppress(Retry):
            self.election.beat()

    def _joined(self) -> Election:
        signs = ProcessJournal(self._log, self.faults, None)
        place = f"place {self.number}"
        terms = LeadershipTerms(TAKEOVER_S)
        return Election(signs, place, "simulated", terms, self.clock, self._lost, lambda: self._awake_s)

    def _lost(self) -> None:
        raise Crash

    def step(self) -> None:
        """One iteration of the streams, if this process leads. Raises `Crash`."""
        if self.stopped or self._world.now_ms < self.down_ms:
            return
        epoch = 0
        if self.elects:
            self.tick()
            assert self.election is not None
            if not self.election.elected.is_set():
                return
            self.election.prove()
            epoch = self.election.epoch
        if self.application is None:
            self._log.epoch = max(self._log.epoch, epoch)
            journal = ProcessJournal(self._log, self.faults, epoch)
            journal.fenced = self._fenced
            silent_ms = self.election.silent_ms if self.election is not None else 0
            leader = Leader(journal, self.faults, self.clock, lambda: self.fence(epoch), silent_ms)
            self.application = self._made(self, leader)
        self.application.step()

    def fence(self, epoch: int) -> None:
        """A transaction of this leader in ZooKeeper, which refuses an earlier one. Ends the process then."""
        if self.refused(epoch):
            self._fenced("ZooKeeper")
            raise Stop("this leader to lead", f"epoch {self._world.fence}", "none")
        if epoch < self._world.fence:
            raise Violation(f"the leader of epoch {epoch} acted after that of epoch {self._world.fence}")
        self._world.fence = epoch

    def refused(self, epoch: int) -> bool:
        """Whether ZooKeeper refuses the transaction."""
        return epoch < self._world.fence

    def _fenced(self, by: str) -> None:
        assert self.election is not None
        self.election.fenced(by)

    def crash(self) -> None:
        """Forget everything that is not durable. A process that ends cannot be stopped."""
        with self.faults.unstopped():
            for stream in self.streams.values():
                stream.close()
        self.application, self.election = None, None
