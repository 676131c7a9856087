"""An exception in a thread is reported with its location, removes readiness, and is followed by a retry."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.configuration import parse
from trueup.connectors.bookkeeper.metadata.capture import BookKeeperCapture
from trueup.connectors.bookkeeper.metadata.published import JournalContent
from trueup.connectors.bookkeeper.metadata.racks import Unmapped
from trueup.connectors.bookkeeper.placement.auditor_election import Vote
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.pulsar.capture import PulsarCapture as Owners
from trueup.connectors.pulsar.layout import PulsarPaths
from trueup.connectors.zookeeper.follower import Watcher
from trueup.state.common.errors import Retry, Stop
from trueup.streams.api import Application
from trueup.streams.config.live import Live
from trueup.streams.replication.links.monitor import LinkMonitor
from trueup.streams.runtime import supervisor as module
from trueup.streams.runtime.logs import LogFormatter
from trueup.streams.runtime.spark.listener import Listener
from trueup.streams.runtime.supervisor import Supervisor
from trueup.streams.web.server import Server, claim

WAIT_S = 60.0


class Panic(BaseException):
    """An exception like those of extensions written in Rust."""


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    monkeypatch.setattr(module, "FIRST_WAIT_S", 0.001)
    made = Supervisor(threading.Event(), lambda _: None)
    yield made
    closed(made)


def closed(supervisor: Supervisor, drain_s: float = 5.0, limit_s: float = 10.0) -> None:
    now = time.monotonic()
    supervisor.close(now + drain_s, now + limit_s)


class Flaky:
    """Fails until it is repaired."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error, self.failures = error or OverflowError("too large"), 0
        self.broken, self.tried = True, threading.Event()

    def __call__(self, *_: Any) -> Any:
        if self.broken:
            self.failures += 1
            raise self.error
        self.tried.set()


def seen_to(supervisor: Supervisor, name: str, flaky: Flaky, mended: Callable[[], bool]) -> tuple[bool, bool]:
    """Whether the failure is reported under this name while it lasts, and cleared after recovery."""
    wait_until(lambda: flaky.failures > 2, WAIT_S, f"{name} to be tried again and again")
    reported = any(
        problem.startswith(f"{name} failed: OverflowError: too large, at ") for problem in supervisor.failing()
    )
    flaky.broken = False
    wait_until(mended, WAIT_S, f"{name} to work again")
    wait_until(lambda: not supervisor.failing(), WAIT_S, f"the failure of {name} to be over")
    return reported, not supervisor.failing()


@pytest.mark.parametrize("error", [OverflowError("too large"), Retry("a", "b", "c"), Panic(), SystemExit(1)])
def test_a_loop_outlives_whatever_it_raises(supervisor: Supervisor, error: BaseException) -> None:
    flaky = Flaky(error)
    supervisor.loop("work", flaky)
    wait_until(lambda: flaky.failures > 2, WAIT_S, "it to be tried again")
    (problem,) = supervisor.failing()
    flaky.broken = False
    assert flaky.tried.wait(WAIT_S), "it works again"
    wait_until(lambda: not supervisor.failing(), WAIT_S, "the failure to be over")
    assert problem.startswith(f"work failed: {type(error).__name__}")


def test_a_defect_is_reported_with_its_place_in_our_code() -> None:
    def far(_: Any) -> None:
        Supervisor.runs(None, "x")  # type: ignore[arg-type]

    with pytest.raises(AttributeError) as caught:
        far(None)
    assert "at streams/runtime/supervisor.py:" in module.error_text(caught.value)


def never() -> Any:
    raise Retry("a connection", "none", "there is no server here")


WATCHERS: dict[str, Callable[[Any], Watcher]] = {
    "capture": lambda c: BookKeeperCapture(
        c, "/l", Unmapped(), lambda _: None, lambda _: None, JournalContent(), lambda: 0
    ),
    "owners": lambda c: Owners(c, PulsarPaths(), lambda _: None, {}, lambda: 0),
    "vote": lambda c: Vote(c, "/l", "trueup", lambda _: None),
}


@pytest.mark.parametrize("name", WATCHERS)
def test_watchers_of_zookeeper_outlive_defects(supervisor: Supervisor, name: str) -> None:
    flaky = Flaky()
    made = WATCHERS[name](lambda: flaky() or never())
    made.start(supervisor.run)
    assert seen_to(supervisor, name, flaky, flaky.tried.is_set) == (True, True)
    wait_until(lambda: not made.defect, WAIT_S, "the defect to be over")
    made.close()


LOOPS = {
    "sides": "look",
    "alignment": "align",
    "committed offsets": "committed",
    "groups": "move",
    "groups back": "move_back",
    "heartbeat": "heart",
}


