"""Trueup's deletion over the simulated world: the real view, the real deletions, and faults between them.

Observations arrive late, in portions and in any order between keys. The application crashes between any two of its
steps and restarts from its journal and its checkpoint. The connector is a model of the guarded transaction.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, NamedTuple

import numpy as np

from tests.journals import newest
from tests.memory_store import MemoryStore
from tests.simulation.checkers import Violation
from tests.simulation.deletion.shelf import CLUSTER, Asked, Shelf
from tests.simulation.deletion.world import BOOKIES, OWNERS, Node, World
from trueup.connectors.pulsar.offload_index import pair_of
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.common.errors import Retry
from trueup.state.deletion.lifecycle import Deletion, DeletionStage
from trueup.state.deletion.offloads import ObjectPair
from trueup.state.deletion.orphan_objects import LOST
from trueup.state.deletion.owned_ledgers import NO_LEDGERS, NO_NODES, OWNED, OwnedLedgerTable, nodes_of
from trueup.state.deletion.owners import Component, OwnerStatus, Pointers
from trueup.state.deletion.rules import DROPPED, LEAK_RULES
from trueup.state.deletion.settings import DeletionSettings
from trueup.state.deletion.stores import StoreSettings
from trueup.state.deletion.view import OwnerBucket
from trueup.streams.config.live import LiveSection
from trueup.streams.deletion.orphan_objects import OrphanObjects
from trueup.streams.deletion.reconciler import DeletionReconciler
from trueup.streams.deletion.target import DeletionItem, DeletionResult
from trueup.streams.journal.codec import ledger_key

STEPS, BUCKETS = 60, 2
GRACE_S = 20.0
CALM = 12  # turns until all work must be complete


class Crash(BaseException):
    """Crash of the application."""


class Journal:
    """An in-memory topic whose puts fail now and then, possibly after some records were written. ``confirmed``: ledgers
    whose deletions ended after their metadata were deleted."""

    def __init__(self, random: Random) -> None:
        self.random, self.records, self.calm = random, dict[bytes, Any](), False
        self.confirmed: set[int] = set()

    def put(self, records: Sequence[tuple[str, bytes, Any]]) -> None:
        fails = not self.calm and self.random.random() < 0.05
        taken = self.random.randrange(len(records)) if fails else len(records)
        for _, key, value in records[:taken]:
            before, self.records[key] = self.records.get(key), value
            if value is None and before is not None and before["stage"] == DeletionStage.GONE:
                self.confirmed.add(int.from_bytes(key, "big"))
        if fails:
            raise Retry("the journal", f"{taken} of {len(records)} taken", "again")

    def newest(self, what: str) -> dict[bytes, Any]:
        return newest(what, self.records)


class Connector:
    """Implements `streams.deletion.target.DeletionTarget` over the world."""

    def __init__(self, world: World, journal: Journal) -> None:
        self.world, self.journal, self.calm = world, journal, False
        self.deleted: list[int] = []

    def blocked_reason(self) -> str:
        return ""

    def seek(self, owners: Collection[str]) -> None:
        pass

    def absent(self, ledgers: Sequence[int]) -> set[int]:
        return set(ledgers) - self.world.ledgers.keys()

    def find(self, ledgers: Sequence[int]) -> dict[int, DeletionItem]:
        self.maybe_dies()
        there = self.world.ledgers
        return {i: DeletionItem(there[i].version, tuple(sorted(set(there[i].bookies)))) for i in ledgers if i in there}

    def delete(self, deletions: Sequence[Deletion]) -> list[DeletionResult]:
        self.maybe_dies()
        return [self._one(deletion) for deletion in deletions]

    def check(self, deletions: Sequence[Deletion]) -> list[DeletionResult]:
        self.maybe_dies()
        return [self._look(deletion) for deletion in deletions]

    def _look(self, deletion: Deletion) -> DeletionResult:
        if deletion.ledger not in self.world.ledgers:
            return DeletionResult(deletion.ledger, "gone", "")
        why = self.refuses(deletion) or self.unverified(deletion)
        return DeletionResult(deletion.ledger, "refused" if why else "ready", why)

    def _one(self, deletion: Deletion) -> DeletionResult:
        """An event, the read of the owner, another event, then the transaction with its checks."""
        world, number = self.world, deletion.ledger
        self.meanwhile(deletion)
        node = world.nodes.get(deletion.owner)
        if number not in world.ledgers:
            return DeletionResult(number, "gone", "")
        if why := self.refuses(deletion) or self.unverified(deletion):
            return DeletionResult(number, "refused", why)
        read = node.version if node else -1
        self.meanwhile(deletion)
        lost = not self.calm and world.random.random() < 0.1
        if lost and world.random.random() < 0.5:
            return DeletionResult(number, "unknown", "the connection was lost")
        if number not in world.ledgers:
            return DeletionResult(number, "unknown" if lost else "gone", "")
        if not self.holds(deletion, read):
            return DeletionResult(number, "unknown" if lost else "refused", "what was read is another version")
        self.execute(deletion)
        self.maybe_dies()
        return DeletionResult(number, "unknown" if lost else "deleted", "")

    def meanwhile(self, deletion: Deletion) -> None:
        if not self.calm and self.world.random.random() < 0.3:
            self.world.meanwhile(deletion.owner, deletion.ledger)
        self.maybe_dies()

    def refuses(self, deletion: Deletion) -> str:
        """The precondition that a fresh read does not satisfy."""
        node, number = self.world.nodes.get(deletion.owner), deletion.ledger
        if node is None:
            return "its owner is gone"
        if deletion.rule == DROPPED:
            if not self.dropped(node, number):
                return "its owner does not count it as deleted"
        elif number in node.listed or not self.superseded(node, number):
            return "it is listed" if number in node.listed else "nothing later is listed"
        return "" if self.world.ledgers[number].version == deletion.version else "its metadata were changed"

    def dropped(self, node: Node, number: int) -> bool:
        return number in node.listed and number in node.copies and node.copies[number].dropped

    def unverified(self, deletion: Deletion) -> str:
        """The defect of the copy that a deletion depends on."""
        if deletion.rule != DROPPED:
            return ""
        return "" if self.verified(self.world.nodes[deletion.owner].copies[deletion.ledger].pair) else "it is not whole"

    def verified(self, pair: ObjectPair) -> bool:
        return self.world.whole(pair)

    def superseded(self, node: Node, number: int) -> bool:
        return any(other > number for other in node.listed)

    def holds(self, deletion: Deletion, read: int) -> bool:
        """Whether the transaction's checks pass. ``read``: the version of the owner's node that was read."""
        node = self.world.nodes.get(deletion.owner)
        return node is not None and node.version == read and self.unchanged(deletion)

    def unchanged(self, deletion: Deletion) -> bool:
        return self.world.ledgers[deletion.ledger].version == deletion.version

    def execute(self, deletion: Deletion) -> None:
        """Delete the ledger, even if that is a violation."""
        world, number = self.world, deletion.ledger
        copies = [node.copies[number] for node in world.nodes.values() if number in node.copies]
        for copied in copies:
            if copied.dropped and not world.whole(copied.pair):
                raise Violation(f"ledger {number} was deleted and its copy is not whole")
        dropped = any(copied.dropped for copied in copies)
        for owner in OWNERS:
            if (number in world.listed(owner) and not dropped) or world.created.get(owner) == number:
                raise Violation(f"ledger {number} is in use and was deleted")
        if not dropped and not any(other > number for other in world.listed(deletion.owner)):
            raise Violation(f"ledger {number} was deleted and its owner lists no later one")
        if world.ledgers[number].version != deletion.version:
            raise Violation(f"ledger {number} was deleted at another version than was decided on")
        recorded = self.journal.records.get(ledger_key(number))
        if recorded is None or recorded["stage"] != DeletionStage.DELETING:
            raise Violation(f"ledger {number} was deleted and the journal does not say that it was ordered")
        del world.ledgers[number]
        world.note_change(number, "deleted by Trueup")
        self.deleted.append(number)

    def held(self, asked: Mapping[int, Sequence[str]]) -> dict[int, dict[str, str]]:
        self.maybe_dies()
        return {i: {b: result for b in bookies if (result := self.answer(b, i))} for i, bookies in asked.items()}

    def answer(self, bookie: str, number: int) -> str:
        """The bookie's response that prevents confirmation of a deletion."""
        if bookie in self.world.down:
            return "silent"
        return "held" if number in self.world.held[bookie] else ""

    def maybe_dies(self) -> None:
        if not self.calm and self.world.random.random() < 0.02:
            raise Crash


