"""What messages become in other systems, and records in RocketMQ."""

import pytest

from tests.unit.rocketmq.stored_messages import Message
from trueup.connectors.replication.headers import MARK
from trueup.connectors.replication.ports import Columns
from trueup.connectors.rocketmq.protocol.compression import LZ4, closed
from trueup.connectors.rocketmq.protocol.stored import Stored, decode
from trueup.connectors.rocketmq.replication.records import columns
from trueup.connectors.rocketmq.replication.records.columns import Decoder, Encoder, Messages, mark_in
from trueup.state.replication.provenance import HEADER

NATURE = b"KEYS\x01k1 k2\x02TAGS\x01paid\x02__SHARDINGKEY\x01fifo\x02own\x01\xc3\xbc\x02UNIQ_KEY\x017F00\x02"
TRAPS = ["DELAY", "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP", "TIMER_DELAY_SEC", "TIMER_OUT_MS", "INNER_NUM",
         "CLUSTER", "MSG_REGION", "TRACE_ON"]  # fmt: skip


def read(message: Message, raw: bool = False, **called: str) -> Columns:
    names = {name.encode(): known.encode() for name, known in called.items()}
    return Decoder(raw, names).columns(decode(memoryview(message.encoded()), "here"), "here")[0]


def written(
    key: bytes | None = None, value: bytes | None = b"v", *headers: tuple[str, bytes | None], stamp: int = 5
) -> Messages:
    return Encoder().messages(Columns([0], [key], [value], [stamp], [headers]))


def test_keys_tags_and_properties_become_key_and_headers() -> None:
    found = read(Message(b"body", NATURE, flag=0))
    assert (found.keys, found.values, found.stamps) == ((b"k1 k2",), (b"body",), (1_000,))
    assert found.headers[0] == [
        ("TAGS", b"paid"), ("__SHARDINGKEY", b"fifo"), ("own", "ü".encode()), ("UNIQ_KEY", b"7F00"),
    ]  # fmt: skip


def test_key_and_text_headers_become_keys_and_properties() -> None:
    made = written(b"k1", b"v", ("TAGS", b"paid"), ("own", "ü".encode()))
    assert made.properties == [b"KEYS\x01k1\x02TAGS\x01paid\x02own\x01\xc3\xbc\x02"]


@pytest.mark.parametrize("name", TRAPS)
@pytest.mark.parametrize("raw", [True, False])
def test_what_a_broker_added_is_not_sent_again(name: str, raw: bool) -> None:
    found = read(Message(b"body", f"{name}\x013\x02a\x011\x02".encode(), flag=0), raw)
    assert Encoder(raw).messages(found).properties == [b"a\x011\x02"]


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


def test_a_time_that_differs_from_that_of_the_batch_is_a_property() -> None:
    made = Encoder().messages(Columns([0, 1], [None] * 2, [b"v"] * 2, [5, 6], [(), ()]))
    assert (made.born, made.properties) == (5, [b"", b"trueup-time\x016\x02"])


def test_the_time_of_birth_of_a_copy_is_that_of_the_original() -> None:
    assert read(Message(b"body", b"trueup-time\x0177\x02", born=9)).stamps == (77,)


def test_a_record_that_no_message_can_be_is_refused_after_those_before_it() -> None:
    rows = [(None, b"v", 5, (("a", b"x" * size),)) for size in (10, 40_000, 10)]
    made = Encoder().messages(Columns(range(3), *zip(*rows, strict=True)))
    assert (len(made.bodies), "32767" in made.refused) == (1, True)


def test_a_compressed_body_is_opened_for_other_systems_only() -> None:
    body, sys = closed(b"long" * 100, LZ4)
    message = Message(body, sys=sys)
    assert read(message).values == (b"long" * 100,)
    made = Encoder(raw=True).messages(read(message, raw=True))
    assert (made.bodies, made.sys) == ([body], [sys])


def several(*bodies: tuple[bytes, int]) -> Stored:
    raw = b"".join(Message(body, offset=n, sys=sys).encoded() for n, (body, sys) in enumerate(bodies))
    return decode(memoryview(raw), "here")


@pytest.mark.parametrize("first", [0, 1])
def test_the_records_end_with_one_whose_body_cannot_be_opened(first: int) -> None:
    good, damaged = closed(b"good" * 100, LZ4), (b"damaged", closed(b"", LZ4)[1])
    found, refused = Decoder(raw=False).columns(several(good, (b"plain", 0), damaged, good), "here", first)
    assert (found.values, found.offsets) == ((b"good" * 100, b"plain", b"damaged")[first:], (0, 1, 2)[first:])
    assert "a compressed body" in refused


def test_a_body_that_is_damaged_passes_between_clusters_of_rocketmq() -> None:
    damaged = b"damaged", closed(b"", LZ4)[1]
    found, refused = Decoder(raw=True).columns(several(damaged, (b"plain", 0)), "here")
    assert (found.values, refused) == ((b"damaged", b"plain"), "")


def test_decompressed_bodies_have_limited_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "ROOM", 1_000)
    large = closed(bytes(600), LZ4)
    found, refused = Decoder(raw=False).columns(several((bytes(5_000), 0), large, large, large), "here")
    assert (found.offsets, refused) == ((0, 1, 2), "")


def test_the_flag_survives_in_another_system() -> None:
    assert Encoder().messages(read(Message(flag=-7))).flags == [-7]


def test_a_copy_names_the_clusters_passed_and_that_of_its_birth() -> None:
    made = written(None, b"v", (HEADER, b"hangzhou,lake"), (MARK, bytes(16)))
    assert made.properties[0].split(b"\x02")[:2] == [
        b"trueup-source\x01hangzhou,lake", b"ROCKETMQ_REPLICATOR_SOURCE\x01hangzhou",
    ]  # fmt: skip


@pytest.mark.parametrize(("properties", "passed"), [
    (b"trueup-source\x01a,b\x02ROCKETMQ_REPLICATOR_SOURCE\x01a\x02", b"a,b"),
    (b"ROCKETMQ_REPLICATOR_SOURCE\x01a\x02", b"a"),
    (b"REPLICATOR-BORN-SOURCE\x01c_x_r,c_y_r,\x02", b"east,c_y_r"),
    (b"connect-ext-REPLICATOR-BORN-SOURCE\x01abc_x_r,\x02", b"abc_x_r"),
])  # fmt: skip
@pytest.mark.parametrize("raw", [True, False])
def test_the_marks_of_replicators_are_the_clusters_passed(properties: bytes, passed: bytes, raw: bool) -> None:
    [headers] = read(Message(b"body", properties, flag=0), raw, c_x_r="east").headers
    assert dict(headers)[HEADER] == passed


def test_the_mark_of_a_copy_is_found_in_its_properties() -> None:
    mark = b"prefix!!" + (77).to_bytes(8, "big")
    [raw] = written(b"k", b"v", (HEADER, b"a"), (MARK, mark)).properties
    assert mark_in(raw) == (b"prefix!!", 77)


@pytest.mark.parametrize(
    "raw", [b"", b"a\x011\x02", b"trueup-offset\x01AAAA\x02", b"xtrueup-offset\x01" + b"A" * 22 + b"==\x02"]
)
def test_properties_without_a_mark_have_none(raw: bytes) -> None:
    assert mark_in(raw) is None
