"""One link of ours as the application runs it, leases of a streaming query in Spark's workers, as a process of its own.

    python -m bench.replication.drive_tail JOB.json

The job is that of `bench.replication.drive_copy`, with lease_s and data. It copies until it is killed; whoever started
it watches the target.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.replication.drive_copy import lease_of
from trueup.state.settings.settings import parse
from trueup.streams.replication.clusters import KAFKA, connector_of
from trueup.streams.replication.links.worker import Answer, Order
from trueup.streams.replication.query import Replication
from trueup.streams.runtime.spark.session import session

SETTINGS: dict[str, Any] = {"cluster": {"zookeeper": "127.0.0.1:1"}, "spark": {"master": "local[2]", "memory": "512m"}}


class Rounds:
    """Implements `streams.replication.query.Leasing`: one lease, again and again, each from where the last one
    ended."""

    name = "bench"

    def __init__(self, job: dict[str, Any]) -> None:
        self._lease, self._lease_s, self._number = lease_of(job), job["lease_s"], 0

    def begin(self) -> None:
        """There is one term."""

    def orders(self) -> list[Order]:
        """The next lease."""
        self._number += 1
        connector = connector_of(KAFKA, KAFKA, self._lease.path)
        return [Order(self._lease, connector, self.name, self._number, 0, self._lease_s, lingers=True, last=False)]

    def take(self, answers: Sequence[Answer]) -> None:
        """Where the next one begins. An error ends the process."""
        if answers[0].error is not None:
            raise answers[0].error
        positions = {row.source: row.position for row in answers[0].progress}
        held = (each._replace(position=positions.get(each.source, each.position)) for each in self._lease.assignments)
        self._lease = replace(self._lease, assignments=tuple(held))

    def rest(self) -> None:
        """There is always something to do."""


def main(job: dict[str, Any]) -> None:
    """Copy until killed."""
    data = Path(job["data"])
    spark = session(parse(SETTINGS), data)
    Replication(lambda: spark, Rounds(job), str(data / "rounds")).start().awaitTermination()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
