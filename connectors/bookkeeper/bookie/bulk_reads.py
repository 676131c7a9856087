"""Bulk reads of entries from one bookie, in the second encoding (BookieProtocol.java) with its fixed fields.

A request consists of size (int32), version 2, operation and flags (never any: a read that fences would take a ledger
from its writer), ledger and entry. Responses contain ledger and entry but no request id, so a connection serves one
read at a time.
"""

import ssl
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from trueup.connectors.bookkeeper.bookie.codes import IN_V2, failure
from trueup.connectors.bookkeeper.bookie.connection import BookieConnection, Ended
from trueup.connectors.bookkeeper.metadata.addresses import Address
from trueup.connectors.closing import Closing
from trueup.state.common.errors import BadBytes, Stop, TrueupError

_READ_OP, _BATCH_OP = 2, 7
_READ = struct.Struct(">iIqq")  # size, head, ledger, entry
_BATCH = struct.Struct(">iIqqqiq")  # size, head, ledger, first entry, id, maximum entries, maximum bytes
_ANSWER = struct.Struct(">IIqq")  # head, code, ledger, entry
_BATCH_ANSWER = 32  # as _ANSWER plus the id; then size (int32) and bytes of each entry
_SIZE = struct.Struct(">i")
_READ_HEAD, _BATCH_HEAD = 2 << 24 | _READ_OP << 16, 2 << 24 | _BATCH_OP << 16
_MOST_ENTRIES, _MOST_BYTES = 500, 4 << 20
WINDOW = 128
"""Single reads in flight; a bookie refuses more than maxPendingReadRequestsPerThread, 10,000."""


