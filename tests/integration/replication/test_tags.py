"""What says that a link wrote a record: nothing that an application can pass on. Both paths write and read it."""

import itertools
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.conformance.harness import Harness, Written, contents, numbered
from tests.conformance.kafka import KafkaCluster, headers_of, kafka_harness
from tests.integration.replication.test_batches import headers_of as batches_of
from tests.replication.pair import EAST_TO_WEST, QUICK, Copy, Pair
from tests.replication.reading import committed
from tests.replication.times import STAMPS, write_times
from trueup.connectors.contract import Endpoint, Lease, LogId, Position
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.replication.headers import MARK, prefix_of
from trueup.state.replication.provenance import HEADER, Refill, tag_of
from trueup.streams.replication.clusters import KAFKA
from trueup.streams.replication.links import checkpoints

pytestmark = pytest.mark.servers

PATHS = ("records", "batches")
TURNS = 8


@pytest.fixture(scope="module")
def harness(pair: Pair) -> dict[str, Harness]:
    return {path: kafka_harness(pair, path) for path in PATHS}


@pytest.fixture(scope="module")
def north(new_root: Callable[[], Path]) -> Iterator[Kafka]:
    with closing(Kafka(new_root(), settings=QUICK)) as broker:
        broker.up()
        yield broker


def republish(
    pair: Pair, topic: str, target: str, transaction: bool = False, own: Sequence[Written] = ()
) -> list[Written]:
    """A service at west: copies each record with its key, value and all headers, in one batch. After each of them it
    writes one of its own records, while there are any. Returns what it wrote."""
    messages = [*committed(pair.west.bootstrap, topic, [0])]
    settings: dict[str, object] = {"bootstrap.servers": pair.west.bootstrap, "linger.ms": 10_000}
    producer = Producer({**settings, "transactional.id": uuid.uuid4().hex} if transaction else settings)
    if transaction:
        producer.init_transactions(30)
        producer.begin_transaction()
    made = list[Written]()
    for message, mine in itertools.zip_longest(messages, own[: len(messages)]):
        value = b"service: " + (message.value() or b"")
        made.append(Written(message.key(), value, message.timestamp()[1], headers_of(message)))
        producer.produce(target, value, message.key(), 0, timestamp=made[-1].timestamp, headers=message.headers())
        if mine is not None:
            made.append(mine)
            producer.produce(target, mine.value, mine.key, 0, timestamp=mine.timestamp, headers=list(mine.headers))
    if transaction:
        producer.commit_transaction(30)
    assert producer.flush(30) == 0
    return made


def copied(harness: Harness, lease: Lease) -> Copy:
    return harness.copy(lease).to_the_end()


@pytest.mark.parametrize("transaction", [False, True])
@pytest.mark.parametrize(("there", "back"), [*itertools.product(PATHS, PATHS)])
def test_what_a_service_makes_of_copies_goes_back_and_copies_do_not(
    pair: Pair, harness: dict[str, Harness], there: str, back: str, transaction: bool
) -> None:
    topic = harness[there].topic()
    harness[there].write("east", topic, {0: numbered(50)})
    copied(harness[there], harness[there].lease(topic))
    made = republish(pair, topic, topic, transaction)
    copy = copied(harness[back], harness[back].lease(topic, back=True))
    assert contents(harness[back].read("east", topic)) == [*numbered(50), *made]
    assert copy.totals["dropped"] == 50
    assert copy.totals["foreign_tags"] == (50 if (there, back) == ("records", "records") else 0)


@pytest.mark.parametrize("transaction", [False, True])
@pytest.mark.parametrize("back", PATHS)
def test_a_batch_of_passed_on_and_own_records_goes_back_as_a_whole(
    pair: Pair, harness: dict[str, Harness], back: str, transaction: bool
) -> None:
    """Path records writes headers, which the service passes on."""
    topic = harness["records"].topic()
    harness["records"].write("east", topic, {0: numbered(50)})
    copied(harness["records"], harness["records"].lease(topic))
    made = republish(pair, topic, topic, transaction, numbered(50, name=b"own "))
    lease = harness[back].lease(topic, back=True)
    assert next(each.records for each in batches_of(lease) if tag_of(each.producer_id) is None) == 100
    copy = copied(harness[back], lease)
    assert contents(harness[back].read("east", topic)) == [*numbered(50), *made]
    assert copy.totals["foreign_tags"] == (50 if back == "records" else 0)


@pytest.mark.parametrize("path", PATHS)
def test_in_a_chain_every_cluster_gets_what_a_service_makes_once(
    pair: Pair, harness: dict[str, Harness], north: Kafka, path: str
) -> None:
    topic, cluster = harness[path].topic(), KafkaCluster("north", north)
    cluster.create(topic, 1)
    ends = {side: harness[path].side(side).endpoint() for side in ("east", "west")}
    ends["north"] = Endpoint("north", north.bootstrap, 2, system=KAFKA)

    def link(source: str, target: str) -> int:
        """The number of records that a link copies, from the beginning or from where the target shows that it was."""
        writer = 10 * ends[source].bit + ends[target].bit
        held = harness[path].assignment(topic)
        lease = Lease(f"{source}-{target}", ends[source], ends[target], writer, path, (held,))
        return Copy(harness[path].connector, lease).to_the_end().totals["copied"]

    harness[path].write("east", topic, {0: numbered(50)})
    first = link("east", "west")
    made = republish(pair, topic, topic)
    chain = [link("west", "east"), link("west", "north")]
    home = [link("north", "west"), link("east", "west"), link("west", "east"), link("west", "north")]
    assert (first, chain, home) == (50, [50, 100], [0, 0, 0, 0])
    wanted = [*numbered(50), *made]
    found = [contents(harness[path].read(side, topic)) for side in ("east", "west")]
    assert [*found, contents(cluster.read(topic, 0))] == [wanted] * 3


