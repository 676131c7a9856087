"""Offsets and ranges of a stream over topics that are written, rolled over, trimmed, created and deleted."""

import random

import pytest

from trueup.connectors.pulsar.topics import PulsarTopic, topic_of
from trueup.state.common.errors import Refused, Stop
from trueup.state.read_priority.tiers import LedgerInfo
from trueup.streams.topic_reader.spark.micro_batches import Offset, StreamOffsets
from trueup.streams.topic_reader.spark.options import options_of
from trueup.streams.topic_reader.spark.planner import EntryRange, Planner

NAMESPACE = "t/ns"


class FakeLedgers:
    """Topics of one namespace, by name, each with the sizes of its ledgers; the last one is open. Is its own Topics
    and bookkeeper."""

    def __init__(self) -> None:
        self.sizes: dict[str, dict[int, int]] = {}
        self.bookkeeper = self
        self._next = 1

    def create(self, name: str) -> None:
        self.sizes[f"persistent://{NAMESPACE}/{name}"] = {}
        self.roll(name)

    def roll(self, name: str) -> None:
        self.sizes[f"persistent://{NAMESPACE}/{name}"][self._next] = 0
        self._next += 1

    def write(self, name: str, entries: int) -> None:
        ledgers = self.sizes[f"persistent://{NAMESPACE}/{name}"]
        ledgers[max(ledgers)] += entries

    def trim(self, name: str) -> None:
        ledgers = self.sizes[f"persistent://{NAMESPACE}/{name}"]
        if len(ledgers) > 1:
            del ledgers[min(ledgers)]

    def reload(self, name: str) -> None:
        """A broker opens the topic: it drops ledgers without entries, and adds one."""
        ledgers = self.sizes[f"persistent://{NAMESPACE}/{name}"]
        for ledger in [ledger for ledger, size in ledgers.items() if not size]:
            del ledgers[ledger]
        self.roll(name)

    def matching(self, namespace: str, pattern: str) -> list[PulsarTopic]:
        return [topic_of(name) for name in sorted(self.sizes)]

    def ledgers(self, topic: PulsarTopic) -> list[LedgerInfo]:
        if str(topic) not in self.sizes:
            raise Refused("a topic", "none", "")
        ledgers = self.sizes[str(topic)]
        return [
            LedgerInfo(ledger) if ledger == max(ledgers) else LedgerInfo(ledger, size, size, 1)
            for ledger, size in ledgers.items()
        ]

    def last(self, ledger: int) -> int:
        return next(found[ledger] for found in self.sizes.values() if ledger in found) - 1


def progress(topics: FakeLedgers, skip: bool = False, **given: str) -> StreamOffsets:
    options = options_of({"topics": "/.*/", "namespace": NAMESPACE, "zookeeper": "h:1", **given})
    return StreamOffsets(Planner(topics, options), skip)  # type: ignore[arg-type]


def entries(found: StreamOffsets, start: Offset, end: Offset) -> list[tuple[int, int]]:
    ranges: list[EntryRange] = [partition.value for partition in found.partitions(start, end)]  # type: ignore[attr-defined]
    return [(one.ledger, entry) for one in ranges for entry in range(one.first, one.last + 1)]


def rewritten(topics: FakeLedgers, name: str = "a", entries: int = 3) -> Offset:
    """A topic with entries, and where it begins."""
    topics.create(name)
    topics.write(name, entries)
    return progress(topics).first(latest=False)


def test_a_stream_begins_with_the_first_ledger_or_behind_the_last_entry() -> None:
    topics = FakeLedgers()
    assert rewritten(topics) == {"persistent://t/ns/a": "1:0"}
    assert progress(topics).first(latest=True) == {"persistent://t/ns/a": "1:3"}


def test_a_micro_batch_has_at_most_the_given_entries() -> None:
    topics = FakeLedgers()
    start = rewritten(topics, entries=5)
    assert progress(topics).next(start, 2, None) == {"persistent://t/ns/a": "1:2"}


