"""Requests that kazoo lacks, in ZooKeeper's wire format (zookeeper.jute, org.apache.zookeeper.ZooDefs.OpCode).

Each request stores the zxid of its response header: the server had applied every write up to it.
Responses never show znode data in logs, which kazoo writes at DEBUG level.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from kazoo.exceptions import EXCEPTIONS
from kazoo.protocol import serialization as jute
from numpy.typing import NDArray

from trueup.state.common.errors import BadBytes

INT, LONG = struct.Struct("!i"), struct.Struct("!q")
STAT_BYTES = 68
_OP = struct.Struct("!iBi")  # type, last, error
_END = _OP.pack(-1, 1, -1)
_FOUND = struct.Struct("!iBii")  # the same, and the length of the data
_STAT = struct.Struct("!qqqqiiiqiiq")
_VERSION = 32  # offset in a stat
_GET_DATA = 4
_CREATE, _DELETE, _SET_DATA, _CHECK_VERSION = 1, 2, 5, 13
_CREATION, _DELETION, _WRITING, _CHECK = (_OP.pack(op, 0, -1) for op in (_CREATE, _DELETE, _SET_DATA, _CHECK_VERSION))
_RESULT_BYTES = {_CREATE: 4, _SET_DATA: STAT_BYTES, -1: 4}
_DATA_ERRORS = (-101, -102)


class Stat(NamedTuple):
    """org.apache.zookeeper.data.Stat. Times in ms since the epoch."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    owner: int
    size: int
    children: int
    pzxid: int


@dataclass(frozen=True, slots=True, repr=False)
class Znodes:
    """The result for the requested names, in their order."""

    raw: bytes
    """The bytes of the response."""
    at: NDArray[np.int64]
    """The offset of each znode's data in ``raw``. The stat of the znode follows its data."""
    size: NDArray[np.int64]
    """The size of each znode's data in bytes. GONE: there is no such znode. FORBIDDEN: it may not be read."""
    zxid: int
    """The zxid of the state that the response shows."""

    def __len__(self) -> int:
        return len(self.size)

    def data(self, row: int) -> bytes:
        """Data of a znode that was found."""
        return self.raw[self.at[row] : self.at[row] + self.size[row]]

    def rows(self) -> Iterator[tuple[bytes, int]]:
        """The data and version of each znode; empty data and GONE or FORBIDDEN if it was not found."""
        for at, size in zip(self.at.tolist(), self.size.tolist(), strict=True):
            end = at + size
            yield (self.raw[at:end], INT.unpack_from(self.raw, end + _VERSION)[0]) if size >= 0 else (b"", size)

    def stat(self, row: int) -> Stat:
        """Stat of a znode that was found."""
        return Stat._make(_STAT.unpack_from(self.raw, int(self.at[row] + self.size[row])))


class ZooKeeperRequest:
    """One request. The client sets ``zxid`` before it decodes the response."""

    __slots__ = ("zxid",)
    type = 0

    def __init__(self) -> None:
        self.zxid = 0

    def deserialize(self, body: bytes, at: int) -> Any:
        """The decoded response. Raises `BadBytes` if it is invalid, and kazoo's errors."""
        try:
            return self._decoded(body, at)
        except (struct.error, IndexError, ValueError) as error:
            expected, todo = f"a response to {type(self).__name__}", "check the address"
            raise BadBytes("a response from ZooKeeper", at, expected, f"{len(body)} other bytes", todo) from error

    def _decoded(self, body: bytes, at: int) -> Any:
        raise NotImplementedError


class AddWatch(ZooKeeperRequest):
    """Watch a whole subtree during the session (opcode 106, mode PERSISTENT_RECURSIVE)."""

    __slots__ = ("path",)
    type = 106

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def serialize(self) -> bytes:
        """Path and mode."""
        return bytes(jute.write_string(self.path)) + INT.pack(1)

    def _decoded(self, _body: bytes, _at: int) -> int:
        """The zxid from which on every event is sent."""
        return self.zxid


