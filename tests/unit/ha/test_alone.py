"""A journal has one application without section ha at a time; the order of its log decides, without clocks."""

import threading
from collections.abc import Callable

import pytest

from tests.unit.ha.instances import Clock, Log, instance
from trueup.state.common.errors import BadBytes, Retry, Stop
from trueup.state.instance.leadership import (
    ALONE_S,
    ENDED,
    RUNNING,
    STANDBY,
    STARTING,
    WAITING,
    InstanceRole,
    LeadershipTerms,
)
from trueup.streams.instance.election import READ_S, Election
from trueup.streams.journal.codec import decode, encode

TERMS = LeadershipTerms(10.0)
QUICK_S, LIMIT_S = 1.0, 200.0


class Passing(threading.Event):
    """An event for which a test need not wait: the clock of the instances goes on, and the others act."""

    def __init__(self, now: Clock) -> None:
        super().__init__()
        self.now, self.begun_s = now, now.s
        self.others: list[Callable[[], object]] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.now.s += timeout or 0.0
        assert self.took_s < LIMIT_S, "something to happen"
        for other in self.others:
            other()
        return self.is_set()

    @property
    def took_s(self) -> float:
        return self.now.s - self.begun_s


def alone(
    log: Log, now: Clock, place: str, before: str | None = None, lost: Callable[[], object] = lambda: None
) -> Election:
    return instance(log, now, place, LeadershipTerms(ALONE_S, alone=True, before=before), lost)


def enter(made: Election, now: Clock, *others: Callable[[], object]) -> float:
    """Enter while the others act. Returns the seconds that it took."""
    stop = Passing(now)
    stop.others += others
    assert made.enter(stop)
    return stop.took_s


def running(log: Log, now: Clock, place: str = "first", lost: Callable[[], object] = lambda: None) -> Election:
    made = alone(log, now, place, lost=lost)
    enter(made, now)
    return made


def states(log: Log) -> list[str]:
    return [state for _, state in log.keys]


def test_the_first_one_starts_without_waiting(log: Log, now: Clock) -> None:
    took_s = enter(alone(log, now, "first"), now)
    assert (states(log), took_s < QUICK_S) == ([STARTING, WAITING], True)


def test_the_second_one_is_refused_with_the_place_of_the_first(log: Log, now: Clock) -> None:
    first = running(log, now)
    with pytest.raises(Stop, match="another one at first"):
        enter(alone(log, now, "second"), now, first.beat)


def test_after_an_end_in_order_the_next_one_does_not_wait(log: Log, now: Clock) -> None:
    running(log, now).leave(1.0)
    took_s = enter(alone(log, now, "second"), now)
    assert (states(log)[2], took_s < QUICK_S) == (ENDED, True)


def test_after_a_kill_another_directory_waits_and_starts(log: Log, now: Clock) -> None:
    running(log, now)
    assert ALONE_S <= enter(alone(log, now, "second"), now) < ALONE_S + QUICK_S


def test_after_a_kill_the_same_directory_does_not_wait(log: Log, now: Clock) -> None:
    killed = running(log, now)
    assert enter(alone(log, now, "first", before=killed.run), now) < QUICK_S


def test_one_that_was_refused_does_not_hide_the_one_that_runs(log: Log, now: Clock) -> None:
    first = running(log, now)
    for place in ("second", "third"):
        refused = alone(log, now, place)
        with pytest.raises(Stop, match="another one at first"):
            enter(refused, now, first.beat)
        refused.leave(1.0)
    assert log.keys[-1] == (b"starting", "")


def test_of_two_that_start_together_one_runs(log: Log, now: Clock) -> None:
    first, second = alone(log, now, "first"), alone(log, now, "second")
    with pytest.raises(Stop, match="another one at second"):
        enter(first, now, second.beat)
    assert (second.leads, first.leads) == (True, False)


def test_of_two_that_start_together_after_a_kill_one_runs(log: Log, now: Clock) -> None:
    running(log, now, "killed")
    first, second = alone(log, now, "first"), alone(log, now, "second")
    with pytest.raises(Stop, match="another one at second"):
        enter(first, now, second.beat)
    assert (second.leads, first.leads) == (True, False)


