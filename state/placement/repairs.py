"""Applies observations of ledgers and marks to the repairs in progress."""

from collections.abc import Mapping, MutableMapping, Sequence, Set

import numpy as np

from trueup.state.bookkeeper.marks import HIDDEN
from trueup.state.common.rules import Verdict
from trueup.state.placement.board import MARKED, Board, is_ours, lookup
from trueup.state.placement.lifecycle import ENDS, Repair, RepairEvent, RepairStage, advance, declined, renewed
from trueup.state.placement.rules import RULES
from trueup.state.placement.settings import PlacementSettings
from trueup.state.placement.view import Rows

SETTLE_MS = 30_000  # the maximum delay between changes of a mark and of its ledger's metadata as observed


def unseen(board: Board, repairs: Mapping[int, Repair], now_ms: int) -> list[int]:
    """Ledgers whose mark was ordered and should be visible by now: the caller must look it up before the order is given
    up. This includes ledgers that are true: a worker may have finished before the mark was observed."""
    ordered = [r for r in repairs.values() if r.stage is RepairStage.ORDERED]
    healed = lookup(board.findings, np.array([r.ledger for r in ordered], np.int64)) < 0
    due = [r for r, true in zip(ordered, healed.tolist(), strict=True) if true or now_ms - r.at_ms >= SETTLE_MS]
    return [r.ledger for r in due if not is_ours(board.mark(r.ledger), r)]


def observe(
    board: Board,
    repairs: MutableMapping[int, Repair],
    policy: PlacementSettings,
    now_ms: int,
    deleted: frozenset[int] = frozenset(),
    absent: frozenset[int] = frozenset(),
    copying: Set[int] = frozenset(),
) -> list[Repair]:
    """Apply the observations to the repairs in progress. Returns the changed repairs; ended ones are removed from
    ``repairs``. ``absent``: ledgers of `unseen` whose mark was looked up and does not exist; ``copying``: ledgers that
    this process copies now."""
    if not repairs:
        return []
    ids = np.array(list(repairs), np.int64)
    finding = lookup(board.findings, ids)
    mark = lookup(board.marks, ids)
    due = ~_resting(board, list(repairs.values()), finding, mark, now_ms) | np.isin(ids, list(deleted | absent))
    changed = []
    for ledger, f, m in zip(ids[due].tolist(), finding[due].tolist(), mark[due].tolist(), strict=True):
        before = repairs[ledger]
        after = _observed(
            before,
            board.findings[f] if f >= 0 else None,
            board.marks[m] if m >= 0 else None,
            policy,
            now_ms,
            ledger in deleted,
            ledger in absent,
            ledger in copying,
        )
        if after is not before:
            changed.append(after)
            if after.stage in ENDS:
                del repairs[ledger]
            else:
                repairs[ledger] = after
    return changed


def _resting(board: Board, repairs: Sequence[Repair], finding: Rows, mark: Rows, now_ms: int) -> Rows:
    """Repairs that cannot have changed, usually most of them: those that workers declined, ordered ones whose mark is
    not visible yet, and marked ones that wait for a worker."""
    count = len(repairs)
    resting: Rows = np.fromiter((r.stage is RepairStage.DECLINED for r in repairs), bool, count) & (finding >= 0)
    resting = (resting | np.fromiter((r.stage is RepairStage.ORDERED for r in repairs), bool, count)) & (mark < 0)
    waits = np.fromiter((r.stage is RepairStage.MARKED and not 0 < r.next_ms <= now_ms for r in repairs), bool, count)
    rows = np.flatnonzero(waits & (finding >= 0) & (mark >= 0))
    marks, ctime_ms = board.marks[mark[rows]], np.array([repairs[at].mark_ctime_ms for at in rows.tolist()], np.int64)
    ours = (marks["version"] >= 0) & (marks["ctime_ms"] == ctime_ms) & (marks["locked"] == 0)
    findings = board.findings[finding[rows]]
    resting[rows] = ours & MARKED[findings["rule"]] & (findings["held"] == 0)
    return resting


_LAPSE = (RepairStage.APPROVED, RepairStage.MARKED, RepairStage.WORKING, RepairStage.UNMARKED, RepairStage.STUCK)


