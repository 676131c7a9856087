"""A journal has one application at a time; the order of its log decides, without clocks."""

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.state.common.errors import Retry, Stop
from trueup.streams.instance.alone import ENDED, REFUSED, RUNNING, WAITING, Instance, may_run
from trueup.streams.journal.journal import JournalRecord

NEVER = threading.Event()


class Log:
    """The topic. ``at_look``: called before each read, in the role of the other applications."""

    def __init__(self) -> None:
        self.records: list[JournalRecord] = []
        self.at_look: Callable[[], object] = lambda: None
        self.down = False

    def topic(self, what: str) -> str:
        return f"trueup.c.{what}"

    def put(self, records: Iterable[tuple[str, bytes, Any]], _within_s: float) -> None:
        if self.down:
            raise Retry("acknowledged records", "none", "try again")
        for what, key, value in records:
            self.records.append(JournalRecord(key, value, what, len(self.records)))

    def read(self, what: str, last: int) -> Iterator[JournalRecord]:
        self.at_look()
        yield from self.records[-last:]

    def follow(self, what: str, stop: threading.Event, seen: Callable[[JournalRecord], None], old: bool) -> None:
        for record in self.records:
            seen(record)

    @property
    def states(self) -> list[str]:
        return [record.value["state"] for record in self.records]


@pytest.fixture
def log() -> Log:
    return Log()


def instance(log: Log, place: str, before: str = "") -> Instance:
    return Instance(log, place, before, lambda: 0)  # type: ignore[arg-type]


def enter(made: Instance, stop: threading.Event = NEVER) -> Instance:
    made.enter(stop, wait_s=0.03, look_s=0.01)
    return made


def running(log: Log, place: str = "first") -> Instance:
    return enter(instance(log, place))


def looks(log: Log) -> list[int]:
    """Counts the reads from now on."""
    counted: list[int] = []
    log.at_look = lambda: counted.append(1)
    return counted


def test_the_first_one_starts_without_waiting(log: Log) -> None:
    counted = looks(log)
    running(log)
    assert (log.states, len(counted)) == ([WAITING, RUNNING], 1)


def test_the_second_one_is_refused_with_the_place_of_the_first(log: Log) -> None:
    log.at_look = running(log).beat
    with pytest.raises(Stop, match="another one at first"):
        enter(instance(log, "second"))


def test_after_a_clean_end_the_next_one_does_not_wait(log: Log) -> None:
    running(log).leave()
    counted = looks(log)
    enter(instance(log, "second"))
    assert len(counted) == 1


def test_after_a_kill_another_directory_waits_and_starts(log: Log) -> None:
    running(log)
    counted = looks(log)
    enter(instance(log, "second"))
    assert (log.states[-1], len(counted) > 1) == (RUNNING, True)


def test_after_a_kill_the_same_directory_does_not_wait(log: Log) -> None:
    killed = running(log)
    counted = looks(log)
    enter(instance(log, "first", before=killed.run))
    assert len(counted) == 1


def test_one_that_was_refused_does_not_hide_the_one_that_runs(log: Log) -> None:
    first = running(log)
    log.at_look = first.beat
    for place in ("second", "third"):
        with pytest.raises(Stop, match="another one at first"):
            enter(instance(log, place))


def test_of_two_that_start_together_the_later_one_is_refused(log: Log) -> None:
    """The second one enters while the first one reads what precedes it, and the first one runs from then on."""
    first, second = instance(log, "first"), instance(log, "second")
    refused: list[Stop] = []

    def meanwhile() -> None:
        log.at_look = lambda: None
        log.put([("instances", b"", {"run": second.run, "state": WAITING, "since": -1, "place": "second"})], 1.0)

    log.at_look = meanwhile
    enter(first)
    log.at_look = first.beat
    try:
        enter(second)
    except Stop as error:
        refused.append(error)
    assert refused


def test_one_that_stops_while_it_waits_never_ran(log: Log) -> None:
    running(log)
    stop = threading.Event()
    stop.set()
    enter(instance(log, "second"), stop).leave()
    assert log.states[2:] == [WAITING, REFUSED, REFUSED]


def test_one_that_was_silent_and_replaced_stops(log: Log) -> None:
    silent = running(log)
    running(log, "second")
    told: list[int] = []
    silent.follow(NEVER, lambda: told.append(1))
    assert told


def test_the_one_that_replaced_another_goes_on(log: Log) -> None:
    silent = running(log)
    later = running(log, "second")
    silent.beat()
    told: list[int] = []
    later.follow(NEVER, lambda: told.append(1))
    assert not told


def test_one_at_the_door_stops_nobody(log: Log) -> None:
    first = running(log)
    log.at_look = first.beat
    with pytest.raises(Stop):
        enter(instance(log, "second"))
    told: list[int] = []
    first.follow(NEVER, lambda: told.append(1))
    assert not told


def test_a_journal_that_does_not_respond_ends_no_application(log: Log) -> None:
    first = running(log)
    log.down = True
    first.beat()
    first.leave()
    assert log.states == [WAITING, RUNNING]


RUNS = ("a", "b", "c")


@given(st.lists(st.tuples(st.sampled_from(RUNS), st.sampled_from((RUNNING, ENDED, REFUSED))), max_size=12))
def test_whoever_ran_last_without_an_end_may_run(told: list[tuple[str, str]]) -> None:
    """Runs enter in the order of their names; each says what it says after that."""
    since = {run: number for number, run in enumerate(RUNS)}
    records = [JournalRecord(b"", {"run": run, "state": WAITING, "since": -1}, "", since[run]) for run in RUNS]
    records += [
        JournalRecord(b"", {"run": run, "state": state, "since": since[run]}, "", len(RUNS) + number)
        for number, (run, state) in enumerate(told)
    ]
    newest = dict(told)
    ran = [run for run in RUNS if newest.get(run) in (RUNNING, ENDED)]
    expected = {run for run in RUNS if newest.get(run, WAITING) in (RUNNING, WAITING) and run >= max(ran, default="")}
    assert may_run(records, len(records)) == expected
