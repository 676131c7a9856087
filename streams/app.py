"""`trueup run`: one process that observes, decides and acts until it is stopped.

Start order: journal, state of earlier runs, capture, Spark, streams, API. With section ha, an instance stands by after
the start of the API and of Spark; the state, the capture and the streams follow when it leads.
"""

import faulthandler
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TypeVar

from trueup.connectors.clock import now_ms
from trueup.connectors.kafka.journal.embedded import EmbeddedKafka
from trueup.state.common.errors import Retry
from trueup.state.instance.leadership import ALONE_S, LeadershipTerms
from trueup.state.settings.settings import Settings
from trueup.streams.api import Application
from trueup.streams.catalog import STREAMS, all_metrics, permanent_tasks
from trueup.streams.config.journal_topics import CHECK_S, JournalTopics, recreated
from trueup.streams.config.live import Live
from trueup.streams.instance.election import Election
from trueup.streams.journal.history import SAVE_S, History
from trueup.streams.journal.journal import Journal
from trueup.streams.progress import QueryProgress
from trueup.streams.replication.links.worker import SWITCH_S
from trueup.streams.runtime import logs
from trueup.streams.runtime.context import Context, Resource
from trueup.streams.runtime.process.clock import ClockWatch
from trueup.streams.runtime.process.disk import Disk, writable
from trueup.streams.runtime.process.ending import BATCHES_S, CLOSED_S, KILL_S, QUIET_S, SAVED_S, Ending
from trueup.streams.runtime.process.lock import Lock, alone, make_private
from trueup.streams.runtime.process.patience import patiently
from trueup.streams.runtime.spark import checkpoints
from trueup.streams.runtime.spark.cluster import LOOK_S, Executors
from trueup.streams.runtime.spark.driver import Driver
from trueup.streams.runtime.spark.listener import Listener
from trueup.streams.runtime.spark.session import session
from trueup.streams.runtime.stream import Stream
from trueup.streams.runtime.supervisor import Supervisor
from trueup.streams.runtime.trends import EVERY_S
from trueup.streams.runtime.warm import Warm
from trueup.streams.web.access import access_of
from trueup.streams.web.api import create_app
from trueup.streams.web.server import Server, claim
from trueup.streams.web.tls import certificate_of

log = logging.getLogger(__name__)
TICK_S, LEAVE_S, FORGET_S = 0.2, 0.5, 3_600.0
LEAD_S = 5.0
"""Time after which the log says that the journal's transactional.id is waited for."""
LOOK_AGAIN_S = 30.0
"""Time after which the log says that the embedded journal is waited for."""
T = TypeVar("T")
COLLECT = 100_000, 50, 100
"""Thresholds of garbage collections. The loss of a bookie creates hundreds of thousands of objects, none of them in a
cycle: with Python's own thresholds, the search for cycles takes a fifth of the time until the last ledger is marked."""


def run(settings: Settings, level: str = logs.LEVELS[1], form: str = logs.FORMS[0]) -> None:
    """Run until SIGTERM or SIGINT, then end the process. Raises `TrueupError` if it cannot start. ``level``, ``form``:
    the level and the form of Trueup's own log."""
    logs.start(level, form)
    faulthandler.enable()  # a crash in native code then leaves the stacks of all threads on stderr
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(*COLLECT)
    data = Path(settings.data_dir).absolute()
    ending = Ending(threading.Event())
    with writable(data):
        make_private(data)
        Disk(data).check()
        with alone(data) as lock, _signals(ending.begin), ExitStack() as stack:
            parts = Running(settings, data, ending, stack, lock)
            parts.until_stopped()
    ending.leave()


