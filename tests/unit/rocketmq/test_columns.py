"""What messages become in other systems, and records in RocketMQ."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.unit.rocketmq.stored_messages import HERE, Message
from trueup.connectors.replication.headers import MARK
from trueup.connectors.replication.ports import Columns
from trueup.connectors.rocketmq.protocol.compression import LZ4, closed
from trueup.connectors.rocketmq.protocol.properties import MOST_SENT
from trueup.connectors.rocketmq.protocol.stored import StoredMessages, decode
from trueup.connectors.rocketmq.replication.records import columns, names
from trueup.connectors.rocketmq.replication.records.binding import Binding
from trueup.connectors.rocketmq.replication.records.columns import (
    DecodedMessages,
    Decoder,
    Encoder,
    Header,
    OutgoingMessages,
    mark_in,
)
from trueup.state.replication.provenance import HEADER

NATURE = b"KEYS\x01k1 k2\x02TAGS\x01paid\x02__SHARDINGKEY\x01fifo\x02own\x01\xc3\xbc\x02UNIQ_KEY\x017F00\x02"
TRAPS = [
    "DELAY",
    "REAL_TOPIC",
    "REAL_QID",
    "TRAN_MSG",
    "PGROUP",
    "TIMER_DELAY_SEC",
    "TIMER_OUT_MS",
    "INNER_NUM",
    "CLUSTER",
    "MSG_REGION",
    "TRACE_ON",
]


def decoded(
    message: Message, raw: bool = False, there: Binding = HERE, replicated: bool = False, **called: str
) -> DecodedMessages:
    names = {name.encode(): known.encode() for name, known in called.items()}
    return Decoder(raw, replicated, names).columns(decode(memoryview(message.encoded()), "here"), there)


def read(message: Message, raw: bool = False) -> Columns:
    return decoded(message, raw).columns


def written(
    key: bytes | None = None, value: bytes | None = b"v", *headers: tuple[str, bytes | None], stamp: int = 5
) -> OutgoingMessages:
    return Encoder().messages(Columns([0], [key], [value], [stamp], [headers]), HERE)


def test_keys_tags_and_properties_become_key_and_headers() -> None:
    found = read(Message(b"body", NATURE, flag=0))
    assert (found.keys, found.values, found.stamps) == ((b"k1 k2",), (b"body",), (1_000,))
    assert found.headers[0] == [
        ("TAGS", b"paid"),
        ("__SHARDINGKEY", b"fifo"),
        ("own", "ü".encode()),
        ("UNIQ_KEY", b"7F00"),
    ]


def test_key_and_text_headers_become_keys_and_properties() -> None:
    made = written(b"k1", b"v", ("TAGS", b"paid"), ("own", "ü".encode()))
    assert made.properties == [b"KEYS\x01k1\x02TAGS\x01paid\x02own\x01\xc3\xbc\x02"]


@pytest.mark.parametrize("name", TRAPS)
@pytest.mark.parametrize("raw", [True, False])
def test_what_a_broker_added_is_not_sent_again(name: str, raw: bool) -> None:
    found = read(Message(b"body", f"{name}\x013\x02a\x011\x02".encode(), flag=0), raw)
    assert Encoder(raw).messages(found, HERE).properties == [b"a\x011\x02"]


@pytest.mark.parametrize("name", [*TRAPS, "KEYS", "RETRY_TOPIC", "trueup-time", "", "a\x01", "__RMQ.TRANSIENT.a"])
def test_a_header_with_a_name_of_rocketmq_is_no_property(name: str) -> None:
    [properties] = written(None, b"v", (name, b"1")).properties
    assert [pair.partition(b"\x01")[0] for pair in properties.split(b"\x02")] == [b"trueup-record", b""]


@pytest.mark.parametrize("key", [b"", b"\xff", b"a\x01", b"a\x02"])
def test_a_key_that_is_not_text_is_no_keys(key: bytes) -> None:
    assert b"KEYS" not in written(key).properties[0]


def test_a_null_value_is_not_an_empty_one() -> None:
    null, empty = written(None, None), written(None, b"")
    assert (null.bodies, empty.bodies) == ([b""], [b""])
    assert null.properties != empty.properties == [b""]


def copies(*stamps: int, body: bytes = b"v", more: Sequence[Header] = ()) -> list[Message]:
    """What a broker stores for copies of records with these times, in one batch."""
    count = len(stamps)
    headers = [(("a", b"1"), *more, (HEADER, b"east"), (MARK, bytes(16))) for _ in stamps]
    made = Encoder().messages(Columns(range(count), [None] * count, [body] * count, stamps, headers), HERE)
    rows = zip(made.bodies, made.properties, made.born, strict=True)
    return [Message(each, props, born=born, offset=n, flag=0) for n, (each, props, born) in enumerate(rows)]


@pytest.mark.parametrize("raw", [True, False])
def test_each_copy_of_a_batch_has_its_own_time(raw: bool) -> None:
    times = 5, 6, 0, -1, -1_000, 1, 1_700_000_000_000_000_000, (1 << 63) - 1, -(1 << 63)
    made = copies(*times)
    assert {message.born for message in made} == {5}
    assert tuple(read(message, raw).stamps[0] for message in made) == times


def test_records_that_are_no_copies_have_the_time_of_birth_itself() -> None:
    made = Encoder().messages(Columns([0, 1], [None] * 2, [b"v"] * 2, [5, -6], [(), ()]), HERE)
    assert (made.born, made.properties) == ([5, -6], [b"", b""])


def test_a_time_that_an_application_passed_on_is_not_that_of_the_message() -> None:
    assert read(Message(b"body", b"trueup-time\x0177\x02", born=9)).stamps == (9,)


def test_a_record_that_no_message_can_be_is_refused_after_those_before_it() -> None:
    rows = [(None, b"v", 5, (("a", b"x" * size),)) for size in (10, 40_000, 10)]
    made = Encoder().messages(Columns(range(3), *zip(*rows, strict=True)), HERE)
    assert (len(made.bodies), "31743" in made.refused) == (1, True)


@pytest.mark.parametrize(("size", "sent"), [(MOST_SENT, 1), (MOST_SENT + 1, 0)])
@pytest.mark.parametrize("raw", [True, False])
def test_properties_leave_room_for_those_that_a_broker_adds(size: int, sent: int, raw: bool) -> None:
    """A broker adds CLUSTER and a checksum, and does not check the sum (MessageExtEncoder.java)."""
    value = b"x" * (size - len(b"a\x01\x02"))
    given = (names.RAW, b"a\x01" + value + b"\x02") if raw else ("a", value)
    assert len(Encoder(raw).messages(Columns([0], [None], [b"v"], [5], [[given]]), HERE).bodies) == sent


def test_a_compressed_body_is_opened_for_other_systems_only() -> None:
    body, sys = closed(b"long" * 100, LZ4)
    message = Message(body, sys=sys)
    assert read(message).values == (b"long" * 100,)
    made = Encoder(raw=True).messages(read(message, raw=True), HERE)
    assert (made.bodies, made.sys) == ([body], [sys])


def several(*bodies: tuple[bytes, int]) -> StoredMessages:
    raw = b"".join(Message(body, offset=n, sys=sys).encoded() for n, (body, sys) in enumerate(bodies))
    return decode(memoryview(raw), "here")


@pytest.mark.parametrize("first", [0, 1])
def test_the_records_end_with_one_whose_body_cannot_be_opened(first: int) -> None:
    good, damaged = closed(b"good" * 100, LZ4), (b"damaged", closed(b"", LZ4)[1])
    found, refused, _ = Decoder(raw=False).columns(several(good, (b"plain", 0), damaged, good), HERE, first)
    assert (found.values, found.offsets) == ((b"good" * 100, b"plain", b"damaged")[first:], (0, 1, 2)[first:])
    assert "a compressed body" in refused


def test_a_body_that_is_damaged_passes_between_clusters_of_rocketmq() -> None:
    damaged = b"damaged", closed(b"", LZ4)[1]
    found, refused, _ = Decoder(raw=True).columns(several(damaged, (b"plain", 0)), HERE)
    assert (found.values, refused) == ((b"damaged", b"plain"), "")


def test_decompressed_bodies_have_limited_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "ROOM", 1_000)
    large = closed(bytes(600), LZ4)
    found, refused, _ = Decoder(raw=False).columns(several((bytes(5_000), 0), large, large, large), HERE)
    assert (found.offsets, refused) == ((0, 1, 2), "")


def test_the_flag_survives_in_another_system() -> None:
    assert Encoder().messages(read(Message(flag=-7)), HERE).flags == [-7]


def test_a_copy_names_the_clusters_passed_and_that_of_its_birth() -> None:
    made = written(None, b"v", (HEADER, b"hangzhou#2,#4"), (MARK, bytes(16)))
    assert made.properties[0].split(b"\x02")[:2] == [
        b"trueup-source\x01hangzhou#2,#4",
        b"ROCKETMQ_REPLICATOR_SOURCE\x01hangzhou",
    ]


@pytest.mark.parametrize("raw", [True, False])
def test_a_tag_counts_at_the_message_that_a_link_wrote(raw: bool) -> None:
    [copy] = copies(5)
    found = decoded(copy, raw)
    assert (dict(found.columns.headers[0])[HEADER], found.foreign) == (b"east", [])


AGAIN = {
    "at another time": lambda copy: (replace(copy, born=copy.born + 1), HERE),
    "in another topic": lambda copy: (copy, Binding("0" * 32, HERE.log._replace(topic="other"))),
    "in another queue": lambda copy: (copy, Binding("0" * 32, HERE.log._replace(number=4))),
    "in another cluster": lambda copy: (copy, Binding("1" * 32, HERE.log)),
    "with another body": lambda copy: (replace(copy, body=copy.body + b"."), HERE),
    "with a key of its own": lambda copy: (replace(copy, properties=b"UNIQ_KEY\x01new\x02" + copy.properties), HERE),
    "with another path": lambda copy: (replace(copy, properties=copy.properties.replace(b"east", b"west")), HERE),
    "with another time": lambda copy: (replace(copy, properties=copy.properties + b"trueup-time\x019\x02"), HERE),
    "without the mark": lambda copy: (replace(copy, properties=copy.properties.replace(b"trueup-offset", b"x")), HERE),
}


@pytest.mark.parametrize("how", AGAIN)
@pytest.mark.parametrize("raw", [True, False])
def test_a_message_that_is_sent_again_is_born_anew(how: str, raw: bool) -> None:
    [copy] = copies(5)
    again, there = AGAIN[how](copy)
    found = decoded(again, raw, there)
    assert ([name for name, _ in found.columns.headers[0] if name in (HEADER, MARK)], found.foreign) == ([], [0])
    assert found.columns.stamps == (again.born,)
    assert mark_in(again.properties, again.born, len(again.body), there) is None
    [properties] = Encoder(raw).messages(found.columns, HERE).properties
    assert names.FOREIGN.isdisjoint(pair.partition(b"\x01")[0] for pair in properties.split(b"\x02"))


def test_a_copy_keeps_its_tag_in_every_queue_of_the_same_number() -> None:
    """Brokers can get another name."""
    [copy] = copies(5)
    assert decoded(copy, there=Binding("0" * 32, HERE.log._replace(place="renamed"))).foreign == []


THEIRS = [
    (b"ROCKETMQ_REPLICATOR_SOURCE\x01a\x02", b"a"),
    (b"REPLICATOR-BORN-SOURCE\x01c_x_r,c_y_r,\x02", b"east,c_y_r"),
    (b"connect-ext-REPLICATOR-BORN-SOURCE\x01abc_x_r,\x02", b"abc_x_r"),
    (b"connect-ext-trueup-source\x01a#3,b\x02connect-ext-ROCKETMQ_REPLICATOR_SOURCE\x01a\x02", b"a#3,b,a"),
    (b"ROCKETMQ_REPLICATOR_SOURCE\x01a#3\x02", b"a?3"),
]


@pytest.mark.parametrize(("properties", "passed"), THEIRS)
@pytest.mark.parametrize("raw", [True, False])
def test_the_marks_of_another_replicator_count_where_it_is_declared(
    properties: bytes, passed: bytes, raw: bool
) -> None:
    message = Message(b"body", properties, flag=0, offset=0)
    found, other = (decoded(message, raw, replicated=there, c_x_r="east") for there in (True, False))
    assert (dict(found.columns.headers[0])[HEADER], found.foreign) == (passed, [])
    assert (HEADER in dict(other.columns.headers[0]), other.foreign) == (False, [0])


@pytest.mark.parametrize("raw", [True, False])
def test_the_tag_of_a_copy_that_is_sent_again_is_not_that_of_another_replicator(raw: bool) -> None:
    [copy] = copies(5)
    found = decoded(replace(copy, born=6), raw, replicated=True)
    assert (HEADER in dict(found.columns.headers[0]), found.foreign) == (False, [0])


def test_a_header_with_the_name_of_a_tag_is_none() -> None:
    """A record of another system, in which its application wrote such headers."""
    [properties] = written(None, b"v", (HEADER, b"west"), ("a", b"1"), (MARK, bytes(16)), ("b", None)).properties
    assert b"west" not in properties
    found = decoded(Message(b"v", properties, flag=0, offset=0))
    assert ([*found.columns.headers[0]], found.foreign) == ([("a", b"1"), ("b", None)], [])


def test_a_forged_part_of_a_record_is_no_tag() -> None:
    rest = names.to_base64(
        b"\0"
        + (0).to_bytes(4, "big")
        + len(HEADER).to_bytes(4, "big")
        + (4).to_bytes(4, "big")
        + HEADER.encode()
        + b"west"
    )
    found = decoded(Message(b"v", b"trueup-record\x01" + rest + b"\x02", flag=0, offset=0))
    assert (found.columns.headers[0], found.foreign) == ([], [0])


def test_the_keys_of_a_message_that_is_sent_again_are_its_key() -> None:
    [properties] = written(b"\xff").properties
    assert read(Message(b"v", properties)).keys == (b"\xff",)
    assert read(Message(b"v", b"KEYS\x01new\x02" + properties)).keys == (b"new",)


def test_the_mark_of_a_copy_is_found_in_its_properties() -> None:
    mark = b"prefix!!" + (77).to_bytes(8, "big")
    [raw] = written(b"k", b"v", (HEADER, b"a"), (MARK, mark)).properties
    assert mark_in(raw, 5, 1, HERE) == (b"prefix!!", 77)


@pytest.mark.parametrize(
    "raw", [b"", b"a\x011\x02", b"trueup-offset\x01AAAA\x02", b"xtrueup-offset\x01" + b"A" * 32 + b"\x02"]
)
def test_properties_without_a_mark_have_none(raw: bytes) -> None:
    assert mark_in(raw, 5, 1, HERE) is None
