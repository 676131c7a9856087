"""Entries of Pulsar become messages, and damage is reported with its place."""

import base64
import struct
from typing import Any

import pytest

from tests.unit.pulsar.pulsar_entries import WHERE, batch, batched, encoded, read
from trueup.connectors.pulsar import codecs
from trueup.connectors.pulsar.protocol.entry import entry_of
from trueup.connectors.pulsar.protocol.message import MOST, MOST_MESSAGES, Chunk, Message
from trueup.state.common.errors import BadBytes

CODECS = [codecs.NONE, codecs.LZ4, codecs.ZLIB, codecs.ZSTD, codecs.SNAPPY]
CHUNKED = {"uuid": b"p-5", "num_chunks_from_msg": 3, "total_chunk_msg_size": 90, "chunk_id": 1}


def refused(data: bytes) -> BadBytes:
    with pytest.raises(BadBytes) as raised:
        read(data)
    return raised.value


def one(data: bytes) -> Message:
    (message,) = read(data)
    return message


def test_a_message_has_all_its_metadata() -> None:
    data = encoded(
        b"hello",
        broker={"broker_timestamp": 2_000, "index": 41},
        partition_key=b"k",
        ordering_key=b"\xff",
        properties=[(b"b", b"2"), (b"a", b"1"), (b"b", b"3")],
        event_time=900,
        deliver_at_time=3_000,
        schema_version=b"\x00\x01",
        replicated_from=b"east",
    )
    assert one(data) == Message(
        7,
        3,
        -1,
        1,
        b"k",
        b"\xff",
        b"hello",
        (("b", "2"), ("a", "1"), ("b", "3")),
        1_000,
        900,
        3_000,
        "p",
        5,
        b"\x00\x01",
        "east",
        41,
        2_000,
        False,
        None,
        None,
        None,
    )


def test_a_message_without_options_has_none() -> None:
    assert one(encoded(b"", checksum=False)) == Message(
        7, 3, -1, 1, None, None, b"", (), 1_000, 0, 0, "p", 5, None, "", -1, 0, False, None, None, None
    )


@pytest.mark.parametrize("codec", CODECS)
def test_batches_of_every_codec_are_taken_apart(codec: int) -> None:
    values = [b"a" * 300, b"", b"ccc"]
    found = read(batched([(value, {}) for value in values], codec=codec))
    assert [(m.batch_index, m.batch_size, m.value) for m in found] == [(0, 3, values[0]), (1, 3, b""), (2, 3, b"ccc")]


def test_the_payload_of_an_entry_is_not_copied() -> None:
    data = memoryview(encoded(b"hello"))
    assert entry_of(data, WHERE).payload.obj is data.obj


def test_messages_that_compaction_removed_leave_their_index_free() -> None:
    found = read(batched([(b"a", {}), (b"", {"compacted_out": True}), (b"c", {})]))
    assert [(m.batch_index, m.value) for m in found] == [(0, b"a"), (2, b"c")]


def test_messages_of_a_batch_have_their_own_numbers_and_times() -> None:
    own: dict[str, Any] = {"sequence_id": 8, "event_time": 80, "ordering_key": b"o", "properties": [(b"x", b"y")]}
    other, mine = read(batched([(b"", {}), (b"", own)], event_time=70))
    assert (other.sequence, other.event_ms, other.ordering_key, other.properties) == (5, 70, None, ())
    assert (mine.sequence, mine.event_ms, mine.ordering_key, mine.properties) == (8, 80, b"o", (("x", "y"),))


def test_a_zero_of_a_message_is_not_replaced_by_the_number_of_its_batch() -> None:
    (message,) = read(batched([(b"", {"sequence_id": 0, "event_time": 0})], event_time=70))
    assert (message.sequence, message.event_ms) == (0, 0)


def test_the_key_of_a_batch_is_not_that_of_its_messages() -> None:
    found = read(batched([(b"", {}), (b"", {"partition_key": b""})], partition_key=b"k", ordering_key=b"o"))
    assert [(m.key, m.ordering_key) for m in found] == [(None, None), (b"", None)]


def test_null_marks_of_a_batch_apply_to_messages_without_their_own() -> None:
    parts: list[tuple[bytes, dict[str, Any]]] = [
        (b"", {"partition_key": b"k"}),
        (b"", {"partition_key": b"k", "null_value": False, "null_partition_key": False}),
    ]
    found = read(batched(parts, null_value=True, null_partition_key=True))
    assert [(m.key, m.value) for m in found] == [(None, None), (b"k", b"")]


def test_null_values_and_keys_are_not_empty_ones() -> None:
    assert one(encoded(b"", null_value=True)).value is None
    assert one(encoded(b"", partition_key=b"x", null_partition_key=True)).key is None
    (message,) = read(batched([(b"", {"null_value": True, "partition_key": b"x", "null_partition_key": True})]))
    assert (message.key, message.value) == (None, None)


@pytest.mark.parametrize("text", [base64.b64encode(b"\x00\xff"), base64.b64encode(b"\x00\xff").rstrip(b"=")])
def test_keys_in_base64_are_decoded(text: bytes) -> None:
    given = {"partition_key": text, "partition_key_b64_encoded": True}
    assert one(encoded(b"", **given)).key == b"\x00\xff"
    assert one(batched([(b"", given)])).key == b"\x00\xff"


