"""Copies between two clusters of RocketMQ, and through Kafka: what the conformance suite does not know of messages."""

import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.conformance.harness import Cluster, Harness, Written, contents, numbered, untrue
from tests.conformance.kafka import KafkaCluster
from tests.conformance.memory import pump
from tests.conformance.rocketmq import MAIN, NARROW, RocketMqCluster, RocketMqPair
from tests.integration.rocketmq.clusters import BORN_MS
from tests.replication.pair import Copy, Pair
from tests.replication.times import STAMPS, VALUE, write_times
from trueup.connectors.contract import Assignment, Endpoint, Lease, LogId, Position, Progress
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.rocketmq.client import messages
from trueup.connectors.rocketmq.client.connection import RocketMqRequest
from trueup.connectors.rocketmq.protocol import properties
from trueup.connectors.rocketmq.protocol.compression import LZ4, ZLIB, ZSTD, closed
from trueup.connectors.rocketmq.protocol.stored import StoredMessages
from trueup.connectors.rocketmq.replication.records import names
from trueup.state.common.errors import TrueupError

pytestmark = [pytest.mark.servers, pytest.mark.release]
BODY = bytes(range(256)) * 8
RING = (("east", "west"), ("west", "lake"), ("lake", "east"))
MESH = tuple(itertools.permutations(("east", "west", "lake"), 2))
NATURE = {
    "KEYS": "k1 k2",
    "TAGS": "paid",
    "__SHARDINGKEY": "fifo",
    "own": "ü€𝄞",
    "UNIQ_KEY": "7F00",
    "CORRELATION_ID": "c",
}


@pytest.fixture(scope="module")
def harness(rocketmq: RocketMqPair) -> Harness:
    return Harness(rocketmq.east, rocketmq.west, "records", "tests.conformance.memory:pump", pump())


def send(cluster: RocketMqCluster, request: RocketMqRequest, log: LogId) -> messages.SendResult:
    return messages.sent(cluster.client.ask(log.place, request))


def one(cluster: RocketMqCluster, topic: str) -> StoredMessages:
    [stored] = cluster.stored(cluster.log(topic, 0))
    return stored


def kept(raw: memoryview | bytes) -> dict[str, str]:
    """The properties that the copy of a message must have."""
    gone = {name.decode() for name in names.STORED_BY_BROKER | names.TAG}
    return {name: value for name, value in properties.decoded(raw).items() if name not in gone}


def test_a_delayed_message_is_copied_when_it_is_visible_and_is_not_delayed_again(
    harness: Harness, rocketmq: RocketMqPair
) -> None:
    topic = harness.topic()
    log = rocketmq.east.log(topic, 0)
    late = properties.encoded({"DELAY": "1", "TAGS": "late"})
    send(rocketmq.east, messages.send(log, b"later", BORN_MS, late), log)
    harness.write("east", topic, {0: numbered(3)})
    wait_until(lambda: rocketmq.east.end(log) == 4, 180.0, "the delayed message")
    copy = harness.copy(harness.lease(topic)).to_the_end()
    east, west = harness.read("east", topic), harness.read("west", topic)
    assert (contents(west), untrue(copy.runs, east, west)) == (contents(east), [])
    assert "DELAY" not in properties.decoded(one(rocketmq.west, topic).properties[-1])


def test_a_topic_made_anew_that_has_more_messages_is_noticed_by_the_next_lease(harness: Harness) -> None:
    topic = harness.topic()
    harness.write("east", topic, {0: numbered(5)})
    copy = harness.copy(harness.lease(topic)).to_the_end()
    harness.remake("east", topic)
    harness.write("east", topic, {0: numbered(8, name=b"new ")})
    [row] = copy.next_lease().to_the_end().rows.values()
    assert (row.stopped, "recreated" in row.error, contents(harness.read("west", topic))) == (True, True, numbered(5))


