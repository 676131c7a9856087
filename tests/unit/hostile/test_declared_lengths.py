"""Declared sizes: memory is allocated only for received bytes, and up to a limit."""

import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.unit.hostile import hostile_seeds as seeds
from trueup.connectors.bookkeeper.bookie.frames import LARGEST, BookieFrames
from trueup.connectors.kafka.client.connection import BrokerConnection
from trueup.connectors.kafka.client.fetch_produce import fetched, produced
from trueup.connectors.kafka.protocol import compression
from trueup.connectors.kafka.protocol.record_batch import BatchHeader, assemble, walk
from trueup.connectors.kafka.protocol.records import parsed
from trueup.connectors.kafka.protocol.reencode import dense
from trueup.connectors.pulsar import codecs, compressed
from trueup.connectors.pulsar.messages import Wrapper
from trueup.connectors.zookeeper import requests
from trueup.state.common.errors import BadBytes, Retry
from trueup.streams.bookkeeper import codec as rows
from trueup.streams.bookkeeper.topics import LEDGERS
from trueup.streams.journal import codec

MB = 1 << 20


@contextmanager
def within(limit: int) -> Iterator[None]:
    """The block allocates less memory than this limit."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


class Socket:
    """Returns these bytes in chunks of this size."""

    def __init__(self, data: bytes, piece: int) -> None:
        self._left, self._piece = memoryview(data), piece

    def recv_into(self, room: memoryview) -> int:
        got = min(len(room), len(self._left), self._piece)
        room[:got], self._left = self._left[:got], self._left[got:]
        return got


def connection(data: bytes, piece: int = 3 * MB) -> BrokerConnection:
    sock: Any = Socket(data, piece)
    return BrokerConnection(sock, "b:1", "us")


def answer(number: int, size: int) -> bytes:
    body = bytes(range(256)) * (size // 256)
    return struct.pack(">ii", len(body) + 4, (1 << 20) + number) + body


def test_a_bookies_frame_takes_no_room_before_its_bytes_come() -> None:
    sock = Socket(struct.pack(">i", LARGEST) + b"abc", MB)
    with within(4 * MB):
        assert BookieFrames(sock.recv_into, "b:1").next() is None


def test_an_answer_of_a_broker_takes_no_room_before_its_bytes_come() -> None:
    with within(4 * MB), pytest.raises(Retry):
        connection(struct.pack(">i", 1 << 30) + b"abc").receive()


@pytest.mark.parametrize("piece", [70_000, 64 * MB])
def test_large_answers_come_whole_whatever_came_before(piece: int) -> None:
    sizes = [5 * MB, 512, 16 * MB, 16 * MB, MB]
    made = connection(b"".join(answer(number, size) for number, size in enumerate(sizes, 1)), piece)
    for size in sizes:
        assert made.receive() == bytes(range(256)) * (size // 256)


def test_frames_larger_than_the_buffer_come_whole() -> None:
    bodies = [bytes(range(256)) * size for size in (40_000, 1, 20_000)]
    sock = Socket(b"".join(struct.pack(">i", len(body)) + body for body in bodies), 70_000)
    assert [bytes(body) for body in iter(BookieFrames(sock.recv_into, "b:1").next, None)] == bodies


def bomb(blocks: int) -> bytes:
    """A zstd frame (RFC 8878): each block of four bytes decompresses to 128 KiB."""
    size = 1 << 17
    block = (1 << 1 | size << 3).to_bytes(3, "little") + b"x"
    last = (1 | 1 << 1 | size << 3).to_bytes(3, "little") + b"x"
    return b"\x28\xb5\x2f\xfd\x00\x38" + block * (blocks - 1) + last


def test_a_small_batch_that_would_become_hundreds_of_megabytes_is_refused() -> None:
    with pytest.raises(BadBytes, match=f"more than {compression.MOST} bytes"):
        compression.opened(compression.ZSTD, memoryview(bomb(1_100)), "here")


def test_what_compresses_well_is_opened() -> None:
    assert len(compression.opened(compression.ZSTD, memoryview(bomb(400)), "here")) == 50 * MB


def test_snappy_takes_no_room_for_what_it_only_declares() -> None:
    with within(4 * MB), pytest.raises(BadBytes):
        compression.opened(compression.SNAPPY, memoryview(b"\xff\xff\xff\x3fabc"), "here")


@pytest.mark.parametrize("codec", [codecs.LZ4, codecs.ZLIB, codecs.ZSTD, codecs.SNAPPY])
def test_a_node_takes_no_room_for_what_its_header_only_declares(codec: int) -> None:
    header = Wrapper(compressionType=codec, uncompressedSize=compressed.MOST).SerializeToString()
    data = b"\x47\x78" + struct.pack(">i", len(header)) + header + bytes(8)
    with within(4 * MB), pytest.raises(BadBytes):
        compressed.opened(data, "here")


def test_a_journal_row_takes_no_room_for_members_that_it_does_not_hold() -> None:
    body = codec.encode(LEDGERS, {**seeds.RECORD, "ensemble": (1 << 31) - 1})
    with within(16 * MB), pytest.raises(BadBytes, match="members that are there"):
        rows.ledger_rows([body])


def test_a_varint_has_ten_bytes_at_most() -> None:
    header = BatchHeader(0, 0, 1, 2, 0, 0, 0, 1, 1, 9, 0, 0, 1)
    [(whole, batch)] = walk(assemble(header, b"\xff" * MB + b"\x01"))
    with pytest.raises(BadBytes):
        dense(whole, batch, "here")


@pytest.mark.parametrize("records", [-1, (1 << 31) - 1])
def test_a_batch_takes_no_room_for_records_that_it_only_declares(records: int) -> None:
    header = BatchHeader(0, 0, 1, 2, 0, 0, 0, 1, 1, 9, 0, 0, records)
    with within(4 * MB), pytest.raises(BadBytes):
        parsed([(header, memoryview(b"\x0c\0\0\0\1\1\0"))], "here")


def test_a_record_takes_no_room_for_headers_that_it_only_declares() -> None:
    header = BatchHeader(0, 0, 1, 2, 0, 0, 0, 1, 1, 9, 0, 0, 1)
    with within(4 * MB), pytest.raises(BadBytes):
        parsed([(header, memoryview(b"\x14\0\0\0\1\1\xfe\xff\xff\xff\x0f"))], "here")


@pytest.mark.parametrize("decode", [fetched, produced])
@pytest.mark.parametrize("count", [1 << 30, -(1 << 31), 2])
def test_an_answer_with_more_topics_than_it_has_bytes_is_refused(decode: Any, count: int) -> None:
    before = b"" if decode is produced else bytes(10)
    with pytest.raises(BadBytes):
        decode(memoryview(before + struct.pack(">i", count) + struct.pack(">h", -1) + bytes(4)))


@pytest.mark.parametrize("size", [-4, -1, -5, 1 << 30])
@pytest.mark.parametrize("count", [1, 2, (1 << 31) - 1])
def test_names_of_a_size_that_none_has_are_refused(count: int, size: int) -> None:
    body = struct.pack("!iii", count, size, size) + bytes(8)
    with within(MB), pytest.raises(BadBytes):
        requests.GetChildren("/a").deserialize(body, 0)


def test_a_transaction_that_goes_backwards_is_refused() -> None:
    body = b"\x00\x00\x00\x01\x00\x00\x00\x00\x00" + struct.pack("!i", -13) + bytes(4)
    with pytest.raises(BadBytes):
        requests.Multi([]).deserialize(body, 0)


@pytest.mark.parametrize("length", [0, -1, 48])
def test_a_batch_shorter_than_its_header_is_refused(length: int) -> None:
    header = BatchHeader(0, 0, 1, 2, 0, 0, 0, 1, 1, 9, 0, 0, 1)
    batch = bytearray(assemble(header, bytes(20)))
    struct.pack_into(">i", batch, 8, length)
    with pytest.raises(BadBytes):
        list(walk(memoryview(batch)))
