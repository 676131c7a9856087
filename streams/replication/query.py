"""Replication: one streaming query for each link, whose micro-batches are rounds of leases.

No record passes through Spark. A clock makes a batch at a time; the driver works out the leases of the round from what
is set and known at that moment, every task holds one of them (`streams.replication.worker`), and what the tasks say was
acknowledged goes onto the journal before the next round. So a task that dies, or this process, costs a lease's worth of
knowledge, which the copier that opens next finds at the target.
"""

import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from trueup.streams.replication.worker import Answer, Order, hold
from trueup.streams.runtime.queries import turns

ANSWERS = "body binary"
EVERY = "1 second"
POOL = "TRUEUP_LINK"
_environment = threading.Lock()


class Leasing(Protocol):
    """The link whose leases are held."""

    name: str

    def begin(self) -> None:
        """A new term: no copier of an earlier one goes on."""

    def orders(self) -> list[Order]:
        """The leases of the next round; none when nothing is to be copied now."""

    def take(self, answers: Sequence[Answer]) -> None:
        """What the tasks of the last round said."""

    def rest(self) -> None:
        """Wait until there may be something to copy, or for a while."""


class Replication:
    """The query of one link."""

    def __init__(self, spark: Callable[[], SparkSession], link: Leasing, checkpoint: str) -> None:
        self._spark, self._link, self._checkpoint = spark, link, checkpoint

    @property
    def name(self) -> str:
        """What the query is called."""
        return query_name(self._link.name)

    def start(self) -> StreamingQuery:
        """Start the query from its checkpoint, which counts rounds and holds nothing else."""
        self._link.begin()
        return turns(self._spark(), self.name, EVERY, self._round, self._checkpoint)

    def _round(self, frame: DataFrame, _batch: int) -> None:
        orders = self._link.orders()
        if orders:
            self._link.take(lend(frame.sparkSession, orders))
        else:
            self._link.rest()


def query_name(link: str) -> str:
    """Name of the query of a link."""
    return f"link-{link}"


def lend(spark: SparkSession, orders: Sequence[Order]) -> list[Answer]:
    """Have every order carried out by a task of its own, all at once; what the tasks said. Blocks for a lease."""
    context = spark.sparkContext
    with _environment:
        # Workers are kept apart by environment: a link's next lease finds the process that held the last one.
        context.environment[POOL] = orders[0].lease.link
        try:
            numbers = spark.range(0, len(orders), 1, len(orders))
            frame = numbers.mapInArrow(partial(run_lease, tuple(orders)), ANSWERS)
        finally:
            del context.environment[POOL]
    # Written by the task just now, and read by nobody else.
    return [pickle.loads(row.body) for row in frame.collect()]  # noqa: S301


def run_lease(orders: Sequence[Order], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a task does: the orders whose numbers it is given."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            body = pickle.dumps(hold(orders[number]))
            yield pa.RecordBatch.from_arrays([pa.array([body], pa.binary())], ["body"])
