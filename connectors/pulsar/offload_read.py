"""Reads the entries of an offloaded ledger from its objects (the format: `connectors.pulsar.offload_index`).

The data object is read in ranges of `WINDOW` bytes, or up to a quarter more at the end, the next one while the entries
of one are used: at most two of them, and the longest entry, are in memory. There is one request for each range, and one
for an index of usual size: the first response for an object has its size and ETag, which later requests demand. An
object that fits into one range and is read as a whole needs no index, because each block starts with its own length
and its first entry. Objects contain no digests of entries; those of Pulsar's messages are verified by
`connectors.pulsar.protocol.entry`.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from itertools import pairwise

import numpy as np

from trueup.connectors.pulsar import offload_index
from trueup.connectors.pulsar.offload_index import BLOCK_HEADER, ENTRY, HEADER, LONGEST_INDEX, MAGIC_BLOCK, Index
from trueup.connectors.s3.store import ObjectStart, ObjectStore
from trueup.state.common.errors import BadBytes, Refused, Stop
from trueup.state.deletion.offloads import OffloadedCopy
from trueup.state.deletion.owners import Component

WINDOW = 1 << 24
_INDEX_BYTES = 1 << 16
"""More than 3,000 blocks."""
_TODO = "read the ledger from BookKeeper, or restore the object"
Take = Callable[[int, int], memoryview]
"""Bytes of the data object from an offset on, which are there."""


class NoSuchObject(Refused):
    """The store has no such object."""


class OffloadReader:
    """The entries of one offloaded ledger. Raises `NoSuchObject` if an object is missing, `BadBytes` if one is
    damaged, `Refused` if it was deleted during the read or was cut, `Retry` if the store does not respond, and other
    `Stop` if it denies access, or the object was replaced or names another owner: brokers read that one too."""

    def __init__(self, store: ObjectStore, copy: OffloadedCopy, owner: str) -> None:
        self._store, self._pair = store, copy.pair
        self._where, self._tag, self._owner = f"{store.place}/{copy.pair.data_key}", "", owner

    def read(self, first: int = 0, last: int | None = None, size: int = 0) -> Iterator[tuple[int, memoryview]]:
        """Entries ``first`` to ``last`` (None: the last one, which is also the maximum), in order. ``size``: their
        bytes if these are all entries of the ledger, 0: they are not, or that is unknown. Views are valid until the
        next step."""
        if last is not None and 0 < size <= WINDOW:
            content = self._small()
            if content is not None:
                blocks = list(_blocks(content, self._where))
                yield from self._entries(lambda at, count: content[at : at + count], blocks, 0, 0, last)
                return
        index = self._index
        end = index.last_entry if last is None else min(last, index.last_entry)
        if first > end:
            return
        at = int(np.searchsorted(index.blocks["first"].astype(np.int64), first, "right")) - 1
        bounds = list(_bounds(index, at, end))
        with _Ahead(self._fetch, bounds[0][0], bounds[-1][1], self._where) as source:
            yield from self._entries(source.take, bounds, int(index.blocks["first"][at]), first, end)

    def _entries(
        self, take: Take, bounds: Sequence[tuple[int, int]], expected: int, first: int, end: int
    ) -> Iterator[tuple[int, memoryview]]:
        """Entries ``first`` to ``end`` in these blocks, which start with entry ``expected``."""
        for offset, block_end in bounds:
            for entry, payload in _in_block(take, expected, offset, block_end, self._where):
                if entry >= first:
                    yield entry, payload
                expected = entry + 1
                if entry == end:
                    return
        raise BadBytes(self._where, bounds[-1][1], f"entry {expected}", "the end of its block", _TODO)

    @cached_property
    def _index(self) -> Index:
        index = offload_index.index_of(self._whole(self._pair.index_key), f"{self._where}-index")
        if index.tagged:
            self._is_of(index.claim.owner if index.claim.component is Component.DATA else "")
        return index

    def _is_of(self, owner: str) -> None:
        if owner != self._owner:
            raise Stop(f"a ledger of {self._owner} in {self._where}", f"one of {owner or 'no topic'}", _TODO)

    def _small(self) -> memoryview | None:
        """The data object if it fits into one range."""
        begun = self._begun(self._pair.data_key, 0, WINDOW + WINDOW // 4)
        self._is_of(begun.metadata.get("managedledgername", self._owner))
        return memoryview(begun.content) if begun.size == len(begun.content) else None

    def _fetch(self, offset: int, count: int) -> bytes:
        if self._tag:
            content = self._store.read(self._pair.data_key, offset, count, self._tag)
        else:
            begun, expected = self._begun(self._pair.data_key, offset, count), self._index.data_length
            if begun.size != expected:
                raise BadBytes(self._where, begun.size, f"{expected} bytes", f"{begun.size}", _TODO)
            content, self._tag = begun.content, begun.tag
        if len(content) != count:
            raise BadBytes(self._where, offset, f"{count} more bytes", str(len(content)), _TODO)
        return content

    def _whole(self, key: str) -> bytes:
        """The index object."""
        begun = self._begun(key, 0, _INDEX_BYTES)
        if begun.size > LONGEST_INDEX:
            raise BadBytes(f"{self._where}-index", LONGEST_INDEX, "the end of the index", f"{begun.size} bytes", _TODO)
        rest = begun.size - len(begun.content)
        return begun.content + (self._store.read(key, len(begun.content), rest, begun.tag) if rest else b"")

    def _begun(self, key: str, offset: int, count: int) -> ObjectStart:
        start = self._store.begin(key, offset, count)
        if start is None:
            raise NoSuchObject(f"{key} in {self._store.place}", "none", _TODO)
        return start


def _bounds(index: Index, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Start and end of each block from row ``first`` on to that with entry ``last``."""
    after = int(np.searchsorted(index.blocks["first"].astype(np.int64), last, "right"))
    starts = [*index.blocks["offset"].tolist(), index.data_length]
    yield from pairwise(starts[first : after + 1])


