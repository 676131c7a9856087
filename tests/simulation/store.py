"""Tiered storage and the offload policies of a simulated Pulsar cluster.

Listings of the bucket are inconsistent, requests fail before or after they take effect, and a policy that was written
is shown some time later.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.simulation.faults import Faults
from tests.simulation.model import Ledger, World
from trueup.connectors.pulsar.offload_index import pair_of
from trueup.connectors.s3.store import BucketLocation, Head, Object, Upload
from trueup.state.common.errors import Retry, Unknown
from trueup.state.deletion.offloads import ObjectPair

CLUSTER, STORE, BUCKET = "lab", "shelf", "shelf"
FIELD = "managedLedgerOffloadedReadPriority"
BK, TS = "BOOKKEEPER_FIRST", "TIERED_STORAGE_FIRST"
SECRET = "simulated-secret"
BROKER = {"managedLedgerOffloadDriver": "S3", "managedLedgerOffloadBucket": BUCKET, "maxThreads": 2}
Raw = dict[str, Any]


@dataclass
class Stored:
    """One object. ``whole``: its content is complete."""

    owner: str
    whole: bool
    written_ms: int


class Bucket:
    """The objects and incomplete uploads. An upload is there since the time in ``uploads``."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.objects: dict[str, Stored] = {}
        self.uploads: dict[str, int] = {}
        self.lost: dict[str, Stored] = {}
        self._attempts = 0

    def uid(self) -> str:
        """A new unique id."""
        self._attempts += 1
        return f"{self._attempts:08x}-89ab-cdef-0123-456789abcdef"

    def whole(self, pair: ObjectPair) -> bool:
        """Whether both objects exist and are complete."""
        return all(key in self.objects and self.objects[key].whole for key in (pair.data_key, pair.index_key))

    def remove(self, pair: ObjectPair) -> None:
        """Delete each of the two objects with some probability."""
        for key in (pair.data_key, pair.index_key):
            if self.rng.random() < 0.8:
                self.objects.pop(key, None)

    def spoil(self, key: str) -> None:
        """Truncate an object, or lose it."""
        if key in self.objects:
            self.objects[key].whole = False
            if self.rng.random() < 0.5:
                self.lost[key] = self.objects.pop(key)

    def restore(self) -> None:
        """An operator restores about half of the lost and truncated objects from a backup."""
        for key in sorted(self.lost):
            if self.rng.random() < 0.5:
                self.objects.setdefault(key, self.lost[key])
        self.lost.clear()
        for stored in self.objects.values():
            stored.whole |= self.rng.random() < 0.5


