"""Reports unreferenced ledgers: findings, deletions, plan, approvals."""

from collections import Counter
from collections.abc import Callable, Sequence
from heapq import nsmallest
from typing import Protocol

import numpy as np

from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.common.errors import Refused
from trueup.state.common.rules import Verdict
from trueup.state.deletion.lifecycle import Deletion, DeletionStage, executing_since
from trueup.state.deletion.orphan_objects import ORPHANS
from trueup.state.deletion.owners import Claim, Component, Pointers, namespace_of
from trueup.state.deletion.rules import LEAK_RULES
from trueup.state.deletion.settings import DeletionSettings
from trueup.state.deletion.verdicts import Rows
from trueup.streams.config.live import LiveSection
from trueup.streams.deletion.orphan_objects import OrphanObjects
from trueup.streams.deletion.reconciler import DeletionReconciler, action_id, action_name
from trueup.streams.deletion.signs import DeletionStatus, UnreferencedLedgers
from trueup.streams.rows import Row
from trueup.streams.runtime.stream import AWAITING, Filter, Finding, LimitedRows, ObservationSource, PlanRow

SLOW_MS = 5_000


class OwnerQueries(Protocol):
    """The operations of the connector that are needed here."""

    def nodes(self, owner: str) -> list[Pointers]:
        """Current state of all nodes of an owner."""

    def health(self) -> tuple[bool, int, str]:
        """Whether all nodes are read and followed, time of the last observation (ms since the epoch), problem."""

    def problems(self) -> list[str]:
        """Nodes that cannot be read."""


