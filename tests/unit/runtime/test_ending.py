"""Shutdown completes within ten seconds even if a part hangs, and the log lists the remaining parts."""

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from trueup.streams import app
from trueup.streams.runtime.process import ending
from trueup.streams.runtime.process.ending import Ending
from trueup.streams.runtime.spark import driver
from trueup.streams.runtime.spark.driver import Driver
from trueup.streams.runtime.spark.listener import Listener
from trueup.streams.runtime.supervisor import Supervisor, drain

WAIT_S = 60.0
TIMES = ("BATCHES_S", "QUIET_S", "SAVED_S", "KILL_S", "CLOSED_S")
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"


@pytest.fixture
def hang() -> Iterator[Callable[[], None]]:
    """Blocks until the end of the test."""
    over = threading.Event()
    yield lambda: over.wait(WAIT_S) and None
    over.set()


@pytest.fixture(autouse=True)
def handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Does not shut down the log handlers of pytest."""
    monkeypatch.setattr(logging, "shutdown", lambda: None)


@pytest.fixture
def supervisor() -> Supervisor:
    return Supervisor(threading.Event(), lambda _: None)


def parts(caplog: pytest.LogCaptureFixture, text: str) -> set[str]:
    """Parts with this text in the log."""
    return {vars(record).get("part", "") for record in caplog.records if text in record.message}


def test_times_follow_on_each_other_and_the_last_is_below_ten_seconds() -> None:
    times = [getattr(ending, name) for name in (*TIMES, "END_S")]
    assert (times, times[-1] < 10) == (sorted(times), True)


def test_times_count_from_the_first_signal() -> None:
    now = [100.0]
    made = Ending(threading.Event(), lambda: now[0])
    made.begin()
    now[0] = 104.0
    made.begin()
    assert (made.at(9.0), made.left_s(9.0), made.left_s(3.0), made.passed_s()) == (109.0, 5.0, 0.0, 4.0)


@pytest.mark.parametrize(("reported", "code"), [(True, 0), (False, 1)])
def test_what_takes_too_long_is_ended_at_once_with_spark(
    monkeypatch: pytest.MonkeyPatch, reported: bool, code: int
) -> None:
    monkeypatch.setattr(ending, "END_S", 0.0)
    done: list[object] = []
    made = Ending(threading.Event(), leave=done.append)
    made.last = lambda: done.append("Spark")
    if reported:
        made.begin()
    else:
        made.at(0.0)  # a start that failed
    made.force()
    assert done == ["Spark", code]


def test_a_leader_that_lost_its_place_ends_at_once_with_spark() -> None:
    done: list[object] = []
    made = Ending(threading.Event(), leave=done.append)
    made.last = lambda: done.append("Spark")
    made.abort()
    assert done == ["Spark", 1]


def test_a_hanging_part_is_left_behind_and_logged(
    supervisor: Supervisor, hang: Callable[[], None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in TIMES:
        monkeypatch.setattr(app, name, 0.1)
    running: Any = object.__new__(app.Running)
    running._ending, running._supervisor = Ending(supervisor.stop), supervisor
    running._quiet, running._closes = {"http": hang}, {"journal": hang}
    supervisor.loop("config", hang)
    query: Any = SimpleNamespace(isActive=True, status={"isTriggerActive": False}, stop=hang)
    supervisor.query("placement", lambda: query)
    supervisor._start(supervisor.tasks["placement"], lambda: query)
    running._end()
    assert parts(caplog, "thread not ended") == {"http", "placement", "config", "journal"}


def test_what_ends_with_the_queries_ends_beside_them(supervisor: Supervisor) -> None:
    together = threading.Barrier(3)
    query: Any = SimpleNamespace(isActive=True, status={"isTriggerActive": False}, stop=lambda: together.wait(WAIT_S))
    supervisor.query("placement", lambda: query)
    supervisor.tend()
    steps = {name: lambda: together.wait(WAIT_S) and None for name in ("http", "capture")}
    now = time.monotonic()
    supervisor.close(now + WAIT_S, now + WAIT_S, steps)
    assert (together.broken, together.n_waiting) == (False, 0)


def test_a_failing_step_is_logged_and_blocks_no_other(supervisor: Supervisor, caplog: pytest.LogCaptureFixture) -> None:
    done: list[str] = []
    steps: dict[str, Callable[[], None]] = {"http": lambda: [][0], "capture": lambda: done.append("capture")}
    supervisor.together(steps, time.monotonic() + WAIT_S)
    assert (parts(caplog, "part not closed"), done) == ({"http"}, ["capture"])


def test_a_batch_that_takes_too_long_is_interrupted(supervisor: Supervisor, caplog: pytest.LogCaptureFixture) -> None:
    stopped: list[bool] = []
    query: Any = SimpleNamespace(isActive=True, status={"isTriggerActive": True}, stop=lambda: stopped.append(True))
    supervisor.query("placement", lambda: query)
    supervisor.tend()
    now = time.monotonic()
    supervisor.close(now, now + WAIT_S)
    reported = [vars(record)["task"] for record in caplog.records if "interrupted" in record.message]
    assert (stopped, reported) == ([True], ["placement"])


def test_a_query_between_batches_is_not_called_interrupted() -> None:
    query: Any = SimpleNamespace(isActive=True, status={"isTriggerActive": False}, stop=lambda: None)
    assert drain(query, 0.0)


def test_a_jvm_that_does_not_end_is_killed_and_that_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        monkeypatch.setattr(driver, "_process", lambda: process)
        Driver(lambda: None, Listener(lambda _: None)).close(time.monotonic() + 0.1)  # type: ignore[arg-type, return-value]
    assert (process.returncode, "killed" in caplog.text) == (-9, True)


def test_an_embedded_journal_that_had_to_be_killed_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    running: Any = object.__new__(app.Running)
    saved: list[float] = []
    running._ending = Ending(threading.Event(), lambda: 0.0)
    running._history = SimpleNamespace(save=saved.append)
    graces: list[float] = []
    running._close_journal(SimpleNamespace(stop=graces.append, process=SimpleNamespace(exit_code=-9)))
    assert (saved, graces, "killed" in caplog.text) == ([ending.SAVED_S], [ending.KILL_S], True)
