"""Replication: one streaming query per link, whose micro-batches are rounds of leases.

No record passes through Spark. A clock triggers the batches. The driver computes the leases of a round from the current
settings and observations, each task executes one (`links.worker`), and the acknowledged positions are
written to the journal before the next round. If a task or this process fails, the positions of one lease are lost; the
next copier recovers them from the target.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from trueup.streams.replication.links.worker import Answer, Order, hold
from trueup.streams.runtime.spark.queries import periodic

EVERY = "1 second"
POOL = "TRUEUP_LINK"
_environment = threading.Lock()


class Leasing(Protocol):
    """The link whose leases the query executes."""

    name: str

    def begin(self) -> None:
        """Begin a new term: copiers of earlier terms do not continue."""

    def orders(self) -> list[Order]:
        """The leases of the next round; none if there is nothing to copy."""

    def take(self, answers: Sequence[Answer]) -> None:
        """Process the answers of the last round."""

    def rest(self) -> None:
        """Wait for a change, for a limited time."""


class Replication:
    """The query of one link."""

    def __init__(self, spark: Callable[[], SparkSession], link: Leasing, checkpoint: str) -> None:
        self._spark, self._link, self._checkpoint = spark, link, checkpoint

    @property
    def name(self) -> str:
        """The name of the query."""
        return query_name(self._link.name)

    def start(self) -> StreamingQuery:
        """Start the query from its checkpoint, which holds only the number of the round."""
        self._link.begin()
        return periodic(self._spark(), self.name, EVERY, self._round, self._checkpoint)

    def _round(self, frame: DataFrame, _batch: int) -> None:
        orders = self._link.orders()
        if orders:
            self._link.take(lend(frame.sparkSession, orders))
        else:
            self._link.rest()


def query_name(link: str) -> str:
    """The name of the query of a link."""
    return f"link-{link}"


def lend(spark: SparkSession, orders: Sequence[Order]) -> list[Answer]:
    """Execute every order in a task of its own, concurrently. Returns the answers. Blocks for a lease.

    The tasks exchange pickles. With Arrow, each worker would import pyarrow and pandas, 70 MB.
    """
    context = spark.sparkContext
    with _environment:
        # Spark reuses workers by environment: the next lease of a link runs in the process of the last one.
        context.environment[POOL] = orders[0].lease.link
        try:
            tasks = context.parallelize(orders, len(orders)).map(hold)
            tasks.id()  # creates the function of the tasks, with the environment
        finally:
            del context.environment[POOL]
    return tasks.collect()
