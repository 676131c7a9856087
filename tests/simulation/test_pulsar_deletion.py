"""Mutation tests of the simulation of deletion: the intended checker detects each planted defect."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.simulation.deleting import DeletionParts
from tests.simulation.deletion_target import Connector, CurrentOwners
from tests.simulation.planted import complaint
from tests.simulation.pulsar import OwnerNode
from tests.simulation.pulsar_part import PulsarParts
from tests.simulation.simulation import Parts
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.common.rules import Verdict
from trueup.state.deletion.lifecycle import Deletion, DeletionEvent, DeletionStage, observed
from trueup.state.deletion.offloads import ObjectPair
from trueup.state.deletion.orphan_objects import Referenced
from trueup.state.deletion.owned_ledgers import NO_LEDGERS, NO_NODES, OwnedLedgerTable
from trueup.state.deletion.owners import OwnerStatus, Pointers
from trueup.state.deletion.rules import LEAK_RULES
from trueup.state.deletion.settings import DeletionSettings
from trueup.state.deletion.view import Leaks, OwnerBucket
from trueup.streams.deletion import reconciler as loop
from trueup.streams.deletion.orphan_objects import OrphanObjects
from trueup.streams.deletion.reconciler import DeletionReconciler
from trueup.streams.deletion.target import DeletionResult

PULSAR = ("placement", "pulsar")
pytestmark = pytest.mark.release


def of_deletion(says: str, parts: DeletionParts | None = None) -> str:
    """The complaint about deletion with these parts."""
    return complaint(says, Parts(pulsar=PulsarParts(deletion=parts or DeletionParts())), PULSAR)


class OwnerUnchecked(Connector):
    """The transaction does not check the version of the owner's node."""

    def holds(self, deletion: Deletion, version: int) -> bool:
        return self.unchanged(deletion)


class LedgerUnchecked(Connector):
    """The transaction does not check the version of the ledger."""

    def unchanged(self, deletion: Deletion) -> bool:
        return True


class Newest(Connector):
    """Does not require that a later ledger is listed."""

    def superseded(self, node: OwnerNode, number: int) -> bool:
        return True


class Unread(Connector):
    """Decides by the view alone, at the owner's version at the time of the transaction."""

    def refuses(self, deletion: Deletion) -> str:
        return ""


class Trusting(Connector):
    """Confirms a deletion without a query to the bookies."""

    def answer(self, bookie: str, number: int) -> str:
        return ""


class Deaf(Connector):
    """Treats a bookie without a response as one without the ledger."""

    def answer(self, bookie: str, number: int) -> str:
        answer = super().answer(bookie, number)
        return "" if answer == "no response" else answer


class Unverified(Connector):
    """Relies on the owner's metadata of the copy."""

    def verified(self, pair: ObjectPair) -> bool:
        return True


class VerifiedOnce(Connector):
    """Verifies a copy at the decision only, not before the deletion."""

    def check(self, deletions: Sequence[Deletion]) -> list[DeletionResult]:
        pairs = [(deletion.ledger, self.pair(deletion)) for deletion in deletions]
        return [
            DeletionResult(ledger, "ready" if pair and super(VerifiedOnce, self).verified(pair) else "refused", "")
            for ledger, pair in pairs
        ]

    def verified(self, pair: ObjectPair) -> bool:
        return True


class DataAlone(Connector):
    """Does not check the index object."""

    def verified(self, pair: ObjectPair) -> bool:
        stored = self.brokers.bucket.objects.get(pair.data_key)
        return stored is not None and stored.whole


class Late(DeletionReconciler):
    """Persists an order after its execution."""

    def _delete(self, now_ms: int) -> None:
        kept, held = self._journal, list[Any]()

        class Holding:
            def put(self, records: Sequence[Any]) -> None:
                held.extend(records)

        self._journal = Holding()  # type: ignore[assignment]
        try:
            super()._delete(now_ms)
        finally:
            self._journal = kept
        if held:
            kept.put(held)


class Forgetful(DeletionReconciler):
    """Does not load its journal after a crash."""

    def load(self) -> None:
        pass


class Amnesic(DeletionReconciler):
    """Its topic is lost in a crash."""

    def load(self) -> None:
        self._journal.log.bodies[self._topic].clear()  # type: ignore[attr-defined]


class Half(DeletionReconciler):
    """Queries only one bookie."""

    def _begun(self, *given: Any) -> list[Deletion]:
        return [deletion._replace(bookies=deletion.bookies[:1]) for deletion in super()._begun(*given)]


class Repeating(DeletionReconciler):
    """Executes orders of earlier passes again."""

    def _delete(self, now_ms: int) -> None:
        ordered = [m for m in self.deletions.values() if m.stage is DeletionStage.DELETING]
        super()._delete(now_ms)
        if ordered:
            self._target.delete(ordered)


def under(change: Callable[[DeletionSettings], DeletionSettings]) -> type[DeletionReconciler]:
    """A loop under another policy than the one in force."""

    class Under(DeletionReconciler):
        def _delete(self, now_ms: int) -> None:
            policy = self._policy
            self._policy = policy.changed(change)
            try:
                super()._delete(now_ms)
            finally:
                self._policy = policy

    return Under


