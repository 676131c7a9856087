"""What deletion acts on: a model of the guarded transaction, and the owners as ZooKeeper has them now.

Events of brokers and workers happen between the reads and the transaction.
"""

from collections.abc import Collection, Mapping, Sequence

from tests.simulation.deletion_checkers import DeletionCheckers
from tests.simulation.instances import Leader
from tests.simulation.owner_capture import OwnerCapture
from tests.simulation.pulsar import Brokers, OwnerNode
from tests.simulation.pulsar_session import PATHS, Session
from tests.simulation.surroundings import columns
from trueup.connectors.pulsar import orphan_objects
from trueup.connectors.pulsar.queries import owned
from trueup.state.bookkeeper.ledgers import concat
from trueup.state.common.errors import TrueupError, ended
from trueup.state.deletion.lifecycle import Deletion
from trueup.state.deletion.offloads import ObjectPair
from trueup.state.deletion.orphan_objects import Referenced
from trueup.state.deletion.owners import Pointers
from trueup.state.deletion.rules import DROPPED
from trueup.state.deletion.settings import DeletionSettings
from trueup.streams.config.live import LiveSection
from trueup.streams.deletion.target import DeletionItem, DeletionResult, items_of


class Connector:
    """Implements `streams.deletion.target.DeletionTarget` over the world."""

    def __init__(
        self,
        brokers: Brokers,
        leader: Leader,
        capture: OwnerCapture,
        policy: LiveSection[DeletionSettings],
        checkers: DeletionCheckers,
    ) -> None:
        self.brokers, self.world, self.leader, self.faults = brokers, brokers.world, leader, leader.faults
        self.capture, self.policy, self.checkers = capture, policy, checkers

    def blocked_reason(self) -> str:
        return self.capture.blocked_reason()

    def seek(self, owners: Collection[str]) -> None:
        self.capture.seek(owners)

    def absent(self, ledgers: Sequence[int]) -> set[int]:
        self.faults.acting()
        return set(ledgers) - self.world.ledgers.keys()

    def find(self, ledgers: Sequence[int]) -> dict[int, DeletionItem]:
        self.faults.acting()
        there = [columns(self.world.ledgers[i], self.world.now_ms) for i in ledgers if i in self.world.ledgers]
        return items_of(concat(there)) if there else {}

    def delete(self, deletions: Sequence[Deletion]) -> list[DeletionResult]:
        self.faults.seam()
        return [self._one(deletion) for deletion in deletions]

    def check(self, deletions: Sequence[Deletion]) -> list[DeletionResult]:
        self.faults.acting()
        return [self._look(deletion) for deletion in deletions]

    def _look(self, deletion: Deletion) -> DeletionResult:
        if deletion.ledger not in self.world.ledgers:
            return DeletionResult(deletion.ledger, "gone", "")
        why = self.refuses(deletion) or self.unverified(deletion)
        return DeletionResult(deletion.ledger, "refused" if why else "ready", why)

    def _one(self, deletion: Deletion) -> DeletionResult:
        """Two reads that must find the same nodes, then the transaction with its checks; events in between."""
        number = deletion.ledger
        self.checkers.ordering(number)
        if self.faults.refused:
            return DeletionResult(number, "retry", "connection refused")
        self.meanwhile(deletion)
        first = self._look(deletion)
        read = self.seen(deletion)
        self.meanwhile(deletion)
        self.checkers.looking()
        second = self._look(deletion)
        if "ready" not in {first.result} & {second.result}:
            return second if first.result == "ready" else first
        if self.seen(deletion) != read:
            return DeletionResult(number, "refused", "other nodes than just read")
        read_zxid, version = self.world.zxid, self._owner_version(deletion)
        self.meanwhile(deletion)
        return self._commit(deletion, version, read_zxid)

    def _commit(self, deletion: Deletion, version: int, read_zxid: int) -> DeletionResult:
        number, lost = deletion.ledger, self.faults.answer_lost()
        if lost and self.faults.happens(0.5):
            return DeletionResult(number, "unknown", "the connection was lost")
        try:
            self.leader.act()
        except TrueupError as error:
            return DeletionResult(number, ended(error), str(error))
        if number not in self.world.ledgers:
            return DeletionResult(number, "unknown" if lost else "gone", "")
        if not self.holds(deletion, version):
            return DeletionResult(number, "unknown" if lost else "refused", "what was read is another version")
        self.checkers.deleting(deletion, self.policy.current, read_zxid)
        self.world.delete(number)
        self.faults.seam()
        return DeletionResult(number, "unknown" if lost else "deleted", "")

    def meanwhile(self, deletion: Deletion) -> None:
        if self.faults.happens(0.2):
            self.brokers.meanwhile(deletion.owner, deletion.ledger)
        self.faults.seam()

    def seen(self, deletion: Deletion) -> tuple[int, int]:
        """The zxids of the last writes of the nodes of the owner and of the ledger."""
        node, ledger = self.brokers.nodes.get(deletion.owner), self.world.ledgers.get(deletion.ledger)
        return node.zxid if node else -1, ledger.mzxid if ledger else -1

    def _owner_version(self, deletion: Deletion) -> int:
        node = self.brokers.nodes.get(deletion.owner)
        return node.version if node else -1

    def refuses(self, deletion: Deletion) -> str:
        """The precondition that a fresh read does not satisfy."""
        node, number = self.brokers.nodes.get(deletion.owner), deletion.ledger
        if node is None:
            return "its owner is gone"
        cursor = self.brokers.cursors.get(deletion.owner)
        if cursor and number in cursor.listed:
            return "a cursor references it"
        if deletion.rule == DROPPED:
            if not self.dropped(node, number):
                return "its owner does not record it as deleted"
        elif number in node.ledgers or not self.superseded(node, number):
            return "it is listed" if number in node.ledgers else "nothing later is listed"
        return self.changed(deletion)

    def changed(self, deletion: Deletion) -> str:
        """What differs in the metadata of the ledger."""
        ledger = self.world.ledgers[deletion.ledger]
        if ledger.unreadable or (deletion.rule == DROPPED and not ledger.closed):
            return f"it is {'unreadable' if ledger.unreadable else 'open'}"
        return "" if ledger.version == deletion.version else "its metadata were changed"

    def dropped(self, node: OwnerNode, number: int) -> bool:
        return number in node.ledgers and node.ledgers[number].dropped

    def unverified(self, deletion: Deletion) -> str:
        """The defect of the copy that a deletion depends on."""
        if deletion.rule != DROPPED:
            return ""
        pair = self.pair(deletion)
        return "" if pair and self.verified(pair) else "it is not whole"

    def pair(self, deletion: Deletion) -> ObjectPair | None:
        """The objects of the copy that the owner records."""
        copy = self.brokers.copy_of(deletion.owner, deletion.ledger)
        return copy.pair if copy else None

    def verified(self, pair: ObjectPair) -> bool:
        return self.brokers.bucket.whole(pair)

    def superseded(self, node: OwnerNode, number: int) -> bool:
        return any(other > number for other in node.ledgers)

    def holds(self, deletion: Deletion, version: int) -> bool:
        """Whether the transaction's checks pass. ``version``: the one of the owner's node that was read."""
        return self._owner_version(deletion) == version and self.unchanged(deletion)

    def unchanged(self, deletion: Deletion) -> bool:
        return self.world.ledgers[deletion.ledger].version == deletion.version

    def held(self, asked: Mapping[int, Sequence[str]]) -> dict[int, dict[str, str]]:
        self.faults.acting()
        return {i: {b: result for b in bookies if (result := self.answer(b, i))} for i, bookies in asked.items()}

    def answer(self, bookie: str, number: int) -> str:
        """The response of a bookie that prevents confirmation. A decommissioned bookie returns empty."""
        if not self.world.up(bookie):
            return "no response" if self.world.bookies[bookie].cookie else ""
        return "still has it" if bookie in self.checkers.holders(number) else ""


class CurrentOwners:
    """Implements `streams.deletion.orphan_objects.ObjectOwners` over the world, which changes during every query."""

    def __init__(self, session: Session, capture: OwnerCapture) -> None:
        self.session, self.capture = session, capture

    def referenced(self) -> Referenced:
        return orphan_objects.referenced(self.session, PATHS)  # type: ignore[arg-type]

    def nodes(self, owner: str) -> list[Pointers]:
        return owned(self.session, PATHS, [owner], 1)[owner]  # type: ignore[arg-type]

    def unread(self) -> str:
        return ""

    def undecoded(self) -> str:
        return ""

    def blocked_reason(self) -> str:
        return self.capture.blocked_reason()
