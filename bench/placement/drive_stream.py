"""The placement stream in a separate process: loads ledgers, removes bookies, and reports the durations.

    python -m bench.placement.drive_stream JOB.json

The job contains: bootstrap, data, sizes, deaths (0: only the growth is measured); optionally spark (that section of the
settings) and workers (process ids whose CPU also counts). Standard output contains one JSON object per line.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Condition
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from bench.common.measure import cpu_s, load
from bench.placement import records
from trueup.connectors.embedded.processes import wait_until
from trueup.state.bookkeeper.topology import Topology
from trueup.state.placement.board import Board
from trueup.state.settings.settings import Settings, parse
from trueup.streams.bookkeeper.codec import topology_record
from trueup.streams.journal.journal import Journal
from trueup.streams.placement.query import answer_of, start
from trueup.streams.runtime.spark.session import session
from trueup.streams.runtime.supervisor import drain

LIMIT_S = 600.0


class Drive:
    """One growing view in one Spark session."""

    def __init__(self, settings: Settings, bootstrap: str, data: Path, workers: Sequence[int] = ()) -> None:
        self._settings, self._data, self._pids = settings, data, (os.getpid(), *workers)
        self._journal = Journal(bootstrap, settings.journal, settings.cluster.name)
        self._journal.create()
        self._spark: SparkSession = session(settings, data)
        self._board, self._changed = Board(), Condition()
        self._epoch = self._ledgers = 0

    def run(self, sizes: list[int], deaths: int) -> None:
        """Grow to each size and lose bookies there."""
        for size in sizes:
            begun = time.monotonic()
            records.publish(self._journal, self._ledgers, size)
            say(what="published", ledgers=size - self._ledgers, s=time.monotonic() - begun)
            before, self._ledgers = self._ledgers, size
            query = self._ingest(size - before)
            self._settle(None)  # the first settlement of a run also loads code
            for number in range(deaths):
                self._die(3 * number + 7)
            drain(query)
        if deaths:
            self._noop(sizes[-1])

    def _ingest(self, arriving: int) -> StreamingQuery:
        if not self._epoch:
            self._put(records.topology(1))
        return self._timed("ingest", arriving, self._placement)

    def _noop(self, ledgers: int) -> None:
        drain(self._timed("noop", ledgers, self._plain))

    def _timed(self, what: str, records_: int, start: Callable[[], StreamingQuery]) -> StreamingQuery:
        spent, begun = cpu_s(*self._pids), time.monotonic()
        query = start()
        wait_until(lambda: self._taken(query), LIMIT_S, f"{what} of {records_} records")
        say(
            what=what,
            ledgers=self._ledgers,
            records=records_,
            s=time.monotonic() - begun,
            cpu_s=cpu_s(*self._pids) - spent,
        )
        return query

    def _taken(self, query: StreamingQuery) -> bool:
        """Whether completed batches contain every ledger record."""
        if query.exception() is not None:
            raise SystemExit(str(query.exception()))
        last: Any = query.lastProgress
        ends = (
            [json.loads(s["endOffset"]) if isinstance(s["endOffset"], str) else s["endOffset"] for s in last["sources"]]
            if last
            else []
        )
        topic = self._journal.topic("ledgers")
        return sum(sum((end or {}).get(topic, {}).values()) for end in ends) >= self._ledgers

    def _placement(self) -> StreamingQuery:
        checkpoint = f"file://{self._data / 'checkpoint'}"
        return start(self._spark, self._journal, self._settings.spark, self._take, checkpoint)

    def _plain(self) -> StreamingQuery:
        """Spark's Kafka source without a sink."""
        return (
            self._spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self._journal.bootstrap)
            .option("subscribe", self._journal.topic("ledgers"))
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", self._settings.spark.max_records)
            .load()
            .writeStream.format("noop")
            .trigger(processingTime="0 seconds")
            .option("checkpointLocation", f"file://{self._data / 'noop'}")
            .start()
        )

    def _take(self, frame: DataFrame, _batch: int) -> None:
        rows = frame.toArrow().to_pylist()
        with self._changed:
            for row in rows:
                self._board.apply(*answer_of(row))
            self._changed.notify_all()

    def _die(self, bookie: int) -> None:
        """Remove a bookie until its ledgers are reported, then add it again."""
        spent, queue = cpu_s(*self._pids), load()
        taken = self._settle(bookie)
        found, wanted = len(self._board.findings), records.holding(bookie, self._ledgers)
        if found != wanted:
            raise SystemExit(f"bookie {bookie}: expected {wanted} ledgers, found {found}")
        say(what="death", ledgers=self._ledgers, hits=found, s=taken, cpu_s=cpu_s(*self._pids) - spent, load=queue)
        self._settle(None)

    def _settle(self, lost: int | None) -> float:
        """Seconds from the publication of a new topology until the board has the answers of all buckets."""
        begun = time.monotonic()
        self._put(records.topology(self._epoch + 1, lost))
        buckets = self._settings.spark.buckets
        with self._changed:
            if not self._changed.wait_for(lambda: self._board.settled(buckets, self._epoch), LIMIT_S):
                raise SystemExit("the buckets did not answer")
        return time.monotonic() - begun

    def _put(self, topology: Topology) -> None:
        self._epoch = topology.epoch
        self._journal.put([("topology", b"topology", topology_record(topology))])


def say(**figures: object) -> None:
    """Print one result line for the parent process."""
    print(json.dumps(figures), flush=True)


def main(path: str) -> None:
    job = json.loads(Path(path).read_text())
    given = {"journal": {"bootstrap": job["bootstrap"]}, "spark": job.get("spark", {})}
    settings = parse({"cluster": {"zookeeper": "127.0.0.1:1", "name": "stream"}, **given}, ())
    Drive(settings, job["bootstrap"], Path(job["data"]), job.get("workers", ())).run(job["sizes"], job["deaths"])


if __name__ == "__main__":
    main(sys.argv[1])
