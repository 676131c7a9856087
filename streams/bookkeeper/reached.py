"""The journal's state of a cluster's ZooKeeper: versions of ledgers and marks, and the last observed zxid. It is
compared at every start, so that a ZooKeeper restored from an older copy is detected."""

import json
import logging
from collections.abc import Callable

import numpy as np

from trueup.connectors.bookkeeper.metadata.capture import CaptureHealth
from trueup.connectors.bookkeeper.metadata.published import Known
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.common.errors import TrueupError
from trueup.streams.bookkeeper.topics import REACHED
from trueup.streams.journal.codec import ledger_key
from trueup.streams.journal.journal import Journal

log = logging.getLogger(__name__)
KEY = b"zookeeper"
FORGET_MS = 86_400_000  # records of deleted ledgers are removed after a day, which is the longest replay
EVERY_MS, WITHIN_S = 10_000, 5.0
_HEAD = 6  # `known` needs the leading fields of a ledger record, ledger to state


class Reached:
    """Writes the last observed zxid of the cluster to the journal. Used by one thread."""

    def __init__(self, journal: Journal, clock: Callable[[], int]) -> None:
        self._journal, self._clock = journal, clock
        self._last, self._next_ms = (0, ""), 0

    def observe(self, health: CaptureHealth) -> None:
        """Periodically write the zxid and the identity of a cluster that is followed."""
        now_ms, found = self._clock(), (health.last_zxid, health.instance)
        if not health.synced or health.problem or now_ms < self._next_ms or found == self._last:
            return
        self._next_ms = now_ms + EVERY_MS
        value = json.dumps({"zxid": health.last_zxid, "instance": health.instance})
        try:
            self._journal.put([(REACHED, KEY, {"name": KEY.decode(), "value": value, "at_ms": now_ms})], WITHIN_S)
        except TrueupError as error:
            log.warning("last observed zxid not written to the journal", extra={"problem": str(error)})
        else:
            self._last = found


def known(journal: Journal, now_ms: int) -> Known:
    """The journal's state, for the capture to compare with. Deletes records of ledgers that were deleted long ago."""
    newest: dict[int, tuple[int, int, int]] = {}
    for record in journal.read("ledgers", head=_HEAD):
        ledger = int.from_bytes(record.key, "big")
        if record.value is None:
            newest.pop(ledger, None)
            continue
        seen = (record.value["mzxid"], record.value["state"], record.value["seen_ms"])
        newest[ledger] = max(seen, newest.get(ledger, seen))
    old = [i for i, (_, state, at) in newest.items() if state == LedgerState.GONE and now_ms - at > FORGET_MS]
    journal.put(("ledgers", ledger_key(ledger), None) for ledger in old)
    live = sorted((i, mzxid) for i, (mzxid, state, _) in newest.items() if state != LedgerState.GONE)
    gone = sorted((i, zxid) for i, (zxid, state, _) in newest.items() if state == LedgerState.GONE)
    (ids, mzxids), (gone_ids, gone_zxids) = (np.array(rows, np.int64).reshape(-1, 2).T.copy() for rows in (live, gone))
    unreadable = frozenset(i for i, (_, state, _) in newest.items() if state == LedgerState.UNREADABLE)
    marks, marks_zxid = _marks(journal)
    zxid, instance = _observed(journal)
    zxid = max(zxid, marks_zxid, max((mzxid for mzxid, _, _ in newest.values()), default=0))
    return Known(ids, mzxids, marks, unreadable, gone_ids, gone_zxids, zxid, instance)


def _marks(journal: Journal) -> tuple[dict[int, int], int]:
    """Zxid by ledger that is marked or locked, and the highest zxid."""
    found: dict[int, tuple[int, bool]] = {}
    for record in journal.read("marks"):
        if record.value is not None:
            value = record.value
            seen = (value["zxid"], value["version"] >= 0 or bool(value["locked_by"]))
            found[value["ledger"]] = max(seen, found.get(value["ledger"], seen))
    present = {ledger: zxid for ledger, (zxid, there) in found.items() if there}
    return present, max((zxid for zxid, _ in found.values()), default=0)


def _observed(journal: Journal) -> tuple[int, str]:
    values = [json.loads(record.value["value"]) for record in journal.read(REACHED) if record.value is not None]
    return (int(values[-1]["zxid"]), str(values[-1]["instance"])) if values else (0, "")
