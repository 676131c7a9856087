"""`trueup run`: one process that observes, folds, decides and acts until it is told to stop.

Started in the order in which things are needed: journal, what it remembers, capture, Spark, the stream, the API.
"""

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from trueup.connectors.sandbox.servers.kafka import Kafka
from trueup.connectors.zookeeper.follower import Run
from trueup.state.common.errors import Retry
from trueup.state.deletion import settings as deletion_settings
from trueup.state.settings.settings import Settings
from trueup.streams.api import Application
from trueup.streams.bookkeeper.cluster import BookKeeper
from trueup.streams.bookkeeper.repair_workers import RepairWorkers
from trueup.streams.bookkeeper.topology import Keeper
from trueup.streams.config.live import Live
from trueup.streams.deletion import query as deletion_query
from trueup.streams.deletion.manual import Nobody, Orders
from trueup.streams.deletion.orphan_objects import Strays
from trueup.streams.deletion.owners import Pulsar
from trueup.streams.deletion.reconciler import Markers
from trueup.streams.deletion.report import Unreferenced
from trueup.streams.journal.history import SAVE_S, History
from trueup.streams.journal.journal import Journal
from trueup.streams.logdirs.manager import LogDirs
from trueup.streams.placement import query as placement_query
from trueup.streams.placement.reconciler import Reconciler
from trueup.streams.placement.report import Placed
from trueup.streams.replication.ends import Ends
from trueup.streams.replication.manager import Links
from trueup.streams.replication.worker import SWITCH_S
from trueup.streams.runtime import logs
from trueup.streams.runtime.driver import Driver
from trueup.streams.runtime.ending import BATCHES_S, CLOSED_S, KILL_S, QUIET_S, SAVED_S, Ending
from trueup.streams.runtime.listener import Listener
from trueup.streams.runtime.lock import alone
from trueup.streams.runtime.metrics import Metrics
from trueup.streams.runtime.session import session
from trueup.streams.runtime.supervisor import Supervisor
from trueup.streams.web.api import create_app
from trueup.streams.web.server import Server, claim

log = logging.getLogger(__name__)
TICK_S, DELETE_S, LOOK_S, RACKS_S = 0.2, 1.0, 10.0, 0.5


def now_ms() -> int:
    """The clock of the application, ms since the epoch."""
    return time.time_ns() // 1_000_000


def run(settings: Settings, level: str = logs.LEVELS[1]) -> None:
    """Run until SIGTERM or SIGINT, then end the process. Raises our errors when it cannot start. ``level`` of our own
    log."""
    logs.start(level)
    sys.setswitchinterval(SWITCH_S)
    data = Path(settings.data_dir).absolute()
    data.mkdir(parents=True, exist_ok=True)
    ending = Ending(threading.Event())
    with alone(data), _signals(ending.begin), ExitStack() as stack:
        parts = Running(settings, data, ending, stack)
        parts.until_stopped()
    ending.leave()


