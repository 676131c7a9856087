"""The objects of an offloaded ledger (DataBlockUtils, OffloadIndexBlockImpl, DataBlockHeaderImpl), and the check that
they are complete.

A ledger is a pair of objects: its entries in blocks, and an index with the offset of each block and the ledger's
metadata. All numbers are big-endian. A block is a header of 128 bytes, entries (length, id, bytes), and padding
that starts with a negative number. A truncated offload still has an index that matches its data, so every
entry is read, by ranges: an entry that is missing in the middle or at the end shows by its id.
"""

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from trueup.connectors.pulsar import messages
from trueup.state.common.errors import BadBytes, Stop
from trueup.state.deletion.offloads import ObjectPair
from trueup.state.deletion.owners import Claim, claim_of, pulsars

_KEY = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-ledger-(\d{1,19})(-index)?\Z", re.ASCII)
_INDEX = struct.Struct(">IiqqiI")
BLOCK_HEADER = struct.Struct(">Iqqq")
"""Magic number, length of the header, length of the block, id of its first entry."""
ENTRY = struct.Struct(">iq")
"""Length and id of an entry; a negative length: padding."""
MAGIC_BLOCK = 0xFBDBABCB
_MAGIC, _MAGIC_2, _PADDING = 0xDE47DE47, 0x3D1FB0BC, b"\xfe\xdc\xde\xad"
HEADER = 128
BLOCK = np.dtype([("first", ">i8"), ("part", ">i4"), ("offset", ">i8")])
"""For each block: the id of its first entry, its part number, and the offset of its header."""
LONGEST_INDEX = 1 << 26
WINDOW = 1 << 23
_CLOSED = 3
_TODO = "inspect the object; the ledger is kept in BookKeeper"
Read = Callable[[int, int], bytes]
"""Reads a number of bytes of the data object from an offset."""


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """The content of an index. The metadata of the ledger are those at the time of the offload."""

    data_length: int
    """The size of the data object in bytes."""
    blocks: NDArray[Any]
    """The blocks of the data object: rows of `BLOCK`."""
    last_entry: int
    """The id of the last entry, according to the metadata of the ledger."""
    length: int
    """The size of all entries in bytes, according to the metadata of the ledger."""
    closed: bool
    """Whether the ledger is closed, according to its metadata."""
    claim: Claim
    """The claim in the metadata of the ledger."""
    tagged: bool
    """Whether the metadata of the ledger have keys of Pulsar. Early brokers, until 2019, wrote none."""


def pair_of(key: str) -> tuple[ObjectPair, bool] | None:
    """The pair of an object, and whether it is the index; None for other names."""
    match = _KEY.match(key)
    if match is None or int(match[2]) >= 1 << 63:
        return None
    return ObjectPair(match[1], int(match[2])), match[3] is not None


def uid_of(msb: int, lsb: int) -> str:
    """The text form of a UUID with these two signed halves."""
    digits = f"{(msb & (1 << 64) - 1) << 64 | lsb & (1 << 64) - 1:032x}"
    return "-".join(digits[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))


def index_of(data: bytes, where: str) -> Index:
    """Parse an index object. Raises `BadBytes`, and `Stop` for the format with several ledgers."""
    if len(data) >= 4 and int.from_bytes(data[:4], "big") == _MAGIC_2:
        raise Stop(f"an index of format 1 in {where}", "format 2 with several ledgers", "it is not supported")
    _need(len(data) >= _INDEX.size, where, len(data), f"an index of at least {_INDEX.size} bytes", "its end")
    magic, size, data_length, header, count, meta = _INDEX.unpack_from(data)
    _need(magic == _MAGIC, where, 0, f"{_MAGIC:#x}", f"{magic:#x}")
    _need(size == len(data), where, 4, f"its own length, {len(data)}", str(size))
    _need(header == HEADER, where, 16, f"{HEADER} as the length of block headers", str(header))
    rest = size - _INDEX.size - meta
    _need(rest >= 0, where, 28, f"metadata of at most {size - _INDEX.size} bytes", str(meta))
    _need(count > 0 and count * BLOCK.itemsize == rest, where, 24, f"{rest / BLOCK.itemsize:g} blocks", str(count))
    blocks = np.frombuffer(data, BLOCK, count, _INDEX.size + meta)
    _check(blocks, data_length, where, _INDEX.size + meta)
    last, length, closed, custom = _metadata(data[_INDEX.size : _INDEX.size + meta], where)
    return Index(data_length, blocks, last, length, closed, claim_of(custom), pulsars(custom))