class SetWatches(ZooKeeperRequest):
    """Compare znodes with a zxid (opcode 101).

    The server sends an event for each znode that changed or was deleted since; the others get a one-shot watch.
    """

    __slots__ = ("children", "data", "since")
    type = 101

    def __init__(self, since: int, data: Sequence[bytes], children: Sequence[bytes] = ()) -> None:
        super().__init__()
        self.since, self.data, self.children = since, data, children

    def serialize(self) -> bytes:
        """Zxid, and paths to compare by mzxid, by existence (none) and by pzxid."""
        vectors = [INT.pack(len(paths)) + joined(b"", b"", paths, b"") for paths in (self.data, (), self.children)]
        return LONG.pack(self.since) + b"".join(vectors)

    def _decoded(self, _body: bytes, _at: int) -> int:
        """Zxid of the state that was compared."""
        return self.zxid


class GetChildren(ZooKeeperRequest):
    """Names of the children of a znode (opcode 8), as received bytes."""

    __slots__ = ("path",)
    type = 8

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def serialize(self) -> bytes:
        """Path, no watch."""
        return bytes(jute.write_string(self.path)) + b"\0"

    def _decoded(self, body: bytes, at: int) -> tuple[list[bytes], int]:
        """Names, unordered, and the zxid of the list."""
        return names_at(body, at), self.zxid


class GetData(ZooKeeperRequest):
    """Data and stat of one znode (opcode 4)."""

    __slots__ = ("path",)
    type = _GET_DATA

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def serialize(self) -> bytes:
        """Path, no watch."""
        return bytes(jute.write_string(self.path)) + b"\0"

    def _decoded(self, body: bytes, at: int) -> Znodes:
        """One row."""
        size = max(INT.unpack_from(body, at)[0], 0)
        _within(body, at + 4 + size + STAT_BYTES)
        return Znodes(body, np.array([at + 4]), np.array([size]), self.zxid)


class MultiRead(ZooKeeperRequest):
    """Data and stat of ``parent/name`` for every name in one round trip (opcode 22, ZooKeeper 3.6)."""

    __slots__ = ("names", "parent")
    type = 22

    def __init__(self, parent: bytes, names: Sequence[bytes]) -> None:
        super().__init__()
        self.parent, self.names = parent, names

    def serialize(self) -> bytes:
        """One getData without a watch for each name."""
        return joined(_OP.pack(_GET_DATA, 0, -1), self.parent + b"/", self.names, b"\0") + _END

    def _decoded(self, body: bytes, at: int) -> Znodes:
        """A row for each name. Raises kazoo's error if a read fails in another way than gone or forbidden."""
        places, sizes = [], []
        read = _FOUND.unpack_from
        while not body[at + 4]:
            kind, _, error, size = read(body, at)
            at += 13
            if kind == _GET_DATA:
                size = max(size, 0)
                places.append(at)
                sizes.append(size)
                at += size + STAT_BYTES
            elif error in _DATA_ERRORS:
                places.append(at)
                sizes.append(error)
            else:
                raise _failure(error)
        _within(body, at)
        return Znodes(body, np.array(places, np.int64), np.array(sizes, np.int64), self.zxid)


class Listings(ZooKeeperRequest):
    """Names of the children of several znodes at one zxid (opcode 22 with getChildren)."""

    __slots__ = ("paths",)
    type = 22
    _OP_TYPE = 8

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__()
        self.paths = paths

    def serialize(self) -> bytes:
        """One getChildren without a watch for each path."""
        return joined(_OP.pack(self._OP_TYPE, 0, -1), b"", [path.encode() for path in self.paths], b"\0") + _END

    def _decoded(self, body: bytes, at: int) -> tuple[list[list[bytes]], int]:
        """Names of the children of each path (none if it does not exist), and their zxid."""
        children: list[list[bytes]] = []
        while not body[at + 4]:
            kind, _, error = _OP.unpack_from(body, at)
            at += _OP.size
            if kind == self._OP_TYPE:
                names = names_at(body, at)
                children.append(names)
                at += 4 + sum(map(len, names)) + 4 * len(names)
            elif error == _DATA_ERRORS[0]:
                children.append([])
                at += 4
            else:
                raise _failure(error)
        return children, self.zxid


