"""Entries in bulk from one bookie, in the second encoding (BookieProtocol.java): fixed fields, nothing to parse.

A request says its size (int32), version 2, operation and flags (none, ever: a reader that fences takes a ledger from
its writer), ledger and entry. Answers name ledger and entry and no request, so a connection serves one read at a time.
"""

import ssl
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from trueup.connectors.bookkeeper.bookie.codes import IN_V2, failure
from trueup.connectors.bookkeeper.bookie.connection import Bookie, Ended
from trueup.connectors.bookkeeper.metadata.addresses import Address
from trueup.connectors.closing import Closing
from trueup.state.common.errors import BadBytes, Stop, TrueupError

_READ_OP, _BATCH_OP = 2, 7
_READ = struct.Struct(">iIqq")  # size, head, ledger, entry
_BATCH = struct.Struct(">iIqqqiq")  # size, head, ledger, first entry, id, most entries, most bytes
_ANSWER = struct.Struct(">IIqq")  # head, code, ledger, entry
_BATCH_ANSWER = 32  # the same and the id; then size (int32) and bytes of each entry
_SIZE = struct.Struct(">i")
_READ_HEAD, _BATCH_HEAD = 2 << 24 | _READ_OP << 16, 2 << 24 | _BATCH_OP << 16
_MOST_ENTRIES, _MOST_BYTES = 500, 4 << 20
WINDOW = 128
"""Single reads under way at once; a bookie refuses more than maxPendingReadRequestsPerThread, 10,000."""