@pytest.mark.parametrize("kind", LOOPS)
def test_loops_of_links_outlive_defects(supervisor: Supervisor, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flaky = Flaky()
    for name, method in LOOPS.items():
        monkeypatch.setattr(LinkMonitor, method, flaky if name == kind else lambda *_: None)
    watch = object.__new__(LinkMonitor)
    watch.link = SimpleNamespace(name="east-west", declared=SimpleNamespace(heartbeat_s=0.001))  # type: ignore[assignment]
    monkeypatch.setattr("trueup.streams.replication.links.monitor.LOOK_S", 0.001)
    watch.begin(supervisor)
    assert seen_to(supervisor, f"{kind} of east-west", flaky, flaky.tried.is_set) == (True, True)


def test_the_config_topic_is_followed_through_defects(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    flaky, journal = Flaky(), SimpleNamespace(follow=lambda *_: None)
    live = Live(Any, journal, lambda: 0)  # type: ignore[arg-type]
    live.listeners.append(flaky)
    supervisor.loop("config", lambda: live.follow(supervisor.stop))
    assert seen_to(supervisor, "config", flaky, flaky.tried.is_set) == (True, True)


def test_the_server_outlives_defects(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    flaky = Flaky()
    monkeypatch.setattr("waitress.server.BaseWSGIServer.run", flaky)
    server = Server(lambda *_: [], claim("127.0.0.1", 0), supervisor.run)  # type: ignore[arg-type]
    assert seen_to(supervisor, "http", flaky, flaky.tried.is_set) == (True, True)
    server.stop()


def test_sparks_listener_hides_no_defect_and_goes_on(supervisor: Supervisor) -> None:
    flaky = Flaky()
    listener = Listener(flaky, guard=lambda act: supervisor.guarded("listener", act))
    event: Any = SimpleNamespace(progress=SimpleNamespace(json='{"name": "placement"}'))
    for _ in range(3):
        listener.onQueryProgress(event)
    reported = supervisor.failing()
    flaky.broken = False
    listener.onQueryProgress(event)
    assert ([text.partition(",")[0] for text in reported], supervisor.failing()) == (
        ["listener failed: OverflowError: too large"],
        [],
    )


def test_the_frames_of_java_do_not_hide_what_happened() -> None:
    frames = "".join(f"\tat org.apache.spark.Class{n}$.run(File.scala:{n})\n" for n in range(200))
    error = RuntimeError(
        f"Python worker exited unexpectedly (crashed)\n{frames}Caused by: java.io.EOFException\n\t... 9 more"
    )
    assert module.error_text(error).startswith(
        "RuntimeError: Python worker exited unexpectedly (crashed)\nCaused by: java.io.EOFException, at "
    )


def test_the_frames_of_python_become_the_place_in_our_code() -> None:
    """As Spark reports a foreachBatch whose query fails in a worker of another installation."""
    error = RuntimeError(
        "An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):\n"
        '  File "/v/site-packages/pyspark/sql/utils.py", line 163, in call\n'
        "    self.func(DataFrame(jdf, wrapped_session_jdf), batch_id)\n"
        '  File "/app/trueup/streams/placement/sink.py", line 20, in _batch\n'
        "    rows = frame.collect()\n"
        "           ^^^^^^^^^^^^^^^\n"
        '  File "/v/site-packages/py4j/java_gateway.py", line 1362, in __call__\n'
        "    return_value = get_return_value(\n"
        "PythonException: An exception was thrown from the Python worker:\n"
        "Traceback (most recent call last):\n"
        '  File "/w/lib/trueup/state/placement/view.py", line 7, in fold\n'
        "    raise ValueError(text)\n"
        "ValueError: boom\n\n"
        "=== Streaming Query ===\nIdentifier: [id = 9]"
    )
    assert module.error_text(error).startswith(
        "RuntimeError: An exception was raised by the Python Proxy. Return Message: at streams/placement/sink.py:20: "
        "PythonException: An exception was thrown from the Python worker:\nat state/placement/view.py:7: "
        "ValueError: boom, at "
    )


def test_errors_that_end_threads_of_libraries_are_logged(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", supervisor.thread_died)
    thread = threading.Thread(target=Flaky(), name="library")
    thread.start()
    thread.join()
    assert [text.partition(",")[0] for text in supervisor.failing()] == [
        "thread library failed: OverflowError: too large"
    ]


class Query:
    """A streaming query that runs until it is marked as ended."""

    def __init__(self) -> None:
        self.isActive, self.status = True, {"isTriggerActive": False}

    def exception(self) -> None:
        return None

    def stop(self) -> None:
        self.isActive = False


def test_a_query_that_ended_is_a_problem_until_a_batch_of_the_next_is_done(supervisor: Supervisor) -> None:
    queries: list[Any] = []
    supervisor.query("placement", lambda: queries.append(Query()) or queries[-1])  # type: ignore[func-returns-value]
    supervisor.tend()
    queries[0].isActive = False
    supervisor.tend()
    wait_until(lambda: supervisor.tend() or len(queries) == 2, WAIT_S, "another query")  # type: ignore[func-returns-value]
    before = supervisor.failing()
    supervisor.progressed("placement")
    assert (before, supervisor.failing()) == (["stream placement failed: the query stopped by itself"], [])


def test_what_fails_takes_readiness_away(supervisor: Supervisor) -> None:
    flaky: Any = Flaky()
    supervisor.guarded("listener", flaky)
    now = parse({"cluster": {"zookeeper": "127.0.0.1:1"}})
    history: Any = None
    live: Any = SimpleNamespace(now=now, refused={})
    journal: Any = SimpleNamespace(reachable=lambda: True, bootstrap="none:0")
    made = Application(live, journal, {}, supervisor, Listener(lambda _: None), lambda: 0, history)
    before = made.status()
    flaky.broken = False
    supervisor.guarded("listener", flaky)
    assert (before["ready"], "listener failed" in before["problems"][0], made.status()["ready"]) == (False, True, True)


def test_queries_end_at_once_and_together(supervisor: Supervisor) -> None:
    """Each query waits until the status of the others is read."""
    together = threading.Barrier(3)

    class Busy(Query):
        @property
        def status(self) -> dict[str, bool]:
            together.wait(WAIT_S)
            return {"isTriggerActive": False}

        @status.setter
        def status(self, _: Any) -> None:
            pass

    queries: list[Any] = [Busy() for _ in range(3)]
    for number, query in enumerate(queries):
        supervisor.query(f"link-{number}", lambda query=query: query)
    supervisor.tend()
    closed(supervisor)
    assert [query.isActive for query in queries] == [False, False, False]


def test_a_check_that_fails_keeps_queries_from_starting(supervisor: Supervisor) -> None:
    flaky, queries = Flaky(Retry("Spark to run", "nothing", "wait")), list[Any]()
    supervisor.check("spark", flaky)
    supervisor.query("placement", lambda: queries.append(Query()) or queries[-1])  # type: ignore[func-returns-value]
    supervisor.tend()
    reported, early = supervisor.failing(), len(queries)
    flaky.broken = False
    wait_until(lambda: supervisor.tend() or queries, WAIT_S, "the query")  # type: ignore[func-returns-value]
    assert (reported[0].startswith("spark failed: Retry: expected Spark to run"), early, supervisor.failing()) == (
        True,
        0,
        [],
    )


def test_the_wait_grows_with_each_failure_of_a_check(supervisor: Supervisor) -> None:
    flaky = Flaky(Retry("Spark to run", "nothing", "wait"))
    supervisor.check("spark", flaky)
    wait_until(lambda: supervisor.tend() or flaky.failures > 2, WAIT_S, "three failures")  # type: ignore[func-returns-value]
    assert supervisor.tasks["spark"].restarts == 3


def test_a_pass_does_not_begin_while_the_gate_is_closed() -> None:
    passes: list[int] = []
    supervisor = Supervisor(threading.Event(), lambda _: None)

    def closed() -> None:
        raise Stop("to lead", "another instance", "none")

    supervisor.gate = closed
    supervisor.guarded("task", lambda: passes.append(1))
    assert (passes, supervisor.tasks["task"].state) == ([], "failed")


def test_names_of_tasks_are_known_before_these_fail() -> None:
    names: list[str] = []
    supervisor = Supervisor(threading.Event(), lambda _: None, supervised=names.append)
    supervisor.loop("a loop", lambda: None, 1.0)
    supervisor.guarded("a listener", lambda: None)
    supervisor.check("a check", lambda: None)
    supervisor.query("a query", Flaky())
    closed(supervisor)
    assert names == ["a loop", "a listener", "a check", "a query"]


def test_every_log_line_of_a_pass_names_it(supervisor: Supervisor) -> None:
    lines = list[str]()
    record = logging.makeLogRecord({"name": "streams.x", "msg": "decided", "levelname": "INFO"})
    for _ in range(2):
        supervisor.guarded("tally", lambda: lines.append(LogFormatter().format(record)))
    lines.append(LogFormatter().format(record))
    assert [line.partition("decided")[2] for line in lines] == [" pass=tally-1", " pass=tally-2", ""]