class Parts(NamedTuple):
    """The components of a simulation, which tests replace by defective ones."""

    connector: type[Connector] = Connector
    deletions: type[DeletionReconciler] = DeletionReconciler
    bucket: type[OwnerBucket] = OwnerBucket
    asked: type[Asked] = Asked
    orphans: type[OrphanObjects] = OrphanObjects


@dataclass
class Outcome:
    """The result of a seed."""

    seed: int
    deleted: int
    confirmed: int
    withdrawn: int
    crashes: int
    objects: int


class Simulation:
    """The simulation of one seed."""

    def __init__(self, seed: int, parts: Parts = Parts()) -> None:  # noqa: B008 - immutable
        self.seed, self.random, self.parts = seed, Random(seed), parts
        self.world, self.journal = World(self.random), Journal(self.random)
        self.connector = parts.connector(self.world, self.journal)
        self.stores = [MemoryStore() for _ in range(BUCKETS)]
        self.waiting: list[int | str] = []
        self.policy = DeletionSettings(
            owners="pulsar", instance="x", mode="enforce", grace_s=GRACE_S, confirm_s=1, retry_s=1, missing_s=0
        )
        self.object_journal = Journal(self.random)
        self.shelf = Shelf(self.world, self.object_journal.records, self.random)
        self.ends: dict[str, int] = {}
        self.crashes = 0
        self.deletions, self.orphans = self._begin(), self._begin_orphans()

    def _begin_orphans(self) -> OrphanObjects:
        made = self.parts.orphans(
            {"shelf": self.shelf},
            {"shelf": StoreSettings("shelf", cluster=CLUSTER, list_s=1)},  # type: ignore[dict-item]
            self.parts.asked(self.world, self.shelf),
            self.object_journal,
            LiveSection(lambda: self.policy),  # type: ignore[arg-type]
            lambda *_: None,
            lambda: self.world.now_ms,
        )
        made.load()
        return made

    def _begin(self) -> DeletionReconciler:
        made = self.parts.deletions(
            self.connector,
            self.journal,
            LiveSection(lambda: self.policy),
            lambda: 1,  # type: ignore[arg-type]
            self._counted,
            lambda: self.world.now_ms,
            BUCKETS,
            self.connector.check,
        )
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
            self.seed,
            len(self.connector.deleted),
            self.ends.get(DeletionStage.CONFIRMED, 0),
            self.ends.get(DeletionStage.WITHDRAWN, 0),
            self.crashes,
            self.shelf.deleted,
        )

    def _step(self) -> None:
        self.world.step()
        self.world.spoil()
        for deletion in self.deletions.deletions.values():
            node = self.world.nodes.get(deletion.owner)
            if (
                deletion.stage is DeletionStage.MARKED
                and node
                and deletion.ledger in node.copies
                and self.random.random() < 0.3
            ):
                self.world.spoil(node.copies[deletion.ledger].pair.data_key)
        self.policy = replace(self.policy, paused=self.random.random() < 0.3)
        self.world.now_ms += self.random.choice((10, 500, 3_000, 40_000))
        if self.random.random() < 0.6:
            self._feed(self.deletions)
        self._reconcile()
        self._approve()

    def _approve(self) -> None:
        """Now and then an operator approves the pending deletions, and the application may crash."""
        try:
            self.orphans.reconcile()
            waiting = [m.ledger for m in self.orphans.reconciler.deletions.values() if m.stage is DeletionStage.MARKED]
            if waiting and (self.connector.calm or self.random.random() < 0.3):
                self.orphans.reconciler.approve(waiting)
        except Retry:
            pass
        if not self.connector.calm and self.random.random() < 0.05:
            self.orphans = self._begin_orphans()

    def _reconcile(self) -> None:
        before, acting = dict(self.deletions.deletions), self.deletions
        try:
            self.deletions.reconcile()
        except Crash:
            self.crashes += 1
            self.deletions = self._begin()
        self._check(acting, before)

    def _check(self, acting: DeletionReconciler, before: Mapping[int, Deletion]) -> None:
        """The reported stage is correct: gone after the metadata were deleted, confirmed after no copy is left."""
        recorded = {
            int.from_bytes(key, "big"): value for key, value in self.journal.records.items() if value is not None
        }
        if acting is self.deletions and not acting.blocked_reason and recorded.keys() != acting.deletions.keys():
            raise Violation(f"the journal knows {sorted(recorded)} and the application {sorted(acting.deletions)}")
        for entry in acting.history.rows():
            if entry.outcome == DeletionStage.GONE and entry.ledger in self.world.ledgers:
                raise Violation(f"ledger {entry.ledger} is said to be gone and is there")
        for number in self.journal.confirmed:
            left = [b for b in self.world.ever[number] if number in self.world.held[b]]
            if number in self.world.ledgers or left:
                raise Violation(f"ledger {number} is confirmed gone and there: {left}")
        for number, deletion in before.items():
            if deletion.stage is DeletionStage.GONE and number not in acting.deletions and number in self.world.ledgers:
                raise Violation(f"ledger {number} is there and its deletion is gone")

    def _feed(self, deletions: DeletionReconciler, asked: bool = False) -> None:
        """Some changes are observed, with the current values."""
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
                deletions.apply(bucket, 1 if asked else -1, found)

    def _ledgers(self, bucket: int, keys: Sequence[int]) -> OwnedLedgerTable:
        rows, names = [], {"": 0}
        for number in keys:
            ledger = self.world.ledgers.get(number)
            if ledger is None:
                rows.append((number, self.world.zxid, 0, self.world.now_ms, -1, 0, -1, 0, 0, LedgerState.GONE, 0))
            elif OWNERS.index(ledger.owner) % BUCKETS == bucket:
                state = LedgerState.CLOSED if ledger.closed else LedgerState.OPEN
                owner = names.setdefault(ledger.owner, len(names))
                rows.append(
                    (number, ledger.zxid, 1, self.world.now_ms, 3, 10, ledger.version, owner, 0, state, Component.DATA)
                )
        return OwnedLedgerTable(np.array(rows, OWNED), tuple(names)) if rows else NO_LEDGERS

    def _nodes(self, bucket: int, keys: Sequence[str]) -> OwnedLedgerTable:
        made = []
        for owner in keys:
            if OWNERS.index(owner) % BUCKETS == bucket:
                node, world = self.world.nodes.get(owner), self.world
                made.append(
                    Pointers(
                        owner,
                        owner,
                        "",
                        OwnerStatus.READABLE,
                        node.version,
                        node.zxid,
                        world.now_ms,
                        tuple(node.listed),
                        tuple(i for i in node.listed if self.connector.dropped(node, i)),
                    )
                    if node
                    else Pointers(owner, owner, "", OwnerStatus.GONE, -1, world.zxid, world.now_ms)
                )
        return nodes_of(made) if made else NO_NODES

    def _settle(self) -> None:
        """Without further changes and faults: unreferenced ledgers are deleted everywhere, ledgers in use exist."""
        world, self.policy = self.world, replace(self.policy, paused=False)
        self.connector.calm = self.journal.calm = self.shelf.calm = self.object_journal.calm = True
        world.down.clear()
        for owner in OWNERS:
            world.list_it(owner)
        for _ in range(CALM):
            world.now_ms += 3_600_000
            for bookie in BOOKIES:
                world.held[bookie] &= set(world.ledgers)
            self._feed(self.deletions)
            self._reconcile()
            self._approve()
        self._settled_objects()
        wanted = dict(self._unreferenced())
        broken = {number for number, rule in wanted.items() if rule == DROPPED and not self._copied(number)}
        over = {number for number, rule in wanted.items() if rule in ("deletion.forgotten", DROPPED)} - broken
        if superseded := sorted(over):
            raise Violation(f"forgotten and never deleted: {superseded}")
        found = {int(row["ledger"]): LEAK_RULES[int(row["rule"])].id for row, _, _ in self.deletions.forgotten()}
        if found != wanted:
            raise Violation(f"the view says {found} and the cluster is {wanted}")
        ended = {
            m.ledger for m in self.deletions.deletions.values() if m.stage is DeletionStage.BLOCKED and m.detail
        } & broken
        if self.deletions.deletions.keys() != ended or ended != broken:
            raise Violation(f"never ended: {list(self.deletions.deletions.values())}, without a copy: {sorted(broken)}")
        if lost := sorted(set(self.connector.deleted) - self.journal.confirmed):
            raise Violation(f"deleted and never confirmed: {lost}")

    def _copied(self, number: int) -> bool:
        """Whether a ledger that counts as deleted has a complete copy."""
        (copied,) = (node.copies[number] for node in self.world.nodes.values() if number in node.copies)
        return self.world.whole(copied.pair)

    def _settled_objects(self) -> None:
        """Orphan objects are deleted if their owner can be queried, and reported otherwise."""
        used = {copied.pair for node in self.world.nodes.values() for copied in node.copies.values()}
        for key in [*self.world.objects, *self.world.uploads]:
            pair = pair_of(key)
            assert pair is not None
            owner = self.world.objects[key].owner if key in self.world.objects else self._lister(pair[0].ledger)
            recorded = {
                int(row["ledger"]): LEAK_RULES[int(row["rule"])].id for row, _, _ in self.orphans.reconciler.forgotten()
            }
            # Objects beside a lost copy may be the only data left.
            stays = owner not in self.world.nodes or recorded.get(pair[0].ledger) == LOST
            if pair[0] not in used and not (stays and pair[0].ledger in recorded):
                raise Violation(f"object {key} of {owner} is forgotten and never deleted")

    def _lister(self, ledger: int) -> str:
        return next((owner for owner in OWNERS if ledger in self.world.listed(owner)), "")

    def _unreferenced(self) -> Iterator[tuple[int, str]]:
        """Expected findings: ledgers that no owner lists, and listed ledgers that are missing."""
        world = self.world
        for number, ledger in world.ledgers.items():
            listed = world.listed(ledger.owner)
            if ledger.owner not in world.nodes:
                yield number, "deletion.owner-gone"
            elif self.connector.dropped(world.nodes[ledger.owner], number):
                yield number, DROPPED
            elif number not in listed:
                yield number, f"deletion.{'forgotten' if any(i > number for i in listed) else 'not-superseded'}"
        for owner in OWNERS:
            gone = [i for i in world.listed(owner) if i not in world.ledgers]
            yield from ((i, "deletion.missing") for i in gone if not self.connector.dropped(world.nodes[owner], i))


def simulate(seed: int, parts: Parts = Parts()) -> Outcome:  # noqa: B008 - immutable
    """Run one seed. Raises `Violation`, which contains the seed."""
    return Simulation(seed, parts).run()