class Running:
    """A running application: its shared parts, and the streams of the catalog."""

    def __init__(self, settings: Settings, data: Path, ending: Ending, stack: ExitStack, lock: Lock) -> None:
        self._settings, self._data, self._ending = settings, data, ending
        self._member: Election | None = None
        self._election: Election | None = None  # the same with section ha
        self._waits: dict[str, str] = {}  # for what, and why
        self._warm: Warm | None = None
        self._executors: Executors | None = None
        self._driver: Driver | None = None
        self._quiet: dict[str, Callable[[], None]] = {}  # ended in parallel with the queries
        self._closes: dict[str, Callable[[], None]] = {}  # ended in parallel after them
        self._clock, self._disk = ClockWatch(now_ms), Disk(data)
        self._tls = certificate_of(settings.http)
        # Bound first, so that a port in use is reported at once.
        self._socket = stack.enter_context(claim(settings.http.host, settings.http.port))
        self._metrics = all_metrics(settings.cluster.name)
        self._supervisor = Supervisor(ending.stop, self._metrics.restarted, supervised=self._metrics.supervised)
        stack.enter_context(_threads_seen_to(self._supervisor))
        self._supervisor.run("end", ending.force, threading.Event())
        stack.callback(self._leave)  # after the end of everything else
        stack.callback(self._end)
        self._history = History()
        self._streams: dict[str, Stream] = {}
        self._resources: list[Resource] = []
        self._topics: JournalTopics | None = None
        self._journal = self._open_journal()
        if settings.journal.bootstrap:  # an embedded journal is in the locked directory
            self._join(lock)
        if self._election is None:
            self._load_history()
        self._live = Live(settings, self._journal, now_ms, None if self._election else self._history)
        self._wait("the settings in the journal", self._live.load)
        if self._election is None:
            self._watch_topics()
            self._streams = self._make_streams()
        self._listener = Listener(
            self._progressed,
            self._alive,
            now_ms,
            lambda act: self._supervisor.guarded("listener", act),
            self._supervisor.progressed,
        )

    def _watch_topics(self) -> None:
        """Compare the topics of the journal with those of earlier runs, now and from now on."""
        topics = JournalTopics(self._journal, self._live, self._data / "journal-topics.json")
        self._wait("the topics of the journal", topics.start)
        self._topics = topics
        self._supervisor.loop("journal topics", partial(topics.check, self._ending.fail), CHECK_S)

    def _inspect(self) -> None:
        """Find records of the journal that are not readable, apart from those that the start has read."""
        self._supervisor.loop("journal records", lambda: self._journal.inspect(self._ending.stop))
        self._metrics.unreadable.at().set_function(lambda: len(self._journal.unreadable))

    def _load_history(self) -> None:
        self._wait("the history", self._history.load)
        self._supervisor.loop("history", self._history.save, SAVE_S)

    def _make_streams(self) -> dict[str, Stream]:
        """The streams of the catalog that the settings configure, with the state of earlier runs."""
        context = Context(
            self._settings,
            self._data,
            self._live,
            self._journal,
            self._metrics,
            self._supervisor,
            self._history,
            now_ms,
            epoch=self._election.epoch if self._election else 0,
            silent_ms=self._election.silent_ms if self._election else 0,
            fence=self._election.fence if self._election else None,
            warm=self._warm,
            session=lambda: self._driver.session if self._driver else None,
        )
        streams: dict[str, Stream] = {}
        for descriptor in STREAMS:
            stream = self._wait(descriptor.name, partial(descriptor.make, context))
            for make, resource in context.resources.items():
                self._ends_with(make.__name__, resource)
            if stream is not None:
                streams[descriptor.name] = stream
                self._ends_with(f"stream {descriptor.name}", stream)
                self._wait(descriptor.name, stream.load)
        self._resources = list(context.resources.values())
        return streams

    def _ends_with(self, name: str, part: Stream | Resource) -> None:
        """End and close it with the queries, which are named after streams as well."""
        self._quiet[name], self._closes[name] = part.end, part.close

    def _watch(self, streams: Mapping[str, Stream]) -> None:
        """Start to observe."""
        for resource in self._resources:
            resource.start()
        for stream in streams.values():
            stream.watch()

    def _progressed(self, progress: QueryProgress) -> None:
        self._supervisor.progressed(str(progress["name"]))
        self._metrics.on_progress(progress)
        for stream in self._streams.values():
            stream.progressed(str(progress["name"]), progress)

    def _alive(self, query: str) -> None:
        for stream in self._streams.values():
            stream.alive(query)

    def _open_journal(self) -> Journal:
        section = self._settings.journal
        self._closes["journal"] = self._close_journal
        if not section.bootstrap:
            log.info("start begun", extra={"part": "journal", "data_dir": str(self._data)})
            broker = EmbeddedKafka(self._data / "journal", logs.Downloads())
            self._closes["journal"] = lambda: self._close_journal(broker)
            self._up(broker)
            self._supervisor.loop("embedded journal", lambda: self._keep_alive(broker), every_s=1.0)
            section = replace(section, bootstrap=broker.bootstrap, security=broker.security)
        journal = Journal(section.bootstrap, section, self._settings.cluster.name, shared=bool(self._settings.ha.id))
        self._created = self._wait(f"the journal at {section.bootstrap}", journal.create)
        self._wait("the journal's topics", lambda: recreated(journal, self._created, now_ms()))
        self._history = History(journal, acts=not self._settings.ha.id)
        return journal

    def _wait(self, what: str, step: Callable[[], T]) -> T:
        """Repeat a step of the start, in a takeover while this instance can prove that it leads."""

        def noted() -> T:
            try:
                result = step()
            except Retry as error:
                self._waits[what] = f"waiting for {what}: {error}"
                raise
            self._waits.pop(what, None)
            return result

        return patiently(what, noted, self._ending.stop, may=self._supervisor.gate)

    def _up(self, broker: EmbeddedKafka) -> None:
        broker.start()
        broker.ready_s = LOOK_AGAIN_S
        self._wait("the embedded journal", broker.wait_ready)

    def _keep_alive(self, broker: EmbeddedKafka) -> None:
        if not broker.alive:
            self._disk.check()
            log.error("embedded journal ended")
            broker.kill()
            self._up(broker)

    def _place(self) -> str:
        """Where operators find this instance."""
        host, port = self._socket.getsockname()[:2]
        url = self._settings.ha.address or f"{'https' if self._tls else 'http'}://{host}:{port}"
        return f"{url}, process {os.getpid()} on {socket.gethostname()}"

    def _join(self, lock: Lock) -> None:
        """Give signs of life, until the end of the process: a leader keeps its place while it ends in order. Without
        section ha, wait until this instance leads. Raises `Stop` if another one does."""
        ha, journal, cluster = self._settings.ha, self._settings.journal, self._settings.cluster
        signs = Journal(journal.bootstrap, journal, cluster.name)
        terms = LeadershipTerms(ha.takeover_s) if ha.id else LeadershipTerms(ALONE_S, True, lock.before or None)
        lost = self._ending.abort if ha.id else self._ending.fail
        member = Election(signs, self._place(), f"{ha.id}-{cluster.name}", terms, now_ms, lost, able=not ha.id)
        self._member, self._supervisor.gate = member, member.prove
        self._supervisor.run("signs of instances", member.follow, member.done)
        self._supervisor.run("leadership", member.watch, member.done)
        if ha.id:
            self._election = member
        else:
            log.info("start begun", extra={"part": "signs of life", "at_most_s": ALONE_S})
            if not self._wait("a sign of life in the journal", partial(member.enter, self._ending.stop)):
                return
            lock.note(member.run)
        self._supervisor.run("signs of life", member.beats, member.done)

    def until_stopped(self) -> None:
        """Start everything, supervise it, and stop it in order."""
        self._supervisor.loop("config", lambda: self._live.follow(self._ending.stop))
        self._watch(self._streams)
        if self._election is None:
            self._inspect()
        application = Application(
            self._live,
            self._journal,
            self._streams,
            self._supervisor,
            self._listener,
            now_ms,
            self._history,
            self._election,
        )
        section, tls = self._settings.http, self._tls
        access = access_of(self._settings, lambda reason: self._metrics.refused.at(reason).inc())
        application.obstacles = lambda: filter(
            None, [self._disk.problem(), self._executors.problem if self._executors else "", *self._waits.values()]
        )
        application.other_problems = lambda: [
            *self._journal.unreadable.problems(),
            *(self._topics.problems if self._topics else ()),
            *filter(None, [self._clock.problem()]),
            *(access.problems if access else ()),
            *([tls.problem] if tls and tls.problem else ()),
        ]
        self._supervisor.loop("trends", application.sample, EVERY_S)
        http = Server(create_app(application, self._metrics, access, section), self._socket, self._supervisor.run, tls)
        self._quiet["http"] = http.stop
        log.info("API opened", extra={"address": f"{'https' if tls else 'http'}://{section.host}:{http.port}"})
        driver = Driver(lambda: session(self._settings, self._data, permanent_tasks(self._settings)), self._listener)
        if not self._ending.stop.is_set():
            self._run_queries(driver, application)
        if self._election is not None and self._elected(self._election):
            self._take_over(self._election, driver, application)
        self._ending.stop.wait()
        log.info("stop begun")

    def _run_queries(self, driver: Driver, application: Application) -> None:
        log.info("start begun", extra={"part": "Spark", "master": self._settings.spark.master})
        self._driver = driver
        self._closes["Spark"], self._ending.last = lambda: driver.close(self._ending.at(KILL_S)), driver.kill
        self._wait("Spark", driver.begin)
        application.spark_ui = driver.session.sparkContext.uiWebUrl or ""
        if self._settings.spark.on_cluster:
            self._executors = Executors(lambda: driver.session)
            self._supervisor.loop("executors", self._executors.look, LOOK_S)
        self._supervisor.check("spark", lambda: self._keep_spark(driver, application))
        if self._election is not None:
            self._warm = self._warmed(driver)
        for stream in self._streams.values():
            stream.begin(lambda: driver.session)
        # A JVM that hangs blocks its callers; the thread that handles the stop signal must not be one.
        self._supervisor.loop("queries", self._supervisor.tend, TICK_S)

    def _warmed(self, driver: Driver) -> Warm:
        """The queries with state, which fold the journal while this instance stands by."""
        settings, folder = self._settings, checkpoints.folder_of(self._settings.spark, self._data)
        own = checkpoints.standby_of(settings.spark, self._data)
        name = f"{own}-{uuid.uuid4().hex}"
        self._forget(driver, f"{own}-*", name)
        warm = Warm(self._supervisor, f"{folder}/{name}", self._journal.identity)
        for descriptor in STREAMS:
            if (view := descriptor.view(lambda: driver.session, self._journal, settings)) is not None:
                warm.keep(view)
        return warm

    def _elected(self, election: Election) -> bool:
        """Wait until this instance leads. Returns whether it does; if not, it ends."""
        election.enable()  # Spark runs
        while not self._ending.stop.wait(TICK_S):
            if election.elected.is_set():
                return True
        return False

    def _take_over(self, election: Election, driver: Driver, application: Application) -> None:
        """Load the state that the previous leader left, and start the streams."""
        began_s = time.monotonic()
        log.info("takeover begun", extra={"epoch": election.epoch})
        # A producer that takes the transactional.id over aborts what the previous leader had not committed.
        lead = partial(self._journal.lead, self._settings.ha.id, election.fenced, LEAD_S)
        self._wait("the journal's transactional.id", lead)
        election.prove()
        self._load_history()
        self._live.attribute(self._history)
        self._watch_topics()
        self._forget(driver, "epoch-*", f"epoch-{election.epoch}")
        streams = self._make_streams()
        self._watch(streams)
        self._streams = streams
        self._inspect()
        application.lead(streams)
        for stream in streams.values():
            stream.begin(lambda: driver.session)
        log.info("takeover completed", extra={"epoch": election.epoch, "after_s": round(time.monotonic() - began_s, 1)})

    def _forget(self, driver: Driver, pattern: str, keep: str) -> None:
        """Delete checkpoints of earlier runs, which nothing reads, in a thread: their location may be slow."""
        folders = {checkpoints.folder_of(self._settings.spark, self._data), checkpoints.own_folder(self._data)}

        def step() -> None:
            for folder in folders:
                checkpoints.forget(driver.session, folder, pattern, keep)

        self._supervisor.loop(f"old checkpoints, {pattern.partition('-')[0]}", step, FORGET_S)

    def _end(self) -> None:
        """End everything that was started, in order and within time limits; see `streams.runtime.process.ending`."""
        at = self._ending.at
        self._supervisor.close(at(BATCHES_S), at(QUIET_S), self._quiet)
        self._supervisor.together(self._closes, at(CLOSED_S))
        log.info("stop completed", extra={"after_s": round(self._ending.passed_s(), 1)})

    def _leave(self) -> None:
        """Let another instance lead at once."""
        if self._member is not None:
            self._member.leave(max(LEAVE_S, self._ending.left_s(CLOSED_S)))

    def _close_journal(self, broker: EmbeddedKafka | None = None) -> None:
        """Close the journal; the last actions are written first."""
        self._history.save(self._ending.left_s(SAVED_S))
        if broker is not None:
            broker.stop(self._ending.left_s(KILL_S))
            if broker.process.exit_code == -signal.SIGKILL:
                log.warning("embedded journal killed")

    def _keep_spark(self, driver: Driver, application: Application) -> None:
        """Start a new session after the end of one. Queries continue from their checkpoints."""
        if application.spark_ended:
            driver.begin()
            application.spark_ui, application.spark_ended = driver.session.sparkContext.uiWebUrl or "", ""
            log.info("Spark session replaced", extra={"ui": application.spark_ui})
        elif why := driver.ended() or self._clock.set_back():
            self._supervisor.lose_queries(f"Spark: {why}")
            application.spark_ended = why
            raise Retry("Spark to run", why, "none: a new session starts, and queries continue from their checkpoints")


@contextmanager
def _threads_seen_to(supervisor: Supervisor) -> Iterator[None]:
    """Log errors that end threads of libraries; the supervisor does not start these."""
    before, threading.excepthook = threading.excepthook, supervisor.thread_died
    try:
        yield
    finally:
        threading.excepthook = before


@contextmanager
def _signals(on_signal: Callable[[], None]) -> Iterator[None]:
    def halt(_number: int, _frame: FrameType | None) -> None:
        on_signal()

    before = {number: signal.signal(number, halt) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
