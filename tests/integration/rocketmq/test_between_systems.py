"""What a record of Kafka is in RocketMQ and a message of RocketMQ in Kafka, as their own clients see them. The rows of
the table "Between systems" in docs/rocketmq.md name these cases."""

import os
import time
from collections.abc import Mapping
from typing import NamedTuple

import pytest

from tests.conformance.harness import Written, contents
from tests.conformance.kafka import KafkaCluster
from tests.conformance.rocketmq import RocketMqPair
from tests.integration.rocketmq.clusters import BORN_MS
from tests.integration.rocketmq.test_copies import copied
from tests.replication.pair import Pair
from tests.replication.reading import committed
from trueup.connectors.contract import Endpoint
from trueup.connectors.rocketmq.client import messages
from trueup.connectors.rocketmq.protocol import batch, properties
from trueup.connectors.rocketmq.protocol.compression import ZSTD, closed

pytestmark = pytest.mark.servers
BINARY, LONG = os.urandom(1_000), bytes(range(256)) * 40
OWN = ("trueup-source", "trueup-offset", "ROCKETMQ_REPLICATOR_SOURCE")


class Message(NamedTuple):
    """A message. ``properties``: with their meaning for applications; ``rest``: whether there is the property that has
    what no other property can have."""

    body: bytes
    properties: Mapping[str, str]
    flag: int = 0
    born: int = BORN_MS
    sys: int = 0
    rest: bool = False


def record(key: bytes | None, value: bytes | None, *headers: tuple[str, bytes | None]) -> Written:
    return Written(key, value, BORN_MS, headers)


TO_ROCKETMQ: dict[str, tuple[Written, Message]] = {
    "text-key": (record(b"k1 k2", b"v"), Message(b"v", {"KEYS": "k1 k2"})),
    "null-key": (record(None, b"v"), Message(b"v", {})),
    "empty-key": (record(b"", b"v"), Message(b"v", {}, rest=True)),
    "key-that-is-no-text": (record(b"\xff\x01", b"v"), Message(b"v", {}, rest=True)),
    "text-header": (record(None, b"v", ("own", "ü€".encode())), Message(b"v", {"own": "ü€"})),
    "header-of-bytes": (record(None, b"v", ("own", b"\xff")), Message(b"v", {}, rest=True)),
    "null-header": (record(None, b"v", ("own", None)), Message(b"v", {}, rest=True)),
    "repeated-header": (record(None, b"v", ("own", b"1"), ("own", b"2")), Message(b"v", {}, rest=True)),
    "header-without-name": (record(None, b"v", ("", b"1")), Message(b"v", {}, rest=True)),
    "header-named-as-a-system-property": (record(None, b"v", ("DELAY", b"3")), Message(b"v", {}, rest=True)),
    "header-TAGS": (record(None, b"v", ("TAGS", b"paid")), Message(b"v", {"TAGS": "paid"})),
    "header-of-a-sharding-key": (record(None, b"v", ("__SHARDINGKEY", b"f")), Message(b"v", {"__SHARDINGKEY": "f"})),
    "null-value": (record(b"k", None), Message(b"", {"KEYS": "k"}, rest=True)),
    "empty-value": (record(b"k", b""), Message(b"", {"KEYS": "k"})),
    "binary-value": (record(None, BINARY), Message(BINARY, {})),
    "other-time": (record(None, b"v")._replace(timestamp=BORN_MS + 5), Message(b"v", {}, born=BORN_MS + 5)),
}
TO_KAFKA: dict[str, tuple[Message, Written]] = {
    "keys": (Message(b"v", {"KEYS": "k1 k2"}), record(b"k1 k2", b"v")),
    "no-keys": (Message(b"v", {}), record(None, b"v")),
    "property": (Message(b"v", {"own": "ü€"}), record(None, b"v", ("own", "ü€".encode()))),
    "tag": (Message(b"v", {"TAGS": "paid"}), record(None, b"v", ("TAGS", b"paid"))),
    "sharding-key": (Message(b"v", {"__SHARDINGKEY": "f"}), record(None, b"v", ("__SHARDINGKEY", b"f"))),
    "flag": (Message(b"v", {}, flag=7), record(None, b"v", ("trueup-rocketmq", b"\0\0\0\7"))),
    "property-with-a-meaning": (
        Message(b"v", {"CORRELATION_ID": "c"}),
        record(None, b"v", ("trueup-rocketmq", b"\0\0\0\0CORRELATION_ID\1c\2")),
    ),
    "empty-body": (Message(b"", {}), record(None, b"")),
    "binary-body": (Message(BINARY, {}), record(None, BINARY)),
    "compressed-body": (Message(LONG, {}, sys=ZSTD), record(None, LONG)),
    "time-of-birth": (Message(b"v", {}, born=BORN_MS + 5), record(None, b"v")._replace(timestamp=BORN_MS + 5)),
}


@pytest.fixture(scope="module")
def lake(pair: Pair) -> KafkaCluster:
    return KafkaCluster("west", pair.west)


def end_of(cluster: KafkaCluster) -> Endpoint:
    """Kafka as an end of a link beside the clusters east and west of RocketMQ."""
    return Endpoint("lake", cluster.endpoint().address, 2, system="kafka")


