"""Simulated tiered storage: inconsistent listings, and owner queries concurrent with other changes."""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

from tests.simulation.checkers import Violation
from tests.simulation.deletion.world import World
from trueup.connectors.pulsar.offload_index import pair_of
from trueup.connectors.s3.store import BucketLocation, Head, Object, Upload
from trueup.state.common.errors import Retry, Unknown
from trueup.state.deletion.offloads import ObjectPair, OffloadedCopy
from trueup.state.deletion.orphan_objects import Referenced
from trueup.state.deletion.owners import OwnerStatus, Pointers
from trueup.streams.journal.codec import ledger_key

CLUSTER = "lab"


class Shelf:
    """Implements `connectors.s3.store.Store` over the world. ``records``: the deletions in the journal."""

    place = BucketLocation("shelf")

    def __init__(self, world: World, records: Mapping[bytes, Any], random: Random) -> None:
        self.world, self.records, self.random, self.calm = world, records, random, False
        self.deleted = 0

    def objects(self) -> Iterator[list[Object]]:
        """Unless calm, the listing lacks some existing objects and contains some missing ones."""
        self.fails(Retry)
        page = []
        for key, found in list(self.world.objects.items()):
            if self.random.random() < 0.1 and not self.calm:
                self.world.step()
            if self.calm or self.random.random() < 0.95:
                page.append(Object(key, 5, found.written_ms))
        if self.random.random() < 0.1 and not self.calm:
            page.append(Object(ObjectPair(self.world.uid(), self.random.randrange(20)).data_key, 5, 1))
        yield page

    def uploads(self) -> Iterator[list[Upload]]:
        yield [Upload(key, "1", begun_ms) for key, begun_ms in self.world.uploads.items()]

    def parts(self, upload: Upload) -> list[int]:
        """Uploads of even ledgers have no parts yet."""
        named = pair_of(upload.key)
        return [7] if self.holds(upload) and named and named[0].ledger % 2 else []

    def holds(self, upload: Upload) -> bool:
        return upload.key in self.world.uploads

    def head(self, key: str) -> Head | None:
        self.fails(Retry)
        found = self.world.objects.get(key)
        result = {"managedledgername": found.owner, "pulsarclustername": CLUSTER} if found else {}
        return Head(5, found.written_ms, "x", result) if found else None

    def delete(self, keys: Sequence[str]) -> list[str]:
        for key in keys:
            self.fails(Unknown)
            self.allowed(key)
            self.deleted += self.world.objects.pop(key, None) is not None
        self.fails(Unknown)
        return []

    def abort(self, upload: Upload) -> bool:
        self.allowed(upload.key)
        self.world.uploads.pop(upload.key, None)
        return True

    def allowed(self, key: str) -> None:
        found = pair_of(key)
        assert found is not None
        for owner, node in self.world.nodes.items():
            if any(copied.pair == found[0] for copied in node.copies.values()):
                raise Violation(f"object {key} is in use by {owner} and was deleted")
        deletion = self.records.get(ledger_key(found[0].ledger))
        if deletion is None or deletion["stage"] != "deleting" or not deletion["approved"]:
            raise Violation(f"object {key} was deleted and nobody said yes")
        self.world.log.append(f"{self.world.now_ms} {key}: deleted by Trueup")

    def fails(self, kind: type[Retry] | type[Unknown]) -> None:
        if not self.calm and self.random.random() < 0.03:
            raise kind("the store", "no answer", "again")


class Asked:
    """Implements `streams.deletion.orphan_objects.ObjectOwners` over the world, which changes during every query."""

    def __init__(self, world: World, shelf: Shelf) -> None:
        self.world, self.shelf = world, shelf

    def referenced(self) -> Referenced:
        self.meanwhile()
        copies = {copied.pair: _copy(copied) for node in self.world.nodes.values() for copied in node.copies.values()}
        listed = {ledger: owner for owner, node in self.world.nodes.items() for ledger in node.listed}
        return Referenced(copies, listed, dict.fromkeys(self.world.nodes, OwnerStatus.READABLE))

    def nodes(self, owner: str) -> list[Pointers]:
        self.meanwhile()
        node = self.world.nodes.get(owner)
        if node is None:
            return [Pointers(owner, owner, "", OwnerStatus.GONE, -1, 1, 1)]
        copies = tuple(_copy(copied) for copied in node.copies.values())
        return [Pointers(owner, owner, "", OwnerStatus.READABLE, 1, 1, 1, tuple(node.listed), copies=copies)]

    def unread(self) -> str:
        return ""

    def undecoded(self) -> str:
        return ""

    def blocked_reason(self) -> str:
        return ""

    def meanwhile(self) -> None:
        if not self.shelf.calm and self.shelf.random.random() < 0.5:
            self.world.step()


def _copy(copied: Any) -> OffloadedCopy:
    return OffloadedCopy(copied.pair, copied.complete, "S3", Shelf.place.bucket)