class Running:
    """The parts of a running application. What concerns ledgers is there only with a BookKeeper cluster."""

    def __init__(self, settings: Settings, data: Path, ending: Ending, stack: ExitStack) -> None:
        self._settings, self._data, self._ending = settings, data, ending
        self._quiet: dict[str, Callable[[], None]] = {}  # what ends with the queries, side by side
        self._closes: dict[str, Callable[[], None]] = {}  # what ends after them, side by side
        # Taken before anything is started: whoever has to choose another port need not wait to be told.
        self._socket = stack.enter_context(claim(settings.http.host, settings.http.port))
        self._metrics = Metrics(cluster=settings.cluster.name, links=settings.links, logdirs=settings.logdirs)
        self._supervisor = Supervisor(ending.stop, self._metrics.restarted)
        stack.enter_context(_threads_seen_to(self._supervisor))
        self._supervisor.run("end", ending.force, threading.Event())
        stack.callback(self._end)
        self._history = History()
        self._journal = self._open_journal()
        self._history.load()
        self._supervisor.loop("history", self._history.save, SAVE_S)
        self._live = Live(settings, self._journal, now_ms)
        self._live.load()
        self._ledgers = self._open_ledgers() if settings.cluster.zookeeper else None
        self._deletion = self._open_deletion()
        here = settings.spark.master.startswith("local")
        self._links = Links(
            self._live, self._journal, self._metrics, now_ms, Ends, history=self._history,
            stop=data / "stopping" if here else None,
        )  # fmt: skip
        self._links.load()
        self._quiet["links"] = self._links.end
        self._logdirs = LogDirs(self._live, self._journal, self._metrics, now_ms, history=self._history)
        self._logdirs.load()
        self._listener = Listener(
            self._progressed,
            self._alive,
            now_ms,
            lambda act: self._supervisor.guarded("listener", act),
            self._supervisor.progressed,
        )

    def _open_ledgers(self) -> "Ledgers":
        ledgers = Ledgers(self._settings, self._live, self._journal, self._metrics, self._supervisor.run, self._history)
        # With nothing more to take, queries come to the end of a batch.
        self._quiet["capture"], self._closes["BookKeeper"] = ledgers.cluster.end, ledgers.cluster.close
        ledgers.reconciler.load()
        return ledgers

    def _open_deletion(self) -> "Deletion | None":
        if self._ledgers is None or self._settings.deletion.owners == "none":
            return None
        made = Deletion(self._settings, self._live, self._journal, self._metrics, self._ledgers, self._history)
        self._quiet["owners"] = made.owners.close
        made.load()
        return made

    def _progressed(self, progress: dict[str, Any]) -> None:
        self._supervisor.progressed(str(progress["name"]))
        self._metrics.on_progress(progress)
        if self._ledgers and progress["name"] == "placement":
            self._ledgers.cluster.judging.progress(progress)

    def _alive(self, query: str) -> None:
        if self._ledgers and query == "placement":
            self._ledgers.reconciler.heard()

    def _open_journal(self) -> Journal:
        chosen = self._settings.journal
        bootstrap = chosen.bootstrap
        self._closes["journal"] = self._close_journal
        if not bootstrap:
            log.info("starting", extra={"part": "journal", "data_dir": str(self._data)})
            broker = Kafka(self._data / "journal", progress=logs.Downloads())
            self._closes["journal"] = lambda: self._close_journal(broker)
            broker.up()
            self._supervisor.loop("embedded journal", lambda: _keep_alive(broker), every_s=1.0)
            bootstrap = broker.bootstrap
        journal = Journal(bootstrap, chosen, self._settings.cluster.name)
        journal.create()
        self._history = History(journal)
        return journal

    def until_stopped(self) -> None:
        """Start everything, tend it, and stop in order."""
        self._supervisor.loop("config", lambda: self._live.follow(self._ending.stop))
        if self._ledgers:
            cluster = self._ledgers.cluster
            if cluster.racks is not None:
                self._supervisor.loop("racks", lambda: cluster.ask_racks(RACKS_S))
            cluster.start()
        if self._deletion:
            self._deletion.owners.start(self._supervisor.run)
        self._links.watch(self._supervisor)
        placed = self._ledgers.placed(self._live) if self._ledgers else None
        said = self._deletion.said if self._deletion else None
        application = Application(
            self._live, self._journal, placed, said, self._links, self._logdirs, self._supervisor, self._listener,
            now_ms, self._history,
        )  # fmt: skip
        http = Server(create_app(application, self._metrics), self._socket, self._supervisor.run)
        self._quiet["http"] = http.stop
        log.info("listening", extra={"address": f"http://{self._settings.http.host}:{http.port}"})
        driver = Driver(lambda: session(self._settings, self._data), self._listener)
        if not self._ending.stop.is_set():
            self._run_queries(driver, application)
        self._ending.stop.wait()
        log.info("stopping")

    def _run_queries(self, driver: Driver, application: Application) -> None:
        log.info("starting", extra={"part": "Spark"})
        self._closes["Spark"], self._ending.last = lambda: driver.close(self._ending.at(KILL_S)), driver.kill
        driver.begin()
        application.spark_ui = driver.session.sparkContext.uiWebUrl or ""
        self._supervisor.check("spark", lambda: self._keep_spark(driver, application))
        self._begin_queries(driver, application)
        # A JVM that hangs holds up who asks it: that must not be the thread that is told to stop.
        self._supervisor.loop("queries", self._supervisor.tend, TICK_S)

    def _end(self) -> None:
        """End all that was started, in order and in time; see `streams.runtime.ending`."""
        at = self._ending.at
        self._supervisor.close(at(BATCHES_S), at(QUIET_S), self._quiet)
        self._supervisor.together(self._closes, at(CLOSED_S))
        log.info("ended", extra={"after_s": round(self._ending.passed_s(), 1)})

    def _close_journal(self, broker: Kafka | None = None) -> None:
        """What was done last is saved first."""
        self._history.save(self._ending.left_s(SAVED_S))
        if broker is not None:
            broker.stop(self._ending.left_s(KILL_S))
            if broker.process.exit_code == -signal.SIGKILL:
                log.warning("the embedded journal did not end in time: it was killed")

    def _keep_spark(self, driver: Driver, application: Application) -> None:
        """Start another session after the end of one. Queries go on from their checkpoints."""
        if application.spark_ended:
            driver.begin()
            application.spark_ui, application.spark_ended = driver.session.sparkContext.uiWebUrl or "", ""
            log.info("another session of Spark", extra={"ui": application.spark_ui})
        elif why := driver.ended():
            self._supervisor.lose_queries(f"Spark: {why}")
            application.spark_ended = why
            raise Retry("Spark to run", why, "another session is started, and queries go on from their checkpoints")

    def _begin_queries(self, driver: Driver, application: Application) -> None:
        if self._ledgers:
            ledgers = self._ledgers
            self._supervisor.query("placement", lambda: self._placement(driver.session, ledgers))
            self._supervisor.loop("reconcile", ledgers.tick, TICK_S)
            self._supervisor.loop("judging", application.tick, TICK_S)
            self._supervisor.loop("autorecovery", ledgers.workers.look, LOOK_S)
        if self._deletion:
            markers = self._deletion.markers
            if self._deletion.streams:
                self._supervisor.query("deletion", lambda: self._deleting(driver.session, markers))
            self._supervisor.loop("delete", self._deletion.turn, DELETE_S)
            if self._deletion.strays and self._settings.stores:
                self._supervisor.loop("objects", self._deletion.strays.turn, DELETE_S)
        others = self._settings.spark.partitions if self._ledgers else 0
        application.notes += self._links.fit(driver.session.sparkContext.defaultParallelism - others)
        self._links.copy(lambda: driver.session, self._supervisor, f"{self._checkpoints()}/links")
        self._logdirs.begin(lambda: driver.session, self._supervisor, f"{self._checkpoints()}/logdirs")

    def _deleting(self, spark: SparkSession, markers: Markers) -> StreamingQuery:
        checkpoint = self._checkpoint("deletion", deletion_query.FORM)
        return deletion_query.start(spark, self._journal, self._settings.spark, markers.batch, checkpoint)

    def _placement(self, spark: SparkSession, ledgers: "Ledgers") -> StreamingQuery:
        checkpoint = self._checkpoint("placement", placement_query.FORM)
        return placement_query.start(spark, self._journal, self._settings.spark, ledgers.reconciler.batch, checkpoint)

    def _checkpoints(self) -> str:
        return self._settings.spark.checkpoint or f"file://{self._data / 'checkpoints'}"

    def _checkpoint(self, query: str, form: int) -> str:
        """A checkpoint belongs to one journal and one division into buckets: another of either starts anew."""
        chosen = self._settings.spark
        return (
            f"{self._checkpoints()}/{query}-{self._journal.identity()}-b{chosen.buckets}-p{chosen.partitions}-f{form}"
        )


