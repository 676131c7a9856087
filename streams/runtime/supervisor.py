"""Supervises queries and background loops: restarts them with back-off and stops queries between batches.

The only module that starts threads of the application, and the only one that catches every exception. An exception is
logged with its location and reported as a problem; the application is not ready until the loop or query succeeds again.
"""

import logging
import re
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

from pyspark.sql.streaming import StreamingQuery

from trueup.state.common.backoff import backoff
from trueup.state.common.errors import TrueupError
from trueup.streams.runtime.passes import within

log = logging.getLogger(__name__)
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
HEALTHY_S = 120.0  # the back-off of a task that ran this long is reset
PROVEN_S = 10.0
"""A pass that runs this long after a failure counts as a success."""
LONGEST_TEXT = 2_000
_FRAMES = re.compile(r"^\s*(?:at \S+\(.*\)|\.\.\. \d+ more)\n?", re.MULTILINE)
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n((?:[ \t]+.*\n)+)")
_CALL = re.compile(r'^  File "(.+)", line (\d+), in ', re.MULTILINE)
ROOT = __name__.partition(".")[0]
PACKAGES = ("state", "connectors", "streams")
Stopped = Callable[[], bool]


@dataclass(slots=True)
class Task:
    """A supervised loop or query."""

    name: str
    restarts: int = 0
    error: str = ""
    state: str = "waiting"
    """One of waiting, running, failed and stopped."""
    begun: float = 0.0
    next_start: float = 0.0
    query: StreamingQuery | None = None
    failing: bool = False
    """Whether the task failed and has not succeeded since."""
    proven_s: float = PROVEN_S
    """The number of seconds without a failure after which the task counts as successful."""
    passes: int = 0
    """The number of passes of a loop that began."""

    def begin(self, now: float) -> None:
        """Record a start."""
        self.begun, self.state = now, "running"

    def failed(self, error: str, now: float) -> None:
        """Record a failure and the time of the next start."""
        if now - self.begun > HEALTHY_S:
            self.restarts = 0
        wait = backoff(FIRST_WAIT_S, self.restarts, LONGEST_WAIT_S)
        self.restarts, self.error, self.state, self.next_start = self.restarts + 1, error, "failed", now + wait
        self.failing = True
        log.error("task failed", extra={"task": self.name, "error": error, "again_in_s": wait})

    def fails(self, now: float) -> bool:
        """Whether it failed and has not succeeded since."""
        return self.failing and (self.state != "running" or now - self.begun < self.proven_s)