def test_a_message_of_a_transaction_is_copied_when_it_is_committed(harness: Harness, rocketmq: RocketMqPair) -> None:
    topic = harness.topic()
    log = rocketmq.east.log(topic, 0)
    marks = {"TRAN_MSG": "true", "PGROUP": "p", "UNIQ_KEY": "0A0B"}
    half = send(rocketmq.east, messages.send(log, b"paid", BORN_MS, properties.encoded(marks)), log)
    harness.write("east", topic, {0: numbered(3)})
    harness.copy(harness.lease(topic)).to_the_end()
    before = len(harness.read("west", topic))
    rocketmq.east.client.ask(log.place, messages.end_transaction(half, "p", "0A0B"))
    wait_until(lambda: rocketmq.east.end(log) == 4, 180.0, "the committed message")
    harness.copy(harness.lease(topic)).to_the_end()
    found = one(rocketmq.west, topic)
    assert (before, bytes(found.bodies[3]), found.sys[3]) == (3, b"paid", 0)
    assert kept(found.properties[3]) == {"UNIQ_KEY": "0A0B", "__transactionId__": "0A0B"}  # the broker adds the second
    assert properties.decoded(found.properties[3]).keys().isdisjoint(marks.keys() - {"UNIQ_KEY"})


def test_several_topics_are_copied_into_one(harness: Harness, rocketmq: RocketMqPair) -> None:
    names, into = [harness.topic(), harness.topic()], harness.topic()
    born = {topic: numbered(300, name=topic.encode()) for topic in names}
    for topic, records in born.items():
        harness.write("east", topic, {0: records})
    target = rocketmq.west.log(into, 0)
    held = tuple(Assignment(rocketmq.east.log(topic, 0), target, Position(), 0) for topic in names)
    harness.copy(harness.lease(into, assignments=held)).to_the_end()
    found = contents(harness.read("west", into))
    assert {topic: [one for one in found if one in records] for topic, records in born.items()} == born
    assert len(found) == sum(map(len, born.values()))


def test_binary_bodies_arrive_byte_for_byte(harness: Harness, rocketmq: RocketMqPair) -> None:
    topic, body = harness.topic(), os.urandom(5_000) + bytes(range(256))
    log = rocketmq.east.log(topic, 0)
    send(rocketmq.east, messages.send(log, body, BORN_MS), log)
    harness.copy(harness.lease(topic)).to_the_end()
    assert bytes(one(rocketmq.west, topic).bodies[0]) == body


def test_properties_keep_their_names_and_values(harness: Harness, rocketmq: RocketMqPair) -> None:
    topic = harness.topic()
    log = rocketmq.east.log(topic, 0)
    send(rocketmq.east, messages.send(log, b"body", BORN_MS, properties.encoded(NATURE)), log)
    harness.copy(harness.lease(topic)).to_the_end()
    found = properties.decoded(one(rocketmq.west, topic).properties[0])
    ours = {"trueup-source", "trueup-offset", "ROCKETMQ_REPLICATOR_SOURCE"}
    assert (found.items() >= NATURE.items(), found.keys() - NATURE.keys() - ours) == (True, set())


@pytest.mark.parametrize("kind", [LZ4, ZSTD, ZLIB])
def test_a_compressed_message_arrives_untouched(harness: Harness, rocketmq: RocketMqPair, kind: int) -> None:
    topic = harness.topic()
    log, (raw, sys) = rocketmq.east.log(topic, 0), closed(BODY, kind)
    send(rocketmq.east, messages.send(log, raw, BORN_MS, properties.encoded(NATURE), 7, sys), log)
    harness.copy(harness.lease(topic)).to_the_end()
    here, there = one(rocketmq.east, topic), one(rocketmq.west, topic)
    assert (bytes(there.bodies[0]), there.sys[0], there.flags[0], there.born[0]) == (raw, sys, 7, BORN_MS)
    assert kept(there.properties[0]) == kept(here.properties[0])


def test_a_transform_of_the_link_sees_the_message_as_its_producer_wrote_it(
    harness: Harness, rocketmq: RocketMqPair
) -> None:
    topic = harness.topic()
    log, (raw, sys) = rocketmq.east.log(topic, 0), closed(b"abc" * 100, ZSTD)
    send(rocketmq.east, messages.send(log, raw, BORN_MS, properties.encoded(NATURE), 7, sys), log)
    harness.copy(harness.lease(topic, transform="tests.conformance.transforms:even_shouted")).to_the_end()
    there = one(rocketmq.west, topic)
    assert (bytes(there.bodies[0]), there.sys[0], there.flags[0]) == (b"ABC" * 100, 0, 7)
    assert kept(there.properties[0]) == kept(one(rocketmq.east, topic).properties[0])


