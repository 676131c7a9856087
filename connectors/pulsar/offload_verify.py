"""Verification of offloaded ledgers in object stores, found by their owner's records.

A verified copy contains every entry of the ledger's metadata (`connectors.pulsar.offload_index.verify`). The result,
also a defect, is reused while both objects keep their ETags.
"""

from collections.abc import Mapping
from typing import NamedTuple

from trueup.connectors.pulsar import offload_index
from trueup.connectors.s3.store import Head, NoAccess, ObjectStore
from trueup.state.common.errors import Stop
from trueup.state.deletion.offloads import OffloadedCopy
from trueup.state.deletion.owners import Component

KEPT = 10_000
"""Maximum number of remembered results."""
_STAYS = "the ledger is kept in BookKeeper until then"


class OffloadFacts(NamedTuple):
    """The properties of an offloaded ledger."""

    owner: str
    """The name of the managed ledger."""
    last_entry: int
    """The id of the last entry."""
    length: int
    """The size of all entries in bytes."""


class _Verification(NamedTuple):
    """The result of a verification of the data object and the index with these ETags."""

    data_tag: str
    index_tag: str
    facts: OffloadFacts
    defect: Stop | None
    """What is wrong with the objects; None if nothing is."""


class Tiered:
    """All configured stores by name. Not safe for use from several threads at once. ``untagged``: whether an index
    without keys of Pulsar, and so without an owner, is accepted: brokers read it, but it proves no owner."""

    def __init__(self, stores: Mapping[str, ObjectStore], kept: int = KEPT, untagged: bool = False) -> None:
        self.stores, self._kept, self._untagged = dict(stores), kept, untagged
        self._verified: dict[str, _Verification] = {}

    def verify(self, copy: OffloadedCopy, facts: OffloadFacts) -> None:
        """Raises `Stop` if the copy is missing, incomplete, of another owner or different from its index, `Retry` if a
        store does not respond."""
        if not copy.complete:
            raise Stop(f"a complete copy of ledger {copy.pair.ledger}", "an incomplete one", _STAYS)
        store = self.store(copy)
        data, index = (_there(store, key) for key in (copy.pair.data_key, copy.pair.index_key))
        for head in (data, index):
            where = f"{store.place}/{copy.pair.data_key}"
            _same(where, "managed ledger", facts.owner, head.metadata.get("managedledgername", facts.owner))
            # A broker reads only objects with this metadata (DataBlockUtils).
            _same(where, "format version", "1", head.metadata.get("s3managedledgeroffloaderformatversion", "none"))
        verification = self._verified.get(copy.pair.data_key)
        if verification is None or verification[:3] != (data.tag, index.tag, facts):
            verification = _Verification(data.tag, index.tag, facts, self._defect(store, copy, facts, data, index))
            while len(self._verified) >= self._kept:
                del self._verified[next(iter(self._verified))]
            self._verified[copy.pair.data_key] = verification
        if verification.defect is not None:
            raise verification.defect.with_traceback(None)

    def _defect(
        self, store: ObjectStore, copy: OffloadedCopy, facts: OffloadFacts, data: Head, index: Head
    ) -> Stop | None:
        """What is wrong with the content of both objects. Raises `Retry`, and `NoAccess` if it cannot be read."""
        try:
            _verify(store, copy, facts, data, index, self._untagged)
        except NoAccess:
            raise
        except Stop as error:
            return error
        return None

    def read(self, copy: OffloadedCopy) -> bool:
        """Whether the objects of a copy were read in full. A change of them is found by the next `verify`."""
        return copy.pair.data_key in self._verified

    def store(self, copy: OffloadedCopy) -> ObjectStore:
        """The only store that has a copy's bucket. Raises `Stop` if there is none, or more than one."""
        stores = [store for store in self.stores.values() if is_at(store, copy)]
        if len(stores) == 1:
            return stores[0]
        where = f"bucket {copy.bucket or '(not recorded)'} of {copy.endpoint or 'AWS'}, driver {copy.driver}"
        raise Stop(f"one entry of stores: for {where}", str(len(stores)), "add the store, or set its endpoint")


def is_at(store: ObjectStore, copy: OffloadedCopy) -> bool:
    """Whether a copy may be in this store: it names the bucket, and no endpoint but that of the store. The endpoint is
    unknown if the settings of the store or the record of the copy have none."""
    place = store.place
    alike = copy.endpoint.rstrip("/") == place.endpoint.rstrip("/") or not copy.endpoint or not place.endpoint
    return bool(copy.bucket) and place.bucket == copy.bucket and alike


def _there(store: ObjectStore, key: str) -> Head:
    head = store.head(key)
    if head is None:
        raise Stop(f"{key} in {store.place}", "none", _STAYS)
    return head


def _verify(
    store: ObjectStore, copy: OffloadedCopy, facts: OffloadFacts, data: Head, index: Head, untagged: bool
) -> None:
    pair, where = copy.pair, f"{store.place}/{copy.pair.data_key}"
    if index.size > offload_index.LONGEST_INDEX:
        raise Stop(f"an index of at most {offload_index.LONGEST_INDEX} bytes", str(index.size), _STAYS)
    content = offload_index.index_of(store.read(pair.index_key, 0, index.size, index.tag), f"{where}-index")
    if content.tagged or not untagged:
        _same(where, "managed ledger", (Component.DATA, facts.owner), (content.claim.component, content.claim.owner))
    _same(where, "last entry and length", (facts.last_entry, facts.length), (content.last_entry, content.length))
    _same(where, "state", True, content.closed)
    offload_index.verify(lambda at, count: store.read(pair.data_key, at, count, data.tag), data.size, content, where)


def _same(where: str, what: str, expected: object, found: object) -> None:
    if expected != found:
        raise Stop(f"{what} {expected} in {where}", str(found), _STAYS)
