"""Pending verdicts, judged ledgers, and when verdicts are reliable."""

from typing import Any

import numpy as np
import pytest

from trueup.state.bookkeeper.observations import LedgerState, Observation
from trueup.state.common.errors import Retry
from trueup.state.common.rules import Verdict
from trueup.state.placement.progress import Queue, WaitingLedgers, counted
from trueup.state.placement.readiness import LATE_MS, Readiness, few
from trueup.state.placement.view import FINDING, Rows
from trueup.streams.placement.judging import Judging


def ids(*ledgers: int) -> Rows:
    return np.array(ledgers, np.int64)


def queue(*ledgers: int, present: bool = True) -> Queue:
    """Ledgers published at times 0 and 1, up to offset 10 of a journal that was empty."""
    made = Queue()
    made.start({0: 0})
    made.add(ids(*ledgers), np.full(len(ledgers), present), 0)
    made.locate(1, {0: 10})
    return made


def finding(ledger: int, verdict: Verdict) -> Rows:
    made = np.zeros(1, FINDING)
    made["ledger"], made["verdict"] = ledger, verdict
    return made


@pytest.mark.parametrize(("taken", "waits"), [(9, [1, 2]), (10, []), (11, [])])
def test_a_ledger_waits_until_the_stream_is_beyond_its_record(taken: int, waits: list[int]) -> None:
    made = queue(2, 1)
    made.take({0: taken})
    assert made.waiting.ledgers.tolist() == waits


def test_after_the_loss_of_the_view_all_ledgers_wait_until_the_journal_was_read_again() -> None:
    made = queue(1, 2)
    made.take({0: 10})
    assert made.started
    made.restart({0: 10})
    assert not made.started
    made.take({0: 9})
    assert not made.started
    made.take({0: 10})
    assert made.started


def test_all_partitions_count() -> None:
    made = Queue()
    made.start({})
    made.add(ids(1), ids(1) > 0, 0)
    made.locate(1, {0: 3, 1: 5})
    made.take({0: 3, 1: 4})
    assert made.waiting.present == 1


def test_what_has_no_position_yet_waits() -> None:
    made = queue(1)
    made.add(ids(2), np.array([True]), 5)
    made.take({0: 10})
    assert made.waiting.ledgers.tolist() == [2]


def test_of_a_ledger_the_last_publication_counts() -> None:
    made = queue(1, 2)
    made.add(ids(1), np.array([False]), 5)
    assert (made.waiting.ledgers.tolist(), made.waiting.present) == ([1, 2], 1)


def test_what_the_journal_held_at_the_start_waits() -> None:
    made = Queue()
    made.start({0: 4})
    before = made.started
    made.take({0: 4})
    assert (before, made.started) == (False, True)


def test_what_waits_is_unknown_whatever_was_found_before() -> None:
    found = np.concatenate([finding(1, Verdict.DRIFTED), finding(2, Verdict.BLOCKED)])
    waiting = WaitingLedgers(ids(1, 3), 2)
    assert counted(found, waiting, 6) == {"true": 3, "drifted": 0, "blocked": 1, "unknown": 2}


def test_so_many_that_wait_are_not_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trueup.state.placement.progress.EXACT", 1)
    made = queue(2, 1, 2)
    found = np.concatenate([finding(1, Verdict.DRIFTED), finding(5, Verdict.DRIFTED)])
    assert counted(found, made.waiting, 9) == {"true": 5, "drifted": 1, "blocked": 0, "unknown": 3}


def test_what_was_deleted_and_waits_is_nothing() -> None:
    found = finding(1, Verdict.DRIFTED)
    assert counted(found, WaitingLedgers(ids(1), 0), 2) == {"true": 2, "drifted": 0, "blocked": 0, "unknown": 0}


@pytest.mark.parametrize(("waits", "ledgers", "small"), [(0, 0, True), (1, 100, True), (1, 99, False), (6, 6, False)])
def test_few_is_one_in_a_hundred(waits: int, ledgers: int, small: bool) -> None:
    assert few(waits, ledgers) is small


def test_it_is_not_ready_before_all_was_judged_once() -> None:
    made = Readiness()
    made.update(1, 1000, 0, 10)
    before = made.ready(11)
    made.update(0, 1000, None, 12)
    assert (before, made.ready(12)) == (False, True)


def test_with_constant_writes_what_was_there_at_first_has_to_be_judged() -> None:
    made = Readiness()
    made.update(1, 1000, 0, 10)
    made.update(1, 1000, 15, 20)
    assert made.ready(20)


@pytest.mark.parametrize(("after_ms", "ready"), [(LATE_MS, True), (LATE_MS + 1, False)])
def test_many_that_wait_for_long_take_readiness_away(after_ms: int, ready: bool) -> None:
    made = Readiness()
    made.update(0, 100, None, 0)
    made.update(2, 100, 100, 100)
    assert made.ready(100 + after_ms) is ready


def test_readiness_returns() -> None:
    made = Readiness()
    made.update(0, 100, None, 0)
    made.update(2, 100, 100, 100)
    made.update(1, 100, 100, LATE_MS * 2)
    assert made.ready(LATE_MS * 9)


class Journal:
    """Ends at offset 7, or does not respond."""

    def __init__(self) -> None:
        self.away = False

    def ends(self, what: str) -> dict[int, int]:
        if self.away:
            raise Retry("an answer", "none", "try again")
        return {0: 7}


def progress(end: int) -> dict[str, Any]:
    """Query progress as Spark reports it."""
    ends = {"trueup.east.ledgers": {"0": end}, "trueup.east.marks": {"0": 99}}
    return {"name": "placement", "sources": [{"description": "KafkaV2", "endOffset": ends}]}


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
def judging(journal: Journal) -> Judging:
    made = Judging(journal, lambda: 0)
    made.load()
    return made


def published(judging: Judging, ledger: int, state: LedgerState = LedgerState.CLOSED) -> None:
    value: Any = {"ledger": ledger, "state": int(state)}
    judging.published([Observation("ledgers", b"", value)])


def present(judging: Judging) -> int | None:
    return None if judging.waiting is None else judging.waiting.present


def test_nothing_is_known_before_the_stream_has_come_to_the_start(judging: Judging) -> None:
    judging.progress(progress(6))
    assert judging.waiting is None


def test_a_progress_report_ends_the_wait(judging: Judging) -> None:
    judging.progress(progress(7))
    published(judging, 1)
    before = present(judging)
    judging.tick()
    assert (before, present(judging)) == (1, 0)


def test_deleted_ledgers_do_not_wait(judging: Judging) -> None:
    judging.progress(progress(7))
    published(judging, 1, LedgerState.GONE)
    assert present(judging) == 0


def test_a_journal_that_does_not_answer_keeps_ledgers_waiting(judging: Judging, journal: Journal) -> None:
    judging.progress(progress(7))
    published(judging, 1)
    journal.away = True
    judging.tick()
    assert present(judging) == 1
