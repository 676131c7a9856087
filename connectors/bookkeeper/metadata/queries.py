"""Traversals and bulk reads of BookKeeper's znodes."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np

from trueup.connectors.bookkeeper.metadata import bulk, mark_codec, metadata
from trueup.connectors.bookkeeper.metadata.addresses import endpoint
from trueup.connectors.bookkeeper.metadata.layout import (
    BookKeeperPaths,
    LedgerLayout,
    ZnodeKind,
    holds_ledgers,
    is_directory,
    leaves,
)
from trueup.connectors.bookkeeper.metadata.protobuf_columns import Array
from trueup.connectors.zookeeper.client import FAST, Pace, ZooKeeperClient
from trueup.connectors.zookeeper.errors import FORBIDDEN, GONE
from trueup.connectors.zookeeper.requests import Stat, Znodes
from trueup.state.bookkeeper.ledgers import Ledgers, concat
from trueup.state.bookkeeper.observations import LedgerRecord
from trueup.state.common.errors import BadBytes, Retry

T = TypeVar("T")
TOGETHER = 10_000
"""Ledgers decoded at a time: enough for numpy, and small enough for the processor's cache."""
_FEW = 64
_NAMES_TOGETHER, _LISTINGS = 200_000, 500
_MARK_LISTINGS = 250
_SOON = Pace(250, 4)  # for callers that wait; events precede each response
_MARK_LEVELS = 4


def paths_of(client: ZooKeeperClient, root: str) -> BookKeeperPaths:
    """Paths under this root in the layout that its LAYOUT znode names. Raises `Retry` if there is none."""
    where = f"{root}/LAYOUT"
    znode = client.look(where)
    if znode is None:
        raise Retry(f"BookKeeper's metadata under {root}", f"no {where}", "format it, or correct cluster.ledgers_root")
    return BookKeeperPaths(root, LedgerLayout.parse(znode[0], where))


def instance(client: ZooKeeperClient, root: str) -> str:
    """INSTANCEID of the cluster under this root; empty if there is none."""
    znode = client.look(f"{root}/INSTANCEID")
    return znode[0].decode(errors="replace").strip() if znode else ""


class DirectoryListing(NamedTuple):
    """The ledgers of one directory."""

    names: list[bytes]
    """The path of each ledger, relative to the root."""
    ids: Array
    """The id of each ledger: int64, ascending, one for each name."""
    zxid: int
    invalid_paths: list[str]
    """The full paths of znodes that are named like ledgers, with an id beyond 64 bits."""


