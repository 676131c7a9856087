"""Watches one BookKeeper cluster and publishes all changes.

One session holds a recursive watch on the root. A thread converts its events to reads, and the reads to
`Observation`s. A watch is lost with its connection, so after every reconnect the thread adds it again and then finds
the changes in between: with a separate session the server compares all known znodes with the last delivered zxid;
new and deleted znodes show in the listing. Everything is read only the first time, and when some znodes are not
readable. A published value is always complete and has a version; publishing it again is harmless.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from trueup.connectors.bookkeeper.metadata import queries
from trueup.connectors.bookkeeper.metadata.feeds import BookieFeed, LedgerFeed, MarkFeed
from trueup.connectors.bookkeeper.metadata.layout import MARK_NAME, BookKeeperPaths, ZnodeKind
from trueup.connectors.bookkeeper.metadata.protobuf_columns import Array
from trueup.connectors.bookkeeper.metadata.published import JournalContent
from trueup.connectors.bookkeeper.metadata.racks import RackMap
from trueup.connectors.zookeeper.client import FAST, NodeEvent, Pace, ZooKeeperClient
from trueup.connectors.zookeeper.errors import unread
from trueup.connectors.zookeeper.follower import Follower
from trueup.connectors.zookeeper.history import Missed, ensure_instance, ensure_later
from trueup.connectors.zookeeper.requests import Stat
from trueup.connectors.zookeeper.watch import NodeWatch, PathEvent
from trueup.state.bookkeeper.ledgers import Ledgers
from trueup.state.bookkeeper.marks import MarkRows
from trueup.state.bookkeeper.observations import LedgerRecord, Observation, Sighting

log = logging.getLogger(__name__)
CHECK_S = 5.0
"""Interval at which registrations are read without an event, to detect a watch that misses changes."""


@dataclass(frozen=True, slots=True)
class CaptureHealth:
    """The state of the capture. Times are in ms since the epoch, durations in s."""

    connected: bool
    session: int
    synced: bool
    """Whether everything was read, except the paths that ``behind`` counts."""
    behind: int
    """The number of paths whose events wait to be read."""
    complete_ms: int
    """The time up to which all changes are published; 0 before the first complete read."""
    last_event_ms: int
    last_zxid: int
    """The zxid up to which all writes were observed; -1 before the first complete read."""
    ledgers: int
    unreadable: int
    forbidden: int
    hidden: int
    """The number of forbidden ledgers that ``ledgers`` does not count."""
    snapshots: int
    resyncs: int
    last_resync_s: float
    problem: str
    """The error that prevents progress, empty if there is none."""
    rack_problem: str
    invalid_paths: tuple[str, ...] = ()
    """At most 100 paths of znodes with invalid ledger ids."""
    instance: str = ""
    """The INSTANCEID of the cluster, empty if it was not observed yet."""
    hidden_nodes: int = 0
    """The number of marks, locks and registrations that may not be read."""
    hidden_node: str = ""
    """The path of one znode that ``hidden_nodes`` counts; empty if there is none."""

    def age_ms(self, now_ms: int) -> int | None:
        """Age of the observation; None before the first."""
        return max(0, now_ms - self.complete_ms) if self.complete_ms else None


class BookKeeperCapture(Follower):
    """Observes one cluster until it is closed. The next start finds changes that were observed but not published.

    ``publish`` and ``bookies`` may block and may raise: they are called again with the same arguments until they
    succeed, and nothing else is published before. ``bookies`` receives the complete
    list. ``now`` returns the time in ms since the epoch.
    """

    def __init__(
        self,
        connect: Callable[[], ZooKeeperClient],
        root: str,
        racks: RackMap,
        publish: Callable[[Iterable[Observation]], None],
        bookies: Callable[[list[Sighting]], None],
        content: JournalContent,
        now: Callable[[], int],
        pace: Pace = FAST,
    ) -> None:
        self._racks = racks
        self._paths = BookKeeperPaths(root)
        # Every mark has a parent level of its own, whose events carry no information.
        watch = NodeWatch(self._paths.noise(), now, self._paths.repairs(), MARK_NAME)
        super().__init__("capture", connect, watch, now)
        self._ledgers = LedgerFeed(lambda news: self._until_done(lambda: publish(news)), content, now, pace)
        self._marks = MarkFeed(now, pace)
        self._bookies = BookieFeed(lambda seen: self._until_done(lambda: bookies(seen)), racks)
        self._reload = threading.Event()
        self._checked_s = 0.0
        self._snapshots = self._resyncs = 0
        self._resync_s = 0.0
        self._reached, self._instance = content.zxid, content.instance

    def racks_changed(self) -> None:
        """Resolve all racks again."""
        self._reload.set()
        self._watch.wake.set()

    def health(self) -> CaptureHealth:
        """The current state. Callable from any thread."""
        client, watch = self._client, self._watch
        hidden = [*self._bookies.hidden.values(), *self._marks.forbidden.values()]
        return CaptureHealth(
            connected=client is not None and bool(client.connected),
            session=0 if client is None else client.session,
            synced=watch.armed,
            behind=len(watch),
            complete_ms=self.complete_ms,
            last_event_ms=watch.last_event_ms,
            last_zxid=watch.zxid,
            ledgers=len(self._ledgers),
            unreadable=len(self._ledgers.unreadable),
            forbidden=len(self._ledgers.forbidden),
            hidden=self._ledgers.hidden,
            snapshots=self._snapshots,
            resyncs=self._resyncs,
            last_resync_s=self._resync_s,
            problem=self.problem,
            rack_problem=self._bookies.problem,
            invalid_paths=tuple(self._ledgers.invalid_paths),
            instance=self._instance,
            hidden_nodes=len(hidden),
            hidden_node=hidden[0] if hidden else "",
        )

    @property
    def paths(self) -> BookKeeperPaths:
        """The paths of this cluster. The layout is known only after the first session."""
        return self._paths

    @property
    def marks(self) -> MarkRows | None:
        """All marks and locks as observed; None until they were read."""
        return self._marks.rows

    def read(self, ledgers: Sequence[int]) -> Ledgers:
        """The current state of these ledgers, by id, without deleted ones. Raises `Retry`, `Forbidden`."""
        current = queries.columns(self._open_client(), self._paths, ledgers, self._now())
        if current.forbidden:
            raise unread("ledgers", [self._paths.ledger(ledger) for ledger in current.forbidden])
        return current.rows

    def readable(self, ledgers: Sequence[int]) -> Ledgers:
        """The current state of these ledgers, by id, without deleted ones and those that may not be read. The latter
        are soon in `outdated`. Raises `Retry`."""
        current = queries.columns(self._open_client(), self._paths, ledgers, self._now())
        if current.forbidden:
            # ZooKeeper sends no event when a permission is revoked.
            self._ledgers.doubt(current.forbidden)
            self._watch.wake.set()
        return current.rows

    @property
    def outdated(self) -> Array:
        """The ids of ledgers that were read earlier and may not be read now: int64, ascending."""
        return self._ledgers.outdated

    def read_one(self, ledger: int) -> tuple[LedgerRecord, Stat] | None:
        """The current state of one ledger with its stat; None if it does not exist. Raises `Retry`."""
        return queries.one(self._open_client(), self._paths, ledger, self._now())

    def _sync(self, client: ZooKeeperClient) -> None:
        """Add the watch, then read whatever may have changed before it was added."""
        started, covered = time.monotonic(), self._watch.covered
        # The server of a new session may lag behind the previous one; a listing there would show an older state.
        client.settle(self._paths.root)
        self._paths = queries.paths_of(client, self._paths.root)
        ensure_instance(self._instance, instance := queries.instance(client, self._paths.root))
        watched = client.add_watch(self._paths.root)
        if self._racks.znode:
            client.add_watch(self._racks.znode)
        self._reached = max(self._reached, covered or 0)
        ensure_later(watched, self._reached)
        self._ledgers.ensure_history(client, self._paths)
        if covered is None or self._ledgers.forbidden:
            self._ledgers.read_all(client, self._paths)
            self._snapshots += 1
        else:
            self._compare(client, covered, watched)
            self._resyncs += 1
        self._marks.read_all(client, self._paths)
        self._bookies.load_racks(client)
        self._read_bookies(client)
        self._instance = instance
        self._resync_s = time.monotonic() - started

    def _compare(self, client: ZooKeeperClient, covered: int, watched: int) -> None:
        """Find the changes since zxid ``covered``, with a session that is closed to drop its watches."""
        other = self._connect().open(after_zxid=watched, given_up=self._stop.is_set)
        try:
            self._ledgers.compare(client, self._paths, other, covered)
        finally:
            other.shut()

    def _handle(self, client: ZooKeeperClient) -> None:
        """Handle all events received so far."""
        taken = self._watch.take()
        try:
            self._handle_these(client, taken)
        except BaseException:
            self._watch.put_back(taken)
            raise

    def _handle_invalid(self, path: str, event: PathEvent) -> None:
        if event.kind == NodeEvent.DELETED:
            self._ledgers.invalid_paths.pop(path, None)
        else:
            self._ledgers.add_invalid([path])

    def _handle_these(self, client: ZooKeeperClient, taken: dict[str, PathEvent]) -> None:
        ledgers: dict[int, PathEvent] = {}
        marked: set[int] = set()
        bookies = racks = False
        for path, event in taken.items():
            if path == self._racks.znode:
                racks = True
                continue
            kind, ledger = self._paths.classify(path)
            if kind is ZnodeKind.LEDGER:
                ledgers[ledger] = event
            elif kind is ZnodeKind.MARK:
                marked.add(ledger)
            elif kind is ZnodeKind.INVALID_ID:
                self._handle_invalid(path, event)
            bookies |= kind is ZnodeKind.BOOKIE
        self._ledgers.follow(client, self._paths, ledgers)
        self._marks.follow(client, self._paths, marked)
        if racks:
            self._bookies.load_racks(client)
        if self._reload.is_set():
            self._reload.clear()
            bookies = True
        if bookies or racks:
            self._read_bookies(client)
        elif time.monotonic() - self._checked_s > CHECK_S:
            self._check_watch(client)

    def _read_bookies(self, client: ZooKeeperClient) -> bool:
        self._checked_s = time.monotonic()
        return self._bookies.read_all(client, self._paths)

    def _check_watch(self, client: ZooKeeperClient) -> None:
        """Read the registrations. Raises `Missed` if one changed without an event: a server sends the event before it
        responds with the change. No event reports a granted permission to read the rack map."""
        if self._bookies.problem:
            self._bookies.load_racks(client)
        if self._read_bookies(client) and not self._watch.has(self._is_bookie):
            change = "a bookie that registered or went away without one"
            raise Missed("an event for every change in ZooKeeper", change, "everything is read again")

    def _is_bookie(self, path: str) -> bool:
        return self._paths.classify(path)[0] is ZnodeKind.BOOKIE
