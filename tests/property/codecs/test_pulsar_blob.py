"""Offloaded ledgers: complete ones are verified; missing, moved or truncated data is detected, with its offset."""

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.offloaded import Written, offloaded
from trueup.connectors.pulsar import offload_index
from trueup.state.common.errors import BadBytes, Stop
from trueup.state.deletion.offloads import ObjectPair
from trueup.state.deletion.owners import Claim, Component

BLOCK = 400
entries = st.lists(st.binary(max_size=BLOCK - 140), min_size=1, max_size=30)


def check(data: bytes, index: bytes, window: int = offload_index.WINDOW) -> None:
    def read(offset: int, count: int) -> bytes:
        return data[offset : offset + min(count, window)]

    offload_index.verify(read, len(data), offload_index.index_of(index, "u-ledger-1-index"), "u-ledger-1")


def damage(data: bytes, index: bytes) -> int:
    """Offset of the detected damage."""
    with pytest.raises(BadBytes) as found:
        check(data, index)
    return found.value.at


@given(entries, st.sampled_from([BLOCK, 1 << 20]), st.integers(offload_index.HEADER, 2_000))
def test_a_whole_copy_is_found_whole_however_it_is_read(found: list[bytes], block: int, window: int) -> None:
    check(*offloaded(found, block)[:2], window)


@given(entries)
def test_the_index_describes_the_ledger(found: list[bytes]) -> None:
    written = offloaded(found, BLOCK, owner="t/ns/persistent/b")
    index = offload_index.index_of(written.index, "x")
    assert (index.last_entry, index.length, index.data_length, index.closed, index.claim) == (
        len(found) - 1,
        sum(map(len, found)),
        len(written.data),
        True,
        Claim(Component.DATA, "t/ns/persistent/b"),
    )
    assert [(int(b["first"]), int(b["offset"])) for b in index.blocks] == written.blocks


@given(entries, st.data())
def test_a_data_object_that_is_cut_is_found(found: list[bytes], draw: Any) -> None:
    written = offloaded(found, BLOCK)
    kept = draw.draw(st.integers(0, len(written.data) - 1))
    assert damage(written.data[:kept], written.index) == kept


@given(st.lists(st.binary(max_size=200), min_size=2, max_size=20), st.data())
def test_a_copy_without_one_of_its_entries_is_found(found: list[bytes], draw: Any) -> None:
    gone = draw.draw(st.integers(0, len(found) - 1))
    whole = offloaded(found)
    short = offloaded([*found[:gone], *found[gone + 1 :]], last=len(found) - 1, length=sum(map(len, found)))
    assert damage(short.data, short.index) == len(short.data)
    at = 128 + sum(len(entry) + 12 for entry in found[:gone])
    cut = whole.data[:at] + whole.data[at + 12 + len(found[gone]) :]
    assert damage(cut, whole.index) <= len(whole.data)


@given(entries, st.integers(BLOCK, 3 * BLOCK))
def test_an_offload_that_ended_at_an_entry_that_fits_no_block_is_found(found: list[bytes], size: int) -> None:
    written = offloaded([*found, bytes(size), b"after"], BLOCK, stops=True)
    assert damage(written.data, written.index) == len(written.data)


@given(entries, st.data())
def test_headers_of_blocks_that_are_otherwise_are_found_in_their_place(found: list[bytes], draw: Any) -> None:
    written = offloaded(found, BLOCK)
    _, offset = draw.draw(st.sampled_from(written.blocks))
    field, form = draw.draw(st.sampled_from([(0, ">I"), (4, ">q"), (12, ">q"), (20, ">q")]))
    data = bytearray(written.data)
    struct.pack_into(form, data, offset + field, struct.unpack_from(form, data, offset + field)[0] ^ 1)
    assert damage(bytes(data), written.index) == offset + field


@given(entries, st.integers(0, 31), st.integers(1, 255))
def test_an_index_whose_head_is_otherwise_is_refused(found: list[bytes], at: int, flip: int) -> None:
    written = offloaded(found, BLOCK)
    index = bytearray(written.index)
    index[at] ^= flip
    with pytest.raises(BadBytes):
        check(written.data, bytes(index))


@given(entries, st.data())
def test_an_index_that_is_cut_is_refused_in_its_head(found: list[bytes], draw: Any) -> None:
    written = offloaded(found, BLOCK)
    kept = draw.draw(st.integers(0, len(written.index) - 1))
    with pytest.raises(BadBytes):
        offload_index.index_of(written.index[:kept], "x")


@given(st.binary(max_size=300))
def test_no_bytes_make_it_fail_otherwise(data: bytes) -> None:
    for whole in (data, b"\xde\x47\xde\x47" + data):
        with pytest.raises((BadBytes, Stop)):
            check(data, whole)


def test_the_form_with_several_ledgers_is_named() -> None:
    with pytest.raises(Stop, match="format 2"):
        offload_index.index_of(b"\x3d\x1f\xb0\xbc" + bytes(60), "x")


@pytest.mark.parametrize(
    ("spoil", "at"),
    [
        (lambda rows: rows[::-1], 0),
        (lambda rows: [rows[0], rows[0], *rows[2:]], 0),
        (lambda rows: [(0, 1, 0), (rows[1][0], 2, 1 << 62), *rows[2:]], 1),
        (lambda rows: [(0, 1, 0), (rows[1][0], 2, -1), *rows[2:]], 0),
    ],
    ids=["backwards", "twice", "far away", "before the first"],
)
def test_blocks_that_do_not_follow_each_other_are_found_in_the_index(spoil: Callable[[Any], Any], at: int) -> None:
    written = offloaded([bytes(200)] * 4, BLOCK)
    rows = [(first, part, offset) for part, (first, offset) in enumerate(written.blocks, 1)]
    begin = len(written.index) - 20 * len(rows)
    spoiled = b"".join(struct.pack(">qiq", *row) for row in spoil(rows))
    assert damage(written.data, written.index[:begin] + spoiled) == begin + 20 * at


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**63 - 1))
def test_names_of_objects_are_read_as_they_are_written(msb: int, lsb: int, ledger: int) -> None:
    pair = ObjectPair(offload_index.uid_of(msb, lsb), ledger)
    assert (offload_index.pair_of(pair.data_key), offload_index.pair_of(pair.index_key)) == (
        (pair, False),
        (pair, True),
    )


UID = offload_index.uid_of(1, 2)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "a",
        UID,
        f"{UID}-ledger-",
        f"{UID}-ledger-1-inde",
        f"x{UID}-ledger-1",
        f"{UID}-ledger-{1 << 63}",
        f"{UID}-ledger-1\n",
    ],
)
def test_other_names_have_no_owner(key: str) -> None:
    assert offload_index.pair_of(key) is None


def test_a_uuid_is_written_as_java_writes_it() -> None:
    # java.util.UUID.fromString("b9c7a6d2-...") has these halves; the first is negative.
    assert offload_index.uid_of(-0x4638592D0F1E2D3C, 0x0123456789ABCDEF) == "b9c7a6d2-f0e1-d2c4-0123-456789abcdef"


def test_a_long_entry_is_passed_over_and_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload_index, "WINDOW", 1_000)
    written: Written = offloaded([bytes(100_000), b"end"])
    read = 0

    def ranged(offset: int, count: int) -> bytes:
        nonlocal read
        read += count
        return written.data[offset : offset + count]

    offload_index.verify(ranged, len(written.data), offload_index.index_of(written.index, "x"), "x")
    assert read < 3_000
