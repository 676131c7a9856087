"""A session with the ZooKeeper of the simulated brokers. It returns their nodes as Pulsar encodes them, so that the
connector's own code reads and decodes them.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from tests.simulation.faults import Faults
from tests.simulation.pulsar import CURSOR, NAMESPACES, Brokers, CursorNode, ListedLedger, OwnerNode
from tests.simulation.store import BUCKET
from trueup.connectors.pulsar import messages
from trueup.connectors.pulsar.layout import PulsarPaths
from trueup.connectors.pulsar.metadata import COMPACTED
from trueup.connectors.pulsar.nodes import gone, pointers_of
from trueup.connectors.zookeeper.errors import GONE
from trueup.connectors.zookeeper.requests import Stat
from trueup.state.deletion.owners import Pointers

PATHS = PulsarPaths()
ENTRY_BYTES = 10
"""The size of every entry."""


class NodeReply(NamedTuple):
    """The response to one read: `connectors.zookeeper.requests.Znodes` of one node."""

    content: bytes | None
    node: Stat
    zxid: int

    @property
    def size(self) -> "NodeSizes":
        return NodeSizes([GONE if self.content is None else len(self.content)])

    def __len__(self) -> int:  # type: ignore[override]
        return 1

    def data(self, _row: int) -> bytes:
        return self.content or b""

    def stat(self, _row: int) -> Stat:
        return self.node


class NodeSizes(list[int]):
    """A column with one number for each node."""

    def tolist(self) -> list[int]:
        return self


class Session:
    """Implements the part of `connectors.zookeeper.client.ZooKeeperClient` that reads. ``meanwhile``: changes the
    world between two requests."""

    def __init__(self, brokers: Brokers, faults: Faults, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.brokers, self.faults, self._meanwhile = brokers, faults, meanwhile
        self._encoded: dict[str, tuple[int, bytes]] = {}
        self._below: dict[str, list[str]] = {}
        self._listed = -1

    def settle(self, _path: str) -> None:
        self._request()

    def listing(self, path: str) -> tuple[list[bytes], Stat]:
        (names,), _ = self.listings([path])
        return names, _stat(0, 0, len(names))

    def listings(self, paths: Sequence[str]) -> tuple[list[list[bytes]], int]:
        self._request()
        return [[name.encode() for name in self._children(path)] for path in paths], self.brokers.world.zxid

    def multi_read(self, parent: str, names: Sequence[bytes], _pace: object = None) -> Iterator[NodeReply]:
        self._request()
        return iter([self.reply(f"{parent}/{name.decode()}") for name in names])

    def reply(self, path: str) -> NodeReply:
        """A node as it is now."""
        zxid, node = self.brokers.world.zxid, self._node(path.removeprefix(f"{PATHS.ledgers}/"))
        if node is not None:
            return NodeReply(self._content(path, node), _stat(node.version, node.zxid, len(self._children(path))), zxid)
        names = self._children(path)
        there = names or path == PATHS.policies
        return NodeReply(b"" if there else None, _stat(0, 0, len(names)), zxid)

    def pointers(self, path: str) -> Pointers:
        """The references of the node of an owner or a cursor."""
        full, seen_ms = f"{PATHS.ledgers}/{path}", self.brokers.world.now_ms
        found = self.reply(full)
        if found.content is None:
            return gone(PATHS, full, found.zxid, seen_ms)
        pointers = pointers_of(PATHS, full, found.content, found.node, seen_ms)
        assert pointers is not None, "owners are no directories"
        return pointers

    def _request(self) -> None:
        if self.faults.happens(0.1):
            self._meanwhile()
        self.faults.acting()

    def _node(self, path: str) -> OwnerNode | CursorNode | None:
        brokers = self.brokers
        return brokers.nodes.get(path) or (
            brokers.cursors.get(path.removesuffix(f"/{CURSOR}")) if path.endswith(f"/{CURSOR}") else None
        )

    def _content(self, path: str, node: OwnerNode | CursorNode) -> bytes:
        zxid, encoded = self._encoded.get(path, (-1, b""))
        if zxid != node.zxid:
            encoded = content(node)
            self._encoded[path] = node.zxid, encoded
        return encoded

    def _children(self, path: str) -> list[str]:
        """The names of the nodes below one. Directories exist without any owner."""
        if self._listed != len(self.brokers.changes):
            self._listed = len(self.brokers.changes)
            below = [f"{name}/persistent" for name in NAMESPACES]
            below += [*self.brokers.nodes, *(f"{owner}/{CURSOR}" for owner in self.brokers.cursors)]
            names: dict[str, set[str]] = {}
            for name in below:
                words = ["", PATHS.ledgers[1:], *name.split("/")]
                for at in range(2, len(words)):
                    names.setdefault("/".join(words[:at]), set()).add(words[at])
            self._below = {parent: sorted(children) for parent, children in names.items()}
        return self._below.get(path, [])


def content(node: OwnerNode | CursorNode) -> bytes:
    """The data of a node (MLDataFormats.proto)."""
    if isinstance(node, CursorNode):
        message = messages.Cursor(cursorsLedgerId=node.ledger)
        if node.compacted >= 0:
            message.properties.add(name=COMPACTED, value=node.compacted)
    else:
        message = messages.ManagedLedger()
        for number, listed in sorted(node.ledgers.items()):
            _add(message, number, listed)
    made: bytes = message.SerializeToString()
    return made


def _add(message: "messages.ManagedLedger", number: int, listed: ListedLedger) -> None:  # type: ignore[valid-type]
    size = listed.entries * ENTRY_BYTES
    info = message.ledgerInfo.add(ledgerId=number, entries=listed.entries, size=size, timestamp=listed.closed_ms)  # type: ignore[attr-defined]
    if listed.copy is None:
        return
    uid, context = UUID(listed.copy.pair.uid).int, info.offloadContext
    context.uidMsb, context.uidLsb = _signed(uid >> 64), _signed(uid & (1 << 64) - 1)
    context.complete, context.bookkeeperDeleted = listed.copy.complete, listed.copy.dropped
    context.driverMetadata.name = b"S3"
    context.driverMetadata.properties.add(key=b"bucket", value=BUCKET.encode())


def _signed(half: int) -> int:
    return half - (1 << 64) if half >> 63 else half


def _stat(version: int, zxid: int, children: int) -> Stat:
    return Stat(zxid, zxid, 0, 0, version, 0, 0, 0, 0, children, zxid)
