"""Records that are read and written as arrays are what they are one by one, whatever they contain."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.codecs.test_rocketmq_columns import RECORDS, Record
from tests.property.codecs.test_rocketmq_native import BORN, PATH, PREFIX
from tests.property.codecs.test_rocketmq_plain import BODIES, NAMES, PAIRS
from tests.unit.rocketmq.stored_messages import HERE, Message
from trueup.connectors.kafka.protocol.compression import opened
from trueup.connectors.kafka.protocol.record_batch import APPEND_TIME, HEADER_BYTES, BatchHeader, header_of, sound
from trueup.connectors.kafka.protocol.varints import zigzag
from trueup.connectors.kafka.replication.records import decode, encode
from trueup.connectors.kafka.replication.records.decode import decoded
from trueup.connectors.kafka.replication.records.encode import BatchProducer, records_of
from trueup.connectors.replication.headers import marks
from trueup.connectors.replication.packed import Packed
from trueup.connectors.replication.ports import Columns
from trueup.connectors.rocketmq.protocol import block
from trueup.connectors.rocketmq.protocol.block import scan
from trueup.connectors.rocketmq.protocol.properties import MOST_SENT
from trueup.connectors.rocketmq.protocol.properties import decoded as properties_of
from trueup.connectors.rocketmq.protocol.stored import StoredMessages
from trueup.connectors.rocketmq.protocol.stored import decode as decode_messages
from trueup.connectors.rocketmq.replication.records import incoming as arrays
from trueup.connectors.rocketmq.replication.records.columns import Decoder, Encoder
from trueup.connectors.rocketmq.replication.records.plain import columns_of
from trueup.connectors.rocketmq.replication.writer import batches
from trueup.state.common.errors import BadBytes
from trueup.state.replication.provenance import HEADER

Batch = tuple[BatchHeader, memoryview]
TEXT = st.text(max_size=70).map(str.encode)
LONG = st.tuples(st.none() | TEXT, st.none() | BODIES, st.just(0), st.lists(st.tuples(st.text(max_size=70), TEXT)))
PLAIN = st.tuples(st.none() | TEXT, st.none() | BODIES, st.just(0), st.lists(st.tuples(NAMES, TEXT), max_size=3))
ANY = RECORDS | PLAIN | LONG
DELTAS = st.integers(-(1 << 40), 1 << 40)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "LEAST", 1)
    monkeypatch.setattr(block, "LEAST", 1)
    monkeypatch.setattr(decode, "LEAST", 1)
    monkeypatch.setattr(encode, "LEAST", 1)


@pytest.fixture(params=[1, 1 << 30], ids=["arrays", "one by one"])
def either(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Both ways to read and write records."""
    monkeypatch.setattr(decode, "LEAST", request.param)
    monkeypatch.setattr(encode, "LEAST", request.param)


def part(raw: bytes | None) -> bytes:
    return zigzag(-1) if raw is None else zigzag(len(raw)) + raw


def body_of(records: Sequence[Record], deltas: Sequence[int]) -> bytes:
    """Records of a batch, one by one; with a time and a gap in their offsets of ``deltas``."""
    made = bytearray()
    for number, ((key, value, _, headers), delta) in enumerate(zip(records, deltas, strict=True)):
        record = b"\0" + zigzag(delta) + zigzag(2 * number) + part(key) + part(value) + zigzag(len(headers))
        record += b"".join(part(name.encode("utf-8", "surrogatepass")) + part(content) for name, content in headers)
        made += zigzag(len(record)) + record
    return bytes(made)


def unlinked(_producer: int) -> bytes:
    """The path of batches that no link wrote."""
    return b""


def batch_of(records: Sequence[Record], deltas: Sequence[int], offset: int, attributes: int = 0) -> Batch:
    last = 2 * len(records)
    header = BatchHeader(offset, 0, 1, 2, 0, attributes, last, BORN, BORN + 9, -1, -1, -1, len(records))
    return header, memoryview(body_of(records, deltas))


def encodable(record: Record) -> bool:
    """Whether all names of headers are text: those of RocketMQ's records may have lone surrogates."""
    return all(name.isascii() or name.encode("utf-8", "ignore").decode() == name for name, _ in record[3])


BATCH = st.lists(st.tuples(ANY.filter(encodable), DELTAS), max_size=4)