class Eager(OwnerBucket):
    """Reports ledgers as forgotten that may be about to be listed."""

    def step(
        self, ledgers: OwnedLedgerTable = NO_LEDGERS, nodes: OwnedLedgerTable = NO_NODES, asked: bool = False
    ) -> Leaks | None:
        leaks = super().step(ledgers, nodes, asked)
        if leaks is None:
            return None
        rows, ids = leaks.rows.copy(), [rule.id for rule in LEAK_RULES]
        newest = rows["rule"] == ids.index("deletion.not-superseded")
        rows["verdict"][newest], rows["rule"][newest] = Verdict.DRIFTED, ids.index("deletion.forgotten")
        return replace(leaks, rows=rows)


class Blind(OwnerBucket):
    """Does not observe the deletion of ledgers."""

    def step(
        self, ledgers: OwnedLedgerTable = NO_LEDGERS, nodes: OwnedLedgerTable = NO_NODES, asked: bool = False
    ) -> Leaks | None:
        there = ledgers.rows["state"] != LedgerState.GONE
        return super().step(OwnedLedgerTable(ledgers.rows[there], ledgers.names), nodes, asked)


class Narrow(OwnerBucket):
    """Does not report what its owners reference of other owners."""

    def step(
        self, ledgers: OwnedLedgerTable = NO_LEDGERS, nodes: OwnedLedgerTable = NO_NODES, asked: bool = False
    ) -> Leaks | None:
        leaks = super().step(ledgers, nodes, asked)
        return None if leaks is None else replace(leaks, elsewhere=leaks.elsewhere[:0])


class Stale(CurrentOwners):
    """Queries owners now and then, and uses outdated results in between."""

    stale: Referenced | None = None
    calls = 0

    def referenced(self) -> Referenced:
        self.calls += 1
        if self.stale is None or self.calls % 8 == 0:
            self.stale = super().referenced()
        return self.stale

    def nodes(self, owner: str) -> list[Pointers]:
        stale = self.stale or super().referenced()
        copies = tuple(copy for copy in stale.copies.values() if stale.listed.get(copy.pair.ledger) == owner)
        return [Pointers(owner, owner, "", OwnerStatus.READABLE, 1, 1, 1, copies=copies)]


class Unasked(OrphanObjects):
    """Treats the mode as approval."""

    @staticmethod
    def approving(policy: DeletionSettings) -> DeletionSettings:
        return policy


DEFECTS = {
    "owner unchecked": (DeletionParts(connector=OwnerUnchecked), "is in use|lists no later one"),
    "ledger unchecked": (DeletionParts(connector=LedgerUnchecked), "was deleted at another version"),
    "newest": (DeletionParts(connector=Newest), "its owner lists no later one"),
    "newest and eager": (DeletionParts(connector=Newest, bucket=Eager), "is in use|lists no later one"),
    "unread": (DeletionParts(connector=Unread), "is in use|lists no later one"),
    "trusting": (DeletionParts(connector=Trusting), "is confirmed gone and there"),
    "deaf": (DeletionParts(connector=Deaf), "is confirmed gone and there"),
    "half": (DeletionParts(reconciler=Half), "is confirmed gone and there"),
    "late": (DeletionParts(reconciler=Late), "the journal does not say that it was ordered"),
    "amnesic": (DeletionParts(reconciler=Amnesic), "deleted and never confirmed"),
    "forgetful": (DeletionParts(reconciler=Forgetful), "the journal knows"),
    "repeating": (DeletionParts(reconciler=Repeating), "is to be deleted twice for one order"),
    "without approval": (DeletionParts(reconciler=under(lambda p: replace(p, mode="enforce"))), "in mode (ob|app)"),
    "without pause": (DeletionParts(reconciler=under(lambda p: replace(p, paused=False))), "was deleted paused"),
    "eager": (DeletionParts(bucket=Eager), "the view says"),
    "blind": (DeletionParts(bucket=Blind), "the view says"),
    "narrow": (DeletionParts(bucket=Narrow), "is in use by"),
    "unverified": (DeletionParts(connector=Unverified), "its copy is not whole"),
    "verified once": (DeletionParts(connector=VerifiedOnce), "its copy is not whole"),
    "data alone": (DeletionParts(connector=DataAlone), "its copy is not whole"),
    "stale owners": (DeletionParts(owners=Stale), "object .* is in use by .* and was deleted"),
    "unasked": (DeletionParts(orphans=Unasked), "was deleted and nobody said yes"),
}
"""Defective parts, each with what the checkers say of it."""


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defective_part_is_caught(name: str) -> None:
    parts, says = DEFECTS[name]
    assert re.search(says, of_deletion(says, parts))


def test_an_unknown_outcome_taken_for_done_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "OUTCOMES", {**loop.OUTCOMES, "unknown": DeletionEvent.DONE})
    assert "is said to be gone and is there" in of_deletion("is said to be gone and is there")


def test_an_order_that_is_never_looked_at_again_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def trusting(deletion: Deletion, *given: Any) -> Deletion:
        return deletion if deletion.stage is DeletionStage.DELETING else observed(deletion, *given)

    monkeypatch.setattr(loop, "observed", trusting)
    assert re.search("never (ended|deleted)", of_deletion("never (ended|deleted)"))