def _observed(
    repair: Repair,
    finding: Rows | None,
    mark: Rows | None,
    policy: PlacementSettings,
    now_ms: int,
    deleted: bool,
    absent: bool,
    copying: bool,
) -> Repair:
    """The repair after all that is known of its ledger now."""
    if deleted:
        return advance(repair, RepairEvent.GO, now_ms, "the ledger was deleted")
    if mark is not None and int(mark["version"]) == HIDDEN:
        return repair  # it may be ours or not
    ours, locked = is_ours(mark, repair), mark is not None and bool(mark["locked"])
    repair = _marked(repair, ours, locked, policy, now_ms)
    verdict = Verdict(int(finding["verdict"])) if finding is not None else Verdict.TRUE
    # Until the lookup finds no mark, the order may still be executed.
    if verdict is Verdict.UNKNOWN or (repair.stage is RepairStage.ORDERED and not absent):
        return repair
    if verdict is Verdict.TRUE:
        return _healed(repair, ours, now_ms)
    first_wait_ms = int(policy.decline_retry_s * 1000)
    if repair.stage in (RepairStage.COPYING, RepairStage.COPIED):
        return _copied(repair, now_ms, first_wait_ms, copying)
    # Only our own mark is withdrawn: a repair that has none left does not wait for a withdrawal, whatever the verdict.
    if not ours and repair.stage is RepairStage.LEAVING:
        return advance(repair, RepairEvent.VANISH, now_ms, repair.detail)
    if not ours and repair.stage is RepairStage.STUCK:
        return declined(_failed(repair, finding), now_ms, first_wait_ms)
    if not ours and repair.stage in (RepairStage.MARKED, RepairStage.WORKING) and not locked:
        return advance(repair, RepairEvent.VANISH, now_ms, "the mark was removed")
    held = finding is not None and bool(finding["held"])
    hopeless = finding is not None and _hopeless(repair, finding)
    if (held or hopeless) and repair.stage in _LAPSE:
        # Keep an order that was given up: its mark may still appear and must then be withdrawn.
        return _lapsed(repair, now_ms, "a mass loss is held" if held else "no remedy exists any more")
    settled = repair.stage is RepairStage.UNMARKED and now_ms - repair.at_ms >= SETTLE_MS
    if settled or repair.stage is RepairStage.ORDERED:
        return declined(_failed(repair, finding), now_ms, first_wait_ms)
    if repair.stage in (RepairStage.MARKED, RepairStage.WORKING) and 0 < repair.next_ms <= now_ms:
        detail = f"workers failed for {policy.give_up_s:.0f} s"
        return advance(_failed(repair, finding), RepairEvent.FAIL, now_ms, detail)
    return _stale_approval(repair, finding, now_ms)


def _hopeless(repair: Repair, finding: Rows) -> bool:
    """Whether the repair cannot succeed: nothing repairs the ledger or, once it is marked, no worker does."""
    if repair.stage is RepairStage.APPROVED:
        return int(finding["verdict"]) == Verdict.BLOCKED
    return not MARKED[int(finding["rule"])]


def _copied(repair: Repair, now_ms: int, first_wait_ms: int, copying: bool) -> Repair:
    """The repair of a ledger that is still a finding. A copy of an earlier run has ended with it."""
    if repair.stage is RepairStage.COPYING and not copying:
        return declined(repair, now_ms, first_wait_ms, detail="the copy was interrupted")
    if repair.stage is RepairStage.COPIED and now_ms - repair.at_ms >= SETTLE_MS:
        return declined(repair, now_ms, first_wait_ms, detail="the ledger needs another repair after the copy")
    return repair


def _marked(repair: Repair, ours: bool, locked: bool, policy: PlacementSettings, now_ms: int) -> Repair:
    if ours and repair.stage in (RepairStage.ORDERED, RepairStage.DECLINED, RepairStage.APPROVED, RepairStage.UNMARKED):
        repair = advance(repair, RepairEvent.APPEAR, now_ms)
    if locked and repair.stage is RepairStage.MARKED:
        # A worker releases the lock briefly between attempts: the time counts from the first lock.
        until = repair.next_ms or now_ms + int(policy.give_up_s * 1000)
        return advance(repair, RepairEvent.LOCK, now_ms)._replace(next_ms=until)
    if ours and not locked and repair.stage is RepairStage.WORKING:
        return advance(repair, RepairEvent.UNLOCK, now_ms)
    return repair


def _healed(repair: Repair, ours: bool, now_ms: int) -> Repair:
    if not ours:
        return advance(repair, RepairEvent.HEAL, now_ms, "metadata and liveness show that the ledger is true")
    if repair.stage is RepairStage.LEAVING:
        return repair
    return advance(repair, RepairEvent.LAPSE, now_ms, "the ledger is true again")


def _stale_approval(repair: Repair, finding: Rows | None, now_ms: int) -> Repair:
    if repair.stage is RepairStage.APPROVED and finding is not None and int(finding["version"]) != repair.version:
        return _lapsed(repair, now_ms, "the ledger changed after it was approved")
    return repair


def _failed(repair: Repair, finding: Rows | None) -> Repair:
    """A repair that failed, with the reason that is left: workers may have replaced lost members before they failed to
    move replicas. A member that was lost meanwhile is a new reason, whose repair has not failed."""
    rule = repair.rule if finding is None else RULES[int(finding["rule"])].id
    return repair if renewed(repair, rule) else repair._replace(rule=rule)


def _lapsed(repair: Repair, now_ms: int, detail: str) -> Repair:
    """An expired approval keeps the record of an earlier order, whose mark may still appear."""
    earlier = repair.stage is RepairStage.APPROVED and repair.mark_ctime_ms
    return advance(repair, RepairEvent.VANISH if earlier else RepairEvent.LAPSE, now_ms, detail)