class DeletionReport:
    """The deletion stream's part of `streams.web.engine.Engine`."""

    def __init__(
        self,
        policy: LiveSection[DeletionSettings],
        deletions: DeletionReconciler,
        owners: OwnerQueries,
        clock: Callable[[], int],
        order: Callable[[int], Deletion] | None = None,
        orphans: OrphanObjects | None = None,
    ) -> None:
        self._policy, self._deletions, self._owners, self._clock = policy, deletions, owners, clock
        self._order, self._orphans = order, orphans
        self._loops = [deletions, orphans.reconciler] if orphans else [deletions]

    def status(self) -> DeletionStatus:
        """Its field of the status."""
        policy, now_ms = self._policy.current, self._clock()
        counts, sizes = self._totals()
        pending, retry_ms = self._known(), int(policy.retry_s * 1000)
        since = [deletion.since_ms for deletion in pending]
        executing = [
            at_ms for deletion in pending if (at_ms := executing_since(deletion, retry_ms, now_ms)) is not None
        ]
        return DeletionStatus(
            policy.mode,
            policy.paused,
            counts.total(),
            sizes.total(),
            [UnreferencedLedgers(*where, count, sizes[where]) for where, count in sorted(counts.items())],
            dict(sum((loop.counts() for loop in self._loops), Counter[str]())),
            self._deletions.complete,
            now_ms - min(since) if since else None,
            max(0, now_ms - min(executing)) if executing else None,
        )

    def _totals(self) -> tuple[Counter[tuple[str, str]], Counter[tuple[str, str]]]:
        """Ledgers and bytes by namespace and rule."""
        counts, sizes = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        for part in (part for loop in self._loops for part in loop.view()):
            pairs, at = np.unique(part.rows[["owner", "rule"]], return_inverse=True)
            lengths = np.bincount(at, part.rows["length"], len(pairs))
            for (owner, rule), count, length in zip(pairs.tolist(), np.bincount(at).tolist(), lengths, strict=True):
                where = namespace_of(part.names[owner]), LEAK_RULES[rule].id
                counts[where] += count
                sizes[where] += int(length)
        return counts, sizes

    def _known(self) -> list[Deletion]:
        """Pending deletions."""
        deletions = list[Deletion]()
        for loop in self._loops:
            with loop.lock:
                deletions += loop.deletions.values()
        return deletions

    def not_ready(self) -> list[str]:
        """Why findings are not reliable yet."""
        synced, _, problem = self._owners.health()
        reasons = [] if synced else [f"owners of ledgers: {problem or 'not all read yet'}"]
        return reasons if reasons or self._deletions.complete else ["the deletion view is not complete yet"]

    def incomplete(self) -> list[str]:
        """Why findings may be missing: the reasons of `not_ready`, and stores that are not listed yet."""
        names = self._orphans.unlisted() if self._orphans else []
        return [*self.not_ready(), *([f"stores not listed yet: {', '.join(names)}"] if names else [])]

    def stopped(self) -> list[str]:
        """Why deletions are blocked, which nodes of owners cannot be read, and which stores are not listed."""
        reason, of_objects = self._deletions.blocked_reason, self._orphans.stopped() if self._orphans else ""
        blocked = [f"deletions are blocked: {reason}"] if reason else []
        if of_objects not in ("", reason):
            blocked.append(f"deletions of objects are blocked: {of_objects}")
        stores = self._orphans.problems if self._orphans else {}
        problems = [f"store {name} is not listed: {problem}" for name, problem in sorted(stores.items())]
        return self._owners.problems() + problems + (blocked if self._policy.current.mode != "observe" else [])

    def sources(self, now_ms: int) -> list[ObservationSource]:
        """The nodes that reference ledgers."""
        synced, complete_ms, problem = self._owners.health()
        age_ms = now_ms - complete_ms if complete_ms else None
        state = "down" if problem else "up" if synced and (age_ms or 0) < SLOW_MS else "slow"
        return [ObservationSource("owners", state, age_ms, problem or "managed ledgers, cursors and schemas")]

    def rows(self, limit: int, namespace: str | None = None) -> LimitedRows:
        """Unreferenced ledgers, oldest finding first; with ``namespace`` those whose owner is in it."""
        every = [
            leak
            for loop in self._loops
            for leak in loop.forgotten()
            if namespace is None or namespace_of(leak[1]) == namespace
        ]
        oldest = nsmallest(limit, every, key=lambda leak: leak[0][["since_ms", "ledger"]].item())
        return LimitedRows((self._row(*leak) for leak in oldest), len(every))

    def _row(self, row: Rows, owner: str, name: str) -> Row:
        rule, ledger = LEAK_RULES[int(row["rule"])], int(row["ledger"])
        deletion = self._loops[-1 if rule.id in ORPHANS else 0].deletions.get(ledger)
        state = "" if int(row["version"]) < 0 else LedgerState(int(row["state"])).name.lower()
        return {
            "ledger": ledger,
            "owner": owner,
            "cursor": name,
            "rule": rule.id,
            "reason": rule.title,
            "verdict": rule.verdict.name.lower(),
            "component": Component(int(row["component"])).name.lower(),
            "state": state,
            "bytes": int(row["length"]),
            "since_ms": int(row["since_ms"]),
            "ctime_ms": int(row["ctime_ms"]),
            "version": int(row["version"]),
            "stage": deletion.stage.value if deletion else "suspected" if rule.verdict is Verdict.DRIFTED else "",
        }

    def findings(self, filter_: Filter) -> tuple[list[Finding], int]:
        """Unreferenced ledgers as findings."""
        all_wanted = filter_.verdict is None and filter_.rule is None
        every = self.rows(filter_.limit if all_wanted else 1 << 30, filter_.namespace)
        findings = [
            Finding(
                {"ledger": row["ledger"]},
                row["verdict"],
                row["rule"],
                row["reason"],
                row["since_ms"],
                row["stage"],
                {"owner": row["owner"], "bytes": row["bytes"], "version": row["version"]},
            )
            for row in every
            if filter_.verdict in (None, row["verdict"]) and filter_.rule in (None, row["rule"])
        ]
        return findings[: filter_.limit], every.total if all_wanted else len(findings)

    def deletions(self, namespace: str | None = None) -> list[Row]:
        """Pending deletions, oldest first; with ``namespace`` those whose owner is in it."""
        deletions = [m for m in self._known() if namespace is None or namespace_of(m.owner) == namespace]
        return [deletion_row(m) for m in sorted(deletions, key=lambda m: (m.since_ms, m.ledger))]

    def deletion(self, ledger: int) -> Row:
        """The pending deletion of a ledger. Raises `Refused` without one."""
        if pending := next((deletion for deletion in self._known() if deletion.ledger == ledger), None):
            return deletion_row(pending)
        raise Refused(f"a deletion of ledger {ledger} in progress", "none", "see `trueup get deletions`")

    def grouped(self) -> dict[tuple[str, str], int]:
        """The number of unreferenced ledgers and objects by rule and verdict."""
        counts = Counter[str]()
        for row in self.status().forgotten:
            counts[row.rule] += row.ledgers
        verdicts = {rule.id: rule.verdict.name.lower() for rule in LEAK_RULES}
        return {(rule, verdicts[rule]): count for rule, count in counts.most_common()}

    def ledger(self, ledger: int, claim: Claim) -> Row:
        """Owner of a ledger according to its metadata, and why it may or may not be deleted."""
        component, owner, name = claim
        row = next((self._row(*leak) for leak in self._deletions.forgotten(ledger)), None)
        deletion = self._deletions.deletions.get(ledger)
        nodes = self._owners.nodes(owner) if owner else []
        return {
            "component": component.name.lower(),
            "owner": owner,
            "cursor": name,
            "rule": row["rule"] if row else "",
            "reason": row["reason"] if row else "",
            "since_ms": row["since_ms"] if row else None,
            "nodes": [_node(node, ledger) for node in nodes],
            "deletion": deletion_row(deletion) if deletion else None,
            "objects": self._orphans.shown(ledger) if self._orphans else [],
        }

    def order(self, ledger: int) -> Row:
        """Delete a ledger by an operator's order. Raises `Refused`, and `Retry` if no deletion can start now."""
        if self._order is None:
            owners = self._policy.current.owners
            raise Refused("deletion.owners operator", owners, f"with owners {owners}, only its rules delete ledgers")
        return deletion_row(self._order(ledger))

    def plan(self) -> list[PlanRow]:
        """Deletions that wait and that are in progress; in mode observe those that would be created."""
        mode, pending = self._policy.current.mode, self._known()
        rows = [_planned(deletion, mode) for deletion in pending if deletion.stage is not DeletionStage.GONE]
        fresh = [row for row in self.rows(1 << 30) if row["verdict"] == "drifted"] if mode == "observe" else []
        begun = {row.id for row in rows}
        return [*rows, *(row for row in map(_suspected, fresh) if row.id not in begun)]

    def approve(self, rows: Sequence[PlanRow]) -> list[PlanRow]:
        """Approve deletions that wait; returns the approved ones."""
        given = list[PlanRow]()
        for loop, ours in ((self._loops[0], False), (self._loops[-1], True)):
            some = {row.about["ledger"]: row for row in rows if (row.rule in ORPHANS) == ours}
            given += [some[ledger] for ledger in (loop.approve(list(some)) if some else ())]
        return given


