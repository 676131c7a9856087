"""Bookies of the simulated cluster, as a copy reaches them: they take the bytes of the second encoding."""

import struct
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from tests.simulation.checkers import Violation
from tests.simulation.copy_world import CopyWorld
from trueup.connectors.bookkeeper.bookie.connection import Ended
from trueup.connectors.bookkeeper.metadata.addresses import Address

_HEAD = struct.Struct(">iI")
_IDS = struct.Struct(">qq")
_ANSWER = struct.Struct(">IIqq")
_BATCH = struct.Struct(">qqqiq")
_SIZE = struct.Struct(">i")
ADD, READ, BATCH_READ = 1, 2, 7
FENCE, RECOVERY, URGENT = 1, 2, 4
"""Flags of a request (BookieProtocol.java)."""
OK, NO_LEDGER, NO_ENTRY, UNAUTHORIZED, FENCED, READ_ONLY = 0, 1, 2, 102, 104, 105
KEY_BYTES = 20


class Witness(Protocol):
    """Sees every request to a bookie. Raises `Violation`."""

    def adding(self, bookie: str, ledger: int, key: bytes, entry: int, body: bytes) -> None:
        """A bookie is about to store an entry."""


class CopyConnection:
    """Replaces `connectors.bookkeeper.bookie.connection.BookieConnection`. ``between``: called before each response;
    ``witness``: sees the entries."""

    def __init__(
        self,
        world: CopyWorld,
        between: Callable[[], None],
        witness: Witness,
        name: str,
        _address: Address,
        _timeout_s: float,
        _tls: Any = None,
    ) -> None:
        self._world, self._between, self._witness, self.name = world, between, witness, name
        self._answers = deque[bytes]()
        self._begun_zxid = world.bookies[name].begun_zxid
        self._check()

    def _check(self) -> None:
        bookie = self._world.bookies[self.name]
        if bookie.state == "down" or bookie.begun_zxid != self._begun_zxid:
            raise Ended(f"a response from bookie {self.name}", "connection closed", "retry")

    def send(self, parts: Iterable[bytes]) -> None:
        self._check()
        body = b"".join(parts)
        at = 0
        while at < len(body):
            size, head = _HEAD.unpack_from(body, at)
            self._answers.append(self._answer(head, body[at + _HEAD.size : at + 4 + size]))
            at += 4 + size

    def receive(self) -> memoryview:
        self._between()
        self._check()
        return memoryview(self._answers.popleft())

    def close(self) -> None:
        self._answers.clear()

    def _answer(self, head: int, body: bytes) -> bytes:
        operation, flags = head >> 16 & 0xFF, head & 0xFFFF
        if operation == ADD and flags == RECOVERY:
            return self._added(head, body)
        if operation == READ and not flags:
            ledger, entry = _IDS.unpack_from(body)
            code, found = self._read(ledger, [entry])
            return _ANSWER.pack(head, code, ledger, entry) + b"".join(found)
        if operation == BATCH_READ and not flags:
            ledger, first, number, count, _ = _BATCH.unpack_from(body)
            code, found = self._read(ledger, range(first, first + count))
            entries = b"".join(_SIZE.pack(len(one)) + one for one in found)
            return _ANSWER.pack(head, code, ledger, first) + number.to_bytes(8) + entries
        raise Violation(f"bookie {self.name} received operation {operation} with flags {flags}")

    def _read(self, ledger: int, entries: Sequence[int]) -> tuple[int, list[bytes]]:
        """The first of these entries up to one that is missing, and the code of the first."""
        replica = self._world.replica(self.name, ledger)
        found = list[bytes]()
        for entry in entries:
            if replica is None or entry not in replica.entries:
                break
            found.append(replica.entries[entry])
        return (OK if found else NO_LEDGER if replica is None else NO_ENTRY), found

    def _added(self, head: int, body: bytes) -> bytes:
        key, entry_bytes = body[:KEY_BYTES], body[KEY_BYTES:]
        ledger, entry = _IDS.unpack_from(entry_bytes)
        bookie, replica = self._world.bookies[self.name], self._world.replica(self.name, ledger)
        if bookie.state == "readonly":
            code = READ_ONLY
        elif bookie.refuses(ledger, self._world.now_ms):
            code = FENCED
        elif replica is not None and replica.key != key:
            code = UNAUTHORIZED
        else:
            code = OK
            self._witness.adding(self.name, ledger, key, entry, entry_bytes)
            self._world.keep(self.name, ledger, key, entry, entry_bytes)
        return _ANSWER.pack(head, code, ledger, entry)