def test_a_new_topic_is_noted_first_and_then_read() -> None:
    topics = FakeLedgers()
    start = rewritten(topics)
    topics.create("b")
    topics.write("b", 4)
    found = progress(topics)
    first = found.next(start, None, None)
    assert (first["persistent://t/ns/b"], entries(found, start, first)) == ("2:0", [(1, 0), (1, 1), (1, 2)])
    assert entries(found, first, found.next(first, None, None)) == [(2, 0), (2, 1), (2, 2), (2, 3)]


def test_a_trimmed_ledger_is_an_error_or_is_skipped() -> None:
    topics = FakeLedgers()
    start = rewritten(topics)
    topics.roll("a")
    topics.write("a", 1)
    topics.trim("a")
    for fail in (
        lambda: progress(topics).next(start, None, None),
        lambda: progress(topics).partitions(start, {**start, "persistent://t/ns/a": "2:1"}),
    ):
        with pytest.raises(Stop, match="from 1:0 on; found ledger 1 was trimmed"):
            fail()
    found = progress(topics, skip=True)
    assert entries(found, start, found.next(start, None, None)) == [(2, 0)]


def test_a_ledger_that_was_read_to_its_end_may_be_trimmed() -> None:
    topics = FakeLedgers()
    at = rewritten(topics)
    found = progress(topics)
    until = found.newest()
    topics.roll("a")
    topics.write("a", 1)
    at = found.next(at, None, until)
    topics.trim("a")
    assert entries(found, at, found.next(at, None, None)) == [(2, 0)]


def test_a_stream_that_read_all_goes_on_after_a_broker_opened_its_idle_topic() -> None:
    topics = FakeLedgers()
    start = rewritten(topics)
    topics.roll("a")
    idle = progress(topics).next(start, None, None)
    topics.reload("a")
    topics.write("a", 2)
    after = progress(topics).next(idle, None, None)
    assert (idle, entries(progress(topics), idle, after)) == ({"persistent://t/ns/a": "2:0"}, [(3, 0), (3, 1)])


def test_a_deleted_topic_is_an_error_or_is_left_out() -> None:
    topics = FakeLedgers()
    start = rewritten(topics)
    topics.sizes.clear()
    with pytest.raises(Stop, match="the topic was deleted"):
        progress(topics).next(start, None, None)
    assert progress(topics, skip=True).next(start, None, None) == {}


def test_a_stream_that_ends_reads_up_to_the_ends_at_its_start() -> None:
    topics = FakeLedgers()
    at = rewritten(topics)
    found = progress(topics)
    until = found.newest()
    topics.write("a", 9)
    topics.roll("a")
    topics.create("b")
    first = found.next(at, 2, until)
    second = found.next(first, 2, until)
    assert (first, second, found.next(second, 2, until)) == ({"persistent://t/ns/a": "1:2"}, until, until)


@pytest.mark.parametrize("seed", range(50))
def test_every_entry_is_read_once_unless_it_was_trimmed(seed: int) -> None:
    """Random writes, rollovers, trims, new topics; every plan is asked for again, as after a crash."""
    rng, topics = random.Random(seed), FakeLedgers()
    at, found, read = rewritten(topics), progress(topics, skip=True, partition_mb="1"), list[tuple[int, int]]()
    written, trimmed, names = {(1, entry) for entry in range(3)}, set[tuple[int, int]](), ["a"]
    for step in range(200):
        name = rng.choice(names)
        ledgers = topics.sizes[f"persistent://{NAMESPACE}/{name}"]
        what = rng.randrange(6)
        if what == 0:
            topics.roll(name)
        elif what == 1 and len(ledgers) > 1:
            trimmed |= {(min(ledgers), entry) for entry in range(ledgers[min(ledgers)])}
            topics.trim(name)
        elif what == 2 and step % 10 == 0:
            names.append(f"b{step}")
            topics.create(names[-1])
        else:
            size, more = ledgers[max(ledgers)], rng.randrange(5)
            topics.write(name, more)
            written |= {(max(ledgers), entry) for entry in range(size, size + more)}
        if rng.random() < 0.4:
            end = found.next(at, rng.choice([None, 1, 7]), None)
            some = entries(found, at, end)
            assert entries(progress(topics, skip=True), at, end) == some
            read, at = read + some, end
    for _ in range(2):
        end = found.next(at, None, None)
        read, at = read + entries(found, at, end), end
    assert len(read) == len(set(read))
    assert written - trimmed <= set(read) <= written
