"""The conformance suite. Each test checks one guarantee of `connectors.contract`."""

import itertools
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance import hooks
from tests.conformance.harness import (
    CLUSTERS,
    LONG,
    POISON,
    TODAY_MS,
    Cluster,
    Harness,
    Written,
    contents,
    numbered,
    untrue,
)
from tests.conformance.kafka import KafkaCluster, kafka_harness
from tests.conformance.memory import SYSTEM, MemoryCluster, pump
from tests.conformance.rocketmq import ROCKETMQ
from tests.replication.pair import Copy
from trueup.connectors.contract import Copier, Lease, Limits, LogId, Position, Progress
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.replication.rate_limit import BURST_S
from trueup.state.common.errors import Retry
from trueup.state.replication.leases import writer_id_of
from trueup.state.replication.provenance import Refill

pytestmark = pytest.mark.servers

FEW_KILLS, MANY_KILLS, REFILL_KILLS, LEASE_S = 4, 20, 4, 0.7
AROUND_POISON = [*numbered(300, since_ms=TODAY_MS), POISON, *numbered(300, 300, since_ms=TODAY_MS)]
"""Timestamps are of today: the target rejects records after a rejected batch only until it expires the producer."""
REPEATED = 10
CHOSEN = Position(0, chosen=True)
PUMP = "tests.conformance.memory:pump"
PAIRS = ("rocketmq>rocketmq", "memory>kafka", "kafka>memory", "rocketmq>kafka", "kafka>rocketmq")
RELEASED = {pair: pytest.param(pair, marks=pytest.mark.release) for pair in PAIRS}
"""Every run includes both paths of Kafka, and the pump between clusters in memory."""
FROM_IDS = ["records", "batches", RELEASED["kafka>memory"], RELEASED["kafka>rocketmq"]]
TO_IDS = ["records", "batches", RELEASED["memory>kafka"], RELEASED["rocketmq>kafka"]]
PUMPED = ["memory>memory", *RELEASED.values()]
HOOKS = "tests.conformance.hooks:"


@pytest.fixture(scope="module")
def memory() -> Iterator[Mapping[str, MemoryCluster]]:
    made = {name: MemoryCluster(name) for name in CLUSTERS}
    yield made
    for cluster in made.values():
        cluster.kill()


def made_of(request: pytest.FixtureRequest) -> Harness:
    """A path between Kafka clusters by its name, or the pump between two systems."""
    kind = str(request.param)
    if ">" not in kind:
        return kafka_harness(request.getfixturevalue("pair"), kind)
    sides = zip(CLUSTERS, kind.split(">"), strict=True)
    return Harness(*(cluster_of(request, side, system) for side, system in sides), "records", PUMP, pump())


def cluster_of(request: pytest.FixtureRequest, side: str, system: str) -> Cluster:
    """Only the servers of this system are started."""
    if system == SYSTEM:
        cluster: Cluster = request.getfixturevalue("memory")[side]
    elif system == ROCKETMQ:
        cluster = getattr(request.getfixturevalue("rocketmq"), side)
    else:
        cluster = KafkaCluster(side, getattr(request.getfixturevalue("pair"), side))
    return cluster


@pytest.fixture(scope="module", params=["records", "batches", *PUMPED])
def harness(request: pytest.FixtureRequest) -> Harness:
    """Of the module, because it may start servers: they are no processes that a test left."""
    return made_of(request)


@pytest.fixture(scope="module", params=FROM_IDS)
def from_ids(request: pytest.FixtureRequest) -> Harness:
    """Paths whose source detects a recreated topic."""
    return made_of(request)


@pytest.fixture(scope="module", params=TO_IDS)
def to_ids(request: pytest.FixtureRequest) -> Harness:
    """Paths whose target detects a recreated topic."""
    return made_of(request)


@pytest.fixture(scope="module", params=["records", *PUMPED])
def records(request: pytest.FixtureRequest) -> Harness:
    """Paths that can handle single records."""
    return made_of(request)


