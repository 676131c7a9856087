"""What a Spark worker does with a lease: it opens a copier, copies until the lease ends and says what was acknowledged.

Spark takes 0.2 to 0.4 s from one batch to the next and gives it to the same worker process. So the copier goes on
tailing in that process until the next lease takes it over, for `GRACE_S` at most. A lease that does not follow on the
last one of this process opens a copier of its own; where two at once may write a record twice, it waits first until
one that lingers in another process must have ended.
"""

import gc
import os
import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import NamedTuple

from trueup.connectors.contract import Connector, Copier, Lease, Position, Progress
from trueup.state.common.errors import TrueupError
from trueup.streams.journal.channel import Channel
from trueup.streams.replication.reports import Heard, Report, Reporter

GRACE_S = 3.0
ALONE_S = GRACE_S + 2.0
"""So long after a lease nobody copies any more without one, and what was on its way to a healthy target has arrived."""
SLICE_S = 0.25  # a new lease waits for one slice at most
SWITCH_S = 0.0005
"""How long a thread may have to wait for the interpreter. Those that speak to servers need it for an instant after
every answer: with Python's own 5 ms they would mostly wait while others work."""


class Order(NamedTuple):
    """One lease for one task, and for how long.

    ``number`` counts the orders of a ``term``; whoever held ``number`` - 1 of the same term and ``part`` knows that
    nobody has copied since. ``lingers``: the copier tails on until the next lease. ``last``: close it afterwards.
    ``alone_s``: who does not know that waits so long before opening a copier. ``channel``: where to report while the
    lease runs. ``stop``: leases end once there is a file of this name, and close their copiers; empty: they run to
    their end.
    """

    lease: Lease
    connector: str
    term: str
    number: int
    part: int
    lease_s: float
    lingers: bool
    last: bool
    alone_s: float = 0.0
    channel: Channel | None = None
    stop: str = ""

    def ended(self) -> bool:
        """Whether the lease is to end before its time."""
        return self.stop != "" and os.path.exists(self.stop)


class Answer(NamedTuple):
    """What a task says: its reports, all that were made while the lease ran and the last, and the error that ended the
    lease for all partitions, if one did."""

    reports: list[Report]
    error: TrueupError | None

    @property
    def progress(self) -> list[Progress]:
        """What was acknowledged, in order."""
        return [progress for report in self.reports for progress in report.progress]


class LeaseWorker:
    """The copier of one part of a link in this process. Every call of the copier is made by one thread."""

    def __init__(self) -> None:
        # Spark's worker collects garbage after every task, and this thread would stand still all the while.
        gc.freeze()
        sys.setswitchinterval(SWITCH_S)
        self._thread = ThreadPoolExecutor(1, "tail")
        self._wanted = threading.Event()
        self._lingering: Future[None] | None = None
        self._copier: Copier | None = None
        self._last: Order | None = None
        self._untold: list[Progress] = []

    def hold(self, order: Order) -> Answer:
        """Copy until the lease ends. Blocks."""
        self.leave()
        answer = self._thread.submit(self._copy, order).result()
        self._wanted.clear()
        self._lingering = self._thread.submit(self._linger, order.lingers, 0.0 if order.last else GRACE_S)
        return answer

    def leave(self) -> None:
        """End the lingering now; the copier stays open."""
        self._wanted.set()
        if self._lingering is not None:
            self._lingering.result()

    def close(self) -> None:
        """Let go of the copier."""
        self.leave()
        self._thread.submit(self._close).result()

    def _copy(self, order: Order) -> Answer:
        until_s = time.monotonic() + order.lease_s
        reporter = Reporter(order.channel, lambda report: heard(order, report))
        if not self._follows(order):
            self._close()
            self._untold = []
            if not self._held(order):
                _alone(order)
        self._last, told, error = order, self._untold, None
        if told:
            # What was copied since the last lease ended by a copier that is closed comes first.
            reporter.report(told)
        try:
            if self._copier is None and not order.ended():
                self._copier = _connector(order.connector).open(from_there(order.lease, told))
            if self._copier is not None:
                self._copier.copy(until_s, partial(_pulse, order, reporter, self._copier))
        except TrueupError as problem:
            error = problem
        if self._copier is not None:
            reporter.keep(self._copier.progress())
        if error is not None or order.ended():
            self._close()
        self._untold = []
        return Answer(reporter.reports, error)

    def _follows(self, order: Order) -> bool:
        last = self._last
        same = last is not None and order.connector == last.connector and terms(order) == terms(last)
        return same and self._held(order)

    def _held(self, order: Order) -> bool:
        """Whether this held the lease before that one, so that nobody else has copied since."""
        last = self._last
        return last is not None and (order.term, order.part, order.number - 1) == (last.term, last.part, last.number)

    def _linger(self, tails: bool, for_s: float) -> None:
        until_s = time.monotonic() + for_s
        while self._copier is not None and not self._wanted.is_set():
            left_s = until_s - time.monotonic()
            if left_s <= 0 or (tails and not self._tailed(min(left_s, SLICE_S))):
                self._untold = self._copier.progress()
                self._close()
            elif not tails:
                self._wanted.wait(left_s)

    def _tailed(self, for_s: float) -> bool:
        assert self._copier is not None
        try:
            self._copier.copy(time.monotonic() + for_s)
        except TrueupError:
            # The next lease opens a copier afresh and meets it, if it is still there.
            return False
        return True

    def _close(self) -> None:
        if self._copier is not None:
            copier, self._copier = self._copier, None
            copier.close()


def _pulse(order: Order, reporter: Reporter, copier: Copier) -> bool:
    """Report what is due; whether to go on copying."""
    reporter.pulse(copier.progress)
    return not order.ended()


def _alone(order: Order) -> None:
    """Wait until nobody else copies."""
    left_s = order.alone_s
    while left_s > 0 and not order.ended():
        time.sleep(min(left_s, SLICE_S))
        left_s -= SLICE_S


_tails: dict[tuple[str, int], LeaseWorker] = {}


def hold(order: Order) -> Answer:
    """Carry out one order in this process. Defects of a connector are raised, its errors are told."""
    link = order.lease.link
    for key, tail in _tails.items():
        if key[0] == link and key[1] != order.part:
            # Another process has that part now.
            tail.close()
    return _tails.setdefault((link, order.part), LeaseWorker()).hold(order)


def release(links: Iterable[str]) -> None:
    """Close what this process still holds of these links."""
    gone = set(links)
    for key in [key for key in _tails if key[0] in gone]:
        _tails.pop(key).close()


def terms(order: Order) -> Lease:
    """The lease without the positions: what must be the same for an open copier to go on."""
    return replace(order.lease, assignments=tuple(a._replace(position=Position()) for a in order.lease.assignments))


def heard(order: Order, report: Report) -> Heard:
    """A report of this order."""
    return Heard(order.lease.link, order.term, order.number, order.part, report)


def from_there(lease: Lease, told: Iterable[Progress]) -> Lease:
    """The lease from where copies stand by now."""
    positions = {progress.source: progress.position for progress in told}
    assignments = (a._replace(position=positions.get(a.source, a.position)) for a in lease.assignments)
    return replace(lease, assignments=tuple(assignments))


def _connector(name: str) -> Connector:
    """The connector called ``module:name``; a class or function is called to make it."""
    module, _, attribute = name.partition(":")
    found = getattr(import_module(module), attribute)
    made: Connector = found() if callable(found) else found
    return made
