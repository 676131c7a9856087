"""Executes a lease in a Spark worker: opens a copier, copies until the lease ends, and reports what was acknowledged.

Spark takes 0.2 to 0.4 s between two batches and reuses the worker process. The copier therefore continues in this
process until the next lease takes it over, for at most `GRACE_S`. A lease that does not directly follow the last one
of this process opens a new copier. On paths where two concurrent copiers may duplicate a record, it first waits until
a copier that lingers in another process must have ended.
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
from trueup.streams.replication.leases import Report, Reporter, ReportMessage

GRACE_S = 3.0
ALONE_S = GRACE_S + 2.0
"""Time after a lease at which its copier has ended, and requests to a healthy target have arrived."""
SLICE_S = 0.25  # a new lease waits for one slice at most
SWITCH_S = 0.0005
"""The interpreter's switch interval. Threads with network I/O need the interpreter briefly after every response; with
Python's default of 5 ms they mostly wait for other threads."""
ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(64 << 20)}
"""Variables of a worker process (mallopt(3)): memory of large buffers is kept and used again. The kernel clears and
maps new memory page by page, which was more than a quarter of the CPU of decoding and encoding 1,000-byte records."""


class LeaseOrder(NamedTuple):
    """One lease for one task, with its duration.

    A process that held the preceding order of the same term and part knows that no other process has copied since.
    """

    lease: Lease
    connector: str
    term: str
    number: int
    """The number of the round. It increases by 1 with each round of the term."""
    part: int
    lease_s: float
    lingers: bool
    """Whether the copier continues to copy until the next lease, for at most `GRACE_S`."""
    last: bool
    """Whether the copier is closed after the lease."""
    alone_s: float = 0.0
    """Seconds that a process which did not hold the preceding order waits before it opens a copier."""
    channel: Channel | None = None
    """The channel that receives reports while the lease runs; None if no reports are sent."""
    stop: str = ""
    """The path of a file whose existence ends the lease and closes its copier; empty if there is no such file."""

    def ended(self) -> bool:
        """Whether the lease must end early."""
        return self.stop != "" and os.path.exists(self.stop)


class LeaseResult(NamedTuple):
    """The result of a task."""

    reports: list[Report]
    """All reports of the lease."""
    error: TrueupError | None
    """The error that ended the lease for all partitions, or None."""

    @property
    def progress(self) -> list[Progress]:
        """What was acknowledged, in order."""
        return [progress for report in self.reports for progress in report.progress]


