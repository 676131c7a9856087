"""`python -m trueup.streams.archive`: records the class-data archive of Spark's JVM, once for each environment.

The queries of a small journal run until each has completed a batch. The JVM then ends in order and writes the archive,
about 200 MB. Starts of `trueup run` and of a standby that find it use about a third less CPU time.
"""

import os
import subprocess
import tempfile
import threading
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import DataFrame

from trueup.connectors.embedded.java import java
from trueup.connectors.embedded.kafka import Kafka
from trueup.state.bookkeeper.topology import Topology
from trueup.state.common.errors import Retry, Stop
from trueup.state.settings.settings import parse
from trueup.streams.bookkeeper.codec import topology_record
from trueup.streams.catalog import STREAMS, sections
from trueup.streams.journal.journal import Journal
from trueup.streams.runtime.spark import class_data
from trueup.streams.runtime.spark.queries import Sink
from trueup.streams.runtime.spark.session import session

BATCH_S, END_S = 300.0, 120.0


def record() -> Path:
    """Record the archive if it is missing. Returns its path. Raises `Retry` if Spark does not complete a batch or does
    not end in time, `Stop` if Java writes no archive."""
    if archive := class_data.recorded():
        return archive
    place = class_data.target()
    draft = place.with_suffix(f".{os.getpid()}")
    os.environ[class_data.OPTIONS] = f"-XX:ArchiveClassesAtExit={draft}"
    try:
        with tempfile.TemporaryDirectory(prefix="trueup-archive-") as root, Kafka(Path(root, "journal")) as broker:
            broker.up()
            _use(broker.bootstrap, Path(root, "data"))
        if not draft.exists():
            raise Stop("a Java that writes class-data archives", f"{java()}, which wrote none", "use another Java")
        draft.replace(place)
    finally:
        del os.environ[class_data.OPTIONS]
        draft.unlink(missing_ok=True)
    return place


def _use(bootstrap: str, data: Path) -> None:
    """Run the queries with state on a journal at ``bootstrap``, then end Spark."""
    raw = {"cluster": {"zookeeper": "127.0.0.1:1", "name": "archive"}, "deletion": {"owners": "pulsar"}}
    settings = parse(raw, sections())
    journal = Journal(bootstrap, settings.journal, settings.cluster.name)
    journal.create()
    journal.put([("topology", b"topology", topology_record(Topology(1, 1, ())))])
    spark = session(settings, data)
    spark.sparkContext._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]  # it prints
    process: subprocess.Popen[bytes] = SparkContext._gateway.proc  # type: ignore[union-attr]
    try:
        for stream in STREAMS:
            if (view := stream.view(lambda: spark, journal, settings)) is not None:
                done = threading.Event()
                query = view.start(_sink(done), f"file://{data}/checkpoints/{view.name}")
                if not done.wait(BATCH_S):
                    raise Retry(f"a batch of {view.name}", f"none in {BATCH_S:.0f} s", f"read {data}/spark.out")
                query.stop()
    finally:
        _end(process)


def _sink(done: threading.Event) -> Sink:
    def sink(frame: DataFrame, _batch: int) -> None:
        frame.toArrow()
        done.set()

    return sink


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the JVM in order: it writes the archive then. Raises `Retry`."""
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired as error:
        process.kill()
        raise Retry("the JVM of Spark to end", f"it runs after {END_S:.0f} s", "try again") from error


if __name__ == "__main__":
    print(record())
