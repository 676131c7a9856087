"""A model of brokers that create, list, trim, offload and forget ledgers, and of bookies with garbage collection."""

from dataclasses import dataclass, field, replace
from random import Random

from trueup.state.deletion.offloads import ObjectPair

OWNERS = ("t/n/persistent/a", "t/n/persistent/b", "t/n/persistent/c")
BOOKIES = ("b1:1", "b2:1", "b3:1", "b4:1")


@dataclass
class Ledger:
    """Metadata of one ledger."""

    owner: str
    version: int
    closed: bool
    entries: int
    bookies: tuple[str, ...]
    zxid: int


@dataclass(frozen=True)
class Copied:
    """An offloaded copy according to the node. ``dropped``: the BookKeeper copy counts as deleted."""

    pair: ObjectPair
    complete: bool = False
    dropped: bool = False


@dataclass
class Stored:
    """One object. ``whole``: its content is complete."""

    owner: str
    whole: bool
    written_ms: int


@dataclass
class Node:
    """The node of one managed ledger."""

    version: int
    listed: list[int]
    zxid: int
    copies: dict[int, Copied] = field(default_factory=dict)


@dataclass
class World:
    """The true state. ``log``: changes in order. The value of a changed key is read at its observation."""

    random: Random
    now_ms: int = 1_000_000
    zxid: int = 0
    ledgers: dict[int, Ledger] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    created: dict[str, int] = field(default_factory=dict)
    ever: dict[int, tuple[str, ...]] = field(default_factory=dict)
    held: dict[str, set[int]] = field(default_factory=lambda: {b: set() for b in BOOKIES})
    down: set[str] = field(default_factory=set)
    changed: list[int | str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    objects: dict[str, Stored] = field(default_factory=dict)
    uploads: dict[str, int] = field(default_factory=dict)
    attempts: int = 0

    def step(self) -> None:
        """One event."""
        owner = self.random.choice(OWNERS)
        acts = (self.create, self.list_it, self.list_it, self.trim, self.trim, self.write, self.late, self.drop_topic)
        others = (self.bookie, self.restore, self.offload, self.drop)
        self.random.choices((*acts, *others), weights=(6, 6, 6, 2, 2, 3, 1, 0.5, 3, 1, 12, 12))[0](owner)
        self.collect()

    def spoil(self, key: str | None = None) -> None:
        """Truncate or delete an object; without a key, a random one now and then."""
        if key is None and self.objects and self.random.random() < 0.05:
            key = self.random.choice(list(self.objects))
        if key in self.objects:
            self.log.append(f"{self.now_ms} {key}: spoiled")
            self.objects[key].whole = False
            if self.random.random() < 0.5:
                del self.objects[key]

    def uid(self) -> str:
        """A new unique id."""
        self.attempts += 1
        return f"{self.attempts:08x}-89ab-cdef-0123-456789abcdef"

    def offload(self, owner: str) -> None:
        """Offload a closed ledger: the owner stores a new UUID, uploads data and index, and stores that the copy is
        complete. The sequence may stop after each step, and the data may be truncated."""
        node = self.nodes.get(owner)
        for number in node.listed[:-1] if node else ():
            ledger, before = self.ledgers.get(number), node.copies.get(number)  # type: ignore[union-attr]
            if ledger is not None and ledger.closed and not (before and before.complete):
                return self._send(owner, number, before)
        return None

    def _send(self, owner: str, number: int, before: Copied | None) -> None:
        copied = Copied(ObjectPair(self.uid(), number))
        self._note(owner, number, copied)
        if before and self.random.random() < 0.5:
            self.remove(before.pair)
        if self.random.random() < 0.1:
            self.uploads[copied.pair.data_key] = self.now_ms
            return
        self.objects[copied.pair.data_key] = Stored(owner, self.random.random() < 0.85, self.now_ms)
        if self.random.random() < 0.1:
            return
        self.objects[copied.pair.index_key] = Stored(owner, True, self.now_ms)
        if self.random.random() < 0.85:
            self._note(owner, number, replace(copied, complete=True))

    def drop(self, owner: str) -> None:
        """The owner counts the BookKeeper copy as deleted, and then deletes it or forgets to."""
        node = self.nodes.get(owner)
        for number, copied in list(node.copies.items()) if node else ():
            if copied.complete and not copied.dropped:
                self._note(owner, number, replace(copied, dropped=True))
                if self.random.random() < 0.2:
                    self.delete(number)
                return

    def _note(self, owner: str, number: int, copied: Copied) -> None:
        self.nodes[owner].copies[number] = copied
        self._write(owner, self.nodes[owner].listed)

    def remove(self, pair: ObjectPair) -> None:
        """Delete each of the two objects with some probability."""
        for key in (pair.data_key, pair.index_key):
            if self.random.random() < 0.8:
                self.objects.pop(key, None)

    def whole(self, pair: ObjectPair) -> bool:
        """Whether both objects exist and are complete."""
        return all(key in self.objects and self.objects[key].whole for key in (pair.data_key, pair.index_key))

    def meanwhile(self, owner: str, number: int) -> None:
        """One event just before the deletion of this ledger of this owner."""
        remade, listed = (lambda: self.drop_topic(owner)), (lambda: self.put_back(owner, number))
        self.random.choices((self.step, listed, lambda: self._close(number), remade), weights=(6, 3, 3, 1))[0]()

    def note_change(self, key: int | str, what: str) -> None:
        self.zxid += 1
        self.changed.append(key)
        self.log.append(f"{self.now_ms} {key}: {what}")

    def create(self, owner: str) -> None:
        """Create the metadata of a ledger before it is listed. A previous ledger that was never listed stays behind.
        For a new owner, create a node with an empty list first."""
        if owner not in self.nodes:
            self.nodes[owner] = Node(-1, [], 0)
            return self._write(owner, [])
        number = len(self.ever)
        bookies = tuple(self.random.sample(BOOKIES, 2))
        self.note_change(number, f"created for {owner}")
        self.ledgers[number] = Ledger(owner, 0, False, 0, bookies, self.zxid)
        self.ever[number] = bookies
        for bookie in bookies:
            self.held[bookie].add(number)
        self.created[owner] = number
        return None

    def list_it(self, owner: str) -> None:
        """The owner lists the last created ledger and closes the previous one."""
        number = self.created.pop(owner, None)
        if number is None or number not in self.ledgers:
            return
        node = self.nodes[owner]
        for other in node.listed[-1:]:
            self._close(other)
        self._write(owner, [*node.listed, number])

    def _close(self, number: int) -> None:
        ledger = self.ledgers.get(number)
        if ledger is not None and not ledger.closed:
            self.note_change(number, "closed")
            ledger.closed, ledger.version, ledger.zxid = True, ledger.version + 1, self.zxid

    def _write(self, owner: str, listed: list[int]) -> None:
        node = self.nodes[owner]
        self.note_change(owner, f"lists {listed}")
        node.listed, node.version, node.zxid = listed, node.version + 1, self.zxid

    def trim(self, owner: str) -> None:
        """The owner removes its oldest ledgers from its list, and then deletes them or forgets to."""
        node = self.nodes.get(owner)
        if node is None or len(node.listed) < 2:
            return
        count = self.random.randint(1, len(node.listed) - 1)
        gone, rest = node.listed[:count], node.listed[count:]
        copies = {number: node.copies.pop(number) for number in gone if number in node.copies}
        self._write(owner, rest)
        for number in gone:
            if self.random.random() < 0.5:
                self.delete(number)
            if number in copies and self.random.random() < 0.5:
                self.remove(copies[number].pair)

    def write(self, owner: str) -> None:
        """Close a ledger that was left open, or rewrite an owner's node without a change."""
        node = self.nodes.get(owner)
        if lost := self._lost(owner):
            self._close(self.random.choice(lost))
        if node is not None and self.random.random() < 0.3:
            self._write(owner, node.listed)

    def late(self, owner: str) -> None:
        """The broker deletes a ledger that it had forgotten."""
        for number in self._lost(owner)[:1]:
            self.delete(number)

    def drop_topic(self, owner: str) -> None:
        """Delete the topic: most of its ledgers, then its node. Producers may create it again at once."""
        node = self.nodes.get(owner)
        if node is None:
            return
        for number in node.listed:
            if self.random.random() < 0.8:
                self.delete(number)
        del self.nodes[owner]
        self.created.pop(owner, None)
        self.note_change(owner, "deleted")
        if self.random.random() < 0.7:
            self.create(owner)

    def restore(self, owner: str) -> None:
        """Put a ledger back onto its owner's list."""
        if lost := self._lost(owner):
            self.put_back(owner, self.random.choice(lost))

    def put_back(self, owner: str, number: int) -> None:
        if owner in self.nodes and number in self.ledgers and number not in self.listed(owner):
            self._write(owner, sorted([*self.listed(owner), number]))

    def _lost(self, owner: str) -> list[int]:
        """Existing ledgers that are neither listed nor about to be."""
        kept = {*self.listed(owner), self.created.get(owner)}
        return [number for number, ledger in self.ledgers.items() if ledger.owner == owner and number not in kept]

    def bookie(self, _owner: str) -> None:
        """A bookie stops or returns. It serves its copies until garbage collection."""
        bookie = self.random.choice(BOOKIES)
        self.down ^= {bookie}
        self.log.append(f"{self.now_ms} {bookie} {'down' if bookie in self.down else 'up'}")

    def collect(self) -> None:
        """A running bookie deletes copies of ledgers without metadata."""
        bookie = self.random.choice(BOOKIES)
        if bookie not in self.down:
            self.held[bookie] &= set(self.ledgers)

    def delete(self, number: int) -> None:
        if self.ledgers.pop(number, None) is not None:
            self.note_change(number, "deleted by its owner")

    def listed(self, owner: str) -> list[int]:
        node = self.nodes.get(owner)
        return node.listed if node else []