@dataclass(slots=True)
class Supervisor:
    """The threads and streaming queries of the application."""

    stop: threading.Event
    restarted: Callable[[str], None]
    """Called with the name of each task that failed."""
    supervised: Callable[[str], None] = lambda _: None
    """Called with the name of each task before the task starts."""
    gate: Callable[[], None] = lambda: None
    """Called before each pass; raises if the pass must not begin."""
    tasks: dict[str, Task] = field(default_factory=dict)
    _starts: dict[str, Callable[[], StreamingQuery]] = field(default_factory=dict)
    _checks: dict[str, Callable[[], None]] = field(default_factory=dict)
    _threads: list[threading.Thread] = field(default_factory=list)

    def loop(self, name: str, step: Callable[[], None], every_s: float = 0.0) -> None:
        """Run this pass in a thread, repeatedly, until the application stops."""
        self._threads.append(self._thread(name, step, every_s, self.stop.is_set, self.stop.wait))

    def run(self, name: str, step: Callable[[], None], stop: threading.Event) -> threading.Thread:
        """Run this pass in a thread, repeatedly, until ``stop``, which the caller sets at the latest when the
        application stops."""
        return self._thread(name, step, 0.0, stop.is_set, stop.wait)

    def _thread(
        self, name: str, step: Callable[[], None], every_s: float, stopped: Stopped, wait: Callable[[float], object]
    ) -> threading.Thread:
        def run() -> None:
            task.begin(time.monotonic())
            while not stopped():
                wait(every_s if self._attempt(task, step) else task.next_start - time.monotonic())
                if task.state == "failed":
                    task.begin(time.monotonic())
            task.state, task.failing = "stopped", False

        task = self._known(name)
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread

    def _known(self, name: str) -> Task:
        """The task of this name, created on first use."""
        self.supervised(name)
        return self.tasks.setdefault(name, Task(name))

    def _attempt(self, task: Task, step: Callable[[], None]) -> bool:
        """Whether it succeeded. A panic of an extension written in Rust is not an `Exception`."""
        task.passes += 1
        with within(task.name, task.passes):
            try:
                self.gate()
                step()
            except BaseException as error:
                self._failed(task, error)
                return False
        task.failing = False
        return True

    def _failed(self, task: Task, error: BaseException) -> None:
        task.failed(error_text(error), time.monotonic())
        if not isinstance(error, TrueupError):
            log.error("task ended by a defect", extra={"task": task.name}, exc_info=error)
        self.restarted(task.name)

    def guarded(self, name: str, act: Callable[[], None]) -> None:
        """Call this once, on a thread of a library that must not receive exceptions."""
        task = self._known(name)
        task.begin(time.monotonic())
        self._attempt(task, act)

    def thread_died(self, args: threading.ExceptHookArgs) -> None:
        """Record the failure of a thread of a library, as a `threading.excepthook`. The library has to restart it."""
        name = f"thread {args.thread.name if args.thread else 'of no name'}"
        task = self.tasks.setdefault(name, Task(name, proven_s=LONGEST_WAIT_S))
        self._failed(task, args.exc_value or args.exc_type())
        task.begin(time.monotonic())

    def check(self, name: str, check: Callable[[], None]) -> None:
        """Call this with every `tend`, before the queries are checked; after a failure, when its back-off has ended."""
        self._known(name)
        self._checks[name] = check

    def query(self, name: str, start: Callable[[], StreamingQuery]) -> None:
        """Keep a streaming query running. ``start`` starts it from its checkpoint."""
        self.supervised(name)
        self.tasks[name] = Task(name, proven_s=HEALTHY_S)
        self._starts[name] = start

    @property
    def queries(self) -> list[str]:
        """Names of the streaming queries."""
        return [*self._starts]

    def progressed(self, name: str) -> None:
        """Record that a batch of this query succeeded or that the query is idle."""
        if name in self._starts:
            self.tasks[name].failing = False

    def tend(self) -> None:
        """Start queries that do not run and are due. To be called often, by one thread."""
        for name, check in list(self._checks.items()):
            task, now = self.tasks[name], time.monotonic()
            if task.state != "running" and now >= task.next_start:
                task.begin(now)  # otherwise every failure seems to follow a long healthy run, and its wait never grows
            if self.stop.is_set() or task.state == "failed" or not self._attempt(task, check):
                return
        for name, start in list(self._starts.items()):
            task, now = self.tasks[name], time.monotonic()
            if task.query is not None and (ended := _ended(task.query)):
                self._lost(task, ended, now)
            if task.query is None and now >= task.next_start and not self.stop.is_set():
                self._start(task, start)

    def _start(self, task: Task, start: Callable[[], StreamingQuery]) -> None:
        task.begun = time.monotonic()
        try:
            task.query, task.state = start(), "running"
        except Exception as error:
            self._failed(task, error)

    def _lost(self, task: Task, why: str, now: float) -> None:
        task.failed(why, now)
        task.query = None
        self.restarted(task.name)

    def lose_queries(self, why: str) -> None:
        """Treat every query as ended, regardless of its handle, and restart it when it is due."""
        for name in self._starts:
            if self.tasks[name].query is not None:
                self._lost(self.tasks[name], why, time.monotonic())

    def runs(self, name: str) -> bool:
        """Whether this query or loop is running."""
        return name in self.tasks and self.tasks[name].state == "running"

    def repeated(self, name: str) -> str:
        """The error of a query that failed repeatedly and has not succeeded since; empty if there is none."""
        task = self.tasks.get(name)
        return task.error if task is not None and task.failing and task.restarts > 1 else ""

    def failing(self) -> list[str]:
        """The errors of tasks that failed and have not succeeded since."""
        now, tasks = time.monotonic(), list(self.tasks.values())
        return [f"{'stream ' * (t.name in self._starts)}{t.name} failed: {t.error}" for t in tasks if t.fails(now)]

    def close(
        self, drained: float, until: float, beside: Mapping[str, Callable[[], None]] = MappingProxyType({})
    ) -> None:
        """Stop all queries and loops, concurrently with the steps ``beside``. A query ends between two batches, so that
        its last batch is committed, or during a batch at ``drained``. Tasks that do not end by ``until`` are left
        behind. Times are those of `time.monotonic`."""
        self.stop.set()
        running = [task for task in list(self.tasks.values()) if task.query is not None]
        self.together({**beside, **{task.name: partial(self._end, task, drained) for task in running}}, until)
        _join(self._threads, until)
        self._threads.clear()

    def together(self, steps: Mapping[str, Callable[[], None]], until: float) -> None:
        """Run these steps concurrently. Steps that do not end by ``until`` are left behind."""
        threads = [
            threading.Thread(target=_take, args=(name, step), name=name, daemon=True) for name, step in steps.items()
        ]
        for thread in threads:
            thread.start()
        _join(threads, until)

    def _end(self, task: Task, drained: float) -> None:
        assert task.query is not None, "only running queries are ended"
        query, task.query, task.state = task.query, None, "stopped"
        if not drain(query, drained - time.monotonic()):
            log.warning("batch interrupted", extra={"task": task.name})


