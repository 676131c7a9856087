"""Entries as bookies store them, and the digests that protect them (DigestManager.java and its subclasses).

An entry consists of a head of 32 bytes (ledger, entry, last confirmed entry when it was written, length of the ledger
up to it; int64 big-endian each), the digest of head and payload, and the payload. A bookie returns the stored bytes
without verification.
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
_TODO = "read another replica and have this one replaced"
View = bytes | memoryview


class DigestType(IntEnum):
    """The digest type of a ledger (DataFormats.proto, LedgerMetadataFormat.DigestType)."""

    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4


class DamagedEntry(BadBytes):
    """The stored bytes are not the requested entry, or differ from what was written."""


def _crc32(head: View, rest: View) -> bytes:
    return zlib.crc32(rest, zlib.crc32(head)).to_bytes(8, "big")


def _crc32c(head: View, rest: View) -> bytes:
    return crc32c(rest, crc32c(head)).to_bytes(4, "big")


def _dummy(_head: View, _rest: View) -> bytes:
    return b""


_PLAIN: Mapping[DigestType, tuple[int, Callable[[View, View], bytes]]] = MappingProxyType(
    {DigestType.CRC32: (8, _crc32), DigestType.CRC32C: (4, _crc32c), DigestType.DUMMY: (0, _dummy)}
)


class Digest:
    """Verifies the entries of one ledger. Only `DigestType.HMAC` needs the ledger's password, which is never shown."""

    def __init__(self, kind: DigestType, password: bytes = b"") -> None:
        self.kind = kind
        if kind is DigestType.HMAC:
            key = hashlib.sha1(b"mac" + password).digest()  # noqa: S324 - the format
            self._size, self._sum = hashlib.sha1().digest_size, _hmac(key)  # noqa: S324
        else:
            self._size, self._sum = _PLAIN[kind]
        self.offset = _HEAD.size + self._size
        """The offset of the payload in an entry."""

    def check(self, ledger: int, entry: int, stored: memoryview) -> None:
        """Verify that these bytes are that entry, undamaged. Raises `DamagedEntry`."""
        there = len(stored) >= self.offset and _IDS.unpack_from(stored) == (ledger, entry)
        if there and self._sum(stored[: _HEAD.size], stored[self.offset :]) == stored[_HEAD.size : self.offset]:
            return
        stored_entry = self._whole(ledger, f"entry {entry} of ledger {ledger}", stored)
        if stored_entry != entry:
            where = f"entry {entry} of ledger {ledger}"
            raise DamagedEntry(where, 8, f"entry {entry}", f"entry {stored_entry}", _TODO)

    def entry(self, ledger: int, stored: memoryview) -> tuple[int, int]:
        """The id of this entry, and the last confirmed entry when it was written. Raises `DamagedEntry`."""
        entry = self._whole(ledger, f"an entry of ledger {ledger}", stored)
        return entry, _HEAD.unpack_from(stored)[2]

    def note(self, ledger: int, note: memoryview) -> int:
        """The last confirmed entry in an explicit LAC: ledger, entry, digest. Raises `DamagedEntry`."""
        where = f"the last confirmed entry of ledger {ledger}"
        ids = self._ids(ledger, where, note, _IDS.size)
        self._compare(where, _IDS.size, self._sum(note[: _IDS.size], b""), note)
        return ids[1]

    def seal(self, head: bytes, payload: bytes) -> bytes:
        """An entry in its stored form. ``head``: the head of the entry, 32 bytes; see `head_of`."""
        return head + self._sum(head, payload) + payload

    def _whole(self, ledger: int, where: str, stored: memoryview) -> int:
        ids = self._ids(ledger, where, stored, _HEAD.size)
        digest = self._sum(stored[: _HEAD.size], stored[self.offset :])
        if digest != stored[_HEAD.size : self.offset]:
            self._compare(where, _HEAD.size, digest, stored)
        return ids[1]

    def _ids(self, ledger: int, where: str, stored: memoryview, head: int) -> tuple[int, int]:
        if len(stored) < head + self._size:
            raise DamagedEntry(where, len(stored), f"at least {head + self._size} bytes", f"{len(stored)}", _TODO)
        ids: tuple[int, int] = _IDS.unpack_from(stored)
        if ids[0] != ledger:
            raise DamagedEntry(where, 0, f"ledger {ledger}", f"ledger {ids[0]}", _TODO)
        return ids

    def _compare(self, where: str, at: int, digest: bytes, stored: memoryview) -> None:
        stored_digest = bytes(stored[at : at + self._size])
        if stored_digest != digest:
            raise DamagedEntry(where, at, f"{self.kind.name} {digest.hex()} of its content", stored_digest.hex(), _TODO)


def _hmac(key: bytes) -> Callable[[View, View], bytes]:
    def digest(head: View, rest: View) -> bytes:
        code = hmac.new(key, head, "sha1")
        code.update(rest)
        return code.digest()

    return digest


def head_of(ledger: int, entry: int, confirmed: int, length: int) -> bytes:
    """The head of an entry. ``length``: the payload bytes of the ledger up to and including this entry."""
    return _HEAD.pack(ledger, entry, confirmed, length)


def digest_of(data: bytes, path: str) -> Digest:
    """The digest named in a ledger's metadata (bytes of the znode at ``path``). Raises `BadBytes`, `Stop`."""
    secret = protection(data, path)
    if secret is None:
        todo = "read the ledger with BookKeeper's client, which receives the type from its user"
        raise Stop(f"the digest type of a ledger in {path}", "none", todo)
    return Digest(DigestType(secret[0]), secret[1])
