"""Objects of tiered storage that no owner references.

Runs the loop of `streams.deletion.reconciler` over the results of listings instead of a stream's findings. All orphan
objects of one ledger are one deletion, which always requires an operator's approval. The places of a deletion are its
objects, each a store and a key; it is confirmed when all of them are deleted.
"""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from trueup.connectors.pulsar import orphan_objects
from trueup.connectors.pulsar.orphan_objects import OrphanSearch
from trueup.connectors.s3.store import ObjectStore
from trueup.state.common.backoff import backoff
from trueup.state.common.errors import TrueupError, ended
from trueup.state.deletion.lifecycle import LONGEST_MS, Deletion
from trueup.state.deletion.orphan_objects import LOST, UNOWNED, LedgerOrphans, Referenced
from trueup.state.deletion.owners import Component, Pointers
from trueup.state.deletion.rules import LEAK_RULES
from trueup.state.deletion.settings import DeletionSettings
from trueup.state.deletion.stores import StoreSettings as Declared
from trueup.state.deletion.verdicts import LEAK
from trueup.state.deletion.view import Leaks
from trueup.streams.config.live import LiveSection
from trueup.streams.deletion.reconciler import DeletionReconciler
from trueup.streams.deletion.target import DeletionItem, DeletionResult
from trueup.streams.deletion.topics import ORPHANS
from trueup.streams.journal.history import History
from trueup.streams.journal.journal import Journal

VERSION = -1
_ORDER = {LOST: 3, UNOWNED: 2}


class ObjectOwners(Protocol):
    """The operations of `streams.deletion.owners.Pulsar` that are needed here."""

    def referenced(self) -> Referenced:
        """Everything that owners reference now."""

    def nodes(self, owner: str) -> list[Pointers]:
        """Current state of all nodes of an owner, its own first."""

    def unread(self) -> str:
        """Why nothing may be deleted: nodes without permission to read them; empty if there are none."""

    def undecoded(self) -> str:
        """Why no objects may be deleted: nodes that cannot be decoded; empty if there are none."""

    def blocked_reason(self) -> str:
        """Why no deletion is possible now; empty if it is."""


