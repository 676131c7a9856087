"""Starts streaming queries with a sink for each batch, an interval and a checkpoint.

Queries without input are triggered by a clock and keep their state elsewhere.
"""

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from trueup.streams.runtime.passes import within

Sink = Callable[[DataFrame, int], None]
"""Receives a batch and its number."""


def started(rows: DataFrame, name: str, every: str, sink: Sink, checkpoint: str) -> StreamingQuery:
    """Start a query that passes new and changed rows to ``sink``, at the interval ``every``."""

    def batch(frame: DataFrame, number: int) -> None:
        with within(name, number):
            sink(frame, number)

    return (
        rows.writeStream.outputMode("update")
        .queryName(name)
        .foreachBatch(batch)
        .trigger(processingTime=every)
        .option("checkpointLocation", checkpoint)
        .start()
    )


def periodic(spark: SparkSession, name: str, every: str, sink: Sink, checkpoint: str) -> StreamingQuery:
    """Start a query that calls ``sink`` at the interval ``every``. The checkpoint only holds the number of the
    batch."""
    clock = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).option("numPartitions", 1)
    return started(clock.load(), name, every, sink, checkpoint)
