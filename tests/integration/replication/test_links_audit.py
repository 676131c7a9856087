"""Active-active links and rings: all kinds of writers, killed workers and brokers, comparison of whole logs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.replication.audit import Stream, audit, ends, read, repeated
from tests.replication.faults import Faults
from tests.replication.worker import Worker
from tests.replication.writers import KINDS, Site, Writers
from trueup.connectors.contract import Assignment, Endpoint, Lease, LogId, Position
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import wait_until
from trueup.streams.replication.clusters import KAFKA, connector_of

pytestmark = pytest.mark.servers

BITS = {"east": 0, "west": 1, "north": 2}
CRASHES, EVERY_S = 5, 2.0


@pytest.fixture(scope="module")
def brokers(new_root: Callable[[], Path]) -> Iterator[dict[str, Kafka]]:
    made = {name: Kafka(new_root(), "256m") for name in BITS}
    for broker in made.values():
        broker.start()
    for broker in made.values():
        broker.wait_ready()
    yield made
    for broker in made.values():
        broker.close()


@pytest.fixture
def sites(brokers: Mapping[str, Kafka], request: pytest.FixtureRequest) -> dict[str, Site]:
    topic = f"orders-{abs(hash(request.node.name)) % 10**6}"
    for broker in brokers.values():
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(topic, 2, 1, config={"retention.ms": "-1"})])[topic].result(30)
    return {name: Site(name, broker.bootstrap, topic) for name, broker in brokers.items()}


@pytest.fixture
def link(tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    """Starts workers, ``link(source, target, path, forward)``, and stops them at the end of the test."""
    started: list[Worker] = []

    def start(source: Site, target: Site, path: str, forward: bool) -> Worker:
        lease = lease_of(source, target, path, forward, len(started) + 1)
        started.append(Worker(tmp_path / lease.link, lease, connector_of(KAFKA, KAFKA, path)))
        started[-1].start()
        return started[-1]

    yield start
    for worker in started:
        worker.close()


def lease_of(source: Site, target: Site, path: str, forward: bool, writer_id: int) -> Lease:
    assignments = tuple(
        Assignment(LogId(source.topic, number), LogId(target.topic, number), Position(), 0)
        for number in range(source.partitions)
    )
    ends = [Endpoint(site.name, site.bootstrap, BITS[site.name], system=KAFKA) for site in (source, target)]
    return Lease(f"{source.name}-{target.name}", ends[0], ends[1], writer_id, path, assignments, forward, clusters=BITS)


def prove(sites: Sequence[Site], workers: Sequence[Worker], more: Mapping[str, Callable[[], None]]) -> None:
    """Write, inject faults, and audit all logs."""
    kinds = {f"crash of worker {number}": worker.crash for number, worker in enumerate(workers)}
    with Writers(sites, tuple(KINDS), 60.0) as writers:
        with Faults({**kinds, **more}, EVERY_S, seed=7) as faults:
            faults.wait_done(CRASHES)
        found = audit(sites, writers)
    assert found.right, found


def test_a_repeated_record_is_right_if_its_writer_repeated_it_and_no_link(
    sites: dict[str, Site], link: Callable[..., Worker]
) -> None:
    east, west = sites["east"], sites["west"]

    def write(site: Site, times: int) -> None:
        producer = Producer({"bootstrap.servers": site.bootstrap})
        for _ in range(times):
            producer.produce(site.topic, b"v", b"east|idempotent|1", partition=0)
        assert producer.flush(60) == 0

    write(east, 2)
    by_writer = repeated(east, read(east))
    write(west, 1)
    link(west, east, "records", True)
    wait_until(lambda: ends(east)[0] == 3, 60.0, "the copy that comes home")
    assert (by_writer, repeated(east, read(east))) == ({Stream("east", "idempotent", 0)}, set())


@pytest.mark.parametrize("path", [pytest.param("batches", marks=pytest.mark.release), "records"])
def test_two_clusters_that_both_write_become_equal(
    sites: dict[str, Site], link: Callable[..., Worker], path: str
) -> None:
    east, west = sites["east"], sites["west"]
    workers = [link(east, west, path, True), link(west, east, path, True)]
    prove([east, west], workers, {})


@pytest.mark.release
@pytest.mark.parametrize("path", ["batches", "records"])
def test_in_a_ring_of_three_every_record_goes_round_once(
    sites: dict[str, Site], link: Callable[..., Worker], path: str
) -> None:
    east, west, north = sites.values()
    workers = [link(a, b, path, True) for a, b in ((east, west), (west, north), (north, east))]
    prove([east, west, north], workers, {})


@pytest.mark.release
def test_a_full_mesh_doubles_nothing_when_it_does_not_forward(
    sites: dict[str, Site], link: Callable[..., Worker]
) -> None:
    pairs = [(a, b) for a in sites.values() for b in sites.values() if a != b]
    prove([*sites.values()], [link(a, b, "batches", False) for a, b in pairs], {})


@pytest.mark.release
def test_killed_brokers_on_either_side_lose_no_record(
    sites: dict[str, Site], link: Callable[..., Worker], brokers: dict[str, Kafka]
) -> None:
    east, west = sites["east"], sites["west"]
    workers = [link(east, west, "batches", True), link(west, east, "batches", True)]
    prove([east, west], workers, {f"death of {name}": brokers[name].restart for name in ("east", "west")})
