"""Links of brokers that store older formats of records, and of brokers whose requests name topics and not their ids."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import ConfigResource, ResourceType

from tests.conformance import hooks
from tests.replication.audit import ends
from tests.replication.old_kafka import OldKafka
from tests.replication.pair import QUICK, Copy, Pair, configure, recreate
from tests.replication.reading import committed
from trueup.connectors.contract import Connector, Copier, LogId, Progress
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.kafka.client.cluster import KafkaClient
from trueup.connectors.kafka.replication.batch_stats import sample
from trueup.connectors.kafka.replication.connector import Batches
from trueup.connectors.kafka.replication.records.target import KafkaTarget
from trueup.state.common.errors import TrueupError
from trueup.streams.replication.clusters import pump

pytestmark = [pytest.mark.servers, pytest.mark.release]

FORMATS = {"0.9.0": 0, "0.10.2": 1, "2.8": 2}
"""The magic of some values of message.format.version."""
CODECS = ("none", "gzip", "snappy", "lz4")
CONNECTORS: dict[str, Callable[[], Connector]] = {"batches": Batches, "records": pump}
"""The connectors by path."""


class Older(Pair):
    """East has old brokers, and west new ones. ``settings``: the settings of the old ones."""

    def __init__(self, new_root: Callable[[], Path], settings: Mapping[str, object] | None = None) -> None:
        self.east = OldKafka(new_root(), settings)  # type: ignore[assignment]
        self.west, self._topics = Kafka(new_root(), settings=QUICK), 0


@pytest.fixture(scope="module")
def older(new_root: Callable[[], Path]) -> Iterator[Pair]:
    with Older(new_root) as made:
        yield made


@pytest.fixture(scope="module")
def without_ids(new_root: Callable[[], Path]) -> Iterator[Pair]:
    """Topics of east have no ids."""
    with Older(new_root, {"inter.broker.protocol.version": "2.7"}) as made:
        yield made


def write(pair: Pair, topic: str, records: int, to: str = "east", **settings: object) -> None:
    """Write records that can be compressed, ten a batch."""
    bootstrap = getattr(pair, to).bootstrap
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "batch.num.messages": 10, **settings})
    for number in range(records):
        key = None if number % 7 == 3 else b"k%d" % number
        value = None if number % 7 == 5 else os.urandom(8) + b"v" * 200
        producer.produce(topic, value, key, partition=0, timestamp=1_700_000_000_000 + number)
    assert producer.flush(120) == 0


def mixed(pair: Pair, **settings: str) -> str:
    """A topic with records of each format and codec."""
    topic = pair.topic(east={"message.format.version": "0.9.0", **settings})
    for version in FORMATS:
        configure(pair.east, ConfigResource(ResourceType.TOPIC, topic), "message.format.version", version)
        for codec in CODECS:
            write(pair, topic, 50, **{"compression.type": codec})
    return topic


def read(broker: Kafka, topic: str) -> list[tuple[object, ...]]:
    """Key, value, time (0: none, as librdkafka reports it for the oldest format) and headers."""
    return [
        (message.key(), message.value(), max(0, message.timestamp()[1]), message.headers())
        for message in committed(broker.bootstrap, topic, [0])
    ]


@pytest.mark.parametrize("times", ["CreateTime", "LogAppendTime"])
def test_records_of_all_formats_are_the_same_at_the_target(older: Pair, times: str) -> None:
    topic = mixed(older, **{"message.timestamp.type": times})
    copy = Copy(Batches(), older.lease(topic)).to_the_end()
    assert copy.totals["copied"] == 600
    assert read(older.west, topic) == read(older.east, topic)


def test_single_records_of_an_older_format_are_the_same_at_the_target(older: Pair) -> None:
    topic = older.topic(east={"message.format.version": "0.10.2"})
    for codec in CODECS:
        write(older, topic, 50, **{"compression.type": codec})
    Copy(pump(), older.lease(topic, path="records")).to_the_end()
    there = [row[:3] for row in read(older.west, topic)]
    assert there == [row[:3] for row in read(older.east, topic)]


def test_an_old_position_finds_records_of_older_formats(older: Pair) -> None:
    topic = mixed(older)
    Copy(Batches(), older.lease(topic)).to_the_end()
    again = Copy(Batches(), older.lease(topic)).to_the_end()
    assert (again.totals["skipped"], again.totals["copied"], again.runs) == (600, 0, [(0, 0, 600)])


def test_batches_stop_at_a_target_that_cannot_store_the_tag(older: Pair) -> None:
    """A record without a producer id would come back over a link in the other direction."""
    assert refused_by_the_format(older, Batches()) == (True, 0, [0])


def test_no_hook_handles_records_that_a_target_refuses_for_its_format(older: Pair) -> None:
    hooks.seen.clear()
    hook = f"{hooks.__name__}:{hooks.handle.__name__}"
    assert refused_by_the_format(older, pump(), path="records", failures="hook", hook=hook) == (True, 0, [0])
    assert hooks.seen == []


def refused_by_the_format(pair: Pair, connector: Connector, **more: object) -> tuple[bool, int, list[int]]:
    """Whether a copy to a topic of an older format stopped, its offset, and the ends of the target."""
    topic = pair.topic(east={"message.format.version": "0.10.2"})
    write(pair, topic, 50, "west")
    [row] = Copy(connector, pair.lease(topic, back=True, **more)).to_the_end().rows.values()
    assert "set message.format.version of the target topic" in row.error
    return row.stopped, row.position.offset, ends(pair.site("east", topic))


def test_the_sample_counts_messages_of_older_formats(older: Pair) -> None:
    topic = older.topic(east={"message.format.version": "0.10.2"})
    write(older, topic, 100)
    write(older, topic, 100, **{"compression.type": "gzip"})
    found = sample(older.lease(topic).source, [LogId(topic, 0)])
    assert found.magic == 1
    assert found.per_batch == pytest.approx(200 / 110, rel=0.2)
    assert 50 < found.record_bytes < 250


def wait_at(copier: Copier, offset: int) -> None:
    """Copy until the only partition is at this offset of the source."""

    def there() -> bool:
        copier.copy(time.monotonic() + 0.2)
        return copier.progress()[0].position.offset == offset

    wait_until(there, 60.0, f"offset {offset}")


def stopped(copier: Copier) -> Progress:
    """The progress of a copier whose only partition has stopped."""
    rows: list[Progress] = []

    def there() -> bool:
        copier.copy(time.monotonic() + 0.2)
        rows[:] = copier.progress()
        return rows[0].stopped

    wait_until(there, 60.0, "the partition to stop")
    return rows[0]


@pytest.mark.parametrize("path", CONNECTORS)
def test_records_of_a_recreated_source_are_not_copied(older: Pair, path: str) -> None:
    topic = older.topic()
    write(older, topic, 100)
    copier = CONNECTORS[path]().open(older.lease(topic, path=path))
    wait_at(copier, 100)
    recreate(older.east, topic, 1, {})
    write(older, topic, 200)
    row = stopped(copier)
    copier.close()
    assert (row.position.offset, "recreated" in row.error, ends(older.site("west", topic))) == (100, True, [100])


def back(pair: Pair, path: str) -> tuple[str, Copier]:
    """A link from the new to the old cluster that copied 100 records."""
    topic = pair.topic()
    write(pair, topic, 100, "west")
    copier = CONNECTORS[path]().open(pair.lease(topic, back=True, path=path))
    wait_at(copier, 100)
    return topic, copier


@pytest.mark.parametrize("path", CONNECTORS)
def test_nothing_is_written_to_a_recreated_target(older: Pair, path: str) -> None:
    topic, copier = back(older, path)
    recreate(older.east, topic, 1, {})
    write(older, topic, 500, "west")
    row = stopped(copier)
    copier.close()
    assert (row.position.offset, "recreated" in row.error, ends(older.site("east", topic))) == (100, True, [0])


@pytest.mark.parametrize("reverse", [False, True])
def test_batches_stop_where_topics_have_no_ids_and_records_do_not(without_ids: Pair, reverse: bool) -> None:
    topic, target = without_ids.topic(), "east" if reverse else "west"
    write(without_ids, topic, 100, "west" if reverse else "east")
    refused = Copy(Batches(), without_ids.lease(topic, back=reverse)).to_the_end()
    [row] = refused.rows.values()
    assert (row.stopped, "set copy: records" in row.error) == (True, True)
    assert (refused.totals["copied"], ends(without_ids.site(target, topic))) == (0, [0])
    copied = Copy(pump(), without_ids.lease(topic, back=reverse, path="records")).to_the_end()
    assert (copied.totals["copied"], ends(without_ids.site(target, topic))) == (100, [100])


def test_a_write_that_a_recreated_target_took_does_not_count(older: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic is recreated between the check before a write and the write."""
    topic, copier = back(older, "batches")
    cluster = KafkaClient(older.lease(topic).source)
    cluster.refresh([topic])
    known = cluster.ids(cluster.leader(LogId(topic, 0)), [topic])
    cluster.close()
    recreate(older.east, topic, 1, {})
    monkeypatch.setattr(KafkaClient, "ids", lambda *_: known)
    write(older, topic, 500, "west")
    row = stopped(copier)
    copier.close()
    assert (row.position.offset, "of the new topic from offset 0 on" in row.error) == (100, True)


def test_single_records_that_a_recreated_target_took_do_not_count(older: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic is recreated between the check before a write and the write."""
    topic, copier = back(older, "records")
    check = KafkaTarget.unsure

    def recreated_after(target: KafkaTarget, logs: Iterable[LogId]) -> dict[LogId, TrueupError]:
        found = check(target, logs)
        monkeypatch.setattr(KafkaTarget, "unsure", check)
        recreate(older.east, topic, 1, {})
        return found

    monkeypatch.setattr(KafkaTarget, "unsure", recreated_after)
    write(older, topic, 500, "west")
    row = stopped(copier)
    copier.close()
    assert (row.position.offset, "recreated" in row.error) == (100, True)
