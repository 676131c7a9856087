"""Orphan objects in tiered storage: found by listing, and deleted after another read of their owner.

Owners are read before a listing, to keep little of it in memory, and again after it, because only an object that
existed before its owner was read can be distinguished from one that is being written. Listings can be incomplete:
objects that only the listing or only an owner has are read individually.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from trueup.connectors.pulsar.layout import NodeKind, PulsarPaths
from trueup.connectors.pulsar.nodes import place_of, pointers_of
from trueup.connectors.pulsar.offload_index import pair_of
from trueup.connectors.pulsar.offload_verify import is_at
from trueup.connectors.pulsar.queries import FORBIDDEN, below
from trueup.connectors.s3.store import ObjectStore, Upload
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.state.common.errors import Refused
from trueup.state.deletion.offloads import ObjectPair, OffloadedCopy
from trueup.state.deletion.orphan_objects import LOST, LedgerOrphans, ObjectMetadata, Referenced, StoredPart, judged
from trueup.state.deletion.owners import OwnerStatus, Pointers

_UPLOAD = "?uploadId="


def referenced(client: ZooKeeperClient, paths: PulsarPaths) -> Referenced:
    """All references of owners, read now from an up-to-date server. Raises `Retry`."""
    client.settle(paths.ledgers)
    references = Referenced({}, {}, {})
    copies, listed, status = dict[ObjectPair, OffloadedCopy](), dict[int, str](), dict[str, OwnerStatus]()
    for nodes in below(client, [paths.ledgers]):
        for node in nodes:
            place = place_of(paths, node.path, node.data)
            pointers = pointers_of(paths, node.path, node.data, node.stat, 0) if node.stat else None
            if node.error == FORBIDDEN and place.kind is not NodeKind.CURSOR:
                status[place.owner] = OwnerStatus.UNREADABLE  # or that of a directory, whose owners are unknown
            elif place.kind is NodeKind.MANAGED_LEDGER:
                status[place.owner] = pointers.status if pointers else OwnerStatus.UNREADABLE
                copies.update((copy.pair, copy) for copy in (pointers.copies if pointers else ()))
                listed.update((ledger, place.owner) for ledger in (pointers.ledgers if pointers else ()))
    return references._replace(copies=copies, listed=listed, status=status)


class OrphanSearch:
    """One store. ``cluster``: clusterName of the Pulsar whose objects may be orphans; empty: none."""

    def __init__(self, name: str, store: ObjectStore, cluster: str) -> None:
        self._name, self._store, self._cluster = name, store, cluster
        self._metadata: dict[str, ObjectMetadata] = {}

    def orphans(self, read: Callable[[], Referenced]) -> list[LedgerOrphans]:
        """Objects in the store without a reference, and referenced complete copies that the store lacks."""
        before = read()
        candidates, here = self._listed(before)
        now = read()
        kept, metadata = dict[int, list[StoredPart]](), dict[int, set[ObjectMetadata]]()
        for pair, parts in candidates.items():
            if pair not in now.copies:
                there = [part for part in parts if self._has_metadata(part, metadata.setdefault(pair.ledger, set()))]
                kept.setdefault(pair.ledger, []).extend(there)
        self._metadata = {
            part.place: self._metadata[part.place] for part in chain(*kept.values()) if part.place in self._metadata
        }
        clusters = {self._cluster} - {""}
        orphans = [judged(i, tuple(sorted(parts)), metadata[i], clusters, now) for i, parts in kept.items() if parts]
        return orphans + self._lost(now, here)

    def _listed(self, before: Referenced) -> tuple[dict[ObjectPair, list[StoredPart]], set[str]]:
        """Objects without a reference so far, and the keys of referenced ones."""
        candidates, here = dict[ObjectPair, list[StoredPart]](), set[str]()
        for page in self._store.objects():
            for stored in page:
                named = pair_of(stored.key)
                if named and named[0] in before.copies:
                    here.add(stored.key)
                elif named:
                    place = f"{self._name}/{stored.key}"
                    candidates.setdefault(named[0], []).append(StoredPart(place, stored.size, stored.modified_ms))
        for uploads in self._store.uploads():
            for upload in uploads:
                named = pair_of(upload.key)
                if named and named[0] not in before.copies:
                    place = f"{self._name}/{upload.key}{_UPLOAD}{upload.id}"
                    part = StoredPart(place, sum(self._store.parts(upload)), upload.begun_ms)
                    candidates.setdefault(named[0], []).append(part)
        return candidates, here

    def _has_metadata(self, part: StoredPart, metadata: set[ObjectMetadata]) -> bool:
        """Whether the object exists; its metadata are added to ``metadata``. An upload has none."""
        _, key, upload = split(part.place)
        if upload:
            return True
        if part.place not in self._metadata:
            head = self._store.head(key)
            if head is None:
                return False
            self._metadata[part.place] = ObjectMetadata(
                head.metadata.get("managedledgername", ""), head.metadata.get("pulsarclustername", "")
            )
        metadata.add(self._metadata[part.place])
        return True

    def _lost(self, now: Referenced, here: set[str]) -> list[LedgerOrphans]:
        """Complete copies that belong in this bucket and lack an object."""
        pairs = [copy.pair for copy in now.copies.values() if copy.complete and is_at(self._store, copy)]
        gone = [
            (pair.ledger, key)
            for pair in pairs
            for key in (pair.data_key, pair.index_key)
            if key not in here and self._store.head(key) is None
        ]
        return [
            LedgerOrphans(ledger, LOST, now.listed.get(ledger, ""), (StoredPart(f"{self._name}/{key}", 0, 0),))
            for ledger, key in gone
        ]


def split(place: str) -> tuple[str, str, str]:
    """Store, key, and upload id (empty for an object) of a place."""
    store, _, rest = place.partition("/")
    key, _, upload = rest.partition(_UPLOAD)
    return store, key, upload


def left(stores: Mapping[str, ObjectStore], places: Iterable[str]) -> list[str]:
    """Those of these places that still hold data."""
    return [place for place in places if _holds(stores, place)]


def remove(
    stores: Mapping[str, ObjectStore],
    owner: str,
    clusters: Mapping[str, str],
    places: Sequence[str],
    nodes: Callable[[str], Sequence[Pointers]],
) -> list[str]:
    """Delete these objects and abort these uploads, unless their owner, read now, references one of them. Returns
    those that still exist. ``clusters``: the clusterName of each store. Raises `Refused` if any requirement does not
    hold."""
    own = nodes(owner)[0]
    if own.status is not OwnerStatus.READABLE:
        raise Refused(
            f"a readable node {own.path}", own.status.name, own.error or "nothing is deleted without its owner"
        )
    used = {copy.pair for copy in own.copies}
    for place in places:
        name, key, upload = split(place)
        named = pair_of(key)
        if named is None or named[0] in used or name not in stores:
            raise Refused("unreferenced objects", place, "it is in use, or its store is not configured")
        head = None if upload else stores[name].head(key)
        origin = head and (head.metadata.get("managedledgername", ""), head.metadata.get("pulsarclustername", ""))
        if origin and origin != (owner, clusters[name]):
            raise Refused(f"an object of {owner} in cluster {clusters[name]}", f"{place} of {origin}", "it is kept")
    for name, store in stores.items():
        mine = [(key, upload) for at, key, upload in map(split, places) if at == name]
        store.delete([key for key, upload in mine if not upload])
        for key, upload in mine:
            if upload:
                store.abort(Upload(key, upload, 0))
    return left(stores, places)


def _holds(stores: Mapping[str, ObjectStore], place: str) -> bool:
    name, key, upload = split(place)
    if name not in stores:
        return True
    return stores[name].holds(Upload(key, upload, 0)) if upload else stores[name].head(key) is not None
