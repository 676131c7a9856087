"""Watches the references in Pulsar's nodes and publishes all changes.

One session holds a recursive watch on managed ledgers and one on schemas. A thread converts events to reads, and reads
to `Pointers`. After a reconnect everything is read again and compared with the published state: there are far fewer
owners than ledgers. A published value is always a whole node with its version; publishing it again is harmless.

ZooKeeper sends no event for a changed permission, and since 3.9.2 none for nodes that this identity may not read.
Therefore everything is also read again at intervals, a part in each step, and owners that ledgers name and that no node
has are read when they are named.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from queue import SimpleQueue
from types import MappingProxyType

from trueup.connectors.pulsar.layout import PulsarPaths
from trueup.connectors.pulsar.nodes import forbidden, gone, pointers_of
from trueup.connectors.pulsar.queries import GONE, PACE, Node, below, owned, read
from trueup.connectors.zookeeper.client import Pace, ZooKeeperClient
from trueup.connectors.zookeeper.follower import Follower
from trueup.connectors.zookeeper.history import ensure_later, rewound
from trueup.connectors.zookeeper.watch import NodeWatch
from trueup.state.common.errors import Stop
from trueup.state.deletion.owners import OwnerStatus, Pointers

log = logging.getLogger(__name__)
Deliver = Callable[[list[Pointers]], None]
_TOGETHER = 2_000
_AGAIN_MS, _SHARE = 60_000, 20
"""Minimum time from one reading of everything to the next, and its minimum ratio to the time that the reading takes."""
_PART_S = 0.25


@dataclass(frozen=True, slots=True)
class PulsarHealth:
    """The state of the capture."""

    connected: bool
    synced: bool
    """Whether nothing is missing except nodes whose events wait to be read."""
    complete_ms: int
    """All changes up to this time, in ms since the epoch, are published."""
    nodes: int
    """The number of published nodes that exist: nodes that reference ledgers, or may do so."""
    unreadable: tuple[str, ...]
    """The paths of the unreadable nodes, in order, without those in ``forbidden``."""
    forbidden: tuple[str, ...]
    """The paths of the nodes that are unreadable for lack of permission, in order."""
    problem: str
    """The error that prevents progress; empty if there is none."""


class NodeFeed:
    """The published state of every node, by path. A new state is stored only after its delivery. ``ended``: zxids of
    nodes that are published as gone."""

    def __init__(
        self,
        deliver: Deliver,
        paths: PulsarPaths,
        mzxids: Mapping[str, int],
        ended: Mapping[str, int],
        now: Callable[[], int],
        pace: Pace,
    ) -> None:
        self._deliver, self._paths, self._now, self._pace = deliver, paths, now, pace
        self._held, self._ended = dict(mzxids), dict(ended)
        self._again: Iterator[list[Node]] | None = None
        self._begun_ms, self._next_ms = 0, 0
        self.unreadable: frozenset[str] = frozenset()
        self.forbidden: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self._held)

    def read_all(self, client: ZooKeeperClient) -> None:
        """Read every node that exists or existed."""
        self._again, self._next_ms = None, self._now() + _AGAIN_MS
        self._take(self._every(client))

    def _every(self, client: ZooKeeperClient) -> Iterator[list[Node]]:
        seen: set[str] = set()
        for nodes in below(client, [self._paths.ledgers, self._paths.schemas], self._pace):
            seen.update(node.path for node in nodes)
            yield nodes
        yield from read(client, sorted(self._held.keys() - seen), self._pace)

    def follow(self, client: ZooKeeperClient, changed: Iterable[str]) -> None:
        """Read these nodes, and at intervals a part of all nodes."""
        self._take(read(client, sorted(changed), self._pace))
        if self._again is None and self._now() >= self._next_ms:
            self._again, self._begun_ms = self._every(client), self._now()
        if self._again is not None:
            # A response may have waited since the last step: what differs is read now.
            differing = self._differing(self._again, time.monotonic() + _PART_S)
            self._take(read(client, sorted(differing), self._pace))

    def _differing(self, every: Iterator[list[Node]], until_s: float) -> list[str]:
        """Paths whose state differs from the published one, among the next nodes, read for a limited time."""
        paths: list[str] = []
        for nodes in every:
            paths += [node.path for node in nodes if self._differs(node)]
            if time.monotonic() > until_s:
                return paths
        self._again = None
        self._next_ms = self._now() + max(_AGAIN_MS, _SHARE * (self._now() - self._begun_ms))
        return paths

    def _differs(self, node: Node) -> bool:
        if node.stat:
            return node.stat.mzxid != self._held.get(node.path) or node.path in self.forbidden
        return node.path in self._held if node.error == GONE else node.path not in self.forbidden

    def _take(self, parts: Iterable[list[Node]]) -> None:
        news: list[Pointers] = []
        for node in chain.from_iterable(parts):
            pointers = self._news(node)
            if pointers:
                news.append(pointers)
            if len(news) >= _TOGETHER:
                self._publish(news)
                news = []
        if news:
            self._publish(news)

    def _publish(self, news: list[Pointers]) -> None:
        self._deliver(news)
        for pointers in news:
            if pointers.status is OwnerStatus.GONE:
                self._held.pop(pointers.path, None)
                self._ended[pointers.path] = pointers.mzxid
            else:
                self._held[pointers.path] = pointers.mzxid
                self._ended.pop(pointers.path, None)
        paths = {pointers.path for pointers in news}
        unreadable = [pointers for pointers in news if pointers.status is OwnerStatus.UNREADABLE]
        if unreadable or not paths.isdisjoint(self.unreadable):
            self.unreadable = (self.unreadable - paths).union(pointers.path for pointers in unreadable)
            closed = [pointers.path for pointers in unreadable if pointers.version < 0]
            self.forbidden = (self.forbidden - paths).union(closed)

    def _news(self, node: Node) -> Pointers | None:
        """The record to publish for a node; None if it is published or there is nothing to publish. Raises `Rewound`
        for a node that is older than observed."""
        held = self._held.get(node.path)
        if node.stat:
            if held is not None and node.stat.mzxid < held:
                raise rewound(node.path, held, node.stat.mzxid)
            if node.stat.mzxid == held and node.path not in self.forbidden:
                return None
            pointers = pointers_of(self._paths, node.path, node.data, node.stat, self._now())
            if pointers:
                return pointers
        elif node.error != GONE:
            if node.path in self.forbidden:
                return None
            last = max(held or 0, self._ended.get(node.path, 0))
            return forbidden(self._paths, node.path, last, self._now())
        return None if held is None else gone(self._paths, node.path, node.zxid, self._now())


class PulsarCapture(Follower):
    """Observes the owners of one cluster until it is closed.

    ``publish`` may block and may raise: it is called again with the same arguments until it succeeds, and nothing else
    is published before. ``mzxids``: the journal's content by path, without GONE nodes: the mzxid of a READABLE node, -1
    of others; ``ended``: the zxids of GONE nodes. ``now`` returns the time in ms since the epoch. A later record of the
    same mzxid wins. ``reached``: the highest observed zxid.
    """

    def __init__(
        self,
        connect: Callable[[], ZooKeeperClient],
        paths: PulsarPaths,
        publish: Callable[[Iterable[Pointers]], None],
        mzxids: Mapping[str, int],
        now: Callable[[], int],
        pace: Pace = PACE,
        reached: int = 0,
        ended: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        super().__init__("owners", connect, NodeWatch((), now), now)
        self._paths, self._reached = paths, reached
        self._feed = NodeFeed(lambda news: self._until_done(lambda: publish(news)), paths, mzxids, ended, now, pace)
        self._tops = (paths.ledgers, paths.schemas)
        self._named = SimpleQueue[str]()

    def health(self) -> PulsarHealth:
        """The current state. Callable from any thread."""
        connected = self._client is not None and bool(self._client.connected)
        unreadable, closed = self._feed.unreadable, self._feed.forbidden
        return PulsarHealth(
            connected,
            self._watch.armed,
            self.complete_ms,
            len(self._feed),
            tuple(sorted(unreadable - closed)),
            tuple(sorted(closed)),
            self.problem,
        )

    def seek(self, owners: Iterable[str]) -> None:
        """Read these owners soon, although no event named them; names that no node can have are ignored."""
        for owner in owners:
            with suppress(Stop):
                self._named.put(self._paths.node(owner))
        self._watch.wake.set()

    def read(self, owner: str) -> list[Pointers]:
        """The current nodes of an owner: its own first, GONE if it does not exist; then its cursors. Raises `Retry`,
        and `Stop` for an invalid name."""
        return owned(self._open_client(), self._paths, [owner], self._now())[owner]

    def _sync(self, client: ZooKeeperClient) -> None:
        """Add the watches, then read whatever may have changed before they were added."""
        covered = self._watch.covered
        # The server of a new session may lag behind the previous one; a listing there would show an older state.
        client.settle(self._paths.ledgers)
        self._reached = max(self._reached, covered or 0)
        ensure_later(min([client.add_watch(top) for top in self._tops]), self._reached)
        self._feed.read_all(client)

    def _handle(self, client: ZooKeeperClient) -> None:
        """Handle all events received so far."""
        taken, named = self._watch.take(), set[str]()
        while not self._named.empty():
            named.add(self._named.get())
        try:
            self._feed.follow(client, (taken.keys() | named) - set(self._tops))
        except BaseException:
            self._watch.put_back(taken)
            for path in named:
                self._named.put(path)
            raise
