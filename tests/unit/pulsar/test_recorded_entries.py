"""Entries that Pulsar's own Java library wrote are read field by field."""

from pathlib import Path

import pytest

from tests.unit.pulsar.pulsar_entries import read
from trueup.connectors.pulsar.protocol.message import Chunk, Message

LINES = (Path(__file__).parent / "recorded_entries.txt").read_text().splitlines()[1:]
ENTRIES = {name: bytes.fromhex(data) for name, data in map(str.split, LINES)}
PUBLISHED, RECEIVED = 1_700_000_000_123, 1_700_000_000_200
PRODUCER = "standalone-0-1"
BATCH = [
    Message(
        7,
        3,
        0,
        3,
        b"\x00\xff",
        None,
        b"first value",
        (("name", "wert ü"),),
        PUBLISHED,
        99,
        0,
        PRODUCER,
        17,
        None,
        "",
        39,
        RECEIVED,
        False,
        None,
        None,
        None,
    ),
    Message(
        7,
        3,
        1,
        3,
        None,
        b"\x01\xff",
        b"second value, second value, second value",
        (),
        PUBLISHED,
        0,
        0,
        PRODUCER,
        18,
        None,
        "",
        40,
        RECEIVED,
        False,
        None,
        None,
        None,
    ),
    Message(
        7, 3, 2, 3, b"k", None, None, (), PUBLISHED, 0, 0, PRODUCER, 19, None, "", 41, RECEIVED, False, None, None, None
    ),
]


@pytest.mark.parametrize("codec", ["NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY"])
def test_a_batch_is_read(codec: str) -> None:
    assert read(ENTRIES[codec]) == BATCH


def test_a_single_message_is_read() -> None:
    assert read(ENTRIES["SINGLE"]) == [
        Message(
            7,
            3,
            -1,
            1,
            None,
            None,
            b"plain",
            (("a", "b"),),
            PUBLISHED,
            0,
            5,
            PRODUCER,
            17,
            bytes(7) + b"\x01",
            "east",
            -1,
            0,
            False,
            (1, -2),
            None,
            None,
        )
    ]


def test_a_chunk_is_read() -> None:
    (message,) = read(ENTRIES["CHUNK"])
    assert (message.value, message.chunk, message.sequence) == (b"01234", Chunk("u", 0, 2, 9, 0, 0), -1)


def test_an_encrypted_entry_is_read() -> None:
    (message,) = read(ENTRIES["ENCRYPTED"])
    assert (message.value, message.encrypted, message.batch_size) == (b"secret", True, 2)