class OrphanObjects:
    """The orphan objects of all stores, and their deletions. Safe to use from several threads."""

    def __init__(
        self,
        stores: Mapping[str, ObjectStore],
        declared: Mapping[str, Declared],
        owners: ObjectOwners,
        journal: Journal,
        policy: LiveSection[DeletionSettings],
        counted: Callable[[str, int, float], None],
        clock: Callable[[], int],
        history: History | None = None,
    ) -> None:
        self._stores, self._declared, self._owners = stores, declared, owners
        self._policy, self._clock = policy, clock
        self._clusters = {name: store.cluster for name, store in declared.items()}
        self._searches = {name: OrphanSearch(name, store, self._clusters[name]) for name, store in stores.items()}
        self._due_ms, self._failures = dict.fromkeys(stores, 0), dict.fromkeys(stores, 0)
        self._found: dict[str, list[LedgerOrphans]] = {}
        self._since: dict[int, int] = {}
        self._acting = threading.Lock()
        self.problems: dict[str, str] = {}
        self.blocked_reason = owners.blocked_reason
        self.reconciler = DeletionReconciler(
            self, journal, policy.changed(self.approving), lambda: 0, counted, clock, 1, topic=ORPHANS, history=history
        )
        self.load = self.reconciler.load

    @staticmethod
    def approving(policy: DeletionSettings) -> DeletionSettings:
        """The policy for objects: each deletion requires an operator's approval."""
        return replace(policy, mode="approve") if policy.mode == "enforce" else policy

    def reconcile(self) -> None:
        """List the stores that are due, then do what is due. Nothing is due until every store was listed: a deletion
        in a store that is not would look ended."""
        with self._acting:
            for name in self._stores:
                if self._due_ms[name] <= self._clock():
                    self._list(name)
            if self.unlisted():
                self.reconciler.blocked_reason = f"stores not listed yet: {', '.join(self.unlisted())}"
            else:
                self.reconciler.reconcile()

    def unlisted(self) -> list[str]:
        """The stores of which no listing succeeded in this run."""
        return sorted(self._stores.keys() - self._found.keys())

    def stopped(self) -> str:
        """Why deletions of objects are blocked; empty if they are not, and without stores."""
        return self.reconciler.blocked_reason if self._stores else ""

    def _list(self, name: str) -> None:
        """List one store. A failure is reported, and the listing is repeated with increasing delays."""
        policy, every_ms = self._policy.current, int(self._declared[name].list_s * 1000)
        try:
            self._found[name] = self._searches[name].orphans(self._owners.referenced)
        except TrueupError as error:
            wait = backoff(int(policy.retry_s * 1000), self._failures[name], LONGEST_MS)
            self.problems[name], self._due_ms[name] = str(error), self._clock() + wait
            self._failures[name] += 1
            return
        self.problems.pop(name, None)
        earlier = self._since.keys()
        if any(orphan.rule == LOST and orphan.ledger not in earlier for orphan in self._found[name]):
            every_ms = min(every_ms, int(policy.missing_s * 1000))  # a second listing must confirm it
        self._failures[name], self._due_ms[name] = 0, self._clock() + every_ms
        self._report()

    def _all(self) -> dict[int, LedgerOrphans]:
        """Findings by ledger. Missing objects rank before orphan objects, undeletable ones before deletable ones."""
        orphans: dict[int, LedgerOrphans] = {}
        for orphan in (finding for some in self._found.values() for finding in some):
            before = orphans.setdefault(orphan.ledger, orphan)
            if (before.rule, before.owner) != (orphan.rule, orphan.owner):
                orphans[orphan.ledger] = max(before, orphan, key=lambda finding: _ORDER.get(finding.rule, 1))
            elif before is not orphan:
                orphans[orphan.ledger] = before._replace(parts=before.parts + orphan.parts)
        return orphans

    def _report(self) -> None:
        orphans = self._all()
        now_ms = self._clock()
        self._since = {ledger: self._since.get(ledger, now_ms) for ledger in orphans}
        rows, names = np.zeros(len(orphans), LEAK), {"": 0}
        for at, (ledger, orphan) in enumerate(sorted(orphans.items())):
            code = LEAK_RULES.code(orphan.rule)
            since_ms = max(part.since_ms for part in orphan.parts) or self._since[ledger]
            row = {
                "ledger": ledger,
                "since_ms": since_ms,
                "length": sum(part.size for part in orphan.parts),
                "version": VERSION,
                "owner": names.setdefault(orphan.owner, len(names)),
                "component": Component.DATA,
                "verdict": LEAK_RULES[code].verdict,
                "rule": code,
            }
            for name, value in row.items():
                rows[name][at] = value
        self.reconciler.apply(0, -1 if self.unlisted() else 0, Leaks(rows, tuple(names), 0))

    def shown(self, ledger: int) -> list[str]:
        """Orphan and missing objects of a ledger, with their size."""
        orphans = self._all().get(ledger)
        return [f"{part.place}: {part.size} bytes, {orphans.rule}" for part in orphans.parts] if orphans else []

    def places(self, ledger: int) -> tuple[str, ...]:
        """Places of the objects of a ledger's deletion, now or when they were found."""
        if deletion := self.reconciler.deletions.get(ledger):
            return deletion.bookies
        orphan = self._all().get(ledger)
        return tuple(part.place for part in orphan.parts) if orphan else ()

    def seek(self, owners: Collection[str]) -> None:
        """All owners are read before and after each listing."""

    def absent(self, ledgers: Sequence[int]) -> set[int]:
        """Missing objects were looked up individually."""
        return set(ledgers)

    def find(self, ledgers: Sequence[int]) -> dict[int, DeletionItem]:
        """Those of which an object exists now, with the places of all."""
        by_ledger = {i: self.places(i) for i in ledgers}
        return {
            i: DeletionItem(VERSION, tuple(sorted(set(places))))
            for i, places in by_ledger.items()
            if orphan_objects.left(self._stores, places)
        }

    def delete(self, deletions: Sequence[Deletion]) -> list[DeletionResult]:
        """Delete the objects of these, each if its owner still references none of them."""
        return [self._delete(deletion) for deletion in deletions]

    def _delete(self, deletion: Deletion) -> DeletionResult:
        if unread := self._owners.unread() or self._owners.undecoded():
            return DeletionResult(deletion.ledger, "refused", unread)
        try:
            here = orphan_objects.remove(
                self._stores, deletion.owner, self._clusters, deletion.bookies, self._owners.nodes
            )
        except TrueupError as error:
            return DeletionResult(deletion.ledger, ended(error), str(error))
        return DeletionResult(
            deletion.ledger, "retry" if here else "deleted", f"still exists: {', '.join(here)}" if here else ""
        )

    def held(self, asked: Mapping[int, Sequence[str]]) -> dict[int, dict[str, str]]:
        """Those of these places that still contain an object."""
        return {
            i: dict.fromkeys(orphan_objects.left(self._stores, places), "still exists") for i, places in asked.items()
        }