@pytest.fixture(scope="module")
def in_rocketmq(rocketmq: RocketMqPair, lake: KafkaCluster) -> dict[str, Message]:
    """The message for each record of `TO_ROCKETMQ`."""
    return made_in_rocketmq(rocketmq, lake)


def made_in_rocketmq(rocketmq: RocketMqPair, lake: KafkaCluster) -> dict[str, Message]:
    topic, east = f"to-rocketmq-{time.monotonic_ns()}", rocketmq.east
    for cluster in (lake, east):
        cluster.create(topic, 1)
    lake.write(topic, {0: [each for each, _ in TO_ROCKETMQ.values()]})
    copied(end_of(lake), lake, east.endpoint(), east, topic)
    found = []
    for stored in east.stored(east.log(topic, 0)):
        rows = zip(stored.bodies, stored.properties, stored.flags, stored.born, stored.sys, strict=True)
        for body, raw, flag, born, sys in rows:
            props = properties.decoded(raw)
            rest, time_ms = props.pop("trueup-record", ""), int(props.pop("trueup-time", born))
            kept = {name: value for name, value in props.items() if name not in (*OWN, "CLUSTER", "MSG_REGION")}
            found.append(Message(bytes(body), kept, int(flag), time_ms, int(sys) & 0x701, bool(rest)))
    return dict(zip(TO_ROCKETMQ, found, strict=True))


@pytest.fixture(scope="module")
def in_kafka(rocketmq: RocketMqPair, lake: KafkaCluster) -> dict[str, Written]:
    """The record for each message of `TO_KAFKA`."""
    return made_in_kafka(rocketmq, lake)


def made_in_kafka(rocketmq: RocketMqPair, lake: KafkaCluster) -> dict[str, Written]:
    topic, east = f"to-kafka-{time.monotonic_ns()}", rocketmq.east
    for cluster in (lake, east):
        cluster.create(topic, 1)
    log = east.log(topic, 0)
    for message, _ in TO_KAFKA.values():
        raw, sys = closed(message.body, message.sys) if message.sys else (message.body, 0)
        body = batch.encode([raw], [properties.encoded(message.properties)], [message.flag])
        east.client.ask(log.place, messages.send_batch(log, body, message.born, sys))
    copied(east.endpoint(), east, end_of(lake), lake, topic)
    return {
        name: Written(
            found.key(),
            found.value(),
            found.timestamp()[1],
            tuple(header for header in found.headers() or () if header[0] not in OWN),
        )
        for name, found in zip(TO_KAFKA, committed(end_of(lake).address, topic, [0]), strict=True)
    }


@pytest.mark.parametrize("case", TO_ROCKETMQ)
def test_a_record_becomes_this_message(in_rocketmq: dict[str, Message], case: str) -> None:
    assert in_rocketmq[case] == TO_ROCKETMQ[case][1]


@pytest.mark.parametrize("case", TO_KAFKA)
def test_a_message_becomes_this_record(in_kafka: dict[str, Written], case: str) -> None:
    assert in_kafka[case] == TO_KAFKA[case][1]


def test_times_of_0_and_before_arrive_as_they_are(rocketmq: RocketMqPair) -> None:
    times, topic = [5, 0, -1, -1_000, 1, 0], f"times-{time.monotonic_ns()}"
    for cluster in (rocketmq.east, rocketmq.west):
        cluster.create(topic, 1)
    rocketmq.east.write(topic, {0: [record(b"k", b"v")._replace(timestamp=time_ms) for time_ms in times]})
    there = copied(rocketmq.east.endpoint(), rocketmq.east, rocketmq.west.endpoint(), rocketmq.west, topic)
    back = copied(rocketmq.west.endpoint(), rocketmq.west, rocketmq.east.endpoint(), rocketmq.east, topic)
    assert [each.timestamp for each in contents(rocketmq.east.read(topic, 0))] == times
    assert [each.timestamp for each in contents(rocketmq.west.read(topic, 0))] == times
    assert (there.totals["copied"], back.totals["dropped"]) == (len(times), len(times))


def test_many_usual_records_become_what_each_of_them_becomes(rocketmq: RocketMqPair, lake: KafkaCluster) -> None:
    topic, east = f"many-{time.monotonic_ns()}", rocketmq.east
    for cluster in (lake, east):
        cluster.create(topic, 1)
    records = [
        Written(b"%d" % n if n % 3 else None, BINARY[:n], BORN_MS + n % 5, (("own", b"%d" % n), ("TAGS", b"paid")))
        for n in range(500)
    ]
    lake.write(topic, {0: records})
    copied(end_of(lake), lake, east.endpoint(), east, topic)
    stored = [
        each for some in east.stored(east.log(topic, 0)) for each in zip(some.bodies, some.properties, strict=True)
    ]
    assert [bytes(body) for body, _ in stored] == [record.value for record in records]
    for (_, raw), record in zip(stored, records, strict=True):
        found = properties.decoded(raw)
        headers = {name: str(value or b"", "ascii") for name, value in record.headers}
        key = {"KEYS": record.key.decode()} if record.key else {}
        assert {name: found[name] for name in found if name in ("KEYS", "own", "TAGS")} == {**key, **headers}
        assert int(found.get("trueup-time", BORN_MS)) == record.timestamp
