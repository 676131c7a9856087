"""The owners of a BookKeeper cluster's ledgers in Pulsar's metadata: capture into the journal, current reads, guarded
deletion, and confirmation by the bookies."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from trueup.connectors.bookkeeper.metadata import queries
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths as LedgerPaths
from trueup.connectors.bookkeeper.metadata.metadata import ZnodeSource
from trueup.connectors.pulsar import orphan_objects
from trueup.connectors.pulsar.capture import PulsarCapture
from trueup.connectors.pulsar.guarded_delete import DeleteOrder, Deleter
from trueup.connectors.pulsar.layout import PulsarPaths
from trueup.connectors.pulsar.offload_verify import Tiered
from trueup.connectors.s3.store import store_of
from trueup.connectors.zookeeper.follower import Run
from trueup.connectors.zookeeper.requests import Stat
from trueup.state.bookkeeper.observations import LedgerRecord
from trueup.state.common.counts import many
from trueup.state.deletion.lifecycle import Deletion
from trueup.state.deletion.orphan_objects import Referenced
from trueup.state.deletion.owners import Claim, Component, OwnerStatus, Pointers
from trueup.state.deletion.rules import DROPPED
from trueup.state.deletion.settings import DeletionSettings
from trueup.state.deletion.stores import StoreSettings
from trueup.streams.bookkeeper.cluster import BookKeeper
from trueup.streams.config.live import LiveSection
from trueup.streams.deletion.target import DeletionItem, DeletionResult, items_of
from trueup.streams.deletion.topics import OWNERS
from trueup.streams.journal.journal import Journal
from trueup.streams.journal.topic import Record


class Pulsar:
    """Implements `streams.deletion.target.DeletionTarget` and `streams.deletion.report.OwnerQueries`. Safe to use from
    several threads."""

    def __init__(
        self,
        ledgers: BookKeeper,
        journal: Journal,
        policy: LiveSection[DeletionSettings],
        clock: Callable[[], int],
        stores: Mapping[str, StoreSettings],
    ) -> None:
        self._ledgers, self._journal, self._policy, self._clock = ledgers, journal, policy, clock
        self._paths = PulsarPaths(policy.current.root)
        self.stores = {name: store_of(store) for name, store in stores.items()}
        self._tiered = Tiered(self.stores)
        held, ended, reached = known(journal)
        self._capture = PulsarCapture(
            ledgers.connect, self._paths, self._publish, held, clock, reached=max(reached, ledgers.reached), ended=ended
        )

    def start(self, run: Run) -> None:
        """Start observing."""
        self._capture.start(run)

    def close(self) -> None:
        """Stop observing, and therefore deleting."""
        self._capture.close()

    def _publish(self, news: Iterable[Pointers]) -> None:
        nodes = list(news)
        if any(node.status is OwnerStatus.UNREADABLE for node in nodes):
            nodes = referencing(nodes, self._journal.newest(OWNERS))
        self._journal.put([(OWNERS, node.path.encode(), record_of(node)) for node in nodes])

    def find(self, ledgers: Sequence[int]) -> dict[int, DeletionItem]:
        """Those of these ledgers that exist."""
        return items_of(self._ledgers.read(ledgers))

    def nodes(self, owner: str) -> list[Pointers]:
        """Current state of all nodes of an owner. Raises `Retry`."""
        return self._capture.read(owner)

    def referenced(self) -> Referenced:
        """Everything that owners reference now. Raises `Retry`."""
        return orphan_objects.referenced(self._ledgers.session(), self._paths)

    def health(self) -> tuple[bool, int, str]:
        """Whether all nodes are read and followed, time of the last observation (ms since the epoch), problem."""
        health = self._capture.health()
        return health.synced, health.complete_ms, health.problem

    def seek(self, owners: Collection[str]) -> None:
        """Read these owners soon: ledgers name them, and no node has been observed."""
        self._capture.seek(owners)

    def absent(self, ledgers: Sequence[int]) -> set[int]:
        """Those of these ledgers that certainly do not exist."""
        return self._ledgers.absent(ledgers)

    def problems(self) -> list[str]:
        """Nodes that cannot be read."""
        return [problem for problem in (self.unread(), self.undecoded()) if problem]

    def blocked_reason(self) -> str:
        """Why no deletion is possible now; empty if it is."""
        health = self._capture.health()
        if not health.connected or not health.synced:
            return f"owners of ledgers: {health.problem or 'not synchronized yet'}"
        if self._capture.defect:
            return f"owners of ledgers cannot be followed: {self._capture.defect}"
        if unseen := self._ledgers.unseen():
            return unseen
        policy = self._policy.current
        if policy.mode != "observe" and not policy.exclusive:
            return "expected deletion.exclusive to be true; found false; set it if no other Pulsar uses this BookKeeper"
        return "" if policy.mode == "observe" else self._ledgers.unlike(policy.instance)

    def delete(self, deletions: Sequence[Deletion]) -> list[DeletionResult]:
        """Delete these ledgers, each if no precondition of its deletion has changed."""
        return [DeletionResult(o.ledger, o.result, o.detail) for o in self._deleter().delete(_orders(deletions))]

    def unread(self) -> str:
        """Why nothing may be deleted: nodes without permission to read them may reference anything. Empty if there are
        none."""
        closed = self._capture.health().forbidden
        if not closed:
            return ""
        expected = (
            f"permission to read all znodes of Pulsar's owners; found none for {len(closed)}, such as {closed[0]}"
        )
        return f"expected {expected}; grant READ to this identity in their ACLs; nothing is deleted until then"

    def undecoded(self) -> str:
        """Why no objects may be deleted: nodes that cannot be decoded may reference objects that name another owner, as
        after a rename by hand. Empty if there are none."""
        damaged = self._capture.health().unreadable
        if not damaged:
            return ""
        expected = f"znodes of Pulsar that can be decoded; found {many(len(damaged), 'other')}, such as {damaged[0]}"
        todo = "inspect it with Pulsar's tools; nothing of its owner and no object is deleted"
        return f"expected {expected}; {todo}"

    def check(self, deletions: Sequence[Deletion]) -> list[DeletionResult]:
        """Check whether these ledgers could be deleted now, without the transaction; "ready" if so."""
        return [DeletionResult(o.ledger, o.result, o.detail) for o in self._deleter().check(_orders(deletions))]

    def _deleter(self) -> Deleter:
        paths = self._ledgers.paths
        decode = _decoder(paths, self._clock)
        client, verify = self._ledgers.session(), self._tiered.verify
        return Deleter(client, self._paths, paths.ledger, decode, self._clock, verify, self.unread)

    def held(self, asked: Mapping[int, Sequence[str]]) -> dict[int, dict[str, str]]:
        """Bookies that have not confirmed that they do not have the ledger, each with its response."""
        return self._ledgers.held(asked)


def _orders(deletions: Sequence[Deletion]) -> list[DeleteOrder]:
    """A ledger that is counted as deleted must be closed and readable; the remains of a writer need not be."""
    return [
        DeleteOrder(
            m.ledger,
            m.version,
            m.ctime_ms,
            Claim(Component.DATA, m.owner),
            unclosed=m.rule != DROPPED,
            dropped=m.rule == DROPPED,
        )
        for m in deletions
    ]


def _decoder(paths: LedgerPaths, clock: Callable[[], int]) -> Callable[[int, bytes, Stat], LedgerRecord]:
    def decode(ledger: int, data: bytes, stat: Stat) -> LedgerRecord:
        where = ZnodeSource(ledger, paths.ledger(ledger), stat.mzxid, stat.version, stat.ctime, clock())
        return queries.decoded(data, where)

    return decode


def record_of(node: Pointers) -> dict[str, object]:
    """A node as a record of the topic ``owners``."""
    values = {name: value for name, value in node._asdict().items() if name != "copies"}
    return {**values, "ledgers": list(node.ledgers), "dropped": list(node.dropped), "status": int(node.status)}


def referencing(nodes: Iterable[Pointers], before: Mapping[bytes, Record]) -> list[Pointers]:
    """The same; an unreadable node has the references of its record in ``before``, the records of ``owners`` by key. It
    may still have them, and the journal keeps only the newest record: a rebuilt view reads no other."""
    return [
        node._replace(ledgers=tuple(last["ledgers"]), dropped=tuple(last["dropped"]))
        if node.status is OwnerStatus.UNREADABLE and (last := before.get(node.path.encode()))
        else node
        for node in nodes
    ]


def known(journal: Journal) -> tuple[dict[str, int], dict[str, int], int]:
    """The journal's state, for the capture to compare with: the mzxid of readable nodes, -1 for others; the zxids of
    nodes that are gone; and the highest zxid of all records."""
    mzxids, ended = dict[str, int](), dict[str, int]()
    reached = 0
    for value in journal.newest(OWNERS).values():
        reached, path = max(reached, value["mzxid"]), value["path"]
        if value["status"] == OwnerStatus.GONE:
            ended[path] = value["mzxid"]
        else:
            mzxids[path] = value["mzxid"] if value["status"] == OwnerStatus.READABLE else -1
    return mzxids, ended, reached


def node_of(record: Record) -> Record:
    """A record of the topic ``owners`` whose values are those of a node. Raises `ValueError`."""
    OwnerStatus(record["status"])
    return {name: record[name] for name in ("path", "status", "mzxid", "ledgers", "dropped")}