def drain(query: StreamingQuery, limit_s: float = 60.0) -> bool:
    """Stop a query when no batch is in progress, because an interrupted batch is not committed. Returns whether none
    was interrupted."""
    deadline = time.monotonic() + limit_s
    while (under_way := query.isActive and query.status["isTriggerActive"]) and time.monotonic() < deadline:
        time.sleep(0.02)
    query.stop()
    return not under_way


def _take(name: str, step: Callable[[], None]) -> None:
    try:
        step()
    except Exception as error:
        log.warning("part not closed", extra={"part": name, "error": error_text(error)})


def attempted(act: Callable[[], object]) -> Exception | None:
    """Call this, and return its exception."""
    try:
        act()
    except Exception as error:
        return error
    return None


def error_text(error: BaseException) -> str:
    """An error as one line; a defect with its location in the code of Trueup."""
    text = _without_frames(f"{type(error).__name__}: {error}")
    return text if isinstance(error, TrueupError) else f"{text}, at {_place(error)}"


def _place(error: BaseException) -> str:
    return _innermost((frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__))


def _innermost(calls: Iterable[tuple[str, object]]) -> str:
    """File and line of the innermost call of Trueup; of the innermost call if none is of Trueup."""
    places = [("?", 0), *calls]
    ours = [(path, line) for name, line in places if (path := _ours(name))]
    path, line = (ours or places)[-1]
    return f"{path}:{line}"


def _ours(name: str) -> str:
    """The path of a file in the package of Trueup, also of another installation; empty if it is not in it."""
    _, separator, path = name.rpartition(f"/{ROOT}/")
    return path if separator and path.partition("/")[0] in PACKAGES else ""


def _join(threads: Iterable[threading.Thread], until: float) -> None:
    """Wait for these threads and log those that do not end in time."""
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
        if thread.is_alive():
            log.warning("thread not ended", extra={"part": thread.name})


def _ended(query: StreamingQuery) -> str:
    """Why a query ended; empty if it is running."""
    try:
        if query.isActive:
            return ""
        error = query.exception()
    except Exception as unanswered:
        return f"Spark does not respond: {type(unanswered).__name__}"
    return _without_frames(str(error)) if error else "the query stopped by itself"


def _without_frames(text: str) -> str:
    """A text of Spark without the plan of the query and stack frames of Java, which would displace the cause. Those of
    Python are replaced by the location of the innermost."""
    for end in ("JVM stacktrace", "=== Streaming Query ==="):
        text = text.split(end)[0]
    text = _TRACEBACK.sub(lambda match: f"at {_innermost(_CALL.findall(match[1]))}: ", text)
    return _FRAMES.sub("", text).strip()[-LONGEST_TEXT:]
