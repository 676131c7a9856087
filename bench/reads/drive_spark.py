"""Reads topics with the data source pulsar-ledgers in Spark.

    python -m bench.reads.drive_spark JOB.json

The job contains: loads (topic and messages each), options of the data source, ends (the last entry of each topic), data
(a directory), environment, and what `bench.reads.meter` needs.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.reads.meter import Meter, tell_result
from trueup import register
from trueup.state.settings.settings import parse
from trueup.streams.catalog import sections
from trueup.streams.runtime.spark.session import session

COLUMNS = "ledger bigint, entry bigint, batch_index int, key binary, value binary, publish_time timestamp"
"""The same that the other contenders look at."""


def read(frame: DataFrame, topic: str, meter: Meter) -> dict[str, Any]:
    """Count messages and bytes: the result, without the time to the first row."""
    meter.begin()
    row = frame.agg(f.count("*"), f.sum(f.length("value"))).first()
    assert row is not None
    return meter.result(topic, row[0], row[1])


def first_s(frame: DataFrame) -> float:
    """The time to the first row, of a read of its own."""
    begin = time.monotonic()
    frame.first()
    return time.monotonic() - begin


def main(job: dict[str, Any]) -> None:
    os.environ.update(job["environment"])
    cluster = {"zookeeper": job["options"]["zookeeper"]}
    spark: SparkSession = session(parse({"cluster": cluster}, sections()), Path(job["data"]))
    register(spark)
    reader = spark.read.format("pulsar-ledgers").options(**job["options"]).schema(COLUMNS)
    topics = [topic for topic, _ in job["loads"]]
    frames = {topic: reader.load(topics=topic, to=job["ends"][topic.rpartition("/")[2]]) for topic in topics}
    results = {topic: read(frames[topic], topic, Meter(job)) for topic in topics}
    # Spark ends the Python process of a read that is not read to its end: these reads are the last ones.
    for topic, result in results.items():
        tell_result(result, first_s(frames[topic]))
    spark.stop()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
