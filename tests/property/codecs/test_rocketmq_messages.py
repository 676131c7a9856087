"""Messages, batches, properties and headers of RocketMQ read back for any content."""

import json
import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.rocketmq.stored_messages import Message
from trueup.connectors.rocketmq.protocol import batch, frames, properties
from trueup.connectors.rocketmq.protocol.flags import BORN_IN_V6, STORED_IN_V6
from trueup.connectors.rocketmq.protocol.stored import decode

INT, LONG = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
SYS = st.sampled_from((0, BORN_IN_V6, STORED_IN_V6, BORN_IN_V6 | STORED_IN_V6)).flatmap(
    lambda hosts: st.integers(0, 0x7FF).map(lambda bits: bits & ~0x30 | hosts)
)
TOPIC = st.binary(max_size=200).map(lambda raw: raw.hex().encode()[:200])
MESSAGES = st.lists(
    st.builds(
        Message, st.binary(max_size=300), st.binary(max_size=100), TOPIC, INT, LONG, INT, SYS, LONG, LONG, INT, LONG
    ),
    max_size=6,
)
TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]))
PROPERTIES = st.dictionaries(TEXT, TEXT, max_size=8)


@given(MESSAGES)
def test_stored_messages_read_back_as_columns(messages: list[Message]) -> None:
    found = decode(memoryview(b"".join(message.encoded() for message in messages)), "here")
    assert [
        Message(bytes(body), bytes(props), topic.encode(), *map(int, numbers))
        for body, props, topic, *numbers in zip(
            found.bodies,
            found.properties,
            found.topics(),
            found.queues,
            found.offsets,
            found.flags,
            found.sys,
            found.born,
            found.stored,
            found.deliveries,
            found.physical,
            strict=True,
        )
    ] == messages


def unpacked(body: bytes) -> list[tuple[bytes, bytes, int]]:
    """As the broker does it (MessageDecoder.decodeMessage)."""
    found, at = [], 0
    while at < len(body):
        size, magic, crc, flag, length = struct.unpack_from(">iiiii", body, at)
        more = struct.unpack_from(">h", body, at + 20 + length)[0]
        assert (magic, crc, size) == (0, 0, 22 + length + more)
        found.append((body[at + 20 : at + 20 + length], body[at + 22 + length : at + size], flag))
        at += size
    return found


@given(st.lists(st.tuples(st.binary(max_size=300), st.binary(max_size=100), INT), max_size=6))
def test_a_batch_reads_back(messages: list[tuple[bytes, bytes, int]]) -> None:
    bodies, props, flags = ([message[n] for message in messages] for n in range(3))
    body = batch.encode(bodies, props, flags)  # type: ignore[arg-type]
    assert unpacked(body) == messages
    assert len(body) == sum(batch.size_of(len(m[0]), len(m[1])) for m in messages)


@given(PROPERTIES)
def test_properties_read_back(found: dict[str, str]) -> None:
    assert properties.decoded(properties.encoded(found)) == found


@given(st.binary(max_size=100))
def test_properties_that_are_not_text_are_kept(raw: bytes) -> None:
    found = properties.decoded(raw)
    assert properties.decoded(properties.encoded(found)) == found


@given(PROPERTIES, st.sets(TEXT.filter(bool), min_size=1, max_size=4))
def test_stripping_removes_exactly_the_named_properties(found: dict[str, str], names: set[str]) -> None:
    left = properties.without(names).sub(b"", properties.encoded(found))
    assert left == properties.encoded({name: value for name, value in found.items() if name not in names})


@given(st.dictionaries(st.text(), st.text(), max_size=5), st.binary(max_size=50), st.integers(0, 1 << 31))
def test_a_header_reads_back(fields: dict[str, str], body: bytes, opaque: int) -> None:
    raw = frames.encoded(11, opaque, fields, body)
    header, rest = frames.split(memoryview(raw)[4:], "here")
    assert (header.opaque, header.fields, bytes(rest), len(raw)) == (opaque, fields, body, 4 + int.from_bytes(raw[:4]))


NESTED = st.recursive(
    st.text() | INT | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(INT | st.text(), inner, max_size=3),
    max_leaves=8,
)


def lenient(value: Any) -> str:
    """JSON in which integer keys have no quotes."""
    if isinstance(value, dict):
        keys = [str(key) if isinstance(key, int) else json.dumps(key) for key in value]
        return "{" + ",".join(f"{key}:{lenient(v)}" for key, v in zip(keys, value.values(), strict=True)) + "}"
    return f"[{','.join(map(lenient, value))}]" if isinstance(value, list) else json.dumps(value)


def quoted(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): quoted(each) for key, each in value.items()}
    return [quoted(each) for each in value] if isinstance(value, list) else value


@given(NESTED)
def test_integer_keys_become_texts_wherever_they_are(value: Any) -> None:
    assert frames.parsed(lenient(value).encode(), "here") == quoted(value)