def ledgers_of(client: ZooKeeperClient, paths: BookKeeperPaths) -> Iterator[DirectoryListing]:
    """Every directory of ledgers, in the order of their ids. A directory that is deleted meanwhile is empty."""
    level = [""]
    while level:
        below: list[str] = []
        at = together = 0
        while at < len(level):
            # A directory of the long form may hold one name, others 10,000; a response should stay at a few MB.
            some = level[at : at + max(1, together)]
            lists, zxid = client.listings([f"{paths.root}/{name}" if name else paths.root for name in some])
            for directory, names in zip(some, lists, strict=True):
                if holds_ledgers(directory):
                    yield _listing(paths, directory, names, zxid)
                    continue
                prefix = f"{directory}/" if directory else ""
                below += [prefix + name.decode() for name in names if is_directory(name, directory)]
                if not directory:
                    yield _listing(paths, "", [name for name in names if name[:1] == b"L" and name[1:].isdigit()], zxid)
            at += len(some)
            together = min(_LISTINGS, _NAMES_TOGETHER * len(some) // (1 + sum(map(len, lists))))
        level = sorted(below)


def _listing(paths: BookKeeperPaths, directory: str, names: list[bytes], zxid: int) -> DirectoryListing:
    ids, invalid_paths = leaves(directory, names), list[str]()
    prefix = f"{directory}/".encode() if directory else b""
    full = [prefix + name for name in names]
    if (ids < 0).any():
        others = [f"{paths.root}/{full[at].decode()}" for at in np.flatnonzero(ids < 0).tolist()]
        invalid_paths = [path for path in others if paths.classify(path)[0] is ZnodeKind.INVALID_ID]
        full = [name for name, ledger in zip(full, ids.tolist(), strict=True) if ledger >= 0]
        ids = ids[ids >= 0]
    order = np.argsort(ids, kind="stable")
    return DirectoryListing([full[at] for at in order.tolist()], ids[order], zxid, invalid_paths)


def marked(client: ZooKeeperClient, paths: BookKeeperPaths) -> set[int]:
    """Ids of all ledgers that may be marked or are locked: those with the levels above a mark. The last level is not
    listed, so a mark is found even if its parent may not be read."""
    level = [paths.marks]
    for _ in range(_MARK_LEVELS):
        below: list[str] = []
        for at in range(0, len(level), _MARK_LISTINGS):
            some = level[at : at + _MARK_LISTINGS]
            lists, _ = client.listings(some)
            below += [f"{path}/{name.decode()}" for path, names in zip(some, lists, strict=True) for name in names]
        level = below
    locks, _ = client.listings([paths.locks])
    locked = (paths.classify(f"{paths.locks}/{name.decode()}")[1] for name in locks[0])
    return {ledger for ledger in (*map(paths.marked_below, level), *locked) if ledger >= 0}


def read(
    client: ZooKeeperClient, paths: BookKeeperPaths, ids: Array, names: Sequence[bytes] | None = None, pace: Pace = FAST
) -> Iterator[tuple[Array, list[Znodes]]]:
    """Read ledgers, about `TOGETHER` at a time: ids and results. ``names``: the paths of the ledgers relative to the
    root; None: the paths that the layout gives."""
    parts = client.multi_read(paths.root, paths.relatives(ids) if names is None else names, pace)
    start = 0
    while znodes := list(islice(parts, max(1, TOGETHER // pace.batch))):
        end = start + sum(map(len, znodes))
        yield ids[start:end], znodes
        start = end


def ahead(parts: Iterator[T]) -> Iterator[T]:
    """The same parts, each read while the previous one is processed."""
    with ThreadPoolExecutor(1, "reading") as reader:
        pending = reader.submit(next, parts, None)
        while (part := pending.result()) is not None:
            pending = reader.submit(next, parts, None)
            yield part


class CurrentLedgers(NamedTuple):
    """The current state of ledgers."""

    rows: Ledgers
    """The ledgers that were found, by id."""
    forbidden: list[int]
    """The ids of the ledgers that may not be read."""


def columns(client: ZooKeeperClient, paths: BookKeeperPaths, ids: Sequence[int], seen_ms: int) -> CurrentLedgers:
    """The current state of these ledgers; deleted ones are in neither list."""
    ledgers = np.unique(np.array(ids, np.int64))
    parts = read(client, paths, ledgers, pace=_SOON)
    batches = [bulk.decode(some, znodes, paths.ledger, seen_ms) for some, znodes in parts]
    forbidden = [ledger for batch in batches for ledger in batch.forbidden.tolist()]
    return CurrentLedgers(concat([batch.ledgers for batch in batches]), forbidden)


def absent(client: ZooKeeperClient, paths: BookKeeperPaths, ids: Sequence[int]) -> set[int]:
    """Those of these ledgers that do not exist, read from an up-to-date server. A forbidden one exists."""
    client.settle(paths.root)
    ledgers = np.unique(np.array(ids, np.int64))
    parts = read(client, paths, ledgers, pace=_SOON)
    return {ledger for some, znodes in parts for ledger in some[_sizes(znodes) == GONE].tolist()}


def _sizes(znodes: list[Znodes]) -> Array:
    return np.concatenate([part.size for part in znodes])


def snapshot(
    client: ZooKeeperClient, paths: BookKeeperPaths, seen_ms: int, pace: Pace = FAST
) -> Iterator[bulk.LedgerBatch]:
    """All existing ledgers, decoded."""
    listings = ledgers_of(client, paths)
    parts = (part for some in listings for part in read(client, paths, some.ids, some.names, pace))
    for ids, znodes in ahead(parts):
        yield bulk.decode(ids, znodes, paths.ledger, seen_ms)


def one(client: ZooKeeperClient, paths: BookKeeperPaths, ledger: int, seen_ms: int) -> tuple[LedgerRecord, Stat] | None:
    """One ledger and its stat, None if it does not exist. An unreadable one has state UNREADABLE."""
    znode = client.look(paths.ledger(ledger))
    if znode is None:
        return None
    data, stat = znode
    where = metadata.ZnodeSource(ledger, paths.ledger(ledger), stat.mzxid, stat.version, stat.ctime, seen_ms)
    return decoded(data, where), stat


def decoded(data: bytes, where: metadata.ZnodeSource) -> LedgerRecord:
    """The record of a ledger from its znode; an unreadable one has state UNREADABLE."""
    try:
        return metadata.decode(data, where)
    except BadBytes as error:
        return metadata.unreadable(where, error)


@dataclass(frozen=True, slots=True)
class LedgerRecords:
    """The result of a read of ledgers."""

    records: list[LedgerRecord]
    """The ledgers that were found; empty if there is a batch."""
    gone: list[tuple[int, int]]
    """The ids of deleted ledgers, each with the zxid of the read."""
    forbidden: list[int]
    """The ids of ledgers that may not be read."""
    batch: bulk.LedgerBatch | None = None
    """All ledgers that were found, if they were decoded in bulk; otherwise None."""


def records(ids: Array, znodes: list[Znodes], paths: BookKeeperPaths, seen_ms: int, newer: Array) -> LedgerRecords:
    """Records of the results with ``newer`` (bool) true: decoded one by one if they are few, else in bulk."""
    if np.count_nonzero(newer) >= _FEW:
        batch = bulk.decode(ids, znodes, paths.ledger, seen_ms, newer)
        result = LedgerRecords([], [], batch.forbidden.tolist(), batch)
        zxids = np.repeat([part.zxid for part in znodes], [len(part) for part in znodes])
        gone = np.isin(ids, batch.gone)
        return replace(result, gone=list(zip(ids[gone].tolist(), zxids[gone].tolist(), strict=True)))
    result = LedgerRecords([], [], [])
    rows = ((part, row) for part in znodes for row in range(len(part)))
    for ledger, is_newer, (part, row) in zip(ids.tolist(), newer.tolist(), rows, strict=True):
        if not is_newer:
            continue
        if part.size[row] == GONE:
            result.gone.append((ledger, part.zxid))
        elif part.size[row] == FORBIDDEN:
            result.forbidden.append(ledger)
        else:
            stat = part.stat(row)
            where = metadata.ZnodeSource(ledger, paths.ledger(ledger), stat.mzxid, stat.version, stat.ctime, seen_ms)
            result.records.append(decoded(part.data(row), where))
    return result


class Registered(NamedTuple):
    """The registrations and cookies of all bookies. The keys of all dictionaries are bookie ids."""

    writable: dict[str, int]
    """The zxid of the registration of each writable bookie; 0: not known."""
    readonly: dict[str, int]
    """The zxid of the registration of each read-only bookie; 0: not known."""
    cookies: set[str]
    """The ids of the bookies that have a cookie."""
    hosts: dict[str, str]
    """The host of each bookie that published one."""
    hidden: dict[str, str]
    """The paths of registrations that may not be read."""


def registered(client: ZooKeeperClient, paths: BookKeeperPaths) -> Registered:
    """All bookies, read at one zxid, so that a bookie that turns read-only is in one of the lists."""
    lists, _ = client.listings([paths.available, paths.readonly, paths.cookies])
    bookies = Registered({}, {}, {name.decode() for name in lists[2]}, {}, {})
    writable = [name for name in lists[0] if name != b"readonly"]
    bookies.writable.update(_registrations(client, paths.available, writable, bookies))
    bookies.readonly.update(_registrations(client, paths.readonly, lists[1], bookies))
    return bookies


def _registrations(client: ZooKeeperClient, parent: str, names: list[bytes], seen: Registered) -> dict[str, int]:
    zxids: dict[str, int] = {}
    parts = client.multi_read(parent, names)
    rows = ((part, row) for part in parts for row in range(len(part)))
    for name, (part, row) in zip(names, rows, strict=True):
        bookie = name.decode()
        # An event follows for one that is gone by now; its registration existed when the lists were read.
        zxids[bookie] = part.stat(row).czxid if part.size[row] >= 0 else 0
        place = endpoint(part.data(row)) if part.size[row] > 0 else None
        if place:
            seen.hosts[bookie] = place[0]
        if part.size[row] == FORBIDDEN:
            seen.hidden[bookie] = f"{parent}/{bookie}"
    return zxids


class Ballot(NamedTuple):
    """A vote for the Auditor."""

    name: bytes
    bookie: str
    session: int | None
    """The session that owns the vote. None: the vote may not be read, so its owner is not known."""


def voters(client: ZooKeeperClient, paths: BookKeeperPaths) -> list[Ballot]:
    """All votes for the Auditor: every AutoRecovery daemon has one (AutoRecoveryMain)."""
    names = [name for name in client.listings([paths.election])[0][0] if name.startswith(b"V_")]
    return votes(client, paths, names) if names else []


def votes(client: ZooKeeperClient, paths: BookKeeperPaths, names: Sequence[bytes]) -> list[Ballot]:
    """These votes for the Auditor, in this order, without deleted ones."""
    rows = ((part, row) for part in client.multi_read(paths.election, names) for row in range(len(part)))
    read = zip(names, rows, strict=True)
    return [_ballot(name, part, row) for name, (part, row) in read if part.size[row] != GONE]


def _ballot(name: bytes, part: Znodes, row: int) -> Ballot:
    if part.size[row] == FORBIDDEN:
        return Ballot(name, "", None)
    return Ballot(name, mark_codec.holder(part.data(row)), part.stat(row).owner)
