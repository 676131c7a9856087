"""One Trueup worker in a separate process: copies a topic and reports the costs.

    python -m bench.replication.drive_copy JOB.json

The job contains: source, target (bootstrap), brokers (process ids), topic, to, path, records, limit_s. Standard output
contains one JSON object.
"""

import importlib
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.common.measure import cpu_s
from bench.replication.clusters import PARTITIONS, Ends
from trueup.connectors.contract import Assignment, Connector, Endpoint, Lease, LogId, Position
from trueup.connectors.kafka.replication.batch_stats import sample
from trueup.state.replication.anomalies import PartitionFacts, choose
from trueup.streams.replication.clusters import KAFKA, connector_of, paths_of

SLICE_S = 1.0
LOOK_S = 0.05


def copy(job: dict[str, Any]) -> None:
    """Copy from the first connection to the last acknowledgement, or for ``limit_s``. CPU is that of this process."""
    connectors = {path: imported(path) for path in paths_of(KAFKA, KAFKA)}
    begun, spent, brokers = time.monotonic(), time.process_time(), cpu_s(*job["brokers"])
    ends, connector = Ends(job["target"], job["to"]), connectors[path_of(job)]()
    copier = connector.open(lease_of(job))
    watch = Watch(ends, job["records"])
    while not watch.done.is_set() and time.monotonic() - begun < job["limit_s"]:
        copier.copy(time.monotonic() + SLICE_S)
    found = watch.close()
    say(
        what="copied",
        path=job["path"],
        records=found["records"],
        s=found["at"] - begun,
        cpu_s=found["cpu_s"] - spent,
        broker_s=cpu_s(*job["brokers"]) - brokers,
    )
    copier.close()
    ends.close()


class Watch:
    """Polls the target during the copy, so that idle time after the last record does not count."""

    def __init__(self, ends: Ends, wanted: int) -> None:
        self.done = threading.Event()
        self._ends, self._wanted, self._stop = ends, wanted, threading.Event()
        self._last = self._look()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> dict[str, Any]:
        """The number of records at the target, and the time and CPU when all had arrived."""
        self._stop.set()
        self._thread.join()
        return self._last

    def _run(self) -> None:
        while not self._stop.wait(LOOK_S) and self._last["records"] < self._wanted:
            self._last = self._look()
        self.done.set()

    def _look(self) -> dict[str, Any]:
        records = self._ends.records()
        return {"records": records, "at": time.monotonic(), "cpu_s": time.process_time()}


def imported(path: str) -> Callable[[], Connector]:
    """The factory of the connector of a path."""
    module, _, name = connector_of(KAFKA, KAFKA, path).partition(":")
    made: Callable[[], Connector] = getattr(importlib.import_module(module), name)
    return made


def path_of(job: dict[str, Any]) -> str:
    """The path of the job. For auto, the path that the application would choose, which is also stored in the job."""
    if job["path"] == "auto":
        endpoint = Endpoint("source", job["source"], 0)
        found = sample(endpoint, [LogId(job["topic"], number) for number in range(PARTITIONS)])
        job["path"] = choose(PartitionFacts(**found._asdict())).path
    path: str = job["path"]
    return path


def lease_of(job: dict[str, Any]) -> Lease:
    """A lease of all partitions, from the start."""
    assignments = tuple(
        Assignment(LogId(job["topic"], number), LogId(job["to"], number), Position(), 0) for number in range(PARTITIONS)
    )
    source, target = (Endpoint(name, job[name], bit, system=KAFKA) for bit, name in enumerate(("source", "target")))
    return Lease("bench", source, target, 1, job["path"], assignments, clusters={"source": 0, "target": 1})


def say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    copy(json.loads(Path(sys.argv[1]).read_text()))
