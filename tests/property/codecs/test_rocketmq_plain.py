"""Messages that become records together, and records of which each part becomes a property, are what they would be one
by one, whatever they contain."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.codecs.test_rocketmq_columns import MESSAGES, RECORDS, Record, message_of
from tests.property.codecs.test_rocketmq_native import DROPPED, PATH, PREFIX, TEXT, USUAL
from tests.unit.rocketmq.stored_messages import HERE, Message
from trueup.connectors.replication.headers import Headers, marks
from trueup.connectors.replication.ports import Columns
from trueup.connectors.rocketmq.protocol import block
from trueup.connectors.rocketmq.protocol.block import scan
from trueup.connectors.rocketmq.protocol.stored import decode
from trueup.connectors.rocketmq.replication.records.columns import Decoder, Encoder
from trueup.connectors.rocketmq.replication.records.plain import columns_of

ASCII = st.text(st.characters(max_codepoint=127, exclude_characters="\x01\x02"), max_size=8)
SHORT = DROPPED.filter(lambda name: len(name) <= block.SURE)
PAIRS = st.dictionaries(USUAL | SHORT, ASCII.filter(bool), max_size=6)
BODIES = st.binary(max_size=40)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block, "LEAST", 1)


def together(messages: Sequence[Message]) -> Columns | None:
    found = scan(memoryview(b"".join(message.encoded() for message in messages)))
    made = None if found is None else columns_of(found)
    return None if made is None else made.columns()


def one_by_one(messages: Sequence[Message]) -> Columns:
    raw = b"".join(message.encoded() for message in messages)
    return Decoder(raw=False).columns(decode(memoryview(raw), "here"), HERE)[0]


def lists(columns: Columns) -> list[list]:
    return [*([*column] for column in columns[:4]), [[*headers] for headers in columns.headers]]


@given(st.lists(st.tuples(BODIES, PAIRS, st.integers(0, 1 << 53)), min_size=1, max_size=5))
def test_usual_messages_become_what_they_become_one_by_one(contents: list) -> None:
    messages = [
        Message(
            body,
            "".join(f"{name}\x01{value}\x02" for name, value in pairs.items()).encode(),
            offset=n,
            flag=0,
            born=born,
        )
        for n, (body, pairs, born) in enumerate(contents)
    ]
    found = together(messages)
    assert found is not None
    assert lists(found) == lists(one_by_one(messages))


@given(st.lists(MESSAGES, min_size=1, max_size=3))
def test_any_messages_become_what_they_become_one_by_one(contents: list) -> None:
    messages = [replace(message_of(*content), offset=n) for n, content in enumerate(contents)]
    found = together(messages)
    assert found is None or lists(found) == lists(one_by_one(messages))


@given(BODIES, st.lists(st.tuples(USUAL, st.text(TEXT, max_size=3)), max_size=6), st.sampled_from([0, 0, 1]))
def test_unusual_messages_become_what_they_become_one_by_one(body: bytes, pairs: list, flag: int) -> None:
    message = Message(body, "".join(f"{name}\x01{value}\x02" for name, value in pairs).encode(), flag=flag)
    found = together([message])
    assert found is None or lists(found) == lists(one_by_one([message]))


def tagged(headers: Sequence[tuple[str, bytes | None]]) -> Headers:
    """The headers of a copy; those of a record that is not copied as they are."""
    return PATH.tagged(headers, next(marks(PREFIX, [7]))) or [*headers]


def written(record: Record, usual: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[list[bytes], list[int]]:
    key, value, stamp, headers = record
    with monkeypatch.context() as patch:
        if not usual:
            patch.setattr(Encoder, "_usual", lambda *_: b"")
        made = Encoder().messages(Columns([7], [key], [value], [stamp], [tagged(headers)]), HERE)
    return made.properties, made.flags


NAMES = st.sampled_from(["a", "b%", "%b", "TAGS", "DELAY", "own name"])
PLAIN = st.tuples(
    st.none() | ASCII.map(str.encode),
    BODIES,
    st.integers(0, 9),
    st.lists(st.tuples(NAMES, ASCII.map(str.encode)), max_size=4),
)


@given(PLAIN | RECORDS)
def test_a_usual_record_has_the_properties_that_any_record_has(record: Record) -> None:
    with pytest.MonkeyPatch.context() as patch:
        assert written(record, True, patch) == written(record, False, patch)


def test_a_usual_record_is_written_in_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Encoder, "_translated", None)
    assert written((b"key", b"value", 0, [("a", b"1"), ("50%", b"2")]), True, monkeypatch)[0][0].startswith(
        b"KEYS\x01key\x02a\x011\x0250%\x012\x02trueup-source\x01"
    )
