"""Streaming reconciliation for log-storage clusters: declare what should be true, watch, close the difference."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Register the data source ``pulsar-ledgers`` with a Spark session; see docs/reads.md."""
    from trueup.streams.topic_reader.spark import source  # imports Spark, which a command does not need

    source.register(spark)
