"""All findings, and the actions to take on them now.

The board collects the answers of all buckets, and the marks; `state.placement.repairs` applies them to the repairs in
progress; `plan` selects the next actions. All three are functions of the observations, the policy and the given time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trueup.state.bookkeeper.marks import HIDDEN, NO_MARKS, MarkRows
from trueup.state.common.rules import Verdict
from trueup.state.placement.lifecycle import IN_FLIGHT, Repair, RepairStage, renewed
from trueup.state.placement.policy.fencing import NO_FORMER, FormerMembers, joined
from trueup.state.placement.policy.fragments import COPIED, VERDICTS
from trueup.state.placement.rules import RULES
from trueup.state.placement.settings import PlacementSettings
from trueup.state.placement.view import NO_FINDINGS, BucketAnswer, Rows, merged

LOCKED_MS = 10_000  # how long a worker may hold the lock of a mark whose reason is gone
GONE_RULE = "placement.gone"
HOLD = "the release of the hold"
"""What ledgers of a mass loss wait for, as `RepairPlan.waiting` names it."""
NEWER_WORKERS = "AutoRecovery of BookKeeper 4.16 or later"
"""What ledgers wait for that only BP-54 repairs."""
MARKED: Rows = VERDICTS == Verdict.DRIFTED
"""Whether ledgers of each rule are repaired by marks, by code: bool."""
LOST_MEMBER = RULES.code("placement.lost-member")
"""The rule of drifted ledgers that workers of every version repair."""


@dataclass(frozen=True, slots=True)
class ClearedFindings:
    """Ledgers that stopped being findings with one answer, on the board or in the bucket."""

    ledger: Rows
    """The id of each ledger."""
    since_ms: Rows
    """When each ledger first drifted, ms since the epoch."""
    deleted: Rows
    """Whether each ledger was deleted rather than repaired."""
    wrong: Rows
    """Whether each finding was a defect. A finding with an unknown verdict is none."""


_AGE = np.dtype([("ledger", "<i8"), ("since_ms", "<i8")])


class FindingAges:
    """Since when ledgers were findings of earlier views, in ms since the epoch: a view that is built again begins
    without this. ``ledger`` is ascending."""

    def __init__(self, ledger: Rows, since_ms: Rows) -> None:
        self._rows = np.zeros(len(ledger), _AGE)
        self._rows["ledger"], self._rows["since_ms"] = ledger, since_ms

    def of(self, findings: Rows) -> Rows:
        """The findings, each with the earlier of both times."""
        at = lookup(self._rows, findings["ledger"])
        hits = at >= 0
        if not hits.any():
            return findings
        aged = findings.copy()
        aged["since_ms"][hits] = np.minimum(findings["since_ms"][hits], self._rows["since_ms"][at[hits]])
        return aged

    def forget(self, ledgers: Rows) -> None:
        """These ledgers stopped being findings: their next one is another."""
        at = lookup(self._rows, ledgers)
        self._rows["since_ms"][at[at >= 0]] = np.iinfo(np.int64).max


def lookup(rows: Rows, ids: Rows) -> Rows:
    """The position of each id in rows ordered by id, -1 if absent."""
    if not len(rows):
        return np.full(len(ids), -1)
    at = np.minimum(np.searchsorted(rows["ledger"], ids), len(rows) - 1)
    return np.where(rows["ledger"][at] == ids, at, -1)


NO_AGES = FindingAges(np.zeros(0, np.int64), np.zeros(0, np.int64))


class Board:
    """Findings of all buckets, and ``marks``, ordered by ledger id. ``outdated``: ledgers that may not be read any
    more, so that their findings may be wrong; int64. ``ages``: the ages of findings of earlier views. Not safe for use
    from several threads at once."""

    def __init__(self, ages: FindingAges = NO_AGES) -> None:
        self._ages, self._whole = ages, False
        self._findings: dict[int, Rows] = {}
        self._former: dict[int, FormerMembers] = {}
        self._ledgers: dict[int, int] = {}
        self._epochs: dict[int, int] = {}
        self._all: Rows | None = NO_FINDINGS
        self.marks: MarkRows = NO_MARKS
        self.outdated: Rows = np.zeros(0, np.int64)
        self._all_former: FormerMembers | None = NO_FORMER

    def aged(self, answer: BucketAnswer) -> BucketAnswer:
        """An answer whose findings have the ages of earlier views."""
        return replace(answer, findings=self._ages.of(answer.findings))

    def whole(self) -> None:
        """Every bucket has answered: earlier findings that are none now are over."""
        if not self._whole:
            self._ages, self._whole = FindingAges(self.findings["ledger"], self.findings["since_ms"]), True

    def apply(self, bucket: int, answer: BucketAnswer) -> ClearedFindings:
        """Apply one bucket's answer, as `aged` returns it. Idempotent."""
        before = self._findings.get(bucket, NO_FINDINGS)
        after = merged(NO_FINDINGS if answer.full else before, answer.findings)
        self._findings[bucket], self._all = after, None
        self._former[bucket], self._all_former = answer.former, None
        # Findings of a change say nothing about the rest of the bucket.
        if answer.full or bucket in self._epochs:
            self._epochs[bucket] = answer.epoch
        if answer.ledgers >= 0:
            self._ledgers[bucket] = answer.ledgers
        deleted = answer.findings[answer.findings["rule"] == RULES.code(GONE_RULE)]
        cleared = before[~np.isin(before["ledger"], after["ledger"])]
        # A finding of an earlier run whose ledger was deleted was never on this board: only its bucket knows it.
        gone = np.concatenate([cleared, deleted[~np.isin(deleted["ledger"], cleared["ledger"])]])
        self._ages.forget(gone["ledger"])
        wrong = ~np.isin(gone["verdict"], [Verdict.UNKNOWN, Verdict.TRUE])
        return ClearedFindings(gone["ledger"], gone["since_ms"], np.isin(gone["ledger"], deleted["ledger"]), wrong)

    @property
    def findings(self) -> Rows:
        """All findings, `state.placement.view.FINDING`, ordered by ledger id."""
        if self._all is None:
            rows = np.concatenate([NO_FINDINGS, *self._findings.values()])
            self._all = rows[np.argsort(rows["ledger"], kind="stable")]
        return self._all

    @property
    def former(self) -> FormerMembers:
        """The bookies that may refuse ledgers with findings, now or later."""
        if self._all_former is None:
            self._all_former = joined(self._former.values())
        return self._all_former

    @property
    def ledgers(self) -> int:
        """The number of ledgers in the view at the last count."""
        return sum(self._ledgers.values())

    def settled(self, buckets: int, epoch: int) -> bool:
        """Whether every bucket has reported all its findings, and has judged for this epoch or a later one."""
        return len(self._epochs) == buckets and min(self._epochs.values()) >= epoch

    def finding(self, ledger: int) -> Rows | None:
        """The finding of one ledger, or None."""
        return _row(self.findings, ledger)

    def mark(self, ledger: int) -> Rows | None:
        """The mark or lock of one ledger, or None."""
        return _row(self.marks, ledger)


