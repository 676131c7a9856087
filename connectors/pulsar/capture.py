"""Watches what Pulsar's nodes point to and says everything that changes, once and completely.

One session holds a recursive watch on managed ledgers and one on schemas. A thread turns events into reads and reads
into `Pointers`. After a reconnect everything is read again and compared with what was published: owners are few
beside ledgers. What is published is always a whole node with its version; publishing again does no harm.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from trueup.connectors.pulsar.layout import Paths
from trueup.connectors.pulsar.nodes import forbidden, gone, pointers_of
from trueup.connectors.pulsar.queries import GONE, PACE, Node, below, owned, read, walk
from trueup.connectors.zookeeper.client import Client, Pace
from trueup.connectors.zookeeper.follower import Follower
from trueup.connectors.zookeeper.history import ensure_later, rewound
from trueup.connectors.zookeeper.watch import Watch
from trueup.state.deletion.owners import Pointers, Status

log = logging.getLogger(__name__)
Deliver = Callable[[list[Pointers]], None]
_TOGETHER = 2_000
_FORBIDDEN_AGAIN_MS = 60_000


@dataclass(frozen=True, slots=True)
class Health:
    """How the capture fares. ``synced``: nothing is missing but what events wait to be read. ``complete_ms``: all that
    had happened by then, in ms since the epoch, is published. ``nodes``: how many point to ledgers; ``unreadable`` of
    them. ``problem``: what keeps it from going on, empty if nothing."""

    connected: bool
    synced: bool
    complete_ms: int
    nodes: int
    unreadable: int
    problem: str


class NodeFeed:
    """What was said of every node, by path; says what is new. It holds the new only after it was delivered."""

    def __init__(
        self, deliver: Deliver, paths: Paths, known: Mapping[str, int], now: Callable[[], int], pace: Pace
    ) -> None:
        self._deliver, self._paths, self._now, self._pace = deliver, paths, now, pace
        self._held = dict(known)
        self._forbidden: set[str] = set()
        self._asked_ms = 0
        self.unreadable: set[str] = set()

    def __len__(self) -> int:
        return len(self._held)

    def read_all(self, client: Client) -> None:
        """Read every node there is, and every one that was."""
        seen: set[str] = set()

        def there() -> Iterator[list[Node]]:
            for nodes in below(client, [self._paths.ledgers, self._paths.schemas], self._pace):
                seen.update(node.path for node in nodes)
                yield nodes

        self._take(there())
        self._take(read(client, sorted(self._held.keys() - seen), self._pace))

    def follow(self, client: Client, changed: Iterable[str]) -> None:
        """Read these nodes; now and then also those that may not be read, as no event tells of permission given."""
        self._take(read(client, sorted(changed), self._pace))
        if self._forbidden and self._now() - self._asked_ms > _FORBIDDEN_AGAIN_MS:
            self._asked_ms = self._now()
            self._take(walk(client, sorted(self._forbidden), self._pace))

    def _take(self, parts: Iterable[list[Node]]) -> None:
        news: list[Pointers] = []
        for node in chain.from_iterable(parts):
            told = self._news(node)
            if told:
                news.append(told)
            if len(news) >= _TOGETHER:
                self._publish(news)
                news = []
        if news:
            self._publish(news)

    def _publish(self, news: list[Pointers]) -> None:
        self._deliver(news)
        for told in news:
            self.unreadable.discard(told.path)
            self._forbidden.discard(told.path)
            if told.status is Status.GONE:
                self._held.pop(told.path, None)
                continue
            self._held[told.path] = told.mzxid
            if told.status is Status.UNREADABLE:
                self.unreadable.add(told.path)
                self._forbidden.update([told.path] if told.version < 0 else [])

    def _news(self, node: Node) -> Pointers | None:
        """What to say of a node, None if it was said or there is nothing to say. Raises `Rewound` for one that is older
        than it was observed to be."""
        held = self._held.get(node.path)
        if node.stat:
            if held is not None and node.stat.mzxid < held:
                raise rewound(node.path, held, node.stat.mzxid)
            if node.stat.mzxid == held and node.path not in self._forbidden:
                return None
            told = pointers_of(self._paths, node.path, node.data, node.stat, self._now())
            if told:
                return told
        elif node.error != GONE:
            said = node.path in self._forbidden
            return None if said else forbidden(self._paths, node.path, max(held or 0, 0), self._now())
        return None if held is None else gone(self._paths, node.path, node.zxid, self._now())


class Capture(Follower):
    """Observes the owners of one cluster until it is closed.

    ``publish`` may block, and may raise: it is called again with the same until it succeeds, and nothing else is
    published before. ``known``: what the journal holds by path, all but those that are GONE: the mzxid of a node that
    is READABLE there, -1 of others. ``now``: the time in ms since the epoch. A later record of the same mzxid holds.
    ``reached``: the highest zxid that was observed.
    """

    def __init__(
        self,
        connect: Callable[[], Client],
        paths: Paths,
        publish: Callable[[Iterable[Pointers]], None],
        known: Mapping[str, int],
        now: Callable[[], int],
        pace: Pace = PACE,
        reached: int = 0,
    ) -> None:
        super().__init__("owners", connect, Watch((), now), now)
        self._paths, self._reached = paths, reached
        self._feed = NodeFeed(lambda news: self._until_done(lambda: publish(news)), paths, known, now, pace)
        self._tops = (paths.ledgers, paths.schemas)

    def health(self) -> Health:
        """The state of things, from any thread."""
        connected = self._client is not None and bool(self._client.connected)
        unreadable = len(self._feed.unreadable)
        return Health(connected, self._watch.armed, self.complete_ms, len(self._feed), unreadable, self.problem)

    def read(self, owner: str) -> list[Pointers]:
        """An owner's nodes as they are now, its own first, GONE if it is not there; then its cursors. Raises `Retry`,
        and `Stop` for a name that no owner can have."""
        return owned(self._open_client(), self._paths, [owner], self._now())[owner]

    def _sync(self, client: Client) -> None:
        """Add the watches, then read all that may have changed before they were there."""
        covered = self._watch.covered
        # A new session may be on a server that lags behind the last one; listing there would undo history.
        client.settle(self._paths.ledgers)
        self._reached = max(self._reached, covered or 0)
        ensure_later(min([client.add_watch(top) for top in self._tops]), self._reached)
        self._feed.read_all(client)

    def _handle(self, client: Client) -> None:
        """Handle all events that came."""
        taken = self._watch.take()
        try:
            self._feed.follow(client, taken.keys() - set(self._tops))
        except BaseException:
            self._watch.put_back(taken)
            raise
