"""Everything that is not true, in one place, and what to do about it now.

The board takes the answers of all buckets; `observe` folds them into the repairs under way; `plan` picks what to
order next. All three are functions of what was observed, the policy and the time that is passed in.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field

import numpy as np

from state.repairs import ENDS, IN_FLIGHT, Event, Repair, Stage, advance, declined
from state.rules import RULES, Verdict
from state.settings import Placement
from state.view import NO_FINDINGS, NO_MARKS, Answer, Rows, merged

SETTLE_MS = 30_000  # a mark that was not seen yet, or is gone, and its ledger's metadata may be this far apart
LOCKED_MS = 10_000  # how long a worker may still hold a mark that has lost its reason
GONE_RULE = "placement.gone"


@dataclass(frozen=True, slots=True)
class Cleared:
    """Ledgers that stopped being findings with one answer: ids, when they first drifted, and whether they were
    deleted rather than healed."""

    ledger: Rows
    since_ms: Rows
    deleted: Rows


class Board:
    """Findings and marks of all buckets. Not safe for use from several threads at once."""

    def __init__(self) -> None:
        self._findings: dict[int, Rows] = {}
        self._marks: dict[int, Rows] = {}
        self._ledgers: dict[int, int] = {}
        self._epochs: dict[int, int] = {}
        self._all: Rows | None = NO_FINDINGS
        self._all_marks: Rows | None = NO_MARKS

    def apply(self, bucket: int, answer: Answer) -> Cleared:
        """Take one bucket's answer; a repeated one changes nothing."""
        before = self._findings.get(bucket, NO_FINDINGS)
        after = answer.findings if answer.full else merged(before, answer.findings)
        self._findings[bucket], self._marks[bucket] = after, answer.marks
        self._epochs[bucket] = answer.epoch
        if answer.ledgers >= 0:
            self._ledgers[bucket] = answer.ledgers
        self._all = self._all_marks = None
        gone = before[~np.isin(before["ledger"], after["ledger"])]
        deleted = answer.findings["ledger"][answer.findings["rule"] == RULES.code(GONE_RULE)]
        return Cleared(gone["ledger"], gone["since_ms"], np.isin(gone["ledger"], deleted))

    @property
    def findings(self) -> Rows:
        """All findings, `state.view.FINDING`, in the order of ids."""
        if self._all is None:
            rows = np.concatenate([NO_FINDINGS, *self._findings.values()])
            self._all = rows[np.argsort(rows["ledger"], kind="stable")]
        return self._all

    @property
    def marks(self) -> Rows:
        """All marks and locks, `state.view.MARK`, in the order of ids."""
        if self._all_marks is None:
            rows = np.concatenate([NO_MARKS, *self._marks.values()])
            self._all_marks = rows[np.argsort(rows["ledger"], kind="stable")]
        return self._all_marks

    @property
    def ledgers(self) -> int:
        """How many ledgers the view held when it was last counted."""
        return sum(self._ledgers.values())

    def settled(self, buckets: int, epoch: int) -> bool:
        """Whether every bucket has answered for this epoch or a later one."""
        return len(self._epochs) == buckets and min(self._epochs.values()) >= epoch

    def finding(self, ledger: int) -> Rows | None:
        """The finding of one ledger, if it has one."""
        return _row(self.findings, ledger)

    def mark(self, ledger: int) -> Rows | None:
        """The mark or lock of one ledger, if it has one."""
        return _row(self.marks, ledger)


def _row(rows: Rows, ledger: int) -> Rows | None:
    at = int(np.searchsorted(rows["ledger"], ledger))
    return rows[at] if at < len(rows) and rows["ledger"][at] == ledger else None


