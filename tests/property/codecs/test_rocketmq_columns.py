"""Nothing of a record or message is lost between systems, there and back, whatever it contains."""

from collections.abc import Sequence
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.rocketmq.stored_messages import HERE, Message
from trueup.connectors.replication.headers import MARK
from trueup.connectors.replication.ports import Columns
from trueup.connectors.rocketmq.protocol.compression import LZ4, ZLIB, ZSTD, closed
from trueup.connectors.rocketmq.protocol.stored import StoredMessages, decode
from trueup.connectors.rocketmq.replication.records import names
from trueup.connectors.rocketmq.replication.records.columns import Decoder, Encoder
from trueup.state.replication.provenance import HEADER

OURS = {HEADER, MARK, names.NATIVE}
KNOWN = [name.decode() for name in sorted(names.RESERVED | {*names.OTHERS, b"TAGS", b"UNIQ_KEY", b"WAIT", b"a", b"b"})]
NAMES = st.sampled_from([name for name in KNOWN if name not in OURS]) | st.text(max_size=5)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.none() | st.binary(max_size=8) | TEXT.map(str.encode)
HEADERS = st.lists(st.tuples(NAMES, VALUES), max_size=6)
RECORDS = st.tuples(VALUES, VALUES, st.integers(-1, 1 << 53), HEADERS)
Record = tuple[bytes | None, bytes | None, int, Sequence[tuple[str, bytes | None]]]

NAME = st.sampled_from(sorted(names.RESERVED | {b"TAGS", b"a", b"b", b"__RMQ.TRANSIENT.a"})) | TEXT.map(str.encode)
PART = st.binary(max_size=6)
PAIRS = st.lists(
    st.tuples(
        (NAME | PART).map(lambda raw: raw.replace(b"\x01", b"").replace(b"\x02", b"")),
        (PART | TEXT.map(str.encode)).map(lambda raw: raw.replace(b"\x02", b"")),
    ),
    max_size=6,
)
BODIES = st.tuples(st.binary(max_size=40), st.sampled_from((0, LZ4, ZSTD, ZLIB)))
MESSAGES = st.tuples(BODIES, PAIRS, st.integers(-(1 << 31), (1 << 31) - 1), st.integers(0, 1 << 53))


def columns_of(records: Sequence[Record]) -> Columns:
    return Columns(range(len(records)), *zip(*records, strict=True))


def stored(columns: Columns, raw: bool = False) -> StoredMessages:
    """What a broker returns for messages of these records."""
    made = Encoder(raw).messages(columns, HERE)
    assert made.refused == ""
    rows = zip(made.bodies, made.properties, made.flags, made.sys, made.born, count(), strict=False)
    return read([Message(body, props, offset=n, flag=f, sys=sys, born=b) for body, props, f, sys, b, n in rows])


def read(messages: Sequence[Message]) -> StoredMessages:
    return decode(memoryview(b"".join(message.encoded() for message in messages)), "here")


def theirs(headers: Sequence[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    return [header for header in headers if header[0] not in OURS]


@given(st.lists(RECORDS, min_size=1, max_size=3))
def test_a_record_comes_back_as_it_was(records: list[Record]) -> None:
    found = Decoder(raw=False).columns(stored(columns_of(records)), HERE).columns
    back = zip(found.keys, found.values, found.stamps, map(theirs, found.headers), strict=True)
    assert [*back] == [(key, value, stamp, [*headers]) for key, value, stamp, headers in records]


@given(st.lists(RECORDS, min_size=1, max_size=3))
def test_a_record_comes_back_from_two_clusters_of_rocketmq(records: list[Record]) -> None:
    copied = Decoder(raw=True).columns(stored(columns_of(records)), HERE).columns
    found = Decoder(raw=False).columns(stored(copied, raw=True), HERE).columns
    back = zip(found.keys, found.values, found.stamps, map(theirs, found.headers), strict=True)
    assert [*back] == [(key, value, stamp, [*headers]) for key, value, stamp, headers in records]


def kept(raw: bytes, order: bool = False) -> list[tuple[bytes, bytes]]:
    """The properties that a copy must have."""
    pairs = [(name, value) for name, sep, value in (pair.partition(b"\x01") for pair in raw.split(b"\x02")) if sep]
    left = [pair for pair in pairs if pair[0] not in names.STORED_BY_BROKER | names.TAG]
    return left if order else sorted(left)


def message_of(body: tuple[bytes, int], pairs: list[tuple[bytes, bytes]], flag: int, born: int) -> Message:
    raw, sys = closed(body[0], body[1]) if body[1] else (body[0], 0)
    return Message(
        raw, b"".join(name + b"\x01" + value + b"\x02" for name, value in pairs), flag=flag, sys=sys, born=born
    )


@given(MESSAGES)
def test_a_message_comes_back_as_it_was(content: tuple[tuple[bytes, int], list[tuple[bytes, bytes]], int, int]) -> None:
    (body, _), _, flag, _ = content
    message = message_of(*content)
    there = Decoder(raw=False).columns(read([message]), HERE).columns
    made = Encoder().messages(there, HERE)
    assert (made.bodies, made.flags, kept(made.properties[0])) == ([body], [flag], kept(message.properties))


@given(MESSAGES)
def test_between_clusters_of_rocketmq_a_message_passes_byte_for_byte(
    content: tuple[tuple[bytes, int], list[tuple[bytes, bytes]], int, int],
) -> None:
    message = message_of(*content)
    made = Encoder(raw=True).messages(Decoder(raw=True).columns(read([message]), HERE).columns, HERE)
    assert (made.bodies, made.flags, made.sys) == ([message.body], [message.flag], [message.sys])
    assert kept(made.properties[0], order=True) == kept(message.properties, order=True)


@given(st.binary(max_size=60))
def test_any_content_of_the_own_property_is_read(raw: bytes) -> None:
    message = Message(b"body", b"trueup-record\x01" + raw.replace(b"\x02", b"") + b"\x02")
    assert Decoder(raw=False).columns(read([message]), HERE).columns.values == (b"body",)