def test_key_value_headers_and_time_arrive_as_they_are(harness: Harness) -> None:
    topic = harness.topic()
    odd = [
        Written(None, b"no key", 1_600_000_000_000),
        Written(b"", b"", 1),
        Written(b"removed", None, 1_700_000_000_000, (("why", None),)),
        Written(bytes(range(256)), os.urandom(5_000), 1_700_000_000_001, (("a", b"1"), ("a", b""), ("ü", b"\xff"))),
    ]
    harness.write("east", topic, {0: odd})
    harness.copy(harness.lease(topic)).to_the_end()
    assert contents(harness.read("west", topic)) == odd


def test_every_partition_keeps_its_order(harness: Harness) -> None:
    topic = harness.topic(3)
    written = {number: numbered(3_000, name=b"%d " % number) for number in range(3)}
    harness.write("east", topic, written)
    harness.copy(harness.lease(topic, 3)).to_the_end()
    assert {number: contents(harness.read("west", topic, number)) for number in range(3)} == written


def test_two_opposite_links_bring_each_record_to_the_other_side_once(harness: Harness) -> None:
    topic = harness.topic()
    east, west = numbered(500, name=b"east "), numbered(400, name=b"west ")
    harness.write("east", topic, {0: east})
    harness.write("west", topic, {0: west})
    there = harness.copy(harness.lease(topic)).to_the_end()
    back = harness.copy(harness.lease(topic, back=True)).to_the_end()
    again = there.next_lease().to_the_end()
    assert (contents(harness.read("east", topic)), again.totals["copied"], again.totals["dropped"] > 0) == (
        [*east, *west],
        0,
        True,
    )
    assert (contents(harness.read("west", topic)), back.totals["dropped"]) == ([*west, *east], 500)


def test_runs_show_where_records_are_among_those_of_other_writers(harness: Harness) -> None:
    topic = harness.topic()
    harness.write("east", topic, {0: numbered(1_000)})
    copy = harness.copy(harness.lease(topic)).to_the_end()
    for turn in range(3):
        harness.write("west", topic, {0: numbered(7, name=b"foreign")})
        harness.write("east", topic, {0: numbered(500, 1_000 + 500 * turn)})
        following = copy.next_lease().to_the_end()
        copy.runs, copy.rows = [*copy.runs, *following.runs], following.rows
    source, target = harness.read("east", topic), harness.read("west", topic)
    reported = sum(run.records for run in copy.runs)
    assert (untrue(copy.runs, source, target), reported) == ([], len(source))


def test_a_copier_of_an_idle_log_reports_where_its_next_record_will_be_at_the_earliest(harness: Harness) -> None:
    topic = harness.topic()
    harness.write("east", topic, {0: numbered(10)})
    with closing(harness.connector.open(harness.lease(topic))) as copier:

        def target_end() -> int:
            copier.copy(time.monotonic() + 0.2)
            return copier.progress()[0].target_end

        wait_until(lambda: target_end() == 10, 180.0, "the copy")
        harness.write("west", topic, {0: numbered(7, name=b"foreign")})
        end = harness.west.end(harness.west.log(topic, 0))
        wait_until(lambda: target_end() == end, 60.0, "the end of the target")


@pytest.mark.parametrize("kills", [FEW_KILLS, pytest.param(MANY_KILLS, marks=pytest.mark.release)])
def test_nothing_is_lost_or_doubled_however_often_the_worker_is_killed(
    harness: Harness, tmp_path: Path, kills: int
) -> None:
    topic, chance, ended = harness.topic(2), random.Random(4), threading.Event()
    written: dict[int, list[Written]] = {0: [], 1: []}

    def write() -> None:
        while not ended.wait(0.05):
            new = {number: numbered(200, len(records)) for number, records in written.items()}
            harness.write("east", topic, new)
            for number, records in new.items():
                written[number] += records

    worker, writer = harness.worker(tmp_path, harness.lease(topic, 2), LEASE_S), threading.Thread(target=write)
    writer.start()
    worker.start()
    try:
        for _ in range(kills):
            time.sleep(chance.uniform(0.2, 1.8))
            worker.crash()
    finally:
        ended.set()
        writer.join()
        worker.close()
    harness.copy(harness.lease(topic, 2)).to_the_end()
    assert {number: contents(harness.read("west", topic, number)) for number in written} == written


