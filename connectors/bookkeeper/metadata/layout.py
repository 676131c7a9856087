"""The layout of BookKeeper's znodes: paths and ledger ids, in both directions, under one root.

Sources: StringUtils, LedgerLayout, ZkLedgerUnderreplicationManager, ZkLedgerAuditorManager, BookKeeperConstants.
The path of a ledger depends on the layout; its id can be parsed from a path of any layout.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from trueup.state.common.errors import BadBytes, BadSettings

Ids = NDArray[np.int64]
SHORT_IDS = 2**31 - 1
"""From this id on the hybrid layout uses the long form; this includes id Integer.MAX_VALUE."""
_IDGEN = ("idgen", "idgen-long")
_OTHER_NAMES = {
    "flat": "FlatLedgerManagerFactory",
    "hierarchical": "HierarchicalLedgerManagerFactory",
    "PulsarLedgerManagerFactory": "HierarchicalLedgerManagerFactory",
}
_LEAVES = [b"L%04d" % number for number in range(10_000)]
LARGEST_ID = 2**63 - 1
_LEDGER = re.compile(
    r"(?:(\d\d)/(\d{4})/L(\d{4})|(\d{3})/(\d{4})/(\d{4})/(\d{4})/L(\d{4})|L(\d{10}|[1-9]\d{10,18}))\Z", re.ASCII
)
MARK_NAME = "urL"
"""The beginning of the name of a mark or lock."""
_MARK = re.compile(r"(?:ledgers/(?:[0-9a-f]{1,4}/){4}|locks/)" + MARK_NAME + r"(\d{10,19})\Z", re.ASCII)

_MARK_PARENT = re.compile(r"/([0-9a-f]{1,4})" * 4 + r"\Z", re.ASCII)


class LedgerLayout(Enum):
    """How ledger znodes are named; the values are the simple names of the ledger managers' factories."""

    HYBRID = "HierarchicalLedgerManagerFactory"
    LEGACY = "LegacyHierarchicalLedgerManagerFactory"
    LONG = "LongHierarchicalLedgerManagerFactory"
    FLAT = "FlatLedgerManagerFactory"

    @staticmethod
    def parse(data: bytes, where: str) -> "LedgerLayout":
        r"""The layout in a LAYOUT znode: ``<1|2>\n<class or old name>:<version>``. Raises `BadBytes`."""
        head, _, line = data.partition(b"\n")
        name = line.split(b"\n")[0].rpartition(b":")[0].decode("ascii", "replace").rpartition(".")[2]
        if head not in (b"1", b"2"):
            raise BadBytes(where, 0, "layout format 1 or 2", repr(head), "inspect the znode")
        try:
            return LedgerLayout(_OTHER_NAMES.get(name, name))
        except ValueError as error:
            expected = f"one of the ledger managers {', '.join(kind.value for kind in LedgerLayout)}"
            raise BadBytes(where, len(head) + 1, expected, repr(name), "this layout is not supported") from error


class ZnodeKind(Enum):
    """The subject of a path below the root."""

    LEDGER = "ledger"
    MARK = "mark"
    BOOKIE = "bookie"  # registrations and cookies
    INVALID_ID = "invalid id"  # named like a ledger or a mark, with an id beyond 64 bits
    OTHER = "other"


