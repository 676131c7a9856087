"""What says that a link wrote a record: nothing that an application can pass on. Both paths write and read it."""

import itertools
import random
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from tests.conformance.harness import Harness, Written, contents, numbered
from tests.conformance.kafka import headers_of, kafka_harness
from tests.replication.pair import EAST_TO_WEST, Copy, Pair
from tests.replication.reading import committed
from trueup.connectors.contract import Endpoint, Lease, LogId, Position
from trueup.connectors.kafka.client.cluster import KafkaClient
from trueup.connectors.kafka.client.fetch_produce import PRODUCE, PRODUCE_VERSION, produce_body, produced
from trueup.connectors.kafka.replication.records.encode import BatchProducer, records_of
from trueup.connectors.replication.headers import MARK, prefix_of
from trueup.connectors.replication.ports import Columns
from trueup.state.replication.provenance import HEADER

pytestmark = pytest.mark.servers

PATHS = ("records", "batches")
TURNS = 8


@pytest.fixture(scope="module")
def harness(pair: Pair) -> dict[str, Harness]:
    return {path: kafka_harness(pair, path) for path in PATHS}


def republish(pair: Pair, topic: str, target: str, transaction: bool = False) -> list[Written]:
    """A service at west: copies each record with its key, value and all headers. Returns what it wrote."""
    messages = [*committed(pair.west.bootstrap, topic, [0])]
    settings: dict[str, object] = {"bootstrap.servers": pair.west.bootstrap, "linger.ms": 20}
    producer = Producer({**settings, "transactional.id": uuid.uuid4().hex} if transaction else settings)
    if transaction:
        producer.init_transactions(30)
        producer.begin_transaction()
    for message in messages:
        value = b"service: " + (message.value() or b"")
        producer.produce(target, value, message.key(), 0, timestamp=message.timestamp()[1], headers=message.headers())
    if transaction:
        producer.commit_transaction(30)
    assert producer.flush(30) == 0
    return [Written(m.key(), b"service: " + (m.value() or b""), m.timestamp()[1], headers_of(m)) for m in messages]


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
    places: dict[bool, tuple[str, Position]] = {back: ("", Position()) for back in (False, True)}
    written = dict.fromkeys(("east", "west"), 0)
    for _ in range(TURNS):
        for side in written:
            count = chosen.randrange(1, 40)
            first.write(side, topic, {0: numbered(count, written[side], side.encode())})
            written[side] += count
        for back in chosen.sample([False, True], 2):
            path = chosen.choice(PATHS)
            places[back] = path, _leased(harness[path], topic, back, path, *places[back])
    for back in (False, True, False):
        path = chosen.choice(PATHS)
        places[back] = path, _leased(harness[path], topic, back, path, *places[back])
    every = Counter(record for side, count in written.items() for record in numbered(count, 0, side.encode()))
    assert [Counter(contents(first.read(side, topic))) == every for side in written] == [True, True]


def _leased(harness: Harness, topic: str, back: bool, path: str, before: str, place: Position) -> Position:
    """The position after a lease. A path begins where another one ended, as `checkpoints.Copy.place` says."""
    if before not in ("", path):
        place = Position(place.offset, chosen=True)
    lease = harness.lease(topic, back=back)
    lease = replace(lease, assignments=tuple(a._replace(position=place) for a in lease.assignments))
    [row] = copied(harness, lease).rows.values()
    return row.position


STAMPS = [0, -1, -1_000, 1]


@pytest.mark.parametrize("path", PATHS)
def test_times_before_1970_arrive_as_they_are(pair: Pair, harness: dict[str, Harness], path: str) -> None:
    topic = harness[path].topic()
    raw_times(pair, topic, STAMPS)
    copied(harness[path], harness[path].lease(topic))
    assert [record.timestamp for record in contents(harness[path].read("west", topic))] == STAMPS


def raw_times(pair: Pair, topic: str, stamps: Sequence[int]) -> None:
    """Write records with these times, which librdkafka and Java's producer refuse, with a request of our own."""
    count, log = len(stamps), LogId(topic, 0)
    columns = Columns(range(count), [None] * count, [b"v"] * count, stamps, [()] * count)
    [batch] = records_of(columns).batches(0)
    with closing(KafkaClient(Endpoint("east", pair.east.bootstrap, 0))) as client:
        client.refresh([topic])
        connection = client.asking(client.leader(log))
        connection.send(PRODUCE, PRODUCE_VERSION, *produce_body({log: batch.sent_by(BatchProducer(-1, -1, -1))}, 5_000))
        assert produced(connection.receive())[log].error == 0