class Multi(ZooKeeperRequest):
    """An atomic transaction (opcode 14). ``operations`` are made by the functions below."""

    __slots__ = ("_operations",)
    type = 14

    def __init__(self, operations: Sequence[bytes]) -> None:
        super().__init__()
        self._operations = operations

    def serialize(self) -> bytes:
        """The operations."""
        return b"".join(self._operations) + _END

    def _decoded(self, body: bytes, at: int) -> list[int | None]:
        """An error code for each operation: None: done; 0: rolled back because another failed."""
        codes: list[int | None] = []
        while not body[at + 4]:
            kind, _, error = _OP.unpack_from(body, at)
            at += _OP.size
            codes.append(error if kind == -1 else None)
            if kind == _CREATE:
                at += _size(body, at)
            at += _RESULT_BYTES.get(kind, 0)
        return codes


def creation(path: str, data: bytes, acl: bytes) -> bytes:
    """Create a persistent znode."""
    name = path.encode()
    return b"".join((_CREATION, INT.pack(len(name)), name, INT.pack(len(data)), data, acl, INT.pack(0)))


@lru_cache(64)
def access(acl: tuple[Any, ...]) -> bytes:
    """An access control list (kazoo's ACLs) in the form that `creation` takes."""
    parts = [INT.pack(len(acl))]
    for entry in acl:
        parts += [INT.pack(entry.perms), jute.write_string(entry.id.scheme), jute.write_string(entry.id.id)]
    return b"".join(parts)


def check(path: str, version: int) -> bytes:
    """A check that the znode has this version."""
    return _on(_CHECK, path) + INT.pack(version)


def deletion(path: str, version: int) -> bytes:
    """Delete a znode of this version (-1: any)."""
    return _on(_DELETION, path) + INT.pack(version)


def writing(path: str, data: bytes, version: int) -> bytes:
    """Set the data of a znode of this version (-1: any)."""
    return b"".join((_on(_WRITING, path), INT.pack(len(data)), data, INT.pack(version)))


def _on(operation: bytes, path: str) -> bytes:
    name = path.encode()
    return operation + INT.pack(len(name)) + name


def joined(before: bytes, root: bytes, names: Sequence[bytes], after: bytes) -> bytes:
    """``before``, ``root + name`` as a jute string, ``after``: concatenated for all names."""
    if not names:
        return b""
    size = len(names[0])
    if {*map(len, names)} == {size}:
        first = before + INT.pack(len(root) + size) + root
        return first + (after + first).join(names) + after
    return b"".join([part for name in names for part in (before, INT.pack(len(root) + len(name)), root, name, after)])


def names_at(body: bytes, at: int) -> list[bytes]:
    """A vector of strings. Raises `ValueError` if it exceeds the body."""
    count = INT.unpack_from(body, at)[0]
    at += 4
    if count <= 0:
        return []
    if count > (len(body) - at) // 4:
        raise ValueError(f"{count} names in {len(body) - at} bytes")
    size = _size(body, at)
    step = size + 4
    block = body[at : at + count * step]
    if size and len(block) == count * step:
        rows = np.frombuffer(block, np.uint8).reshape(count, step)
        if (rows[:, :4] == rows[0, :4]).all():
            return np.ascontiguousarray(rows[:, 4:]).view(f"S{size}").ravel().tolist()
    names = []
    for _ in range(count):
        size = _size(body, at)
        names.append(body[at + 4 : at + 4 + size])
        at += 4 + size
    return names


def _size(body: bytes, at: int) -> int:
    """The size of the string at this offset. Raises `ValueError` if it exceeds the body."""
    size: int = INT.unpack_from(body, at)[0]
    if size < 0:
        raise ValueError(f"a string of {size} bytes")
    _within(body, at + INT.size + size)
    return size


def _failure(error: int) -> Exception:
    """kazoo's error for this code."""
    if error not in EXCEPTIONS:
        raise ValueError(f"error {error}")
    failed: Exception = EXCEPTIONS[error]()
    return failed


def _within(body: bytes, end: int) -> None:
    if end > len(body):
        raise ValueError(f"{end} bytes in {len(body)}")


def missing(error: int, zxid: int) -> Znodes:
    """One row for a znode that was not found."""
    return Znodes(b"", np.zeros(1, np.int64), np.array([error], np.int64), zxid)
