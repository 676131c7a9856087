"""Deletions that an operator orders, for clusters without metadata that show which ledgers are in use.

Runs the loop of `streams.deletion.reconciler` over the operator's orders instead of a stream's findings.
"""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from trueup.connectors.bookkeeper.deletion.remove import RemovalOrder, Removed, refusal
from trueup.connectors.zookeeper.follower import Run
from trueup.state.bookkeeper.ledgers import Ledgers
from trueup.state.bookkeeper.observations import LedgerRecord, LedgerState
from trueup.state.common.errors import Refused, Retry, TrueupError
from trueup.state.common.rules import Verdict
from trueup.state.deletion.lifecycle import Deletion, DeletionStage
from trueup.state.deletion.owners import Component, Pointers
from trueup.state.deletion.rules import LEAK_RULES
from trueup.state.deletion.settings import DeletionSettings
from trueup.state.deletion.verdicts import LEAK
from trueup.state.deletion.view import Leaks
from trueup.streams.config.live import LiveSection
from trueup.streams.deletion.reconciler import DeletionReconciler
from trueup.streams.deletion.target import DeletionItem, DeletionResult, items_of
from trueup.streams.journal.history import History
from trueup.streams.journal.journal import Journal

RULE = "deletion.ordered"
_CODE = LEAK_RULES.code(RULE)


class LedgerOperations(Protocol):
    """The operations of `streams.bookkeeper.cluster.BookKeeper` that are needed here."""

    def read(self, ledgers: Sequence[int]) -> Ledgers:
        """Current rows of these ledgers, without those that do not exist."""

    def describe(self, ledger: int) -> tuple[LedgerRecord, Ledgers]:
        """Current metadata of one ledger. Raises `Refused` if it does not exist."""

    def remove(self, orders: Sequence[RemovalOrder]) -> list[Removed]:
        """Delete these ledgers, each if it has not changed since its order."""

    def held(self, asked: Mapping[int, Sequence[str]]) -> dict[int, dict[str, str]]:
        """Bookies that have not confirmed that they do not have the ledger, each with its response."""

    def unseen(self) -> str:
        """Why the view of the cluster is not current; empty if it is."""

    def unlike(self, instance: str) -> str:
        """Why this is not the cluster with this INSTANCEID; empty if it is."""


class NoOwners:
    """Implements `streams.deletion.target.DeletionTarget` and `streams.deletion.report.OwnerQueries` of a cluster
    without known owners."""

    def __init__(
        self, ledgers: LedgerOperations, policy: LiveSection[DeletionSettings], clock: Callable[[], int]
    ) -> None:
        self._policy, self._clock = policy, clock
        self._ledgers = ledgers
        self.held = ledgers.held

    def find(self, ledgers: Sequence[int]) -> dict[int, DeletionItem]:
        """Those of these ledgers that exist."""
        return items_of(self._ledgers.read(ledgers))

    def start(self, run: Run) -> None:
        """Nothing is observed."""

    def close(self) -> None:
        """Nothing to close."""

    def delete(self, deletions: Sequence[Deletion]) -> list[DeletionResult]:
        """Delete these ledgers, each if its metadata has not changed."""
        return [DeletionResult(*row) for row in self._ledgers.remove([RemovalOrder(*_birth(m)) for m in deletions])]

    def seek(self, owners: Collection[str]) -> None:
        """There are no owners."""

    def absent(self, ledgers: Sequence[int]) -> set[int]:
        """No owner lists them."""
        return set(ledgers)

    def blocked_reason(self) -> str:
        """Why no deletion is possible now; empty if it is."""
        if unseen := self._ledgers.unseen():
            return unseen
        policy = self._policy.current
        return "" if policy.mode == "observe" else self._ledgers.unlike(policy.instance)

    def problems(self) -> list[str]:
        """None: nothing is read."""
        return []

    def nodes(self, _owner: str) -> list[Pointers]:
        """No node references a ledger."""
        return []

    def health(self) -> tuple[bool, int, str]:
        """Always synchronized."""
        return True, self._clock(), ""


def _ordered(policy: DeletionSettings) -> DeletionSettings:
    """The policy for these orders: an order is an operator's approval, and no waiting time applies."""
    return policy if policy.mode == "observe" else replace(policy, mode="enforce", grace_s=0.0)


class OrderedDeletions:
    """The orders, as the view of one bucket. Safe to use from several threads."""

    def __init__(
        self,
        ledgers: LedgerOperations,
        journal: Journal,
        policy: LiveSection[DeletionSettings],
        counted: Callable[[str, int, float], None],
        clock: Callable[[], int],
        history: History | None = None,
    ) -> None:
        self._ledgers, self._policy, self._clock = ledgers, policy, clock
        self._acting = threading.RLock()
        self.owners = NoOwners(ledgers, policy, clock)
        self.reconciler = DeletionReconciler(
            self.owners, journal, policy.changed(_ordered), lambda: 0, counted, clock, 1, history=history
        )

    def load(self) -> None:
        """Load the orders of earlier runs."""
        self.reconciler.load()
        self.reconciler.apply(0, 0, _leaks([]))

    def reconcile(self) -> None:
        """Do what is due. A reason that blocks it is reported as ``deletions.blocked_reason``."""
        with self._acting:
            try:
                self._look()
            except TrueupError as error:
                self.reconciler.blocked_reason = str(error)
                return
            self.reconciler.reconcile()

    def order(self, ledger: int) -> Deletion:
        """Order a deletion; returns it once it is on the journal. Raises `Refused` for a ledger that must not be
        deleted, and `Retry` if no deletion can start now."""
        if self._policy.current.mode == "observe":
            raise Refused("deletion.mode approve or enforce", "observe", "`trueup config set deletion.mode approve`")
        record, _ = self._ledgers.describe(ledger)
        if problem := refusal(record):
            raise problem
        with self._acting:
            self._look(_leak(record, self._clock()))
            self.reconciler.reconcile()
            deletion = self.reconciler.deletions.get(ledger)
        if deletion is None:
            raise Retry(
                f"the deletion of ledger {ledger} to begin",
                self.reconciler.blocked_reason or "no deletion",
                "try again",
            )
        return deletion

    def _look(self, *fresh: tuple[int, ...]) -> None:
        """Update the view to the current state of the ledgers of pending orders, and of these."""
        pending = {m.ledger: m for m in self.reconciler.deletions.values() if m.stage is not DeletionStage.GONE}
        there = self._ledgers.read(list(pending))
        rows = [
            (ledger, pending[ledger].since_ms, pending[ledger].ctime_ms, pending[ledger].length, version)
            for ledger, version in zip(there.ledger.tolist(), there.version.tolist(), strict=True)
        ]
        self.reconciler.apply(0, 0, _leaks([*rows, *fresh]))


def _leaks(rows: Sequence[tuple[int, ...]]) -> Leaks:
    """The leading fields of `LEAK`, as a view of closed ledgers whose deletion was ordered."""
    leaks = np.zeros(len(rows), LEAK)
    for at, row in enumerate(rows):
        leaks[at] = (*row, 0, 0, LedgerState.CLOSED, Component.UNKNOWN, Verdict.DRIFTED, _CODE)
    return Leaks(leaks, ("",), len(rows))


def _birth(deletion: Deletion) -> tuple[int, int, int]:
    return deletion.ledger, deletion.version, deletion.ctime_ms


def _leak(record: LedgerRecord, now_ms: int) -> tuple[int, int, int, int, int]:
    return record["ledger"], now_ms, record["ctime_ms"], max(0, record["length"]), record["version"]
