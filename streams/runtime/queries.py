"""How queries are started: into a sink for each batch, at an interval, with a checkpoint. And queries whose batches are
turns: a clock makes one at a time, and all that counts is kept elsewhere."""

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

Sink = Callable[[DataFrame, int], None]
"""Gets a batch and its number."""


def started(rows: DataFrame, name: str, every: str, sink: Sink, checkpoint: str) -> StreamingQuery:
    """Start a query that gives new and changed rows to ``sink``, as often as the interval ``every`` says."""
    return (
        rows.writeStream.outputMode("update")
        .queryName(name)
        .foreachBatch(sink)
        .trigger(processingTime=every)
        .option("checkpointLocation", checkpoint)
        .start()
    )


def turns(spark: SparkSession, name: str, every: str, turn: Sink, checkpoint: str) -> StreamingQuery:
    """Start a query that calls ``turn`` as often as the interval ``every`` says. The checkpoint counts turns and holds
    nothing else."""
    clock = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).option("numPartitions", 1)
    return started(clock.load(), name, every, turn, checkpoint)
