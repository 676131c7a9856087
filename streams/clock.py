"""Queries whose batches are turns: a clock makes one at a time, and all that counts is kept elsewhere."""

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

Turn = Callable[[DataFrame, int], None]


def turns(spark: SparkSession, name: str, every: str, turn: Turn, checkpoint: str) -> StreamingQuery:
    """Start a query that calls ``turn`` as often as the interval ``every`` says. The checkpoint counts turns and holds
    nothing else."""
    clock = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).option("numPartitions", 1)
    return (
        clock.load()
        .writeStream.queryName(name)
        .foreachBatch(turn)
        .trigger(processingTime=every)
        .option("checkpointLocation", checkpoint)
        .start()
    )
