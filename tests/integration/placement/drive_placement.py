"""A driver of the placement stream in a separate process that a test can kill.

    python -m tests.integration.placement.drive_placement JOB.json

The job contains: settings, bootstrap, data, epoch, out. The driver runs the stream until it has processed all records.
Then it publishes the job's topology again with the given epoch and writes the answers of all buckets to ``out`` (.npy).
"""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from pyspark.sql import DataFrame

from tests.configuration import parse
from trueup.state.placement.board import Board
from trueup.streams.bookkeeper.codec import topology_record
from trueup.streams.journal.journal import Journal
from trueup.streams.placement.query import answer_of, answers
from trueup.streams.runtime.spark.session import session
from trueup.streams.runtime.supervisor import drain


def main(job_path: str) -> None:
    job = json.loads(Path(job_path).read_text())
    settings = parse(job["settings"])
    journal = Journal(job["bootstrap"], settings.journal, settings.cluster.name)
    data, board = Path(job["data"]), Board()

    def take(frame: DataFrame, _batch: int) -> None:
        for row in frame.toArrow().to_pylist():
            board.apply(*answer_of(row))

    chosen = settings.spark
    query = (
        answers(session(settings, data), journal, chosen.buckets, chosen.max_records)
        .writeStream.outputMode("update")
        .queryName("placement")
        .foreachBatch(take)
        .trigger(processingTime=f"{chosen.trigger_ms} milliseconds")
        .option("checkpointLocation", f"file://{data / 'checkpoint'}")
        .start()
    )
    while query.isActive and not caught_up(query.lastProgress):
        time.sleep(0.1)
    last = journal.newest("topology")[b"topology"]
    journal.put([("topology", b"topology", topology_record(replace(last, epoch=job["epoch"])))])
    while query.isActive and not board.settled(chosen.buckets, job["epoch"]):
        time.sleep(0.1)
    error = query.exception()
    drain(query)
    if error is not None:
        raise SystemExit(str(error))
    np.save(job["out"], board.findings)


def caught_up(progress: dict | None) -> bool:
    return progress is not None and all(s["endOffset"] == s["latestOffset"] for s in progress["sources"])


if __name__ == "__main__":
    main(sys.argv[1])
