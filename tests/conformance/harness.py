"""What the suite has to be able to do with a system: two clusters, east and west, with logs in partitions."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from tests.replication.pair import Copy
from tests.replication.worker import Worker
from trueup.connectors.contract import Connector, Lease, Run

TOO_LARGE = 60_000
"""Bytes of a value that no target of `Harness.narrow_topic` takes, and that every source does."""


class Written(NamedTuple):
    """A record without its place. ``timestamp`` in ms since 1970."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Harness(Protocol):
    """A connector between two running clusters. ``policies``: what it does with refused records."""

    connector: Connector
    policies: Sequence[str]

    def topic(self, partitions: int = 1) -> str:
        """A new topic on both sides."""

    def narrow_topic(self, partitions: int = 1) -> str:
        """A new topic whose west refuses values of `TOO_LARGE` bytes."""

    def write(self, side: str, topic: str, records: Mapping[int, Sequence[Written]]) -> None:
        """Write to partitions of one side; acknowledged when it returns."""

    def read(self, side: str, topic: str, partition: int = 0) -> list[tuple[int, Written]]:
        """All records with their offsets, without the headers that links add."""

    def lease(self, topic: str, partitions: int = 1, back: bool = False, **more: object) -> Lease:
        """East to west, or ``back``."""

    def copy(self, lease: Lease) -> Copy:
        """A copy in this process that was not begun."""

    def worker(self, root: Path, lease: Lease, lease_s: float) -> Worker:
        """A process that copies, to be killed."""

    def remake(self, side: str, topic: str) -> None:
        """Delete a topic of one partition at one side and make it anew at once, under the same name."""

    def without_target(self, during: Callable[[], None]) -> None:
        """Do something while the target is killed, and start it again."""


LONG_AGO_MS = 1_700_000_000_000


def numbered(count: int, first: int = 0, name: bytes = b"", since_ms: int = LONG_AGO_MS) -> list[Written]:
    """Records that all differ, by default so old that brokers forget their producers as soon as they look."""
    return [
        Written(name + b"%d" % n, b"value %d" % n, since_ms + n, (("n", b"%d" % n),))
        for n in range(first, first + count)
    ]


def contents(placed: Sequence[tuple[int, Written]]) -> list[Written]:
    """Without offsets."""
    return [record for _, record in placed]


def untrue(
    runs: Sequence[Run], source: Sequence[tuple[int, Written]], target: Sequence[tuple[int, Written]]
) -> list[Run]:
    """Runs that say of some record a place where another one is, or none."""
    here, there = dict(source), dict(target)
    return [
        run for run in runs
        if any(here.get(run.source + n, 0) != there.get(run.target + n, 1) for n in range(run.records))
    ]  # fmt: skip