class Lake:
    """A Kafka cluster between the two of RocketMQ."""

    def __init__(self, pair: Pair) -> None:
        self.cluster = KafkaCluster("west", pair.west)
        self.end = Endpoint("lake", self.cluster.endpoint().address, 2, system="kafka")


@pytest.fixture
def lake(pair: Pair) -> Lake:
    return Lake(pair)


def copied(
    source: Endpoint, reads: Cluster, target: Endpoint, writes: Cluster, topic: str, forward: bool = True
) -> Copy:
    """A copy of a topic with one log, to its end."""
    held = Assignment(reads.log(topic, 0), writes.log(topic, 0), Position(), 0)
    lease = Lease(f"{source.name}-{target.name}", source, target, source.bit, "records", (held,), forward=forward)
    return Copy(pump(), lease, reads.end).to_the_end()


def test_what_went_through_kafka_never_comes_home_and_is_what_it_was(
    harness: Harness, rocketmq: RocketMqPair, lake: Lake
) -> None:
    topic = harness.topic()
    lake.cluster.create(topic, 1)
    log, (raw, sys) = rocketmq.east.log(topic, 0), closed(BODY, ZSTD)
    send(rocketmq.east, messages.send(log, raw, BORN_MS, properties.encoded(NATURE), 7, sys), log)
    east, west = rocketmq.east.endpoint(), rocketmq.west.endpoint()
    copied(east, rocketmq.east, lake.end, lake.cluster, topic)
    copied(lake.end, lake.cluster, west, rocketmq.west, topic)
    home = copied(west, rocketmq.west, east, rocketmq.east, topic)
    assert (home.totals["copied"], home.totals["dropped"]) == (0, 1)
    here, there = one(rocketmq.east, topic), one(rocketmq.west, topic)
    assert (bytes(there.bodies[0]), there.flags[0], there.born[0]) == (BODY, 7, BORN_MS)
    assert kept(there.properties[0]) == kept(here.properties[0])
    path = properties.decoded(there.properties[0])
    assert (path["trueup-source"], path["ROCKETMQ_REPLICATOR_SOURCE"]) == ("#0,lake#2", "#0")
    [record] = contents(lake.cluster.read(topic, 0))
    assert (record.key, record.value, dict(record.headers)["TAGS"]) == (b"k1 k2", BODY, b"paid")


@pytest.mark.parametrize(("routes", "forward"), [(RING, True), (MESH, False)], ids=["ring", "mesh"])
def test_every_cluster_gets_each_message_once(
    harness: Harness, rocketmq: RocketMqPair, lake: Lake, routes: Sequence[tuple[str, str]], forward: bool
) -> None:
    topic = harness.topic()
    lake.cluster.create(topic, 1)
    clusters: dict[str, Cluster] = {"east": rocketmq.east, "west": rocketmq.west, "lake": lake.cluster}
    ends = {"east": rocketmq.east.endpoint(), "west": rocketmq.west.endpoint(), "lake": lake.end}
    born = {name: numbered(50, name=name.encode()) for name in clusters}
    for name, cluster in clusters.items():
        cluster.write(topic, {0: born[name]})
    rounds = [
        sum(copied(ends[a], clusters[a], ends[b], clusters[b], topic, forward).totals["copied"] for a, b in routes)
        for _ in range(3)
    ]
    wanted = Counter(itertools.chain(*born.values()))
    found = {name: Counter(contents(cluster.read(topic, 0))) for name, cluster in clusters.items()}
    assert (found, sum(rounds), rounds[-1]) == (dict.fromkeys(clusters, wanted), 300, 0)


def test_records_of_kafka_come_back_byte_for_byte(rocketmq: RocketMqPair, pair: Pair) -> None:
    systems: Sequence[Cluster] = (KafkaCluster("east", pair.east), rocketmq.west, KafkaCluster("west", pair.west))
    topic = f"there-and-back-{time.monotonic_ns()}"
    for cluster in systems:
        cluster.create(topic, 1)
    odd = [
        Written(None, None, BORN_MS),
        Written(b"", b"", BORN_MS + 1),
        Written(b"\xff\x01\x02", os.urandom(2_000), 7),
        Written(b"two words", b"v", 8, (("TAGS", b"t"), ("a", b"1"), ("a", None), ("DELAY", b"3"), ("", b"\xff"))),
        *numbered(200),
    ]
    systems[0].write(topic, {0: odd})
    write_times(pair.east, topic, STAMPS)
    ends = [cluster.endpoint() for cluster in systems]
    ends = [
        Endpoint(name, end.address, bit, end.options, end.system)
        for bit, (name, end) in enumerate(zip("abc", ends, strict=True))
    ]
    copied(ends[0], systems[0], ends[1], systems[1], topic)
    copied(ends[1], systems[1], ends[2], systems[2], topic)
    assert contents(systems[2].read(topic, 0)) == [*odd, *(Written(None, VALUE, stamp) for stamp in STAMPS)]