def riskiest(findings: Rows) -> Rows:
    """Findings in the order in which they should be repaired: fewest surviving copies, fewest racks, oldest."""
    keys = (findings["ledger"], findings["ctime_ms"], findings["racks"], findings["copies"])
    return findings[np.lexsort(keys)]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to order now. ``marks``: findings, riskiest first. ``withdrawals``: repairs whose mark has lost its
    reason. ``waiting``: drifted ledgers that have to wait, by reason."""

    marks: Rows = field(default_factory=lambda: NO_FINDINGS)
    withdrawals: tuple[Repair, ...] = ()
    waiting: Mapping[str, int] = field(default_factory=dict)


def wanted(board: Board, repairs: Mapping[int, Repair], now_ms: int) -> Rows:
    """Drifted ledgers that nothing is under way for, riskiest first."""
    drifted = board.findings[board.findings["verdict"] == Verdict.DRIFTED]
    marked = board.marks["ledger"][board.marks["version"] >= 0]
    busy = [r.ledger for r in repairs.values() if r.stage in IN_FLIGHT or r.next_ms > now_ms]
    taken = np.concatenate([marked, np.array(busy, np.int64)])
    return riskiest(drifted[~np.isin(drifted["ledger"], taken)])


def plan(board: Board, repairs: Mapping[int, Repair], policy: Placement, now_ms: int, rate: int) -> Plan:
    """What may be ordered now under the policy; ``rate`` is how many marks the rate limit leaves."""
    if policy.mode == "observe":
        return Plan()
    withdrawals = tuple(r for r in repairs.values() if r.stage is Stage.LEAVING and _may_leave(r, board, now_ms))
    if policy.paused:
        return Plan(withdrawals=withdrawals, waiting={"paused": len(wanted(board, repairs, now_ms))})
    candidates = wanted(board, repairs, now_ms)
    waiting: dict[str, int] = {}
    if policy.mode == "approve":
        approved = {r.ledger: r.version for r in repairs.values() if r.stage is Stage.APPROVED}
        versions = zip(candidates["ledger"].tolist(), candidates["version"].tolist(), strict=True)
        said = np.array([approved.get(ledger) == version for ledger, version in versions], bool)
        waiting["approval"] = int((~said).sum())
        candidates = candidates[said]
    # A worker removes the mark of a ledger that is true again at sight: it takes no room.
    pending = sum(
        r.stage is Stage.ORDERED and now_ms - r.at_ms < SETTLE_MS and board.finding(r.ledger) is not None
        for r in repairs.values()
    )
    room = max(0, policy.max_marks - int((board.marks["version"] >= 0).sum()) - pending)
    waiting["room for marks"] = max(0, len(candidates) - room)
    waiting["rate"] = max(0, min(len(candidates), room) - rate)
    return Plan(candidates[: min(room, rate)], withdrawals, {k: v for k, v in waiting.items() if v})


def _may_leave(repair: Repair, board: Board, now_ms: int) -> bool:
    """A worker that is at it finishes first: it takes the mark away itself."""
    mark = board.mark(repair.ledger)
    return mark is None or not mark["locked"] or now_ms - repair.at_ms >= LOCKED_MS


def observe(
    board: Board,
    repairs: MutableMapping[int, Repair],
    policy: Placement,
    now_ms: int,
    deleted: frozenset[int] = frozenset(),
) -> list[Repair]:
    """Fold what was observed into the repairs under way; the changed ones, ended ones among them, which are
    taken out of ``repairs``."""
    if not repairs:
        return []
    ids = np.array(list(repairs), np.int64)
    finding = _lookup(board.findings, ids)
    mark = _lookup(board.marks, ids)
    changed = []
    for ledger, f, m in zip(ids.tolist(), finding.tolist(), mark.tolist(), strict=True):
        before = repairs[ledger]
        after = _observed(before, board.findings[f] if f >= 0 else None, board.marks[m] if m >= 0 else None,
                          policy, now_ms, ledger in deleted)  # fmt: skip
        if after is not before:
            changed.append(after)
            if after.stage in ENDS:
                del repairs[ledger]
            else:
                repairs[ledger] = after
    return changed


def _lookup(rows: Rows, ids: Rows) -> Rows:
    if not len(rows):
        return np.full(len(ids), -1)
    at = np.minimum(np.searchsorted(rows["ledger"], ids), len(rows) - 1)
    return np.where(rows["ledger"][at] == ids, at, -1)


def _observed(
    repair: Repair, finding: Rows | None, mark: Rows | None, policy: Placement, now_ms: int, deleted: bool
) -> Repair:
    """The repair after everything that is known of its ledger now."""
    if deleted:
        return advance(repair, Event.GO, now_ms, "the ledger was deleted")
    ours = mark is not None and int(mark["version"]) >= 0 and int(mark["ctime_ms"]) == repair.mark_ctime_ms
    locked = mark is not None and bool(mark["locked"])
    repair = _marked(repair, ours, locked, now_ms)
    verdict = Verdict(int(finding["verdict"])) if finding is not None else Verdict.TRUE
    unseen = repair.stage is Stage.ORDERED and now_ms - repair.at_ms < SETTLE_MS
    if verdict is Verdict.UNKNOWN or unseen:
        return repair
    if verdict is Verdict.TRUE:
        return _healed(repair, ours, now_ms)
    if verdict is Verdict.BLOCKED and repair.stage in (Stage.APPROVED, Stage.MARKED, Stage.WORKING, Stage.UNMARKED):
        # An order that was given up is remembered: its mark may yet show, and then has to be withdrawn.
        return _lapsed(repair, now_ms, "there is no remedy any more")
    if not ours and repair.stage is Stage.LEAVING:
        return advance(repair, Event.VANISH, now_ms, repair.detail)
    if not ours and repair.stage in (Stage.MARKED, Stage.WORKING) and not locked:
        return advance(repair, Event.VANISH, now_ms, "the mark is gone")
    if repair.stage in (Stage.ORDERED, Stage.UNMARKED) and now_ms - repair.at_ms >= SETTLE_MS:
        return declined(repair, now_ms, int(policy.decline_retry_s * 1000))
    return _stale_approval(repair, finding, now_ms)


def _marked(repair: Repair, ours: bool, locked: bool, now_ms: int) -> Repair:
    if ours and repair.stage in (Stage.ORDERED, Stage.DECLINED, Stage.APPROVED, Stage.UNMARKED):
        repair = advance(repair, Event.APPEAR, now_ms)
    if locked and repair.stage is Stage.MARKED:
        return advance(repair, Event.LOCK, now_ms)
    if ours and not locked and repair.stage is Stage.WORKING:
        return advance(repair, Event.UNLOCK, now_ms)
    return repair


def _healed(repair: Repair, ours: bool, now_ms: int) -> Repair:
    if not ours:
        return advance(repair, Event.HEAL, now_ms, "metadata and liveness say so")
    if repair.stage is Stage.LEAVING:
        return repair
    return advance(repair, Event.LAPSE, now_ms, "the ledger is true again")


def _stale_approval(repair: Repair, finding: Rows | None, now_ms: int) -> Repair:
    if repair.stage is Stage.APPROVED and finding is not None and int(finding["version"]) != repair.version:
        return _lapsed(repair, now_ms, "the ledger changed after it was approved")
    return repair


def _lapsed(repair: Repair, now_ms: int, detail: str) -> Repair:
    """An approval leaves behind what is remembered of an earlier order, the mark of which may yet show."""
    earlier = repair.stage is Stage.APPROVED and repair.mark_ctime_ms
    return advance(repair, Event.VANISH if earlier else Event.LAPSE, now_ms, detail)
