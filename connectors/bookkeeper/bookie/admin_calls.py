"""Single requests to a bookie, in the third encoding (BookkeeperProtocol.proto). All are read-only.

This module cannot send a flag or a master key: a read that fences would take a ledger from its writer.
"""

import ssl
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from trueup.connectors.bookkeeper.bookie.codes import Code, failure
from trueup.connectors.bookkeeper.bookie.connection import BookieConnection, framed
from trueup.connectors.bookkeeper.messages import Request
from trueup.connectors.bookkeeper.metadata.addresses import Address
from trueup.connectors.closing import Closing

_READ, _LAC, _INFO = 1, 7, 8
_TOTAL_AND_FREE = 3
_KNOWN = (Code.OK, Code.NO_LEDGER, Code.NO_ENTRY)


class LocatedEntries(NamedTuple):
    """The response to a request for one entry."""

    code: int
    """`Code.OK`, `Code.NO_LEDGER` or `Code.NO_ENTRY`."""
    stored: bytes = b""
    """The stored bytes of the entry if the code is OK."""


class Lac(NamedTuple):
    """A bookie's evidence of the last confirmed entry of a ledger; see `connectors.bookkeeper.bookie.entries`."""

    note: bytes
    """An explicit LAC; may be empty."""
    last: bytes
    """The last entry of the ledger in stored form; may be empty."""


class DiskUsage(NamedTuple):
    """Bytes of a bookie's ledger disks."""

    total: int
    free: int


class Calls(Closing):
    """One connection for requests. Raises `Retry` if it breaks, `Stop` if the bookie requires a login."""

    def __init__(self, name: str, address: Address, timeout_s: float, tls: ssl.SSLContext | None = None) -> None:
        self._bookie = BookieConnection(name, address, timeout_s, tls)
        self._sent = 0

    def read(self, ledger: int, entry: int) -> LocatedEntries:
        """One entry. A missing entry or ledger is a result; any other code raises."""
        request = self._request(_READ)
        request.read.ledgerId, request.read.entryId = ledger, entry
        answer, code = self._ask(request, "read")
        if code not in _KNOWN:
            raise failure(code, f"entry {entry} of ledger {ledger}", self._bookie.name)
        return LocatedEntries(code, answer.body)

    def codes(self, ledgers: Iterable[int], entry: int = 0, window: int = 64) -> Iterator[tuple[int, int]]:
        """Ledgers and the `Code` of reading one entry of each, in the order of the responses.

        ``window``: the number of requests in flight; each response can contain a whole entry.
        """
        rest = iter(ledgers)
        asked: dict[int, int] = {}
        while True:
            if questions := [self._question(ledger, entry, asked) for ledger in islice(rest, window - len(asked))]:
                self._bookie.send(questions)
            if not asked:
                return
            for _ in range((len(asked) + 1) // 2):
                answer = self._bookie.response()
                if answer.header.txnId in asked:
                    yield asked.pop(answer.header.txnId), answer.read.status or answer.status

    def lac(self, ledger: int) -> Lac | None:
        """The bookie's evidence of the last confirmed entry of an open ledger; None if it does not hold the ledger."""
        request = self._request(_LAC)
        request.lac.ledgerId = ledger
        answer, code = self._ask(request, "lac")
        if code in (Code.NO_LEDGER, Code.NO_ENTRY):
            return None
        if code != Code.OK:
            raise failure(code, f"the last confirmed entry of ledger {ledger}", self._bookie.name)
        return Lac(answer.lacBody, answer.lastEntryBody)

    def room(self) -> DiskUsage:
        """Total and free bytes of the bookie's ledger disks."""
        request = self._request(_INFO)
        request.info.requested = _TOTAL_AND_FREE
        answer, code = self._ask(request, "info")
        if code != Code.OK:
            raise failure(code, "its free space", self._bookie.name)
        return DiskUsage(answer.totalDiskCapacity, answer.freeDiskSpace)

    def close(self) -> None:
        """Close the connection."""
        self._bookie.close()

    def _question(self, ledger: int, entry: int, asked: dict[int, int]) -> bytes:
        request = self._request(_READ)
        request.read.ledgerId, request.read.entryId = ledger, entry
        asked[self._sent] = ledger
        return framed(request.SerializeToString())

    def _request(self, operation: int) -> Any:
        self._sent += 1
        request = Request()
        request.header.version, request.header.operation, request.header.txnId = 3, operation, self._sent
        return request

    def _ask(self, request: Any, field: str) -> tuple[Any, int]:
        """The inner message of the response and its code."""
        self._bookie.send([framed(request.SerializeToString())])
        while (answer := self._bookie.response()).header.txnId != request.header.txnId:
            pass  # a response to an abandoned request
        inner = getattr(answer, field)
        return inner, inner.status or answer.status
