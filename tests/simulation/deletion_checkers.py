"""Invariants of deletion, checked against the true state of the cluster, and against the journal.

One race is allowed, as the transaction does not check the nodes of other owners: a reference of another owner that the
view has not folded yet.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from tests.simulation.checkers import Violation
from tests.simulation.journal import JournalLog
from tests.simulation.pulsar import CURSOR, Brokers
from tests.simulation.pulsar_session import PATHS
from tests.simulation.store import STORE
from trueup.connectors.pulsar.offload_index import pair_of
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.common.rules import Verdict
from trueup.state.deletion.lifecycle import Deletion, DeletionStage
from trueup.state.deletion.offloads import ObjectPair
from trueup.state.deletion.orphan_objects import LOST
from trueup.state.deletion.owned_ledgers import OwnedLedgerTable
from trueup.state.deletion.owners import Component
from trueup.state.deletion.rules import DROPPED, LEAK_RULES
from trueup.state.deletion.settings import DeletionSettings
from trueup.streams.deletion.reconciler import DeletionReconciler
from trueup.streams.deletion.topics import DELETIONS, ORPHANS
from trueup.streams.journal.codec import decode

KNOWN_RACES = True
"""Whether the deletion of a ledger that another owner began to reference a moment ago is allowed: see the limitations
in docs/deletion.md."""


class DeletionJournal:
    """What the topic of one loop says of each ledger. ``orders``: how often it says that a deletion was ordered."""

    def __init__(self, log: JournalLog, what: str) -> None:
        self._log, self._what, self._read = log, what, 0
        self.records: dict[int, Any] = {}
        self.orders, self.confirmed = Counter[int](), dict[int, tuple[str, ...]]()

    def follow(self) -> list[int]:
        """Read what is new; returns the ledgers whose deletions were confirmed."""
        bodies, confirmed = self._log.bodies[self._what], []
        if len(bodies) < self._read:
            self._read = 0
            self.records.clear()
        for key, body in bodies[self._read :]:
            ledger = int.from_bytes(key, "big")
            before = self.records.pop(ledger, None)
            if body is not None:
                self.records[ledger] = record = decode(self._what, body)
                ordered = record["stage"] == DeletionStage.DELETING
                self.orders[ledger] += ordered and (before is None or before["stage"] != DeletionStage.DELETING)
            elif before is not None and before["stage"] == DeletionStage.GONE:
                self.confirmed[ledger] = tuple(before["bookies"])
                confirmed.append(ledger)
        self._read = len(bodies)
        return confirmed


class DeletionCheckers:
    """All checks of one run. ``ends``: how often a deletion reached each stage."""

    def __init__(self, brokers: Brokers, log: JournalLog) -> None:
        self.brokers, self.world, self.bucket = brokers, brokers.world, brokers.bucket
        self.ledgers, self.objects = DeletionJournal(log, DELETIONS), DeletionJournal(log, ORPHANS)
        self.ends = Counter[str]()
        self.deleted: dict[int, frozenset[str]] = {}
        self.sent = Counter[int]()
        self.removed = 0
        self._approved: set[tuple[int, int]] = set()
        self._approved_places: set[str] = set()
        self._whole = frozenset[ObjectPair]()
        self._references: dict[str, tuple[int, frozenset[int]]] = {}

    # Reports of the process under test

    def counted(self, stage: str, _length: int, _seconds: float) -> None:
        self.ends[stage] += 1

    def approved_ledgers(self, deletions: Iterable[Deletion]) -> None:
        self._approved |= {(deletion.ledger, deletion.version) for deletion in deletions}

    def approved_objects(self, deletions: Iterable[Deletion]) -> None:
        self._approved_places |= {place for deletion in deletions for place in deletion.bookies}

    def folded(self, nodes: OwnedLedgerTable) -> None:
        """The view has folded these nodes."""
        at = 0
        for row in range(len(nodes)):
            path = nodes.text("path", row).removeprefix(f"{PATHS.ledgers}/")
            count, mzxid = int(nodes.rows["count"][row]), int(nodes.rows["mzxid"][row])
            listed = nodes.listed[at : at + count]
            at += count
            if mzxid >= self._references.get(path, (-1, frozenset()))[0]:
                used = frozenset(n for n, dropped in listed.tolist() if not dropped or not self.brokers.owns(path, n))
                self._references[path] = mzxid, used

    def forgotten(self) -> None:
        """The view was lost."""
        self._references.clear()

    # Acts

    def ordering(self, number: int) -> None:
        """Called before anything is sent for a deletion: the journal has an order for each attempt."""
        self.ledgers.follow()
        self.sent[number] += 1
        recorded = self.ledgers.records.get(number)
        if recorded is None or recorded["stage"] != DeletionStage.DELETING:
            raise Violation(f"ledger {number} is to be deleted and the journal does not say that it was ordered")
        if self.sent[number] > self.ledgers.orders[number]:
            raise Violation(f"ledger {number} is to be deleted twice for one order")

    def looking(self) -> None:
        """Called before the last read of a copy: no transaction covers an object that is lost after it."""
        self._whole = frozenset(copy.pair for _, _, copy in self.brokers.copies() if self.bucket.whole(copy.pair))

    def deleting(self, deletion: Deletion, policy: DeletionSettings, read_zxid: int) -> None:
        """Called before a transaction deletes a ledger. ``read_zxid``: the zxid at the last read of its owner's
        nodes."""
        number, ledger = deletion.ledger, self.world.ledgers[deletion.ledger]
        self._permitted(deletion, policy)
        self._referenced(deletion, read_zxid)
        if ledger.version != deletion.version:
            raise Violation(f"ledger {number} was deleted at another version than was decided on")
        claim = self.brokers.claims.get(number)
        if claim is None or claim.component is not Component.DATA:
            raise Violation(f"ledger {number} of {claim} was deleted")
        if ledger.unreadable or (not ledger.closed and (deletion.rule == DROPPED or self.brokers.writes(number))):
            raise Violation(f"ledger {number} was deleted while it was open or unreadable")
        self._needless(number, claim.owner)
        self.deleted[number] = frozenset(ledger.members)
        self.world.note(f"ledger {number}: Trueup deletes it")

    def _permitted(self, deletion: Deletion, policy: DeletionSettings) -> None:
        approved = (deletion.ledger, deletion.version) in self._approved
        if policy.mode == "observe" or policy.paused or (policy.mode == "approve" and not approved):
            how = "paused" if policy.paused else f"in mode {policy.mode}, approved: {approved}"
            raise Violation(f"ledger {deletion.ledger} was deleted {how}")

    def _referenced(self, deletion: Deletion, read_zxid: int) -> None:
        number, mine = deletion.ledger, (deletion.owner, f"{deletion.owner}/{CURSOR}")
        for path in self.brokers.users(number):
            known = number in self._references.get(path, (-1, frozenset[int]()))[1]
            cursor = self.brokers.cursors.get(deletion.owner) if path == mine[1] else None
            late = cursor.zxid > read_zxid if cursor else path not in mine and not known
            if not (late and KNOWN_RACES):
                raise Violation(f"ledger {number} is in use by {path} and was deleted")
            self.world.note(f"ledger {number}: the view does not know that {path} references it")
        if number in self.brokers.created.values():
            raise Violation(f"ledger {number} is in use and was deleted")

    def _needless(self, number: int, owner: str) -> None:
        """Its owner reads it from a copy, or has gone on without it."""
        node = self.brokers.nodes.get(owner)
        copy = self.brokers.copy_of(owner, number)
        if copy and copy.dropped and not self.bucket.whole(copy.pair) and copy.pair not in self._whole:
            raise Violation(f"ledger {number} was deleted and its copy is not whole")
        dropped = node is not None and number in node.ledgers and node.ledgers[number].dropped
        if not dropped and not (node and any(other > number for other in node.ledgers)):
            raise Violation(f"ledger {number} was deleted and its owner lists no later one")

    def deleting_object(self, key: str, policy: DeletionSettings) -> None:
        """Called before an object or an upload is deleted. Brokers read an object that any node references."""
        named = pair_of(key)
        assert named is not None
        for owner, _, copy in self.brokers.copies():
            if copy.pair == named[0]:
                raise Violation(f"object {key} is in use by {owner} and was deleted")
        self.objects.follow()
        recorded = self.objects.records.get(named[0].ledger)
        if recorded is None or recorded["stage"] != DeletionStage.DELETING or not recorded["approved"]:
            raise Violation(f"object {key} was deleted and nobody said yes")
        places = {f"{STORE}/{key}", f"{STORE}/{key}?uploadId=1"}
        if policy.mode == "observe" or policy.paused or not places & self._approved_places:
            raise Violation(f"object {key} was deleted in mode {policy.mode}, paused: {policy.paused}, or not approved")
        self.removed += 1
        self.world.note(f"{key}: Trueup deletes it")

    # Reported stages

    def holders(self, number: int) -> Collection[str]:
        """The bookies that have entries of a ledger."""
        ledger = self.world.ledgers.get(number)
        if ledger is None:
            return self.world.remains.get(number, {})
        return {bookie for fragment in ledger.fragments for bookie in fragment.holders}

    def reported(self, acting: DeletionReconciler, before: Mapping[int, Deletion]) -> None:
        """The reported stage is correct: gone after the metadata were deleted, confirmed after no copy is left."""
        for number in self.ledgers.follow():
            asked = {*self.ledgers.confirmed[number], *self.deleted.get(number, ())}
            bookies = [self.world.bookies[b] for b in self.holders(number) if b in asked]
            left = [bookie.id for bookie in bookies if bookie.cookie and not bookie.returned]
            if number in self.world.ledgers or left:
                raise Violation(f"ledger {number} is confirmed gone and there: {left}")
        if not acting.blocked_reason and self.ledgers.records.keys() != acting.deletions.keys():
            known = sorted(self.ledgers.records)
            raise Violation(f"the journal knows {known} and the application {sorted(acting.deletions)}")
        for entry in acting.history.rows():
            if entry.outcome == DeletionStage.GONE and entry.ledger in self.world.ledgers:
                raise Violation(f"ledger {entry.ledger} is said to be gone and is there")
        for number, deletion in before.items():
            ended = deletion.stage is DeletionStage.GONE and number not in acting.deletions
            if ended and number in self.world.ledgers:
                raise Violation(f"ledger {number} is there and its deletion is gone")

    # The end

    def settled(self, acting: DeletionReconciler) -> None:
        """Without further changes and faults: unreferenced ledgers are deleted everywhere, and the view equals the
        world."""
        self.found(acting)
        wanted = dict(self._unreferenced())
        broken = {number for number, rule in wanted.items() if rule == DROPPED and not self._copied(number)}
        over = {number for number, rule in wanted.items() if LEAK_RULES[_CODES[rule]].verdict == Verdict.DRIFTED}
        if superseded := sorted(over - broken):
            raise Violation(f"forgotten and never deleted: {superseded}")
        deletions = acting.deletions
        ended = {m.ledger for m in deletions.values() if m.stage is DeletionStage.BLOCKED and m.detail} & broken
        if deletions.keys() != ended or ended != broken:
            raise Violation(f"never ended: {list(deletions.values())}, without a copy: {sorted(broken)}")
        if lost := sorted(self.deleted.keys() - self.ledgers.confirmed.keys()):
            raise Violation(f"deleted and never confirmed: {lost}")

    def found(self, acting: DeletionReconciler) -> None:
        """The view equals the world."""
        rows = ((int(row["ledger"]), LEAK_RULES[int(row["rule"])].id) for row, _, _ in acting.forgotten())
        found, wanted = dict(rows), dict(self._unreferenced())
        if found != wanted:
            raise Violation(f"the view says {found} and the cluster is {wanted}")

    def _copied(self, number: int) -> bool:
        """Whether a ledger that counts as deleted has a complete copy."""
        copy = self.brokers.copy_of(self.brokers.claims[number].owner, number)
        return copy is not None and self.bucket.whole(copy.pair)

    def settled_objects(self, reconciler: DeletionReconciler) -> None:
        """Orphan objects are deleted if their owner can be read, and reported otherwise."""
        used = {copy.pair for _, _, copy in self.brokers.copies()}
        recorded = {int(row["ledger"]): LEAK_RULES[int(row["rule"])] for row, _, _ in reconciler.forgotten()}
        for key in [*self.bucket.objects, *self.bucket.uploads]:
            named = pair_of(key)
            assert named is not None
            rule = recorded.get(named[0].ledger)
            # Objects beside a lost copy may be the only data left.
            if named[0] not in used and (rule is None or rule.verdict == Verdict.DRIFTED):
                raise Violation(f"object {key} is forgotten and never deleted: {rule and rule.id}")
            if named[0] not in used and rule.id != LOST and self._owned(named[0].ledger, used):
                raise Violation(f"object {key} has an owner and is reported as {rule.id}")

    def _owned(self, number: int, used: Collection[ObjectPair]) -> bool:
        """Whether the unreferenced objects of a ledger name one owner, which exists, and no other one lists the ledger.
        Uploads name none."""
        listers = {owner for owner, node in self.brokers.nodes.items() if number in node.ledgers}
        named = {
            stored.owner
            for key, stored in self.bucket.objects.items()
            if (pair := pair_of(key)) and pair[0].ledger == number and pair[0] not in used
        }
        owners = named or listers
        return len(owners) == 1 and owners <= self.brokers.nodes.keys() and listers <= owners

    def _unreferenced(self) -> Iterator[tuple[int, str]]:
        """Expected findings: ledgers that no node references, and listed ledgers that are missing."""
        brokers, world = self.brokers, self.world
        for number in world.ledgers:
            if not brokers.users(number):
                yield number, f"deletion.{self._rule(number)}"
        for node in brokers.nodes.values():
            for number, listed in node.ledgers.items():
                if number not in world.ledgers and not listed.dropped:
                    yield number, "deletion.missing"

    def _rule(self, number: int) -> str:
        ledger, claim = self.world.ledgers[number], self.brokers.claims.get(number)
        if claim is None:
            return _UNKNOWN_OWNER.removeprefix("deletion.")
        node = self.brokers.nodes.get(claim.owner)
        if node is not None and number in node.ledgers:
            return DROPPED.removeprefix("deletion.")
        if claim.component is Component.CURSOR:
            return "cursor"
        if node is None:
            return "owner-gone"
        if ledger.unreadable or not any(other > number for other in node.ledgers):
            return "not-superseded"
        empty = ledger.state == LedgerState.CLOSED and len(ledger.fragments) == 1 and ledger.hollow(0)
        return "forgotten-empty" if empty else "forgotten"


_UNKNOWN_OWNER = "deletion.unknown-owner"
_CODES = {rule.id: code for code, rule in enumerate(LEAK_RULES)}