class Ledgers:
    """The parts that keep a BookKeeper cluster true."""

    def __init__(
        self, settings: Settings, live: Live, journal: Journal, metrics: Metrics, run: Run, history: History
    ) -> None:
        self.keeper = Keeper(journal, live, now_ms)
        self.keeper.load()
        self.cluster = BookKeeper(live, journal, self.keeper, metrics, now_ms, run)
        self.reconciler = Reconciler(
            self.cluster,
            journal,
            lambda: live.now.placement,
            self.keeper,
            metrics,
            now_ms,
            settings.spark.buckets,
            history,
        )
        self.workers = RepairWorkers(self.cluster.voters, len(settings.cluster.autorecovery), now_ms)

    def placed(self, live: Live) -> Placed:
        """What is said of them."""
        return Placed(live, self.cluster, self.keeper, self.reconciler, self.workers, now_ms)

    def tick(self) -> None:
        """See to what time alone changes."""
        self.cluster.tick()
        self.keeper.tick()
        self.keeper.name_lost(self.reconciler.unnamed())
        self.reconciler.turn()
        self.workers.step(self.reconciler.board.marks)


class Deletion:
    """The parts that finish deletions."""

    def __init__(
        self, settings: Settings, live: Live, journal: Journal, metrics: Metrics, ledgers: Ledgers, history: History
    ) -> None:
        def policy() -> deletion_settings.Deletion:
            return live.now.deletion

        self.owners: Pulsar | Nobody
        self.strays: Strays | None = None
        self.streams = settings.deletion.owners != deletion_settings.OPERATOR
        if not self.streams:
            orders = Orders(ledgers.cluster, journal, policy, metrics.deletion, now_ms, history)
            self.owners, self.markers, self.turn, self._load = orders.owners, orders.markers, orders.turn, orders.load
            self.said = Unreferenced(policy, self.markers, self.owners, now_ms, orders.order)
            return
        self.owners = Pulsar(ledgers.cluster, journal, policy, now_ms, settings.stores)
        self.markers = Markers(
            self.owners, journal, policy, lambda: ledgers.keeper.first_epoch, metrics.deletion, now_ms,
            settings.spark.buckets, self.owners.check, history=history,
        )  # fmt: skip
        self.turn, self._load = self.markers.turn, self.markers.load
        self.strays = Strays(
            self.owners.stores, settings.stores, self.owners, journal, policy, metrics.deletion, now_ms, history
        )
        self.said = Unreferenced(policy, self.markers, self.owners, now_ms, strays=self.strays)

    def load(self) -> None:
        """Take up the deletions of earlier runs."""
        self._load()
        if self.strays:
            self.strays.load()


def _keep_alive(broker: Kafka) -> None:
    if not broker.alive:
        log.error("the embedded journal died; starting it again")
        broker.restart()


@contextmanager
def _threads_seen_to(supervisor: Supervisor) -> Iterator[None]:
    """Threads of libraries are none of the supervisor's: it tells of those that end by an error."""
    before, threading.excepthook = threading.excepthook, supervisor.died
    try:
        yield
    finally:
        threading.excepthook = before


@contextmanager
def _signals(told: Callable[[], None]) -> Iterator[None]:
    def halt(_number: int, _frame: FrameType | None) -> None:
        told()

    before = {number: signal.signal(number, halt) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
