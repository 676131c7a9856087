"""Which bookies dropped which ledgers a short while ago.

A bookie that collected its over-replicated copy of a ledger may answer LedgerFencedAndDeleted to new copies of it,
until its memory of that has been idle for 7 days or the bookie restarts (BookKeeper 4.17, `bookie/HandleFactoryImpl`).
Such a bookie is no target for a repair.
"""

import struct
from dataclasses import dataclass, field

import numpy as np

from state.errors import BadBytes
from state.ledgers import Column, Ledgers, spans
from state.observations import LedgerState
from state.topology import Topology

# A copy is collected up to gcOverreplicatedLedgerWaitTime (a day) after the metadata dropped it; then come the 7 days.
KEEP_MS = 8 * 86_400_000

_MAGIC, _FORM = b"TF", 1
_HEAD = struct.Struct("<2sBxII")  # magic, form, rows, bytes of names
_ROW = {"ledger": "<i8", "dropped_ms": "<i8", "dropped_zxid": "<i8", "bookie": "<u4"}


def _empty(dtype: str) -> Column:
    return np.zeros(0, dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Former:
    """``n`` pairs of ledger and bookie, in the order of ledger ids.

    ============  ======  ==================================================
    ledger        int64   id
    dropped_ms    int64   when the metadata stopped naming the bookie
    dropped_zxid  int64   zxid of that write
    bookie        uint32  code into ``names``
    ============  ======  ==================================================
    """

    ledger: Column = field(default_factory=lambda: _empty("<i8"))
    dropped_ms: Column = field(default_factory=lambda: _empty("<i8"))
    dropped_zxid: Column = field(default_factory=lambda: _empty("<i8"))
    bookie: Column = field(default_factory=lambda: _empty("<u4"))
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.ledger)

    def of(self, ledger: int) -> frozenset[str]:
        """Bookies that may refuse this ledger."""
        first, last = np.searchsorted(self.ledger, [ledger, ledger + 1])
        return frozenset(self.names[code] for code in self.bookie[first:last].tolist())

    def merge(self, before: Ledgers, after: Ledgers, now_ms: int) -> "Former":
        """Remember what the step from ``before`` to ``after`` dropped.

        Both hold one row a ledger, in any order. Bookies that are members (again) and deleted ledgers are forgotten.
        Returns itself if nothing changed.
        """
        if not len(after):
            return self
        code = {name: at for at, name in enumerate(self.names)}
        old, new = _pairs(before, code), _pairs(after, code)
        newest = dict(zip(after.ledger.tolist(), after.mzxid.tolist(), strict=True))
        gone = set(after.ledger[after.state == LedgerState.GONE].tolist())
        dropped = sorted(pair for pair in old - new if pair[0] in newest and pair[0] not in gone)
        mine = list(zip(self.ledger.tolist(), self.bookie.tolist(), strict=True))
        stays = np.array([pair not in new and pair[0] not in gone for pair in mine], bool)
        known = set(mine)
        fresh = [pair for pair in dropped if pair not in known]
        if not fresh and stays.all():
            return self
        ids = np.array([ledger for ledger, _ in fresh], np.int64)
        return _sorted(
            np.concatenate([self.ledger[stays], ids]),
            np.concatenate([self.dropped_ms[stays], np.full(len(fresh), now_ms, np.int64)]),
            np.concatenate([self.dropped_zxid[stays], np.array([newest[i] for i in ids.tolist()], np.int64)]),
            np.concatenate([self.bookie[stays], np.array([bookie for _, bookie in fresh], np.uint32)]),
            tuple(code),
        )

    def forget(self, topology: Topology, now_ms: int) -> "Former":
        """Without what is too old, and without bookies that registered again since. Itself if nothing changed."""
        if not len(self):
            return self
        registered = {bookie.id: bookie.registered_zxid for bookie in topology.bookies}
        zxid = np.array([registered.get(name, 0) for name in self.names], np.int64)
        stays = (now_ms - self.dropped_ms < KEEP_MS) & (zxid[self.bookie] <= self.dropped_zxid)
        if stays.all():
            return self
        return _sorted(
            self.ledger[stays], self.dropped_ms[stays], self.dropped_zxid[stays], self.bookie[stays], self.names
        )

    def to_bytes(self) -> bytes:
        """The pairs as a blob of their own."""
        names = "\n".join(self.names).encode()
        columns = [np.ascontiguousarray(getattr(self, name), dtype).tobytes() for name, dtype in _ROW.items()]
        return b"".join([_HEAD.pack(_MAGIC, _FORM, len(self), len(names)), *columns, names])

    @staticmethod
    def from_bytes(blob: bytes, where: str = "the state") -> "Former":
        """What `to_bytes` wrote. Raises `BadBytes` for anything else."""
        if len(blob) < _HEAD.size or blob[:2] != _MAGIC or blob[2] != _FORM:
            raise BadBytes(where, 0, f"a block of dropped copies of form {_FORM}", repr(blob[:3]), "rebuild the view")
        _, _, rows, names = _HEAD.unpack_from(blob)
        expected = _HEAD.size + rows * sum(np.dtype(dtype).itemsize for dtype in _ROW.values()) + names
        if len(blob) != expected:
            raise BadBytes(where, len(blob), f"{expected} bytes", f"{len(blob)} bytes", "rebuild the view")
        at, columns = _HEAD.size, {}
        for name, dtype in _ROW.items():
            columns[name] = np.frombuffer(blob, dtype, rows, at)
            at += columns[name].nbytes
        text = blob[at:].decode()
        return Former(**columns, names=tuple(text.split("\n")) if text else ())


NO_FORMER = Former()


def _pairs(ledgers: Ledgers, code: dict[str, int]) -> set[tuple[int, int]]:
    """(ledger, code) of every member of every fragment; ``code`` grows by new names."""
    codes = np.array([code.setdefault(name, len(code)) for name in ledgers.names], np.uint32)
    starts = ledgers.starts
    ids = np.repeat(ledgers.ledger, np.diff(starts))
    members = codes[ledgers.members[spans(starts[:-1], starts[1:])]] if len(ids) else codes[:0]
    return set(zip(ids.tolist(), members.tolist(), strict=True))


def _sorted(ledger: Column, dropped_ms: Column, dropped_zxid: Column, bookie: Column, names: tuple[str, ...]) -> Former:
    order = np.lexsort((bookie, ledger))
    used, codes = np.unique(bookie[order], return_inverse=True)
    return Former(
        ledger[order], dropped_ms[order], dropped_zxid[order], codes.astype(np.uint32),
        tuple(names[at] for at in used.tolist()),
    )  # fmt: skip
