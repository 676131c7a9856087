"""Both paths where a cluster has several brokers, TLS and users: leaders change, strangers are refused."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from connectors.contract import Assignment, Endpoint, Lease, Partition, Position
from connectors.kafka.connector import Batches
from connectors.kafka.records import Records
from connectors.sandbox.brokers import Brokers
from connectors.sandbox.kafka import Kafka
from connectors.sandbox.processes import wait_until
from connectors.sandbox.security import Security
from state.errors import Retry, Stop
from tests.replication.audit import audit, ends
from tests.replication.worker import Worker
from tests.replication.writers import Site, Writers

pytestmark = pytest.mark.servers

TOPIC, PARTITIONS = "everywhere", 4
ORDERLY = ("idempotent", "zipped", "transactional")
"""Writers that keep their own order while leaders change."""


@pytest.fixture(scope="module")
def east(new_root: Callable[[], Path]) -> Iterator[Brokers]:
    root = new_root()
    with Brokers(root, security=Security(root / "security")) as made:
        made.up()
        create(made.client())
        yield made


@pytest.fixture(scope="module")
def west(new_root: Callable[[], Path]) -> Iterator[Kafka]:
    with Kafka(new_root()) as made:
        made.up()
        create(made.client())
        yield made


def create(client: dict[str, str]) -> None:
    admin = AdminClient(client)
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(30)


def options(client: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in client.items() if key != "bootstrap.servers"}


def east_end(east: Brokers, user: str = "admin") -> Endpoint:
    return Endpoint("east", east.address("SASL_SSL"), 0, options(east.client("SASL_SSL", user)))


def lease(source: Endpoint, target: Endpoint) -> Lease:
    each = tuple(Assignment(p, p, Position(), 0) for p in (Partition(TOPIC, n) for n in range(PARTITIONS)))
    return Lease(f"{source.name}-{target.name}", source, target, 1 + source.bit, "batches", each)


def test_leaders_change_on_both_sides_of_a_link(east: Brokers, west: Kafka, tmp_path: Path) -> None:
    here, there = east_end(east), Endpoint("west", west.bootstrap, 1)
    sites = [Site("east", east.bootstrap, TOPIC, PARTITIONS), Site("west", west.bootstrap, TOPIC, PARTITIONS)]
    connector = "connectors.kafka.connector:Batches"
    leases = [lease(here, there), lease(there, here)]
    workers = [Worker(tmp_path / each.link, each, connector, 5.0) for each in leases]
    admin = AdminClient(east.client())

    def in_sync() -> bool:
        found = admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions.values()
        return all(set(partition.isrs) == {1, 2} for partition in found)

    def led_by_other(number: int) -> bool:
        found = admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions.values()
        return all(partition.leader not in (number, -1) for partition in found)

    with ExitStack() as stack, Writers(sites, ORDERLY, per_s=60) as writers:
        for worker in workers:
            stack.callback(worker.close)
            worker.start()
        for number in (1, 2):
            writers.wait_acknowledged(200 * number)
            east.kill(number)
            wait_until(partial(led_by_other, number), 180.0, "other leaders")
            before = sum(ends(sites[1]))
            writers.wait_acknowledged(200 * number + 100)
            wait_until(lambda before=before: sum(ends(sites[1])) > before + 100, 180.0, "the link to go on")
            east.start(number)
            wait_until(in_sync, 180.0, "both replicas in sync")
        found = audit(sites, writers)
    assert found.right, found


def test_records_below_min_insync_wait_and_are_counted_once(east: Brokers, west: Kafka) -> None:
    topic, count = "guarded", 3_000
    for client, settings in ((west.client(), {}), (east.client(), {"min.insync.replicas": "2"})):
        admin = AdminClient(client)  # one that nothing holds is destroyed before it answers
        admin.create_topics([NewTopic(topic, 1, config=settings)])[topic].result(30)
    producer = Producer(west.client())
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
    producer.flush(60)
    one = Partition(topic, 0)
    into_east = lease(Endpoint("west", west.bootstrap, 1), east_end(east))
    copied, reached = 0, 0
    with closing(Records().open(replace(into_east, assignments=(Assignment(one, one, Position(), 0),)))) as copier:

        def copy() -> bool:
            nonlocal copied, reached
            with suppress(Retry):
                copier.copy(time.monotonic() + 0.2)
            [row] = copier.progress()
            copied, reached = copied + row.copied, row.position.offset
            return reached == count

        def alone() -> bool:
            return admin.list_topics(topic, timeout=30).topics[topic].partitions[0].isrs == [1]

        east.kill(2)
        try:
            # Until the leader drops the replica it appends what it cannot confirm, and a second producer doubles it.
            wait_until(alone, 180.0, "the leader to be alone")
            assert not copy()
        finally:
            east.start(2)
        wait_until(copy, 180.0, "the records to arrive")
    assert (copied, ends(Site("east", east.bootstrap, topic, 1))) == (count, [count])


def refused(source: Endpoint, target: Endpoint) -> str:
    """Why a link may never be. A broker that hangs up before its answer was read looks like one that died."""
    why: list[str] = []

    def told() -> bool:
        try:
            Batches().open(lease(source, target)).close()
        except Retry:
            return False
        except Stop as stop:
            why.append(stop.todo)
        return True

    wait_until(told, 180.0, "to be refused")
    return "".join(why)


def test_a_wrong_password_is_told(east: Brokers, west: Kafka) -> None:
    here = east_end(east)
    wrong = replace(here, options={**here.options, "sasl.password": "wrong"})
    assert refused(wrong, Endpoint("west", west.bootstrap, 1)) == "check the cluster's options"


def test_a_certificate_that_nobody_trusts_is_told(east: Brokers, west: Kafka) -> None:
    here = east_end(east)
    strange = {key: value for key, value in here.options.items() if key != "ssl.ca.location"}
    told = refused(replace(here, options=strange), Endpoint("west", west.bootstrap, 1))
    assert told == "check the cluster's options"


def test_a_user_without_rights_stops_every_partition(east: Brokers, west: Kafka) -> None:
    copier = Batches().open(lease(Endpoint("west", west.bootstrap, 1), east_end(east, "guest")))
    rows = copier.progress()
    copier.close()
    assert [(row.stopped, "grant" in row.error) for row in rows] == [(True, True)] * PARTITIONS