@pytest.mark.parametrize("text", [b"no*base64", b"a"])
def test_a_key_that_only_claims_to_be_base64_stays_as_it_is(text: bytes) -> None:
    assert one(encoded(b"", partition_key=text, partition_key_b64_encoded=True)).key == text


def test_text_that_is_not_utf_8_can_be_written_back() -> None:
    message = one(encoded(b"", properties=[(b"\xffa", b"\xc3")], producer_name=b"p\xfe"))
    assert message.properties == (("\udcffa", "\udcc3"),)
    assert message.producer.encode(errors="surrogateescape") == b"p\xfe"


def test_an_index_of_the_broker_is_that_of_the_last_message_in_the_batch() -> None:
    data = batched([(b"", {}), (b"", {"compacted_out": True}), (b"", {})], broker={"index": 10})
    assert [m.index for m in read(data)] == [8, 10]


def test_messages_of_a_broker_that_counts_none_have_no_index() -> None:
    data = batched([(b"", {}), (b"", {})], broker={"broker_timestamp": 2_000})
    assert [(m.index, m.broker_ms) for m in read(data)] == [(-1, 2_000), (-1, 2_000)]


def test_an_encrypted_batch_stays_whole() -> None:
    payload = batch([(b"a", {}), (b"b", {})])
    message = one(encoded(payload, codec=codecs.ZLIB, num_messages_in_batch=2, encryption_keys=[b"\n\x01k"]))
    assert (message.encrypted, message.batch_index, message.batch_size) == (True, -1, 2)
    assert message.value == codecs.compressed(payload, codecs.ZLIB)


def test_a_chunk_is_not_decompressed() -> None:
    message = one(encoded(b"part", compression=codecs.ZSTD, uncompressed_size=1_000, **CHUNKED))
    assert (message.value, message.chunk) == (b"part", Chunk("p-5", 1, 3, 90, codecs.ZSTD, 1_000))


def test_the_only_chunk_is_a_whole_message() -> None:
    message = one(encoded(b"all", codec=codecs.LZ4, **CHUNKED | {"num_chunks_from_msg": 1, "chunk_id": 0}))
    assert (message.value, message.chunk) == (b"all", None)


@pytest.mark.parametrize("place", [-1, 3])
def test_a_chunk_outside_its_message_is_refused(place: int) -> None:
    assert "a chunk of 0 to 2" in str(refused(encoded(b"", **CHUNKED | {"chunk_id": place})))


def test_markers_and_transactions_are_named() -> None:
    message = one(encoded(b"", marker_type=21, txnid_most_bits=-1, txnid_least_bits=9))
    assert (message.marker, message.txn) == (21, (-1, 9))


def test_a_wrong_checksum_is_refused() -> None:
    data = bytearray(encoded(b"hello", broker={"index": 1}))
    data[-1] ^= 1
    error = refused(bytes(data))
    assert (error.where, error.at) == (WHERE, 2 + 4 + 2 + 2)
    assert "the checksum of the entry" in str(error)


@pytest.mark.parametrize("start", [b"", b"\x0e\x02"])
def test_a_length_beyond_the_entry_is_refused(start: bytes) -> None:
    error = refused(start + struct.pack(">I", 0xFFFF_FFFF) + b"rest")
    assert "at most 4 bytes" in str(error)
    assert error.at == len(start)


def test_a_length_that_is_one_too_long_is_refused() -> None:
    data = bytearray(encoded(b"", checksum=False))
    data[3] += 1
    assert f"at most {len(data) - 4} bytes" in str(refused(bytes(data)))


@pytest.mark.parametrize("data", [b"", b"\x0e\x01\x00", b"\x00\x00\x00"])
def test_an_entry_that_ends_in_its_headers_is_refused(data: bytes) -> None:
    assert "a number of 4 bytes" in str(refused(data))


def test_metadata_without_required_fields_is_refused() -> None:
    assert "all required fields of MessageMetadata" in str(refused(bytes(4)))


@pytest.mark.parametrize("count", [-1, MOST_MESSAGES + 1])
def test_an_impossible_number_of_messages_is_refused_before_any_is_read(count: int) -> None:
    assert f"0 to {MOST_MESSAGES} messages" in str(refused(batched([(b"a", {})], num_messages_in_batch=count)))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_batch_with_another_number_of_messages_is_refused(count: int) -> None:
    assert refused(batched([(b"a", {}), (b"b", {})], num_messages_in_batch=count)).where == f"the payload of {WHERE}"


@pytest.mark.parametrize("size", [-1, 2, 1 << 30])
def test_a_value_beyond_its_batch_is_refused(size: int) -> None:
    assert "a message of at most 1 bytes" in str(refused(batched([(b"a", {"payload_size": size})])))


def test_metadata_beyond_its_batch_is_refused() -> None:
    payload = struct.pack(">I", 50) + b"\x18\x00"
    assert "a length of at most 2 bytes" in str(refused(encoded(payload, num_messages_in_batch=1)))


@pytest.mark.parametrize("size", [MOST + 1, 1 << 27, -1, 4])
@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_wrong_size_of_the_payload_is_refused_without_decompression(codec: int, size: int) -> None:
    assert f"the payload of {WHERE}" in str(refused(encoded(b"hello", codec=codec, uncompressed_size=size)))


def test_an_unknown_codec_is_refused() -> None:
    assert "a codec of 0 to 4" in str(refused(encoded(b"hello", compression=5, uncompressed_size=5)))