def verify(read: Read, size: int, index: Index, where: str) -> None:
    """Read every entry of a data object of ``size`` bytes, in windows; the content of long entries is skipped.

    Raises `BadBytes` if it does not match its index: a block or an entry at another offset or of another length, a
    missing entry, more or fewer bytes than the ledger had.
    """
    _need(size == index.data_length, where, min(size, index.data_length), f"{index.data_length} bytes", str(size))
    window, last, length = _Window(read, size, where), -1, 0
    ends = [*index.blocks["offset"].tolist()[1:], index.data_length]
    for first, offset, end in zip(index.blocks["first"].tolist(), index.blocks["offset"].tolist(), ends, strict=True):
        _need(first == last + 1, where, offset, f"entry {last + 1} as the first of the block", str(first))
        _block_header(window, first, offset, end, where)
        last, added = _entries(window, last, offset + HEADER, end, where)
        length += added
    expected = f"entries up to {index.last_entry}, of {index.length} bytes"
    _need(
        (last, length) == (index.last_entry, index.length),
        where,
        index.data_length,
        expected,
        f"entries up to {last}, of {length} bytes",
    )


def _check(blocks: NDArray[Any], data_length: int, where: str, at: int) -> None:
    """Verify that blocks follow each other from the start of the object, each with room for its header."""
    offsets, firsts = blocks["offset"].astype(np.int64), blocks["first"].astype(np.int64)
    steps = np.diff(offsets, append=data_length)
    wrong = (steps < HEADER) | (offsets < 0)
    wrong[1:] |= firsts[1:] <= firsts[:-1]
    wrong[0] |= offsets[0] != 0 or firsts[0] != 0
    if wrong.any():
        row = int(np.argmax(wrong))
        block = f"entry {firsts[row]} at {offsets[row]}, {steps[row]} bytes long"
        raise BadBytes(where, at + row * BLOCK.itemsize, "blocks in order, without overlap", block, _TODO)


def _metadata(data: bytes, where: str) -> tuple[int, int, bool, dict[str, bytes]]:
    message = messages.LedgerMetadata()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise BadBytes(where, _INDEX.size, "metadata of a ledger", "other bytes", _TODO) from error
    custom = {pair.key.decode(errors="replace"): pair.value for pair in message.customMetadata}
    return message.lastEntryId, message.length, message.state == _CLOSED, custom


def _block_header(window: "_Window", first: int, offset: int, end: int, where: str) -> None:
    magic, header, length, entry = BLOCK_HEADER.unpack_from(*window.at(offset, HEADER))
    _need(magic == MAGIC_BLOCK, where, offset, f"{MAGIC_BLOCK:#x}", f"{magic:#x}")
    _need(header == HEADER, where, offset + 4, f"{HEADER} as the length of the header", str(header))
    _need(length == end - offset, where, offset + 12, f"a block of {end - offset} bytes", str(length))
    _need(entry == first, where, offset + 20, f"{first} as its first entry", str(entry))


def _entries(window: "_Window", last: int, at: int, end: int, where: str) -> tuple[int, int]:
    """The last entry from ``at`` on, and the total bytes of the entries."""
    total = 0
    while end - at >= ENTRY.size:
        data, place = window.at(at, ENTRY.size)
        length, entry = ENTRY.unpack_from(data, place)
        if length < 0:
            break
        _need(entry == last + 1, where, at + 4, f"entry {last + 1}", str(entry))
        _need(length <= end - at - ENTRY.size, where, at, f"at most {end - at - ENTRY.size} bytes", str(length))
        last, total, at = entry, total + length, at + ENTRY.size + length
    left = min(end - at, len(_PADDING))
    data, place = window.at(at, left)
    _need(data[place : place + left] == _PADDING[:left], where, at, "an entry or padding", "other bytes")
    return last, total


class _Window:
    """Bytes of an object, read sequentially."""

    def __init__(self, read: Read, size: int, where: str) -> None:
        self._read, self._size, self._where = read, size, where
        self._begin, self._bytes = 0, b""

    def at(self, offset: int, count: int) -> tuple[bytes, int]:
        """A buffer that includes ``count`` bytes from ``offset`` on, and their position in it."""
        if offset + count > self._begin + len(self._bytes) or offset < self._begin:
            length = min(WINDOW, self._size - offset)
            self._begin, self._bytes = offset, self._read(offset, length) if length > 0 else b""
            _need(len(self._bytes) >= count, self._where, offset, f"{count} more bytes", str(len(self._bytes)))
        return self._bytes, offset - self._begin


def _need(holds: bool, where: str, at: int, expected: str, found: str) -> None:
    if not holds:
        raise BadBytes(where, at, expected, found, _TODO)
