"""Operations that the suite needs from a system: two clusters, east and west, and topics with logs."""

import itertools
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol

from tests.replication.pair import EAST_TO_WEST, WEST_TO_EAST, Copy
from tests.replication.worker import Worker
from trueup.connectors.contract import Assignment, Connector, Endpoint, Lease, LogId, Position, Run

TOO_LARGE = 60_000
"""Size of a value in bytes that every source accepts and no target of `Harness.narrow_topic` accepts."""
TODAY_MS = int(time.time() * 1000)
CLUSTERS = {"east": 0, "west": 1}
_topics = itertools.count(1)


class Written(NamedTuple):
    """A record without its offset. ``timestamp`` is in ms since 1970."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


POISON = Written(b"poison", random.Random(1).randbytes(TOO_LARGE), TODAY_MS)
"""Refused by the target of `Harness.narrow_topic`."""
LONG = [Written(b"%d" % number, bytes(10_000), TODAY_MS) for number in range(500)]
"""Large enough for several requests on every path."""


class Cluster(Protocol):
    """A running cluster of a system. The logs of a topic are identified by index: 0, 1 ..."""

    def endpoint(self) -> Endpoint:
        """The cluster as a side of a link."""

    def log(self, topic: str, index: int) -> LogId:
        """The system's identifier of a log."""

    def create(self, topic: str, logs: int, narrow: bool = False) -> None:
        """Create a topic. If ``narrow``, it rejects values of `TOO_LARGE` bytes."""

    def write(self, topic: str, records: Mapping[int, Sequence[Written]]) -> None:
        """Write to logs. Returns when all records are acknowledged."""

    def read(self, topic: str, index: int) -> list[tuple[int, Written]]:
        """All records with their offsets, without the headers that links add."""

    def end(self, log: LogId) -> int:
        """The offset after the last acknowledged record."""

    def remake(self, topic: str) -> None:
        """Delete a topic with one log and immediately recreate it with the same name."""

    def kill(self) -> None:
        """Stop the cluster without a shutdown."""

    def up(self) -> None:
        """Start the cluster again. Acknowledged records are still present."""


@dataclass
class Harness:
    """A connector between two running clusters. Workers import it as ``name``."""

    east: Cluster
    west: Cluster
    path: str
    name: str
    connector: Connector

    def topic(self, logs: int = 1) -> str:
        """A new topic on both sides."""
        return self._topic(logs, narrow=False)

    def narrow_topic(self, logs: int = 1) -> str:
        """A new topic on both sides. West rejects values of `TOO_LARGE` bytes."""
        return self._topic(logs, narrow=True)

    def _topic(self, logs: int, narrow: bool) -> str:
        topic = f"suite{next(_topics)}"
        self.east.create(topic, logs)
        self.west.create(topic, logs, narrow)
        return topic

    def side(self, name: str) -> Cluster:
        """The cluster east or west."""
        return self.east if name == "east" else self.west

    def write(self, side: str, topic: str, records: Mapping[int, Sequence[Written]]) -> None:
        """Write to logs of one side. Returns when all records are acknowledged."""
        self.side(side).write(topic, records)

    def read(self, side: str, topic: str, index: int = 0) -> list[tuple[int, Written]]:
        """All records of a log with their offsets, without the headers that links add."""
        return self.side(side).read(topic, index)

    def assignment(self, topic: str, index: int = 0, back: bool = False) -> Assignment:
        """A log that was never copied, assigned to the log of the same index on the other side."""
        east, west = self.east.log(topic, index), self.west.log(topic, index)
        return Assignment(west if back else east, east if back else west, Position(), 0)

    def lease(self, topic: str, logs: int = 1, back: bool = False, **more: object) -> Lease:
        """A lease from east to west, or west to east if ``back``."""
        east, west = self.east.endpoint(), self.west.endpoint()
        lease = Lease(
            "west-east" if back else "east-west",
            west if back else east,
            east if back else west,
            WEST_TO_EAST if back else EAST_TO_WEST,
            self.path,
            tuple(self.assignment(topic, index, back) for index in range(logs)),
            clusters=CLUSTERS,
        )
        return replace(lease, **more)  # type: ignore[arg-type]

    def copy(self, lease: Lease) -> Copy:
        """A copy in this process, not started."""
        return Copy(self.connector, lease, self.side(lease.source.name).end)

    def worker(self, root: Path, lease: Lease, lease_s: float) -> Worker:
        """A process that copies and can be killed."""
        return Worker(root, lease, self.name, lease_s)

    def remake(self, side: str, topic: str) -> None:
        """Delete a topic with one log on one side and immediately recreate it with the same name."""
        self.side(side).remake(topic)

    def without_target(self, during: Callable[[], None]) -> None:
        """Run ``during`` while the target is down, then start the target again."""
        self.west.kill()
        try:
            during()
        finally:
            self.west.up()


LONG_AGO_MS = 1_700_000_000_000


def numbered(count: int, first: int = 0, name: bytes = b"", since_ms: int = LONG_AGO_MS) -> list[Written]:
    """Distinct records. With the default timestamps, brokers expire their producers at the next check."""
    return [
        Written(name + b"%d" % n, b"value %d" % n, since_ms + n, (("n", b"%d" % n),))
        for n in range(first, first + count)
    ]


def contents(placed: Sequence[tuple[int, Written]]) -> list[Written]:
    """The records without their offsets."""
    return [record for _, record in placed]


def untrue(
    runs: Sequence[Run], source: Sequence[tuple[int, Written]], target: Sequence[tuple[int, Written]]
) -> list[Run]:
    """Runs that map a record to an offset with a different record or without one."""
    here, there = dict(source), dict(target)
    return [
        run
        for run in runs
        if any(here.get(run.source + n, 0) != there.get(run.target + n, 1) for n in range(run.records))
    ]
