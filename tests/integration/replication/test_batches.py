"""The batches path between two real clusters: copied content, and no lost or duplicate records after kills."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.replication.audit import audit, ends
from tests.replication.faults import Faults
from tests.replication.pair import EAST_TO_WEST, Copy, Pair, configure, create, forgetting_producers
from tests.replication.reading import committed
from tests.replication.worker import Worker
from tests.replication.writers import Writers
from trueup.connectors.contract import Copier, Lease, Limits, LogId, Position, Progress
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.kafka.client.cluster import KafkaClient, cluster_id
from trueup.connectors.kafka.client.fetch_produce import PRODUCE, PRODUCE_VERSION, produce_body, produced
from trueup.connectors.kafka.protocol.record_batch import HORIZON, walk
from trueup.connectors.kafka.replication.connector import Batches
from trueup.connectors.kafka.replication.records.encode import BatchProducer, records_of
from trueup.connectors.replication.ports import Columns
from trueup.state.common.errors import Stop
from trueup.state.replication.provenance import SINGLE, WHOLE, producer_id

pytestmark = pytest.mark.servers

CONNECTOR = "trueup.connectors.kafka.replication.connector:Batches"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def pair(new_root: Callable[[], Path]) -> Iterator[Pair]:
    with Pair(new_root) as made:
        yield made


def write(broker: Kafka, topic: str, records: int, first: int = 0, **settings: object) -> None:
    """Write numbered records to partition 0, about ten per batch."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 2, "batch.num.messages": 10, **settings})
    for number in range(first, first + records):
        producer.produce(topic, b"v%d" % number, b"%d" % number, partition=0, headers=[("n", b"%d" % number)])
        producer.poll(0)
    assert producer.flush(120) == 0


