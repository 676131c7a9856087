"""Scenarios of MirrorMaker's integration tests for a data path, with links: `trueup run` between two clusters."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType

from tests.e2e.trueup import Trueup
from tests.replication.reading import committed
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import wait_until

pytestmark = [pytest.mark.servers, pytest.mark.release]

LIMIT_S = 420.0
FIRST_MS = 1_700_000_000_000
KEPT = {"retention.ms": "-1"}


def started(new_root: Callable[[], Path]) -> Iterator[Kafka]:
    with Kafka(new_root(), "256m") as broker:
        broker.up()
        yield broker


@pytest.fixture(scope="module")
def primary(new_root: Callable[[], Path]) -> Iterator[Kafka]:
    yield from started(new_root)


@pytest.fixture(scope="module")
def backup(new_root: Callable[[], Path]) -> Iterator[Kafka]:
    yield from started(new_root)


@pytest.fixture(scope="module", autouse=True)
def trueup(new_root: Callable[[], Path], primary: Kafka, backup: Kafka) -> Iterator[Trueup]:
    """A link from the primary to the backup cluster, and one in the opposite direction."""
    common = {"topics": ["/test-.*/"], "mode": "enforce", "lease_s": 2}
    kafka = {"primary": {"bootstrap": primary.bootstrap, "bit": 0}, "backup": {"bootstrap": backup.bootstrap, "bit": 1}}
    links = {
        "there": {"source": "primary", "target": "backup", **common},
        "back": {"source": "backup", "target": "primary", **common},
    }
    journal = {"bootstrap": backup.bootstrap}
    with Trueup(None, new_root(), kafka=kafka, links=links, journal=journal) as made:
        made.start()
        yield made


@pytest.fixture(autouse=True)
def running(trueup: Trueup) -> None:
    if not trueup.process.alive:
        trueup.start()


def admin(broker: Kafka) -> AdminClient:
    """A client. The caller keeps it until its futures complete: a garbage-collected client fails them."""
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def create(broker: Kafka, topic: str, partitions: int = 3, **config: str) -> None:
    client, made = admin(broker), NewTopic(topic, partitions, 1, config={**KEPT, **config})
    client.create_topics([made])[topic].result(30)


def partitions_of(broker: Kafka, topic: str) -> int:
    found = admin(broker).list_topics(timeout=30).topics
    return len(found[topic].partitions) if topic in found else 0


def write(broker: Kafka, topic: str, numbers: range, partitions: int = 3) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number in numbers:
        producer.produce(
            topic,
            b"value-%d" % number,
            b"key-%d" % number,
            number % partitions,
            timestamp=FIRST_MS + number,
            headers=[("of", b"%d" % number)],
        )
    assert producer.flush(120) == 0


def read(broker: Kafka, topic: str) -> dict[int, list[tuple[Any, ...]]]:
    """Key, value, timestamp and headers (without those of the link) of each partition."""
    found: dict[int, list[tuple[Any, ...]]] = {number: [] for number in range(partitions_of(broker, topic))}
    for message in committed(broker.bootstrap, topic, found.keys()):
        headers = [pair for pair in message.headers() or [] if not pair[0].startswith("trueup-")]
        found[message.partition()].append((message.key(), message.value(), message.timestamp()[1], headers))
    return found


def wait_same(topic: str, one: Kafka, other: Kafka) -> None:
    wanted = read(one, topic)
    wait_until(lambda: read(other, topic) == wanted, LIMIT_S, f"{topic} to be the same at both")


def test_records_arrive_as_they_are_in_their_partitions(primary: Kafka, backup: Kafka) -> None:
    create(primary, "test-plain")
    write(primary, "test-plain", range(1_000))
    wait_same("test-plain", primary, backup)


def test_a_topic_is_made_with_the_partitions_and_settings_of_its_source(primary: Kafka, backup: Kafka) -> None:
    create(primary, "test-made", 5, **{"max.message.bytes": "123456"})
    wait_until(lambda: partitions_of(backup, "test-made") == 5, LIMIT_S, "the topic at the backup")
    client, resource = admin(backup), ConfigResource(ResourceType.TOPIC, "test-made")
    config = client.describe_configs([resource])[resource].result(30)
    assert (config["retention.ms"].value, config["max.message.bytes"].value) == ("-1", "123456")


def test_an_empty_partition_holds_nothing_up(primary: Kafka, backup: Kafka) -> None:
    create(primary, "test-gap")
    write(primary, "test-gap", range(0, 300, 3))  # all of them in partition 0
    wait_same("test-gap", primary, backup)


def test_partitions_that_a_topic_gains_are_copied_too(primary: Kafka, backup: Kafka) -> None:
    create(primary, "test-grows", 2)
    write(primary, "test-grows", range(200), 2)
    wait_same("test-grows", primary, backup)
    client = admin(primary)
    client.create_partitions([NewPartitions("test-grows", 4)])["test-grows"].result(30)
    wait_until(lambda: partitions_of(primary, "test-grows") == 4, 180.0, "four partitions")
    write(primary, "test-grows", range(200, 600), 4)
    wait_same("test-grows", primary, backup)


def test_two_clusters_that_both_write_share_a_topic(primary: Kafka, backup: Kafka) -> None:
    create(primary, "test-both")
    wait_until(lambda: partitions_of(backup, "test-both"), LIMIT_S, "the topic at the backup")
    write(primary, "test-both", range(500))
    write(backup, "test-both", range(500, 1_000))

    def counts() -> list[int]:
        return [sum(map(len, read(broker, "test-both").values())) for broker in (primary, backup)]

    wait_until(lambda: counts() == [1_000, 1_000], LIMIT_S, "1,000 records at both")
    one, other = (read(broker, "test-both") for broker in (primary, backup))
    assert all(sorted(one[number]) == sorted(other[number]) for number in one)


def test_what_was_written_while_it_was_down_comes_once(trueup: Trueup, primary: Kafka, backup: Kafka) -> None:
    create(primary, "test-restart")
    write(primary, "test-restart", range(500))
    wait_same("test-restart", primary, backup)
    trueup.kill()
    write(primary, "test-restart", range(500, 1_000))
    trueup.start()
    wait_same("test-restart", primary, backup)


def test_topics_that_the_link_does_not_name_stay_where_they_are(primary: Kafka, backup: Kafka) -> None:
    create(primary, "other")
    create(primary, "test-later")
    write(primary, "test-later", range(10))
    wait_same("test-later", primary, backup)
    assert partitions_of(backup, "other") == 0
