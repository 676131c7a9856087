"""A connector with in-memory clusters, for tests of the code that runs copiers."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from trueup.connectors.contract import Assignment, Endpoint, Lease, Limits, LogId, Position, Progress, Run
from trueup.state.common.errors import TrueupError
from trueup.streams.replication.links.worker import LeaseOrder

NAME = "tests.unit.replication.fake_connector:Fake"
EAST, WEST = Endpoint("east", "east:9092", 0), Endpoint("west", "west:9092", 1)


@dataclass
class World:
    """Number of records in each source partition, records of each target partition, and opened and closed copiers."""

    source: dict[LogId, int] = field(default_factory=dict)
    target: dict[LogId, list[int]] = field(default_factory=dict)
    opened: list[Lease] = field(default_factory=list)
    closed: int = 0
    fail: list[Exception] = field(default_factory=list)
    refuse: Exception | None = None
    changed: threading.Condition = field(default_factory=threading.Condition)

    def write(self, partition: LogId, records: int) -> None:
        """Append records to the source."""
        with self.changed:
            self.source[partition] = self.source.get(partition, 0) + records
            self.changed.notify_all()

    def has(self, partition: LogId) -> int:
        """Number of records at the target."""
        with self.changed:
            return len(self.target.get(partition, ()))


WORLD = World()


class Fake:
    """Implements `connectors.contract.Connector`."""

    def open(self, lease: Lease) -> "FakeCopier":
        if WORLD.refuse is not None:
            raise WORLD.refuse
        WORLD.opened.append(lease)
        return FakeCopier(lease)


class FakeCopier:
    """Resumes after the last record of the target, as a real copier does."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._reported = {a.source: self._begin(a) for a in lease.assignments}
        self._at = dict(self._reported)

    def _begin(self, a: Assignment) -> int:
        if a.position.chosen:
            return a.position.offset
        first = a.position.offset if a.position.offset >= 0 else a.start
        return max(first, max(WORLD.target.get(a.target, ()), default=-1) + 1)

    def copy(self, until_s: float, keep_going: Callable[[], bool] = lambda: True) -> None:
        with WORLD.changed:
            while keep_going():
                if WORLD.fail:
                    raise WORLD.fail.pop()
                for a in self._lease.assignments:
                    end = WORLD.source.get(a.source, 0)
                    WORLD.target.setdefault(a.target, []).extend(range(self._at[a.source], end))
                    self._at[a.source] = max(self._at[a.source], end)
                WORLD.changed.notify_all()
                left = until_s - time.monotonic()
                if left <= 0:
                    return
                WORLD.changed.wait(min(left, 0.02))

    def progress(self) -> list[Progress]:
        found = []
        for a in self._lease.assignments:
            before, at = self._reported[a.source], self._at[a.source]
            runs = (Run(before, before, at - before),) if at > before else ()
            end = WORLD.source.get(a.source, 0)
            position, path = Position(at, {"at": at}), self._lease.path
            found.append(Progress(a.source, a.target, position, runs, at - before, source_end=end, lag_ms=0, path=path))
            self._reported[a.source] = at
        return found

    def close(self) -> None:
        WORLD.closed += 1


def order(number: int = 1, part: int = 0, topic: str = "orders", **more: object) -> LeaseOrder:
    """An order for partition 0 of a topic."""
    limits = more.pop("limits", Limits())
    where = LogId(topic, 0)
    assert isinstance(limits, Limits)
    lease = Lease("east-west", EAST, WEST, 1, "batches", (Assignment(where, where, Position(), 0),), limits=limits)
    made = LeaseOrder(lease, NAME, "a", number, part, 0.01, True, False)
    return made._replace(**more)  # type: ignore[arg-type]


def failing(error: TrueupError) -> None:
    """The next copy fails with this error."""
    WORLD.fail.append(error)
