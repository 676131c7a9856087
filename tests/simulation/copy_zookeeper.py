"""A ZooKeeper session over the simulated cluster, as far as copies use one: locks, metadata, registrations."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.simulation.copy_world import CopyWorld, SessionLock
from tests.simulation.faults import Faults
from tests.simulation.model import Ledger
from trueup.connectors.bookkeeper.messages import ServiceInfo
from trueup.connectors.bookkeeper.metadata import metadata
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.zookeeper.client import CommittedNode
from trueup.connectors.zookeeper.errors import BadVersion, NodeExists, NoNode
from trueup.connectors.zookeeper.requests import INT, Stat
from trueup.state.bookkeeper.observations import LedgerRecord
from trueup.state.common.errors import Retry, TrueupError, Unknown

PATHS = BookKeeperPaths("/ledgers")
NO_NODE, BAD_VERSION, ROLLED_BACK = -101, -103, -2
_DELETE, _SET_DATA, _CHECK = 2, 5, 13


@dataclass(frozen=True)
class Operation:
    """One operation of a transaction, decoded from its bytes (zookeeper.jute)."""

    kind: int
    path: str
    data: bytes
    version: int

    @staticmethod
    def decoded(body: bytes) -> "Operation":
        kind, size = INT.unpack_from(body)[0], INT.unpack_from(body, 9)[0]
        path, at, data = body[13 : 13 + size].decode(), 13 + size, b""
        if kind == _SET_DATA:
            size = INT.unpack_from(body, at)[0]
            data, at = body[at + 4 : at + 4 + size], at + 4 + size
        return Operation(kind, path, data, INT.unpack_from(body, at)[0])


class CopySession:
    """Replaces `connectors.zookeeper.client.ZooKeeperClient`. ``between``: called before each request; ``fence``:
    called in each transaction, raises if another leader's changes are taken; ``changing``: called with a ledger, its
    metadata after a change, and the session, before the change is made."""

    def __init__(
        self,
        world: CopyWorld,
        faults: Faults,
        between: Callable[[], None],
        fence: Callable[[], None] = lambda: None,
        changing: Callable[[Ledger, LedgerRecord, int], None] = lambda *_: None,
    ) -> None:
        self._world, self._faults, self._between = world, faults, between
        self._fence, self._changing = fence, changing
        self._id, self.ended = world.begin_session(), False
        self._sent = self._id
        self.read: set[int] = set()
        """The ledgers whose metadata this session has read."""

    @property
    def session(self) -> int:
        """The id of the session; another one after ZooKeeper ended it."""
        if self._world.sessions[self._id] < 0 and not self.ended:
            self._id = self._world.begin_session()
        return self._id

    def expire(self) -> None:
        """ZooKeeper ends the session, unless there is none."""
        if self._world.sessions[self._id] == 0:
            self._world.end_session(self._id)

    def close(self, wait: bool) -> None:
        """The process closes the session, or ends without that (``wait``)."""
        self.ended = True
        self._world.end_session(self._id, wait)

    def look(self, path: str) -> tuple[bytes, Stat] | None:
        self._begin()
        number = _ledger_of(path)
        if path.startswith(f"{PATHS.available}/"):
            return self._registration(path.removeprefix(f"{PATHS.available}/"))
        if path.startswith(f"{PATHS.locks}/"):
            lock = self._world.locks.get(number)
            if lock is None:
                return None
            ours = isinstance(lock, SessionLock)
            return b"", _stat(0, lock.version if ours else 0, lock.session if ours else -1)
        ledger = self._world.ledgers.get(number)
        if ledger is None:
            return None
        self.read.add(number)
        return self._world.metadata(ledger), _stat(ledger.mzxid, ledger.version, 0)

    def _registration(self, name: str) -> tuple[bytes, Stat] | None:
        state, name = ("readonly", name[9:]) if name.startswith("readonly/") else ("writable", name)
        bookie = self._world.bookies.get(name)
        if bookie is None or bookie.state != state:
            return None
        info = ServiceInfo()
        info.endpoints.add(id=b"", port=1, host=name.encode(), protocol=b"bookie-rpc")
        return info.SerializeToString(), _stat(bookie.registered_zxid, 0, 0)

    def make(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> str:
        assert ephemeral, path
        with_answer = self._begin(writing=True)
        number = _ledger_of(path)
        if number in self._world.locks:
            raise NodeExists("no lock", f"a lock of ledger {number}", "wait")
        del data
        self._world.lock(number, SessionLock(f"session {self.session}", None, self.session))
        self._end(with_answer)
        return path

    def put(self, path: str, data: bytes, version: int) -> int:
        del data
        with_answer = self._begin(writing=True)
        lock = self._lock(path, version)
        lock.version += 1
        self._end(with_answer)
        return lock.version

    def drop(self, path: str, version: int) -> None:
        with_answer = self._begin(writing=True)
        self._lock(path, version)
        self._world.unlock(_ledger_of(path))
        self._end(with_answer)

    def _lock(self, path: str, version: int) -> SessionLock:
        lock = self._world.locks.get(_ledger_of(path))
        if lock is None:
            raise NoNode(path, "no node", "read again")
        if not isinstance(lock, SessionLock) or version not in (-1, lock.version):
            raise BadVersion(f"version {version}", "another one", "read again")
        return lock

    def commit(self, batches: Iterable[Sequence[bytes]]) -> Iterator[CommittedNode | TrueupError]:
        for batch in batches:
            try:
                with_answer = self._begin(writing=True)
                self._fence()
                self._require_sent(writing=True)
                codes = self._apply([Operation.decoded(body) for body in batch])
                self._end(with_answer)
            except TrueupError as error:
                yield error
            else:
                yield CommittedNode(codes, self._world.zxid)

    def _apply(self, operations: Sequence[Operation]) -> list[int | None]:
        failures = [self._failure(operation) for operation in operations]
        first = next((at for at, code in enumerate(failures) if code), None)
        if first is not None:
            return [0] * first + [failures[first]] + [ROLLED_BACK] * (len(operations) - first - 1)
        for operation in operations:
            number = _ledger_of(operation.path)
            if operation.kind == _SET_DATA:
                ledger = self._world.ledgers[number]
                where = metadata.ZnodeSource(number, operation.path, ledger.mzxid, ledger.version, 0, 0)
                record = metadata.decode(operation.data, where)
                self._changing(ledger, record, self.session)
                self._world.replace_members(ledger, record)
            elif operation.kind == _DELETE:
                self._world.unlock(number)
        return [None] * len(operations)

    def _failure(self, operation: Operation) -> int:
        number, world = _ledger_of(operation.path), self._world
        if operation.path.startswith(f"{PATHS.locks}/"):
            lock = world.locks.get(number)
            found = None if lock is None else lock.version if isinstance(lock, SessionLock) else 0
        else:
            found = world.ledgers[number].version if number in world.ledgers else None
        if found is None:
            return NO_NODE
        return BAD_VERSION if operation.version not in (-1, found) else 0

    def _begin(self, writing: bool = False) -> bool:
        """Returns whether the response arrives. Raises `Retry` and `Unknown` if the request does not."""
        self._sent = self.session
        self._between()
        self._require_sent(writing)
        if self.ended or self._faults.refused:
            raise Retry("a session with ZooKeeper", "connection refused", "it reconnects by itself")
        lost = writing and self._faults.answer_lost()
        if lost and self._faults.happens(0.5):
            raise Unknown("the response to a write", "connection lost", "observe")
        return not lost

    def _require_sent(self, writing: bool) -> None:
        """A request is executed in the session in which it was sent, or not at all."""
        if self._world.sessions[self._sent] < 0:
            kind = Unknown if writing else Retry
            raise kind("a response", "the session expired", "observe")

    def _end(self, with_answer: bool) -> None:
        if not with_answer:
            raise Unknown("the response to a write", "connection lost", "observe")


def _ledger_of(path: str) -> int:
    if path.startswith(f"{PATHS.locks}/"):
        return int(path.rpartition("urL")[2])
    return PATHS.classify(path)[1]


def _stat(mzxid: int, version: int, owner: int) -> Stat:
    return Stat(mzxid, mzxid, 0, 0, version, 0, 0, owner, 0, 0, 0)