def _row(rows: Rows, ledger: int) -> Rows | None:
    at = int(np.searchsorted(rows["ledger"], ledger))
    return rows[at] if at < len(rows) and rows["ledger"][at] == ledger else None


def riskiest(findings: Rows) -> Rows:
    """Findings in order of repair: fewest live replicas, fewest racks, oldest."""
    keys = (findings["ledger"], findings["ctime_ms"], findings["racks"], findings["copies"])
    return findings[np.lexsort(keys)]


def by_rule(findings: Rows) -> dict[tuple[str, Verdict], int]:
    """The number of findings by rule and verdict."""
    # One number for both: rows of a structured array are compared forty times slower.
    codes, counts = np.unique(findings["rule"].astype(np.uint16) << 8 | findings["verdict"], return_counts=True)
    pairs = ((RULES[code >> 8].id, Verdict(code & 0xFF)) for code in codes.tolist())
    return dict(zip(pairs, counts.tolist(), strict=True))


_OPEN = RULES.code("placement.open-waits-for-writer")


def without_copies(findings: Rows, outdated: Rows) -> int:
    """The number of ledgers that have entries without a live replica, whatever their rule: a finding has the rule of
    the fragment that can be repaired. Unknown ledgers, among them the ``outdated`` ones, do not count: their replicas
    are not known. Nor do open ledgers that wait for their writer: nothing may be written where no replica lives."""
    judged = np.isin(findings["verdict"], [Verdict.DRIFTED, Verdict.BLOCKED]) & (findings["rule"] != _OPEN)
    return int(np.count_nonzero(judged & (findings["copies"] == 0) & ~np.isin(findings["ledger"], outdated)))


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """The actions to take now."""

    marks: Rows = field(default_factory=lambda: NO_FINDINGS)
    """The findings whose ledgers are to be marked, in the order of `wanted`."""
    copies: Rows = field(default_factory=lambda: NO_FINDINGS)
    """The findings whose ledgers are to be copied, in the order of `wanted`."""
    withdrawals: tuple[Repair, ...] = ()
    """The repairs whose mark is to be removed: its reason is gone, or workers failed to repair the ledger."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """The number of drifted ledgers that wait, by reason."""


def repairable(policy: PlacementSettings) -> Rows:
    """Whether ledgers with each rule, by code, are repaired: by a mark only drifted ones are, a copy does not depend on
    the walk and the choice of BookKeeper's workers. bool."""
    return MARKED | COPIED if policy.executor == "copy" else MARKED


