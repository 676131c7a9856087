"""Tests that Spark, its jars and Trueup's operator work together, with one small batch through all of them: on this
machine, or on the executors and the checkpoint location of the settings. Nobody releases this set of connectors
together, so `trueup doctor` tests it."""

import tempfile
import uuid
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from trueup.connectors.embedded.processes import wait_until
from trueup.state.bookkeeper.topology import Bookie, Status, Topology
from trueup.state.common.errors import Retry, Stop
from trueup.state.settings.settings import Settings
from trueup.streams.bookkeeper.codec import topology_bytes
from trueup.streams.bookkeeper.topics import LEDGERS
from trueup.streams.journal.codec import encode, ledger_key
from trueup.streams.placement.query import LEDGER, TOPOLOGY, AnswerRow, answer_of, fold
from trueup.streams.runtime.spark.checkpoints import folder_of, forget
from trueup.streams.runtime.spark.cluster import task_slots
from trueup.streams.runtime.spark.session import session

EXECUTORS_S = 60.0
_LEDGER = {
    "ledger": 1,
    "mzxid": 1,
    "version": 0,
    "ctime_ms": 0,
    "seen_ms": 0,
    "state": 3,
    "ensemble": 2,
    "quorum": 2,
    "ack_quorum": 2,
    "last_entry": 0,
    "length": 0,
    "custom": {},
    "error": "",
    "fragments": [{"first_entry": 0, "bookies": ["a:1", "b:1"]}],
}


def self_test(settings: Settings) -> str:
    """Run the test; returns what works, in one line. Raises `Stop` for a wrong result; Spark's own errors pass."""
    with tempfile.TemporaryDirectory(prefix="trueup-") as scratch:
        spark, name = session(settings, Path(scratch)), f"doctor-{uuid.uuid4().hex}"
        folder = folder_of(settings.spark, Path(scratch))
        try:
            _executors(spark, settings)
            _kafka(spark)
            try_operator(spark, f"{folder}/{name}")
            summary = f"Spark {spark.version} with connector, Avro and a stateful batch"
            return summary + (f" on {settings.spark.master}" if settings.spark.on_cluster else "")
        finally:
            forget(spark, folder, name)
            spark.stop()


def _executors(spark: SparkSession, settings: Settings) -> None:
    """Wait for an executor. Without one, Spark waits for ever. Raises `Stop`."""
    try:
        wait_until(lambda: task_slots(spark, settings.spark.on_cluster), EXECUTORS_S, "executors")
    except Retry as error:
        found, todo = f"none within {EXECUTORS_S:.0f} s", "start workers, or free cores and memory of theirs"
        raise Stop(f"executors of the Spark cluster at {settings.spark.master}", found, todo) from error


def _kafka(spark: SparkSession) -> None:
    """Load the connector's classes; connections to brokers are another check of `trueup doctor`."""
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.kafka010.KafkaSourceProvider()


def try_operator(spark: SparkSession, place: str) -> None:
    """Run one stateful batch, with its files in the location ``place``. Raises `Stop` for a wrong result."""
    topology = Topology(1, 0, (Bookie("a:1", "/a", Status.WRITABLE, 0), Bookie("b:1", "/a", Status.WRITABLE, 0)))
    rows = [(LEDGER, ledger_key(1), encode(LEDGERS, _LEDGER)), (TOPOLOGY, b"topology", topology_bytes(topology))]
    records = "kind int, key binary, value binary"
    spark.createDataFrame(rows, records).coalesce(1).write.parquet(f"{place}/records")
    results: list[AnswerRow] = []
    query = (
        fold(spark.readStream.schema(records).parquet(f"{place}/records"), 1)
        .writeStream.outputMode("update")
        .foreachBatch(lambda frame, _batch: results.extend(frame.toArrow().to_pylist()))
        .option("checkpointLocation", f"{place}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    ledgers = [int(i) for row in results for i in answer_of(row)[1].findings["ledger"]]
    if ledgers != [1]:
        raise Stop(
            "a finding of the one ledger on one rack", f"{ledgers}", "reinstall the locked requirements and jars"
        )
