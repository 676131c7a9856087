"""The tier that a broker opens (PIP-73, ManagedLedgerImpl.getLedgerHandle), and the order of the reader."""

import pytest

from trueup.state.common.errors import Stop
from trueup.state.deletion.offloads import ObjectPair, OffloadedCopy
from trueup.state.read_priority.positions import EntryPosition, LedgerRange, parts, position_of
from trueup.state.read_priority.tiers import LedgerInfo, ReadPriority, Tier, opened_by_broker, order

BOOKKEEPER, TIERED = Tier.BOOKKEEPER, Tier.TIERED
FIRST, LAST = ReadPriority.BOOKKEEPER_FIRST, ReadPriority.TIERED_STORAGE_FIRST


def info(complete: bool | None, dropped: bool = False, ledger: int = 7, entries: int = 10) -> LedgerInfo:
    copy = None if complete is None else OffloadedCopy(ObjectPair("u", ledger), complete)
    return LedgerInfo(ledger, entries, 100, 1_000, copy, dropped)


@pytest.mark.parametrize(
    ("priority", "complete", "dropped", "expected"),
    [
        (FIRST, None, False, BOOKKEEPER),
        (FIRST, False, False, BOOKKEEPER),
        (FIRST, True, False, BOOKKEEPER),
        (FIRST, True, True, TIERED),
        (FIRST, False, True, BOOKKEEPER),
        (LAST, None, False, BOOKKEEPER),
        (LAST, False, False, BOOKKEEPER),
        (LAST, False, True, BOOKKEEPER),
        (LAST, True, False, TIERED),
        (LAST, True, True, TIERED),
    ],
)
def test_a_broker_opens_the_tier_of_the_record(
    priority: ReadPriority, complete: bool | None, dropped: bool, expected: Tier
) -> None:
    assert opened_by_broker(priority, info(complete, dropped)) is expected


@pytest.mark.parametrize("priority", ReadPriority)
@pytest.mark.parametrize("dropped", [False, True])
def test_the_reader_tries_the_tier_of_the_broker_first(priority: ReadPriority, dropped: bool) -> None:
    ledger = info(True, dropped)
    assert order(priority, ledger)[0] is opened_by_broker(priority, ledger)


@pytest.mark.parametrize("priority", ReadPriority)
def test_the_reader_tries_both_tiers_of_an_offloaded_ledger(priority: ReadPriority) -> None:
    assert {*order(priority, info(True))} == {BOOKKEEPER, TIERED}


@pytest.mark.parametrize("complete", [None, False])
def test_the_reader_never_reads_an_incomplete_offload(complete: bool | None) -> None:
    assert order(LAST, info(complete, dropped=True)) == (BOOKKEEPER,)


OPEN = LedgerInfo(9)
LEDGERS = [OPEN, info(None, ledger=7), info(None, ledger=3, entries=5)]


def test_all_of_a_topic_is_each_of_its_ledgers_by_id() -> None:
    found = [(part.info.ledger, part.first, part.last) for part in parts(LEDGERS, None, None)]
    assert found == [(3, 0, 4), (7, 0, 9), (9, 0, None)]


def test_positions_cut_the_first_and_the_last_ledger() -> None:
    found = [
        (part.info.ledger, part.first, part.last) for part in parts(LEDGERS, EntryPosition(3, 2), EntryPosition(7, 4))
    ]
    assert found == [(3, 2, 4), (7, 0, 4)]


def test_a_position_in_a_trimmed_ledger_stands_for_the_next_one() -> None:
    assert parts(LEDGERS, EntryPosition(5, 2), EntryPosition(8, 0)) == [LedgerRange(LEDGERS[1], 0, 9)]


def test_an_end_in_the_open_ledger_is_kept() -> None:
    assert parts(LEDGERS, EntryPosition(9, 1), EntryPosition(9, 4)) == [LedgerRange(OPEN, 1, 4, confirmed=False)]


def test_a_closed_ledger_without_entries_has_no_part() -> None:
    assert parts([info(None, entries=0)], None, None) == []


@pytest.mark.parametrize("text", ["7:3", "7:3:-1", "7:3:12"])
def test_a_message_id_names_an_entry(text: str) -> None:
    assert position_of(text) == EntryPosition(7, 3)


@pytest.mark.parametrize("text", ["", "7", "7:", ":3", "7:3:4:5", "-7:3", "٣:1", f"{1 << 63}:1"])
def test_another_text_is_no_message_id(text: str) -> None:
    with pytest.raises(Stop):
        position_of(text)
