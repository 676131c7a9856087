"""Watches one BookKeeper cluster and says everything that changes, once and completely.

One session holds a recursive watch on the root. A thread turns its events into reads and the reads into
`Observation`s. A watch is lost with its connection, so after every reconnect the thread adds it again and then finds
out what happened in between: a session of its own lets the server compare all known znodes with the last zxid that
was delivered, new and vanished ones show in the listing. Only the first time, and when some znodes may not be read,
everything is read. What is published is always a whole value with its version; publishing again does no harm.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from connectors.bookkeeper import bulk, marks, metadata, reading
from connectors.bookkeeper.bulk import Array
from connectors.bookkeeper.known import Held, Known
from connectors.bookkeeper.layout import Kind, Paths
from connectors.bookkeeper.racks import Racks
from connectors.zookeeper.client import FAST, Client, Event, Pace
from connectors.zookeeper.requests import Stat, Znodes
from connectors.zookeeper.watching import Heard, Watch
from state.errors import BadBytes, Retry, Stop, TrueupError
from state.ledgers import Ledgers
from state.observations import LedgerRecord, LedgerState, MarkRecord, Observation, Sighting

log = logging.getLogger(__name__)
FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 5.0
_IDLE_S = 1.0
_FORBIDDEN_AGAIN_S = 60.0
_NO_MARK = marks.Mark()


@dataclass(frozen=True, slots=True)
class Health:
    """How the capture fares. Times in ms since the epoch, durations in s.

    ``synced``: nothing is missing but ``behind`` paths whose events wait to be read. ``complete_ms``: all that had
    happened by then is published. ``last_zxid``: every write up to it was heard of. ``problem``: what keeps it from
    going on, empty if nothing.
    """

    running: bool
    connected: bool
    session: int
    synced: bool
    behind: int
    complete_ms: int
    last_event_ms: int
    last_zxid: int
    ledgers: int
    unreadable: int
    forbidden: int
    snapshots: int
    resyncs: int
    last_resync_s: float
    problem: str
    rack_problem: str


class _Stopping(Exception):  # noqa: N818 - it is no error
    """The capture was told to stop while it waited."""


class Capture:
    """Observes one cluster until it is closed, through any loss of connection, session or servers.

    ``connect`` makes a client that is not open yet. ``publish`` and ``bookies`` may block, and may raise: they are
    called again with the same until they succeed, and nothing else is published before. ``bookies`` gets the complete
    list. ``now`` is the time in ms since the epoch.
    """

    def __init__(
        self,
        connect: Callable[[], Client],
        root: str,
        racks: Racks,
        publish: Callable[[list[Observation]], None],
        bookies: Callable[[list[Sighting]], None],
        known: Known,
        now: Callable[[], int],
        pace: Pace = FAST,
    ) -> None:
        self._connect, self._racks, self._now, self._pace = connect, racks, now, pace
        self._publish, self._tell_bookies = publish, bookies
        self._paths = Paths(root)
        self._watch = Watch(self._paths.noise(), now)
        self._held = Held(known.ledgers, known.mzxids)
        self._marks: dict[int, MarkRecord | None] = dict.fromkeys(known.marks)
        self._unreadable, self._forbidden = set(known.unreadable), set[int]()
        self._hosts: dict[str, str] = {}
        self._sightings: list[Sighting] | None = None
        self._client: Client | None = None
        self._stop, self._reload = threading.Event(), threading.Event()
        self._problem = self._rack_problem = ""
        self._snapshots = self._resyncs = 0
        self._resync_s = 0.0
        self._complete_ms = 0
        self._asked_again_s = 0.0
        self._thread = threading.Thread(target=self._run, name="capture", daemon=True)

    def start(self) -> None:
        """Begin. Returns at once; `health` says how it goes."""
        self._thread.start()

    def close(self) -> None:
        """Stop observing. What was heard and not published is found again by the next start."""
        self._stop.set()
        self._watch.turned.set()
        self._watch.wake.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._client is not None:
            self._client.shut()

    def reload_racks(self) -> None:
        """Have the rack map asked again."""
        self._reload.set()
        self._watch.wake.set()

    def health(self) -> Health:
        """The state of things, from any thread."""
        client, watch = self._client, self._watch
        return Health(
            running=self._thread.is_alive(),
            connected=client is not None and bool(client.connected),
            session=0 if client is None else client.session,
            synced=watch.armed,
            behind=len(watch),
            complete_ms=self._complete_ms,
            last_event_ms=watch.last_event_ms,
            last_zxid=watch.zxid,
            ledgers=len(self._held),
            unreadable=len(self._unreadable),
            forbidden=len(self._forbidden),
            snapshots=self._snapshots,
            resyncs=self._resyncs,
            last_resync_s=self._resync_s,
            problem=self._problem,
            rack_problem=self._rack_problem,
        )

    @property
    def paths(self) -> Paths:
        """Where this cluster keeps things; the layout is only right once it was synced."""
        return self._paths

    def read(self, ledgers: Sequence[int]) -> Ledgers:
        """These ledgers as they are now, by id; those that are gone are left out. Raises `Retry`, `Forbidden`."""
        return reading.columns(self._open_client(), self._paths, ledgers, self._now())

    def read_one(self, ledger: int) -> tuple[LedgerRecord, Stat] | None:
        """One ledger as it is now with its stat, None if there is no such ledger. Raises `Retry`."""
        return reading.one(self._open_client(), self._paths, ledger, self._now())

    def _open_client(self) -> Client:
        if self._client is None or not self._client.connected:
            raise Retry("a session with ZooKeeper", "none", "it reconnects by itself")
        return self._client

    def _run(self) -> None:
        wait_s = FIRST_WAIT_S
        while not self._stop.is_set():
            try:
                self._turn()
                wait_s, self._problem = FIRST_WAIT_S, ""
            except _Stopping:
                return
            except TrueupError as error:
                self._note(error)
                self._watch.turned.wait(wait_s)
                self._watch.turned.clear()
                wait_s = min(wait_s * 2, LONGEST_WAIT_S)

    def _note(self, error: TrueupError) -> None:
        if str(error) != self._problem:
            log.warning("capture waits", extra={"problem": str(error)})
        self._problem = str(error)

    def _turn(self) -> None:
        """Get in step if need be, then wait for events and handle them."""
        client = self._session()
        if not self._watch.armed:
            self._sync(client)
        self._watch.wake.wait(_IDLE_S)
        self._watch.wake.clear()
        if self._watch.armed:
            begun_ms = self._now()
            self._handle(client)
            self._complete_ms = begun_ms

    def _session(self) -> Client:
        """The client, connected."""
        if self._client is not None and self._client.ended:
            self._client.shut()
            self._client = None
        if self._client is None:
            client = self._connect()
            self._watch.follow(client)
            self._client = client.open()
        return self._open_client()

    def _sync(self, client: Client) -> None:
        """Add the watch, then read whatever may have changed before it was there."""
        started, losses = time.monotonic(), self._watch.losses()
        covered = self._watch.covered
        # A new session may be on a server that lags behind the last one; listing there would undo history.
        client.settle(self._paths.root)
        self._paths = reading.paths_of(client, self._paths.root)
        watched = client.add_watch(self._paths.root)
        if self._racks.znode:
            client.add_watch(self._racks.znode)
        if covered is not None and watched < covered:
            raise Stop(
                f"ZooKeeper at zxid {covered:#x} or later", f"{watched:#x}", "if it was restored, start a new journal"
            )
        if covered is None or self._forbidden:
            self._read_all(client)
            self._snapshots += 1
        else:
            self._compare(client, covered, watched)
            self._resyncs += 1
        self._refresh_marks(client, reading.marked(client, self._paths) | set(self._marks))
        self._load_racks(client)
        self._refresh_bookies(client)
        self._resync_s = time.monotonic() - started
        if not self._watch.arm(losses):
            raise Retry("the connection to hold until all was read", "it was lost", "will compare again")

    def _read_all(self, client: Client) -> None:
        """Read every ledger; publish those that are not held in that version, and deletions."""
        self._forbidden.clear()
        seen, zxid = [np.zeros(0, np.int64)], 0
        for listing in reading.ledgers_of(client, self._paths):
            seen.append(listing.ids)
            zxid = max(zxid, listing.zxid)
            self._read(client, listing.ids, listing.names)
        self._publish_gone(np.setdiff1d(self._held.columns()[0], np.concatenate(seen)), zxid)

    def _compare(self, client: Client, covered: int, watched: int) -> None:
        """Publish what was created, deleted or changed after zxid ``covered``."""
        lists = list(reading.ledgers_of(client, self._paths))
        present = np.concatenate([np.zeros(0, np.int64), *(listing.ids for listing in lists)])
        held = self._held.columns()[0]
        self._publish_gone(np.setdiff1d(held, present), max((listing.zxid for listing in lists), default=watched))
        changed = self._changed(np.intersect1d(held, present), covered, watched)
        self._read(client, np.union1d(np.setdiff1d(present, held), changed))

    def _changed(self, ledgers: Array, covered: int, watched: int) -> Array:
        """Those of these ledgers that were written after ``covered``, as the server says."""
        found: list[int] = []
        root = self._paths.root.encode() + b"/"
        other = self._connect()
        other.sink = lambda _zxid, _kind, path: found.append(self._paths.classify(path)[1])
        other.open(after_zxid=watched)
        try:
            other.set_watches(covered, [root + name for name in self._paths.relatives(ledgers)])
        finally:
            other.shut()
        return np.unique(np.array(found, np.int64))

    def _read(self, client: Client, ledgers: Array, names: list[bytes] | None = None) -> None:
        """Read ledgers and publish those that are newer than what is held."""
        for ids, found in reading.read(client, self._paths, ledgers, names, self._pace):
            self._publish_read(ids, found)

    def _publish_read(self, ids: Array, found: list[Znodes], gone: Iterable[int] = ()) -> None:
        """``gone``: ids of which an event said that they were deleted, without saying when."""
        mzxid = bulk.mzxids(found)
        newer = (mzxid != self._held.versions(ids)) | (mzxid < 0)
        told = reading.records(ids, found, self._paths, self._now(), newer)
        self._forbidden.difference_update(ids.tolist())
        self._forbidden.update(told.forbidden)
        zxid = max((part.zxid for part in found), default=0)
        deleted = [metadata.gone(ledger, zxid, self._now()) for ledger in set(gone).intersection(told.gone)]
        self._publish_ledgers([*told.records, *deleted])

    def _publish_gone(self, ledgers: Array, zxid: int) -> None:
        for at in range(0, len(ledgers), reading.TOGETHER):
            some = ledgers[at : at + reading.TOGETHER].tolist()
            self._publish_ledgers([metadata.gone(ledger, zxid, self._now()) for ledger in some])

    def _publish_ledgers(self, records: list[LedgerRecord]) -> None:
        if not records:
            return
        self._deliver([Observation("ledgers", _key(record["ledger"]), record) for record in records])
        ids = np.array([record["ledger"] for record in records], np.int64)
        versions = [-1 if record["state"] == LedgerState.GONE else record["mzxid"] for record in records]
        self._held.update(ids, np.array(versions, np.int64))
        self._unreadable.difference_update(ids.tolist())
        self._unreadable.update(r["ledger"] for r in records if r["state"] == LedgerState.UNREADABLE)

    def _deliver(self, observations: list[Observation]) -> None:
        self._until_done(lambda: self._publish(observations))

    def _until_done(self, act: Callable[[], None]) -> None:
        """Call this again and again until it does not fail."""
        wait_s = FIRST_WAIT_S
        while True:
            try:
                return act()
            except TrueupError as error:
                self._note(error)
                if self._stop.wait(wait_s):
                    raise _Stopping from error
                wait_s = min(wait_s * 2, LONGEST_WAIT_S)

    def _handle(self, client: Client) -> None:
        """Handle all events that came."""
        taken = self._watch.take()
        try:
            self._handle_these(client, taken)
        except TrueupError:
            self._watch.put_back(taken)
            raise

    def _handle_these(self, client: Client, taken: dict[str, Heard]) -> None:
        ledgers: dict[int, Heard] = {}
        marked: set[int] = set()
        bookies = self._reload.is_set()
        racks = False
        for path, heard in taken.items():
            if path == self._racks.znode:
                racks = True
                continue
            kind, ledger = self._paths.classify(path)
            if kind is Kind.LEDGER:
                ledgers[ledger] = heard
            elif kind is Kind.MARK:
                marked.add(ledger)
            bookies |= kind is Kind.BOOKIE
        self._handle_ledgers(client, ledgers)
        self._refresh_marks(client, marked)
        if racks:
            self._load_racks(client)
        if bookies or racks:
            self._refresh_bookies(client)

    def _handle_ledgers(self, client: Client, ledgers: dict[int, Heard]) -> None:
        if self._forbidden and time.monotonic() - self._asked_again_s > _FORBIDDEN_AGAIN_S:
            # No event tells that permission was given.
            self._asked_again_s = time.monotonic()
            ledgers = {**{ledger: Heard(Event.DATA, -1) for ledger in self._forbidden}, **ledgers}
        deleted = {i: heard.zxid for i, heard in ledgers.items() if heard.kind == Event.DELETED and heard.zxid > 0}
        self._publish_ledgers(
            [metadata.gone(i, zxid, self._now()) for i, zxid in deleted.items() if 0 <= self._held.get(i) < zxid]
        )
        unsure = [i for i, heard in ledgers.items() if heard.kind == Event.DELETED and heard.zxid <= 0]
        wanted = np.array(sorted(i for i in ledgers if i not in deleted and self._is_news(i, ledgers[i])), np.int64)
        for ids, found in reading.read(client, self._paths, wanted, None, self._pace):
            self._publish_read(ids, found, unsure)

    def _is_news(self, ledger: int, heard: Heard) -> bool:
        return heard.zxid <= 0 or heard.zxid > self._held.get(ledger)

    def _refresh_marks(self, client: Client, ledgers: set[int]) -> None:
        """Read marks and locks of these ledgers together; publish what is not as it was."""
        ids = sorted(ledgers)
        for at in range(0, len(ids), reading.TOGETHER):
            some = ids[at : at + reading.TOGETHER]
            news = [record for record in self._read_marks(client, some) if self._is_new_mark(record)]
            if news:
                self._deliver([Observation("marks", _key(record["ledger"]), record) for record in news])
            for record in news:
                if record["version"] < 0 and not record["locked_by"]:
                    self._marks.pop(record["ledger"], None)
                else:
                    self._marks[record["ledger"]] = record

    def _is_new_mark(self, record: MarkRecord) -> bool:
        """None is held for what the journal knew at start: only its reading tells what became of it."""
        ledger = record["ledger"]
        if ledger not in self._marks:
            return record["version"] >= 0 or bool(record["locked_by"])
        held = self._marks[ledger]
        return held is None or {**held, "zxid": 0, "seen_ms": 0} != {**record, "zxid": 0, "seen_ms": 0}

    def _read_marks(self, client: Client, ids: list[int]) -> list[MarkRecord]:
        """One record each. Its version is the zxid of the reading: a lock that goes leaves no znode to tell one."""
        below = len(self._paths.root) + 1
        names = [path(i)[below:].encode() for i in ids for path in (self._paths.mark, self._paths.lock)]
        pace = Pace(self._pace.batch // 2 * 2, self._pace.window, self._pace.pause_s)
        records: list[MarkRecord] = []
        numbers = iter(ids)
        for part in client.multi_read(self._paths.root, names, pace):
            for row in range(0, len(part), 2):
                records.append(self._mark_record(next(numbers), part, row))  # noqa: PERF401
        return records

    def _mark_record(self, ledger: int, part: Znodes, row: int) -> MarkRecord:
        """The mark is in this row, its lock in the next."""
        there = part.size[row] >= 0
        mark = marks.decode(part.data(row)) if there else _NO_MARK
        return {
            "ledger": ledger,
            "zxid": part.zxid,
            "seen_ms": self._now(),
            "version": part.stat(row).version if there else -1,
            "ctime_ms": mark.ctime_ms,
            "replicas": list(mark.replicas),
            "locked_by": (marks.holder(part.data(row + 1)) or "?") if part.size[row + 1] >= 0 else "",
        }

    def _load_racks(self, client: Client) -> None:
        """Read the map's znode, if it has one."""
        if not self._racks.znode:
            return
        found = client.look(self._racks.znode)
        try:
            self._racks.load(None if found is None else found[0])
        except BadBytes as error:
            # The racks known so far still hold.
            log.warning("rack map not readable", extra={"problem": str(error)})
            self._rack_problem = str(error)
        else:
            self._rack_problem = ""

    def _refresh_bookies(self, client: Client) -> None:
        """Read all registrations; tell them if any of it changed."""
        if self._reload.is_set():
            self._reload.clear()
            self._racks.reload()
        found = reading.registered(client, self._paths)
        self._hosts |= found.hosts
        ids = sorted({*found.writable, *found.readonly, *found.cookies})
        racks = self._racks.resolve(ids, self._hosts)
        sightings = [
            Sighting(
                bookie,
                racks[bookie],
                "writable" if bookie in found.writable else "readonly" if bookie in found.readonly else "",
                bookie in found.cookies,
                found.writable.get(bookie, found.readonly.get(bookie, 0)),
            )
            for bookie in ids
        ]
        if sightings != self._sightings:
            self._until_done(lambda: self._tell_bookies(sightings))
            self._sightings = sightings


def _key(ledger: int) -> bytes:
    return ledger.to_bytes(8, "big")