def test_one_that_stops_while_it_waits_never_ran(log: Log, now: Clock) -> None:
    running(log, now)
    stopped, stop = alone(log, now, "second"), Passing(now)
    stop.others.append(lambda: stop.took_s > ALONE_S / 2 and stop.set())
    entered = stopped.enter(stop)
    stopped.leave(1.0)
    assert (entered, set(states(log)[2:-1]), log.keys[-1]) == (False, {STARTING}, (b"starting", ""))


def test_one_that_was_silent_and_replaced_ends_once(log: Log, now: Clock) -> None:
    ended: list[int] = []
    silent = running(log, now, lost=lambda: ended.append(1))
    log.readers.remove(silent._seen)
    second = running(log, now, "second")
    before = list(ended)
    for beat in (second.beat, second.beat):
        now.s += ALONE_S / 2
        beat()
    for record in log.records[2:]:
        silent._seen(record)
    with pytest.raises(Stop, match="another one leads: second"):
        silent.prove()
    assert (before, ended) == ([], [1])


def test_the_one_that_replaced_another_goes_on(log: Log, now: Clock) -> None:
    silent = running(log, now)
    log.readers.remove(silent._seen)
    ended: list[int] = []
    later = running(log, now, "second", lambda: ended.append(1))
    silent.beat()
    later.prove()
    assert (states(log)[-1], later.leads, ended) == (RUNNING, True, [])


def test_one_that_starts_stops_nobody_and_is_no_standby(log: Log, now: Clock) -> None:
    leader = instance(log, now, "leader", TERMS)
    leader.beat()
    leader.beat()
    now.s += 1
    with pytest.raises(Stop, match="another one at leader"):
        enter(alone(log, now, "second"), now, leader.beat)
    leader.prove()
    assert (STARTING in states(log), leader.leads, leader.standbys()) == (True, True, [])


def test_a_standby_waits_for_an_application_without_ha(log: Log, now: Clock) -> None:
    first, standby = running(log, now), instance(log, now, "standby", TERMS)
    for _ in range(20):
        now.s += 5
        first.beat()
        standby.beat()
    before = standby.leads
    now.s += ALONE_S
    standby.beat()
    assert (before, standby.leads, first.leads) == (False, True, False)


def test_a_journal_that_does_not_respond_ends_no_application(log: Log, now: Clock) -> None:
    ended: list[int] = []
    first = running(log, now, lost=lambda: ended.append(1))
    log.down = True
    now.s += 1000
    with pytest.raises(Retry):
        first.beat()
    first.prove()
    first.leave(1.0)
    assert (states(log), ended) == ([STARTING, WAITING], [])


def test_while_the_journal_does_not_respond_no_silence_passes(log: Log, now: Clock) -> None:
    first, second, stop = running(log, now), alone(log, now, "second"), Passing(now)
    stop.others.append(lambda: setattr(log, "down", stop.took_s > ALONE_S / 2))
    with pytest.raises(Retry, match="acknowledged records"):
        second.enter(stop)
    now.s += 10 * ALONE_S
    log.down, back_s = False, now.s + QUICK_S
    with pytest.raises(Stop, match="another one at first"):
        enter(second, now, lambda: now.s > back_s and first.beat())


def test_one_that_cannot_read_the_journal_does_not_start(log: Log, now: Clock) -> None:
    made, stop = alone(log, now, "first"), Passing(now)
    log.readers.clear()
    with pytest.raises(Retry, match="to read what was written"):
        made.enter(stop)
    assert (stop.took_s > READ_S, made._one.role) == (True, InstanceRole.STANDBY)


def test_a_state_that_no_instance_has_is_not_readable() -> None:
    sign = {"run": "", "state": STANDBY, "place": "", "epoch": 0, "after": -1, "number": 1, "takeover_ms": 0}
    body = encode("instances", sign)
    with pytest.raises(ValueError, match="paused"):
        encode("instances", {**sign, "state": "paused"})
    with pytest.raises(BadBytes):
        decode("instances", body[:1] + b"\x0c" + body[2:])
