"""Record batches: decoding of batches that kafka-python built, and decoding of our batches by kafka-python."""

import random

import cramjam
import pytest
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from trueup.connectors.kafka.protocol import compression
from trueup.connectors.kafka.protocol.aborted import Aborted
from trueup.connectors.kafka.protocol.compression import closed, opened
from trueup.connectors.kafka.protocol.record_batch import (
    CODEC,
    HEADER_BYTES,
    HORIZON,
    assemble,
    header_of,
    readdress,
    sound,
    walk,
)
from trueup.connectors.kafka.protocol.reencode import dense
from trueup.state.common.errors import BadBytes

RECORDS: list["Record"] = [(b"k%d" % n, b"v" * n, [("n", b"%d" % n), ("none", None)]) for n in range(50)]
CODECS = range(5)
Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def built(
    records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]], **more: object
) -> bytearray:
    """An uncompressed batch as a producer builds it."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=bool(more.get("transactional")),
        producer_id=5,
        producer_epoch=1,
        base_sequence=7,
        batch_size=1 << 20,
    )
    for number, (key, value, headers) in enumerate(records):
        builder.append(number, 1_000 + number, key, value, headers)
    return bytearray(builder.build())


def compressed(codec: int) -> memoryview:
    """The same batch, compressed by our codec."""
    plain = memoryview(built(RECORDS))
    header = header_of(plain)
    return assemble(header._replace(attributes=codec), closed(codec, bytes(plain[HEADER_BYTES:])))


def contents(batch: memoryview) -> list[tuple[int, int, bytes, bytes, list[tuple[str, bytes]]]]:
    """Records of an uncompressed batch as kafka-python decodes them."""
    reader = DefaultRecordBatch(memoryview(bytes(batch)))
    assert reader.validate_crc()
    return [(record.offset, record.timestamp, record.key, record.value, record.headers) for record in reader]


def plain(batch: memoryview) -> memoryview:
    """The batch without compression, so that kafka-python needs no codec."""
    header = header_of(batch)
    body = opened(header.attributes & CODEC, batch[HEADER_BYTES:], "test")
    return assemble(header._replace(attributes=header.attributes & ~CODEC), bytes(body))


def with_holes(codec: int) -> tuple[memoryview, list[int]]:
    """A batch after log compaction: the remaining records keep their offsets."""
    kept = [n for n in range(50) if n % 7 and n % 11]
    whole = memoryview(built(RECORDS))
    spans = []
    at = HEADER_BYTES
    while at < len(whole):
        size = whole[at] >> 1 if whole[at] < 128 else (whole[at] & 127 | whole[at + 1] << 7) >> 1
        end = at + (1 if whole[at] < 128 else 2) + size
        spans.append(bytes(whole[at:end]))
        at = end
    header = header_of(whole)._replace(records=len(kept), attributes=codec | HORIZON)
    return assemble(header, closed(codec, b"".join(spans[n] for n in kept))), kept


def test_a_batch_of_another_client_is_walked_and_sound() -> None:
    one = built(RECORDS)
    found = list(walk(memoryview(one + one)))
    assert [(h.records, h.producer_id, h.epoch, h.sequence, sound(h, b)) for h, b in found] == [(50, 5, 1, 7, True)] * 2


@pytest.mark.parametrize("lost", [1, 100, 10_000])
def test_a_batch_cut_off_at_the_end_is_left_out(lost: int) -> None:
    one = built([(b"k", b"v" * 20_000, [])])
    assert len(list(walk(memoryview(one + one)[:-lost]))) == 1


def test_one_changed_byte_is_noticed() -> None:
    one = built(RECORDS)
    one[200] ^= 1
    assert [sound(h, b) for h, b in walk(memoryview(one))] == [False]


def test_a_new_address_changes_nothing_inside() -> None:
    one = memoryview(built(RECORDS, transactional=True))
    before = contents(one)
    readdress(one, 0x5455 << 48, 2**31 - 1, 0)
    header = header_of(one)
    assert (header.producer_id, header.epoch, header.sequence, header.attributes) == (0x5455 << 48, 0, 2**31 - 1, 0)
    assert contents(one) == before


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_compressed_can_be_opened(codec: int) -> None:
    assert contents(plain(compressed(codec))) == contents(memoryview(built(RECORDS)))


def test_lz4_frames_have_independent_blocks_as_java_demands() -> None:
    assert closed(3, b"x" * 200_000)[4] & 0x20


def test_framed_snappy_of_java_is_read() -> None:
    block = closed(2, b"half")
    framed = b"\x82SNAPPY\x00" + b"\0\0\0\1" * 2 + (len(block).to_bytes(4, "big") + block) * 2
    assert opened(2, memoryview(framed), "test") == b"halfhalf"


@pytest.mark.parametrize("codec", [1, 3, 4])
def test_the_beginning_of_a_large_batch_is_opened_alone(codec: int) -> None:
    body = b"".join(b"%d " % n for n in range(500_000))
    start = opened(codec, memoryview(closed(codec, body)), "test", 1 << 16)
    assert body.startswith(start)
    assert 1 << 16 <= len(start) < len(body)


@pytest.mark.parametrize("more", [{}, {"content_checksum": True}, {"block_linked": True}, {"block_linked": False}])
def test_lz4_frames_of_other_makers_are_read_as_well(more: dict[str, bool]) -> None:
    records, maker = b"records" * 100_000 + random.Random(1).randbytes(100_000), cramjam.lz4.Compressor(**more)
    maker.compress(records)
    frame = memoryview(bytes(maker.finish()))
    start = opened(3, frame, "test", 1 << 16)
    assert records.startswith(start)
    assert len(start) >= 1 << 16
    assert opened(3, frame, "test") == records


def test_an_lz4_frame_that_grows_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "MOST", 1 << 20)
    with pytest.raises(BadBytes, match="more than 1048576 bytes"):
        opened(3, memoryview(closed(3, bytes(3 << 20))), "here")


@pytest.mark.parametrize("left", [30, -4, -3])
def test_an_lz4_frame_without_its_end_is_reported(left: int) -> None:
    with pytest.raises(BadBytes, match="of here"):
        opened(3, memoryview(closed(3, b"records" * 10_000))[:left], "here")


def test_an_lz4_block_that_would_not_shrink_is_begun_as_it_is() -> None:
    noise = random.Random(1).randbytes(200_000)
    assert opened(3, memoryview(closed(3, noise)), "test", 1 << 16) == noise[: 1 << 16]


@pytest.mark.parametrize("codec", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("most", [0, 1 << 16])
def test_invalid_compressed_bytes_are_reported(codec: int, most: int) -> None:
    with pytest.raises(BadBytes, match="of here"):
        opened(codec, memoryview(b"\x00garbage, not compressed"), "here", most)


@pytest.mark.parametrize("codec", CODECS)
def test_holes_are_closed_and_remembered(codec: int) -> None:
    batch, kept = with_holes(codec)
    found = dense(header_of(batch), batch, "test")
    everything = contents(memoryview(built(RECORDS)))
    assert [record[1:] for record in contents(plain(found.batch))] == [everything[n][1:] for n in kept]
    assert [record[0] for record in contents(plain(found.batch))] == list(range(len(kept)))
    assert [delta + n for delta, count in found.stretches for n in range(count)] == kept
    assert header_of(found.batch).dense


def test_an_entry_of_the_aborted_list_counts_once() -> None:
    """The producer aborts, then commits: only the first transaction is skipped."""
    batch = header_of(built(RECORDS, transactional=True))
    marker = assemble(
        batch._replace(attributes=0x30, offset=50, last_delta=0, records=1),
        bytes([0x18, 0, 0, 0, 8, 0, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0]),
    )
    aborted = Aborted([(5, 0)])
    first = aborted.holds(batch)
    aborted.end(header_of(marker), marker)
    assert (first, aborted.holds(batch._replace(offset=51))) == (True, False)


def test_a_transaction_that_begins_later_is_not_aborted_yet() -> None:
    batch = header_of(built(RECORDS, transactional=True))
    aborted = Aborted([(5, 50)])
    assert (aborted.holds(batch), aborted.holds(batch._replace(offset=50))) == (False, True)