def test_a_log_that_was_lost_is_refilled_once_however_often_the_worker_is_killed(
    harness: Harness, tmp_path: Path
) -> None:
    topic, chance = harness.topic(), random.Random(5)
    harness.write("east", topic, {0: numbered(300, name=b"east ")})
    harness.copy(harness.lease(topic)).to_the_end()
    harness.write("west", topic, {0: numbered(300, name=b"west ")})
    harness.copy(harness.lease(topic, back=True)).to_the_end()
    harness.write("west", topic, {0: numbered(100, name=b"late ")})
    harness.remake("east", topic)
    back, forth = (harness.assignment(topic, back=direction)._replace(position=CHOSEN) for direction in (True, False))
    slow = Limits(records_per_s=200.0)
    lease = harness.lease(topic, back=True, assignments=(back._replace(refill=Refill(600, 700)),), limits=slow)
    worker = harness.worker(tmp_path, lease, LEASE_S)
    worker.start()
    try:
        for _ in range(REFILL_KILLS):
            time.sleep(chance.uniform(0.3, 1.2))
            worker.crash()
        harness.write("west", topic, {0: numbered(50, name=b"new ")})
        wait_until(lambda: len(harness.read("east", topic)) >= 750, 180.0, "the end of the refill")
    finally:
        worker.close()
    refilled, held = (contents(harness.read(side, topic)) for side in ("east", "west"))
    again = harness.copy(harness.lease(topic, assignments=(forth,))).to_the_end()
    assert (refilled == held, again.totals["copied"], again.totals["dropped"]) == (True, 0, 750)


def test_a_running_copier_shows_how_far_its_source_has_grown(harness: Harness) -> None:
    topic, shown = harness.topic(), list[int]()
    with closing(harness.connector.open(harness.lease(topic))) as copier:
        for first in (0, 5):
            harness.write("east", topic, {0: numbered(5, first)})
            wanted = harness.east.end(harness.east.log(topic, 0))

            def there(wanted: int = wanted) -> bool:
                copier.copy(time.monotonic() + 0.2)
                [row] = copier.progress()
                shown.append(row.source_end)
                return row.position.offset >= wanted

            wait_until(there, 180.0, "the copier at the end")
            assert shown[-1] == wanted


def test_a_lost_position_doubles_nothing(harness: Harness) -> None:
    topic = harness.topic()
    harness.write("east", topic, {0: numbered(2_000)})
    harness.copy(harness.lease(topic)).to_the_end()
    harness.write("east", topic, {0: numbered(10, 2_000)})
    harness.copy(harness.lease(topic)).to_the_end()
    assert contents(harness.read("west", topic)) == numbered(2_010)


def test_links_of_one_name_from_two_clusters_continue_each_from_its_own_records(harness: Harness) -> None:
    """Two installations of Trueup may give their links the same name."""
    topic = harness.topic()
    harness.write("east", topic, {0: numbered(10)})
    east = harness.east.endpoint()
    for source in (replace(east, name="third", bit=5), east):
        lease = harness.lease(topic, source=source, writer_id=writer_id_of("up", source.bit))
        Copy(harness.connector, lease, harness.east.end).to_the_end()
    assert contents(harness.read("west", topic)) == numbered(10) * 2


