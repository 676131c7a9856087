"""Copies topics to Parquet files as a stream, in a process that a test kills.

Arguments: a folder, and `once` to end when all is read that there is at the start. The options are JSON in the folder.
"""

import json
import sys
from pathlib import Path

from trueup import register
from trueup.state.settings.settings import parse
from trueup.streams.catalog import sections
from trueup.streams.runtime.spark.session import session

if __name__ == "__main__":
    root = Path(sys.argv[1])
    options = json.loads((root / "options.json").read_text())
    conf = {"memory": "512m", "master": "local[2,4]"}
    spark = session(parse({"cluster": {"zookeeper": options["cluster.zookeeper"]}, "spark": conf}, sections()), root)
    register(spark)
    rows = spark.readStream.format("pulsar-ledgers").options(**options).load()
    writer = rows.writeStream.format("parquet").option("checkpointLocation", f"{root}/checkpoint")
    when = {"availableNow": True} if sys.argv[2:] == ["once"] else {"processingTime": "100 milliseconds"}
    writer.trigger(**when).start(f"{root}/rows").awaitTermination()  # type: ignore[arg-type]
