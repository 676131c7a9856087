"""Messages of formats before version 2: those that kafka-python built, as batches that kafka-python reads."""

from collections.abc import Sequence

import pytest
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record.util import calc_crc32

from tests.unit.kafka.test_record_batch import RECORDS, built, contents, plain
from trueup.connectors.kafka.protocol.compression import GZIP, LZ4, SNAPPY, ZSTD, closed
from trueup.connectors.kafka.protocol.record_batch import HEADER_BYTES, entries, sound, walk
from trueup.state.common.errors import BadBytes

APPENDED = 8
Old = tuple[int, int, bytes | None, bytes | None]
"""Offset, timestamp, key, value."""
ROWS: list[Old] = [(n, 1_000 + n % 5, b"k%d" % n, b"v" * n) for n in range(20)]
ODD: list[Old] = [(0, 0, None, b"v"), (1, -1, b"k", None), (2, 5, b"", b""), (7, 1, None, None)]


def messages(magic: int, rows: Sequence[Old], first: int = 0) -> bytes:
    """A message for each row, as kafka-python writes them."""
    builder = LegacyRecordBatchBuilder(magic, 0, 1 << 20)
    for offset, stamp, key, value in rows:
        builder.append(first + offset, stamp, key, value)
    return bytes(builder.build())


def wrapped(magic: int, rows: Sequence[Old], codec: int, first: int = 0, attributes: int = 0, stamp: int = 1) -> bytes:
    """A compressed message, as a broker stores it: offsets in it are relative in magic 1, absolute in magic 0."""
    value = closed(codec, messages(magic, rows, 0 if magic else first))
    builder = LegacyRecordBatchBuilder(magic, 0, 1 << 20)
    builder.append(first + rows[-1][0], stamp, None, value)
    made = builder.build()
    made[17] |= codec | attributes
    return signed(made)


def signed(message: bytearray) -> bytes:
    """The message with the checksum of kafka-python."""
    message[12:16] = int(calc_crc32(memoryview(message)[16:])).to_bytes(4, "big")
    return bytes(message)


def records(raw: bytes) -> list[Old]:
    """The records of all batches, by kafka-python."""
    found = list[Old]()
    for header, batch in walk(memoryview(bytearray(raw))):
        assert sound(header, batch)
        found += [row[:4] for row in contents(plain(batch)) if not row[4]]
    return found


def timed(magic: int, rows: Sequence[Old], first: int = 0) -> list[Old]:
    """What the rows mean in a format: magic 0 has no timestamps."""
    return [(first + offset, stamp if magic else -1, key, value) for offset, stamp, key, value in rows]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("rows", [ROWS, ODD])
def test_each_message_is_a_batch_with_the_same_record(magic: int, rows: list[Old]) -> None:
    raw = messages(magic, rows, 70)
    assert records(raw) == timed(magic, rows, 70)
    assert [(header.following, header.producer_id) for header, _ in walk(memoryview(raw))] == [
        (71 + row[0], -1) for row in rows
    ]


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("rows", [ROWS, ODD])
def test_a_compressed_message_is_one_batch_with_its_offsets(magic: int, codec: int, rows: list[Old]) -> None:
    raw = wrapped(magic, rows, codec, first=500)
    assert records(raw) == timed(magic, rows, 500)
    [(header, _)] = walk(memoryview(raw))
    assert (header.offset, header.following, header.records) == (500, 501 + rows[-1][0], len(rows))
    assert (header.attributes, header.last_ms) == (codec, max(stamp for _, stamp, _, _ in timed(magic, rows)))


def test_the_first_messages_may_be_gone() -> None:
    """The log cleaner keeps the relative offsets of the others."""
    assert records(wrapped(1, ROWS[5:], GZIP, first=100)) == timed(1, ROWS[5:], 100)


def test_the_time_of_the_log_is_that_of_all_messages() -> None:
    found = records(wrapped(1, ROWS, GZIP, attributes=APPENDED, stamp=77))
    assert found == [(offset, 77, key, value) for offset, _, key, value in ROWS]


def test_the_time_that_the_log_gave_a_single_message_stays() -> None:
    message = bytearray(messages(1, [(3, 88, b"k", b"v")]))
    message[17] |= APPENDED
    assert records(signed(message)) == [(3, 88, b"k", b"v")]


def test_formats_may_follow_each_other() -> None:
    new = built(RECORDS)
    new[:8] = (40).to_bytes(8, "big")
    raw = messages(0, ROWS[:2]) + wrapped(1, ROWS, GZIP, first=2) + bytes(new)
    assert [magic for magic, _ in entries(memoryview(raw))] == [0, 0, 1, 2]
    assert [header.offset for header, _ in walk(memoryview(bytearray(raw)))] == [0, 1, 2, 40]


def test_a_message_shorter_than_the_header_of_a_batch_is_not_left_out() -> None:
    raw = messages(0, [(0, 0, None, b"v")])
    assert len(raw) < HEADER_BYTES
    assert records(raw) == [(0, -1, None, b"v")]


@pytest.mark.parametrize("lost", [1, 20, 30])
def test_a_message_cut_off_at_the_end_is_left_out(lost: int) -> None:
    raw = messages(1, ROWS[:2])
    assert records(raw[:-lost]) == timed(1, ROWS[:1])


@pytest.mark.parametrize("magic", [0, 1])
def test_one_changed_byte_is_noticed(magic: int) -> None:
    raw = bytearray(messages(magic, ROWS[3:4]))
    raw[-1] ^= 1
    assert [(header.following, sound(header, batch)) for header, batch in walk(memoryview(raw))] == [(4, False)]


@pytest.mark.parametrize("magic", [3, 127, -1])
def test_an_unknown_format_is_an_error(magic: int) -> None:
    raw = built(RECORDS)
    raw[16] = magic & 0xFF
    with pytest.raises(BadBytes, match=f"version {magic}; upgrade"):
        list(walk(memoryview(raw)))


@pytest.mark.parametrize("lost", [1, 50, 1_000])
def test_a_response_without_a_whole_batch_is_an_error(lost: int) -> None:
    with pytest.raises(BadBytes, match="a whole batch"):
        list(walk(memoryview(built(RECORDS))[:-lost]))


@pytest.mark.parametrize(
    ("rows", "offset", "found"), [([], 5, "none"), (ROWS, 18, "-1 to 18"), (ROWS[::-1], 19, "38 to 19")]
)
def test_offsets_that_contradict_each_other_are_an_error(rows: list[Old], offset: int, found: str) -> None:
    builder = LegacyRecordBatchBuilder(1, 0, 1 << 20)
    builder.append(offset, 1, None, closed(GZIP, messages(1, rows)))
    message = builder.build()
    message[17] |= GZIP
    with pytest.raises(BadBytes, match=found):
        list(walk(memoryview(signed(message))))


def test_zstd_did_not_exist_then() -> None:
    with pytest.raises(BadBytes, match="codec 4"):
        list(walk(memoryview(wrapped(1, ROWS, ZSTD))))