def test_records_reported_as_copied_survive_a_kill_of_the_target(harness: Harness) -> None:
    topic = harness.topic()
    harness.write("east", topic, {0: numbered(4_000)})
    copier = harness.connector.open(harness.lease(topic, limits=Limits(records_per_s=1_000)))
    reported: list[Progress] = []

    def begun() -> bool:
        copier.copy(time.monotonic() + 0.1)
        reported.extend(copier.progress())
        return reported[-1].position.offset > 0

    wait_until(begun, 180.0, "the copy to begin")

    def go_on() -> None:
        for _ in range(2):
            try:
                copier.copy(time.monotonic() + 0.3)
            except Retry:
                continue
            finally:
                reported.extend(copier.progress())

    harness.without_target(go_on)
    copier.close()
    there = {record for _, record in harness.read("west", topic)}
    assert there.issuperset(numbered(max(row.position.offset for row in reported)))


def test_a_copier_survives_the_death_of_its_target(harness: Harness) -> None:
    topic = harness.topic()
    harness.write("east", topic, {0: numbered(1_000)})
    copier = harness.connector.open(harness.lease(topic))
    copier.copy(time.monotonic() + 0.2)
    harness.without_target(lambda: harness.write("east", topic, {0: numbered(1_000, 1_000)}))

    def all_there() -> bool:
        try:
            copier.copy(time.monotonic() + 0.2)
        except Retry:
            return False
        return copier.progress()[0].position.offset == 2_000

    wait_until(all_there, 180.0, "the copy to end")
    copier.close()
    assert contents(harness.read("west", topic)) == numbered(2_000)


def until_each_ends(copier: Copier, topics: Iterable[str], then: Callable[[], None]) -> None:
    """Copy while ``then`` runs, until every topic stopped or was reported as recreated."""
    ended, over = threading.Event(), set[str]()

    def copy() -> None:
        while not ended.is_set():
            with suppress(Retry):
                copier.copy(time.monotonic() + 0.2)
            over.update(row.source.topic for row in copier.progress() if row.stopped or "recreated" in row.error)

    copying = threading.Thread(target=copy)
    copying.start()
    try:
        then()
        wait_until(lambda: over >= {*topics}, 180.0, "every topic to end")
    finally:
        ended.set()
        copying.join()


TIMES = 4


def test_nothing_of_a_source_topic_made_anew_is_copied(from_ids: Harness) -> None:
    topics = [from_ids.topic() for _ in range(TIMES)]
    for topic in topics:
        from_ids.write("east", topic, {0: numbered(300)})
    copy = from_ids.copy(of_all(from_ids, topics)).to_the_end()
    with closing(from_ids.connector.open(copy.next_lease().lease)) as copier:

        def remake() -> None:
            for topic in topics:
                from_ids.remake("east", topic)
                from_ids.write("east", topic, {0: numbered(1_000, name=b"new ")})

        until_each_ends(copier, topics, remake)
    assert [contents(from_ids.read("west", topic)) for topic in topics] == [numbered(300)] * TIMES


def test_nothing_is_written_into_a_target_topic_made_anew(to_ids: Harness) -> None:
    topics, ended = [to_ids.topic() for _ in range(TIMES)], threading.Event()

    def write() -> None:
        for first in itertools.count(0, 10):
            if ended.is_set():
                return
            for topic in topics:
                to_ids.write("east", topic, {0: numbered(10, first)})

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with closing(to_ids.connector.open(of_all(to_ids, topics))) as copier:
            wait_until(lambda: begun(copier, TIMES), 180.0, "the copy of each topic to begin")
            until_each_ends(copier, topics, lambda: [to_ids.remake("west", topic) for topic in topics] and None)
    finally:
        ended.set()
        writer.join()
    assert [to_ids.read("west", topic) for topic in topics] == [[]] * TIMES


def of_all(harness: Harness, topics: Sequence[str]) -> Lease:
    """A lease of the first log of each topic."""
    return harness.lease(topics[0], assignments=tuple(harness.assignment(topic) for topic in topics))


def begun(copier: Copier, partitions: int) -> bool:
    """Whether records of this number of partitions were acknowledged."""
    copier.copy(time.monotonic() + 0.1)
    return sum(row.position.offset > 0 for row in copier.progress()) == partitions


