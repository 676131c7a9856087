"""Copies of ledgers in object stores: found by what their owner says, and verified before anything rests on one.

Verified is a copy that holds every entry of the ledger as its metadata have it
(`connectors.pulsar.offload_index.verify`). What was verified is so as long as both objects keep their ETags; then it is
not walked again.
"""

from collections.abc import Mapping
from typing import NamedTuple

from trueup.connectors.pulsar import offload_index
from trueup.connectors.s3.store import Head, Store
from trueup.state.common.errors import Stop
from trueup.state.deletion.offloads import Copy
from trueup.state.deletion.owners import Component

KEPT = 10_000
"""Verified copies that are remembered at most."""
_STAYS = "the ledger stays in BookKeeper until it is"


class Facts(NamedTuple):
    """What a ledger is, of which there is a copy: its managed ledger, the id of its last entry, its bytes."""

    owner: str
    last_entry: int
    length: int


class Tiered:
    """All stores there are, by name. Not for several threads at once."""

    def __init__(self, stores: Mapping[str, Store]) -> None:
        self.stores = dict(stores)
        self._verified: dict[str, tuple[str, str, Facts]] = {}

    def verify(self, copy: Copy, facts: Facts) -> None:
        """Raises `Stop` where the copy is missing, short, another's or not as its index has it, `Retry` where a store
        does not answer."""
        if not copy.complete:
            raise Stop(f"a complete copy of ledger {copy.pair.ledger}", "one that was begun", _STAYS)
        store = self._store(copy)
        data, index = (_there(store, key) for key in (copy.pair.data_key, copy.pair.index_key))
        for head in (data, index):
            where = f"{store.place}/{copy.pair.data_key}"
            _same(where, "managed ledger", facts.owner, head.said.get("managedledgername", facts.owner))
            # A broker reads nothing that does not say this of itself (DataBlockUtils).
            _same(where, "format version", "1", head.said.get("s3managedledgeroffloaderformatversion", "none"))
        seen = (data.tag, index.tag, facts)
        if self._verified.get(copy.pair.data_key) != seen:
            _verify(store, copy, facts, data, index)
            while len(self._verified) >= KEPT:
                del self._verified[next(iter(self._verified))]
            self._verified[copy.pair.data_key] = seen

    def _store(self, copy: Copy) -> Store:
        """The store where a copy is. Raises `Stop` where that is none or not one alone."""
        found = [store for store in self.stores.values() if _is_at(store, copy)]
        if len(found) == 1:
            return found[0]
        where = f"bucket {copy.bucket or '(not said)'} of {copy.endpoint or 'AWS'}, where driver {copy.driver} put it"
        raise Stop(f"one entry of stores: for {where}", str(len(found)), "add it, or give it the endpoint")


def _is_at(store: Store, copy: Copy) -> bool:
    place = store.place
    alike = copy.endpoint.rstrip("/") == place.endpoint.rstrip("/") or not copy.endpoint or not place.endpoint
    return bool(copy.bucket) and place.bucket == copy.bucket and alike


def _there(store: Store, key: str) -> Head:
    found = store.head(key)
    if found is None:
        raise Stop(f"{key} in {store.place}", "none", _STAYS)
    return found


def _verify(store: Store, copy: Copy, facts: Facts, data: Head, index: Head) -> None:
    pair, where = copy.pair, f"{store.place}/{copy.pair.data_key}"
    if index.size > offload_index.LONGEST_INDEX:
        raise Stop(f"an index of at most {offload_index.LONGEST_INDEX} bytes", str(index.size), _STAYS)
    found = offload_index.index_of(store.read(pair.index_key, 0, index.size, index.tag), f"{where}-index")
    _same(where, "managed ledger", (Component.DATA, facts.owner), (found.claim.component, found.claim.owner))
    _same(where, "last entry and length", (facts.last_entry, facts.length), (found.last_entry, found.length))
    _same(where, "state", True, found.closed)
    offload_index.verify(lambda at, count: store.read(pair.data_key, at, count, data.tag), data.size, found, where)


def _same(where: str, what: str, expected: object, found: object) -> None:
    if expected != found:
        raise Stop(f"{what} {expected} in {where}", str(found), _STAYS)