class SimulatedStore:
    """Implements `connectors.s3.store.ObjectStore` over the bucket. ``deleting``: called with a key before its object
    or upload is deleted. ``meanwhile``: changes the world during a listing."""

    place = BucketLocation(BUCKET)

    def __init__(
        self,
        bucket: Bucket,
        faults: Faults,
        deleting: Callable[[str], None] = lambda _: None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        self.bucket, self.faults, self._deleting, self._meanwhile = bucket, faults, deleting, meanwhile

    def objects(self) -> Iterator[list[Object]]:
        """While there are faults, the listing lacks some objects and contains some that do not exist."""
        self._fails(Retry)
        faults, page = self.faults, []
        for key, stored in list(self.bucket.objects.items()):
            if faults.happens(0.05):
                self._meanwhile()
            if not faults.happens(0.05):
                page.append(Object(key, 5, stored.written_ms))
        if faults.happens(0.1):
            page.append(Object(ObjectPair(self.bucket.uid(), faults.rng.randrange(20)).data_key, 5, 1))
        yield page

    def uploads(self) -> Iterator[list[Upload]]:
        yield [Upload(key, "1", begun_ms) for key, begun_ms in self.bucket.uploads.items()]

    def parts(self, upload: Upload) -> list[int]:
        """Uploads of even ledgers have no parts yet."""
        named = pair_of(upload.key)
        return [7] if self.holds(upload) and named and named[0].ledger % 2 else []

    def holds(self, upload: Upload) -> bool:
        return upload.key in self.bucket.uploads

    def head(self, key: str) -> Head | None:
        self._fails(Retry)
        stored = self.bucket.objects.get(key)
        if stored is None:
            return None
        return Head(5, stored.written_ms, "x", {"managedledgername": stored.owner, "pulsarclustername": CLUSTER})

    def delete(self, keys: Sequence[str]) -> list[str]:
        for key in keys:
            self._fails(Unknown)
            self._deleting(key)
            self.bucket.objects.pop(key, None)
        self._fails(Unknown)
        return []

    def abort(self, upload: Upload) -> bool:
        self.faults.seam()
        self._deleting(upload.key)
        return self.bucket.uploads.pop(upload.key, None) is not None

    def _fails(self, kind: type[Retry] | type[Unknown]) -> None:
        self.faults.seam()
        if self.faults.happens(0.03):
            raise kind("the store", "no response", "try again")


class Policies:
    """The offload policies of namespaces and topics, as raw JSON. ``replaced``: the values that Trueup replaced last:
    setting one again cannot be told from a write without effect."""

    def __init__(self, rng: Random, namespaces: Sequence[str], topics: Sequence[str]) -> None:
        self.rng = rng
        self.broker_value = rng.choice((BK, TS))
        self.stored: dict[str, Raw] = {}
        self.replaced: dict[str, Any] = {}
        self.delayed: dict[str, tuple[int, Raw | None]] = {}
        for name in (*namespaces, *topics):
            if rng.random() < (0.6 if name in namespaces else 0.2):
                self.stored[name] = self.made()

    def made(self) -> Raw:
        """A policy of another client."""
        policy: Raw = {**BROKER, "s3ManagedLedgerOffloadCredentialSecret": SECRET, "unknown": self.rng.randrange(9)}
        if self.rng.random() < 0.7:
            policy[FIELD] = self.rng.choice((BK, TS, None))
        return policy

    def shown(self, name: str, now_ms: int) -> Raw | None:
        """What a broker shows: a policy that was written a moment ago may not be shown yet."""
        until_ms, before = self.delayed.get(name, (0, None))
        return before if now_ms < until_ms else self.stored.get(name)

    def merged(self, topic: str, now_ms: int) -> Raw:
        """What ``applied=true`` returns."""
        merged: Raw = {**BROKER, FIELD: self.broker_value}
        for name in (topic.rpartition("/")[0], topic):
            merged |= {field: value for field, value in (self.shown(name, now_ms) or {}).items() if value is not None}
        return merged

    def value(self, topic: str) -> tuple[str, str]:
        """The priority in force for a topic, and the level that sets it."""
        for level, name in (("topic", topic), ("namespace", topic.rpartition("/")[0])):
            value = self.stored.get(name, {}).get(FIELD)
            if value is not None:
                return str(value), level
        return self.broker_value, "broker"

    def interfere(self, name: str) -> None:
        """Another client changes a policy."""
        chance, policy = self.rng.random(), self.stored.get(name)
        if policy is None or chance < 0.2:
            self.stored[name] = self.made()
        elif chance < 0.4:
            del self.stored[name]
        elif chance < 0.7:
            self.stored[name] = {**policy, "unknown": self.rng.randrange(1_000)}
        else:
            values = [value for value in (BK, TS, None) if value != self.replaced.get(name, BK)]
            self.stored[name] = {**policy, FIELD: self.rng.choice(values)}


def fields_of(raw: Mapping[str, Any] | None) -> Raw:
    """All fields of a policy with a value but the priority."""
    return {name: value for name, value in (raw or {}).items() if name != FIELD and value is not None}


def in_bookkeeper(world: World, ledger: Ledger | None, silent: frozenset[str] = frozenset()) -> bool | None:
    """Whether bookies that are up have every entry of a ledger; None if only bookies in ``silent`` may have one."""
    if ledger is None:
        return False
    result: bool | None = True
    for fragment in ledger.fragments:
        for first in range(len(fragment.bookies) if fragment.entries else 0):
            members = (fragment.bookies[(first + step) % len(fragment.bookies)] for step in range(ledger.quorum))
            holders = [b for b in members if b in fragment.holders and world.up(b)]
            if not holders:
                return False
            if silent.issuperset(holders):
                result = None
    return result
