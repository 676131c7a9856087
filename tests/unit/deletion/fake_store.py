"""An object store and the owners of its objects, in memory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from trueup.connectors.s3.store import BucketLocation, Head, Object, Upload
from trueup.state.deletion.offloads import OffloadedCopy
from trueup.state.deletion.orphan_objects import Referenced
from trueup.state.deletion.owners import OwnerStatus, Pointers

CLUSTER = "lab"


@dataclass
class StoredObject:
    """One object, with the owner that its metadata name."""

    owner: str
    written_ms: int


@dataclass
class OwnerNode:
    """The node of one managed ledger."""

    listed: list[int]
    copies: list[OffloadedCopy] = field(default_factory=list)


class FakeOwners:
    """Implements `streams.deletion.orphan_objects.ObjectOwners`."""

    def __init__(self, known: dict[str, OwnerNode]) -> None:
        self._known = known

    def referenced(self) -> Referenced:
        copies = {copy.pair: copy for node in self._known.values() for copy in node.copies}
        listed = {ledger: owner for owner, node in self._known.items() for ledger in node.listed}
        return Referenced(copies, listed, dict.fromkeys(self._known, OwnerStatus.READABLE))

    def nodes(self, owner: str) -> list[Pointers]:
        node = self._known.get(owner)
        if node is None:
            return [Pointers(owner, owner, "", OwnerStatus.GONE, -1, 1, 1)]
        return [
            Pointers(owner, owner, "", OwnerStatus.READABLE, 1, 1, 1, tuple(node.listed), copies=tuple(node.copies))
        ]

    def unread(self) -> str:
        return ""


class FakeStore:
    """Implements `connectors.s3.store.Store`."""

    place = BucketLocation("shelf")

    def __init__(self) -> None:
        self.stored: dict[str, StoredObject] = {}

    def objects(self) -> Iterator[list[Object]]:
        yield [Object(key, 5, found.written_ms) for key, found in self.stored.items()]

    def uploads(self) -> Iterator[list[Upload]]:
        return iter(())

    def head(self, key: str) -> Head | None:
        found = self.stored.get(key)
        names = {"managedledgername": found.owner, "pulsarclustername": CLUSTER} if found else {}
        return Head(5, found.written_ms, "x", names) if found else None

    def delete(self, keys: Sequence[str]) -> list[str]:
        for key in keys:
            self.stored.pop(key, None)
        return []
