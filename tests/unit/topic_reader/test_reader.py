"""A topic that changes during a read, and what is given out of its entries."""

from collections.abc import Iterator

import pytest

from tests.unit.pulsar.pulsar_entries import batched, encoded
from trueup.connectors.bookkeeper.bookie.ledger_access import NoSuchMetadata
from trueup.connectors.pulsar.layout import PulsarPaths
from trueup.connectors.pulsar.messages import ManagedLedger
from trueup.connectors.pulsar.topics import PulsarTopic
from trueup.state.common.errors import BadBytes, Stop, TrueupError
from trueup.state.read_priority.positions import EntryPosition
from trueup.state.read_priority.tiers import LedgerInfo, Tier
from trueup.streams.cli.commands.read import code_of
from trueup.streams.terminal import codes
from trueup.streams.topic_reader.fallback import LostEntries
from trueup.streams.topic_reader.limits import range_of
from trueup.streams.topic_reader.reader import SKEW_MS, Range, ReadOptions, ReadReport, TopicReader

TOPIC, COUNT = PulsarTopic("t", "ns", "a"), 4
ALL, USUAL, SKIPS = Range(), ReadOptions(), ReadOptions(skip_missing=True)
GONE = NoSuchMetadata("metadata", "none", "read it elsewhere")
DAMAGED = BadBytes("there", 3, "it", "other bytes")


class FakeCluster:
    """A topic with ledgers of ``COUNT`` entries in BookKeeper. ``fails``: errors by ledger and entry. ``trimmed``:
    ledgers that leave the topic when they are read; ``offloaded``: ledgers that are only in tiered storage after two
    entries were read from BookKeeper. Is its own ZooKeeper client and source."""

    def __init__(self, *ledgers: int) -> None:
        self.ledgers = {ledger: [encoded(b"%d" % n) for n in range(COUNT)] for ledger in ledgers}
        self.closed_ms = dict.fromkeys(ledgers, 1)
        self.fails = dict[tuple[int, int], TrueupError]()
        self.trimmed = set[int]()
        self.offloaded = set[int]()

    def look(self, path: str) -> tuple[bytes, object]:
        message = ManagedLedger()
        for ledger, entries in self.ledgers.items():
            info = message.ledgerInfo.add(ledgerId=ledger, entries=len(entries), timestamp=self.closed_ms[ledger])
            if ledger in self.offloaded and self.closed_ms[ledger] > 1:
                info.offloadContext.uidMsb = info.offloadContext.uidLsb = 1
                info.offloadContext.complete = info.offloadContext.bookkeeperDeleted = True
        return message.SerializeToString(), None

    def read(self, info: LedgerInfo, first: int, last: int | None) -> Iterator[tuple[int, memoryview]]:
        if info.ledger in self.trimmed:
            del self.ledgers[info.ledger]
            raise GONE
        entries = self.ledgers[info.ledger]
        if info.ledger in self.offloaded and not info.complete:
            self.closed_ms[info.ledger] = 2
            yield from ((entry, memoryview(entries[entry])) for entry in range(2))
            raise GONE
        for entry in range(first, len(entries) if last is None else min(last + 1, len(entries))):
            if error := self.fails.get((info.ledger, entry)):
                raise error
            yield entry, memoryview(entries[entry])

    def given_out(
        self, wanted: Range = ALL, options: ReadOptions = USUAL, report: ReadReport | None = None
    ) -> list[tuple[int, int]]:
        sources = {Tier.BOOKKEEPER: self, Tier.TIERED: self}
        reader = TopicReader(self, PulsarPaths(), lambda _: sources, options, report or ReadReport())  # type: ignore[arg-type, return-value]
        return [(one.message.ledger, one.message.entry) for one in reader.read(TOPIC, wanted)]


def entries(*ledgers: int) -> list[tuple[int, int]]:
    return [(ledger, entry) for ledger in ledgers for entry in range(COUNT)]


def test_ledgers_are_read_in_order() -> None:
    assert FakeCluster(9, 7).given_out() == entries(7, 9)


def test_a_ledger_that_is_trimmed_during_the_read_can_be_skipped_and_is_reported() -> None:
    cluster, report = FakeCluster(7, 8, 9), ReadReport()
    cluster.trimmed = {8}
    assert (cluster.given_out(options=SKIPS, report=report), report.trimmed) == (entries(7, 9), [8])


def test_a_ledger_that_is_trimmed_during_the_read_is_an_error() -> None:
    cluster = FakeCluster(7, 8, 9)
    cluster.trimmed = {8}
    with pytest.raises(Stop, match="ledger 8 in persistent://t/ns/a; found a ledger that was trimmed"):
        cluster.given_out()


def test_a_read_without_a_trimmed_ledger_is_incomplete() -> None:
    assert code_of(ReadReport(trimmed=[8])) == codes.INCOMPLETE


