"""Both paths with several brokers, TLS and users: leaders change, unauthorized clients are rejected."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.replication.audit import audit, ends
from tests.replication.worker import Worker
from tests.replication.writers import Site, Writers
from trueup.connectors.contract import Assignment, Connector, Endpoint, Lease, LogId, Position
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.kafka.replication.connector import Batches
from trueup.sandbox.servers.kafka_cluster import Brokers
from trueup.sandbox.servers.security import Security
from trueup.state.common.errors import Retry, Stop
from trueup.streams.replication.clusters import pump

pytestmark = [pytest.mark.servers, pytest.mark.release]

TOPIC, PARTITIONS, RECORDS = "everywhere", 4, 3_000
ORDERLY = ("idempotent", "zipped", "transactional")
"""Writers that preserve their order during leader changes."""


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


def create(client: dict[str, str], topic: str = TOPIC) -> None:
    admin = AdminClient(client)
    admin.list_topics(timeout=30)  # from then on it keeps the connections to the brokers
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(30)


def options(client: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in client.items() if key != "bootstrap.servers"}


def east_end(east: Brokers, user: str = "admin") -> Endpoint:
    return Endpoint("east", east.address("SASL_SSL"), 0, options(east.client("SASL_SSL", user)), "kafka")


def lease(source: Endpoint, target: Endpoint, topic: str = TOPIC) -> Lease:
    each = tuple(Assignment(p, p, Position(), 0) for p in (LogId(topic, n) for n in range(PARTITIONS)))
    return Lease(f"{source.name}-{target.name}", source, target, 1 + source.bit, "batches", each)


def test_leaders_change_on_both_sides_of_a_link(east: Brokers, west: Kafka, tmp_path: Path) -> None:
    here, there = east_end(east), Endpoint("west", west.bootstrap, 1, system="kafka")
    sites = [Site("east", east.bootstrap, TOPIC, PARTITIONS), Site("west", west.bootstrap, TOPIC, PARTITIONS)]
    connector = "trueup.connectors.kafka.replication.connector:Batches"
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


class Guarded:
    """A topic at east whose records require both replicas, and a copy to it."""

    def __init__(self, east: Brokers, west: Kafka, topic: str, connector: Connector) -> None:
        led_by_1 = NewTopic(topic, 1, replica_assignment=[[1, 2]], config={"min.insync.replicas": "2"})
        for client, new in ((west.client(), NewTopic(topic, 1)), (east.client(), led_by_1)):
            admin = AdminClient(client)  # librdkafka destroys an unreferenced client before the response
            admin.create_topics([new])[topic].result(30)
        producer = Producer(west.client())
        for number in range(RECORDS):
            producer.produce(topic, b"%d" % number, partition=0)
        producer.flush(60)
        one = LogId(topic, 0)
        into_east = lease(Endpoint("west", west.bootstrap, 1, system="kafka"), east_end(east))
        self.site, self.counted, self.reached = Site("east", east.bootstrap, topic, 1), 0, 0
        self._copier = connector.open(replace(into_east, assignments=(Assignment(one, one, Position(), 0),)))

    def copy(self) -> bool:
        """Run a short lease. Returns whether all records are copied."""
        with suppress(Retry):
            self._copier.copy(time.monotonic() + 0.2)
        [row] = self._copier.progress()
        self.counted, self.reached = self.counted + row.copied + row.skipped, row.position.offset
        return self.reached == RECORDS

    def close(self) -> None:
        self._copier.close()


class Outage(NamedTuple):
    """Records counted during the failure of one replica and in total, and end offsets at the target."""

    during: int
    counted: int
    there: list[int]


@pytest.fixture(scope="module")
def outages(east: Brokers, west: Kafka) -> Iterator[dict[str, Outage]]:
    """The copies "records" and "batches" write records that the leader appends but cannot confirm. The leader rejects
    the records of "refused", because it has already detected that it is alone."""
    admin = AdminClient(east.client())
    with ExitStack() as stack, ThreadPoolExecutor(3) as pool:
        copies = {
            name: stack.enter_context(closing(Guarded(east, west, name, connector)))
            for name, connector in (("records", pump()), ("batches", Batches()), ("refused", pump()))
        }

        def alone() -> bool:
            with suppress(KafkaException):  # the request reached the killed broker
                topics = admin.list_topics(timeout=5).topics
                return all(topics[name].partitions[0].isrs == [1] for name in copies)
            return False

        early, every = [copies["records"], copies["batches"]], list(copies.values())
        east.kill(2)
        try:
            began = pool.map(Guarded.copy, early)
            wait_until(alone, 180.0, "the leader to be alone")
            list(began)
            for some in (every, [copies["batches"]], [copies["batches"]]):  # a batches copier looks, reads, then counts
                list(pool.map(Guarded.copy, some))
            during = {name: copy.reached for name, copy in copies.items()}
        finally:
            east.start(2)
        # The list waits for every copy. `all` alone would return at the first False, and a copier has one thread.
        wait_until(lambda: all([*pool.map(Guarded.copy, every)]), 180.0, "the records to arrive")
        yield {name: Outage(during[name], copy.counted, ends(copy.site)) for name, copy in copies.items()}


@pytest.mark.parametrize("name", ["records", "batches", "refused"])
def test_records_below_min_insync_wait_and_stand_once(outages: dict[str, Outage], name: str) -> None:
    assert outages[name] == Outage(0, RECORDS, [RECORDS])


def refused(source: Endpoint, target: Endpoint) -> str:
    """The reason for a permanent rejection. A connection that closes before the response may mean a dead broker."""
    why: list[str] = []

    def reported() -> bool:
        try:
            Batches().open(lease(source, target)).close()
        except Retry:
            return False
        except Stop as stop:
            why.append(stop.todo)
        return True

    wait_until(reported, 180.0, "to be refused")
    return "".join(why)


def test_a_wrong_password_is_reported(east: Brokers, west: Kafka) -> None:
    here = east_end(east)
    wrong = replace(here, options={**here.options, "sasl.password": "wrong"})
    assert refused(wrong, Endpoint("west", west.bootstrap, 1, system="kafka")) == "check its options"


def test_an_untrusted_certificate_is_reported(east: Brokers, west: Kafka) -> None:
    here = east_end(east)
    invalid = {key: value for key, value in here.options.items() if key != "ssl.ca.location"}
    reported = refused(replace(here, options=invalid), Endpoint("west", west.bootstrap, 1, system="kafka"))
    assert reported == "check its options"


@pytest.mark.parametrize(("path", "connector"), [("batches", Batches()), ("records", pump())])
def test_a_user_without_rights_stops_every_partition(
    east: Brokers, west: Kafka, path: str, connector: Connector
) -> None:
    topic, here = f"closed-{path}", Endpoint("west", west.bootstrap, 1, system="kafka")
    for client in (west.client(), east.client()):
        create(client, topic)
    copier = connector.open(lease(here, east_end(east, "guest"), topic))
    rows = copier.progress()
    copier.close()
    assert [(row.stopped, "grant" in row.error) for row in rows] == [(True, True)] * PARTITIONS