class LeaseWorker:
    """The copier of one part of a link in this process. One thread makes all calls of the copier."""

    def __init__(self) -> None:
        # Spark's worker collects garbage after every task, which blocks this thread.
        gc.freeze()
        sys.setswitchinterval(SWITCH_S)
        self._thread = ThreadPoolExecutor(1, "tail")
        self._wanted = threading.Event()
        self._lingering: Future[None] | None = None
        self._copier: Copier | None = None
        self._last: LeaseOrder | None = None
        self._unreported: list[Progress] = []

    def hold(self, order: LeaseOrder) -> LeaseResult:
        """Copy until the lease ends. Blocks."""
        self.leave()
        answer = self._thread.submit(self._copy, order).result()
        self._wanted.clear()
        self._lingering = self._thread.submit(self._linger, order.lingers, 0.0 if order.last else GRACE_S)
        return answer

    def leave(self) -> None:
        """Stop copying between leases; the copier stays open."""
        self._wanted.set()
        if self._lingering is not None:
            self._lingering.result()

    def close(self) -> None:
        """Close the copier."""
        self.leave()
        self._thread.submit(self._close).result()

    def _copy(self, order: LeaseOrder) -> LeaseResult:
        until_s = time.monotonic() + order.lease_s
        reporter = Reporter(order.channel, lambda report: message_of(order, report))
        if not self._follows(order):
            self._close()
            self._unreported = []
            if not self._held(order):
                _alone(order)
        self._last, unreported, error = order, self._unreported, None
        if unreported:
            # First the progress after the last lease, of a copier that is closed now.
            reporter.report(unreported)
        try:
            if self._copier is None and not order.ended():
                self._copier = _connector(order.connector).open(with_positions(order.lease, unreported))
            if self._copier is not None:
                self._copier.copy(until_s, partial(_continues, order, reporter, self._copier))
        except TrueupError as problem:
            error = problem
        if self._copier is not None:
            reporter.keep(self._copier.progress())
        if error is not None or order.ended():
            self._close()
        self._unreported = []
        return LeaseResult(reporter.reports, error)

    def _follows(self, order: LeaseOrder) -> bool:
        last = self._last
        same = last is not None and order.connector == last.connector and terms(order) == terms(last)
        return same and self._held(order)

    def _held(self, order: LeaseOrder) -> bool:
        """Whether this worker held the previous lease, so that no other process has copied since."""
        last = self._last
        return last is not None and (order.term, order.part, order.number - 1) == (last.term, last.part, last.number)

    def _linger(self, tails: bool, for_s: float) -> None:
        until_s = time.monotonic() + for_s
        while self._copier is not None and not self._wanted.is_set():
            left_s = until_s - time.monotonic()
            if left_s <= 0 or (tails and not self._tailed(min(left_s, SLICE_S))):
                self._unreported = self._copier.progress()
                self._close()
            elif not tails:
                self._wanted.wait(left_s)

    def _tailed(self, for_s: float) -> bool:
        assert self._copier is not None
        try:
            self._copier.copy(time.monotonic() + for_s)
        except TrueupError:
            # The next lease opens a new copier, which reports the error if it persists.
            return False
        return True

    def _close(self) -> None:
        if self._copier is not None:
            copier, self._copier = self._copier, None
            copier.close()


def _continues(order: LeaseOrder, reporter: Reporter, copier: Copier) -> bool:
    """Report progress if it is due. Returns whether to continue copying."""
    reporter.report_if_due(copier.progress)
    return not order.ended()


def _alone(order: LeaseOrder) -> None:
    """Wait until no other process copies."""
    left_s = order.alone_s
    while left_s > 0 and not order.ended():
        time.sleep(min(left_s, SLICE_S))
        left_s -= SLICE_S


_workers: dict[tuple[str, int], LeaseWorker] = {}


def hold(order: LeaseOrder) -> LeaseResult:
    """Execute one order in this process. Raises defects of a connector; the answer holds its errors."""
    link = order.lease.link
    for key, worker in _workers.items():
        if key[0] == link and key[1] != order.part:
            # Another process holds that part now.
            worker.close()
    return _workers.setdefault((link, order.part), LeaseWorker()).hold(order)


def release(links: Iterable[str]) -> None:
    """Close the copiers of these links in this process."""
    gone = set(links)
    for key in [key for key in _workers if key[0] in gone]:
        _workers.pop(key).close()


def terms(order: LeaseOrder) -> Lease:
    """The lease without positions: an open copier continues only if it is unchanged."""
    return replace(order.lease, assignments=tuple(a._replace(position=Position()) for a in order.lease.assignments))


def message_of(order: LeaseOrder, report: Report) -> ReportMessage:
    """A report of this order."""
    return ReportMessage(order.lease.link, order.term, order.number, order.part, report)


def with_positions(lease: Lease, reported: Iterable[Progress]) -> Lease:
    """The lease with the positions that were reported since."""
    positions = {progress.source: progress.position for progress in reported}
    assignments = (a._replace(position=positions.get(a.source, a.position)) for a in lease.assignments)
    return replace(lease, assignments=tuple(assignments))


def _connector(name: str) -> Connector:
    """Load the connector ``module:name``; a class or function is called to create it."""
    module, _, attribute = name.partition(":")
    loaded = getattr(import_module(module), attribute)
    connector: Connector = loaded() if callable(loaded) else loaded
    return connector
