"""Kafka: links in both directions between a broker of one version and one of the newest, and its log directories.

Tests of other suites run here on these brokers.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.configuration import parse
from tests.conformance import test_admins as admins
from tests.conformance import test_connectors as connectors
from tests.conformance.harness import Harness, contents, numbered
from tests.conformance.kafka import KafkaCluster, kafka_harness
from tests.integration.logdirs import test_client as directories
from tests.integration.replication.mirror import Side, coordinated
from tests.integration.replication.test_group_sync import prepared
from tests.replication.old_kafka import OldKafka
from tests.replication.pair import QUICK, create
from tests.replication.reading import committed
from tests.versions.given import kafka, reached, upgrade
from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.kafka.logdirs.client import LogDirsClient
from trueup.connectors.replication.group_sync import GroupSync, OffsetMapping
from trueup.streams.logdirs import checks as logdirs_checks
from trueup.streams.replication import checks as link_checks

pytestmark = pytest.mark.servers

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
WAYS = ("from", "to")
"""Whether the broker of the version is the source or the target."""
_groups = itertools.count(1)


@dataclass
class Brokers:
    """East is the source and west the target."""

    east: Kafka | OldKafka
    west: Kafka | OldKafka


@pytest.fixture(scope="module")
def dirs(new_root: Callable[[], Path]) -> list[str]:
    root = new_root()
    return [str(root / name) for name in ("data", "d2", "d3")]


@pytest.fixture(scope="module")
def broker(new_root: Callable[[], Path], dirs: list[str]) -> Iterator[Kafka | OldKafka]:
    """The broker of the version. Its settings are also those of the suite of log directories."""
    settings = {"log.dirs": ",".join(dirs), "log.segment.bytes": directories.MB, "file.delete.delay.ms": 100}
    with kafka(new_root(), settings) as made:
        made.up()
        yield made


@pytest.fixture(scope="module")
def newest(new_root: Callable[[], Path]) -> Iterator[Kafka]:
    with Kafka(new_root(), settings=QUICK) as made:
        made.up()
        yield made


def ordered(broker: Kafka | OldKafka, newest: Kafka, way: str) -> Brokers:
    return Brokers(broker, newest) if way == "from" else Brokers(newest, broker)


@pytest.fixture(scope="module", params=[(path, way) for path in ("batches", "records") for way in WAYS], ids="-".join)
def harness(broker: Kafka | OldKafka, newest: Kafka, request: pytest.FixtureRequest) -> Harness:
    path, way = request.param
    return kafka_harness(ordered(broker, newest, way), path)  # type: ignore[arg-type]


@pytest.fixture
def from_ids(harness: Harness) -> Harness:
    return harness


@pytest.fixture
def to_ids(harness: Harness) -> Harness:
    return harness


@pytest.fixture(params=WAYS)
def sides(broker: Kafka | OldKafka, newest: Kafka, request: pytest.FixtureRequest) -> Iterator[admins.Sides]:
    both = ordered(broker, newest, request.param)
    east, west = KafkaCluster("east", both.east), KafkaCluster("west", both.west)  # type: ignore[arg-type]
    with ExitStack() as stack:
        yield admins.Sides(east, west, stack)


@pytest.fixture(params=WAYS)
def both(broker: Kafka | OldKafka, newest: Kafka, request: pytest.FixtureRequest) -> Iterator[tuple[Side, Side]]:
    brokers = ordered(broker, newest, request.param)
    east, west = Side("east", brokers.east, 0), Side("west", brokers.west, 1)  # type: ignore[arg-type]
    for side in (east, west):
        wait_until(lambda side=side: coordinated(side.groups), 180.0, f"a coordinator in {side.name}")  # type: ignore[misc]
    yield east, west
    for side in (east, west):
        side.groups.close()


@pytest.fixture(scope="module")
def logdirs(broker: Kafka | OldKafka) -> Iterator[LogDirsClient]:
    with LogDirsClient(Endpoint("one", broker.bootstrap, 0)) as made:
        yield made


def write_transactions(address: str, topic: str) -> None:
    """Ten committed and ten aborted records."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": topic})
    producer.init_transactions(60)
    for value in (b"committed", b"aborted"):
        producer.begin_transaction()
        for _ in range(10):
            producer.produce(topic, value, partition=0)
        end = producer.commit_transaction if value == b"committed" else producer.abort_transaction
        end(60)


def read(address: str, topic: str) -> list[tuple[object, ...]]:
    """Key, value, time and headers, without headers of links."""
    rows = [(m.key(), m.value(), m.timestamp(), m.headers() or []) for m in committed(address, topic, [0])]
    return [(*row[:3], [header for header in row[3] if not header[0].startswith("trueup")]) for row in rows]


