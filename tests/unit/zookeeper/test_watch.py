"""The zxid up to which no event was missed, for any loss of connection or events."""

from collections.abc import Callable
from typing import Any

import pytest
from kazoo.protocol.states import KazooState

from trueup.connectors.zookeeper.client import NodeEvent
from trueup.connectors.zookeeper.connection import Sink
from trueup.connectors.zookeeper.watch import FEW, LATER, SOON, NodeWatch, PathEvent


class Line:
    """The part of a client that a watch uses."""

    def __init__(self) -> None:
        self.connected, self.last_zxid = True, 0
        self.sink: Sink = lambda _: None
        self._listeners: list[Callable[[str], None]] = []

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self._listeners.append(listener)

    def turn(self, state: str) -> None:
        self.connected = state == KazooState.CONNECTED
        for listener in self._listeners:
            listener(state)


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
def watch(line: Line) -> NodeWatch:
    made = NodeWatch(("/r/noise/",), lambda: 17)
    followed: Any = line
    made.follow(followed)
    return made


def test_an_answer_covers_every_write_up_to_its_zxid(line: Line, watch: NodeWatch) -> None:
    watch.arm(watch.losses())
    line.last_zxid = 50
    line.turn(KazooState.SUSPENDED)
    assert watch.covered == 50


def test_an_event_does_not_cover_its_own_transaction(line: Line, watch: NodeWatch) -> None:
    # The transaction may have written further znodes, whose events had not arrived.
    watch.arm(watch.losses())
    line.last_zxid = 50
    line.sink([(60, NodeEvent.DATA, "/r/a")])
    line.turn(KazooState.SUSPENDED)
    assert watch.covered == 59


def test_what_comes_before_all_was_read_covers_nothing(line: Line, watch: NodeWatch) -> None:
    line.last_zxid = 50
    line.sink([(60, NodeEvent.DATA, "/r/a")])
    line.turn(KazooState.SUSPENDED)
    assert watch.covered is None


def test_a_loss_before_all_was_read_again_does_not_move_the_mark(line: Line, watch: NodeWatch) -> None:
    watch.arm(watch.losses())
    line.last_zxid = 50
    line.turn(KazooState.SUSPENDED)
    line.turn(KazooState.CONNECTED)
    line.last_zxid = 70
    line.turn(KazooState.LOST)
    assert watch.covered == 50


def test_a_connection_that_went_and_came_while_reading_does_not_arm(line: Line, watch: NodeWatch) -> None:
    losses = watch.losses()
    line.turn(KazooState.SUSPENDED)
    line.turn(KazooState.CONNECTED)
    assert not watch.arm(losses)


def test_a_lost_connection_does_not_arm(line: Line, watch: NodeWatch) -> None:
    line.turn(KazooState.SUSPENDED)
    assert not watch.arm(watch.losses())


def test_forgetting_asks_for_everything(line: Line, watch: NodeWatch) -> None:
    watch.arm(watch.losses())
    watch.disarm(forget=True)
    assert (watch.armed, watch.covered) == (False, None)


def test_the_newest_event_of_a_path_stands(line: Line, watch: NodeWatch) -> None:
    for zxid, kind in ((1, NodeEvent.CREATED), (2, NodeEvent.DATA), (3, NodeEvent.DELETED)):
        line.sink([(zxid, kind, "/r/a")])
    assert watch.take() == {"/r/a": PathEvent(NodeEvent.DELETED, 3)}


def test_what_was_put_back_gives_way_to_what_is_newer(line: Line, watch: NodeWatch) -> None:
    line.sink([(1, NodeEvent.CREATED, "/r/a")])
    line.sink([(2, NodeEvent.CREATED, "/r/b")])
    taken = watch.take()
    line.sink([(3, NodeEvent.DELETED, "/r/a")])
    watch.put_back(taken)
    assert watch.take() == {"/r/a": PathEvent(NodeEvent.DELETED, 3), "/r/b": PathEvent(NodeEvent.CREATED, 2)}


def test_ignored_paths_are_not_delivered(line: Line, watch: NodeWatch) -> None:
    line.sink([(1, NodeEvent.CREATED, "/r/noise/ID-1")])
    assert (watch.take(), watch.last_event_ms) == ({}, 0)


class Clock:
    """A manual clock in seconds."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bursting(line: Line, clock: Clock) -> NodeWatch:
    made = NodeWatch((), lambda: int(clock.now_s * 1_000), ("/r/calm/",), "L", clock)
    followed: Any = line
    made.follow(followed)
    return made


def test_a_burst_is_left_alone_while_it_lasts(line: Line, bursting: NodeWatch) -> None:
    line.sink([(1, NodeEvent.CREATED, "/r/calm/La"), (2, NodeEvent.CREATED, "/r/b")])
    assert bursting.take() == {"/r/b": PathEvent(NodeEvent.CREATED, 2)}


def test_events_of_a_burst_without_the_name_are_not_delivered(line: Line, clock: Clock, bursting: NodeWatch) -> None:
    line.sink([(1, NodeEvent.CREATED, "/r/calm/b"), (1, NodeEvent.CREATED, "/r/calm/b/La")])
    clock.now_s += SOON.calm_s
    assert bursting.take() == {"/r/calm/b/La": PathEvent(NodeEvent.CREATED, 1)}


def test_a_burst_is_taken_when_it_is_over(line: Line, clock: Clock, bursting: NodeWatch) -> None:
    line.sink([(1, NodeEvent.CREATED, "/r/calm/La")])
    clock.now_s += SOON.calm_s
    assert bursting.take() == {"/r/calm/La": PathEvent(NodeEvent.CREATED, 1)}


def test_a_burst_without_an_end_is_taken_in_pieces(line: Line, clock: Clock, bursting: NodeWatch) -> None:
    begun_s = clock.now_s
    while clock.now_s < begun_s + SOON.burst_s:
        line.sink([(1, NodeEvent.CREATED, f"/r/calm/La{clock.now_s}")])
        clock.now_s += SOON.calm_s / 2
    assert len(bursting.take()) == SOON.burst_s / (SOON.calm_s / 2)


def test_a_large_burst_is_left_alone_for_longer(line: Line, clock: Clock, bursting: NodeWatch) -> None:
    line.sink([(1, NodeEvent.CREATED, f"/r/calm/L{number}") for number in range(FEW + 1)])
    taken = []
    for until_s in (SOON.calm_s, LATER.calm_s - SOON.calm_s):
        clock.now_s += until_s
        taken.append(len(bursting.take()))
    assert taken == [0, FEW + 1]


def test_pending_events_are_behind_since_the_first_one(line: Line, clock: Clock, bursting: NodeWatch) -> None:
    begun_s = clock.now_s
    for _ in range(2):
        line.sink([(1, NodeEvent.CREATED, "/r/calm/La")])
        clock.now_s += SOON.calm_s / 4
    bursting.take()
    assert (len(bursting), bursting.pending_ms()) == (1, begun_s * 1_000)


def test_a_waiting_thread_is_woken_when_a_burst_is_over(line: Line, bursting: NodeWatch, clock: Clock) -> None:
    line.sink([(1, NodeEvent.CREATED, "/r/calm/La")])
    bursting.wait(60.0)
    clock.now_s += SOON.calm_s
    bursting.wait(60.0)
    assert bursting.take()
