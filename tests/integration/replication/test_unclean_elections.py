"""A source leader that was not in sync is elected, and its partition grows past the position again (KIP-320)."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.replication.audit import ends
from tests.replication.writers import Site
from trueup.connectors.contract import Assignment, Connector, Copier, Endpoint, Lease, LogId, Position, Progress
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.kafka.replication.connector import Batches
from trueup.sandbox.servers.kafka_cluster import Brokers
from trueup.state.common.errors import Retry
from trueup.streams.replication.clusters import pump

pytestmark = [pytest.mark.servers, pytest.mark.release]

PATHS: dict[str, Connector] = {"batches": Batches(), "records": pump()}
BOTH, ONLY_LOST, INSTEAD = 100, 60, 90
"""Records that both replicas have, that only the lost leader has, and that are written after the election."""
FOUND = f"others from offset {BOTH} on"


class Losing:
    """Two brokers at the source, whose second one never has the newest records; a topic and a copy for each path."""

    def __init__(self, east: Brokers, west: Kafka) -> None:
        self.east, self.west, self.admin = east, west, AdminClient({**east.client(), "log_level": 0})
        new = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        self._create(self.admin, [NewTopic(path, 1, replica_assignment=[[1, 2]], config=new) for path in PATHS])
        self._create(AdminClient(west.client()), [NewTopic(path, 1) for path in PATHS])
        self.positions = dict.fromkeys(PATHS, Position())

    def _create(self, admin: AdminClient, topics: list[NewTopic]) -> None:
        for each in admin.create_topics(topics).values():
            each.result(30)

    def copier(self, path: str) -> AbstractContextManager[Copier]:
        east = Endpoint("east", self.east.bootstrap, 0, system="kafka")
        west = Endpoint("west", self.west.bootstrap, 1, system="kafka")
        log = LogId(path, 0)
        one = Assignment(log, log, self.positions[path], 0)
        return closing(PATHS[path].open(Lease(f"link-{path}", east, west, 1, path, (one,))))

    def write(self, records: int) -> None:
        producer = Producer({**self.east.client(), "acks": "all", "log_level": 0})
        for path in PATHS:
            for number in range(records):
                producer.produce(path, b"%d" % number, partition=0)
        assert producer.flush(120) == 0

    def is_led(self, leader: int, in_sync: set[int]) -> bool:
        with suppress(KafkaException):  # the request reached the killed broker
            topics = self.admin.list_topics(timeout=5).topics
            parts = [topics[path].partitions[0] for path in PATHS]
            return all(part.leader == leader and set(part.isrs) == in_sync for part in parts)
        return False

    def part(self) -> None:
        """Write records that broker 2 misses."""
        self.east.kill(2)
        wait_until(partial(self.is_led, 1, {1}), 180.0, "the leader to be alone")
        self.write(ONLY_LOST)

    def lose_leader(self) -> None:
        """Broker 2 becomes the leader and takes other records."""
        self.east.kill(1)
        self.east.start(2)
        wait_until(partial(self.is_led, 2, {2}), 180.0, "the other leader")
        self.write(INSTEAD)

    def reset(self, path: str) -> tuple[str, list[int]]:
        """The error of the next copier, and the end at the target after one from the offset that it names."""
        with self.copier(path) as copier:
            error = copied(copier, is_stopped).error
        self.positions[path] = Position(BOTH, chosen=True)
        with self.copier(path) as copier:
            copied(copier, at(BOTH + INSTEAD))
        return error, ends(Site("west", self.west.bootstrap, path, 1))


def at(offset: int) -> Callable[[Progress], bool]:
    return lambda row: row.position.offset == offset


def is_stopped(row: Progress) -> bool:
    return row.stopped


def copied(copier: Copier, until: Callable[[Progress], bool]) -> Progress:
    """The first report with a property."""
    rows: list[Progress] = []

    def reached() -> bool:
        with suppress(Retry):
            copier.copy(time.monotonic() + 0.2)
        rows[:] = copier.progress()
        return until(rows[0])

    wait_until(reached, 180.0, "a report of the copy")
    return rows[0]


class Outcome(NamedTuple):
    """Errors of the copier that was open during the election and of the next one, and the end offset at the target
    after a reset to the offset that they name."""

    during: str
    after: str
    there: list[int]


@pytest.fixture(scope="module")
def outcomes(new_root: Callable[[], Path]) -> Iterator[dict[str, Outcome]]:
    with Brokers(new_root()) as east, Kafka(new_root()) as west:
        east.up()
        west.up()
        world = Losing(east, west)
        world.write(BOTH)
        with ExitStack() as stack:
            copiers = {path: stack.enter_context(world.copier(path)) for path in PATHS}
            world.part()
            for path, copier in copiers.items():
                world.positions[path] = copied(copier, at(BOTH + ONLY_LOST)).position
            world.lose_leader()
            during = {path: copied(copier, is_stopped).error for path, copier in copiers.items()}
        yield {path: Outcome(during[path], *world.reset(path)) for path in PATHS}


@pytest.mark.parametrize("path", PATHS)
def test_other_records_before_the_position_stop_the_partition(outcomes: dict[str, Outcome], path: str) -> None:
    assert FOUND in outcomes[path].during, outcomes[path].during


@pytest.mark.parametrize("path", PATHS)
def test_the_next_copier_is_stopped_too(outcomes: dict[str, Outcome], path: str) -> None:
    assert FOUND in outcomes[path].after, outcomes[path].after


@pytest.mark.parametrize("path", PATHS)
def test_a_reset_to_the_named_offset_copies_the_other_records(outcomes: dict[str, Outcome], path: str) -> None:
    assert outcomes[path].there == [BOTH + ONLY_LOST + INSTEAD]