@dataclass(frozen=True)
class BookKeeperPaths:
    """All paths under one root, such as ``/ledgers``."""

    root: str
    layout: LedgerLayout = LedgerLayout.HYBRID

    def __post_init__(self) -> None:
        if not self.root.startswith("/") or self.root.endswith("/"):
            raise BadSettings([f"ledgers_root: {self.root!r}: expected a path such as /ledgers"])

    @cached_property
    def available(self) -> str:
        """Parent of the registrations of writable bookies."""
        return f"{self.root}/available"

    @cached_property
    def readonly(self) -> str:
        """Parent of the registrations of read-only bookies; itself a child of `available`."""
        return f"{self.root}/available/readonly"

    @cached_property
    def cookies(self) -> str:
        """Parent of one cookie znode for every bookie that ever registered."""
        return f"{self.root}/cookies"

    @cached_property
    def replication(self) -> str:
        """Root of all under-replication znodes."""
        return f"{self.root}/underreplication"

    @cached_property
    def marks(self) -> str:
        """Root of the tree of marks."""
        return f"{self.replication}/ledgers"

    @cached_property
    def locks(self) -> str:
        """Parent of the workers' locks."""
        return f"{self.replication}/locks"

    @cached_property
    def election(self) -> str:
        """Parent of the Auditor votes."""
        return f"{self.replication}/auditorelection"

    @cached_property
    def delay(self) -> str:
        """Delay in seconds before a single lost bookie is repaired, in decimal."""
        return f"{self.replication}/lostBookieRecoveryDelay"

    @cached_property
    def disable(self) -> str:
        """Exists while replication is disabled."""
        return f"{self.replication}/disable"

    def ledger(self, ledger: int) -> str:
        """Path of a ledger's metadata."""
        return f"{self.root}/{self.relative(ledger)}"

    def relative(self, ledger: int) -> str:
        """The path of a ledger without the root."""
        if self.layout is LedgerLayout.FLAT:
            return f"L{ledger:010d}"
        if self.layout is LedgerLayout.LEGACY or (self.layout is LedgerLayout.HYBRID and ledger < SHORT_IDS):
            digits = f"{ledger:010d}"
            return f"{digits[:2]}/{digits[2:6]}/L{digits[6:10]}"
        digits = f"{ledger:019d}"
        return f"{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"

    def relatives(self, ledgers: Ids) -> list[bytes]:
        """`relative` of many ids, as bytes; fast if neighbours share a directory."""
        if self.layout is LedgerLayout.FLAT:
            return [b"L%010d" % ledger for ledger in ledgers.tolist()]
        paths: list[bytes] = []
        groups = ledgers // 10_000 * 2 + (ledgers < SHORT_IDS)  # the hybrid form changes within a directory
        edges = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(ledgers)] if len(ledgers) else []
        for start, end in pairwise(edges):
            head = self.relative(int(ledgers[start])).encode()[:-5]
            paths += [head + _LEAVES[leaf] for leaf in (ledgers[start:end] % 10_000).tolist()]
        return paths

    def mark(self, ledger: int) -> str:
        """Path of a ledger's under-replication mark."""
        return f"{self.marks}/{b'/'.join(self.mark_names(ledger)).decode()}"

    def mark_parent(self, ledger: int) -> str:
        """The four levels above a mark: the 16-bit words of the id in hexadecimal."""
        return f"{self.marks}/{self.mark_names(ledger)[0].decode()}"

    def marked_below(self, parent: str) -> int:
        """The ledger whose mark can be below the lowest of these levels; -1 if there is none."""
        match = _MARK_PARENT.match(parent[len(self.marks) :])
        ledger = int("".join(word.zfill(4) for word in match.groups()), 16) if match else -1
        return ledger if ledger <= LARGEST_ID else -1

    def mark_names(self, ledger: int) -> tuple[bytes, bytes]:
        """The four levels above a mark, relative to `marks`, and its name."""
        words = b"%016x" % ledger
        return b"/".join((words[:4], words[4:8], words[8:12], words[12:])), b"urL%010d" % ledger

    def lock(self, ledger: int) -> str:
        """Path of the lock that a worker holds during the repair of a ledger."""
        return f"{self.locks}/{self.mark_names(ledger)[1].decode()}"

    def marks_and_locks(self, ledgers: Sequence[int]) -> list[bytes]:
        """Mark and lock of each ledger in turn, as bytes without the root."""
        below, paths = len(self.root) + 1, list[bytes]()
        marks, locks = self.marks[below:].encode(), self.locks[below:].encode()
        for ledger in ledgers:
            levels, name = self.mark_names(ledger)
            paths += b"/".join((marks, levels, name)), b"/".join((locks, name))
        return paths

    def classify(self, path: str) -> tuple[ZnodeKind, int]:
        """The subject of a path, and its ledger id (-1 if none)."""
        name = path[len(self.root) + 1 :]
        head, _, rest = name.partition("/")
        if head == "underreplication":
            match = _MARK.match(rest) if MARK_NAME in rest else None
            return _known(ZnodeKind.MARK, int(match[1])) if match else (ZnodeKind.OTHER, -1)
        if head in ("available", "cookies"):
            return ZnodeKind.BOOKIE, -1
        match = _LEDGER.match(name)
        return _known(ZnodeKind.LEDGER, _number(match)) if match else (ZnodeKind.OTHER, -1)

    def repairs(self) -> tuple[str, ...]:
        """Prefixes of the paths of marks and locks."""
        return f"{self.marks}/", f"{self.locks}/"

    def noise(self) -> tuple[str, ...]:
        """Prefixes of paths without information: one create and one delete for every new ledger."""
        return tuple(f"{self.root}/{name}/" for name in _IDGEN)


def ledger_of(relative: str) -> int:
    """The ledger id of a path without its root; -1 if there is none or it exceeds 64 bits."""
    match = _LEDGER.match(relative)
    ledger = _number(match) if match else -1
    return ledger if ledger <= LARGEST_ID else -1


def _number(match: re.Match[str]) -> int:
    return int("".join(part for part in match.groups() if part))


def _known(kind: ZnodeKind, ledger: int) -> tuple[ZnodeKind, int]:
    return (kind, ledger) if ledger <= LARGEST_ID else (ZnodeKind.INVALID_ID, -1)


def leaves(directory: str, names: Sequence[bytes]) -> Ids:
    """Ledger ids of the names in one directory (relative to the root, "" for the flat layout); -1 for other names.

    int64, in the order of the names.
    """
    base = directory.replace("/", "")
    size = 10 if not base else 4
    first = int(base or 0) * 10**size
    if {*map(len, names)} == {size + 1} and first <= LARGEST_ID - 10**size:
        rows = np.frombuffer(b"".join(names), np.uint8).reshape(-1, size + 1)
        digits = rows[:, 1:] - np.uint8(48)
        if (rows[:, 0] == ord("L")).all() and (digits < 10).all():
            values = digits.astype(np.int64) @ 10 ** np.arange(size - 1, -1, -1, dtype=np.int64)
            ids: Ids = values + first
            return ids
    prefix = f"{directory}/" if directory else ""
    return np.array([ledger_of(prefix + name.decode("utf-8", "replace")) for name in names], np.int64)


def holds_ledgers(directory: str) -> bool:
    """Whether the children of this directory (relative to the root) are ledgers, not directories."""
    return len(directory) in (len("AA/BBBB"), len("AAA/BBBB/CCCC/DDDD"))


def is_directory(name: bytes, parent: str) -> bool:
    """Whether this child of ``parent`` (relative to the root, "": the root) is a directory of ledgers."""
    return name.isdigit() and (len(name) == 4 if parent else len(name) in (2, 3))