@pytest.mark.parametrize("lost", ["east", "west"])
@pytest.mark.parametrize("path", PATHS)
def test_after_a_loss_a_refill_restores_what_a_service_made_once(
    pair: Pair, harness: dict[str, Harness], path: str, lost: str
) -> None:
    topic = harness[path].topic()
    harness[path].write("east", topic, {0: numbered(50)})
    copied(harness[path], harness[path].lease(topic))
    wanted = [*numbered(50), *republish(pair, topic, topic)]
    copied(harness[path], harness[path].lease(topic, back=True))
    harness[path].remake(lost, topic)
    lease = harness[path].lease(topic, back=lost == "east")
    end = harness[path].side(lease.source.name).end(LogId(topic, 0))
    held = lease.assignments[0]._replace(position=Position(0, chosen=True), refill=Refill(end, end))
    refill = copied(harness[path], replace(lease, assignments=(held,)))
    home = copied(harness[path], harness[path].lease(topic, back=lost == "west"))
    assert (refill.totals["copied"], home.totals["copied"]) == (100, 0)
    assert [contents(harness[path].read(side, topic)) for side in ("east", "west")] == [wanted] * 2


@pytest.mark.parametrize("path", PATHS)
def test_what_a_service_writes_to_another_topic_goes_back(pair: Pair, harness: dict[str, Harness], path: str) -> None:
    orders, results = harness[path].topic(), harness[path].topic()
    harness[path].write("east", orders, {0: numbered(50)})
    copied(harness["records"], harness["records"].lease(orders))
    made = republish(pair, orders, results)
    copied(harness[path], harness[path].lease(results, back=True))
    assert contents(harness[path].read("east", results)) == made


def test_a_mark_that_an_application_wrote_is_no_progress(pair: Pair, harness: dict[str, Harness]) -> None:
    records = harness["records"]
    topic = records.topic()
    records.write("east", topic, {0: numbered(10)})
    copy = copied(records, records.lease(topic))
    mark = prefix_of(EAST_TO_WEST, LogId(topic, 0)) + (15).to_bytes(8, "big")
    forged = Written(b"forged", b"", numbered(1)[0].timestamp, ((HEADER, b"east"), (MARK, mark)))
    records.write("west", topic, {0: [forged]})
    records.write("east", topic, {0: numbered(20, 10)})
    copy.rows = {log: replace(row, position=Position()) for log, row in copy.rows.items()}
    copied(records, copy.lease)
    assert [each for each in contents(records.read("west", topic)) if each.key != b"forged"] == numbered(30)


@pytest.mark.parametrize("seed", range(2))
def test_the_path_may_change_at_any_time_in_any_direction(harness: dict[str, Harness], seed: int) -> None:
    chosen = random.Random(seed)
    topic, first = harness["records"].topic(), harness["records"]
    log = LogId(topic, 0)
    known = {back: checkpoints.Copy(log, log, 0) for back in (False, True)}
    written = dict.fromkeys(("east", "west"), 0)
    for _ in range(TURNS):
        for side in written:
            count = chosen.randrange(1, 40)
            first.write(side, topic, {0: numbered(count, written[side], side.encode())})
            written[side] += count
        for back in chosen.sample([False, True], 2):
            known[back] = leased(harness[chosen.choice(PATHS)], known[back], back)
    for back in (False, True, False):
        known[back] = leased(harness[chosen.choice(PATHS)], known[back], back)
    every = Counter(record for side, count in written.items() for record in numbered(count, 0, side.encode()))
    assert [Counter(contents(first.read(side, topic))) == every for side in written] == [True, True]
    assert {tuple(sorted(copy.resume_states)) for copy in known.values()} == {("batches", "records")}


def leased(harness: Harness, known: checkpoints.Copy, back: bool) -> checkpoints.Copy:
    """What a link knows of a partition after a lease on the path of this harness, as its next start reads it from the
    journal."""
    if not known.path:
        known.follow(harness.path)
    lease = harness.lease(known.source.topic, back=back)
    place = known.place(harness.path)
    copy = copied(harness, replace(lease, assignments=(lease.assignments[0]._replace(position=place),)))
    [row] = copy.rows.values()
    known.take(replace(row, runs=tuple(copy.runs)), 0)
    [(_, _, record), *_] = known.records(lease.link, 0)
    return checkpoints.copy_of(record)[1]


@pytest.mark.parametrize("path", PATHS)
def test_times_before_1970_arrive_as_they_are(pair: Pair, harness: dict[str, Harness], path: str) -> None:
    topic = harness[path].topic()
    write_times(pair.east, topic, STAMPS)
    copied(harness[path], harness[path].lease(topic))
    assert [record.timestamp for record in contents(harness[path].read("west", topic))] == [*STAMPS]
