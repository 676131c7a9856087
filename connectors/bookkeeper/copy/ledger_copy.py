"""One ledger during a copy: locked, with the metadata read under the lock, until it is changed or unlocked."""

from collections.abc import Collection, Sequence

from trueup.connectors.bookkeeper.bookie.striping import EnsembleRange, held, pieces
from trueup.connectors.bookkeeper.copy.ledger_lock import LedgerLock
from trueup.connectors.bookkeeper.copy.ledger_source import SourceMetadata
from trueup.connectors.bookkeeper.copy.members import MemberChange, with_members
from trueup.connectors.bookkeeper.copy.stripes import StripeCopy
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.closing import Closing
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.state.bookkeeper.observations import LedgerRecord


class LockedLedger(Closing):
    """A closed ledger that ``client`` has locked, to make these changes to this version of its metadata. ``holder``:
    the name in the lock.

    The lock is taken before the metadata are read. Raises `Refused` if another one holds it or the ledger cannot be
    copied; it is unlocked then.
    """

    def __init__(
        self,
        client: ZooKeeperClient,
        paths: BookKeeperPaths,
        ledger: int,
        version: int,
        changes: Sequence[MemberChange],
        holder: str,
    ) -> None:
        self._lock, self._path = LedgerLock(client, paths, ledger, holder), paths.ledger(ledger)
        self._changes, self._committed = changes, False
        try:
            self.source = SourceMetadata(client, paths, ledger, version)
            with_members(self.source.data, self._path, changes)
            self.stripes = stripes(self.source.record, changes)
        except BaseException:
            self._lock.release()
            raise

    def commit(self, without: Collection[int] = ()) -> None:
        """Let the changes be in force, and unlock the ledger. ``without``: the first entries of fragments that stay as
        they are; every stripe of the others must have been copied. Raises `Refused` if the ledger or the lock was
        changed by another one, and `Unknown`."""
        changes = [change for change in self._changes if change.first_entry not in without]
        data = with_members(self.source.data, self._path, changes)
        self._lock.commit(data, self.source.record["version"])
        self._committed = True

    def close(self) -> None:
        """Unlock the ledger, unchanged if there was no commit."""
        if not self._committed:
            self._lock.release()


def stripes(record: LedgerRecord, changes: Sequence[MemberChange]) -> list[StripeCopy]:
    """What must be copied before these changes of a closed ledger: nothing where a place holds no entry."""
    parts = {piece.first: piece for piece in pieces(record["fragments"], 0, record["last_entry"])}
    copies = (
        StripeCopy(parts[change.first_entry], change.position, change.after)
        for change in changes
        if change.first_entry in parts
    )
    return [copy for copy in copies if _has_entries(copy, record["quorum"])]


def _has_entries(copy: StripeCopy, quorum: int) -> bool:
    first, last, bookies = copy.piece
    once = EnsembleRange(first, min(last, first + len(bookies) - 1), bookies)  # then the places repeat
    return bool(held(once, copy.position, quorum))
