"""Which ledgers are known in which version: 16 bytes each, changed one at a time or in bulk."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_LOOSE = 4096


def _none() -> Array:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Known:
    """What the journal holds. ``ledgers`` sorted ids that are not GONE, ``mzxids`` their versions, both int64.

    ``marks``: zxid of the newest record of each ledger that is marked or locked. ``unreadable``: ids.
    """

    ledgers: Array = field(default_factory=_none)
    mzxids: Array = field(default_factory=_none)
    marks: dict[int, int] = field(default_factory=dict)
    unreadable: frozenset[int] = frozenset()


class Held:
    """Ledger ids with the mzxid that was published last. A sorted base, and recent changes beside it."""

    def __init__(self, ledgers: Array, mzxids: Array) -> None:
        self._ids, self._mzxids = ledgers.astype(np.int64), mzxids.astype(np.int64)
        self._loose: dict[int, int] = {}
        self._count = len(self._ids)

    def __len__(self) -> int:
        return self._count

    def get(self, ledger: int) -> int:
        """Version of a ledger, -1 if it is not held."""
        loose = self._loose.get(ledger)
        if loose is not None:
            return loose
        at = int(np.searchsorted(self._ids, ledger))
        return int(self._mzxids[at]) if at < len(self._ids) and self._ids[at] == ledger else -1

    def put(self, ledger: int, mzxid: int) -> None:
        """Hold a ledger in this version; -1 lets go of it."""
        self._count += (mzxid >= 0) - (self.get(ledger) >= 0)
        self._loose[ledger] = mzxid
        if len(self._loose) > _LOOSE:
            self._settle()

    def update(self, ledgers: Array, mzxids: Array) -> None:
        """Hold many; -1 lets go of one."""
        if len(ledgers) < _LOOSE // 4:
            for ledger, mzxid in zip(ledgers.tolist(), mzxids.tolist(), strict=True):
                self.put(ledger, mzxid)
            return
        self._settle()
        self._merge(ledgers, mzxids)

    def versions(self, ledgers: Array) -> Array:
        """`get` of many: int64."""
        ids, mzxids = self.columns()
        if not len(ids):
            return np.full(len(ledgers), -1, np.int64)
        at = np.minimum(np.searchsorted(ids, ledgers), len(ids) - 1)
        return np.where(ids[at] == ledgers, mzxids[at], -1)

    def columns(self) -> tuple[Array, Array]:
        """All ids, sorted, and their versions."""
        self._settle()
        return self._ids, self._mzxids

    def _settle(self) -> None:
        if self._loose:
            loose, self._loose = self._loose, {}
            self._merge(np.fromiter(loose, np.int64, len(loose)), np.fromiter(loose.values(), np.int64, len(loose)))

    def _merge(self, ledgers: Array, mzxids: Array) -> None:
        ids = np.concatenate([self._ids, ledgers])
        versions = np.concatenate([self._mzxids, mzxids])
        order = np.argsort(ids, kind="stable")
        ids, versions = ids[order], versions[order]
        keep = np.ones(len(ids), bool)
        keep[:-1] = ids[1:] != ids[:-1]
        keep &= versions >= 0
        self._ids, self._mzxids = ids[keep], versions[keep]
        self._count = len(self._ids)
