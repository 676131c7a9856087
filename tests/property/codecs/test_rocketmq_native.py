"""Messages that are copied together are what they would be one by one, whatever they contain."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.property.codecs.test_rocketmq_columns import MESSAGES, message_of
from tests.unit.rocketmq.stored_messages import HERE, Message
from trueup.connectors.contract import Endpoint
from trueup.connectors.replication.headers import Path, marks
from trueup.connectors.replication.ports import Columns
from trueup.connectors.rocketmq.protocol import batch, block
from trueup.connectors.rocketmq.protocol.block import scan
from trueup.connectors.rocketmq.protocol.stored import decode
from trueup.connectors.rocketmq.replication.records import names
from trueup.connectors.rocketmq.replication.records.columns import Decoder, Encoder
from trueup.connectors.rocketmq.replication.records.native import NativeRows, rows_of
from trueup.state.common.errors import BadBytes
from trueup.state.replication.provenance import HEADER

PATH = Path(*(Endpoint(name, "", bit, system="rocketmq") for bit, name in enumerate(("east", "west"))), forward=False)
PREFIX = b"12345678"
BORN = 1_700_000_000_000
USUAL = st.sampled_from(["KEYS", "TAGS", "own", "UNIQ_KEY", "a", "__SHARDINGKEY", "a name of 17 bytes"])
DROPPED = st.sampled_from(sorted(name.decode() for name in names.STORED_BY_BROKER))
TEXT = st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"])
PAIRS = st.lists(st.tuples(USUAL | DROPPED, st.text(TEXT, max_size=8)), max_size=6)
COMMON = st.tuples(st.binary(max_size=40), PAIRS, st.integers(-(1 << 31), (1 << 31) - 1), st.integers(0, 3))


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block, "LEAST", 1)


def one_by_one(raw: bytes, rows: slice = slice(None)) -> bytes:
    """The body of a batch with these messages, as columns make it."""
    columns = Decoder(raw=True).columns(decode(memoryview(raw), "here"), HERE)[0].cut(rows.start or 0, rows.stop)
    headers = [
        PATH.tagged(given, mark) for given, mark in zip(columns.headers, marks(PREFIX, columns.offsets), strict=True)
    ]
    made = Encoder(raw=True).messages(columns._replace(headers=headers), HERE)
    return batch.encode(made.bodies, made.properties, made.flags)


def together(raw: bytes) -> NativeRows | None:
    found = scan(memoryview(raw))
    return None if found is None else rows_of(found, Columns)


def stored(messages: Sequence[Message]) -> bytes:
    return b"".join(message.encoded() for message in messages)


def common(content: tuple[bytes, list[tuple[str, str]], int, int], offset: int) -> Message:
    body, pairs, flag, late = content
    properties = "".join(f"{name}\x01{value}\x02" for name, value in pairs)
    return Message(body, properties.encode(), offset=offset, flag=flag, born=BORN + late)


@given(st.lists(COMMON, min_size=1, max_size=5), st.data())
def test_usual_messages_are_what_they_are_one_by_one(contents: list, data: st.DataObject) -> None:
    raw = stored([common(content, n) for n, content in enumerate(contents)])
    rows = together(raw)
    long = any(
        len(name) > block.SURE and name.encode() in names.STORED_BY_BROKER for _, p, _, _ in contents for name, _ in p
    )
    assert (rows is None) == long
    assume(rows is not None)
    assert rows is not None
    start = data.draw(st.integers(0, len(contents) - 1))
    stop = data.draw(st.integers(start + 1, len(contents)))
    made = [*rows.cut(start, stop).tagged(PATH, PREFIX).batches(1 << 20, HERE)]
    assert [(each.messages, each.body) for each in made] == [(stop - start, one_by_one(raw, slice(start, stop)))]


@given(st.lists(MESSAGES, min_size=1, max_size=3))
def test_any_messages_are_what_they_are_one_by_one(contents: list) -> None:
    messages = [message_of(*content) for content in contents]
    raw = stored([replace(message, offset=n) for n, message in enumerate(messages)])
    rows = together(raw)
    if rows is not None:
        assert b"".join(each.body for each in rows.tagged(PATH, PREFIX).batches(1 << 20, HERE)) == one_by_one(raw)


@given(st.data())
def test_damage_is_left_to_the_reader_of_single_messages(data: st.DataObject) -> None:
    raw = bytearray(stored([Message(b"body", b"a\x01b\x02", offset=n, born=BORN) for n in range(3)]))
    for at, value in data.draw(st.lists(st.tuples(st.integers(0, len(raw) - 1), st.integers(0, 255)), max_size=3)):
        raw[at] = value
    try:
        decode(memoryview(raw), "here")
    except BadBytes:
        assert scan(memoryview(raw)) is None


@given(st.lists(COMMON, min_size=1, max_size=5))
def test_a_copy_from_arrays_has_the_tag_that_a_reader_checks(contents: list) -> None:
    rows = together(stored([common(content, n) for n, content in enumerate(contents)]))
    assume(rows is not None)
    assert rows is not None
    (made,) = rows.tagged(PATH, PREFIX).batches(1 << 20, HERE)
    found, at, body = list[Message](), 0, bytes(made.body)
    while at < len(body):
        size, length = (int.from_bytes(body[where : where + 4], "big") for where in (at, at + 16))
        found.append(Message(body[at + 20 : at + 20 + length], body[at + 22 + length : at + size], born=made.born))
        at += size
    decoder, again = Decoder(raw=True), [replace(message, born=made.born + 1) for message in found]
    one, other = (decoder.columns(decode(memoryview(stored(some)), "here"), HERE) for some in (found, again))
    assert (one.columns.stamps, [*one.foreign]) == (tuple(BORN + late for *_, late in contents), [])
    assert all((HEADER, b"east#0") in headers for headers in one.columns.headers)
    assert len(other.foreign) == len(contents)
