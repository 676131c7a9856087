"""Offsets of topics, and the ranges between them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.state.read_priority import offsets
from trueup.state.read_priority.offsets import BEGIN
from trueup.state.read_priority.positions import EntryPosition, LedgerRange
from trueup.state.read_priority.tiers import LedgerInfo

LEDGERS = [LedgerInfo(3, 10, 100, 1), LedgerInfo(5, 4, 40, 2), LedgerInfo(8)]
OPEN = 8


def ranges(found: list[LedgerRange]) -> list[tuple[int, int, int | None]]:
    return [(part.info.ledger, part.first, part.last) for part in found]


def test_a_topic_begins_with_its_first_ledger() -> None:
    assert (offsets.begin_of(LEDGERS), offsets.begin_of([])) == ((3, 0), BEGIN)


@pytest.mark.parametrize(
    ("ledgers", "last", "end"),
    [(LEDGERS, 6, (8, 7)), (LEDGERS, -1, (8, 0)), (LEDGERS[:2], -1, (5, 4)), ([], -1, BEGIN)],
)
def test_a_topic_ends_after_its_last_readable_entry(ledgers: list[LedgerInfo], last: int, end: tuple[int, int]) -> None:
    assert offsets.end_of(ledgers, last) == end


def test_a_range_excludes_its_end() -> None:
    found = offsets.between(LEDGERS, EntryPosition(3, 8), EntryPosition(8, 2))
    assert ranges(found) == [(3, 8, 9), (5, 0, 3), (8, 0, 1)]
    assert offsets.between(LEDGERS, EntryPosition(3, 8), EntryPosition(3, 8)) == []


def test_an_offset_at_the_end_of_a_closed_ledger_moves_to_the_next_one() -> None:
    assert offsets.settled(LEDGERS, EntryPosition(3, 10)) == (5, 0)
    assert offsets.settled(LEDGERS, EntryPosition(3, 9)) == (3, 9)
    assert offsets.settled(LEDGERS[:2], EntryPosition(5, 4)) == (5, 4)
    assert offsets.settled([LedgerInfo(3, 0, 0, 1), *LEDGERS[1:]], EntryPosition(3, 0)) == (5, 0)


def test_an_offset_in_a_ledger_that_left_the_topic_is_trimmed() -> None:
    places = [(EntryPosition(2, 0), True), (EntryPosition(4, 1), True), (EntryPosition(5, 9), False), (BEGIN, False)]
    assert [offsets.trimmed(LEDGERS, at) for at, _ in places] == [expected for _, expected in places]


def test_an_offset_in_a_ledger_without_entries_that_left_behind_an_older_one_is_not_trimmed() -> None:
    assert not offsets.trimmed(LEDGERS, EntryPosition(4, 0))


def test_every_topic_with_a_backlog_gets_entries() -> None:
    assert offsets.shares({"a": 1_000, "b": 5, "c": 70, "d": 0}, 100) == {"d": 0, "b": 5, "c": 47, "a": 48}
    assert offsets.shares({"a": 7, "b": 7}, 1) == {"a": 1, "b": 1}


@st.composite
def topics(draw: st.DrawFn) -> tuple[list[LedgerInfo], EntryPosition, EntryPosition]:
    sizes = draw(st.lists(st.integers(0, 30), min_size=1, max_size=6))
    ledgers = [LedgerInfo(2 * at, size, size, 1) for at, size in enumerate(sizes, 1)]
    one, other = (
        EntryPosition(info.ledger, draw(st.integers(0, info.entries)))
        for info in (draw(st.sampled_from(ledgers)), draw(st.sampled_from(ledgers)))
    )
    return ledgers, min(one, other), max(one, other)


def entries(found: list[LedgerRange]) -> list[tuple[int, int]]:
    return [(part.info.ledger, entry) for part in found for entry in range(part.first, (part.last or 0) + 1)]


@given(topics(), st.integers(1, 12))
def test_limited_reads_together_are_the_whole_range(
    topic: tuple[list[LedgerInfo], EntryPosition, EntryPosition], most: int
) -> None:
    ledgers, at, end = topic
    whole, found = entries(offsets.between(ledgers, at, end)), list[tuple[int, int]]()
    while at < end:
        after = offsets.limited(ledgers, at, end, most)
        some = offsets.between(ledgers, at, after)
        assert offsets.count(some) <= most
        found += entries(some)
        at = after if after == end else offsets.settled(ledgers, after)
    assert found == whole


@given(topics(), st.integers(1, 12))
def test_pieces_of_a_part_are_the_part(topic: tuple[list[LedgerInfo], EntryPosition, EntryPosition], most: int) -> None:
    whole = offsets.between(*topic)
    pieces = [piece for part in whole for piece in offsets.cut(part, most)]
    assert entries(pieces) == entries(whole)
    assert all(0 < offsets.count([piece]) <= most for piece in pieces)
