"""Reads the entries of an offloaded ledger from its objects (the format: `connectors.pulsar.offload_index`).

The data object is read in ranges of `offload_index.WINDOW` bytes, the next one while the entries of one are used: at
most two of them, and the longest entry, are in memory. Objects contain no digests of entries; those of Pulsar's
messages are verified by `connectors.pulsar.protocol.entry`.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from trueup.connectors.pulsar import offload_index
from trueup.connectors.pulsar.offload_index import (
    BLOCK_HEADER,
    ENTRY,
    HEADER,
    LONGEST_INDEX,
    MAGIC_BLOCK,
    WINDOW,
    Index,
)
from trueup.connectors.s3.store import Head, ObjectStore
from trueup.state.common.errors import BadBytes, Refused, Stop
from trueup.state.deletion.offloads import OffloadedCopy
from trueup.state.deletion.owners import Component

_TODO = "read the ledger from BookKeeper, or restore the object"


class NoSuchObject(Refused):
    """The store has no such object."""


class OffloadReader:
    """The entries of one offloaded ledger. Raises `NoSuchObject` if an object is missing, `BadBytes` if one is
    damaged, `Stop` if it was replaced or is not that ledger, `Retry` if the store does not respond."""

    def __init__(self, store: ObjectStore, copy: OffloadedCopy, owner: str) -> None:
        self._store, self._pair = store, copy.pair
        self._where = f"{store.place}/{copy.pair.data_key}"
        head = self._there(copy.pair.index_key)
        if head.size > LONGEST_INDEX:
            raise Stop(f"an index of at most {LONGEST_INDEX} bytes", str(head.size), _TODO)
        self._index = offload_index.index_of(
            store.read(copy.pair.index_key, 0, head.size, head.tag), f"{self._where}-index"
        )
        claim = self._index.claim
        if (claim.component, claim.owner) != (Component.DATA, owner):
            raise Stop(f"a ledger of {owner} in {self._where}", f"one of {claim.owner or 'no topic'}", _TODO)
        self._data = self._there(copy.pair.data_key)
        if self._data.size != self._index.data_length:
            raise BadBytes(
                self._where, self._data.size, f"{self._index.data_length} bytes", f"{self._data.size}", _TODO
            )

    @property
    def last(self) -> int:
        """The last entry of the ledger."""
        return self._index.last_entry

    def read(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, memoryview]]:
        """Entries ``first`` to ``last`` (None: `last`, which is also the maximum), in order. Views are valid until
        the next step."""
        end = self.last if last is None else min(last, self.last)
        if first > end:
            return
        blocks = self._index.blocks
        at = int(np.searchsorted(blocks["first"].astype(np.int64), first, "right")) - 1
        expected = int(blocks["first"][at])
        with _Ahead(self._fetch, int(blocks["offset"][at]), self._data.size, self._where) as source:
            for offset, block_end in _bounds(self._index, at):
                for entry, payload in _entries(source, expected, offset, block_end, self._where):
                    if entry >= first:
                        yield entry, payload
                    expected = entry + 1
                    if entry == end:
                        return
        raise BadBytes(self._where, self._data.size, f"entry {expected}", "the end of the object", _TODO)

    def _fetch(self, offset: int, count: int) -> bytes:
        found = self._store.read(self._pair.data_key, offset, count, self._data.tag)
        if len(found) != count:
            raise BadBytes(self._where, offset, f"{count} more bytes", str(len(found)), _TODO)
        return found

    def _there(self, key: str) -> Head:
        found = self._store.head(key)
        if found is None:
            raise NoSuchObject(f"{key} in {self._store.place}", "none", _TODO)
        return found


def _bounds(index: Index, first: int) -> Iterator[tuple[int, int]]:
    """Start and end of each block from row ``first`` on."""
    starts = index.blocks["offset"].tolist()[first:]
    yield from zip(starts, [*starts[1:], index.data_length], strict=True)


def _entries(source: "_Ahead", expected: int, offset: int, end: int, where: str) -> Iterator[tuple[int, memoryview]]:
    """The entries of one block, which starts with ``expected``."""
    magic, header, length, entry = BLOCK_HEADER.unpack(source.take(offset, HEADER)[: BLOCK_HEADER.size])
    if (magic, header, length, entry) != (MAGIC_BLOCK, HEADER, end - offset, expected):
        wanted = f"the header of a block of {end - offset} bytes with entry {expected} as its first"
        raise BadBytes(where, offset, wanted, f"{magic:#x}, {header}, {length}, {entry}", _TODO)
    at = offset + HEADER
    while end - at >= ENTRY.size:
        size, entry = ENTRY.unpack(source.take(at, ENTRY.size))
        if size < 0:
            return  # padding
        if entry != expected or size > end - at - ENTRY.size:
            wanted = f"entry {expected} with at most {end - at - ENTRY.size} bytes"
            raise BadBytes(where, at, wanted, f"entry {entry} with {size}", _TODO)
        yield entry, source.take(at + ENTRY.size, size)
        at, expected = at + ENTRY.size + size, expected + 1


class _Ahead:
    """Bytes of an object in ascending order, of which the next range is read ahead."""

    def __init__(self, fetch: Callable[[int, int], bytes], offset: int, size: int, where: str) -> None:
        self._fetch, self._size, self._where = fetch, size, where
        self._begin, self._held = offset, memoryview(b"")
        self._pool = ThreadPoolExecutor(1, "reading ahead")
        self._next_at = offset
        self._next = self._submit()

    def __enter__(self) -> "_Ahead":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def take(self, offset: int, count: int) -> memoryview:
        """``count`` bytes from ``offset`` on, which is not before those of an earlier call."""
        if offset + count > self._begin + len(self._held):
            self._advance(offset, count)
        at = offset - self._begin
        return self._held[at : at + count]

    def _advance(self, offset: int, count: int) -> None:
        if offset + count > self._size:
            raise BadBytes(self._where, self._size, f"{count} bytes from {offset} on", "the end of the object", _TODO)
        parts, end = [self._held[offset - self._begin :]], self._begin + len(self._held)
        while end < offset + count:
            assert self._next is not None
            found = self._next.result()
            self._next = self._submit()
            # The padding of a block can reach beyond what is held.
            parts.append(memoryview(found)[max(0, offset - end) :])
            end += len(found)
        self._held = memoryview(b"".join(parts))
        self._begin = end - len(self._held)

    def _submit(self) -> "Future[bytes] | None":
        count = min(WINDOW, self._size - self._next_at)
        if count <= 0:
            return None
        offset, self._next_at = self._next_at, self._next_at + count
        return self._pool.submit(self._fetch, offset, count)
