"""Feeds of ledgers, marks and bookies: the known state, and the publication of changes.

Every feed reads whole values and publishes those that differ from the last published ones. A feed stores a value
only after its delivery, so that it is published again after a failure.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import repeat

import numpy as np

from trueup.connectors.bookkeeper.metadata import bulk, mark_codec, metadata, queries
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.bookkeeper.metadata.protobuf_columns import Array
from trueup.connectors.bookkeeper.metadata.published import JournalContent, PublishedVersions, distinct
from trueup.connectors.bookkeeper.metadata.racks import RackMap, racks_of
from trueup.connectors.zookeeper.client import NodeEvent, Pace, ZooKeeperClient
from trueup.connectors.zookeeper.errors import FORBIDDEN, GONE, Forbidden
from trueup.connectors.zookeeper.history import ensure_deleted, rewound
from trueup.connectors.zookeeper.requests import Znodes
from trueup.connectors.zookeeper.watch import PathEvent
from trueup.state.bookkeeper.marks import HIDDEN, MARK, NO_MARKS, MarkRows, with_marks
from trueup.state.bookkeeper.observations import LedgerRecord, LedgerState, Observation, Sighting
from trueup.state.common.errors import BadBytes

log = logging.getLogger(__name__)
Part = tuple[Array, list[Znodes]]
Deliver = Callable[[Iterable[Observation]], None]
_FORBIDDEN_AGAIN_MS = 60_000
_COMPARED_TOGETHER = 1_500
_MOST_INVALID = 100
_LOOKED_AT = 1_000
_VERSIONS = {GONE: -1, FORBIDDEN: HIDDEN}


class LedgerFeed:
    """Ledger metadata. ``unreadable``: the ids of ledgers that could not be decoded; ``forbidden``: the ids of ledgers
    that may not be read; ``hidden``: the number of forbidden ledgers that were never read; ``outdated``: the ids of the
    other forbidden ones, an array that is replaced by each change; ``invalid_paths``: the first paths of znodes that
    are named like ledgers or marks but have an invalid id."""

    def __init__(self, deliver: Deliver, content: JournalContent, now: Callable[[], int], pace: Pace) -> None:
        self._deliver, self._now, self._pace = deliver, now, pace
        self._held = PublishedVersions(content.ledgers, content.mzxids)
        self._ended = PublishedVersions(content.gone, content.gone_zxids)
        self.unreadable, self.forbidden = set(content.unreadable), set[int]()
        self.invalid_paths: dict[str, None] = {}
        self.hidden, self.outdated = 0, np.zeros(0, np.int64)
        self._doubted: frozenset[int] = frozenset()
        self._asked_again_ms = 0

    def __len__(self) -> int:
        return len(self._held)

    def ensure_history(self, client: ZooKeeperClient, paths: BookKeeperPaths) -> None:
        """Raise `Rewound` if a ledger is older than observed. Reads the most recently written ones, which a restored
        copy lacks first, before anything is published; all others are checked when they are read."""
        ids, mzxids = self._held.columns()
        last = np.argpartition(mzxids, -_LOOKED_AT)[-_LOOKED_AT:] if len(ids) > _LOOKED_AT else slice(None)
        missing: dict[str, int] = {}
        for some, znodes in queries.read(client, paths, np.sort(ids[last]), None, self._pace):
            mzxid = bulk.mzxids(znodes)
            self._ensure_newer(paths, some, mzxid)
            sizes = np.concatenate([part.size for part in znodes])
            gone = some[sizes == GONE]
            missing |= dict(zip(map(paths.ledger, gone.tolist()), self._held.versions(gone).tolist(), strict=True))
        ensure_deleted(client, missing)

    def _ensure_newer(self, paths: BookKeeperPaths, ids: Array, mzxids: Array) -> None:
        observed = np.maximum(self._held.versions(ids), self._ended.versions(ids))
        for at in np.flatnonzero((mzxids >= 0) & (mzxids < observed)).tolist():
            raise rewound(paths.ledger(int(ids[at])), int(observed[at]), int(mzxids[at]))

    def read_all(self, client: ZooKeeperClient, paths: BookKeeperPaths) -> None:
        """Read every ledger; publish new versions and deletions."""
        self.forbidden.clear()
        self.invalid_paths.clear()
        seen = [np.zeros(0, np.int64)]

        def parts() -> Iterator[Part]:
            for listing in queries.ledgers_of(client, paths):
                self.add_invalid(listing.invalid_paths)
                seen.append(listing.ids)
                yield from queries.read(client, paths, listing.ids, listing.names, self._pace)

        self._take(paths, queries.ahead(parts()))
        held = self._held.columns()[0]
        self._read(client, paths, np.setdiff1d(held, distinct(np.concatenate(seen)), assume_unique=True))

    def compare(self, client: ZooKeeperClient, paths: BookKeeperPaths, other: ZooKeeperClient, since: int) -> None:
        """Publish what was created, deleted or written after zxid ``since``.

        ``other``: an open session on a server that is not behind that of ``client``; closed afterwards.
        """
        held, lists = self._held.columns()[0], list[Array]()
        self.invalid_paths.clear()
        for listing in queries.ledgers_of(client, paths):
            self.add_invalid(listing.invalid_paths)
            lists.append(listing.ids)
        present = distinct(np.concatenate([np.zeros(0, np.int64), *lists]))
        written = self._written(other, paths, np.intersect1d(held, present, assume_unique=True), since)
        self._read(client, paths, np.union1d(np.setxor1d(held, present, assume_unique=True), written))

    def add_invalid(self, paths: Iterable[str]) -> None:
        """Record znodes with names that no ledger can have."""
        for path in paths:
            if len(self.invalid_paths) < _MOST_INVALID:
                self.invalid_paths[path] = None

    def _written(self, other: ZooKeeperClient, paths: BookKeeperPaths, ledgers: Array, since: int) -> Array:
        """Those of these ledgers that the server reports as written or deleted."""
        reported: list[int] = []
        other.sink = lambda events: reported.extend(paths.classify(path)[1] for _, _, path in events)
        root = paths.root.encode() + b"/"
        pace = Pace(_COMPARED_TOGETHER, self._pace.window, self._pace.pause_s)
        other.set_watches(since, [root + name for name in paths.relatives(ledgers)], pace=pace)
        return np.unique(np.array(reported, np.int64))

    def doubt(self, ledgers: Iterable[int]) -> None:
        """Read these ledgers again: another read was not permitted. Callable from any thread. If a simultaneous call
        drops some of them, the next read that is not permitted adds them again."""
        self._doubted |= frozenset(ledgers)

    def follow(self, client: ZooKeeperClient, paths: BookKeeperPaths, events: dict[int, PathEvent]) -> None:
        """Publish the changes that these events name, and read the doubted ledgers. An event with the zxid of a
        deletion needs no read."""
        deleted = {i: event.zxid for i, event in events.items() if event.kind == NodeEvent.DELETED and event.zxid > 0}
        self._publish([self._gone(i, zxid) for i, zxid in deleted.items() if 0 <= self._held.get(i) < zxid])
        ids = {i for i, event in events.items() if i not in deleted and self._is_news(i, event)}
        doubted, self._doubted = self._doubted, frozenset()
        ids |= doubted
        if self.forbidden and self._now() - self._asked_again_ms > _FORBIDDEN_AGAIN_MS:
            # No event reports a granted permission.
            self._asked_again_ms = self._now()
            ids |= self.forbidden
        self._read(client, paths, np.array(sorted(ids), np.int64))

    def _is_news(self, ledger: int, event: PathEvent) -> bool:
        return event.zxid <= 0 or event.zxid > self._held.get(ledger)

    def _read(self, client: ZooKeeperClient, paths: BookKeeperPaths, ledgers: Array) -> None:
        parts = queries.read(client, paths, ledgers, None, self._pace)
        self._take(paths, parts if len(ledgers) <= queries.TOGETHER else queries.ahead(parts))

    def _take(self, paths: BookKeeperPaths, parts: Iterator[Part]) -> None:
        """Publish those of the ledgers read that differ from the stored state."""
        for ids, znodes in parts:
            mzxid = bulk.mzxids(znodes)
            self._ensure_newer(paths, ids, mzxid)
            news = (mzxid != self._held.versions(ids)) | (mzxid < 0)
            result = queries.records(ids, znodes, paths, self._now(), news)
            # A missing znode counts as deleted at the zxid of the read, whatever its events contain.
            gone = [self._gone(ledger, zxid) for ledger, zxid in result.gone if self._held.get(ledger) >= 0]
            if result.batch is not None:
                self._publish_batch(result.batch)
            self._publish([*result.records, *gone])
            self.forbidden.difference_update(ids.tolist())
            self.forbidden.update(result.forbidden)
        unread = np.array(sorted(self.forbidden), np.int64)
        stored = self._held.versions(unread) >= 0
        self.hidden, self.outdated = int(np.count_nonzero(~stored)), unread[stored]

    def _gone(self, ledger: int, zxid: int) -> LedgerRecord:
        return metadata.gone(ledger, zxid, self._now())

    def _publish_batch(self, batch: bulk.LedgerBatch) -> None:
        if len(batch):
            self._deliver(batch)
            self._held.update(batch.ledgers.ledger, batch.ledgers.mzxid)
            self.unreadable.difference_update(batch.ledgers.ledger.tolist())
            self.unreadable.update(batch.unreadable)

    def _publish(self, records: list[LedgerRecord]) -> None:
        if not records:
            return
        ids = [record["ledger"] for record in records]
        self._deliver(list(map(Observation, repeat("ledgers"), bulk.keys(np.array(ids, np.int64)), records)))
        versions = [-1 if record["state"] == LedgerState.GONE else record["mzxid"] for record in records]
        self._held.update(np.array(ids, np.int64), np.array(versions, np.int64))
        self.unreadable.difference_update(ids)
        self.unreadable.update(r["ledger"] for r in records if r["state"] == LedgerState.UNREADABLE)


class MarkFeed:
    """Under-replication marks and the workers' locks. ``rows``: all marks and locks that exist, None until they were
    read; each change replaces the array. ``forbidden``: the path of a mark or lock that may not be read, by ledger. It
    counts as a mark or lock that exists."""

    def __init__(self, now: Callable[[], int], pace: Pace) -> None:
        self._now = now
        self._pace = Pace(max(2, pace.batch // 2 * 2), pace.window, pace.pause_s)  # a mark and its lock
        self.rows: MarkRows | None = None
        self.forbidden: dict[int, str] = {}
        self._asked_again_ms = 0

    def read_all(self, client: ZooKeeperClient, paths: BookKeeperPaths) -> None:
        """Read every mark and lock that exists."""
        self.rows = with_marks(
            NO_MARKS, self._read(client, paths, queries.marked(client, paths) | self.forbidden.keys())
        )

    def follow(self, client: ZooKeeperClient, paths: BookKeeperPaths, ledgers: Iterable[int]) -> None:
        """Read marks and locks of these ledgers."""
        if self.rows is not None and (ids := {*ledgers, *self._again()}):
            self.rows = with_marks(self.rows, self._read(client, paths, ids))

    def _again(self) -> Iterable[int]:
        """At intervals, the forbidden ledgers: no event reports a granted permission."""
        if not self.forbidden or self._now() - self._asked_again_ms <= _FORBIDDEN_AGAIN_MS:
            return ()
        self._asked_again_ms = self._now()
        return self.forbidden

    def _read(self, client: ZooKeeperClient, paths: BookKeeperPaths, ledgers: Iterable[int]) -> MarkRows:
        """A row for each of these ledgers."""
        ids, arrays = sorted(ledgers), [NO_MARKS]
        for at in range(0, len(ids), queries.TOGETHER):
            some = ids[at : at + queries.TOGETHER]
            parts = client.multi_read(paths.root, paths.marks_and_locks(some), self._pace)
            rows = (row for part in parts for row in part.rows())
            arrays.append(np.array([*map(partial(self._row, paths), some, rows, rows)], MARK))
        return np.concatenate(arrays)

    def _row(
        self, paths: BookKeeperPaths, ledger: int, mark: tuple[bytes, int], lock: tuple[bytes, int]
    ) -> tuple[int, int, int, bool]:
        (data, version), (_, lock_version) = mark, lock
        self._note(paths, ledger, version, lock_version)
        ctime_ms = mark_codec.decode(data).ctime_ms if version >= 0 else -1
        return ledger, ctime_ms, _VERSIONS.get(version, version), lock_version != GONE

    def _note(self, paths: BookKeeperPaths, ledger: int, mark: int, lock: int) -> None:
        if FORBIDDEN in (mark, lock):
            self.forbidden[ledger] = paths.mark(ledger) if mark == FORBIDDEN else paths.lock(ledger)
        else:
            self.forbidden.pop(ledger, None)


class BookieFeed:
    """Registrations, cookies and racks of all bookies. ``problem``: the problem of the rack map. ``hidden``: paths of
    registrations that may not be read, by bookie."""

    def __init__(self, deliver: Callable[[list[Sighting]], None], racks: RackMap) -> None:
        self._deliver, self._racks = deliver, racks
        self._hosts: dict[str, str] = {}
        self._held: list[Sighting] | None = None
        self.problem = ""
        self.hidden: dict[str, str] = {}

    def load_racks(self, client: ZooKeeperClient) -> None:
        """Read the map's znode, if it has one. The known racks remain in force until it can be read."""
        if not self._racks.znode:
            return
        try:
            znode = client.look(self._racks.znode)
            self._racks.load(None if znode is None else znode[0])
        except (BadBytes, Forbidden) as error:
            if str(error) != self.problem:
                log.warning("rack map not read", extra={"problem": str(error)})
            self.problem = str(error)
        else:
            self.problem = ""

    def read_all(self, client: ZooKeeperClient, paths: BookKeeperPaths) -> bool:
        """Read all bookies; deliver all of them if any changed. Returns whether a registration did."""
        bookies = queries.registered(client, paths)
        self._hosts |= bookies.hosts
        ids = sorted({*bookies.writable, *bookies.readonly, *bookies.cookies})
        racks = racks_of(self._racks, ids, self._hosts, bookies.hidden)
        unsure, self.hidden = {*self.hidden, *bookies.hidden}, bookies.hidden
        sightings = [
            _sighting(bookies, bookie, racks[bookie])._replace(groups=self._racks.groups(bookie)) for bookie in ids
        ]
        if sightings == self._held:
            return False
        self._deliver(sightings)
        before, self._held = self._held or [], sightings
        return _registrations(before, unsure) != _registrations(sightings, unsure)


def _registrations(sightings: Iterable[Sighting], unsure: Collection[str]) -> list[tuple[str, str, int]]:
    """Registrations whose changes cause events, which those that may not be read do not."""
    seen = (sighting for sighting in sightings if sighting.registered and sighting.bookie not in unsure)
    return [(sighting.bookie, sighting.registered, sighting.registered_zxid) for sighting in seen]


def _sighting(bookies: queries.Registered, bookie: str, rack: str | None) -> Sighting:
    cookie = bookie in bookies.cookies
    if bookie in bookies.writable:
        return Sighting(bookie, rack, "writable", cookie, bookies.writable[bookie])
    if bookie in bookies.readonly:
        return Sighting(bookie, rack, "readonly", cookie, bookies.readonly[bookie])
    return Sighting(bookie, rack, "", cookie, 0)