def _blocks(content: memoryview, where: str) -> Iterator[tuple[int, int]]:
    """Start and end of each block of a whole object."""
    at = 0
    while at < len(content):
        left = len(content) - at
        length = BLOCK_HEADER.unpack_from(content, at)[2] if left >= HEADER else 0
        if not HEADER <= length <= left:
            raise BadBytes(where, at, f"a block of {HEADER} to {left} bytes", str(length), _TODO)
        yield at, at + length
        at += length


def _in_block(take: Take, expected: int, offset: int, end: int, where: str) -> Iterator[tuple[int, memoryview]]:
    """The entries of one block, which starts with ``expected``."""
    magic, header, length, entry = BLOCK_HEADER.unpack(take(offset, HEADER)[: BLOCK_HEADER.size])
    if (magic, header, length, entry) != (MAGIC_BLOCK, HEADER, end - offset, expected):
        layout = f"the header of a block of {end - offset} bytes with entry {expected} as its first"
        raise BadBytes(where, offset, layout, f"{magic:#x}, {header}, {length}, {entry}", _TODO)
    at = offset + HEADER
    while end - at >= ENTRY.size:
        size, entry = ENTRY.unpack(take(at, ENTRY.size))
        if size < 0:
            return  # padding
        if entry != expected or size > end - at - ENTRY.size:
            layout = f"entry {expected} with at most {end - at - ENTRY.size} bytes"
            raise BadBytes(where, at, layout, f"entry {entry} with {size}", _TODO)
        yield entry, take(at + ENTRY.size, size)
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
            part = self._next.result()
            self._next = self._submit()
            # The padding of a block can reach beyond what is held.
            parts.append(memoryview(part)[max(0, offset - end) :])
            end += len(part)
        self._held = memoryview(b"".join(parts))
        self._begin = end - len(self._held)

    def _submit(self) -> "Future[bytes] | None":
        left = self._size - self._next_at
        if left <= 0:
            return None
        count = left if left <= WINDOW + WINDOW // 4 else WINDOW  # no small request at the end
        offset, self._next_at = self._next_at, self._next_at + count
        return self._pool.submit(self._fetch, offset, count)
