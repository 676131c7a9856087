"""A standalone worker: copies leases of one link in turn and stores positions in a file, in the role of the driver.

``python -m tests.replication.worker JOB`` where JOB is a file created by `Worker`. It may be killed at any time.
"""

import importlib
import pickle
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from trueup.connectors.contract import Connector, Lease, LogId, Position
from trueup.connectors.embedded.processes import Process
from trueup.state.common.errors import Retry

AGAIN_S = 0.5


class Job(NamedTuple):
    """The input of a worker. ``connector``: module:name of a class without arguments."""

    lease: Lease
    connector: str
    lease_s: float


class Worker:
    """The process that copies a lease repeatedly, ``lease_s`` seconds at a time."""

    def __init__(self, root: Path, lease: Lease, connector: str, lease_s: float = 3.0) -> None:
        root.mkdir(parents=True, exist_ok=True)
        (root / "job").write_bytes(pickle.dumps(Job(lease, connector, lease_s)))
        command = [sys.executable, "-m", "tests.replication.worker", root / "job"]
        self.process = Process(f"worker of {lease.link}", command, root / "worker.log")

    def start(self) -> None:
        self.process.start()

    def crash(self) -> None:
        """SIGKILL the process and restart it with the positions of the last completed lease."""
        assert self.process.alive, f"the worker ended by itself with {self.process.exit_code}\n{self.process.tail()}"
        self.process.kill()
        self.process.start()

    def close(self) -> None:
        self.process.kill()


def main(path: Path) -> None:
    """Copy until killed."""
    job: Job = pickle.loads(path.read_bytes())
    module, _, name = job.connector.partition(":")
    connector: Connector = getattr(importlib.import_module(module), name)()
    kept = path.with_name("positions")
    while True:
        positions = pickle.loads(kept.read_bytes()) if kept.exists() else {}
        lease = _from(job.lease, positions)
        # The position that a copier derives from the target for a chosen position is stored before anything is copied.
        chosen = any(each.position.chosen for each in lease.assignments)
        try:
            found = _hold(connector, lease, 0.0 if chosen else job.lease_s)
        except Retry as error:
            _say(error)
            time.sleep(AGAIN_S)
            continue
        draft = kept.with_name("positions.draft")
        draft.write_bytes(pickle.dumps({**positions, **found}))
        draft.replace(kept)


def _hold(connector: Connector, lease: Lease, lease_s: float) -> dict[LogId, Position]:
    """Run one lease and return the position of each partition."""
    copier = connector.open(lease)
    try:
        copier.copy(time.monotonic() + lease_s)
        progress = copier.progress()
    finally:
        copier.close()
    for row in progress:
        _say(replace(row, runs=row.runs[-1:]))
    return {row.source: row.position for row in progress}


def _from(lease: Lease, positions: Mapping[LogId, Position]) -> Lease:
    held = (each._replace(position=positions.get(each.source, each.position)) for each in lease.assignments)
    return replace(lease, assignments=tuple(held))


def _say(what: object) -> None:
    print(f"{time.time():.3f}", what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    # The job file refers to this class by the module's name, so the module is imported under that name.
    importlib.import_module("tests.replication.worker").main(Path(sys.argv[1]))