def test_a_limit_is_kept(harness: Harness) -> None:
    topic, limit = harness.topic(2), 400.0
    harness.write("east", topic, {0: numbered(3_000), 1: numbered(3_000)})
    copier = harness.connector.open(harness.lease(topic, 2, limits=Limits(records_per_s=limit)))
    begun, reported = time.monotonic(), list[Progress]()

    def enough() -> bool:
        copier.copy(time.monotonic() + 0.5)
        reported.extend(copier.progress())
        return sum(row.copied for row in reported) >= 3 * limit

    wait_until(enough, 180.0, "three seconds' worth of records")
    took = time.monotonic() - begun
    copier.close()
    overdraft = 2 * 10  # one full batch per partition
    assert sum(row.copied for row in reported) <= limit * (took + BURST_S) + overdraft


def test_a_refused_record_stops_its_partition_and_no_other(harness: Harness) -> None:
    topic = harness.narrow_topic(2)
    harness.write("east", topic, {0: AROUND_POISON, 1: numbered(2_000)})
    copier = harness.connector.open(harness.lease(topic, 2))
    rows: dict[LogId, Progress] = {}
    zero, one = (harness.assignment(topic, index).source for index in range(2))

    def settled() -> bool:
        copier.copy(time.monotonic() + 0.2)
        rows.update((row.source, row) for row in copier.progress())
        return rows[zero].stopped and rows[one].position.offset == 2_000

    wait_until(settled, 180.0, "one partition to stop and the other to end")
    copier.close()
    there = contents(harness.read("west", topic))
    assert (there, rows[zero].position.offset) == (AROUND_POISON[: len(there)], len(there))
    assert contents(harness.read("west", topic, 1)) == numbered(2_000)


def test_nothing_behind_a_refused_record_is_written_by_a_new_copier(records: Harness) -> None:
    for _ in range(REPEATED):  # the order of requests varies
        topic = records.narrow_topic()
        records.write("east", topic, {0: [POISON, *LONG]})
        records.copy(records.lease(topic)).to_the_end()
        assert records.read("west", topic) == []


def test_what_was_stopped_goes_on_when_the_target_takes_the_record(records: Harness) -> None:
    topic = records.narrow_topic()
    records.write("east", topic, {0: AROUND_POISON})
    stopped = records.copy(records.lease(topic)).to_the_end()
    hooks.seen.clear()
    stopped.next_lease(failures="hook", hook=f"{HOOKS}handle").to_the_end()
    assert contents(records.read("west", topic)) == numbered(600, since_ms=TODAY_MS)
    assert [(failure.offset, failure.key) for failure in hooks.seen] == [(300, b"poison")]


def test_a_dead_letter_topic_takes_what_the_target_refuses(records: Harness) -> None:
    topic, letters = records.narrow_topic(), records.topic()
    records.write("east", topic, {0: AROUND_POISON})
    copy = records.copy(records.lease(topic, failures="dead-letter", dead_letters=letters)).to_the_end()
    [(_, letter)] = records.read("west", letters)
    assert (contents(records.read("west", topic)), copy.totals["dismissed"]) == (numbered(600, since_ms=TODAY_MS), 1)
    assert (letter.key, letter.value, letter.timestamp > POISON.timestamp) == (POISON.key, POISON.value, True)


@pytest.mark.parametrize(
    ("hook", "result"), [("refuse", "did not handle it"), ("fail", "own trouble"), ("say_nothing", "one bool")]
)
def test_a_hook_that_does_not_handle_a_record_stops_its_partition(records: Harness, hook: str, result: str) -> None:
    topic = records.narrow_topic()
    records.write("east", topic, {0: AROUND_POISON})
    copy = records.copy(records.lease(topic, failures="hook", hook=HOOKS + hook)).to_the_end()
    [row] = copy.rows.values()
    assert (row.stopped, row.position.offset, result in row.error) == (True, 300, True)
    assert contents(records.read("west", topic)) == numbered(300, since_ms=TODAY_MS)
