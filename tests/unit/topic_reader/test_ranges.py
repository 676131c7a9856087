"""Ranges of entries as executors read them, with messages in chunks that begin before a range."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.pulsar.pulsar_entries import batched, encoded
from tests.unit.topic_reader.test_reader import COUNT, GONE, TOPIC, FakeCluster
from trueup.connectors.pulsar.layout import PulsarPaths
from trueup.connectors.pulsar.protocol import rows
from trueup.connectors.pulsar.protocol.message import Message
from trueup.connectors.pulsar.protocol.rows import MessageRows
from trueup.connectors.pulsar.topics import PulsarTopic
from trueup.state.common.errors import Stop
from trueup.state.read_priority.positions import LedgerRange
from trueup.state.read_priority.tiers import LedgerInfo, Tier
from trueup.streams.topic_reader.fallback import ServedEntry
from trueup.streams.topic_reader.reader import ReadOptions, ReadReport, StoredEntry, TopicReader
from trueup.streams.topic_reader.spark.executor import line_of
from trueup.streams.topic_reader.spark.planner import EntryRange
from trueup.streams.topic_reader.spark.ranges import RangeReader


class FakeTopics:
    """The topics of a `FakeCluster`, as `streams.topic_reader.topics.TopicCatalog`."""

    def __init__(self, cluster: FakeCluster, options: ReadOptions) -> None:
        self.report = ReadReport()
        sources = {Tier.BOOKKEEPER: cluster, Tier.TIERED: cluster}
        self._reader = TopicReader(cluster, PulsarPaths(), lambda _: sources, options, self.report)  # type: ignore[arg-type, return-value]

    def ledgers(self, topic: PulsarTopic) -> list[LedgerInfo]:
        return self._reader.ledgers(topic)

    def entries(self, topic: PulsarTopic, part: LedgerRange) -> Iterator[ServedEntry[list[Message]]]:
        return self._reader.entries(topic, part)

    def stored(self, topic: PulsarTopic, part: LedgerRange) -> Iterator[ServedEntry[StoredEntry]]:
        return self._reader.stored(topic, part)

    def parsed(self, ledger: int, entry: int, stored: bytes) -> list[Message]:
        return self._reader.parsed(ledger, entry, stored)


def read(
    cluster: FakeCluster, ledger: int, first: int, last: int, skip: bool = False
) -> tuple[list[bytes], ReadReport]:
    topics = FakeTopics(cluster, ReadOptions(skip_missing=skip))
    reader = RangeReader(topics, EntryRange(TOPIC, ledger, first, last), skip)  # type: ignore[arg-type]
    return [value for some, _ in reader.messages() for value in values(some)], topics.report


def values(some: MessageRows | list[Message]) -> list[bytes]:
    if isinstance(some, MessageRows):
        spans = zip(some.value.starts.tolist(), some.value.ends.tolist(), strict=True)
        return [some.data[start:end] for start, end in spans]
    return [message.value or b"" for message in some]


def chunk(uuid: str, number: int, count: int) -> bytes:
    fields = {"num_chunks_from_msg": count, "chunk_id": number, "total_chunk_msg_size": count}
    return encoded(uuid[:1].encode(), uuid=uuid.encode(), **fields)


def test_a_range_has_its_messages_only() -> None:
    assert read(FakeCluster(7), 7, 1, 2) == ([b"1", b"2"], ReadReport(entries={Tier.BOOKKEEPER: 2}))  # type: ignore[arg-type]


def test_a_message_belongs_to_the_range_with_its_last_chunk() -> None:
    cluster = FakeCluster(7)
    cluster.ledgers[7] = [chunk("a", 0, 3), encoded(b"x"), chunk("a", 1, 3), chunk("a", 2, 3)]
    assert (read(cluster, 7, 0, 2)[0], read(cluster, 7, 3, 3)[0]) == ([b"x"], [b"aaa"])


def test_chunks_are_found_in_earlier_ledgers() -> None:
    cluster = FakeCluster(6, 7)
    cluster.ledgers[6][COUNT - 1] = chunk("a", 0, 2)
    cluster.ledgers[7][0] = chunk("a", 1, 2)
    assert read(cluster, 7, 0, 1)[0] == [b"aa", b"1"]


def test_a_message_whose_first_chunk_is_gone_is_dropped_and_counted() -> None:
    cluster = FakeCluster(7)
    cluster.ledgers[7][1] = chunk("a", 1, 2)
    found, report = read(cluster, 7, 1, 2)
    assert (found, report.chunks) == ([b"2"], 1)


def test_a_ledger_before_the_range_that_is_trimmed_meanwhile_is_no_loss_of_the_range() -> None:
    cluster = FakeCluster(6, 7)
    cluster.ledgers[7][0] = chunk("a", 1, 2)
    cluster.trimmed = {6}
    found, report = read(cluster, 7, 0, 1)
    assert (found, report.trimmed, report.chunks) == ([b"1"], [], 1)


@given(st.lists(st.sampled_from("abcd"), min_size=4, max_size=40), st.data())
def test_ranges_together_give_what_one_read_gives(names: list[str], data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 4))
    cluster, sent = FakeCluster(7), dict.fromkeys("abcd", 0)
    cluster.ledgers[7] = []
    for name in names:
        uuid = f"{name}{sent[name] // count}"
        cluster.ledgers[7].append(chunk(uuid, sent[name] % count, count))
        sent[name] += 1
    size = len(names)
    bounds = sorted({0, size, *data.draw(st.lists(st.integers(1, size - 1), max_size=4))})
    some = [read(cluster, 7, first, end - 1)[0] for first, end in pairwise(bounds)]
    assert [value for found in some for value in found] == read(cluster, 7, 0, size - 1)[0]


def test_unusual_entries_stay_in_their_order() -> None:
    cluster = FakeCluster(7)
    cluster.ledgers[7][1] = encoded(b"hidden", encryption_keys=[b"k"])
    cluster.ledgers[7][2] = encoded(b"marker", marker_type=10)
    found, report = read(cluster, 7, 0, 3)
    assert (found, report.markers, report.entries) == ([b"0", b"hidden", b"3"], 1, {Tier.BOOKKEEPER: 4})


def test_an_entry_of_a_transaction_is_an_error() -> None:
    cluster = FakeCluster(7)
    cluster.ledgers[7][1] = encoded(b"x", txnid_most_bits=1, txnid_least_bits=2)
    with pytest.raises(Stop, match="entry 1 of ledger 7"):
        read(cluster, 7, 0, 3)


def test_an_entry_that_cannot_be_parsed_is_read_from_the_other_tier_once() -> None:
    cluster = FakeCluster(7)
    cluster.ledgers[7][2] = batched([(b"x", {"payload_size": 7})])
    found, report = read(cluster, 7, 0, 3, skip=True)
    assert (found, report.missing, report.entries.total()) == ([b"0", b"1", b"3"], {7: 1}, 3)
    assert {(one.entry, one.tier) for one in report.fallbacks.values()} == {(2, Tier.BOOKKEEPER)}


def test_many_messages_are_parsed_in_several_steps() -> None:
    cluster = FakeCluster(7)
    cluster.ledgers[7] = [batched([(b"%d" % at, {}) for at in range(300)]) for _ in range(5)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "MESSAGES_TOGETHER", 700)
        assert read(cluster, 7, 0, 4)[0] == [b"%d" % at for at in range(300)] * 5


def test_a_trimmed_ledger_is_an_error_or_is_noted() -> None:
    with pytest.raises(Stop, match="entries 0 to 1 of ledger 6"):
        read(FakeCluster(7), 6, 0, 1)
    found, report = read(FakeCluster(7), 6, 0, 1, skip=True)
    assert (found, report.trimmed) == ([], [6])


def test_a_ledger_that_is_trimmed_during_the_read_is_an_error() -> None:
    cluster = FakeCluster(7, 8)
    cluster.trimmed = {7}
    with pytest.raises(Stop, match="trimmed"):
        read(cluster, 7, 0, 1)


def test_what_happened_is_one_line() -> None:
    cluster = FakeCluster(7)
    cluster.fails[7, 1] = GONE
    _, report = read(cluster, 7, 0, 2, skip=True)
    line = line_of(EntryRange(TOPIC, 7, 0, 2), report)
    assert line.startswith("persistent://t/ns/a ledger=7 entries=0-2 messages=0 bookkeeper=1 markers=0 fallbacks=1")
    assert "missing=2" in line
    assert "\n" not in line
