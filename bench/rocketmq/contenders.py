"""The contenders: copiers with the Java clients of both systems, and one worker of a link.

Only the steady part of a copy is measured, see `bench.replication.contenders`. Each contender runs on one core, and the
brokers on all.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.common import jobs, memory
from bench.common.measure import Failed, tell
from bench.replication.clusters import Load
from bench.replication.contenders import TO, Copied, Running, steady
from bench.rocketmq.clusters import QUEUES, Direction, Side
from trueup.connectors.embedded import kafka
from trueup.connectors.embedded.jars import jars
from trueup.connectors.embedded.server import jvm
from trueup.sandbox.servers import rocketmq
from trueup.streams.replication.clusters import KAFKA, ROCKETMQ
from trueup.streams.replication.links.worker import ENVIRONMENT

MOST = 1_000
"""Messages of a pull. The brokers permit 1,024, the Java client 1,024."""
TRIES = 3
Made = Callable[[Direction, str, Path], Running]
_COPIERS = {(ROCKETMQ, ROCKETMQ): "Copier", (ROCKETMQ, KAFKA): "ToKafka", (KAFKA, ROCKETMQ): "FromKafka"}


class Run(NamedTuple):
    """A copy, and the memory of its process at the end, in MB."""

    copied: Copied
    megabytes: float


class Watched:
    """Runs a process on one core, and measures its memory before its end."""

    def __init__(self, running: Running, core: int | None = 0) -> None:
        self._running, self._core = running, core
        self.megabytes = 0.0

    @property
    def pid(self) -> int | None:
        return self._running.pid

    @property
    def alive(self) -> bool:
        return self._running.alive

    @property
    def log(self) -> Path:
        return self._running.log

    def start(self) -> None:
        with _on_core(self._core):
            self._running.start()

    def kill(self) -> None:
        if self.pid and psutil.pid_exists(self.pid):
            self.megabytes = psutil.Process(self.pid).memory_full_info().uss / 1e6
        self._running.kill()


def java(direction: Direction, topic: str, root: Path) -> Running:
    """Pull or poll, convert each message, send: from source code, which requires a JDK."""
    root.mkdir(parents=True, exist_ok=True)
    source, target = direction
    program = Path(__file__).with_name(f"{_COPIERS[source.system, target.system]}.java")
    path = [*jars(rocketmq.SET), *(jars(kafka.SET) if KAFKA in (source.system, target.system) else ())]
    options = [f"-Duser.home={root}", "-Drocketmq.client.logUseSlf4j=true"]
    return jvm("java", root, path, [*options, program, source.address, target.address, topic, TO, MOST], ["-Xmx1g"])


def ours(direction: Direction, topic: str, root: Path) -> Running:
    """One worker with all queues in one lease, with the environment of the application's workers."""
    ends = {name: _end(side) for name, side in direction._asdict().items()}
    job = {**ends, "queues": QUEUES, "topic": topic, "to": TO}
    return jobs.driver("bench.rocketmq.drive_copy", job, root, ENVIRONMENT)


def _end(side: Side) -> dict[str, str]:
    return {"system": side.system, "address": side.address, "place": side.place}


CONTENDERS: Mapping[str, Made] = {"java": java, "ours": ours}


def run(name: str, direction: Direction, load: Load, root: Path) -> Run:
    """Copy a load to an empty target. Repeated if the copier ends: the Java client may lose its first request to a
    broker, and gives up."""
    for left in reversed(range(TRIES)):
        direction.target.empty()
        memory.ready()
        watched = Watched(CONTENDERS[name](direction, load.topic, root / str(left)))
        try:
            return Run(steady(direction, load, watched, TO), watched.megabytes)
        except Failed as error:
            if not left:
                raise
            tell(f"  again: {error}")
    raise AssertionError("the last try returns or raises")


@contextmanager
def _on_core(core: int | None) -> Iterator[None]:
    """Processes that start here run on this core; None: on all."""
    before = os.sched_getaffinity(0)
    if core is not None:
        os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