def test_records_of_all_codecs_with_headers_and_of_transactions_are_copied(harness: Harness) -> None:
    topic, east, west = harness.topic(), harness.east.endpoint().address, harness.west.endpoint().address
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": east, "compression.type": codec, "linger.ms": 50})
        for number in range(50):
            producer.produce(topic, os.urandom(8) + b"v" * 200, b"%d" % number, 0, headers=[("codec", codec.encode())])
        assert producer.flush(120) == 0
    write_transactions(east, topic)
    wait_until(lambda: len(read(east, topic)) == 260, 60.0, "the marker of the transaction")
    harness.copy(harness.lease(topic)).to_the_end()
    assert read(west, topic) == read(east, topic)


test_nothing_comes_back_over_two_links = connectors.test_two_opposite_links_bring_each_record_to_the_other_side_once
test_keys_values_headers_and_times_arrive = connectors.test_key_value_headers_and_time_arrive_as_they_are
test_a_lost_position_doubles_nothing = connectors.test_a_lost_position_doubles_nothing
test_a_recreated_source_is_not_copied = connectors.test_nothing_of_a_source_topic_made_anew_is_copied
test_a_recreated_target_is_not_written = connectors.test_nothing_is_written_into_a_target_topic_made_anew
test_a_lost_log_is_refilled = connectors.test_a_log_that_was_lost_is_refilled_once_however_often_the_worker_is_killed

test_clusters_are_distinguished = admins.test_clusters_are_distinguished
test_topics_are_listed = admins.test_a_topic_is_listed_with_its_logs_and_an_id_where_there_are_ids
test_topics_are_created_at_the_target = admins.test_a_topic_is_made_at_the_target_and_its_logs_are_paired
test_heartbeats_arrive = admins.test_heartbeats_arrive


def test_a_group_goes_on_at_the_target(both: tuple[Side, Side]) -> None:
    name = f"group{next(_groups)}"
    mapping = OffsetMapping(LogId(name, 0), prepared(both, name))
    east, west = both
    east.commit(name, {LogId(name, 0): 0})
    east.consume(name, name, 4)
    [row] = GroupSync(east.groups, west.groups).sync([name], {LogId(name, 0): mapping})
    assert (row.action, west.consume(name, name, 2)) == ("moved", ["v4", "v5"])


def test_the_doctor_finds_no_fault_with_a_link(broker: Kafka | OldKafka, newest: Kafka) -> None:
    create(broker, "linked", 1, {})
    create(newest, "linked", 1, {})
    kafka = {"old": {"bootstrap": broker.bootstrap, "bit": 0}, "new": {"bootstrap": newest.bootstrap, "bit": 1}}
    ways = {"there": ("old", "new"), "back": ("new", "old")}
    links = {name: {"source": east, "target": west, "topics": ["linked"]} for name, (east, west) in ways.items()}
    found = link_checks.all_of(parse({"kafka": kafka, "links": links}))
    assert [check for check in found if check.status != "ok"] == []


@pytest.fixture(params=WAYS)
def upgraded(
    newest: Kafka, new_root: Callable[[], Path], request: pytest.FixtureRequest
) -> Iterator[tuple[Harness, Kafka | OldKafka]]:
    """A link, and its broker of the version."""
    with kafka(new_root()) as made:
        made.up()
        yield kafka_harness(ordered(made, newest, request.param), "batches"), made  # type: ignore[arg-type]


def test_a_link_goes_on_while_its_broker_is_upgraded(upgraded: tuple[Harness, Kafka | OldKafka]) -> None:
    harness, old = upgraded
    topic = harness.topic()
    with closing(harness.connector.open(harness.lease(topic))) as copier:
        for first in (0, 500):
            harness.write("east", topic, {0: numbered(500, first)})
            wait_until(lambda first=first: reached(copier, first + 500), 180.0, "the copy")  # type: ignore[misc]
            if not first:
                upgrade(old)
    assert contents(harness.read("west", topic)) == numbered(1_000)


test_log_directories_are_read = directories.test_directories_come_in_the_order_of_log_dirs
test_partitions_are_placed = directories.test_a_directory_chosen_beforehand_is_where_the_partition_is_made
test_moves_are_throttled_and_cancelled = directories.test_a_move_under_throttle_is_seen_and_can_be_cancelled
test_a_throttle_is_removed = directories.test_the_throttle_is_taken_away


def test_the_doctor_says_what_log_directories_lack(
    broker: Kafka | OldKafka, record_property: Callable[[str, object], None]
) -> None:
    kafka = {"old": {"bootstrap": broker.bootstrap, "bit": 0}}
    (check,) = logdirs_checks.all_of(parse({"kafka": kafka, "logdirs": {"old": {"strategy": "size"}}}))
    if check.status == "warn":
        record_property("words", f"{check.found}: {check.todo}")
    assert check.status in ("ok", "warn")
