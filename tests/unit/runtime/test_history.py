"""The history of actions survives a restart, and contains who ordered each."""

import contextvars
from collections.abc import Iterable
from typing import Any

import pytest

from trueup.state.common.errors import Retry
from trueup.streams.journal import history
from trueup.streams.journal.history import WHO, History
from trueup.streams.journal.history_row import HistoryRow
from trueup.streams.journal.journal import JournalRecord

STEP = HistoryRow(5, "repair-7-v3", "repair", "safe", 7, rule="a.rule")


class FakeJournal:
    """Keeps the rows. A put that fails writes half of them."""

    def __init__(self) -> None:
        self.records: list[JournalRecord] = []
        self.down = False

    def put(self, records: Iterable[tuple[str, bytes, Any]], _within_s: float = 0.0) -> None:
        made = [JournalRecord(key, value, what, 0) for what, key, value in records]
        self.records += made[: len(made) // 2] if self.down else made
        if self.down:
            raise Retry("acknowledged records", "none", "try again")

    def read(self, what: str, last: int) -> list[JournalRecord]:
        return [record for record in self.records if record.where == what][-last:]

    def span(self, what: str) -> int:
        return sum(record.where == what for record in self.records)


def kept(journal: FakeJournal) -> History:
    return History(journal)  # type: ignore[arg-type]


def steps(count: int) -> list[HistoryRow]:
    return [STEP._replace(at_ms=at_ms) for at_ms in range(count)]


def test_another_run_has_the_actions_with_user_and_reason() -> None:
    journal = FakeJournal()
    first = kept(journal)
    first.add(STEP)
    first.save()
    later = kept(journal)
    later.load()
    assert later.latest(10) == [STEP._replace(who="trueup")._asdict()]


def test_what_a_request_does_is_done_by_its_user() -> None:
    made = History()

    def asked() -> None:
        WHO.set("alice at 127.0.0.1")
        made.add(STEP)

    contextvars.copy_context().run(asked)
    made.add(STEP)
    assert [row.who for row in made.rows()] == ["alice at 127.0.0.1", "trueup"]


def test_rows_that_the_journal_refused_are_written_again_and_logged_once() -> None:
    journal = FakeJournal()
    made = kept(journal)
    made.add(*steps(4))
    journal.down = True
    made.save()
    journal.down = False
    made.save()
    later = kept(journal)
    later.load()
    assert [row.at_ms for row in later.rows()] == [0, 1, 2, 3]


def test_more_than_memory_holds_is_read_from_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "KEPT", 3)
    made = kept(FakeJournal())
    made.add(*steps(5))
    assert [len(made.rows()), [row["at_ms"] for row in made.latest(4)]] == [3, [4, 3, 2, 1]]


def test_the_newest_rows_come_first_whatever_their_user() -> None:
    made = History()
    made.add(STEP._replace(at_ms=9), STEP._replace(at_ms=2, ledger=None, link="east-west"))
    assert [row["at_ms"] for row in made.latest(10)] == [9, 2]


def test_the_rows_of_one_ledger_are_found() -> None:
    made = History()
    made.add(STEP, STEP._replace(ledger=8))
    assert [row.ledger for row in made.rows(8)] == [8]


def test_a_long_detail_is_bounded() -> None:
    made = History()
    made.add(STEP._replace(detail="x" * 100_000))
    assert len(made.rows()[0].detail) == history.DETAIL


class Marked(FakeJournal):
    """A journal with a transaction marker after each row; a marker occupies an offset."""

    def put(self, records: Iterable[tuple[str, bytes, Any]], _within_s: float = 0.0) -> None:
        for what, key, value in records:
            marker = JournalRecord(b"marker %d" % len(self.records), None, what, 0)
            self.records += [JournalRecord(key, value, what, 0), marker]


def test_markers_of_transactions_do_not_take_the_place_of_rows() -> None:
    journal = Marked()
    writer = kept(journal)
    writer.add(*steps(200))
    writer.save()
    standby = History(journal, acts=False)  # type: ignore[arg-type]
    assert len(standby.latest(50)) == 50
