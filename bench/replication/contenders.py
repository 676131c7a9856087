"""The contenders: MirrorMaker 2 as shipped and tuned, Spark's Kafka connector, and Trueup's workers.

Trueup's worker is measured from the first connection to the last acknowledgement. For the others, only the steady part
is measured, so that the start and the warm-up of a JVM do not count. The steady part begins when the target has a fifth
of the records, or `SETTLE_S` after the first record. It ends with the last record, or after `WINDOW_S`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from bench.common import jobs
from bench.common.measure import Failed, cpu_s, tell
from bench.replication.clusters import Clusters, Load
from trueup.sandbox.servers.mirrormaker import TUNED, Mirror
from trueup.streams.replication.links.worker import ENVIRONMENT

SETTLE_S, WINDOW_S = 5.0, 8.0
SHARE = 0.2
LOOK_S = 0.25
START_S, OURS_S = 240.0, 6.0
TO = "copy"


class Copied(NamedTuple):
    """The result of one copy: CPU seconds of the copier, and of both brokers."""

    records: int
    s: float
    cpu_s: float
    broker_s: float

    @property
    def per_s(self) -> float:
        return self.records / self.s

    @property
    def cpu_us(self) -> float:
        """Microseconds of CPU per record."""
        return self.cpu_s / self.records * 1e6

    @property
    def broker_us(self) -> float:
        return self.broker_s / self.records * 1e6

    @property
    def total_us(self) -> float:
        return self.cpu_us + self.broker_us


def together(several: Sequence[Copied]) -> Copied:
    """Several copies as one."""
    return Copied(*(sum(column) for column in zip(*several, strict=True)))


Contender = Callable[[Clusters, Load, Path], Copied]
Runs = Mapping[str, Sequence[Copied]]
"""All runs of each contender, by name."""


class Counted(Protocol):
    """Counts the records of a topic."""

    def records(self) -> int: ...
    def close(self) -> None: ...


class Measured(Protocol):
    """Two clusters. CPU seconds are those of their servers."""

    def ends(self, topic: str) -> Counted: ...
    def cpu_s(self) -> float: ...


class Running(Protocol):
    """A process that copies until it is killed."""

    @property
    def pid(self) -> int | None: ...
    @property
    def alive(self) -> bool: ...
    @property
    def log(self) -> Path: ...
    def start(self) -> None: ...
    def kill(self) -> None: ...


def mirror(tuned: bool) -> Contender:
    """MirrorMaker 2 with four tasks."""

    def run(clusters: Clusters, load: Load, root: Path) -> Copied:
        made = mirror_of(clusters, load.topic, tuned, root)
        return steady(clusters, load, made, made.target_topic(load.topic))

    return run


def mirror_of(clusters: Clusters, topic: str, tuned: bool, root: Path) -> Mirror:
    source, target = clusters.source.bootstrap, clusters.target.bootstrap
    return Mirror(root, source, target, topic, TUNED if tuned else None)


def spark(clusters: Clusters, load: Load, root: Path) -> Copied:
    """Spark's Kafka source and Kafka sink, 500,000 records per batch."""
    clusters.create(clusters.target, TO)
    job = {
        "source": clusters.source.bootstrap,
        "target": clusters.target.bootstrap,
        "topic": load.topic,
        "to": TO,
        "data": str(root / "data"),
    }
    return steady(clusters, load, jobs.driver("bench.replication.drive_spark_copy", job, root), TO)


def ours(path: str) -> Contender:
    """One Trueup worker with all partitions in one lease, with the environment of the application's workers."""

    def run(clusters: Clusters, load: Load, root: Path) -> Copied:
        clusters.create(clusters.target, TO)
        job = {**job_of(clusters, load.topic, TO, path), "records": load.records, "limit_s": OURS_S}
        (result,) = jobs.run("bench.replication.drive_copy", job, root, START_S, ENVIRONMENT)
        return Copied(result["records"], result["s"], result["cpu_s"], result["broker_s"])

    return run


def job_of(clusters: Clusters, topic: str, to: str, path: str) -> dict[str, object]:
    """The job of `bench.replication.drive_copy` for these clusters."""
    return {
        "source": clusters.source.bootstrap,
        "target": clusters.target.bootstrap,
        "brokers": clusters.pids,
        "topic": topic,
        "to": to,
        "path": path,
    }


class Look(NamedTuple):
    """The state of a copy at one moment."""

    at: float
    records: int
    cpu_s: float
    broker_s: float


def steady(clusters: Measured, load: Load, running: Running, to: str) -> Copied:
    """Start the contender, poll the target until the copy ends, and return the result of the steady part."""
    ends, looks = clusters.ends(to), list[Look]()
    running.start()
    begun = time.monotonic()
    try:
        while not looks or (looks[-1].records < load.records and _window(looks, load) < WINDOW_S):
            if not looks and time.monotonic() - begun > START_S:
                raise Failed(f"nothing at {to} after {START_S:g} s")
            if not running.alive:
                raise Failed(f"a copier that runs; it ended; its log is {running.log}")
            time.sleep(LOOK_S)
            if records := ends.records():
                looks.append(Look(time.monotonic(), records, cpu_s(running.pid or 0), clusters.cpu_s()))
    finally:
        running.kill()
        ends.close()
    return between(looks[_begin(looks, load)], looks[-1])


def between(first: Look, last: Look) -> Copied:
    """The difference between two looks. Raises `Failed` if no record was copied in between."""
    if last.records <= first.records:
        raise Failed(f"a copy that moves; it stood still at {last.records:,} records")
    spent = (later - earlier for earlier, later in zip(first, last, strict=True))
    at, records, cpu, broker = spent
    tell(f"  {records:,.0f} records in {at:.1f} s, CPU {cpu / records * 1e6:.2f} us each")
    return Copied(int(records), at, cpu, broker)


def _begin(looks: Sequence[Look], load: Load) -> int:
    """The index of the look at which the steady part begins, or of the last look if it has not begun."""
    return next(
        (
            at
            for at, look in enumerate(looks)
            if look.records >= SHARE * load.records or look.at - looks[0].at >= SETTLE_S
        ),
        len(looks) - 1,
    )


def _window(looks: Sequence[Look], load: Load) -> float:
    return looks[-1].at - looks[_begin(looks, load)].at
