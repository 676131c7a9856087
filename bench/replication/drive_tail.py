"""One Trueup link as in the application, with leases in the Spark workers of a streaming query, in a separate process.

    python -m bench.replication.drive_tail JOB.json

The job is the job of `bench.replication.drive_copy` with lease_s and data added, and optionally spark, that section of
the settings. The process copies until it is killed; its parent polls the target.
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
from trueup.streams.replication.links.worker import LeaseOrder, LeaseResult
from trueup.streams.replication.query import Replication
from trueup.streams.runtime.spark.session import session

SETTINGS: dict[str, Any] = {"cluster": {"zookeeper": "127.0.0.1:1"}, "spark": {"master": "local[2]", "memory": "512m"}}


class Rounds:
    """Implements `streams.replication.query.Leasing` with one lease. It repeats from where the last one ended."""

    name = "bench"

    def __init__(self, job: dict[str, Any]) -> None:
        self._lease, self._lease_s, self._number = lease_of(job), job["lease_s"], 0

    def begin(self) -> None:
        """There is only one term."""

    def orders(self) -> list[LeaseOrder]:
        """The next lease."""
        self._number += 1
        connector = connector_of(KAFKA, KAFKA, self._lease.path)
        return [LeaseOrder(self._lease, connector, self.name, self._number, 0, self._lease_s, lingers=True, last=False)]

    def take(self, answers: Sequence[LeaseResult]) -> None:
        """Store where the next lease begins. An error ends the process."""
        if answers[0].error is not None:
            raise answers[0].error
        positions = {row.source: row.position for row in answers[0].progress}
        held = (each._replace(position=positions.get(each.source, each.position)) for each in self._lease.assignments)
        self._lease = replace(self._lease, assignments=tuple(held))

    def rest(self) -> None:
        """Does not wait: a lease is always due."""


def main(job: dict[str, Any]) -> None:
    """Copy until killed."""
    data = Path(job["data"])
    given = {"journal": {"bootstrap": job["source"]}, **({"spark": job["spark"]} if "spark" in job else {})}
    spark = session(parse({**SETTINGS, **given}, ()), data)
    Replication(lambda: spark, Rounds(job), f"file://{data / 'rounds'}").start().awaitTermination()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
