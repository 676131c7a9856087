"""Entry bytes as written by the BookKeeper client, and malformed entries."""

import pytest

from trueup.connectors.bookkeeper.bookie.entries import DamagedEntry, Digest, DigestType, digest_of
from trueup.connectors.bookkeeper.metadata import metadata
from trueup.state.common.errors import Stop

PASSWORD = b"sandbox"
HEAD = "0000000000000002ffffffffffffffff000000000000000f"  # entry 2, LAC -1, ledger length 15 with it
STORED = {
    DigestType.CRC32: (4, f"0000000000000004{HEAD}00000000cf6fe7b10e57d7b21e"),
    DigestType.CRC32C: (5, f"0000000000000005{HEAD}b1728e43bc065018e5"),
    DigestType.HMAC: (6, f"0000000000000006{HEAD}2db9284d7a15c3e669446547db3b8a2e8d73ab9aca030a9251"),
    DigestType.DUMMY: (7, f"0000000000000007{HEAD}ba11026ac5"),
}
KINDS = list(STORED)
PAYLOADS = {
    DigestType.CRC32: "0e57d7b21e",
    DigestType.CRC32C: "bc065018e5",
    DigestType.HMAC: "ca030a9251",
    DigestType.DUMMY: "ba11026ac5",
}
SUMMED = [DigestType.CRC32, DigestType.CRC32C, DigestType.HMAC]


def stored(kind: DigestType) -> tuple[int, bytes, Digest]:
    ledger, text = STORED[kind]
    return ledger, bytes.fromhex(text), Digest(kind, PASSWORD)


@pytest.mark.parametrize("kind", KINDS)
def test_an_entry_of_bookkeepers_own_client_is_unharmed(kind: DigestType) -> None:
    ledger, entry, digest = stored(kind)
    digest.check(ledger, 2, memoryview(entry))
    assert entry[digest.offset :].hex() == PAYLOADS[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_an_entry_is_sealed_as_bookkeepers_own_client_does(kind: DigestType) -> None:
    _, entry, digest = stored(kind)
    assert digest.seal(entry[:32], bytes.fromhex(PAYLOADS[kind])) == entry


@pytest.mark.parametrize("kind", SUMMED)
@pytest.mark.parametrize("at", [16, 31, 32, -1])
def test_a_flipped_bit_anywhere_is_noticed(kind: DigestType, at: int) -> None:
    ledger, entry, digest = stored(kind)
    bad = bytearray(entry)
    bad[at] ^= 1
    with pytest.raises(DamagedEntry, match=f"byte 32 of entry 2 of ledger {ledger}; found") as caught:
        digest.check(ledger, 2, memoryview(bad))
    assert caught.value.at == 32


def test_another_entry_is_not_taken_for_the_one_that_was_asked_for() -> None:
    ledger, entry, digest = stored(DigestType.CRC32C)
    with pytest.raises(DamagedEntry, match="expected entry 3 at byte 8 of entry 3 of ledger 5; found entry 2"):
        digest.check(ledger, 3, memoryview(entry))


def test_an_entry_of_another_ledger_neither() -> None:
    _, entry, digest = stored(DigestType.CRC32C)
    with pytest.raises(DamagedEntry, match="expected ledger 9 at byte 0 of entry 2 of ledger 9; found ledger 5"):
        digest.check(9, 2, memoryview(entry))


@pytest.mark.parametrize("size", [0, 15, 35])
def test_an_entry_cut_short(size: int) -> None:
    ledger, entry, digest = stored(DigestType.CRC32C)
    with pytest.raises(DamagedEntry, match=f"expected at least 36 bytes at byte {size} of"):
        digest.check(ledger, 2, memoryview(entry[:size]))


def test_an_entry_has_the_last_confirmed_entry_before_it() -> None:
    ledger, entry, digest = stored(DigestType.CRC32C)
    assert digest.entry(ledger, memoryview(entry)) == (2, -1)


def test_a_note_of_the_writer_has_the_last_confirmed_entry() -> None:
    digest = Digest(DigestType.CRC32C)
    note = bytes.fromhex("00000000000000050000000000000003") + bytes.fromhex("7bd17d65")
    assert digest.note(5, memoryview(note)) == 3


def test_a_note_that_was_damaged_proves_nothing() -> None:
    digest = Digest(DigestType.CRC32C)
    note = bytes.fromhex("00000000000000050000000000000004") + bytes.fromhex("7bd17d65")
    with pytest.raises(DamagedEntry, match="byte 16 of the last confirmed entry of ledger 5"):
        digest.note(5, memoryview(note))


def test_a_password_is_not_shown() -> None:
    assert "sandbox" not in repr(vars(Digest(DigestType.HMAC, PASSWORD)))


RECORD = metadata.gone(6, 0, 0) | {
    "state": 3,
    "ensemble": 1,
    "quorum": 1,
    "ack_quorum": 1,
    "fragments": [{"first_entry": 0, "bookies": ["a:1"]}],
}


@pytest.mark.parametrize("version", [2, 3])
def test_metadata_have_the_digest(version: int) -> None:
    ledger, entry, _ = stored(DigestType.HMAC)
    digest = digest_of(metadata.encode(RECORD, version, PASSWORD, DigestType.HMAC), "/ledgers/L6")
    digest.check(ledger, 2, memoryview(entry))
    assert digest.kind is DigestType.HMAC


@pytest.mark.parametrize(
    "data",
    [metadata.encode(RECORD, 1), metadata.encode(RECORD, 2, password=None), metadata.encode(RECORD, 3, password=None)],
)
def test_metadata_without_a_digest(data: bytes) -> None:
    with pytest.raises(Stop, match="expected the digest type of a ledger in /ledgers/L6; found none"):
        digest_of(data, "/ledgers/L6")
