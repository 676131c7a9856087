"""Watches the references in Pulsar's nodes and publishes all changes.

One session holds a recursive watch on managed ledgers and one on schemas. A thread converts events to reads, and reads
to `Pointers`. After a reconnect everything is read again and compared with the published state: there are far fewer
owners than ledgers. A published value is always a whole node with its version; publishing it again is harmless.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from trueup.connectors.pulsar.layout import PulsarPaths
from trueup.connectors.pulsar.nodes import forbidden, gone, pointers_of
from trueup.connectors.pulsar.queries import GONE, PACE, Node, below, owned, read, walk
from trueup.connectors.zookeeper.client import Pace, ZooKeeperClient
from trueup.connectors.zookeeper.follower import Follower
from trueup.connectors.zookeeper.history import ensure_later, rewound
from trueup.connectors.zookeeper.watch import NodeWatch
from trueup.state.deletion.owners import OwnerStatus, Pointers

log = logging.getLogger(__name__)
Deliver = Callable[[list[Pointers]], None]
_TOGETHER = 2_000
_FORBIDDEN_AGAIN_MS = 60_000


@dataclass(frozen=True, slots=True)
class PulsarHealth:
    """State of the capture. ``synced``: only nodes whose events wait to be read are missing. ``complete_ms``: all
    changes up to then, in ms since the epoch, are published. ``nodes``: number of nodes that reference ledgers;
    ``unreadable`` of them. ``problem``: the error that prevents progress, empty if none."""

    connected: bool
    synced: bool
    complete_ms: int
    nodes: int
    unreadable: int
    problem: str


class NodeFeed:
    """The published state of every node, by path. A new state is stored only after its delivery."""

    def __init__(
        self, deliver: Deliver, paths: PulsarPaths, known: Mapping[str, int], now: Callable[[], int], pace: Pace
    ) -> None:
        self._deliver, self._paths, self._now, self._pace = deliver, paths, now, pace
        self._held = dict(known)
        self._forbidden: set[str] = set()
        self._asked_ms = 0
        self.unreadable: set[str] = set()

    def __len__(self) -> int:
        return len(self._held)

    def read_all(self, client: ZooKeeperClient) -> None:
        """Read every node that exists or existed."""
        seen: set[str] = set()

        def there() -> Iterator[list[Node]]:
            for nodes in below(client, [self._paths.ledgers, self._paths.schemas], self._pace):
                seen.update(node.path for node in nodes)
                yield nodes

        self._take(there())
        self._take(read(client, sorted(self._held.keys() - seen), self._pace))

    def follow(self, client: ZooKeeperClient, changed: Iterable[str]) -> None:
        """Read these nodes; at intervals also forbidden ones, because no event reports a granted permission."""
        self._take(read(client, sorted(changed), self._pace))
        if self._forbidden and self._now() - self._asked_ms > _FORBIDDEN_AGAIN_MS:
            self._asked_ms = self._now()
            self._take(walk(client, sorted(self._forbidden), self._pace))

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
            self.unreadable.discard(pointers.path)
            self._forbidden.discard(pointers.path)
            if pointers.status is OwnerStatus.GONE:
                self._held.pop(pointers.path, None)
                continue
            self._held[pointers.path] = pointers.mzxid
            if pointers.status is OwnerStatus.UNREADABLE:
                self.unreadable.add(pointers.path)
                self._forbidden.update([pointers.path] if pointers.version < 0 else [])

    def _news(self, node: Node) -> Pointers | None:
        """The record to publish for a node; None if it is published or there is nothing to publish. Raises `Rewound`
        for a node that is older than observed."""
        held = self._held.get(node.path)
        if node.stat:
            if held is not None and node.stat.mzxid < held:
                raise rewound(node.path, held, node.stat.mzxid)
            if node.stat.mzxid == held and node.path not in self._forbidden:
                return None
            pointers = pointers_of(self._paths, node.path, node.data, node.stat, self._now())
            if pointers:
                return pointers
        elif node.error != GONE:
            reported = node.path in self._forbidden
            return None if reported else forbidden(self._paths, node.path, max(held or 0, 0), self._now())
        return None if held is None else gone(self._paths, node.path, node.zxid, self._now())


class PulsarCapture(Follower):
    """Observes the owners of one cluster until it is closed.

    ``publish`` may block and may raise: it is called again with the same arguments until it succeeds, and nothing else
    is published before. ``known``: the journal's content by path, without GONE nodes: the mzxid of a READABLE node, -1
    of others. ``now`` returns the time in ms since the epoch. A later record of the same mzxid wins.
    ``reached``: the highest observed zxid.
    """

    def __init__(
        self,
        connect: Callable[[], ZooKeeperClient],
        paths: PulsarPaths,
        publish: Callable[[Iterable[Pointers]], None],
        known: Mapping[str, int],
        now: Callable[[], int],
        pace: Pace = PACE,
        reached: int = 0,
    ) -> None:
        super().__init__("owners", connect, NodeWatch((), now), now)
        self._paths, self._reached = paths, reached
        self._feed = NodeFeed(lambda news: self._until_done(lambda: publish(news)), paths, known, now, pace)
        self._tops = (paths.ledgers, paths.schemas)

    def health(self) -> PulsarHealth:
        """The current state. Callable from any thread."""
        connected = self._client is not None and bool(self._client.connected)
        unreadable = len(self._feed.unreadable)
        return PulsarHealth(connected, self._watch.armed, self.complete_ms, len(self._feed), unreadable, self.problem)

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
        taken = self._watch.take()
        try:
            self._feed.follow(client, taken.keys() - set(self._tops))
        except BaseException:
            self._watch.put_back(taken)
            raise
