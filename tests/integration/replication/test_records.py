"""The records path: transforms, many topics into one, ends of sources."""

import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.conformance.harness import LONG, POISON, TODAY_MS, Harness, Written, contents, numbered, untrue
from tests.conformance.kafka import kafka_harness
from tests.replication.pair import Pair, forgetting_producers
from tests.replication.times import STAMPS, VALUE, write_times
from trueup.connectors.contract import Assignment, LogId, Position
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.kafka.client.cluster import KafkaClient
from trueup.connectors.kafka.replication.records.reader import WireReader
from trueup.state.common.errors import BadSettings, Retry, Stop, TrueupError

pytestmark = pytest.mark.servers

TRANSFORMS = "tests.conformance.transforms:"


@pytest.fixture(scope="module")
def records(pair: Pair) -> Harness:
    return kafka_harness(pair, "records")


def test_a_transform_changes_records_and_leaves_some_out(records: Harness) -> None:
    topic = records.topic()
    records.write("east", topic, {0: numbered(100)})
    copy = records.copy(records.lease(topic, transform=f"{TRANSFORMS}even_shouted")).to_the_end()
    wanted = [each._replace(value=each.value.upper()) for each in numbered(100)[::2]]
    assert (contents(records.read("west", topic)), copy.totals["filtered"]) == (wanted, 50)


def test_a_transform_keeps_times_before_1970(pair: Pair, records: Harness) -> None:
    topic = records.topic()
    write_times(pair.east, topic, STAMPS)
    records.copy(records.lease(topic, transform=f"{TRANSFORMS}even_shouted")).to_the_end()
    assert contents(records.read("west", topic)) == [Written(None, VALUE.upper(), stamp) for stamp in STAMPS[::2]]


def test_a_transform_that_fails_is_treated_like_a_refusal(records: Harness) -> None:
    topic = records.topic()
    records.write("east", topic, {0: numbered(10)})
    copy = records.copy(records.lease(topic, transform=f"{TRANSFORMS}fail_at_five")).to_the_end()
    [row] = copy.rows.values()
    assert (row.stopped, row.position.offset, "no five" in row.error) == (True, 5, True)
    assert contents(records.read("west", topic)) == numbered(5)


def test_a_transform_that_is_not_there_is_refused(records: Harness) -> None:
    with pytest.raises(BadSettings, match="module:function"):
        records.connector.open(records.lease(records.topic(), transform="tests:nowhere"))


def test_many_topics_go_into_one_and_resume_apart(records: Harness) -> None:
    sources, target = [records.topic(), records.topic()], records.topic()
    lease = replace(
        records.lease(target),
        assignments=tuple(Assignment(LogId(s, 0), LogId(target, 0), Position(), 0) for s in sources),
    )
    for turn in range(2):
        for source in sources:
            records.write("east", source, {0: numbered(300, 300 * turn, source.encode())})
        records.copy(lease).to_the_end()
    there = contents(records.read("west", target))
    by_topic = [[each for each in there if (each.key or b"").startswith(s.encode())] for s in sources]
    assert by_topic == [numbered(600, name=s.encode()) for s in sources]


def test_runs_of_topics_that_share_a_target_are_exact(records: Harness) -> None:
    sources, target = [records.topic(), records.topic()], records.topic()
    for source in sources:
        records.write("east", source, {0: numbered(500, name=source.encode())})
    assignments = tuple(Assignment(LogId(s, 0), LogId(target, 0), Position(), 0) for s in sources)
    copier = records.connector.open(replace(records.lease(target), assignments=assignments))
    runs = {source: [] for source in sources}
    copier.copy(time.monotonic() + 2.0)
    for row in copier.progress():
        runs[row.source.topic] += row.runs
    copier.close()
    there = records.read("west", target)
    assert [untrue(runs[s], records.read("east", s), there) for s in sources] == [[], []]


def test_an_error_between_reads_leaves_no_hole(records: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = records.narrow_topic()
    records.write("east", topic, {0: [*numbered(300), POISON, *numbered(300, 300)]})
    errors = [Retry("an answer", "none", "wait")]

    def unsure(reader: WireReader, logs: Iterable[LogId]) -> dict[LogId, TrueupError]:
        if errors:
            raise errors.pop()
        return {}

    with closing(records.connector.open(records.lease(topic))) as copier:
        monkeypatch.setattr(WireReader, "unsure", unsure)
        with pytest.raises(Retry):
            copier.copy(time.monotonic() + 60.0)
        copier.copy(time.monotonic() + 5.0)
        [row] = copier.progress()
    assert (row.stopped, row.position.offset) == (True, 300)
    assert contents(records.read("west", topic)) == numbered(300)


def test_nothing_behind_a_refused_record_is_written_after_an_idle_time(pair: Pair, records: Harness) -> None:
    topic = records.narrow_topic()
    records.write("east", topic, {0: numbered(10, since_ms=TODAY_MS)})
    lease, log = records.lease(topic), LogId(topic, 0)
    with closing(records.connector.open(lease)) as copier, closing(KafkaClient(lease.target)) as target:
        copier.copy(time.monotonic() + 1.0)
        target.refresh([topic])
        with forgetting_producers(pair.west):
            wait_until(lambda: target.producers([log])[log] == {}, 180.0, "the leader to forget the producer")
        records.write("east", topic, {0: [POISON, *LONG]})

        def stopped() -> bool:
            copier.copy(time.monotonic() + 0.2)
            return copier.progress()[0].stopped

        wait_until(stopped, 180.0, "the copier to stop at the refused record")
    assert len(records.read("west", topic)) == 10


def test_what_the_source_deleted_too_early_is_counted(pair: Pair, records: Harness) -> None:
    topic = records.topic()
    records.write("east", topic, {0: numbered(10)})
    copy = records.copy(records.lease(topic)).to_the_end()
    records.write("east", topic, {0: numbered(20, 10)})
    place = TopicPartition(topic, 0, 15)
    admin = AdminClient({"bootstrap.servers": pair.east.bootstrap})
    admin.delete_records([place])[place].result(30)
    following = copy.next_lease().to_the_end()
    assert (following.totals["lost"], contents(records.read("west", topic))) == (5, [*numbered(10), *numbered(15, 15)])


def test_a_chosen_offset_is_begun_at_whatever_the_target_has(records: Harness) -> None:
    topic = records.topic()
    records.write("east", topic, {0: numbered(10)})
    copy = records.copy(records.lease(topic)).to_the_end()
    copy.rows = {p: replace(row, position=Position(5, chosen=True)) for p, row in copy.rows.items()}
    copy.next_lease().to_the_end()
    assert contents(records.read("west", topic)) == [*numbered(10), *numbered(5, 5)]


def test_a_link_from_a_cluster_to_itself_is_refused(records: Harness) -> None:
    lease = records.lease(records.topic())
    with pytest.raises(Stop, match="two clusters"):
        records.connector.open(replace(lease, target=replace(lease.target, address=lease.source.address)))