class Reads(Closing):
    """One connection for reads, made when it is needed and again after it broke.

    Views of entries are valid until the next step. Raises `Retry` when the bookie is silent or hangs up, `Stop` when
    it lets nobody in or a read goes on after another one began.
    """

    def __init__(self, name: str, address: Address, timeout_s: float, tls: ssl.SSLContext | None = None) -> None:
        self._name = name
        self._address, self._timeout_s, self._tls = address, timeout_s, tls
        self._bookie: Bookie | None = None
        self._batches = True
        self._turn = self._ledger = self._flying = 0

    def run(self, ledger: int, first: int, last: int) -> Iterator[tuple[int, memoryview]]:
        """Consecutive entries and what is stored of them, from a bookie that holds all of them.

        One that hangs up on its first batch does not know them: it is asked for single entries, many at once. Raises
        `NoSuchLedger` and `NoSuchEntry`, of the entry after the last that was given.
        """
        at, mine = first, self._begin(ledger)
        while self._batches and at <= last:
            fresh = self._bookie is None
            try:
                frame = self._carry() if self._flying else self._carry(self._batch(at, last))
            except Ended:
                if at > first:
                    raise
                self._batches = not fresh  # an old connection may have ended for any reason
                continue
            self._flying = 0
            entries = list(self._cut(frame, at, min(_MOST_ENTRIES, last - at + 1)))
            if at + len(entries) <= last:
                self._carry(self._batch(at + len(entries), last), receive=False)
                self._flying = 1
            for stored in entries:
                yield at, stored
                self._check(mine)
                at += 1
        for entry, code, stored in self.some(ledger, range(at, last + 1)):
            if entry != at:
                raise self._strange(0, f"entry {at} of ledger {ledger}", f"entry {entry}")
            if code:
                raise self.failure(code, entry)
            yield entry, stored
            at += 1

    def some(self, ledger: int, entries: Iterable[int], window: int = WINDOW) -> Iterator[tuple[int, int, memoryview]]:
        """These entries, `Code` and what is stored of each: many at once, in the order of the answers."""
        mine = self._begin(ledger)
        rest = iter(entries)
        while True:
            if wanted := list(islice(rest, window - self._flying)):
                self._send(wanted)
            if not self._flying:
                return
            for _ in range((self._flying + 1) // 2):
                yield self._answer()
                self._check(mine)

    def ask(self, ledger: int, entries: Sequence[int]) -> None:
        """Ask for these entries, some hundreds at most, and return at once; `answers` has them."""
        self._begin(ledger)
        self._send(entries)

    def answers(self) -> Iterator[tuple[int, int, memoryview]]:
        """What was asked for with `ask`, as `some` gives it."""
        mine = self._turn
        while self._flying:
            yield self._answer()
            self._check(mine)

    def close(self) -> None:
        """Close the connection; the next read makes another."""
        if self._bookie is not None:
            self._bookie.close()
        self._bookie, self._flying = None, 0

    def _begin(self, ledger: int) -> int:
        """Begin a read; its number."""
        if self._flying:
            self.close()  # answers to a read that was given up are still to come
        self._turn += 1
        self._ledger = ledger
        return self._turn

    def _check(self, mine: int) -> None:
        if self._turn != mine:
            found = f"a read of ledger {self._ledger} that began meanwhile"
            raise Stop(f"one read at a time from bookie {self._name}", found, "use a connection for each reader")

    def _batch(self, first: int, last: int) -> tuple[bytes]:
        """The request for as many of these entries as come in one answer."""
        size, count = _BATCH.size - _SIZE.size, min(_MOST_ENTRIES, last - first + 1)
        return (_BATCH.pack(size, _BATCH_HEAD, self._ledger, first, self._turn, count, _MOST_BYTES),)

    def _cut(self, frame: memoryview, first: int, most: int) -> Iterator[memoryview]:
        """The entries in the answer to a batch; at least one, and no more than were asked for."""
        code, _ = self._head(frame, _BATCH_OP, _BATCH_ANSWER)
        if code:
            raise self.failure(code, first)
        at, end = _BATCH_ANSWER, len(frame)
        while at < end or at == _BATCH_ANSWER:
            start = at + _SIZE.size
            size = _SIZE.unpack_from(frame, at)[0] if start <= end else -1
            at = start + size
            if size < 0 or at > end:
                raise self._strange(start, "an entry and its size", f"{end - start} bytes")
            if not most:
                raise self._strange(start, "the entries that were asked for", "more")
            most -= 1
            yield frame[start:at]

    def _send(self, entries: Sequence[int]) -> None:
        size = _READ.size - _SIZE.size
        self._flying += len(entries)
        self._carry([_READ.pack(size, _READ_HEAD, self._ledger, entry) for entry in entries], receive=False)

    def _answer(self) -> tuple[int, int, memoryview]:
        frame = self._carry()
        self._flying -= 1
        code, entry = self._head(frame, _READ_OP, _ANSWER.size)
        return entry, code, frame[_ANSWER.size :]

    def _head(self, frame: memoryview, operation: int, size: int) -> tuple[int, int]:
        """Code and entry of an answer to this operation, whose head has this size."""
        if len(frame) < _ANSWER.size:
            raise self._strange(0, f"{_ANSWER.size} bytes at least", f"{len(frame)}")
        head, number, ledger, entry = _ANSWER.unpack_from(frame)
        code = IN_V2.get(number, number)
        if (head >> 16 & 0xFF, ledger) != (operation, self._ledger) or (not code and len(frame) < size):
            expected = f"an answer to operation {operation} on ledger {self._ledger}"
            raise self._strange(0, expected, f"{len(frame)} bytes of operation {head >> 16 & 0xFF} on {ledger}")
        return code, entry

    def _carry(self, parts: Sequence[bytes] = (), receive: bool = True) -> memoryview:
        """Send and receive; without a connection from now on if that fails."""
        try:
            if self._bookie is None:
                self._bookie = Bookie(self._name, self._address, self._timeout_s, self._tls)
            if parts:
                self._bookie.send(parts)
            return self._bookie.receive() if receive else _NOTHING
        except TrueupError:
            self.close()
            raise

    def failure(self, code: int, entry: int) -> TrueupError:
        """Our error for what the bookie answered of an entry."""
        return failure(code, f"entry {entry} of ledger {self._ledger}", self._name)

    def _strange(self, at: int, expected: str, found: str) -> BadBytes:
        self.close()
        return BadBytes(f"an answer of bookie {self._name}", at, expected, found, "see what listens there")


_NOTHING = memoryview(b"")
