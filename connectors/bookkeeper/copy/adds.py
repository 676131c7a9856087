"""Writes entries of closed ledgers to one bookie, in the second encoding of the protocol (BookieProtocol.java).

A request consists of size (int32), version 2, operation and flags, the master key of the ledger (20 bytes) and the
stored bytes of an entry. The response has code, ledger and entry.

The flag for recovery lets an entry pass a fence, and a bookie that does not have the ledger accepts any key. Therefore
the caller must hold the lock of the ledger, must have read under it that the ledger is closed, and must take the key
from the metadata that it read. The flag for high priority is never sent: read-only bookies would accept the entry.
"""

import hashlib
import ssl
import struct
from collections.abc import Iterable
from typing import NamedTuple

from trueup.connectors.bookkeeper.bookie.codes import IN_V2, Code, failure, named
from trueup.connectors.bookkeeper.bookie.connection import BookieConnection
from trueup.connectors.bookkeeper.metadata.addresses import Address
from trueup.connectors.closing import Closing
from trueup.state.common.errors import BadBytes, Refused, Stop, TrueupError

_ADD_OP, _RECOVERY = 1, 2
_REQUEST = struct.Struct(">iI")  # size, head
_ADD_HEAD = 2 << 24 | _ADD_OP << 16 | _RECOVERY
_ANSWER = struct.Struct(">IIqq")  # head, code, ledger, entry
_TOGETHER_BYTES = 256 << 10
"""Bytes that are sent with one call."""
WINDOW, WINDOW_BYTES = 256, 8 << 20
"""Entries, and their bytes, that one connection has in flight; a bookie refuses more than 10,000 entries of all
connections (maxPendingAddRequestsPerThread)."""
KEY_BYTES = 20


class AddedEntries(NamedTuple):
    """What a bookie has acknowledged."""

    entries: int
    bytes: int
    """Bytes of the entries in stored form."""


class RefusingTarget(Refused):
    """This bookie does not accept the ledger: it once had it, also as part of a copy that did not end, and dropped it.
    Another bookie may accept it."""


class PoisonedReplica(Stop):
    """The bookie has the ledger with another master key."""


def master_key(password: bytes) -> bytes:
    """The key that writers of a ledger send (MacDigestManager.genDigest). Empty passwords have one too."""
    return hashlib.sha1(b"ledger" + password).digest()  # noqa: S324 - the format


class AddConnection(Closing):
    """One connection for entries to one bookie. Its bookie is called ``name``.

    Every method raises `Retry` if the connection breaks or the bookie does not respond. The connection is unusable
    after any error.
    """

    def __init__(self, name: str, address: Address, timeout_s: float, tls: ssl.SSLContext | None = None) -> None:
        self._name, self._bookie = name, BookieConnection(name, address, timeout_s, tls)
        self._sizes: dict[int, int] = {}

    def add(self, ledger: int, key: bytes, entries: Iterable[tuple[int, memoryview]]) -> AddedEntries:
        """Write these entries, given with their stored bytes, which must have been verified. Returns when the bookie
        has acknowledged all of them. Raises `Refused`, `RefusingTarget`, `PoisonedReplica`, `Retry`."""
        buffer, count, size = bytearray(), 0, 0
        for entry, stored in entries:
            buffer += _REQUEST.pack(_REQUEST.size - 4 + KEY_BYTES + len(stored), _ADD_HEAD)
            buffer += key
            buffer += stored
            self._sizes[entry] = len(stored)
            count, size = count + 1, size + len(stored)
            if len(buffer) >= _TOGETHER_BYTES or len(self._sizes) >= WINDOW:
                self._send(buffer)
                self._receive(ledger, WINDOW // 2, WINDOW_BYTES // 2)
        self._send(buffer)
        self._receive(ledger, 0, 0)
        return AddedEntries(count, size)

    def close(self) -> None:
        """Close the connection."""
        self._bookie.close()

    def _send(self, buffer: bytearray) -> None:
        if buffer:
            self._bookie.send((bytes(buffer),))
            buffer.clear()

    def _receive(self, ledger: int, entries: int, size: int) -> None:
        """Receive responses until at most these entries and bytes are in flight."""
        flying = sum(self._sizes.values())
        while len(self._sizes) > entries or flying > size:
            flying -= self._sizes.pop(self._answer(ledger))

    def _answer(self, ledger: int) -> int:
        """The entry of the next response, which must be one in flight."""
        frame = self._bookie.receive()
        if len(frame) < _ANSWER.size:
            raise self._bad_bytes(f"at least {_ANSWER.size} bytes", str(len(frame)))
        head, number, of, entry = _ANSWER.unpack_from(frame)
        operation = head >> 16 & 0xFF
        if operation != _ADD_OP or of != ledger or entry not in self._sizes:
            found = f"operation {operation}, entry {entry} of ledger {of}"
            raise self._bad_bytes(f"the response to an entry of ledger {ledger}", found)
        if number:
            raise refusal(IN_V2.get(number, number), entry, ledger, self._name)
        return int(entry)

    def _bad_bytes(self, expected: str, found: str) -> BadBytes:
        return BadBytes(f"a response from bookie {self._name}", 0, expected, found, "check the address")


def refusal(code: int, entry: int, ledger: int, bookie: str) -> TrueupError:
    """The error for the code of a response to an entry."""
    what = f"entry {entry} of ledger {ledger} to be written"
    if code == Code.FENCED:
        todo = "choose another bookie; this one dropped the ledger, and refuses it until it restarts"
        return RefusingTarget(f"{what} to bookie {bookie}", named(code), todo)
    if code == Code.READ_ONLY:
        return Refused(f"{what} to bookie {bookie}", named(code), "choose another bookie")
    if code == Code.UNAUTHORIZED:
        todo = f"delete ledger {ledger} from this bookie, or check its bookieAuthProviderFactoryClass"
        return PoisonedReplica(f"{what} to bookie {bookie} with the key of its metadata", named(code), todo)
    return failure(code, what, bookie)
