"""Keeps things running: queries and background loops are restarted with back-off, and stopped between batches.

The only place that catches everything: whatever went wrong in a loop is written down, shown in the status, and the
loop begins again from what it can observe.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.sql.streaming import StreamingQuery

from state.errors import TrueupError

log = logging.getLogger(__name__)
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
HEALTHY_S = 120.0  # a loop that ran this long starts again with the first wait
DRAIN_S = 60.0


@dataclass(slots=True)
class Task:
    """One thing that is kept running."""

    name: str
    restarts: int = 0
    error: str = ""
    state: str = "waiting"
    begun: float = 0.0
    next_start: float = 0.0
    query: StreamingQuery | None = None

    def failed(self, error: str, now: float) -> None:
        """Note a failure and when to begin again."""
        if now - self.begun > HEALTHY_S:
            self.restarts = 0
        wait = min(FIRST_WAIT_S * 2 ** min(self.restarts, 10), LONGEST_WAIT_S)
        self.restarts, self.error, self.state, self.next_start = self.restarts + 1, error, "failed", now + wait
        log.error("failed", extra={"task": self.name, "error": error, "again_in_s": wait})


@dataclass(slots=True)
class Supervisor:
    """Threads and streaming queries of the application."""

    stop: threading.Event
    restarted: Callable[[str], None]
    tasks: dict[str, Task] = field(default_factory=dict)
    _starts: dict[str, Callable[[], StreamingQuery]] = field(default_factory=dict)
    _threads: list[threading.Thread] = field(default_factory=list)

    def loop(self, name: str, body: Callable[[], None], every_s: float = 0.0) -> None:
        """Run ``body`` in a thread again and again until the application stops."""
        task = self.tasks.setdefault(name, Task(name))
        thread = threading.Thread(target=self._run, args=(task, body, every_s), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, task: Task, body: Callable[[], None], every_s: float) -> None:
        task.begun, task.state = time.monotonic(), "running"
        while not self.stop.is_set():
            try:
                body()
            except Exception as error:
                task.failed(f"{type(error).__name__}: {error}", time.monotonic())
                if not isinstance(error, TrueupError):
                    log.exception("a defect", extra={"task": task.name})
                self.restarted(task.name)
                self.stop.wait(task.next_start - time.monotonic())
                task.begun, task.state = time.monotonic(), "running"
            else:
                self.stop.wait(every_s)

    def query(self, name: str, start: Callable[[], StreamingQuery]) -> None:
        """Keep a streaming query running; ``start`` makes a new one from its checkpoint."""
        self._starts[name] = start
        self.tasks[name] = Task(name)

    def tend(self) -> None:
        """Start what is not running and due. Call often."""
        for name, start in self._starts.items():
            task, now = self.tasks[name], time.monotonic()
            if task.query is not None and not task.query.isActive:
                task.failed(_reason(task.query), now)
                task.query = None
                self.restarted(name)
            if task.query is None and now >= task.next_start and not self.stop.is_set():
                self._start(task, start)

    def _start(self, task: Task, start: Callable[[], StreamingQuery]) -> None:
        task.begun = time.monotonic()
        try:
            task.query, task.state = start(), "running"
        except Exception as error:
            task.failed(f"{type(error).__name__}: {error}", time.monotonic())

    def runs(self, name: str) -> bool:
        """Whether this query or loop runs."""
        return name in self.tasks and self.tasks[name].state == "running"

    def close(self) -> None:
        """Stop each query between batches, so that its last batch is committed, then the loops. Again: nothing."""
        self.stop.set()
        for task in self.tasks.values():
            if task.query is not None:
                drain(task.query)
                task.query, task.state = None, "stopped"
        for thread in self._threads:
            thread.join(DRAIN_S)


def drain(query: StreamingQuery, limit_s: float = DRAIN_S) -> None:
    """Stop a query once no batch is under way: a batch that `stop` interrupts is not committed."""
    deadline = time.monotonic() + limit_s
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(0.01)
    query.stop()


def _reason(query: StreamingQuery) -> str:
    error = query.exception()
    return str(error).split("JVM stacktrace")[0].strip()[-2000:] if error else "the query stopped by itself"
