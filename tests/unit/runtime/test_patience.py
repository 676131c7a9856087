"""Steps of a start that wait for a server."""

import logging
import threading
from collections.abc import Callable

import pytest

from trueup.state.common.errors import Retry, Stop, TrueupError
from trueup.streams.runtime.process.patience import patiently


def failing(times: int, error: TrueupError) -> Callable[[], int]:
    """A step that fails so often and then returns the number of its calls."""
    calls = 0

    def step() -> int:
        nonlocal calls
        calls += 1
        if calls <= times:
            raise error
        return calls

    return step


LATE = Retry("acknowledged records", "1 unacknowledged after 4 s", "try again")


def test_a_step_that_is_late_is_repeated_and_the_log_says_for_what(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert patiently("the journal", failing(3, LATE), threading.Event(), pause_s=0.0) == 4
    assert {(r.part, r.problem) for r in caplog.records} == {("the journal", str(LATE))}  # type: ignore[attr-defined]


def test_a_step_that_cannot_succeed_ends_at_once() -> None:
    with pytest.raises(Stop):
        patiently("the journal", failing(1, Stop("a right", "none", "grant it")), threading.Event())


def test_the_wait_ends_after_its_limit() -> None:
    with pytest.raises(Retry, match="1 unacknowledged"):
        patiently("the journal", failing(10**9, LATE), threading.Event(), limit_s=0.05, pause_s=0.0)


def test_the_wait_ends_with_the_application() -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(Retry):
        patiently("the journal", failing(10**9, LATE), stop)


def test_no_attempt_is_made_without_the_right_to_it() -> None:
    made = list[int]()

    def may() -> None:
        if made:
            raise Stop("this instance to lead", "no proof", "none")

    def step() -> None:
        made.append(1)
        raise LATE

    with pytest.raises(Stop, match="no proof"):
        patiently("the journal", step, threading.Event(), pause_s=0.0, may=may)
    assert made == [1]
