"""Orphan objects in tiered storage: objects that no owner references, as a pure function of both sides.

An owner records the UUID of an offload attempt before its first byte is sent, and uses a new one for each attempt. An
object that existed before its owner was read, and whose UUID that owner does not have, is therefore an orphan: of a
broker that could not record the completion of the offload, or that gave up deleting it.
"""

from collections.abc import Mapping, Set
from typing import NamedTuple

from trueup.state.deletion.offloads import ObjectPair, OffloadedCopy
from trueup.state.deletion.owners import OwnerStatus, above


class StoredPart(NamedTuple):
    """One object, or one incomplete multipart upload."""

    place: str
    """The store and the key; for an upload also its id."""
    size: int
    """The size in bytes; 0 for an object that does not exist."""
    since_ms: int
    """When the object was written or the upload began, ms since the epoch; 0 for an object that does not exist."""


class ObjectMetadata(NamedTuple):
    """The metadata of an object: its managed ledger, and the Pulsar cluster that wrote it."""

    owner: str = ""
    cluster: str = ""


class Referenced(NamedTuple):
    """What owners reference."""

    copies: Mapping[ObjectPair, OffloadedCopy]
    """The record of each offloaded ledger, by the pair of its objects."""
    listed: Mapping[int, str]
    """The owner that lists each ledger, by the id of the ledger."""
    status: Mapping[str, OwnerStatus]
    """The status of the managed ledger node of each owner, by owner. Directories of owners that cannot be read are
    included as UNREADABLE."""


class LedgerOrphans(NamedTuple):
    """All orphan objects of one ledger, and their rule."""

    ledger: int
    rule: str
    owner: str
    parts: tuple[StoredPart, ...]


def judged(
    ledger: int, parts: tuple[StoredPart, ...], metadata: Set[ObjectMetadata], clusters: Set[str], now: Referenced
) -> LedgerOrphans:
    """Judge the orphan objects of a ledger. ``metadata``: the metadata of the objects that have any;
    ``clusters``: the names of this Pulsar cluster."""
    owners = {meta.owner for meta in metadata} or {now.listed.get(ledger, "")}
    owner = min(owners)
    owned = len(owners) == 1 and owner != "" and bool(clusters) and {meta.cluster for meta in metadata} <= clusters
    return LedgerOrphans(ledger, _rule(ledger, owner, owned, now), owner, parts)


def _rule(ledger: int, owner: str, owned: bool, now: Referenced) -> str:
    status = now.status.get(owner)
    if owned and status is None and not now.status.keys().isdisjoint(above(owner)):
        status = OwnerStatus.UNREADABLE
    if not owned or status in (None, OwnerStatus.GONE):
        return UNOWNED
    if status is not OwnerStatus.READABLE:
        return "deletion.owner-unreadable"
    lister = now.listed.get(ledger)
    return REPLACED if lister == owner else FORGOTTEN if lister is None else UNOWNED


FORGOTTEN, REPLACED, UNOWNED = "deletion.copy-forgotten", "deletion.copy-replaced", "deletion.copy-unowned"
LOST = "deletion.copy-lost"
ORPHANS = frozenset({FORGOTTEN, REPLACED, UNOWNED, LOST})
"""Rules about objects in tiered storage, as opposed to a ledger's metadata."""
