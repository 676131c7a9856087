"""Mutation tests of the simulation: the intended checker detects each planted defect."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.simulation.checkers import Violation
from tests.simulation.deletion.shelf import Asked
from tests.simulation.deletion.simulation import Connector, Parts, simulate
from tests.simulation.deletion.world import Node
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

SEEDS = 200


def complaint(parts: Parts = Parts()) -> str:  # noqa: B008 - immutable
    """Message of the first violation within some seeds."""
    for seed in range(SEEDS):
        try:
            simulate(seed, parts)
        except Violation as error:
            return str(error)
    return f"no complaint within {SEEDS} seeds"


class OwnerUnchecked(Connector):
    """The transaction does not check the version of the owner's node."""

    def holds(self, deletion: Deletion, read: int) -> bool:
        return self.unchanged(deletion)


class LedgerUnchecked(Connector):
    """The transaction does not check the version of the ledger."""

    def unchanged(self, deletion: Deletion) -> bool:
        return True


class Newest(Connector):
    """Does not require that a later ledger is listed."""

    def superseded(self, node: Node, number: int) -> bool:
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
        stale = super().answer(bookie, number)
        return "" if stale == "silent" else stale


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
        self._journal.records.clear()  # type: ignore[attr-defined]


class Half(DeletionReconciler):
    """Queries only one bookie."""

    def _begun(self, *given: Any) -> list[Deletion]:
        return [deletion._replace(bookies=deletion.bookies[:1]) for deletion in super()._begun(*given)]


class Eager(OwnerBucket):
    """Reports ledgers as forgotten that may be about to be listed."""

    def step(
        self, ledgers: OwnedLedgerTable = NO_LEDGERS, nodes: OwnedLedgerTable = NO_NODES, asked: bool = False
    ) -> Leaks | None:
        found = super().step(ledgers, nodes, asked)
        if found is None:
            return None
        rows, ids = found.rows.copy(), [rule.id for rule in LEAK_RULES]
        newest = rows["rule"] == ids.index("deletion.not-superseded")
        rows["verdict"][newest], rows["rule"][newest] = Verdict.DRIFTED, ids.index("deletion.forgotten")
        return replace(found, rows=rows)


class Blind(OwnerBucket):
    """Does not observe the deletion of ledgers."""

    def step(
        self, ledgers: OwnedLedgerTable = NO_LEDGERS, nodes: OwnedLedgerTable = NO_NODES, asked: bool = False
    ) -> Leaks | None:
        there = ledgers.rows["state"] != LedgerState.GONE
        return super().step(OwnedLedgerTable(ledgers.rows[there], ledgers.names), nodes, asked)


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        (Parts(connector=OwnerUnchecked), "(is in use and was deleted|.*lists no later one)"),
        (Parts(connector=LedgerUnchecked), "was deleted at another version"),
        (Parts(connector=Newest), "its owner lists no later one"),
        (Parts(connector=Newest, bucket=Eager), "(is in use and was deleted|.*lists no later one)"),
        (Parts(connector=Unread), "(is in use and was deleted|.*lists no later one)"),
        (Parts(connector=Trusting), "is confirmed gone and there"),
        (Parts(connector=Deaf), "is confirmed gone and there"),
        (Parts(deletions=Half), "is confirmed gone and there"),
        (Parts(deletions=Late), "the journal does not say that it was ordered"),
        (Parts(deletions=Amnesic), "deleted and never confirmed"),
        (Parts(deletions=Forgetful), "the journal knows"),
        (Parts(bucket=Eager), "the view says"),
        (Parts(bucket=Blind), "the view says"),
    ],
    ids=[
        "owner unchecked",
        "ledger unchecked",
        "newest",
        "newest and eager",
        "unread",
        "trusting",
        "deaf",
        "half",
        "late",
        "amnesic",
        "forgetful",
        "eager",
        "blind",
    ],
)
def test_a_defective_part_is_caught(parts: Parts, says: str) -> None:
    assert re.match(rf"seed \d+: .*{says}", complaint(parts))


def test_an_unknown_outcome_taken_for_done_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "OUTCOMES", {**loop.OUTCOMES, "unknown": DeletionEvent.DONE})
    assert re.match(r"seed \d+: .*is said to be gone and is there", complaint())


def test_an_order_that_is_never_looked_at_again_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def trusting(deletion: Deletion, *given: Any) -> Deletion:
        return deletion if deletion.stage is DeletionStage.DELETING else observed(deletion, *given)

    monkeypatch.setattr(loop, "observed", trusting)
    assert re.match(r"seed \d+: .*never (ended|deleted)", complaint())


class Unverified(Connector):
    """Relies on the owner's metadata of the copy."""

    def verified(self, pair: ObjectPair) -> bool:
        return True


class VerifiedOnce(Connector):
    """Verifies a copy at the decision only, not before the deletion."""

    def check(self, deletions: Sequence[Deletion]) -> list[DeletionResult]:
        return [
            DeletionResult(m.ledger, "ready", "")
            if super(VerifiedOnce, self).verified(self.pair(m))
            else DeletionResult(m.ledger, "refused", "it is not whole")
            for m in deletions
            if self.pair(m)
        ]

    def pair(self, deletion: Deletion) -> ObjectPair:
        node = self.world.nodes.get(deletion.owner)
        return node.copies[deletion.ledger].pair if node and deletion.ledger in node.copies else ObjectPair("", -1)

    def verified(self, pair: ObjectPair) -> bool:
        return True


class DataAlone(Connector):
    """Does not check the index object."""

    def verified(self, pair: ObjectPair) -> bool:
        found = self.world.objects.get(pair.data_key)
        return found is not None and found.whole


class Stale(Asked):
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


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        (Parts(connector=Unverified), "its copy is not whole"),
        (Parts(connector=VerifiedOnce), "its copy is not whole"),
        (Parts(connector=DataAlone), "its copy is not whole"),
        (Parts(asked=Stale), "object .* is in use by .* and was deleted"),
        (Parts(orphans=Unasked), "was deleted and nobody said yes"),
    ],
    ids=["unverified", "verified once", "data alone", "stale owners", "unasked"],
)
def test_a_part_that_is_defective_towards_tiered_storage_is_caught(parts: Parts, says: str) -> None:
    assert re.match(rf"seed \d+: .*({says})", complaint(parts))
