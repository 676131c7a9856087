"""Pulsar's brokers over the ledgers of `tests.simulation.model.World`: they create, list, trim, offload and forget
ledgers, and reference them in nodes of managed ledgers and cursors. All nodes are in the ZooKeeper of the world.

A ledger may be referenced by a topic that its metadata do not name, and ledgers of other applications name none.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from tests.simulation.model import World
from tests.simulation.store import Bucket, Stored
from trueup.state.deletion.offloads import ObjectPair
from trueup.state.deletion.owners import Claim, Component

NAMESPACES = ("t/a", "t/b")
TOPICS = ("t/a/one", "t/a/own", "t/b/one", "t/b/loose")
CURSOR = "sub"


def owner_of(topic: str) -> str:
    """The managed ledger of a topic."""
    tenant, namespace, local = topic.split("/")
    return f"{tenant}/{namespace}/persistent/{local}"


OWNERS = tuple(map(owner_of, TOPICS))


@dataclass(frozen=True)
class OffloadRecord:
    """An offloaded copy according to a node. ``dropped``: the ledger in BookKeeper counts as deleted."""

    pair: ObjectPair
    complete: bool = False
    dropped: bool = False


@dataclass(frozen=True)
class ListedLedger:
    """A ledger in the list of a managed ledger. The open one has no entries and no time yet."""

    entries: int = 0
    closed_ms: int = 0
    copy: OffloadRecord | None = None

    @property
    def complete(self) -> bool:
        return self.copy is not None and self.copy.complete

    @property
    def dropped(self) -> bool:
        return self.copy is not None and self.copy.complete and self.copy.dropped


@dataclass
class OwnerNode:
    """The node of a managed ledger."""

    ledgers: dict[int, ListedLedger] = field(default_factory=dict)
    version: int = -1
    zxid: int = 0

    @property
    def listed(self) -> list[int]:
        return sorted(self.ledgers)


@dataclass
class CursorNode:
    """The node of a cursor: the ledger of its position, and a compacted ledger. -1: none."""

    ledger: int = -1
    compacted: int = -1
    version: int = -1
    zxid: int = 0

    @property
    def listed(self) -> list[int]:
        return sorted({self.ledger, self.compacted} - {-1})


class Brokers:
    """``claims``: the owner that the metadata of each ledger name; other applications' ledgers have none. ``created``:
    the ledger that each owner will list next. ``changes``: changed paths, in order."""

    def __init__(self, world: World, bucket: Bucket) -> None:
        self.world, self.rng, self.bucket = world, world.rng, bucket
        self.nodes: dict[str, OwnerNode] = {}
        self.cursors: dict[str, CursorNode] = {}
        self.claims: dict[int, Claim] = {}
        self.created: dict[str, int] = {}
        self.changes: list[str] = []
        self.on_drop: Callable[[str], object] = lambda _topic: None
        """Called with the name of each deleted topic."""

    def step(self) -> None:
        """One event."""
        owner = self.rng.choice(OWNERS)
        acts = (
            (self.create, 8),
            (self.list_next, 14),
            (self.append, 4),
            (self.trim, 2.5),
            (self.leave_or_rewrite, 3),
            (self.delete_late, 1),
            (self.drop_topic, 0.4),
            (self.restore, 1),
            (self.offload, 18),
            (self.drop_copy, 8),
            (self.roll_cursor, 1),
            (self.adopt, 1.5),
            (self.spoil, 1),
            (self.foreign, 0.5),
        )
        self.rng.choices([act for act, _ in acts], [weight for _, weight in acts])[0](owner)

    def meanwhile(self, owner: str, number: int) -> None:
        """One event just before the deletion of this ledger of this owner."""
        acts = (
            (self.step, 6),
            (lambda: self.put_back(owner, number), 3),
            (lambda: self.close(number), 3),
            (lambda: self.drop_topic(owner), 1),
            (self.world.repair_now, 3),
            (lambda: self.spoil_copy(owner, number), 3),
        )
        self.rng.choices([act for act, _ in acts], [weight for _, weight in acts])[0]()

    # Ledgers of topics

    def create(self, owner: str) -> None:
        """Create a ledger before it is listed. A previous one that was never listed stays behind. A new owner creates
        its node first, with an empty list."""
        if owner not in self.nodes:
            self.nodes[owner] = OwnerNode()
            self._write(owner)
            return
        number = self._new(Claim(Component.DATA, owner))
        if number is not None:
            self.created[owner] = number

    def _new(self, claim: Claim | None) -> int | None:
        number, size = self.world.next_ledger, self.rng.choice((1, 2, 2, 3))
        self.world.create(size, self.rng.randint(1, size), self.rng.random() < 0.6)
        if number not in self.world.ledgers:
            return None
        if claim is not None:
            self.claims[number] = claim
            self.world.note(f"ledger {number} is of {claim.owner}")
        return number

    def list_next(self, owner: str) -> None:
        """The owner lists the last created ledger and closes the previous one."""
        number, node = self.created.pop(owner, None), self.nodes.get(owner)
        if number is None or node is None or number not in self.world.ledgers:
            return
        for other in node.listed[-1:]:
            self.close(other)
            if not node.ledgers[other].closed_ms:
                node.ledgers[other] = ListedLedger(self._entries(other), self.world.now_ms)
        node.ledgers[number] = ListedLedger()
        self._write(owner)
        if self.rng.random() < 0.7:
            self.append(owner)

    def append(self, owner: str) -> None:
        """Write entries to the open ledger."""
        node = self.nodes.get(owner)
        for number in node.listed[-1:] if node else ():
            ledger = self.world.ledgers.get(number)
            if ledger is not None and not ledger.closed and not ledger.unreadable:
                self.world.add(ledger)

    def writes(self, number: int) -> bool:
        """Whether a broker writes to this ledger or is about to."""
        claim = self.claims.get(number)
        node = self.nodes.get(claim.owner) if claim else None
        return claim is not None and (
            self.created.get(claim.owner) == number or (node is not None and node.listed[-1:] == [number])
        )

    def close(self, number: int) -> None:
        ledger = self.world.ledgers.get(number)
        if ledger is not None and not ledger.closed:
            self.world.close(ledger)

    def _entries(self, number: int) -> int:
        ledger = self.world.ledgers.get(number)
        return sum(fragment.entries for fragment in ledger.fragments) if ledger else 0

    def trim(self, owner: str) -> None:
        """The owner removes its oldest ledgers from its list, and then deletes them or forgets to."""
        node = self.nodes.get(owner)
        if node is None or len(node.ledgers) < 2:
            return
        listed = node.listed
        gone = {number: node.ledgers.pop(number) for number in listed[: self.rng.randint(1, len(listed) - 1)]}
        self._write(owner)
        for number, was in gone.items():
            own = self.claims[number].owner == owner
            if own and self.rng.random() < (0.2 if self.users(number) else 0.5):
                self.delete(number)
            if own and was.copy and self.rng.random() < 0.5:
                self.bucket.remove(was.copy.pair)

    def leave_or_rewrite(self, owner: str) -> None:
        """Close a ledger that was left open, or write an owner's node without a change. No broker writes an empty list
        again."""
        if lost := self._lost(owner):
            self.close(self.rng.choice(lost))
        if owner in self.nodes and self.nodes[owner].ledgers and self.rng.random() < 0.3:
            self._write(owner)

    def delete_late(self, owner: str) -> None:
        """The broker deletes a ledger that it had forgotten."""
        for number in self._lost(owner)[:1]:
            self.delete(number)

    def delete(self, number: int) -> None:
        if number in self.world.ledgers:
            self.world.delete(number)

    def drop_topic(self, owner: str) -> None:
        """Delete the topic: most of its ledgers, then its nodes. Producers may create it again at once."""
        node = self.nodes.get(owner)
        if node is None:
            return
        for number in node.listed:
            if self.claims[number].owner == owner and self.rng.random() < 0.8:
                self.delete(number)
        if self.cursors.pop(owner, None) is not None:
            self._changed(f"{owner}/{CURSOR}")
        del self.nodes[owner]
        self.created.pop(owner, None)
        self._changed(owner)
        self.world.note(f"{owner} deleted")
        self.on_drop(TOPICS[OWNERS.index(owner)])
        if self.rng.random() < 0.7:
            self.create(owner)

    def restore(self, owner: str) -> None:
        """Put a ledger back onto its owner's list."""
        if lost := self._lost(owner):
            self.put_back(owner, self.rng.choice(lost))

    def put_back(self, owner: str, number: int) -> None:
        node = self.nodes.get(owner)
        if node is not None and number in self.world.ledgers and number not in node.ledgers:
            node.ledgers[number] = ListedLedger(self._entries(number), self.world.now_ms)
            self._write(owner)

    def _lost(self, owner: str) -> list[int]:
        """Existing data ledgers that are neither listed nor about to be."""
        node, claim = self.nodes.get(owner), Claim(Component.DATA, owner)
        kept = {*(node.ledgers if node else ()), self.created.get(owner)}
        return [number for number in self.world.ledgers if self.claims.get(number) == claim and number not in kept]

    # References of others

    def users(self, number: int) -> list[str]:
        """The paths of the nodes that reference a ledger. The one of its own owner does not if it records it as deleted
        from BookKeeper."""
        lists = [owner for owner, node in self.nodes.items() if number in node.ledgers]
        lists = [by for by in lists if not (self.owns(by, number) and self.nodes[by].ledgers[number].dropped)]
        return lists + [f"{owner}/{CURSOR}" for owner, cursor in self.cursors.items() if number in cursor.listed]

    def owns(self, owner: str, number: int) -> bool:
        """Whether the metadata of a ledger name this owner."""
        return number in self.claims and self.claims[number].owner == owner

    def adopt(self, owner: str) -> None:
        """A topic references a closed ledger that another one lists: in its list, with the record of its copy, or in a
        property of its cursor."""
        node, others = self.nodes.get(owner), [name for name in self.nodes if name != owner]
        if node is None or not others or not node.ledgers:
            return
        other = self.nodes[self.rng.choice(others)]
        closed = [number for number in other.listed[:-1] if number in self.world.ledgers]
        if closed and owner in self.cursors and self.rng.random() < 0.4:
            cursor = self.cursors[owner]
            cursor.compacted = self.rng.choice([-1, *closed])
            self._write_cursor(owner)
            return
        for number in closed:
            if number < node.listed[-1] and number not in node.ledgers:
                node.ledgers[number] = other.ledgers[number]
                self._write(owner)
                return

    def roll_cursor(self, owner: str) -> None:
        """A cursor replaces the ledger of its position, and deletes the previous one or forgets to."""
        if owner not in self.nodes:
            return
        number = self._new(Claim(Component.CURSOR, owner, CURSOR))
        if number is None:
            return
        cursor = self.cursors.setdefault(owner, CursorNode())
        before, cursor.ledger = cursor.ledger, number
        self._write_cursor(owner)
        self.close(before)
        if self.rng.random() < 0.5:
            self.delete(before)

    def foreign(self, _owner: str) -> None:
        """Another application creates a ledger, and closes it."""
        number = self._new(None)
        if number is not None and self.rng.random() < 0.5:
            self.close(number)

    # Copies in tiered storage

    def offload(self, owner: str) -> None:
        """Offload a closed ledger: the owner stores a new UUID, uploads data and index, and stores that the copy is
        complete. The sequence may stop after each step, and the data may be truncated."""
        node = self.nodes.get(owner)
        for number in node.listed[:-1] if node else ():
            ledger, listed = self.world.ledgers.get(number), node.ledgers[number]  # type: ignore[union-attr]
            own = self.claims[number].owner == owner
            readable = ledger is not None and ledger.closed and not ledger.unreadable
            if own and readable and listed.entries and not listed.complete:
                self._send(owner, number, listed)
                return

    def _send(self, owner: str, number: int, listed: ListedLedger) -> None:
        rng, record = self.rng, OffloadRecord(ObjectPair(self.bucket.uid(), number))
        self._record(owner, number, record)
        if listed.copy and rng.random() < 0.5:
            self.bucket.remove(listed.copy.pair)
        if rng.random() < 0.1:
            self.bucket.uploads[record.pair.data_key] = self.world.now_ms
            return
        self.bucket.objects[record.pair.data_key] = Stored(owner, rng.random() < 0.95, self.world.now_ms)
        if rng.random() < 0.1:
            return
        self.bucket.objects[record.pair.index_key] = Stored(owner, True, self.world.now_ms)
        if rng.random() < 0.85:
            self._record(owner, number, replace(record, complete=True))

    def drop_copy(self, owner: str) -> None:
        """The owner records the ledger in BookKeeper as deleted, and then deletes it or forgets to."""
        node = self.nodes.get(owner)
        for number, listed in list(node.ledgers.items()) if node else ():
            if listed.complete and not listed.dropped and listed.copy and self.claims[number].owner == owner:
                self._record(owner, number, replace(listed.copy, dropped=True))
                if self.rng.random() < 0.2:
                    self.delete(number)
                return

    def _record(self, owner: str, number: int, copy: OffloadRecord) -> None:
        node = self.nodes[owner]
        node.ledgers[number] = replace(node.ledgers[number], copy=copy)
        self._write(owner)

    def spoil(self, _owner: str) -> None:
        """An object is lost or truncated."""
        if self.bucket.objects:
            self.bucket.spoil(self.rng.choice(list(self.bucket.objects)))

    def spoil_copy(self, owner: str, number: int) -> None:
        """The data of one copy are lost or truncated."""
        if copy := self.copy_of(owner, number):
            self.bucket.spoil(copy.pair.data_key)

    def copy_of(self, owner: str, number: int) -> OffloadRecord | None:
        """The record of one copy in the node of an owner."""
        node = self.nodes.get(owner)
        listed = node.ledgers.get(number) if node else None
        return listed.copy if listed else None

    def copies(self) -> Iterator[tuple[str, int, OffloadRecord]]:
        """The records of all copies, with the owner whose node has them."""
        for owner, node in self.nodes.items():
            for number, listed in node.ledgers.items():
                if listed.copy is not None:
                    yield owner, number, listed.copy

    # Nodes

    def _write(self, owner: str) -> None:
        node = self.nodes[owner]
        node.version += 1
        node.zxid = self._changed(owner)
        self.world.note(f"{owner} version {node.version} lists {_listed(node)}")

    def _write_cursor(self, owner: str) -> None:
        cursor, path = self.cursors[owner], f"{owner}/{CURSOR}"
        cursor.version += 1
        cursor.zxid = self._changed(path)
        self.world.note(f"{path} references {cursor.listed}")

    def _changed(self, path: str) -> int:
        self.world.zxid += 1
        self.changes.append(path)
        return self.world.zxid


def _listed(node: OwnerNode) -> str:
    """The list of a node, with a letter for the state of each copy."""
    letters = ("", "i", "c", "d")
    states = (bool(one.copy) + one.complete + one.dropped for _, one in sorted(node.ledgers.items()))
    return " ".join(f"{number}{letters[state]}" for number, state in zip(node.listed, states, strict=True)) or "nothing"
