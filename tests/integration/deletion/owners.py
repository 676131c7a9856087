"""Creates Pulsar's and BookKeeper's znodes under a separate root. Also contains a journal of owners in memory."""

import threading
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from trueup.connectors.bookkeeper.metadata import metadata
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths as LedgerPaths
from trueup.connectors.pulsar import messages
from trueup.connectors.pulsar.layout import PulsarPaths
from trueup.connectors.pulsar.nodes import pointers_of
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.connectors.zookeeper.errors import NodeExists
from trueup.connectors.zookeeper.requests import Stat
from trueup.state.bookkeeper.observations import LedgerRecord, LedgerState
from trueup.state.common.errors import BadBytes, Retry
from trueup.state.deletion.owners import OwnerStatus, Pointers

TOPIC = "t/ns/persistent/a"
DATA = {"application": b"pulsar", "component": b"managed-ledger", "pulsar/managed-ledger": TOPIC.encode()}


class Owners:
    """Writes through ``client``, which no test disconnects."""

    def __init__(self, client: ZooKeeperClient, root: str) -> None:
        self.client, self.paths, self.ledgers = client, PulsarPaths(root), LedgerPaths(f"{root}/ledgers")
        for path in (self.paths.ledgers, self.ledgers.root):
            self.make(path)

    def make(self, path: str, data: bytes = b"") -> str:
        """Create a znode and its parents, or overwrite it."""
        parent = path.rpartition("/")[0]
        if parent and self.client.look(parent) is None:
            self.make(parent)
        try:
            self.client.make(path, data)
        except NodeExists:
            self.client.put(path, data, -1)
        return path

    def managed_ledger(
        self, *ledgers: int, owner: str = TOPIC, copies: Mapping[int, tuple[bool, bool]] = MappingProxyType({})
    ) -> str:
        """A managed ledger with these ledgers. ``copies``: the flags complete and bookkeeperDeleted, if offloaded."""
        message = messages.ManagedLedger(ledgerInfo=[{"ledgerId": ledger} for ledger in ledgers])
        for info in message.ledgerInfo:
            if info.ledgerId in copies:
                context = info.offloadContext
                context.uidMsb, context.uidLsb = 0x0123456789ABCDEF, 0x0123456789ABCDEF
                context.complete, context.bookkeeperDeleted = copies[info.ledgerId]
                context.driverMetadata.properties.add(key=b"bucket", value=b"offloaded")
        return self.make(self.paths.node(owner), message.SerializeToString())

    def cursor(self, name: str, ledger: int = -1, compacted: int = -1, owner: str = TOPIC) -> str:
        """A cursor of the managed ledger."""
        message = messages.Cursor(cursorsLedgerId=ledger)
        message.properties.add(name=b"CompactedTopicLedger", value=compacted)
        return self.make(f"{self.paths.node(owner)}/{name}", message.SerializeToString())

    def schema(self, name: str, ledger: int) -> str:
        """The locator of a schema with one version."""
        message = messages.Schema()
        message.info.version, message.info.hash = 0, b"h"
        message.info.position.ledgerId, message.info.position.entryId = ledger, 0
        return self.make(f"{self.paths.schemas}/{name}", message.SerializeToString())

    def ledger(
        self, ledger: int, state: LedgerState = LedgerState.CLOSED, custom: dict[str, bytes] = DATA, ctime_ms: int = 7
    ) -> str:
        """A ledger with the topic's data."""
        record: LedgerRecord = {
            "ledger": ledger,
            "mzxid": 0,
            "version": 0,
            "ctime_ms": ctime_ms,
            "seen_ms": 0,
            "state": int(state),
            "ensemble": 1,
            "quorum": 1,
            "ack_quorum": 1,
            "last_entry": 9,
            "length": 99,
            "fragments": [{"first_entry": 0, "bookies": ["a:1"]}],
            "custom": custom,
            "error": "",
        }
        return self.make(self.ledgers.ledger(ledger), metadata.encode(record))

    def decode(self, ledger: int, data: bytes, stat: Stat) -> LedgerRecord:
        """The record of a ledger."""
        where = metadata.ZnodeSource(ledger, self.ledgers.ledger(ledger), stat.mzxid, stat.version, stat.ctime, 0)
        try:
            return metadata.decode(data, where)
        except BadBytes as error:
            return metadata.unreadable(where, error)

    def all(self, path: str = "") -> set[str]:
        """Every znode below the root."""
        top = path or self.paths.root
        return {top}.union(*(self.all(f"{top}/{name.decode()}") for name in self.client.listing(top)[0]))

    def actual(self) -> dict[str, tuple[int, tuple[int, ...]]]:
        """mzxid and ledgers of every node that may point to ledgers."""
        found = {}
        for path in self.all(self.paths.ledgers) | (self.all(self.paths.schemas) if self._schemas() else set()):
            looked = self.client.look(path)
            if path in (self.paths.ledgers, self.paths.schemas) or looked is None:
                continue
            node = pointers_of(self.paths, path, *looked, 0)
            if node:
                found[path] = (node.mzxid, node.ledgers)
        return found

    def _schemas(self) -> bool:
        return self.client.look(self.paths.schemas) is not None


class OwnersJournal:
    """Keeps the newest version of each published node. Fails the next ``failures`` calls of publish."""

    def __init__(self) -> None:
        self.all: list[Pointers] = []
        self.nodes: dict[str, Pointers] = {}
        self.failures = 0
        self.asked = threading.Event()

    def publish(self, pointers: Iterable[Pointers]) -> None:
        self.asked.set()
        if self.failures:
            self.failures -= 1
            raise Retry("a journal", "none", "try again")
        for node in pointers:
            self.all.append(node)
            if node.path not in self.nodes or node.mzxid >= self.nodes[node.path].mzxid:
                self.nodes[node.path] = node

    def snapshot(self) -> dict[str, tuple[int, tuple[int, ...]]]:
        """mzxid and ledgers of every node that is not gone."""
        known = dict(self.nodes)
        return {path: (n.mzxid, n.ledgers) for path, n in known.items() if n.status is not OwnerStatus.GONE}

    def status(self, path: str) -> OwnerStatus | None:
        """The last published status of a node."""
        return self.nodes[path].status if path in self.nodes else None