def deletion_row(deletion: Deletion) -> Row:
    """One pending deletion."""
    return {
        "id": action_id(deletion),
        "ledger": deletion.ledger,
        "owner": deletion.owner,
        "rule": deletion.rule,
        "stage": deletion.stage.value,
        "bytes": deletion.length,
        "since_ms": deletion.since_ms,
        "at_ms": deletion.at_ms,
        "approved": deletion.approved,
        "attempts": deletion.attempts,
        "next_ms": deletion.next_ms or None,
        "bookies": list(deletion.bookies),
        "pending": list(deletion.pending),
        "detail": deletion.detail,
        "by": deletion.by,
    }


def _node(node: Pointers, ledger: int) -> Row:
    return {
        "path": node.path,
        "status": node.status.name.lower(),
        "version": node.version,
        "points": ledger in node.ledgers,
        "ledgers": len(node.ledgers),
        "highest": max(node.ledgers, default=None),
        "error": node.error,
    }


def _planned(deletion: Deletion, mode: str) -> PlanRow:
    """Deletions of objects always require an operator's approval."""
    ask = mode == "approve" or (mode == "enforce" and deletion.rule in ORPHANS)
    waits = ask and deletion.stage is DeletionStage.MARKED and not deletion.approved
    return _action(deletion_row(deletion), AWAITING if waits else deletion.stage.value)


def _suspected(row: Row) -> PlanRow:
    name = action_name(row["ledger"], row["version"], row["rule"])
    return _action({**row, "id": name, "next_ms": None}, "suspected")


def _action(row: Row, stage: str) -> PlanRow:
    rule, version = LEAK_RULES.find(row["rule"]), row["id"].rpartition("-v")[2]
    requirements = {"version": int(version)} if row["rule"] not in ORPHANS else {}
    return PlanRow(
        row["id"],
        "delete",
        row["rule"],
        f"{row['bytes']} bytes of {row['owner']}: {rule.title if rule else ''}",
        stage,
        {"ledger": row["ledger"]},
        row["next_ms"],
        requirements,
        {"owner": row["owner"], "bytes": row["bytes"], "since_ms": row["since_ms"]},
    )
