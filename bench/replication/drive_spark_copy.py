"""Spark's Kafka source and sink in a separate process, copying one topic to another.

    python -m bench.replication.drive_spark_copy JOB.json

The job contains: source, target (bootstrap), topic, to, data. The process copies until it is killed; its parent polls
the target. The sink sends no timestamps, so copied records carry the time of the copy.
"""

import json
import sys
from pathlib import Path
from typing import Any

from trueup.state.settings.settings import parse
from trueup.streams.runtime.spark.session import session

PER_TRIGGER = 500_000
SINK: dict[str, str | int] = {
    "kafka.compression.type": "lz4",
    "kafka.batch.size": 512 << 10,
    "kafka.linger.ms": 50,
    "kafka.buffer.memory": 64 << 20,
}
SETTINGS: dict[str, Any] = {
    "cluster": {"zookeeper": "127.0.0.1:1"},
    # Both compilers of the JVM, unlike in the application, because Java does all the work here.
    "spark": {
        "master": "local[2]",
        "memory": "1500m",
        "conf": {"spark.driver.extraJavaOptions": "-Djava.net.preferIPv4Stack=true"},
    },
}


def main(job: dict[str, Any]) -> None:
    """Copy until killed."""
    data = Path(job["data"])
    spark = session(parse(SETTINGS, ()), data)
    source = {
        "kafka.bootstrap.servers": job["source"],
        "subscribe": job["topic"],
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": PER_TRIGGER,
    }
    rows = spark.readStream.format("kafka").options(**source).load()
    sink = {"kafka.bootstrap.servers": job["target"], "topic": job["to"], "checkpointLocation": str(data / "copy")}
    copied = rows.select("key", "value", "headers", "partition").writeStream.format("kafka")
    copied.options(**SINK, **sink).start().awaitTermination()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
