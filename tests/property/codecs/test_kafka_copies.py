"""Records that another link copied before are written as arrays as they are one by one."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.codecs.test_kafka_records import batch_of, comparable
from tests.property.codecs.test_kafka_records import written as messages
from tests.property.codecs.test_rocketmq_columns import Record
from tests.property.codecs.test_rocketmq_plain import BODIES, NAMES
from tests.unit.rocketmq.stored_messages import HERE
from trueup.connectors.contract import Assignment, Endpoint, Lease, LogId, Position
from trueup.connectors.kafka.replication.records import decode, encode
from trueup.connectors.kafka.replication.records.decode import DecodedRecords, decoded
from trueup.connectors.kafka.replication.records.encode import BatchProducer, records_of
from trueup.connectors.kafka.replication.tags import Paths
from trueup.connectors.replication.headers import MARK, prefix_of
from trueup.connectors.replication.packed import Packed
from trueup.connectors.replication.ports import Columns
from trueup.connectors.replication.pump import Tagged, Tagging, _runs
from trueup.connectors.rocketmq.replication.records import incoming as arrays
from trueup.state.replication.provenance import HEADER, producer_id

ORDERS = LogId("orders", 0)
OURS = prefix_of(7, ORDERS)
EAST, WEST = Endpoint("east", "", 0), Endpoint("west", "", 1)
LONG = b"a cluster with a name that is longer than the form of arrays allows for other headers"
CLUSTERS = [b"north#2", b"west#1", b"east#0", b"north#2,west#1", LONG]
PATHS = st.none() | st.sampled_from(CLUSTERS)
USUAL = st.tuples(
    st.none() | st.binary(max_size=9), st.none() | BODIES, st.just(0), st.lists(st.tuples(NAMES, BODIES), max_size=3)
)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (decode, encode, arrays):
        monkeypatch.setattr(module, "LEAST", 1)


def copied(record: Record, path: bytes | None, mark: bytes = bytes(16)) -> Record:
    """A record as a link with this path wrote it; None: as it was produced."""
    own: list[tuple[str, bytes | None]] = [] if path is None else [(HEADER, path), (MARK, mark)]
    return *record[:3], [*record[3], *own]


def read(records: Sequence[Record], paths: Sequence[bytes | None] | None = None) -> Columns:
    """Records from offset 7 on: 7, 9, 11 and so on, each in a batch with its path. ``paths``: the paths of
    the batches, if they are not those of the headers."""
    return everything(records, paths).columns


def everything(records: Sequence[Record], paths: Sequence[bytes | None] | None = None) -> DecodedRecords:
    chosen = [path_in(record) for record in records] if paths is None else paths
    ids = {path: at for at, path in enumerate(dict.fromkeys(chosen))}
    texts = {at: path or b"" for path, at in ids.items()}
    batches = []
    for at, (record, path) in enumerate(zip(records, chosen, strict=True)):
        header, body = batch_of([record], [0], 7 + 2 * at)
        batches.append((header._replace(producer_id=ids[path]), body))
    return decoded(batches, "here", texts.__getitem__)


def path_in(record: Record) -> bytes | None:
    return dict(record[3]).get(HEADER)


def many(columns: Columns, forward: bool) -> Tagged:
    """The rows to write for a link from east to west."""
    assigned = Assignment(ORDERS, ORDERS, Position(), 0)
    return Tagging(Lease("link", EAST, WEST, 7, "records", (assigned,), forward=forward)).many(OURS, columns)


def rows_of(columns: Columns) -> list[tuple[object, ...]]:
    return [(*row[:4], [*row[4]]) for row in zip(*columns.columns(), strict=True)]


def written(columns: Columns) -> list[bytes]:
    return [bytes(made.sent_by(BatchProducer(9, 1, 5))) for made in records_of(columns).batches(0)]


@given(st.lists(st.tuples(USUAL, PATHS), min_size=1, max_size=6), st.booleans(), st.data())
def test_copies_are_written_as_they_are_one_by_one(contents: list[Any], forward: bool, data: st.DataObject) -> None:
    columns = read([copied(record, path) for record, path in contents])
    if not isinstance(columns, Packed):
        return
    part = columns.cut(data.draw(st.integers(0, len(contents) - 1)))
    made, wanted = many(part, forward), many(part.columns(), forward)
    assert (rows_of(made.columns), made[1:]) == (rows_of(wanted.columns), wanted[1:])
    if made.columns.offsets:
        assert written(made.columns) == written(wanted.columns)


@pytest.mark.parametrize("path", [None, b"north#2"])
@pytest.mark.parametrize("count", [0, 59, 60, 61, 62, 63, 64, 65])
def test_copies_with_many_headers_are_written_as_they_are_one_by_one(count: int, path: bytes | None) -> None:
    headers: list[tuple[str, bytes | None]] = [("a", b"1")] * count
    columns = read([copied((b"k", b"v", 0, headers), path), copied((None, None, 0, []), path)])
    assert isinstance(columns, Packed)
    made = many(columns, forward=True).columns
    assert written(made) == written(made.columns())


def test_records_can_be_written_twice() -> None:
    columns = read([(b"k", b"v", 0, [("a", b"1")]), copied((b"k", None, 0, []), b"north#2")])
    made = many(columns, forward=True).columns
    assert isinstance(made, Packed)
    assert written(made) == written(many(columns, forward=True).columns) == written(made.columns())


@given(st.lists(st.tuples(USUAL, PATHS), min_size=1, max_size=6))
def test_copies_are_read_as_they_were_written(contents: list[Any]) -> None:
    records = [copied(record, path) for record, path in contents]
    wanted = [
        (7 + 2 * n, *record[:2], [*record[3], *([] if path is None else [(HEADER, path)])])
        for n, (record, path) in enumerate(contents)
    ]
    assert [(*row[:3], row[4]) for row in rows_of(read(records))] == wanted


@given(st.lists(st.tuples(USUAL, PATHS, PATHS), min_size=1, max_size=6), st.sampled_from([1, 99]))
def test_headers_of_links_are_believed_only_in_their_batches(contents: list[Any], least: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "LEAST", least)
        found = everything([copied(record, given) for record, given, _ in contents], [tag for *_, tag in contents])
    wanted = [[*record[3], *([] if tag is None else [(HEADER, tag)])] for record, _, tag in contents]
    assert [row[4] for row in rows_of(found.columns)] == wanted
    assert found.foreign_tags == sum(given is not None and tag is None for _, given, tag in contents)


def test_a_path_has_the_order_of_the_header_if_that_names_the_same_clusters() -> None:
    record: Record = (b"k", b"v", 0, [])
    records = [copied(record, b"west#1,north#2"), copied(record, b"west#1")]
    headers = [[*row[4]] for row in rows_of(read(records, [b"north#2,west#1"] * 2))]
    assert headers == [[(HEADER, b"west#1,north#2")], [(HEADER, b"north#2,west#1")]]


@pytest.mark.parametrize("count", [1, 40])
def test_a_header_with_a_number_of_thousands_of_digits_is_read_as_any_other(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode, "LEAST", 16)
    record = copied((b"k", b"v", 0, []), b"north#" + b"9" * 5_000)
    batches = [
        (header._replace(producer_id=producer_id(0b11, 7)), body)
        for header, body in (batch_of([record], [0], at) for at in range(count))
    ]
    paths = Paths(Lease("link", EAST, WEST, 7, "records", (), clusters={"east": 0, "west": 1}))
    found = decoded(batches, "here", paths.text).columns
    assert [row[4] for row in rows_of(found)] == [[(HEADER, b"east#0,west#1")]] * count


@pytest.mark.parametrize("path", [b"north#2", b"north#2,south#3", LONG])
def test_a_topic_that_was_copied_before_is_written_as_arrays(path: bytes) -> None:
    record: Record = (b"k", b"v", 0, [("a", b"1")])
    made = many(read([copied(record, path)] * 3), forward=True)
    assert isinstance(made.columns, Packed)
    assert made.columns.columns().headers[0][:2] == [("a", b"1"), (HEADER, path + b",east#0")]


def test_records_of_the_target_are_left_out_of_the_arrays() -> None:
    record: Record = (b"k", b"v", 0, [("a", b"1")])
    made = many(read([copied(record, b"west#1"), copied(record, None), copied(record, b"west#1")]), forward=False)
    assert isinstance(made.columns, Packed)
    assert ([*made.columns.offsets], made.dropped) == ([9], 2)


def test_records_of_several_clusters_are_written_as_arrays() -> None:
    record: Record = (b"k", b"v", 0, [("a", b"1")])
    made = many(
        read([copied(record, path) for path in (b"north#2", b"south#3", None, b"north#2")]), forward=True
    ).columns
    assert isinstance(made, Packed)
    assert [headers[1][1] for headers in made.columns().headers] == [
        b"north#2,east#0",
        b"south#3,east#0",
        b"east#0",
        b"north#2,east#0",
    ]


def test_copies_become_messages_as_arrays() -> None:
    records: list[Record] = [
        copied((b"k", b"v", 0, [("a", b"1")]), b"north#2"),
        copied((b"k", b"v", 0, []), b"north#2"),
    ]
    made = many(read(records), forward=True).columns
    assert isinstance(made, Packed)
    found = arrays.incoming(made)
    assert found is not None
    assert [comparable(each.messages, each.born, each.body) for each in found.batches(1 << 20, HERE)] == messages(
        made.columns()
    )


def test_a_path_with_separators_of_properties_is_handled_one_by_one() -> None:
    made = many(read([copied((b"k", b"v", 0, []), b"north#2\x02KEYS\x01other")]), forward=True).columns
    assert isinstance(made, Packed)
    assert arrays.incoming(made) is None


@pytest.mark.parametrize(
    "headers",
    [
        [(HEADER, b"north#2")],
        [(HEADER, b"north#2"), (MARK, b"short")],
        [(HEADER, b"north#2"), (MARK, None)],
        [(HEADER, None), (MARK, bytes(16))],
        [(HEADER, b"north#2"), (MARK, bytes(16)), ("a", b"1")],
        [(HEADER, b"north#2"), (HEADER, b"north#2"), (MARK, bytes(16))],
        [(MARK, bytes(16))],
    ],
)
def test_headers_in_other_places_are_handled_one_by_one(headers: list[Any]) -> None:
    record: Record = (b"k", b"v", 0, headers)
    assert not isinstance(read([record], [b"north#2"]), Packed)
    assert rows_of(read([record], [b"north#2"]))[0][4][-1] == (HEADER, b"north#2")


def test_many_different_paths_are_handled_one_by_one() -> None:
    assert not isinstance(read([copied((b"k", b"v", 0, []), b"cluster-%d" % n) for n in range(20)]), Packed)


@given(st.lists(st.tuples(st.integers(1, 2), st.integers(1, 2)), max_size=9), st.integers(0, 3))
def test_runs_are_the_offsets_that_were_written_in_few_parts(steps: list[tuple[int, int]], unwritten: int) -> None:
    sources, targets = (np.cumsum(each).tolist() for each in (zip(*steps, strict=True) if steps else ([], [])))
    written = targets[: max(0, len(targets) - unwritten)]
    found = [*_runs(sources, written)]
    pairs = [(source + n, target + n) for source, target, count in found for n in range(count)]
    gaps = sum(step != (1, 1) for step in steps[1 : len(written)])
    assert (pairs, len(found)) == ([*zip(sources, written, strict=False)], gaps + bool(written))
