"""In-memory dependencies of the deletion reconciler: cluster, journal and bucket output."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tests.journals import FakeJournal
from trueup.state.deletion.lifecycle import Deletion, DeletionStage
from trueup.state.deletion.owners import Component, OwnerStatus, Pointers
from trueup.state.deletion.rules import LEAK_RULES
from trueup.state.deletion.settings import DeletionSettings
from trueup.state.deletion.verdicts import LEAK
from trueup.state.deletion.view import Leaks
from trueup.streams.config.live import LiveSection
from trueup.streams.deletion.reconciler import DeletionReconciler
from trueup.streams.deletion.report import DeletionReport
from trueup.streams.deletion.target import DeletionItem, DeletionResult

OWNER, OTHER = "public/default/persistent/orders", "public/billing/persistent/bills"
NOW, MINUTE = 10_000_000, 60_000


def leaks(*rows: dict[str, Any]) -> Leaks:
    """Unreferenced ledgers of one bucket. Defaults: owner `OWNER`, 100 bytes, version 3."""
    made, names = np.zeros(len(rows), LEAK), [OWNER, ""]
    for at, row in enumerate(rows):
        fields = {"rule": "forgotten", "owner": OWNER, "since_ms": NOW, "length": 100, "version": 3, **row}
        code = LEAK_RULES.code(f"deletion.{fields.pop('rule')}")
        names.append(fields.pop("owner"))
        shown = {"component": Component.DATA, "state": 3, "name": 1, "owner": len(names) - 1, "rule": code, **fields}
        for name, value in shown.items():
            made[name][at] = value
        made["verdict"][at] = LEAK_RULES[code].verdict
    return Leaks(made, tuple(names), 9, made["ledger"][made["version"] < 0])


def stages(journal: FakeJournal) -> list[list[str | None]]:
    """The stages of deletions in each put."""
    return [[value and value["stage"] for value in put] for put in journal.puts]


@dataclass
class FakeCluster:
    """Implements `streams.deletion.target.DeletionTarget` and `streams.deletion.report.OwnerQueries`.

    ``versions``: metadata versions of the existing ledgers, by id; ``outcome``: the outcome that every order gets;
    ``holding``: bookies whose answer does not confirm the deletion; ``checks``: result of the check before deletion,
    by ledger.
    """

    versions: dict[int, int] = field(default_factory=dict)
    outcome: str = "deleted"
    holding: dict[str, str] = field(default_factory=dict)
    problem: str = ""
    orders: list[int] = field(default_factory=list)
    asked: list[dict[int, tuple[str, ...]]] = field(default_factory=list)
    pointers: list[Pointers] = field(default_factory=list)
    synced: bool = True
    checks: dict[int, str] = field(default_factory=dict)
    checked: list[int] = field(default_factory=list)
    sought: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def check(self, deletions: Sequence[Deletion]) -> list[DeletionResult]:
        self.checked += [deletion.ledger for deletion in deletions]
        return [DeletionResult(m.ledger, self.checks.get(m.ledger, "ready"), "so it is") for m in deletions]

    def find(self, ledgers: Sequence[int]) -> dict[int, DeletionItem]:
        return {i: DeletionItem(self.versions[i], ("a:1", "b:1")) for i in ledgers if i in self.versions}

    def delete(self, deletions: Sequence[Deletion]) -> list[DeletionResult]:
        self.orders += [deletion.ledger for deletion in deletions]
        if self.outcome == "deleted":
            self.versions = {i: v for i, v in self.versions.items() if i not in self.orders}
        return [DeletionResult(deletion.ledger, self.outcome, "so it is") for deletion in deletions]

    def held(self, asked: Mapping[int, Sequence[str]]) -> dict[int, dict[str, str]]:
        self.asked.append({ledger: tuple(bookies) for ledger, bookies in asked.items()})
        return {i: {b: self.holding[b] for b in bookies if b in self.holding} for i, bookies in asked.items()}

    def seek(self, owners: Collection[str]) -> None:
        self.sought += sorted(owners)

    def absent(self, ledgers: Sequence[int]) -> set[int]:
        return {ledger for ledger in ledgers if ledger not in self.versions}

    def problems(self) -> list[str]:
        return self.unread

    def blocked_reason(self) -> str:
        return self.problem

    def nodes(self, owner: str) -> list[Pointers]:
        return [node for node in self.pointers if node.owner == owner]

    def health(self) -> tuple[bool, int, str]:
        return self.synced, NOW, self.problem


def node(*ledgers: int, **more: Any) -> Pointers:
    """The znode of `OWNER`."""
    fields = {"path": f"/managed-ledgers/{OWNER}", "owner": OWNER, "name": "", "status": OwnerStatus.READABLE, **more}
    return Pointers(**{"version": 7, "mzxid": 70, "seen_ms": NOW, "ledgers": ledgers, **fields})


class Loop:
    """`DeletionReconciler` of one bucket over these fakes. ``marked`` creates deletions whose grace period is over."""

    def __init__(self, mode: str = "enforce", buckets: int = 1, **policy: Any) -> None:
        self.cluster, self.journal, self.now_ms = FakeCluster(), FakeJournal(), NOW
        self.policy = DeletionSettings(
            owners="pulsar", instance="x", **{"mode": mode, "grace_s": 60, "retry_s": 1, **policy}
        )
        self.first_epoch: int | None = 5
        self.buckets = buckets
        self.counted: list[tuple[str, int, float]] = []
        self.deletions = self.begun()
        self.report = DeletionReport(
            LiveSection(lambda: self.policy), self.deletions, self.cluster, lambda: self.now_ms
        )

    def begun(self) -> DeletionReconciler:
        """A reconciler that has loaded the journal."""
        made = DeletionReconciler(
            self.cluster,
            self.journal,
            LiveSection(lambda: self.policy),
            lambda: self.first_epoch,  # type: ignore[arg-type]
            lambda *step: self.counted.append(step),
            lambda: self.now_ms,
            self.buckets,
            self.cluster.check,
        )
        made.load()
        return made

    def apply(self, *rows: dict[str, Any], bucket: int = 0, epoch: int = 5) -> "Loop":
        """The bucket reports these ledgers as unreferenced; all of them exist."""
        self.cluster.versions |= {row["ledger"]: row.get("version", 3) for row in rows}
        self.deletions.apply(bucket, epoch, leaks(*rows))
        return self

    def lacking(self, ledger: int, rule: str = "missing") -> "Loop":
        """The bucket reports this ledger as missing, and it does not exist."""
        self.deletions.apply(0, 5, leaks({"ledger": ledger, "rule": rule, "version": -1}))
        return self

    def reconcile(self, after_ms: int = 0) -> dict[int, DeletionStage]:
        """One turn after this time. Returns the stage of every deletion."""
        self.now_ms += after_ms
        self.deletions.reconcile()
        return {ledger: deletion.stage for ledger, deletion in self.deletions.deletions.items()}

    def change(self, **policy: Any) -> None:
        self.policy = replace(self.policy, **policy)

    def marked(self, *ledgers: int) -> "Loop":
        """Mark these ledgers, with no further step."""
        paused, self.policy = self.policy, replace(self.policy, paused=True)
        self.apply(*({"ledger": ledger} for ledger in ledgers)).reconcile()
        self.reconcile(MINUTE)
        self.policy = paused
        return self