def write_transactions(broker: Kafka, topic: str, count: int, each: int) -> None:
    """Write transactions. Every third is aborted after its records reached the log."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "compression.type": "lz4"})
    producer.init_transactions(60)
    for turn in range(count):
        doomed = turn % 3 == 1
        producer.begin_transaction()
        for number in range(each):
            producer.produce(topic, b"dead" if doomed else b"live", b"%d" % (number * 7 % 90), partition=0)
        producer.flush(120)
        producer.abort_transaction(60) if doomed else producer.commit_transaction(60)


def read(broker: Kafka, topic: str) -> list[tuple[object, ...]]:
    """Key, value, time and headers of all committed records of partition 0."""
    return [
        (message.key(), message.value(), message.timestamp()[1], tuple(message.headers() or ()))
        for message in committed(broker.bootstrap, topic, [0])
    ]


def keys(broker: Kafka, topic: str) -> list[int]:
    return [int(str(record[0], "ascii")) for record in read(broker, topic)]  # type: ignore[call-overload]


def wait_at(copier: Copier, offset: int) -> Progress:
    """Copy until partition 0 of the source is copied up to ``offset``, and return the last progress."""
    reported: list[Progress] = []

    def there() -> bool:
        copier.copy(time.monotonic() + 0.3)
        reported.extend(copier.progress())
        return reported[-1].position.offset == offset

    wait_until(there, 180.0, f"all before offset {offset} to be copied")
    return reported[-1]


def headers_of(lease: Lease, at_target: bool = False) -> list[object]:
    """Batch headers of partition 0 as stored in the log."""
    cluster = KafkaClient(lease.target if at_target else lease.source)
    where = LogId(lease.assignments[0].source.topic, 0)
    cluster.refresh([where.topic])
    leader, at, found = cluster.leader(where), 0, []
    while True:
        answer = cluster.fetch(leader, {where: at}, 1 << 20, 1 << 20, 1)[where]
        new = [header for header, _ in walk(answer.records) if header.offset >= at]
        if not new:
            cluster.close()
            return found
        found += new
        at = new[-1].following


def test_every_record_is_the_same_at_the_target(pair: Pair) -> None:
    topic = pair.topic()
    for codec in CODECS:
        write(pair.east, topic, 300, **{"compression.type": codec, "enable.idempotence": codec != "gzip"})
    write_transactions(pair.east, topic, 9, 40)
    producer = Producer({"bootstrap.servers": pair.east.bootstrap})
    producer.produce(
        topic, None, None, partition=0, timestamp=1, headers=[("empty", None), ("twice", b"1"), ("twice", b"")]
    )
    producer.flush(120)
    Copy(Batches(), pair.lease(topic)).to_the_end()
    assert read(pair.west, topic) == read(pair.east, topic)


def test_runs_locate_each_record_among_foreign_ones(pair: Pair) -> None:
    topic = pair.topic()
    lease = Copy(Batches(), pair.lease(topic))
    write(pair.east, topic, 100)
    lease.to_the_end()
    write(pair.west, topic, 30, first=9_000)
    write(pair.east, topic, 100, first=100)
    after = lease.next_lease().to_the_end()
    assert (lease.runs, after.runs, after.totals["foreign"]) == ([(0, 0, 100)], [(100, 130, 100)], 30)


def test_own_records_behind_an_old_floor_are_not_foreign(pair: Pair) -> None:
    topic = pair.topic()
    write(pair.east, topic, 100)
    first = Copy(Batches(), pair.lease(topic)).to_the_end()
    # The state after a copier was killed during a write.
    held = first.rows[LogId(topic, 0)].position
    old = replace(held, resume_state={**held.resume_state, "target": 0})
    write(pair.east, topic, 50, first=100)
    assignment = pair.lease(topic).assignments[0]._replace(position=old)
    again = Copy(Batches(), pair.lease(topic, assignments=(assignment,))).to_the_end()
    assert (again.totals["copied"], again.totals["foreign"]) == (50, 0)


def test_an_old_position_finds_what_is_there(pair: Pair) -> None:
    topic = pair.topic()
    write(pair.east, topic, 500)
    first = Copy(Batches(), pair.lease(topic)).to_the_end()
    write(pair.east, topic, 50, first=500)
    again = Copy(Batches(), pair.lease(topic)).to_the_end()
    assert (again.totals["skipped"], again.totals["copied"], again.runs) == (500, 50, [(0, 0, 550)])
    assert first.totals["copied"] == 500
    assert keys(pair.west, topic) == list(range(550))


def test_what_the_target_sent_does_not_come_back(pair: Pair) -> None:
    topic = pair.topic()
    write(pair.east, topic, 100)
    Copy(Batches(), pair.lease(topic)).to_the_end()
    back = Copy(Batches(), pair.lease(topic, back=True)).to_the_end()
    assert (back.totals["dropped"], back.totals["copied"], ends(pair.site("east", topic))) == (100, 0, [100])


@pytest.mark.parametrize("mark", [WHOLE, SINGLE[0], SINGLE[-1]])
def test_batches_of_links_that_passed_the_target_are_dropped(pair: Pair, mark: int) -> None:
    topic = pair.topic()
    linked(pair, topic, producer_id(0b110, 9, mark))
    found = Copy(Batches(), pair.lease(topic)).to_the_end()
    assert (found.totals["dropped"], found.totals["copied"]) == (1, 0)


def test_without_forwarding_only_local_records_go(pair: Pair) -> None:
    topic = pair.topic()
    write(pair.east, topic, 10)
    linked(pair, topic, producer_id(0b100, 9))
    found = Copy(Batches(), pair.lease(topic, forward=False)).to_the_end()
    assert (found.totals["dropped"], keys(pair.west, topic)) == (1, list(range(10)))


def test_forwarded_records_have_their_whole_path(pair: Pair) -> None:
    topic = pair.topic()
    linked(pair, topic, producer_id(0b100, 9, SINGLE[3]))
    lease = pair.lease(topic)
    Copy(Batches(), lease).to_the_end()
    assert [h.producer_id for h in headers_of(lease, at_target=True)] == [producer_id(0b101, EAST_TO_WEST)]  # type: ignore[attr-defined]


def linked(pair: Pair, topic: str, producer: int) -> None:
    """Write a record to east as a link with this producer id does."""
    [batch] = records_of(Columns([0], [b"77"], [b"v"], [1_700_000_000_000], [()])).batches(0)
    log = LogId(topic, 0)
    with closing(KafkaClient(pair.lease(topic).source)) as client:
        client.refresh([topic])
        connection = client.asking(client.leader(log))
        connection.send(
            PRODUCE, PRODUCE_VERSION, *produce_body({log: batch.sent_by(BatchProducer(producer, 0, 0))}, 5_000)
        )
        assert produced(connection.receive())[log].error == 0


def test_the_time_that_the_log_gave_stays(pair: Pair) -> None:
    topic = pair.topic(east={"message.timestamp.type": "LogAppendTime"})
    for codec in CODECS:
        write(pair.east, topic, 40, **{"compression.type": codec})
    Copy(Batches(), pair.lease(topic)).to_the_end()
    assert read(pair.west, topic) == read(pair.east, topic)


def test_a_refused_batch_stops_its_partition_alone(pair: Pair) -> None:
    topic = pair.topic(2, west={"max.message.bytes": "2000"})
    producer = Producer({"bootstrap.servers": pair.east.bootstrap, "linger.ms": 0})
    for number in range(40):
        producer.produce(topic, os.urandom(5_000 if number == 20 else 10), b"%d" % number, partition=0)
        producer.produce(topic, b"v", b"%d" % number, partition=1)
        producer.flush(120)
    rows = Copy(Batches(), pair.lease(topic, 2)).to_the_end().rows
    stopped, other = rows[LogId(topic, 0)], rows[LogId(topic, 1)]
    assert (stopped.stopped, stopped.position.offset, "max.message.bytes" in stopped.error) == (True, 20, True)
    assert (other.stopped, other.position.offset) == (False, 40)


def test_what_follows_a_refused_batch_does_not_take_its_place(pair: Pair) -> None:
    """The broker has no state of the producer, so it accepts any first sequence from it."""
    topic = pair.topic(west={"max.message.bytes": "2000"})
    producer = Producer({"bootstrap.servers": pair.east.bootstrap, "linger.ms": 0})
    for number in range(20):
        producer.produce(topic, os.urandom(10 if number else 5_000), b"%d" % number, partition=0)
        producer.flush(120)
    first = Copy(Batches(), pair.lease(topic)).to_the_end()
    assert (first.rows[LogId(topic, 0)].stopped, ends(pair.site("west", topic))) == (True, [0])
    configure(pair.west, ConfigResource(ResourceType.TOPIC, topic), "max.message.bytes", "1000000")
    assert first.next_lease().to_the_end().runs == [(0, 0, 20)]


def test_an_unknown_topic_stops_its_partition(pair: Pair) -> None:
    lease = pair.lease(pair.topic())
    absent = lease.assignments[0]._replace(target=LogId("absent", 0))
    copier = Batches().open(replace(lease, assignments=(absent,)))

    def stopped() -> bool:
        copier.copy(time.monotonic() + 0.2)
        return copier.progress()[0].stopped

    wait_until(stopped, 180.0, "the partition to stop")
    copier.close()


def test_records_deleted_before_they_were_copied_are_reported(pair: Pair) -> None:
    topic = pair.topic()
    write(pair.east, topic, 100)
    first = Copy(Batches(), pair.lease(topic)).to_the_end()
    write(pair.east, topic, 100, first=100)
    admin = AdminClient({"bootstrap.servers": pair.east.bootstrap})
    place = TopicPartition(topic, 0, 150)
    admin.delete_records([place])[place].result(30)
    after = first.next_lease().to_the_end()
    assert (after.totals["lost"], after.runs) == (50, [(150, 100, 50)])


def test_a_target_that_was_made_anew_stops_the_copy(pair: Pair) -> None:
    topic = pair.topic()
    write(pair.east, topic, 100)
    first = Copy(Batches(), pair.lease(topic)).to_the_end()
    admin = AdminClient({"bootstrap.servers": pair.west.bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    wait_until(lambda: topic not in admin.list_topics(timeout=30).topics, 180.0, "the topic to go")
    create(pair.west, topic, 1, {})
    after = first.next_lease().to_the_end()
    assert after.rows[LogId(topic, 0)].stopped


def test_a_position_set_by_an_operator_is_kept(pair: Pair) -> None:
    topic = pair.topic()
    write(pair.east, topic, 100)
    lease = pair.lease(topic)
    Copy(Batches(), lease).to_the_end()
    chosen = lease.assignments[0]._replace(position=Position(90, chosen=True))
    again = Copy(Batches(), replace(lease, assignments=(chosen,))).to_the_end()
    assert (again.totals["copied"], keys(pair.west, topic)) == (10, [*range(100), *range(90, 100)])


def test_a_different_history_stops_instead_of_losing_records(pair: Pair) -> None:
    """The position is lost and the link starts at the end. The target contains other records of this writer id."""
    topic = pair.topic()
    write(pair.east, topic, 100)
    lease = pair.lease(topic)
    Copy(Batches(), lease).to_the_end()
    write(pair.east, topic, 40, first=100)
    late = replace(lease, assignments=(lease.assignments[0]._replace(start=100),))
    assert Copy(Batches(), late).to_the_end().rows[LogId(topic, 0)].stopped


def test_two_partitions_may_not_go_to_one(pair: Pair) -> None:
    lease = pair.lease("one", 2)
    merged = tuple(each._replace(target=LogId("one", 0)) for each in lease.assignments)
    with pytest.raises(Stop, match="copy: records"):
        Batches().open(replace(lease, assignments=merged))


def test_a_cluster_is_not_linked_to_itself(pair: Pair) -> None:
    lease = pair.lease(pair.topic())
    with pytest.raises(Stop, match="two clusters"):
        Batches().open(replace(lease, target=replace(lease.source, name="west")))


def test_a_cluster_reports_its_id(pair: Pair) -> None:
    lease = pair.lease("any")
    assert cluster_id(lease.source) != cluster_id(lease.target)


COMPACTING = {
    "cleanup.policy": "compact",
    "segment.ms": "500",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "500",
    "delete.retention.ms": "600000",
}


def compacted(pair: Pair) -> Lease:
    """A compacted source: holes in batches, gaps between batches, control batches, aborted transactions."""
    topic = pair.topic(east=COMPACTING)
    lease, chance = pair.lease(topic), Random(1)
    for codec in ("none", "lz4", "gzip"):
        producer = Producer({"bootstrap.servers": pair.east.bootstrap, "compression.type": codec, "linger.ms": 20})
        for number in range(3_000):
            value = None if number % 97 == 0 else os.urandom(50)
            producer.produce(
                topic, value, b"%d" % chance.randrange(4_000), partition=0, headers=[("n", b"%d" % number)]
            )
        producer.flush(120)
    write_transactions(pair.east, topic, 30, 30)

    def cleaned() -> bool:
        write(pair.east, topic, 1)
        headers = headers_of(lease)
        holes = sum(not h.dense and h.records > 0 for h in headers)  # type: ignore[attr-defined]
        return holes > 5 and any(h.attributes & HORIZON for h in headers)  # type: ignore[attr-defined]

    wait_until(cleaned, 180.0, "the cleaner to leave holes")
    configure(pair.east, ConfigResource(ResourceType.TOPIC, topic), "cleanup.policy", "delete")
    shapes: list[object] = []

    def still() -> bool:
        """Whether the current pass of the cleaner ended."""
        shapes.append(headers_of(lease))
        return len(shapes) > 40 and shapes[-1] == shapes[-40]

    wait_until(still, 180.0, "the cleaner to end")
    return lease


def test_a_compacted_source_with_transactions_is_copied_through_kills(pair: Pair, tmp_path: Path) -> None:
    lease = replace(compacted(pair), limits=Limits(fetch_bytes=4_096, records_per_s=600))
    west = pair.site("west", lease.assignments[0].target.topic)
    wanted = len(read(pair.east, west.topic))
    worker = Worker(tmp_path / "worker", lease, CONNECTOR, 0.3)
    with ExitStack() as stack:
        stack.callback(worker.close)
        worker.start()
        for _ in range(3):
            before = ends(west)[0]
            wait_until(lambda before=before: ends(west)[0] >= min(before + 300, wanted), 180.0, "some more records")
            worker.crash()
        wait_until(lambda: ends(west)[0] >= wanted, 180.0, "all records")
    assert read(pair.west, west.topic) == read(pair.east, west.topic)


def test_producers_that_the_broker_forgot_are_found_in_the_log(pair: Pair) -> None:
    topic = pair.topic()
    write(pair.east, topic, 2_000)
    write(pair.west, topic, 10, first=90_000)
    lease = Copy(Batches(), pair.lease(topic)).to_the_end()
    cluster = KafkaClient(lease.lease.target)
    cluster.refresh([topic])
    where = LogId(topic, 0)
    with forgetting_producers(pair.west):
        wait_until(lambda: cluster.producers([where])[where] == {}, 180.0, "the broker to forget")
    cluster.close()
    write(pair.east, topic, 500, first=2_000)
    again = Copy(Batches(), pair.lease(topic)).to_the_end()
    assert (again.totals["skipped"], again.totals["copied"]) == (2_000, 500)
    assert [key for key in keys(pair.west, topic) if key < 90_000] == list(range(2_500))


@pytest.mark.parametrize(("deleted", "floor"), [(0, 80), (70, 50)])
def test_the_end_of_a_target_that_forgot_an_idle_link_is_read(pair: Pair, deleted: int, floor: int) -> None:
    """Others write there meanwhile. Their records are read; some were deleted before that."""
    topic = pair.topic()
    where = LogId(topic, 0)
    write(pair.east, topic, 50)
    admin = AdminClient({"bootstrap.servers": pair.west.bootstrap})
    with closing(Batches().open(pair.lease(topic))) as copier, closing(KafkaClient(pair.lease(topic).target)) as west:
        wait_at(copier, 50)
        west.refresh([topic])
        with forgetting_producers(pair.west):
            wait_until(lambda: west.producers([where])[where] == {}, 180.0, "the broker to forget")
        write(pair.west, topic, 30, first=9_000)
        place = TopicPartition(topic, 0, deleted)
        admin.delete_records([place])[place].result(60)
        copier.copy(time.monotonic() + 0.3)
        [found] = copier.progress()
    assert (found.target_end, found.foreign, found.position.resume_state["target"]) == (80, 30, floor)


def test_a_batch_missing_at_a_target_that_forgot_its_producers_is_reported(pair: Pair) -> None:
    """The target expired the producer and accepts the next batch. The copy stops and does not advance."""
    topic, producer = pair.topic(), producer_id(1, EAST_TO_WEST)
    source = Producer({"bootstrap.servers": pair.east.bootstrap, "linger.ms": 0})
    for number in range(10):
        source.produce(topic, b"v", b"%d" % number, partition=0)
        source.flush(120)
    lease = pair.lease(topic)
    at = {
        n: replace(
            lease,
            assignments=(lease.assignments[0]._replace(position=Position(n, {"target": 0, f"id:{producer:x}": n})),),
        )
        for n in (4, 5)
    }
    Copy(Batches(), at[5]).to_the_end()
    [row] = Copy(Batches(), at[4]).to_the_end().rows.values()
    assert (row.stopped, row.position.offset, "never written" in row.error) == (True, 4, True)


@pytest.mark.parametrize("west", [{}, COMPACTING])
def test_a_source_compacted_since_a_crash_is_copied_on(pair: Pair, west: dict[str, str]) -> None:
    """The position is older than the target, and the batches after it are not at the source any more."""
    topic = pair.topic(east=COMPACTING, west=west)
    write(pair.east, topic, 100)
    recorded = Copy(Batches(), pair.lease(topic)).to_the_end()
    write(pair.east, topic, 200, first=100)
    recorded.next_lease().to_the_end()

    def cleaned() -> bool:
        write(pair.east, topic, 150, first=150)
        held = [h for h in headers_of(recorded.lease) if 100 <= h.offset < 300]  # type: ignore[attr-defined]
        return 0 < sum(h.records for h in held) < 60  # type: ignore[attr-defined]

    wait_until(cleaned, 180.0, "the cleaner to remove what was copied last")
    after = recorded.next_lease().to_the_end()
    assert not after.rows[LogId(topic, 0)].stopped, after.rows
    there, here = read(pair.west, topic), read(pair.east, topic)
    assert {row[0]: row for row in there} == {row[0]: row for row in here}
    if not west:
        assert (after.totals["skipped"] > 0, len(set(there))) == (True, len(there))
        assert [row for row in there if row in set(here)] == here


def test_sequences_begin_again_after_the_last(pair: Pair) -> None:
    topic = pair.topic()
    write(pair.east, topic, 200)
    lease = pair.lease(topic)
    resume_state = {"target": 0, f"id:{producer_id(1, EAST_TO_WEST):x}": 2**31 - 101}
    old = replace(lease, assignments=(lease.assignments[0]._replace(position=Position(0, resume_state)),))
    Copy(Batches(), old).to_the_end()
    write(pair.east, topic, 100, first=200)
    again = Copy(Batches(), old).to_the_end()
    assert (again.totals["skipped"], again.totals["copied"]) == (200, 100)
    assert keys(pair.west, topic) == list(range(300))


def test_a_target_that_compresses_anew_is_understood(pair: Pair) -> None:
    topic = pair.topic(west={"compression.type": "zstd"})
    write(pair.east, topic, 200, **{"compression.type": "lz4"})
    Copy(Batches(), pair.lease(topic)).to_the_end()
    again = Copy(Batches(), pair.lease(topic)).to_the_end()
    assert (again.totals["skipped"], again.totals["copied"], keys(pair.west, topic)) == (200, 0, list(range(200)))


def test_what_an_opened_lease_stands_at_can_be_kept_at_once(pair: Pair) -> None:
    """A chosen position applies once. It does not apply again after a lease that ends without a report."""
    topic = pair.topic()
    write(pair.east, topic, 100)
    lease = pair.lease(topic)
    chosen = replace(lease, assignments=(lease.assignments[0]._replace(position=Position(50, chosen=True)),))
    copier = Batches().open(chosen)
    kept = copier.progress()[0].position
    wait_at(copier, 100)
    copier.close()
    after = replace(lease, assignments=(lease.assignments[0]._replace(position=kept),))
    assert Copy(Batches(), after).to_the_end().totals["copied"] == 0
    assert keys(pair.west, topic) == list(range(50, 100))


def test_two_copiers_at_once_neither_lose_nor_double(pair: Pair) -> None:
    topic = pair.topic(2)
    sites = [pair.site("east", topic, 2), pair.site("west", topic, 2)]
    copies = [Batches().open(pair.lease(topic, 2)) for _ in range(2)]
    stop = threading.Event()

    def copy(number: int) -> None:
        while not stop.is_set():
            copies[number].copy(time.monotonic() + 0.2 + 0.1 * number)

    threads = [threading.Thread(target=copy, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    with Writers(sites[:1], per_s=500) as writers:
        writers.wait_acknowledged(2_000)
        found = audit(sites, writers)
    stop.set()
    for thread in threads:
        thread.join()
    rows = [row for copier in copies for row in copier.progress()]
    for copier in copies:
        copier.close()
    assert found.right, found
    assert [row.error for row in rows] == [""] * 4


@pytest.mark.release
def test_both_ways_through_twenty_kills_of_workers_and_brokers(pair: Pair, tmp_path: Path) -> None:
    topic = pair.topic(2)
    sites = [pair.site(side, topic, 2) for side in ("east", "west")]
    leases = [pair.lease(topic, 2), pair.lease(topic, 2, back=True)]
    workers = [Worker(tmp_path / lease.link, lease, CONNECTOR, 2.0) for lease in leases]
    with ExitStack() as stack, Writers(sites, per_s=60) as writers:
        for worker in workers:
            stack.callback(worker.close)
            worker.start()
        with Faults({w.process.name: w.crash for w in workers}, every_s=0.4, seed=1) as faults:
            faults.wait_done(20)
        for broker in (pair.east, pair.west):
            broker.kill()
            broker.up()
        reached = ends(sites[0])[0]
        wait_until(lambda: ends(sites[0])[0] > reached + 500, 180.0, "life to go on")
        found = audit(sites, writers)
    assert found.right, found


def test_time_runs_forward(pair: Pair) -> None:
    """The delay between the source and the target is short."""
    topic = pair.topic()
    copier = Batches().open(pair.lease(topic))
    copier.copy(time.monotonic() + 0.2)
    write(pair.east, topic, 50)
    row = wait_at(copier, 50)
    copier.close()
    assert (row.lag_ms, row.source_end, row.target_end, list(pairwise(row.runs))) == (0, 50, 50, [])