@pytest.mark.usefixtures("either")
@given(st.lists(BATCH, max_size=3), st.booleans())
def test_records_are_read_as_they_were_written(contents: list, appended: bool) -> None:
    batches = [
        batch_of([record for record, _ in rows], [delta for _, delta in rows], 100 * n, APPEND_TIME * appended)
        for n, rows in enumerate(contents)
    ]
    found, refused, _ = decoded(batches, "here", unlinked)
    wanted = [
        (100 * n + 2 * row, key, value, BORN + 9 if appended else BORN + delta, [*headers])
        for n, rows in enumerate(contents)
        for row, ((key, value, _, headers), delta) in enumerate(rows)
    ]
    assert not refused
    assert [(*row[:4], [*row[4]]) for row in zip(*found.columns(), strict=True)] == wanted


@pytest.mark.usefixtures("either")
@given(BATCH.filter(bool), st.data())
def test_damaged_records_are_bad_bytes_or_records(rows: list, data: st.DataObject) -> None:
    header, body = batch_of([record for record, _ in rows], [0] * len(rows), 0)
    raw = bytearray(body)
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        found, refused, _ = decoded([(header, memoryview(raw))], "here", unlinked)
    except BadBytes:
        return
    assert refused or len(found.offsets) == len(rows)


def test_a_record_with_many_headers_is_read() -> None:
    headers: list[tuple[str, bytes | None]] = [(f"name {n}", b"%d" % n) for n in range(100)]
    columns, *_ = decoded([batch_of([(b"k", b"v", 0, headers), (None, b"", 0, [])], [0, 0], 0)], "here", unlinked)
    assert [[*each] for each in columns.columns().headers] == [headers, []]


def written(columns: Columns) -> list[tuple]:
    """The batches for records of a copy, one by one; properties without their order."""
    return [comparable(made.messages, made.born, made.body) for made in batches(Encoder().messages(columns, HERE))]


def comparable(count: int, born: int, body: bytes) -> tuple:
    found, at = [], 0
    while at < len(body):
        size = int.from_bytes(body[at : at + 4], "big")
        value = int.from_bytes(body[at + 16 : at + 20], "big")
        properties = body[at + 22 + value : at + size]
        assert int.from_bytes(body[at + 20 + value : at + 22 + value], "big") == len(properties)
        found.append((body[at : at + 20 + value], properties_of(properties)))
        at += size
    return count, born, found


@given(st.lists(st.tuples(ANY.filter(encodable), st.integers(0, 3)), min_size=1, max_size=5), st.data())
def test_records_become_messages_as_they_do_one_by_one(rows: list, data: st.DataObject) -> None:
    deltas = [delta for _, delta in rows]
    columns, *_ = decoded([batch_of([record for record, _ in rows], deltas, 7)], "here", unlinked)
    if not isinstance(columns, Packed):
        return
    start, stop = sorted(data.draw(st.tuples(st.integers(0, len(rows) - 1), st.integers(1, len(rows)))))
    copied = columns.tagged(PATH, PREFIX).cut(start, max(stop, start + 1))
    made = arrays.incoming(copied)
    if made is not None:
        found = [comparable(each.messages, each.born, each.body) for each in made.batches(1 << 20, HERE)]
        assert found == written(copied.columns())


@given(st.lists(st.sampled_from(["key", "ключ", None]), min_size=1, max_size=4), st.binary(max_size=9))
def test_usual_records_become_messages_as_arrays(keys: list, value: bytes) -> None:
    rows: list[Record] = [(key and key.encode(), value, 0, [("a", b"1"), ("TAGS", "é".encode())]) for key in keys]
    columns, *_ = decoded([batch_of(rows, [0] * len(rows), 7)], "here", unlinked)
    assert isinstance(columns, Packed)
    assert arrays.incoming(columns.tagged(PATH, PREFIX)) is not None


@pytest.mark.parametrize(("size", "fits"), [(MOST_SENT - 1_000, True), (MOST_SENT, False)])
def test_records_whose_properties_leave_no_room_for_those_of_a_broker_are_handled_one_by_one(
    size: int, fits: bool
) -> None:
    columns, *_ = decoded([batch_of([(b"k" * size, b"v", 0, [])], [0], 7)], "here", unlinked)
    assert isinstance(columns, Packed)
    assert (arrays.incoming(columns.tagged(PATH, PREFIX)) is not None) == fits


SAFE = st.characters(max_codepoint=127, exclude_characters="\x01\x02")
UNIQUE = st.none() | st.text(SAFE, max_size=40).map(str.encode)


