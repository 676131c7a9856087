"""The capture of the nodes of owners: changed nodes are read late, and all of them after a reconnect."""

from collections.abc import Collection

from tests.simulation.faults import Faults
from tests.simulation.journal import ProcessJournal
from tests.simulation.pulsar import CURSOR, Brokers
from tests.simulation.pulsar_session import PATHS, Session
from trueup.state.deletion.owners import OwnerStatus
from trueup.streams.deletion.owners import known, record_of
from trueup.streams.deletion.topics import OWNERS


class OwnerCapture:
    """The capture of one process. An observation of a node contains its value at the time of the read."""

    def __init__(self, brokers: Brokers, session: Session, journal: ProcessJournal, faults: Faults) -> None:
        self._brokers, self._session, self._journal, self._faults = brokers, session, journal, faults
        self._due: dict[str, int] = {}
        self._published: dict[str, int] = {}
        self._unread: set[str] = set()
        self._read = 0
        self._connected = False

    def load(self) -> None:
        """Load the state of the journal, to compare with."""
        existing, _, _ = known(self._journal)  # type: ignore[arg-type]
        self._published = {path.removeprefix(f"{PATHS.ledgers}/"): zxid for path, zxid in existing.items()}

    def blocked_reason(self) -> str:
        """Why no deletion is possible now; empty if it is."""
        return "" if self._connected and not self._unread else "owners of ledgers: not synchronized yet"

    def seek(self, owners: Collection[str]) -> None:
        """Read these owners soon."""
        for owner in sorted(owners):
            self._due.setdefault(owner, self._brokers.world.now_ms)

    @property
    def settled(self) -> bool:
        """Whether every change was published."""
        return not self.blocked_reason() and not self._due and self._read == len(self._brokers.changes)

    def look(self) -> None:
        """Read and publish what is due. Raises `Retry`."""
        if self._faults.cut or self._faults.refused:
            self._connected = False
            return
        if not self._connected:
            self._connect()
        self._queue()
        due = [path for path, at in self._due.items() if at <= self._brokers.world.now_ms]
        if self._faults.happens(self._faults.again):
            self._faults.rng.shuffle(due)
        for path in due:
            self._publish(path)

    def _connect(self) -> None:
        """All paths are compared with what was published."""
        brokers, now_ms = self._brokers, self._brokers.world.now_ms
        there = {*brokers.nodes, *(f"{owner}/{CURSOR}" for owner in brokers.cursors)}
        self._due = dict.fromkeys(sorted(there | self._published.keys()), now_ms)
        self._unread, self._connected, self._read = set(self._due), True, len(brokers.changes)

    def _queue(self) -> None:
        """Queue the events since the last call."""
        faults = self._faults
        for path in self._brokers.changes[self._read :]:
            wait = faults.rng.randint(0, 4_000) if faults.happens(faults.late) else 0
            self._due.setdefault(path, self._brokers.world.now_ms + wait)
        self._read = len(self._brokers.changes)

    def _publish(self, path: str) -> None:
        self._faults.seam()
        pointers, known_zxid = self._session.pointers(path), self._published.get(path, -1)
        gone = pointers.status is OwnerStatus.GONE
        if known_zxid >= 0 if gone else pointers.mzxid > known_zxid:
            record = (OWNERS, pointers.path.encode(), record_of(pointers))
            self._journal.put([record, record] if self._faults.happens(self._faults.again) else [record])
            self._published[path] = -1 if gone else pointers.mzxid
        del self._due[path]
        self._unread.discard(path)
