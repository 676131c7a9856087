"""Executes leases without Spark: workers that are killed, results that are lost, and copiers that linger."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

from tests.simulation.faults import Crash
from tests.simulation.link_ports import WorkerKilled, WorkerPorts
from trueup.connectors.replication import group_sync, heartbeat, pump, resume
from trueup.connectors.replication.pump import Pump
from trueup.state.common.errors import TrueupError
from trueup.streams.replication import leases
from trueup.streams.replication.links import ends, link, monitor, worker
from trueup.streams.replication.links.worker import GRACE_S, SLICE_S, LeaseOrder, LeaseResult, LeaseWorker

ATTEMPTS = 3
"""Attempts of a task before its query fails."""


class TaskError(Exception):
    """Every attempt of a task failed; the query ends and is started again."""


class SimulatedTime:
    """Replaces the module `time` in the code under test, while a process runs. Each look at a clock takes a moment."""

    def __init__(self, ports: WorkerPorts, clock: Callable[[], int]) -> None:
        self._clusters, self._clock = ports.clusters, clock

    def monotonic(self) -> float:
        self._clusters.elapse(0.0005)
        return self._clusters.time_ms / 1000

    def time(self) -> float:
        return self._clock() / 1000

    def wait(self, seconds: float) -> None:
        self._clusters.elapse(seconds)

    @contextmanager
    def running(self, open_connector: Callable[[str], Any]) -> Iterator[None]:
        """The code under test uses this time and these connectors."""
        time = SimpleNamespace(monotonic=self.monotonic, time=self.time, sleep=self.wait)
        modules: Sequence[Any] = (group_sync, heartbeat, pump, resume, leases, ends, link, monitor, worker)
        names = [(module, "time", time) for module in modules]
        names += [(module, "now_ms", self._clock) for module in (heartbeat, ends)]
        names += [(worker, "_connector", open_connector), (pump, "keep_memory", lambda: None)]
        kept = [(module, name, getattr(module, name)) for module, name, _ in names]
        for module, name, value in names:
            setattr(module, name, value)
        try:
            yield
        finally:
            for module, name, value in kept:
                setattr(module, name, value)


class PlainWorker(LeaseWorker):
    """One worker process, which makes its calls at once instead of in a thread. ``until_ms``: until when its copier may
    copy without a lease."""

    def __init__(self, ports: WorkerPorts) -> None:
        self.ports = ports
        self._copier, self._last, self._unreported = None, None, []
        self.until_ms, self._tails = 0.0, False

    @property
    def open(self) -> bool:
        """Whether the worker has a copier."""
        return self._copier is not None

    def hold(self, order: LeaseOrder) -> LeaseResult:
        if not self._follows(order):  # what it did between leases is not counted
            self.ports.lost.clear()
            self.ports.told.clear()
        answer = self._copy(order)
        self.until_ms = self.ports.clusters.time_ms + (0.0 if order.last else GRACE_S * 1000)
        self._tails = order.lingers
        if order.last:
            self.linger()
        return answer

    def linger(self) -> None:
        """Copy without a lease for a moment, or close the copier if its time is over."""
        if self._copier is None:
            return
        over = self.ports.clusters.time_ms >= self.until_ms
        if over or (self._tails and not self._tailed(SLICE_S)):
            self._unreported = self._copier.progress()
            self._close()

    def die(self, stray_s: float) -> None:
        """The process dies; what it sends within ``stray_s`` seconds before that still arrives."""
        alive = self.ports.ended is None and self.ports.clusters.time_ms < self.until_ms
        if self._copier is not None and stray_s and self._tails and alive:
            self.ports.stray = stray_s
            with suppress(WorkerKilled, Crash, TrueupError):
                self._copier.copy(self.ports.clusters.time_ms / 1000 + SLICE_S)
        self._copier, self.ports.ended = None, WorkerKilled()


class Executors:
    """The worker processes of one application. ``connector``: the class of the connector under test."""

    def __init__(self, ports: WorkerPorts, connector: type[Pump]) -> None:
        self.ports, self._connector = ports, connector
        self._workers: dict[tuple[str, int, int], PlainWorker] = {}
        self._rng: Random = ports.faults.rng

    def connector_of(self, ports: WorkerPorts) -> Callable[[str], Pump]:
        """Loads a connector in a worker."""
        return lambda _name: self._connector(ports.medium)

    def lend(self, orders: Sequence[LeaseOrder]) -> list[LeaseResult]:
        """Execute every order. Raises `TaskError`."""
        for (name, part, _), held in sorted(self._workers.items()):
            if name == orders[0].lease.link and part >= len(orders):
                held.linger()
        return [self._attempted(order) for order in orders]

    def _attempted(self, order: LeaseOrder) -> LeaseResult:
        for _ in range(ATTEMPTS):
            self.linger(order.lease.link)
            key = (order.lease.link, order.part, int(self.ports.faults.happens(0.1)))
            held = self._workers.setdefault(key, self._new())
            try:
                answer = self._held(held, order)
            except WorkerKilled:
                del self._workers[key]
                continue
            if self.ports.faults.happens(self.ports.kills * 0.3):  # the result is lost, and its worker with it
                held.die(self._stray_s())
                del self._workers[key]
                continue
            if self.ports.faults.happens(0.3):
                held.linger()
            return answer
        raise TaskError

    def _held(self, held: PlainWorker, order: LeaseOrder) -> LeaseResult:
        worker._connector = self.connector_of(held.ports)
        answer = held.hold(order)
        self.ports.checkers.lost(held.ports, answer)
        return answer

    def _new(self) -> PlainWorker:
        return PlainWorker(replace(self.ports, lost={}, told={}, ended=None))

    def _stray_s(self) -> float:
        return self._rng.choice((0.0, GRACE_S)) if self.ports.faults.on else 0.0

    def linger(self, link: str) -> None:
        """The open copiers of a link may copy, or end."""
        for key, held in sorted(self._workers.items()):
            if key[0] == link and (self._rng.random() < 0.3 or self.ports.clusters.time_ms >= held.until_ms):
                try:
                    held.linger()
                except WorkerKilled:
                    del self._workers[key]

    def die(self) -> None:
        """The application crashed: its workers end, at once or after a moment."""
        for _, held in sorted(self._workers.items()):
            held.die(self._stray_s())
        self._workers.clear()