def wanted(board: Board, repairs: Mapping[int, Repair], policy: PlacementSettings, now_ms: int) -> Rows:
    """Repairable ledgers that may be read, without a repair in progress, highest risk first. Of the first ones, at most
    every second is one that was tried before: otherwise those that cannot be repaired would take all places again and
    again."""
    drifted = board.findings[repairable(policy)[board.findings["rule"]]]
    marked = board.marks["ledger"][board.marks["version"] >= 0]
    busy = [r.ledger for r in repairs.values() if r.stage in IN_FLIGHT]
    idle = [r for r in repairs.values() if r.stage not in IN_FLIGHT and (r.attempts or r.next_ms > now_ms)]
    tried = _same(drifted, idle)
    waits = [r.ledger for r in tried if r.next_ms > now_ms]
    taken = np.concatenate([marked, board.outdated, np.array([*busy, *waits], np.int64)])
    rows = riskiest(drifted[~np.isin(drifted["ledger"], taken)])
    again = np.isin(rows["ledger"], np.array([r.ledger for r in tried], np.int64))
    first, repeated = np.cumsum(~again), np.cumsum(again)
    place = np.where(again, np.maximum(first, repeated - 1), first - 1)
    return rows[np.lexsort((~again, place))]


def _same(findings: Rows, repairs: Sequence[Repair]) -> list[Repair]:
    """Those of these repairs that still are about the reason of their finding."""
    at = lookup(findings, np.array([r.ledger for r in repairs], np.int64)).tolist()
    rules = [RULES[int(findings["rule"][row])].id if row >= 0 else "" for row in at]
    return [r for r, rule in zip(repairs, rules, strict=True) if not renewed(r, rule)]


def unheld(findings: Rows) -> Rows:
    """The findings that do not name a bookie of a mass loss that is held: the others are not acted upon."""
    free: Rows = findings[findings["held"] == 0]
    return free


