"""The journal's state of a cluster's ZooKeeper: versions of ledgers, and the last observed zxid. It is compared at
every start, so that a ZooKeeper restored from an older copy is detected."""

import json
import logging
from collections.abc import Callable

import numpy as np

from trueup.connectors.bookkeeper.metadata.capture import CaptureHealth
from trueup.connectors.bookkeeper.metadata.published import JournalContent
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.common.errors import TrueupError
from trueup.streams.bookkeeper.topics import LEDGERS, REACHED
from trueup.streams.journal.codec import ledger_key
from trueup.streams.journal.journal import Journal
from trueup.streams.journal.topic import Record

log = logging.getLogger(__name__)
KEY = b"zookeeper"
FORGET_MS = 86_400_000  # records of deleted ledgers are removed after a day, which is the longest replay
EVERY_MS, WITHIN_S = 10_000, 5.0


class ReachedWriter:
    """Writes the last observed zxid of the cluster to the journal. Used by one thread."""

    def __init__(self, journal: Journal, clock: Callable[[], int]) -> None:
        self._journal, self._clock = journal, clock
        self._last, self._next_ms = (0, ""), 0

    def observe(self, health: CaptureHealth) -> None:
        """Periodically write the zxid and the identity of a cluster that is followed."""
        now_ms, reached = self._clock(), (health.last_zxid, health.instance)
        if not health.synced or health.problem or now_ms < self._next_ms or reached == self._last:
            return
        self._next_ms = now_ms + EVERY_MS
        value = json.dumps({"zxid": health.last_zxid, "instance": health.instance})
        try:
            self._journal.put([(REACHED, KEY, {"name": KEY.decode(), "value": value, "at_ms": now_ms})], WITHIN_S)
        except TrueupError as error:
            log.warning("last observed zxid not written to the journal", extra={"problem": str(error)})
        else:
            self._last = reached


def known(journal: Journal, now_ms: int) -> JournalContent:
    """The journal's state, for the capture to compare with. Deletes records of ledgers that were deleted long ago."""
    newest: dict[int, tuple[int, int, int]] = {}
    for entries, rows in journal.columns(LEDGERS):
        if rows is None:
            for entry in entries:
                newest.pop(int.from_bytes(entry.key, "big"), None)
            continue
        values = zip(rows.mzxid.tolist(), rows.state.tolist(), rows.seen_ms.tolist(), strict=True)
        for ledger, seen in zip(rows.ledger.tolist(), values, strict=True):
            newest[ledger] = max(seen, newest.get(ledger, seen))
    old = [i for i, (_, state, at) in newest.items() if state == LedgerState.GONE and now_ms - at > FORGET_MS]
    journal.put((LEDGERS, ledger_key(ledger), None) for ledger in old)
    live = sorted((i, mzxid) for i, (mzxid, state, _) in newest.items() if state != LedgerState.GONE)
    gone = sorted((i, zxid) for i, (zxid, state, _) in newest.items() if state == LedgerState.GONE)
    (ids, mzxids), (gone_ids, gone_zxids) = (np.array(rows, np.int64).reshape(-1, 2).T.copy() for rows in (live, gone))
    unreadable = frozenset(i for i, (_, state, _) in newest.items() if state == LedgerState.UNREADABLE)
    zxid, instance = _observed(journal)
    zxid = max(zxid, max((mzxid for mzxid, _, _ in newest.values()), default=0))
    return JournalContent(ids, mzxids, unreadable, gone_ids, gone_zxids, zxid, instance)


def _observed(journal: Journal) -> tuple[int, str]:
    reached: tuple[int, str] = journal.newest(REACHED).get(KEY, (0, ""))
    return reached


def observed(record: Record) -> tuple[int, str]:
    """A record of the topic as the last observed zxid and the identity of the cluster."""
    value = json.loads(record["value"])
    return int(value["zxid"]), str(value["instance"])
