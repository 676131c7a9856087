"""Entries as bookies store them, and the digests that protect them (DigestManager.java and its subclasses).

32 bytes of head (ledger, entry, last confirmed entry when it was written, length of the ledger up to it; int64
big-endian each), the digest of head and payload, the payload. A bookie hands out what it stored: it checks nothing.
"""

import hashlib
import hmac
import struct
import zlib
from collections.abc import Callable, Mapping
from enum import IntEnum
from types import MappingProxyType

from crc32c import crc32c

from trueup.connectors.bookkeeper.metadata.metadata import protection
from trueup.state.common.errors import BadBytes, Stop

_HEAD = struct.Struct(">qqqq")
_IDS = struct.Struct(">qq")
_TODO = "read another copy; have this one replaced"
View = bytes | memoryview


class Kind(IntEnum):
    """How a ledger's entries are protected (DataFormats.proto, LedgerMetadataFormat.DigestType)."""

    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4


class DamagedEntry(BadBytes):
    """What a bookie stored is not the entry that was asked for, or not as it was written."""


def _crc32(head: View, rest: View) -> bytes:
    return zlib.crc32(rest, zlib.crc32(head)).to_bytes(8, "big")


def _crc32c(head: View, rest: View) -> bytes:
    return crc32c(rest, crc32c(head)).to_bytes(4, "big")


def _dummy(_head: View, _rest: View) -> bytes:
    return b""


_PLAIN: Mapping[Kind, tuple[int, Callable[[View, View], bytes]]] = MappingProxyType(
    {Kind.CRC32: (8, _crc32), Kind.CRC32C: (4, _crc32c), Kind.DUMMY: (0, _dummy)}
)


class Digest:
    """Checks the entries of one ledger. Only `Kind.HMAC` needs the ledger's password; it is not shown."""

    def __init__(self, kind: Kind, password: bytes = b"") -> None:
        self.kind = kind
        if kind is Kind.HMAC:
            key = hashlib.sha1(b"mac" + password).digest()  # noqa: S324 - the format
            self._size, self._sum = hashlib.sha1().digest_size, _hmac(key)  # noqa: S324
        else:
            self._size, self._sum = _PLAIN[kind]
        self.offset = _HEAD.size + self._size
        """Where the payload of an entry begins."""

    def check(self, ledger: int, entry: int, stored: memoryview) -> None:
        """Whether these bytes are that entry, unharmed. Raises `DamagedEntry`."""
        found = self._whole(ledger, f"entry {entry} of ledger {ledger}", stored)
        if found != entry:
            where = f"entry {entry} of ledger {ledger}"
            raise DamagedEntry(where, 8, f"entry {entry}", f"entry {found}", _TODO)

    def entry(self, ledger: int, stored: memoryview) -> tuple[int, int]:
        """Id of this entry, and of the last one that was confirmed when it was written. Raises `DamagedEntry`."""
        entry = self._whole(ledger, f"an entry of ledger {ledger}", stored)
        return entry, _HEAD.unpack_from(stored)[2]

    def note(self, ledger: int, note: memoryview) -> int:
        """The last confirmed entry in a writer's own note of it: ledger, entry, digest. Raises `DamagedEntry`."""
        where = f"the last confirmed entry of ledger {ledger}"
        ids = self._ids(ledger, where, note, _IDS.size)
        self._compare(where, _IDS.size, self._sum(note[: _IDS.size], b""), note)
        return ids[1]

    def seal(self, head: bytes, payload: bytes) -> bytes:
        """An entry as it is stored. ``head``: 32 bytes; see `head_of`."""
        return head + self._sum(head, payload) + payload

    def _whole(self, ledger: int, where: str, stored: memoryview) -> int:
        ids = self._ids(ledger, where, stored, _HEAD.size)
        digest = self._sum(stored[: _HEAD.size], stored[self.offset :])
        if digest != stored[_HEAD.size : self.offset]:
            self._compare(where, _HEAD.size, digest, stored)
        return ids[1]

    def _ids(self, ledger: int, where: str, stored: memoryview, head: int) -> tuple[int, int]:
        if len(stored) < head + self._size:
            raise DamagedEntry(where, len(stored), f"{head + self._size} bytes at least", f"{len(stored)}", _TODO)
        ids: tuple[int, int] = _IDS.unpack_from(stored)
        if ids[0] != ledger:
            raise DamagedEntry(where, 0, f"ledger {ledger}", f"ledger {ids[0]}", _TODO)
        return ids

    def _compare(self, where: str, at: int, digest: bytes, stored: memoryview) -> None:
        said = bytes(stored[at : at + self._size])
        if said != digest:
            raise DamagedEntry(where, at, f"{self.kind.name} {digest.hex()} of what it holds", said.hex(), _TODO)


def _hmac(key: bytes) -> Callable[[View, View], bytes]:
    def digest(head: View, rest: View) -> bytes:
        code = hmac.new(key, head, "sha1")
        code.update(rest)
        return code.digest()

    return digest


def head_of(ledger: int, entry: int, confirmed: int, length: int) -> bytes:
    """The head of an entry. ``length``: payload bytes of the ledger up to this entry and with it."""
    return _HEAD.pack(ledger, entry, confirmed, length)


def digest_of(data: bytes, path: str) -> Digest:
    """The digest that a ledger's metadata (bytes of the znode at ``path``) name. Raises `BadBytes`, `Stop`."""
    found = protection(data, path)
    if found is None:
        todo = "let BookKeeper's own client read it, which is told by its user"
        raise Stop(f"the digest type of a ledger in {path}", "none", todo)
    return Digest(Kind(found[0]), found[1])