def plan(
    board: Board,
    repairs: Mapping[int, Repair],
    policy: PlacementSettings,
    now_ms: int,
    rate: int,
    old_workers: bool = False,
    copies: int = 0,
) -> RepairPlan:
    """The actions that the policy permits now. ``rate``: marks that the rate limit permits; ``old_workers``: whether a
    worker may take a mark, change nothing and remove it, because it does not repair placement; ``copies``: the number
    of copies that can begin."""
    if policy.mode == "observe":
        return RepairPlan()
    leaving = (RepairStage.LEAVING, RepairStage.STUCK)
    withdrawals = tuple(r for r in repairs.values() if r.stage in leaving and _may_leave(r, board, now_ms))
    if policy.paused:
        return RepairPlan(withdrawals=withdrawals, waiting={"paused": len(wanted(board, repairs, policy, now_ms))})
    drifted = wanted(board, repairs, policy, now_ms)
    candidates = unheld(drifted)
    waiting = {HOLD: len(drifted) - len(candidates)}
    copying = policy.executor == "copy"
    if old_workers and not copying:
        replaced = candidates["rule"] == LOST_MEMBER
        waiting[NEWER_WORKERS] = int((~replaced).sum())
        candidates = candidates[replaced]
    if policy.mode == "approve":
        approved = {r.ledger: r.version for r in repairs.values() if r.stage is RepairStage.APPROVED}
        versions = zip(candidates["ledger"].tolist(), candidates["version"].tolist(), strict=True)
        permitted = np.array([approved.get(ledger) == version for ledger, version in versions], bool)
        waiting["approval"] = int((~permitted).sum())
        candidates = candidates[permitted]
    if copying:
        waiting["a copy to end"] = max(0, len(candidates) - copies)
        marks, copied = NO_FINDINGS, candidates[:copies]
    else:
        room = _room(board, repairs, policy)
        waiting["room for marks"] = max(0, len(candidates) - room)
        waiting["rate"] = max(0, min(len(candidates), room) - rate)
        marks, copied = candidates[: min(room, rate)], NO_FINDINGS
    return RepairPlan(marks, copied, withdrawals, {k: v for k, v in waiting.items() if v})


def _room(board: Board, repairs: Mapping[int, Repair], policy: PlacementSettings) -> int:
    """The number of marks that may be added.

    Marks of other writers (BookKeeper's Auditor, an operator) take at most half of the limit. Marks of ledgers without
    a remedy do not count, because no worker ever removes them. Marks of ledgers that are true again do not count
    either, because a worker removes them at once.
    """
    marks = board.marks[board.marks["version"] >= 0]
    at = lookup(board.findings, marks["ledger"])
    marks, verdict = marks[at >= 0], board.findings["verdict"][at[at >= 0]]
    pairs = zip(marks["ledger"].tolist(), marks["ctime_ms"].tolist(), strict=True)
    ours = np.array([i in repairs and repairs[i].mark_ctime_ms == ctime_ms for i, ctime_ms in pairs], bool)
    others = ~ours & np.isin(verdict, [Verdict.DRIFTED, Verdict.UNKNOWN])
    ordered = np.array([r.ledger for r in repairs.values() if r.stage is RepairStage.ORDERED], np.int64)
    pending = int((lookup(board.findings, ordered) >= 0).sum())
    return max(0, policy.max_marks - int(ours.sum()) - pending - min(int(others.sum()), policy.max_marks // 2))


def is_ours(mark: Rows | None, repair: Repair) -> bool:
    """Whether this is the mark of the repair. A lock without a mark, a mark that may not be read, and a mark that
    another writer changed are not."""
    if mark is None or int(mark["version"]) in (-1, HIDDEN):
        return False
    return int(mark["ctime_ms"]) == repair.mark_ctime_ms


def _may_leave(repair: Repair, board: Board, now_ms: int) -> bool:
    """Whether the mark of the repair can be removed. A worker that holds the lock finishes first and removes the mark
    itself."""
    mark = board.mark(repair.ledger)
    if mark is None or not is_ours(mark, repair):
        return False
    return not mark["locked"] or now_ms - repair.at_ms >= LOCKED_MS