def test_queues_of_one_broker_are_copied_while_another_is_down(rocketmq: RocketMqPair) -> None:
    west, east = rocketmq.west, rocketmq.east
    there, away = (f"{name}-{time.monotonic_ns()}" for name in ("there", "away"))
    for topic in (there, away):
        west.create(topic, 1, narrow=topic == away)
        east.create(topic, 1)
        west.write(topic, {0: numbered(100)})
    held = tuple(Assignment(west.log(topic, 0), east.log(topic, 0), Position(), 0) for topic in (there, away))
    assert [each.source.place for each in held] == [MAIN, NARROW]
    lease = Lease("west-east", west.endpoint(), east.endpoint(), 8, "records", held)
    rows: dict[LogId, Progress] = {}
    with closing(pump().open(lease)) as copier:

        def until(end: int, away_end: int, error: str = "") -> None:
            def reached() -> bool:
                copier.copy(time.monotonic() + 0.2)
                found = {row.source: row for row in copier.progress()}
                rows.update(found)
                ours, other = (found[each.source] for each in held)
                return (ours.position.offset, other.position.offset) == (end, away_end) and error in other.error

            wait_until(reached, 180.0, f"{end} and {away_end} messages, and {error!r}")

        until(100, 100)
        west.kill_one(NARROW)
        west.write(there, {0: numbered(500, 100)})
        until(600, 100, NARROW)
        west.up()
        west.write(away, {0: numbered(50, 100)})
        until(600, 150)
    assert [contents(east.read(topic, 0)) for topic in (there, away)] == [numbered(600), numbered(150)]


def test_a_copy_goes_on_after_its_source_was_killed(harness: Harness, rocketmq: RocketMqPair) -> None:
    topic = harness.topic(2)
    first = {queue: numbered(2_000, name=b"%d " % queue) for queue in range(2)}
    harness.write("east", topic, first)
    with closing(harness.connector.open(harness.lease(topic, 2))) as copier:
        copier.copy(time.monotonic() + 0.05)
        rocketmq.east.kill()
        rocketmq.east.up()
        more = {queue: numbered(500, 2_000, name=b"%d " % queue) for queue in range(2)}
        harness.write("east", topic, more)
    harness.copy(harness.lease(topic, 2)).to_the_end()
    assert {queue: contents(harness.read("west", topic, queue)) for queue in range(2)} == {
        queue: [*first[queue], *more[queue]] for queue in range(2)
    }


def test_nothing_is_lost_or_doubled_when_brokers_and_the_copier_are_killed(
    harness: Harness, rocketmq: RocketMqPair, tmp_path: Path
) -> None:
    topic, ended, acknowledged = harness.topic(2), threading.Event(), list[Written]()

    def write() -> None:
        for first in itertools.count(0, 100):
            some = numbered(100, first)
            with suppress(TrueupError):  # its broker was killed: they may be there, or not
                harness.write("east", topic, {0: some})
                acknowledged.extend(some)
            if ended.wait(0.05):
                return

    worker, writer = harness.worker(tmp_path, harness.lease(topic, 2), 0.7), threading.Thread(target=write)
    writer.start()
    worker.start()
    try:
        for cluster in (rocketmq.west, rocketmq.east, rocketmq.west):
            time.sleep(1.0)
            cluster.kill()
            worker.crash()
            cluster.up()
    finally:
        ended.set()
        writer.join()
        worker.close()
    harness.copy(harness.lease(topic, 2)).to_the_end()
    east, west = (contents(harness.read(side, topic)) for side in ("east", "west"))
    assert (west == east, len(west), set(acknowledged) <= set(west)) == (True, len(set(east)), True)