@given(st.lists(st.tuples(UNIQUE, st.lists(st.sampled_from("abc"), unique=True), BODIES), min_size=1, max_size=5))
def test_copies_from_arrays_have_the_tag_that_a_reader_checks(rows: list) -> None:
    records: list[Record] = []
    for n, (unique, names, value) in enumerate(rows):
        headers = [(name, b"%d" % n) for name in names] + ([] if unique is None else [("UNIQ_KEY", unique)])
        records.append((b"k", value, 0, headers[::-1] if n % 2 else headers))
    columns, *_ = decoded([batch_of(records, [*range(len(rows))], 7)], "here", unlinked)
    assert isinstance(columns, Packed)
    made = arrays.incoming(columns.tagged(PATH, PREFIX))
    assert made is not None
    (sent,) = made.batches(1 << 20, HERE)
    again = [message for born in (sent.born, sent.born + 1) for message in stored(bytes(sent.body), born)]
    found = Decoder(raw=False).columns(stored_messages(again), HERE)
    tagged = [(HEADER, b"east#0") in headers for headers in found.columns.headers]
    assert (all(tagged[: len(rows)]), any(tagged[len(rows) :])) == (True, False)
    assert found.columns.stamps[: len(rows)] == tuple(BORN + n for n in range(len(rows)))
    assert [*found.foreign] == [0] * len(rows)


def stored(body: bytes, born: int) -> list[Message]:
    """The messages of a batch as a broker stores them."""
    found, at = list[Message](), 0
    while at < len(body):
        size, value = (int.from_bytes(body[where : where + 4], "big") for where in (at, at + 16))
        found.append(Message(body[at + 20 : at + 20 + value], body[at + 22 + value : at + size], born=born, offset=0))
        at += size
    return found


def stored_messages(messages: Sequence[Message]) -> StoredMessages:
    return decode_messages(memoryview(b"".join(message.encoded() for message in messages)), "here")


def test_the_headers_of_a_copy_are_those_that_the_pump_adds() -> None:
    columns, *_ = decoded([batch_of([(b"k", b"v", 0, [("a", b"1")])], [0], 7)], "here", unlinked)
    assert isinstance(columns, Packed)
    mark = next(iter(marks(PREFIX, [7])))
    assert [*columns.tagged(PATH, PREFIX).columns().headers[0]] == PATH.tagged([("a", b"1")], mark)


def together(messages: Sequence[Message]) -> Columns | None:
    found = scan(memoryview(b"".join(message.encoded() for message in messages)))
    return None if found is None else columns_of(found)


SENDER = BatchProducer(9, 1, 5)


def read_back(columns: Columns, codec: int, most: int) -> list[tuple]:
    """What a reader finds in the batches for some records."""
    found, sequence = list[tuple](), 0
    for made in records_of(columns).batches(codec, most):
        batch = made.sent_by(BatchProducer(9, 1, sequence))
        header = header_of(batch)
        assert sound(header, batch)
        assert (header.sequence, header.producer_id, header.epoch, header.records) == (sequence, 9, 1, made.records)
        rows = decoded([(header, opened(codec, batch[HEADER_BYTES:], "here"))], "here", unlinked)[0].columns()
        assert header.last_ms == max(rows.stamps)
        assert [*rows.offsets] == [*range(made.records)]
        found += ((*row[1:4], [*row[4]]) for row in zip(*rows, strict=True))
        sequence += made.records
    return found


@pytest.mark.usefixtures("either")
@given(BATCH.filter(bool), st.integers(0, 4), st.integers(0, 99))
def test_records_are_written_as_they_are(rows: list, codec: int, most: int) -> None:
    keys, values, _, headers = zip(*(record for record, _ in rows), strict=True)
    columns = Columns(range(len(rows)), keys, values, [BORN + delta for _, delta in rows], headers)
    wanted = [(*row[1:4], [*row[4]]) for row in zip(*columns, strict=True)]
    assert read_back(columns, codec, most) == wanted


@given(st.lists(st.tuples(BODIES, PAIRS, st.integers(BORN, BORN << 3)), min_size=1, max_size=5), st.data())
def test_messages_are_written_as_they_are_one_by_one(contents: list, data: st.DataObject) -> None:
    messages = list[Message]()
    for n, (body, pairs, born) in enumerate(contents):
        properties = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items()).encode()
        messages.append(Message(body, properties, offset=n, flag=0, born=born))
    columns = together(messages)
    assert isinstance(columns, Packed)
    start = data.draw(st.integers(0, len(contents) - 1))
    copied = columns.tagged(PATH, PREFIX).cut(start)
    made, rows = (
        [bytes(each.sent_by(SENDER)) for each in records_of(one).batches(0)] for one in (copied, copied.columns())
    )
    assert made == rows


@pytest.mark.usefixtures("either")
@given(st.lists(st.integers(-(2**61), 2**61) | st.sampled_from([0, -1, -1_000, 1]), min_size=1, max_size=20))
def test_times_are_written_as_they_are(stamps: list[int]) -> None:
    count = len(stamps)
    columns = Columns(range(count), [None] * count, [b""] * count, stamps, [[]] * count)
    found = [row[2] for row in read_back(columns, 0, 1 << 20)]
    assert found == stamps
