"""One worker of a link from or to RocketMQ in a separate process, which copies until it is killed.

    python -m bench.rocketmq.drive_copy JOB.json

The job contains: source, target (each with system, address, and place of its logs), queues (their number), topic, to.
"""

import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from trueup.connectors.contract import Assignment, Copier, Endpoint, Lease, LogId, Position
from trueup.state.common.errors import Retry
from trueup.streams.replication.clusters import connector_of
from trueup.streams.runtime.named import imported

SLICE_S, AGAIN_S = 1.0, 0.2


def copy(job: dict[str, Any]) -> None:
    """Copy one lease of all queues."""
    source, target = (
        Endpoint(name, job[name]["address"], bit, {}, job[name]["system"])
        for bit, name in enumerate(("source", "target"))
    )
    here, there = job["source"]["place"], job["target"]["place"]
    assignments = tuple(
        Assignment(LogId(job["topic"], number, here), LogId(job["to"], number, there), Position(), 0)
        for number in range(job["queues"])
    )
    lease = Lease("bench", source, target, 1, "records", assignments, clusters={"source": 0, "target": 1})
    copier = _opened(lease)
    while True:
        copier.copy(time.monotonic() + SLICE_S)
        copier.progress()


def _opened(lease: Lease) -> Copier:
    """The copier of a lease. Brokers that were just started are retried, as by a worker."""
    connector = imported(connector_of(lease.source.system, lease.target.system, "records"))()
    while True:
        with suppress(Retry):
            made: Copier = connector.open(lease)
            return made
        time.sleep(AGAIN_S)


if __name__ == "__main__":
    copy(json.loads(Path(sys.argv[1]).read_text()))
