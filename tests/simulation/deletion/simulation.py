"""Trueup's deletion over that world: the real view, the real markers, and everything between them that can go wrong.

What is observed arrives late, in portions and in any order between things. The application dies between any two of its
steps and begins again from its journal and its checkpoint. The connector is a model of the guarded transaction.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

import numpy as np

from state.deleting import Deletion
from state.errors import Retry
from state.forgotten import OwnerBucket
from state.leak_rules import LEAK_RULES
from state.ledgers import Ledgers
from state.markers import Marker, Stage
from state.observations import LedgerState
from state.owned import NO_LEDGERS, NO_NODES, OWNED, Table, nodes_of
from state.owners import Component, Pointers, Status
from state.view import MemoryStore
from streams.codec import ledger_key
from streams.markers import Markers, Result
from tests.simulation.checkers import Violation
from tests.simulation.deletion.world import BOOKIES, OWNERS, Node, World

STEPS, BUCKETS = 60, 2
GRACE_S = 20.0
CALM = 12  # turns that everything may take to come to its end


class Crash(BaseException):
    """The application dies."""


class Told(NamedTuple):
    """One record read back."""

    key: bytes
    value: Any


class Journal:
    """A topic in memory that fails now and then, and may have taken some by then. ``confirmed``: ledgers whose markers
    ended after their metadata were gone."""

    def __init__(self, random: Random) -> None:
        self.random, self.records, self.calm = random, dict[bytes, Any](), False
        self.confirmed: set[int] = set()

    def put(self, records: Sequence[tuple[str, bytes, Any]]) -> None:
        fails = not self.calm and self.random.random() < 0.05
        taken = self.random.randrange(len(records)) if fails else len(records)
        for _, key, value in records[:taken]:
            before, self.records[key] = self.records.get(key), value
            if value is None and before is not None and before["stage"] == Stage.GONE:
                self.confirmed.add(int.from_bytes(key, "big"))
        if fails:
            raise Retry("the journal", f"{taken} of {len(records)} taken", "again")

    def read(self, _what: str) -> list[Told]:
        return [Told(key, value) for key, value in self.records.items()]


class Connector:
    """Implements `streams.markers.Cluster` over the world."""

    def __init__(self, world: World, journal: Journal) -> None:
        self.world, self.journal, self.calm = world, journal, False
        self.deleted: list[int] = []

    def obstacle(self) -> str:
        return ""

    def read(self, ledgers: Sequence[int]) -> Ledgers:
        self.maybe_dies()
        found = sorted(i for i in ledgers if i in self.world.ledgers)
        rows = [self.world.ledgers[i] for i in found]
        count, ones = len(found), np.ones(len(found), np.int64)
        names = sorted({bookie for row in rows for bookie in row.bookies})
        members = np.array([names.index(b) for row in rows for b in row.bookies], np.uint32)
        return Ledgers(
            ledger=np.array(found, np.int64), mzxid=ones, ctime_ms=ones, seen_ms=ones,
            version=np.array([row.version for row in rows], np.int32), fragments=np.ones(count, np.uint32),
            ensemble=np.full(count, 2, np.uint16), quorum=np.full(count, 2, np.uint16), state=np.ones(count, np.uint8),
            entries=np.ones(count, np.uint8), members=members, names=tuple(names),
        )  # fmt: skip

    def delete(self, markers: Sequence[Marker]) -> list[Result]:
        self.maybe_dies()
        return [self._one(marker) for marker in markers]

    def _one(self, marker: Marker) -> Result:
        """Something happens, the owner is read, something happens again, and then the transaction with its checks."""
        world, number = self.world, marker.ledger
        self.meanwhile(marker)
        node = world.nodes.get(marker.owner)
        if number not in world.ledgers:
            return Result(number, "gone", "")
        if why := self.refuses(marker):
            return Result(number, "refused", why)
        read = node.version if node else -1
        self.meanwhile(marker)
        lost = not self.calm and world.random.random() < 0.1
        if lost and world.random.random() < 0.5:
            return Result(number, "unknown", "the connection was lost")
        if number not in world.ledgers:
            return Result(number, "unknown" if lost else "gone", "")
        if not self.holds(marker, read):
            return Result(number, "unknown" if lost else "refused", "what was read is another version")
        self.carry_out(marker)
        self.maybe_dies()
        return Result(number, "unknown" if lost else "deleted", "")

    def meanwhile(self, marker: Marker) -> None:
        if not self.calm and self.world.random.random() < 0.3:
            self.world.meanwhile(marker.owner, marker.ledger)
        self.maybe_dies()

    def refuses(self, marker: Marker) -> str:
        """What is not as it has to be when it is read afresh."""
        node, number = self.world.nodes.get(marker.owner), marker.ledger
        if node is None or number in node.listed:
            return "its owner is gone" if node is None else "it is listed"
        if not self.superseded(node, number):
            return "nothing later is listed"
        return "" if self.world.ledgers[number].version == marker.version else "its metadata were changed"

    def superseded(self, node: Node, number: int) -> bool:
        return any(other > number for other in node.listed)

    def holds(self, marker: Marker, read: int) -> bool:
        """Whether the transaction's checks hold; ``read``: the version of the owner's node that was read."""
        node = self.world.nodes.get(marker.owner)
        return node is not None and node.version == read and self.unchanged(marker)

    def unchanged(self, marker: Marker) -> bool:
        return self.world.ledgers[marker.ledger].version == marker.version

    def carry_out(self, marker: Marker) -> None:
        """The ledger is deleted, whether or not it may be."""
        world, number = self.world, marker.ledger
        for owner in OWNERS:
            if number in world.listed(owner) or world.created.get(owner) == number:
                raise Violation(f"ledger {number} is in use and was deleted")
        if not any(other > number for other in world.listed(marker.owner)):
            raise Violation(f"ledger {number} was deleted and its owner lists no later one")
        if world.ledgers[number].version != marker.version:
            raise Violation(f"ledger {number} was deleted at another version than was decided on")
        told = self.journal.records.get(ledger_key(number))
        if told is None or told["stage"] != Stage.DELETING:
            raise Violation(f"ledger {number} was deleted and the journal does not say that it was ordered")
        del world.ledgers[number]
        world.told(number, "deleted by Trueup")
        self.deleted.append(number)

    def held(self, asked: Mapping[int, Sequence[str]]) -> dict[int, dict[str, str]]:
        self.maybe_dies()
        return {i: {b: said for b in bookies if (said := self.answer(b, i))} for i, bookies in asked.items()}

    def answer(self, bookie: str, number: int) -> str:
        """What a bookie says that keeps a deletion from being confirmed."""
        if bookie in self.world.down:
            return "silent"
        return "held" if number in self.world.held[bookie] else ""

    def maybe_dies(self) -> None:
        if not self.calm and self.world.random.random() < 0.02:
            raise Crash


class Parts(NamedTuple):
    """What a simulation is made of; a defective one is put in their place."""

    connector: type[Connector] = Connector
    markers: type[Markers] = Markers
    bucket: type[OwnerBucket] = OwnerBucket


@dataclass
class Outcome:
    """What a seed came to."""

    seed: int
    deleted: int
    confirmed: int
    withdrawn: int
    crashes: int


class Simulation:
    """One seed."""

    def __init__(self, seed: int, parts: Parts = Parts()) -> None:  # noqa: B008 - it never changes
        self.seed, self.random, self.parts = seed, Random(seed), parts
        self.world, self.journal = World(self.random), Journal(self.random)
        self.connector = parts.connector(self.world, self.journal)
        self.stores = [MemoryStore() for _ in range(BUCKETS)]
        self.waiting: list[int | str] = []
        self.policy = Deletion(owners="pulsar", instance="x", mode="enforce", grace_s=GRACE_S, confirm_s=1, retry_s=1)
        self.ends: dict[str, int] = {}
        self.crashes = 0
        self.markers = self._begin()

    def _begin(self) -> Markers:
        made = self.parts.markers(
            self.connector, self.journal, lambda: self.policy, lambda: 1,  # type: ignore[arg-type]
            self._counted, lambda: self.world.now_ms, BUCKETS,
        )  # fmt: skip
        made.load()
        self._feed(made, asked=True)
        return made

    def _counted(self, stage: str, _length: int, _seconds: float) -> None:
        self.ends[stage] = self.ends.get(stage, 0) + 1

    def run(self) -> Outcome:
        try:
            for _ in range(STEPS):
                self._step()
            self._settle()
        except Violation as error:
            again = f"repeat with: python -m tests.simulation --deletion --seed {self.seed} --verbose"
            tail = "\n".join([again, *self.world.log[-30:]])
            raise Violation(f"seed {self.seed}: {error}\n{tail}") from error
        return Outcome(
            self.seed, len(self.connector.deleted), self.ends.get(Stage.CONFIRMED, 0),
            self.ends.get(Stage.WITHDRAWN, 0), self.crashes,
        )  # fmt: skip

    def _step(self) -> None:
        self.world.step()
        self.world.now_ms += self.random.choice((10, 500, 3_000, 40_000))
        if self.random.random() < 0.6:
            self._feed(self.markers)
        self._turn()

    def _turn(self) -> None:
        before, acting = dict(self.markers.markers), self.markers
        try:
            self.markers.turn()
        except Crash:
            self.crashes += 1
            self.markers = self._begin()
        self._check(acting, before)

    def _check(self, acting: Markers, before: Mapping[int, Marker]) -> None:
        """What is said of a ledger is so: gone when its metadata are, confirmed when nothing is left of it."""
        told = {int.from_bytes(key, "big"): value for key, value in self.journal.records.items() if value is not None}
        if acting is self.markers and not acting.obstacle and told.keys() != acting.markers.keys():
            raise Violation(f"the journal knows {sorted(told)} and the application {sorted(acting.markers)}")
        for entry in acting.history:
            if entry["outcome"] == Stage.GONE and entry["ledger"] in self.world.ledgers:
                raise Violation(f"ledger {entry['ledger']} is said to be gone and is there")
        for number in self.journal.confirmed:
            left = [b for b in self.world.ever[number] if number in self.world.held[b]]
            if number in self.world.ledgers or left:
                raise Violation(f"ledger {number} is confirmed gone and there: {left}")
        for number, marker in before.items():
            if marker.stage is Stage.GONE and number not in acting.markers and number in self.world.ledgers:
                raise Violation(f"ledger {number} is there and its marker is gone")

    def _feed(self, markers: Markers, asked: bool = False) -> None:
        """Some of what changed is seen, as it is now."""
        self.waiting += self.world.changed
        self.world.changed = []
        seen = [key for key in self.waiting if self.connector.calm or self.random.random() < 0.7]
        self.waiting = [key for key in self.waiting if key not in seen]
        for bucket, store in enumerate(self.stores):
            ledgers = self._ledgers(bucket, [key for key in seen if isinstance(key, int)])
            nodes = self._nodes(bucket, [key for key in seen if isinstance(key, str)])
            if not (len(ledgers) or len(nodes) or asked):
                continue
            found = self.parts.bucket(store).step(ledgers, nodes, asked)
            if found is not None:
                markers.hear(bucket, 1 if asked else -1, found)

    def _ledgers(self, bucket: int, keys: Sequence[int]) -> Table:
        rows, names = [], {"": 0}
        for number in keys:
            ledger = self.world.ledgers.get(number)
            if ledger is None:
                rows.append((number, self.world.zxid, 0, self.world.now_ms, -1, 0, -1, 0, 0, LedgerState.GONE, 0))
            elif OWNERS.index(ledger.owner) % BUCKETS == bucket:
                state = LedgerState.CLOSED if ledger.closed else LedgerState.OPEN
                owner = names.setdefault(ledger.owner, len(names))
                rows.append((
                    number, ledger.zxid, 1, self.world.now_ms, 3, 10, ledger.version, owner, 0, state, Component.DATA,
                ))  # fmt: skip
        return Table(np.array(rows, OWNED), tuple(names)) if rows else NO_LEDGERS

    def _nodes(self, bucket: int, keys: Sequence[str]) -> Table:
        made = []
        for owner in keys:
            if OWNERS.index(owner) % BUCKETS == bucket:
                node, world = self.world.nodes.get(owner), self.world
                made.append(
                    Pointers(owner, owner, "", Status.READABLE, node.version, node.zxid, world.now_ms,
                             tuple(node.listed))
                    if node else Pointers(owner, owner, "", Status.GONE, -1, world.zxid, world.now_ms)
                )  # fmt: skip
        return nodes_of(made) if made else NO_NODES

    def _settle(self) -> None:
        """The world stands still and all is well: what its owner forgot is gone everywhere, what is in use is there."""
        world = self.world
        self.connector.calm = self.journal.calm = True
        world.down.clear()
        for owner in OWNERS:
            world.list_it(owner)
        for _ in range(CALM):
            world.now_ms += 3_600_000
            for bookie in BOOKIES:
                world.held[bookie] &= set(world.ledgers)
            self._feed(self.markers)
            self._turn()
        wanted = dict(self._unreferenced())
        if superseded := sorted(number for number, rule in wanted.items() if rule == "deletion.forgotten"):
            raise Violation(f"forgotten and never deleted: {superseded}")
        found = {int(row["ledger"]): LEAK_RULES[int(row["rule"])].id for row, _, _ in self.markers.forgotten()}
        if found != wanted:
            raise Violation(f"the view says {found} and the cluster is {wanted}")
        if self.markers.markers:
            raise Violation(f"never ended: {list(self.markers.markers.values())}")
        if lost := sorted(set(self.connector.deleted) - self.journal.confirmed):
            raise Violation(f"deleted and never confirmed: {lost}")

    def _unreferenced(self) -> Iterator[tuple[int, str]]:
        """What is to be said of ledgers that nobody lists, and of what is listed and not there."""
        world = self.world
        for number, ledger in world.ledgers.items():
            listed = world.listed(ledger.owner)
            if ledger.owner not in world.nodes:
                yield number, "deletion.owner-gone"
            elif number not in listed:
                yield number, f"deletion.{'forgotten' if any(i > number for i in listed) else 'not-superseded'}"
        for owner in OWNERS:
            yield from ((i, "deletion.missing") for i in world.listed(owner) if i not in world.ledgers)


def simulate(seed: int, parts: Parts = Parts()) -> Outcome:  # noqa: B008 - it never changes
    """Run one seed. Raises `Violation`, which names it."""
    return Simulation(seed, parts).run()