def test_a_ledger_that_moves_to_tiered_storage_during_the_read_is_read_from_there() -> None:
    cluster, report = FakeCluster(7, 8, 9), ReadReport()
    cluster.offloaded = {8}
    assert (cluster.given_out(report=report), report.missing, report.trimmed) == (entries(7, 8, 9), {}, [])
    assert report.entries == {Tier.BOOKKEEPER: 2 * COUNT + 2, Tier.TIERED: COUNT - 2}


def test_entries_that_no_tier_has_end_the_read() -> None:
    cluster = FakeCluster(7, 8)
    cluster.fails[7, 2] = DAMAGED
    with pytest.raises(LostEntries):
        cluster.given_out()


def test_one_entry_that_no_tier_has_is_skipped() -> None:
    cluster, report = FakeCluster(7, 8), ReadReport()
    cluster.fails[7, 2] = DAMAGED
    found = cluster.given_out(options=ReadOptions(skip_missing=True), report=report)
    assert (found, report.missing) == ([one for one in entries(7, 8) if one != (7, 2)], {7: 1})


def test_a_ledger_that_no_tier_has_is_skipped_at_once() -> None:
    cluster, report = FakeCluster(7, 8), ReadReport()
    cluster.fails[7, 1] = GONE
    found = cluster.given_out(options=ReadOptions(skip_missing=True), report=report)
    assert (found, report.missing) == ([(7, 0), *entries(8)], {7: COUNT - 1})


def test_entries_of_a_tier_that_denies_access_are_not_skipped() -> None:
    cluster = FakeCluster(7, 8)
    cluster.fails[7, 2] = Stop("entry 2", "UNAUTHORIZED", "log in")
    with pytest.raises(Stop, match="UNAUTHORIZED"):
        cluster.given_out(options=ReadOptions(skip_missing=True))


def test_a_read_to_a_position_that_is_not_confirmed_yet_ends_at_the_last_confirmed_entry() -> None:
    cluster = FakeCluster(7, 8)
    cluster.closed_ms[8] = 0
    assert cluster.given_out(Range(last=EntryPosition(8, 99))) == entries(7, 8)


def test_a_message_of_a_transaction_ends_the_read_unless_it_is_wanted() -> None:
    cluster = FakeCluster(7)
    cluster.ledgers[7][1] = encoded(b"x", txnid_most_bits=1, txnid_least_bits=2)
    with pytest.raises(Stop, match="--transactions"):
        cluster.given_out()
    assert cluster.given_out(options=ReadOptions(transactions=True)) == entries(7)


def test_a_marker_of_a_broker_is_no_message() -> None:
    cluster, report = FakeCluster(7), ReadReport()
    cluster.ledgers[7][1] = encoded(b"x", marker_type=10)
    assert (cluster.given_out(report=report), report.markers) == ([(7, 0), (7, 2), (7, 3)], 1)


def test_a_read_from_the_id_of_a_message_in_chunks_has_that_message() -> None:
    cluster = FakeCluster(7, 8)
    for ledger, number in ((7, COUNT - 1), (8, 0)):
        of_two = {"uuid": b"u", "num_chunks_from_msg": 2, "chunk_id": int(ledger == 8), "total_chunk_msg_size": 2}
        cluster.ledgers[ledger][number] = encoded(b"x", **of_two)
    assert cluster.given_out(Range(first=EntryPosition(8, 0))) == entries(8)


@pytest.mark.parametrize("options", [USUAL, SKIPS])
@pytest.mark.parametrize("damaged", [False, True], ids=["transaction", "damage"])
def test_what_is_before_a_start_neither_ends_a_read_nor_is_missing_in_it(options: ReadOptions, damaged: bool) -> None:
    cluster, report = FakeCluster(7, 8), ReadReport()
    chunk = {"uuid": b"u", "num_chunks_from_msg": 2, "chunk_id": 1, "total_chunk_msg_size": 2}
    cluster.ledgers[8][0] = encoded(b"x", **chunk)
    if damaged:
        cluster.fails[7, 1] = DAMAGED
    else:
        cluster.ledgers[7][1] = encoded(b"x", txnid_least_bits=1, txnid_most_bits=1)
    found = cluster.given_out(Range(first=EntryPosition(8, 0)), options, report)
    assert (found, report.missing, report.chunks) == (entries(8)[1:], {}, 1)


def test_a_message_id_stands_for_the_whole_batch() -> None:
    cluster = FakeCluster(7)
    cluster.ledgers[7][1] = batched([(b"x", {}), (b"y", {}), (b"z", {})])
    assert cluster.given_out(range_of("7:1:2", "7:1:0")) == [(7, 1)] * 3


def test_messages_are_chosen_by_their_time() -> None:
    cluster = FakeCluster(7)
    cluster.ledgers[7] = [encoded(b"x", publish_time=100 * n) for n in range(COUNT)]
    assert cluster.given_out(Range(from_ms=100, to_ms=300)) == [(7, 1), (7, 2)]


def test_a_ledger_that_was_closed_long_before_a_time_is_not_read() -> None:
    cluster = FakeCluster(7)
    cluster.fails[7, 0] = GONE
    assert cluster.given_out(Range(from_ms=SKEW_MS + 2)) == []
