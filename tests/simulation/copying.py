"""Copies of one process of Trueup: each runs on a thread of its own, of which one part at a time runs.

What is between two parts is up to the world: bookies die, sessions end, workers repair, and the process is killed.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Semaphore, Thread
from types import SimpleNamespace
from typing import Any, cast

from tests.simulation.copy_bookies import CopyConnection
from tests.simulation.copy_checkers import CopyCheckers
from tests.simulation.copy_world import CopyWorld
from tests.simulation.copy_zookeeper import PATHS, CopySession
from tests.simulation.faults import Crash
from tests.simulation.instances import Leader
from trueup.connectors.bookkeeper.bookie import bulk_reads
from trueup.connectors.bookkeeper.copy import adds, ledger_lock
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.state.common.errors import TrueupError
from trueup.state.placement.copies.targets import LedgerMoves
from trueup.streams.placement.repairs.copy_task import CopyResult, CopyTask, copy_stripe
from trueup.streams.placement.repairs.copying import CopiesUnderWay

STEPS = (0, 1, 2, 5, 20, 100)
"""The number of parts of a copy that run before something else happens."""

RECOVERS = 0.005
"""The share of these parts after which an operator lets BookKeeper replace lost members of the ledger."""


class Killed(BaseException):
    """The process of a copy was killed."""


class Steps:
    """A function on its own thread, which only runs during `step`, up to the next call of `pause`."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._go, self._back = Semaphore(0), Semaphore(0)
        self._killed, self.over = False, False
        self._error: BaseException | None = None
        Thread(target=self._main, args=(work,), daemon=True).start()

    def _main(self, work: Callable[[], None]) -> None:
        self._go.acquire()
        try:
            if not self._killed:
                work()
        except Killed:
            pass
        except (TrueupError, AssertionError, Crash) as error:
            self._error = error
        finally:
            self.over = True
            self._back.release()

    def step(self) -> None:
        """Run the next part. Raises what the function raises."""
        self._go.release()
        self._back.acquire()
        if self._error is not None:
            raise self._error

    def pause(self) -> None:
        """The end of a part; called by the function."""
        self._back.release()
        self._go.acquire()
        if self._killed:
            raise Killed

    def kill(self) -> None:
        """End the function where it is."""
        self._killed = True
        while not self.over:
            self.step()


class SimulatedCopies(CopiesUnderWay):
    """Copies over the simulated cluster. A task runs in the thread of its copy, with a session of its own."""

    def __init__(self, world: CopyWorld, leader: Leader, checkers: CopyCheckers) -> None:
        self._world, self._leader, self._checkers = world, leader, checkers
        self._client = client = CopySession(world, leader.faults, self._pause, self._fence, checkers.changing)
        self._steps: dict[int, Steps] = {}
        self._current: Steps | None = None
        self._tasks_of: dict[int, CopySession] = {}
        self.dead = False
        cluster = SimpleNamespace(paths=PATHS, session=lambda: client, used=lambda: dict(world.used))
        super().__init__(cast("Any", cluster), cast("Any", SimpleNamespace), cast("Any", lambda: world), None)
        self.look()

    def _fence(self) -> None:
        try:
            self._leader.faults.seam(acts=True)
            self._leader.fence()
        except Crash:
            self._client.close(wait=True)
            raise

    # Parts of copies

    def begin(self, ledger: int, version: int, moves: LedgerMoves) -> None:
        self._checkers.beginning(ledger, version, moves, len(self.running))
        self._running.add(ledger)
        self._steps[ledger] = Steps(lambda: self._run(ledger, version, moves))

    def step(self, calm: bool = False) -> None:
        """Some parts of each copy run. Raises `Violation` and `Crash`."""
        for ledger, steps in list(self._steps.items()):
            for _ in range(max(STEPS) if calm else self._world.rng.choice(STEPS)):
                if not steps.over:
                    self._part(steps)
                if self._leader.faults.happens(RECOVERS) and ledger in self._world.ledgers:
                    self._world.recover(self._world.ledgers[ledger])
        self._steps = {ledger: steps for ledger, steps in self._steps.items() if not steps.over}

    def expire(self) -> None:
        """ZooKeeper ends the session of this process."""
        self._client.expire()

    @property
    def idle(self) -> bool:
        """Whether nothing of a copy is left to do, also not by tasks of a dead process."""
        return not self._steps

    def _part(self, steps: Steps) -> None:
        self._current = steps
        with self._reached():
            steps.step()

    def _pause(self) -> None:
        if self._current is not None:
            self._current.pause()

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Bookies are those of the simulated cluster."""
        connect = partial(CopyConnection, self._world, self._pause, self._checkers)
        places: list[tuple[Any, str, Any]] = [
            (adds, "BookieConnection", connect),
            (bulk_reads, "BookieConnection", connect),
            (ledger_lock, "time", SimpleNamespace(sleep=lambda _: self._pause())),
        ]
        before = [getattr(module, name) for module, name, _ in places]
        for module, name, value in places:
            setattr(module, name, value)
        try:
            yield
        finally:
            for (module, name, _), value in zip(places, before, strict=True):
                setattr(module, name, value)

    def _tasks(self, tasks: Sequence[CopyTask], ledger: int) -> list[CopyResult]:
        results = [self._task(task, ledger) for task in tasks]
        if self.dead:
            raise Killed
        return results

    def _task(self, task: CopyTask, ledger: int) -> CopyResult:
        """As `copy_task.run`, with a session of the simulated cluster and the clock of the world."""
        client = self._tasks_of[ledger] = CopySession(self._world, self._leader.faults, self._pause)
        self._checkers.task(ledger, client)
        try:
            return copy_stripe(
                cast("ZooKeeperClient", client), PATHS, task.order, None, lambda: self._world.now_ms / 1000
            )
        finally:
            self._tasks_of.pop(ledger, None)
            client.close(wait=False)

    def kill(self) -> None:
        """The process ends. Tasks may run on, on an executor elsewhere."""
        self.dead = True
        self._client.close(wait=True)
        for ledger, steps in list(self._steps.items()):
            if ledger not in self._tasks_of or self._world.rng.random() < 0.5:
                with self._reached():
                    self._current = steps
                    steps.kill()
        self._steps = {ledger: steps for ledger, steps in self._steps.items() if not steps.over}
