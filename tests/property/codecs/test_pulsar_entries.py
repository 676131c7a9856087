"""Pulsar's entries read back for any content; damage is a `BadBytes` or other messages, and no other error."""

from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.pulsar.pulsar_entries import Part, batched, encoded, read
from trueup.connectors.pulsar import codecs
from trueup.connectors.pulsar.protocol.chunks import Chunks
from trueup.state.common.errors import BadBytes

LONG, VALUE = st.integers(-(1 << 63), (1 << 63) - 1), st.binary(max_size=60)
CODEC = st.sampled_from((codecs.NONE, codecs.LZ4, codecs.ZLIB, codecs.ZSTD, codecs.SNAPPY))
PAIRS = st.lists(st.tuples(VALUE, VALUE), max_size=3)
OWN: dict[str, Any] = {
    "properties": PAIRS,
    "partition_key": VALUE,
    "ordering_key": VALUE,
    "event_time": LONG,
    "sequence_id": LONG,
    "null_value": st.booleans(),
}
SINGLE = st.fixed_dictionaries({}, optional=OWN)
PART = st.tuples(VALUE, SINGLE)
BROKER = st.none() | st.fixed_dictionaries({}, optional={"broker_timestamp": LONG, "index": st.integers(0, 1 << 40)})
CHUNKED = {"uuid": VALUE, "num_chunks_from_msg": st.integers(-1, 4), "chunk_id": st.integers(-1, 4)}
ENTRY = st.builds(
    lambda parts, codec, broker, checksum, given: batched(
        parts, codec=codec, broker=broker, checksum=checksum, **given
    ),
    st.lists(PART, max_size=3),
    CODEC,
    BROKER,
    st.booleans(),
    st.fixed_dictionaries({}, optional=CHUNKED),
)


def expected(value: bytes, given: dict[str, Any], sequence: int = 5) -> tuple[Any, ...]:
    pairs = [tuple(text.decode(errors="surrogateescape") for text in pair) for pair in given.get("properties", ())]
    shown = None if given.get("null_value") else value
    own = (given.get("partition_key"), given.get("ordering_key"), given.get("event_time", 0))
    return shown, *own, given.get("sequence_id", sequence), tuple(pairs)


def found(data: bytes) -> list[tuple[Any, ...]]:
    return [(m.value, m.key, m.ordering_key, m.event_ms, m.sequence, m.properties) for m in read(data)]


@given(PART, CODEC, BROKER, st.booleans())
def test_single_messages_read_back(part: Part, codec: int, broker: dict[str, int] | None, checksum: bool) -> None:
    value, single = part
    assert found(encoded(value, codec, broker, checksum, **single)) == [expected(value, single)]


@given(st.lists(PART, max_size=5), CODEC, BROKER, st.booleans())
def test_batches_read_back(parts: list[Part], codec: int, broker: dict[str, int] | None, checksum: bool) -> None:
    data = batched(parts, codec=codec, broker=broker, checksum=checksum)
    assert found(data) == [expected(*part) for part in parts]


@settings(max_examples=40)
@given(ENTRY)
def test_every_truncation_is_refused_or_read(data: bytes) -> None:
    for end in range(len(data)):
        with suppress(BadBytes):
            read(data[:end])


@settings(max_examples=40)
@given(ENTRY, st.integers(1, 255))
def test_every_damaged_byte_is_refused_or_read(data: bytes, bits: int) -> None:
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= bits
        with suppress(BadBytes):
            read(bytes(damaged))


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_read(data: bytes) -> None:
    with suppress(BadBytes):
        read(data)


@given(ENTRY, st.integers(1, 255))
def test_a_checksum_finds_every_damaged_byte_after_it(data: bytes, bits: int) -> None:
    plain = encoded(data)
    for at in range(2, len(plain), 7):
        damaged = bytearray(plain)
        damaged[at] ^= bits
        with suppress(BadBytes):
            read(bytes(damaged))
            raise AssertionError(at)


@given(st.lists(st.tuples(st.sampled_from(b"ab"), st.integers(0, 2)), max_size=20), st.integers(1, 3))
def test_every_chunk_is_delivered_or_counted_or_waits(order: list[tuple[int, int]], most: int) -> None:
    chunks, delivered = Chunks("topic t", most, 7), 0
    for name, place in order:
        given = {"uuid": bytes([name]), "num_chunks_from_msg": 3, "total_chunk_msg_size": 6, "chunk_id": place}
        delivered += 3 * (chunks.add(read(encoded(b"xy", **given))[0]) is not None)
    waiting = sum(len(parts.values) for parts in chunks._waiting.values())
    assert delivered + chunks.dropped + chunks.repeated + waiting == len(order)
