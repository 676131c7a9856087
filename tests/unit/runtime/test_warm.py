"""Queries that a standby runs and a leader takes over."""

from collections.abc import Callable
from typing import Any

import pytest

from trueup.streams.runtime.warm import View, Warm


class Starts:
    """A supervisor: starts queries when a test asks for it."""

    def __init__(self) -> None:
        self.of: dict[str, Callable[[], Any]] = {}

    def query(self, name: str, start: Callable[[], Any]) -> None:
        self.of[name] = start

    def repeated(self, name: str) -> str:
        return ""


class Rows:
    """A batch that notes whether it was computed."""

    def __init__(self) -> None:
        self.computed: list[str] = []

    @property
    def write(self) -> "Rows":
        return self

    def format(self, name: str) -> "Rows":
        self.computed.append(name)
        return self

    def mode(self, name: str) -> "Rows":
        return self

    def save(self) -> None:
        pass


@pytest.fixture
def starts() -> Starts:
    return Starts()


@pytest.fixture
def begun() -> list[Any]:
    """What the view was started with: sink and checkpoint."""
    return []


@pytest.fixture
def warm(starts: Starts, begun: list[Any]) -> Warm:
    made = Warm(starts, "s3a://bucket/standby-1")
    made.keep(View("placement", 1, (), lambda *how: begun.append(how)))
    return made


@pytest.mark.usefixtures("warm")
def test_a_standby_computes_answers_and_drops_them(starts: Starts, begun: list[Any]) -> None:
    starts.of["placement"]()
    [(sink, checkpoint)] = begun
    rows = Rows()
    sink(rows, 0)
    assert (rows.computed, checkpoint) == (["noop"], "s3a://bucket/standby-1/placement")


def test_a_leader_receives_the_answers_of_the_running_query(warm: Warm, starts: Starts, begun: list[Any]) -> None:
    starts.of["placement"]()
    seen: list[int] = []
    taken = warm.take("placement", lambda _rows, number: seen.append(number), lambda: None)
    begun[0][0](Rows(), 7)
    assert (taken, seen) == (True, [7])


def test_a_query_that_failed_is_started_as_the_leaders(warm: Warm, starts: Starts, begun: list[Any]) -> None:
    warm.take("placement", lambda *_: None, lambda: "the leader's")
    assert (starts.of["placement"](), begun) == ("the leader's", [])


def test_a_query_that_is_not_kept_is_not_taken(warm: Warm) -> None:
    assert not warm.take("deletion", lambda *_: None, lambda: None)
