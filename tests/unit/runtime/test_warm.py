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


class Query:
    """A running query."""

    def __init__(self) -> None:
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def ids() -> list[str]:
    """The ids of the topics, as of now."""
    return ["first"]


@pytest.fixture
def warm(starts: Starts, begun: list[Any], ids: list[str]) -> Warm:
    def start(*how: Any) -> Query:
        begun.append(how)
        return Query()

    made = Warm(starts, "s3a://bucket/standby-1", lambda _topics: ids[0])
    made.keep(View("placement", 1, ("ledgers",), start))
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


def test_a_query_that_read_topics_that_were_made_anew_is_replaced(
    warm: Warm, starts: Starts, begun: list[Any], ids: list[str]
) -> None:
    query, seen = starts.of["placement"](), list[int]()
    ids[0] = "second"
    warm.take("placement", lambda _rows, number: seen.append(number), lambda: "the leader's")
    begun[0][0](Rows(), 0)
    assert (query.stopped, seen, starts.of["placement"]()) == (True, [], "the leader's")