class ReadConnection(Closing):
    """One connection for reads, opened on demand and again after it broke.

    Views of entries are valid until the next step. Raises `Retry` if the bookie does not respond or closes the
    connection, `Stop` if it requires a login or a read continues after another one started.
    """

    def __init__(self, name: str, address: Address, timeout_s: float, tls: ssl.SSLContext | None = None) -> None:
        self._name = name
        self._address, self._timeout_s, self._tls = address, timeout_s, tls
        self._bookie: BookieConnection | None = None
        self._batches = True
        self._read_number = self._ledger = self._flying = 0

    def run(self, ledger: int, first: int, last: int) -> Iterator[tuple[int, memoryview]]:
        """Consecutive entries as stored, from a bookie that holds all of them.

        A bookie that closes the connection on its first batch read does not support them and receives many single
        reads instead. Raises `NoSuchLedger` and `NoSuchEntry` for the entry after the last one returned.
        """
        at, mine = first, self._begin(ledger)
        while self._batches and at <= last:
            fresh = self._bookie is None
            try:
                frame = self._exchange() if self._flying else self._exchange(self._batch(at, last))
            except Ended:
                if at > first:
                    raise
                self._batches = not fresh  # a reused connection can end for any reason
                continue
            self._flying = 0
            entries = list(self._cut(frame, at, min(_MOST_ENTRIES, last - at + 1)))
            if at + len(entries) <= last:
                self._exchange(self._batch(at + len(entries), last), receive=False)
                self._flying = 1
            for stored in entries:
                yield at, stored
                self._check(mine)
                at += 1
        for entry, code, stored in self.some(ledger, range(at, last + 1)):
            if entry != at:
                raise self._bad_bytes(0, f"entry {at} of ledger {ledger}", f"entry {entry}")
            if code:
                raise self.failure(code, entry)
            yield entry, stored
            at += 1

    def some(self, ledger: int, entries: Iterable[int], window: int = WINDOW) -> Iterator[tuple[int, int, memoryview]]:
        """These entries with `Code` and stored bytes: many in flight, in the order of the responses."""
        mine = self._begin(ledger)
        rest = iter(entries)
        while True:
            if batch := list(islice(rest, window - self._flying)):
                self._send(batch)
            if not self._flying:
                return
            for _ in range((self._flying + 1) // 2):
                yield self._answer()
                self._check(mine)

    def ask(self, ledger: int, entries: Sequence[int]) -> None:
        """Request these entries, at most some hundreds, and return immediately; `answers` has the responses."""
        self._begin(ledger)
        self._send(entries)

    def answers(self) -> Iterator[tuple[int, int, memoryview]]:
        """The responses to `ask`, in the form of `some`."""
        mine = self._read_number
        while self._flying:
            yield self._answer()
            self._check(mine)

    def close(self) -> None:
        """Close the connection; the next read opens another."""
        if self._bookie is not None:
            self._bookie.close()
        self._bookie, self._flying = None, 0

    def _begin(self, ledger: int) -> int:
        """Start a read and return its number."""
        if self._flying:
            self.close()  # responses to an abandoned read are still outstanding
        self._read_number += 1
        self._ledger = ledger
        return self._read_number

    def _check(self, mine: int) -> None:
        if self._read_number != mine:
            other_read = f"a concurrent read of ledger {self._ledger}"
            raise Stop(f"one read at a time from bookie {self._name}", other_read, "use one connection per reader")

    def _batch(self, first: int, last: int) -> tuple[bytes]:
        """The request for as many of these entries as fit into one response."""
        size, count = _BATCH.size - _SIZE.size, min(_MOST_ENTRIES, last - first + 1)
        return (_BATCH.pack(size, _BATCH_HEAD, self._ledger, first, self._read_number, count, _MOST_BYTES),)

    def _cut(self, frame: memoryview, first: int, most: int) -> Iterator[memoryview]:
        """The entries in the response to a batch read; at least one, and at most the requested number."""
        code, _ = self._head(frame, _BATCH_OP, _BATCH_ANSWER)
        if code:
            raise self.failure(code, first)
        at, end = _BATCH_ANSWER, len(frame)
        while at < end or at == _BATCH_ANSWER:
            start = at + _SIZE.size
            size = _SIZE.unpack_from(frame, at)[0] if start <= end else -1
            at = start + size
            if size < 0 or at > end:
                raise self._bad_bytes(start, "an entry and its size", f"{end - start} bytes")
            if not most:
                raise self._bad_bytes(start, "the requested entries", "more")
            most -= 1
            yield frame[start:at]

    def _send(self, entries: Sequence[int]) -> None:
        size = _READ.size - _SIZE.size
        self._flying += len(entries)
        self._exchange([_READ.pack(size, _READ_HEAD, self._ledger, entry) for entry in entries], receive=False)

    def _answer(self) -> tuple[int, int, memoryview]:
        frame = self._exchange()
        self._flying -= 1
        code, entry = self._head(frame, _READ_OP, _ANSWER.size)
        return entry, code, frame[_ANSWER.size :]

    def _head(self, frame: memoryview, operation: int, size: int) -> tuple[int, int]:
        """Code and entry of a response to this operation with a head of this size."""
        if len(frame) < _ANSWER.size:
            raise self._bad_bytes(0, f"at least {_ANSWER.size} bytes", f"{len(frame)}")
        head, number, ledger, entry = _ANSWER.unpack_from(frame)
        code = IN_V2.get(number, number)
        if (head >> 16 & 0xFF, ledger) != (operation, self._ledger) or (not code and len(frame) < size):
            expected = f"a response to operation {operation} on ledger {self._ledger}"
            raise self._bad_bytes(0, expected, f"{len(frame)} bytes of operation {head >> 16 & 0xFF} on {ledger}")
        return code, entry

    def _exchange(self, parts: Sequence[bytes] = (), receive: bool = True) -> memoryview:
        """Send and receive; closes the connection on failure."""
        try:
            if self._bookie is None:
                self._bookie = BookieConnection(self._name, self._address, self._timeout_s, self._tls)
            if parts:
                self._bookie.send(parts)
            return self._bookie.receive() if receive else _NOTHING
        except TrueupError:
            self.close()
            raise

    def failure(self, code: int, entry: int) -> TrueupError:
        """The error for the bookie's response code for an entry."""
        return failure(code, f"entry {entry} of ledger {self._ledger}", self._name)

    def _bad_bytes(self, at: int, expected: str, found: str) -> BadBytes:
        self.close()
        return BadBytes(f"a response from bookie {self._name}", at, expected, found, "check the address")


_NOTHING = memoryview(b"")
