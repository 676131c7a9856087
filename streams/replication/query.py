"""Replication: one streaming query per link, whose micro-batches are rounds of leases.

No record passes through Spark. A clock triggers the batches. The driver computes the leases of a round from the current
settings and observations, each task executes one (`links.worker`), and the acknowledged positions are
written to the journal before the next round. If a task or this process fails, the positions of one lease are lost; the
next copier recovers them from the target.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol

from pyspark import RDD, SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from trueup.streams.replication.links.worker import ENVIRONMENT, LeaseOrder, LeaseResult, hold
from trueup.streams.runtime.spark.queries import periodic

EVERY = "1 second"
POOL = "TRUEUP_LINK"
_environment = threading.Lock()


class Leasing(Protocol):
    """The link whose leases the query executes."""

    name: str

    def begin(self) -> None:
        """Begin a new term: copiers of earlier terms do not continue."""

    def orders(self) -> list[LeaseOrder]:
        """The leases of the next round; none if there is nothing to copy."""

    def take(self, answers: Sequence[LeaseResult]) -> None:
        """Process the answers of the last round."""

    def rest(self) -> None:
        """Wait for a change, for a limited time."""


class Replication:
    """The query of one link."""

    def __init__(self, spark: Callable[[], SparkSession], link: Leasing, checkpoint: str) -> None:
        self._spark, self._link, self._checkpoint = spark, link, checkpoint
        self._tasks = LinkTasks()

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
            self._link.take(self._tasks.lend(frame.sparkSession, orders))
        else:
            self._link.rest()


def query_name(link: str) -> str:
    """The name of the query of a link."""
    return f"link-{link}"


class LinkTasks:
    """The tasks of one link. The data of a task is its number, which Spark caches on the executor that computed it
    first: Spark prefers that executor for later tasks with this number. A lease then follows the last one in the same
    process, where its copier is open; elsewhere it would have to wait until that copier must have ended."""

    def __init__(self) -> None:
        self._numbers: RDD[int] | None = None
        self._count = 0

    def lend(self, spark: SparkSession, orders: Sequence[LeaseOrder]) -> list[LeaseResult]:
        """Execute every order in a task of its own, concurrently. Returns the answers. Blocks for a lease."""
        context = spark.sparkContext
        numbers = self._cached(context, len(orders))
        with _environment:
            # Spark reuses workers by environment: the next lease of a link runs in the process of the last one.
            all_workers = context.environment
            context.environment = {**ENVIRONMENT, **all_workers, POOL: orders[0].lease.link}
            try:
                tasks = numbers.mapPartitions(partial(run_lease, tuple(orders)))
                assert tasks._jrdd is not None, "it is created now, with this environment"
            finally:
                context.environment = all_workers
        return tasks.collect()

    def _cached(self, context: SparkContext, count: int) -> "RDD[int]":
        if self._numbers is None or self._numbers.ctx is not context or self._count != count:
            if self._numbers is not None and self._numbers.ctx is context:
                self._numbers.unpersist()
            self._numbers, self._count = context.parallelize(list(range(count)), count).cache(), count
        return self._numbers


def run_lease(orders: Sequence[LeaseOrder], numbers: Iterable[int]) -> Iterator[LeaseResult]:
    """The body of a task: execute the orders with the numbers of its rows."""
    for number in numbers:
        yield hold(orders[number])
