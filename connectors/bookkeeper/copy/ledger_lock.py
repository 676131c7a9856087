"""The lock of a ledger's repair, and the change of its metadata under this lock.

BookKeeper's workers hold the same lock while they repair a ledger (ZkLedgerUnderreplicationManager), and its collector
of over-replicated ledgers leaves out a locked one. The lock ends with the session that holds it.
"""

import logging
import time
from collections.abc import Sequence

from trueup.connectors.bookkeeper.metadata import mark_codec
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.zookeeper.client import CommittedNode, ZooKeeperClient, check, deletion, writing
from trueup.connectors.zookeeper.errors import BadVersion, NodeExists, NoNode
from trueup.state.common.backoff import backoff
from trueup.state.common.errors import Refused, Retry, TrueupError, Unknown

log = logging.getLogger(__name__)
FIRST_WAIT_MS, LONGEST_WAIT_MS = 100, 5_000
OWNED = 1
"""The version of the node of our locks. Locks of BookKeeper's workers have version 0, also those that replace ours."""


class LedgerLock:
    """A lock that ``client`` holds on a ledger. ``holder``: the name in the lock, which is shown to operators."""

    def __init__(self, client: ZooKeeperClient, paths: BookKeeperPaths, ledger: int, holder: str) -> None:
        self._client, self._paths, self._ledger = client, paths, ledger
        self._path = paths.lock(ledger)
        self._session = client.session  # before the lock is made: a later one would not hold it
        data = mark_codec.vote(holder)
        try:
            self._make(data)
            client.put(self._path, data, OWNED - 1)
        except NodeExists as error:
            found = client.look(self._path)
            by = mark_codec.holder(found[0]) if found else "a worker that has finished"
            raise Refused(f"the lock of ledger {ledger}", f"it is held by {by or '?'}", "copy it later") from error
        except TrueupError:
            self.release()  # a lost response does not tell whether it exists
            raise

    def commit(self, data: bytes, version: int) -> None:
        """Replace the metadata of the ledger if they have this version, and release the lock, in one transaction.
        Raises `Refused` if either was taken over, `Unknown` if the response was lost."""
        self._require_session()
        operations = [
            check(self._path, OWNED),
            writing(self._paths.ledger(self._ledger), data, version),
            deletion(self._path, OWNED),
        ]
        codes = self._committed(operations).codes
        if any(codes):
            changed = "its metadata" if codes.index(next(filter(None, codes))) == 1 else "its lock"
            raise Refused(f"ledger {self._ledger} as it was read, and its lock", f"{changed} changed", "decide again")

    def _require_session(self) -> None:
        """The transaction cannot check who holds the lock, and locks of other instances have the same version. A
        request of this session is only executed while the session, and with it our lock, lives. Raises `Refused`."""
        if self._client.session != self._session:
            raise Refused(f"the lock of ledger {self._ledger}", "its session ended", "decide again")

    def release(self) -> None:
        """Delete the lock if it is still ours. Returns when it is known to be gone, or the client is closed: no other
        process can repair the ledger while this session holds the lock. Raises `Stop`."""
        failures = 0
        while not self._client.ended and not self._released():
            time.sleep(backoff(FIRST_WAIT_MS, failures, LONGEST_WAIT_MS) / 1000)
            failures += 1

    def _released(self) -> bool:
        """Whether the lock is not ours any more; deletes it otherwise."""
        try:
            found = self._client.look(self._path)
            if found is None or found[1].owner != self._client.session:
                return True
            self._client.drop(self._path, found[1].version)
        except NoNode:
            return True
        except (Retry, Unknown, BadVersion) as error:
            log.warning("lock not released yet", extra={"ledger": self._ledger, "problem": str(error)})
            return False
        return True

    def _committed(self, operations: Sequence[bytes]) -> CommittedNode:
        [answer] = self._client.commit([operations])
        if not isinstance(answer, CommittedNode):
            raise answer
        return answer

    def _make(self, data: bytes) -> None:
        try:
            self._client.make(self._path, data, ephemeral=True)
        except NoNode:  # no daemon has ever run
            for path in (self._paths.replication, self._paths.locks):
                try:
                    self._client.make(path)
                except NodeExists:
                    continue
            self._client.make(self._path, data, ephemeral=True)
