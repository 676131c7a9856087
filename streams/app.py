"""`trueup run`: one process that observes, folds, decides and acts until it is told to stop.

Started in the order in which things are needed: journal, what it remembers, capture, Spark, the stream, the API.
"""

import fcntl
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from connectors.sandbox.kafka import Kafka
from state.errors import BadSettings
from state.settings import Settings
from streams import logs
from streams.bookkeeper import BookKeeper
from streams.engine import Application
from streams.journal import Journal
from streams.keeper import Keeper
from streams.listener import Listener
from streams.live import Live
from streams.metrics import Metrics
from streams.placement import answers
from streams.reconciler import Reconciler
from streams.session import session
from streams.supervisor import Supervisor
from streams.web.api import create_app
from streams.web.server import Server, claim

log = logging.getLogger(__name__)
TICK_S = 0.2
FORM = 1  # of the state in the checkpoint


def now_ms() -> int:
    """The clock of the application, ms since the epoch."""
    return time.time_ns() // 1_000_000


def run(settings: Settings) -> int:
    """Run until SIGTERM or SIGINT; the exit code. Raises our errors when it cannot start."""
    logs.start()
    data = Path(settings.data_dir).absolute()
    data.mkdir(parents=True, exist_ok=True)
    stop = threading.Event()
    with _alone(data), _signals(stop), ExitStack() as stack:
        parts = Running(settings, data, stop, stack)
        parts.until_stopped()
    return 0


class Running:
    """The parts of a running application."""

    def __init__(self, settings: Settings, data: Path, stop: threading.Event, stack: ExitStack) -> None:
        self._settings, self._data, self._stop, self._stack = settings, data, stop, stack
        # Taken before anything is started: whoever has to choose another port need not wait to be told.
        self._socket = stack.enter_context(claim(settings.http.host, settings.http.port))
        self._metrics = Metrics(cluster=settings.cluster.name)
        self._supervisor = Supervisor(stop, self._metrics.restarted)
        self._journal = self._open_journal()
        self._live = Live(settings, self._journal, now_ms)
        self._live.load()
        self._keeper = Keeper(self._journal, self._live, now_ms)
        self._keeper.load()
        self._cluster = BookKeeper(self._live, self._journal, self._keeper, self._metrics, now_ms)
        self._stack.callback(self._cluster.close)
        self._reconciler = Reconciler(
            self._cluster, self._journal, lambda: self._live.now.placement, self._keeper, self._metrics, now_ms,
            settings.spark.buckets,
        )  # fmt: skip
        self._reconciler.load()
        self._listener = Listener(self._metrics.on_progress)

    def _open_journal(self) -> Journal:
        chosen = self._settings.journal
        bootstrap = chosen.bootstrap
        if not bootstrap:
            broker = Kafka(self._data / "journal")
            broker.up()
            self._stack.callback(broker.stop)
            self._supervisor.loop("embedded journal", lambda: _keep_alive(broker), every_s=1.0)
            bootstrap = broker.bootstrap
        # Loops read the journal until they are stopped, so they go before it.
        self._stack.callback(self._supervisor.close)
        journal = Journal(bootstrap, chosen, self._settings.cluster.name)
        journal.create()
        return journal

    def until_stopped(self) -> None:
        """Start everything, tend it, and stop in order."""
        self._supervisor.loop("config", lambda: self._live.follow(self._stop))
        self._cluster.start()
        application = Application(
            self._live, self._journal, self._cluster, self._keeper, self._reconciler, self._supervisor,
            self._listener, now_ms,
        )  # fmt: skip
        http = Server(create_app(application, self._metrics), self._socket)
        self._stack.callback(http.stop)
        log.info("listening", extra={"address": f"http://{self._settings.http.host}:{http.port}"})
        spark = session(self._settings, self._data)
        self._stack.callback(spark.stop)
        self._stack.callback(self._supervisor.close)  # and queries before their session
        spark.streams.addListener(self._listener)
        application.spark_ui = spark.sparkContext.uiWebUrl or ""
        self._supervisor.query("placement", lambda: self._placement(spark))
        self._supervisor.loop("reconcile", self._tick, TICK_S)
        while not self._stop.wait(TICK_S):
            self._supervisor.tend()
        log.info("stopping")

    def _tick(self) -> None:
        self._cluster.tick()
        self._keeper.tick()
        self._reconciler.turn()

    def _placement(self, spark: SparkSession) -> StreamingQuery:
        chosen = self._settings.spark
        return (
            answers(spark, self._journal, chosen.buckets, chosen.max_records)
            .writeStream.outputMode("update")
            .queryName("placement")
            .foreachBatch(self._reconciler.batch)
            .trigger(processingTime=f"{chosen.trigger_ms} milliseconds")
            .option("checkpointLocation", self._checkpoint())
            .start()
        )

    def _checkpoint(self) -> str:
        """A checkpoint belongs to one journal and one division into buckets: another of either starts anew."""
        root = self._settings.spark.checkpoint or f"file://{self._data / 'checkpoints'}"
        chosen = self._settings.spark
        return f"{root}/placement-{self._journal.identity()}-b{chosen.buckets}-p{chosen.partitions}-f{FORM}"


def _keep_alive(broker: Kafka) -> None:
    if not broker.alive:
        log.error("the embedded journal died; starting it again")
        broker.restart()


@contextmanager
def _alone(data: Path) -> Iterator[None]:
    """Two applications on one data directory would undo each other's checkpoints."""
    with (data / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            found = f"data_dir: expected {data} for this process alone; found another Trueup that uses it"
            raise BadSettings([f"{found}; stop that one, or set another data_dir"]) from error
        lock.write(str(os.getpid()))
        lock.flush()
        yield


@contextmanager
def _signals(stop: threading.Event) -> Iterator[None]:
    def halt(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, halt) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
