"""The life cycle of a repair, as a table.

Either BookKeeper does the repair: Trueup writes a mark and a worker takes it. Or Trueup copies the entries itself. In
both cases only the metadata of the ledger show that the ledger is safe. The removal of a mark proves nothing. An event
that the table does not list changes nothing.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from trueup.state.common.backoff import backoff
from trueup.state.common.errors import Refused


class RepairStage(StrEnum):
    """The stage of a repair. ``planned`` is the first; the last three are final."""

    PLANNED = "planned"
    APPROVED = "approved"
    ORDERED = "ordered"
    MARKED = "marked"
    WORKING = "working"
    UNMARKED = "unmarked"
    LEAVING = "leaving"
    STUCK = "stuck"
    COPYING = "copying"
    COPIED = "copied"
    DECLINED = "declined"
    SAFE = "safe"
    WITHDRAWN = "withdrawn"
    DROPPED = "dropped"


class RepairEvent(StrEnum):
    """An event of a repair."""

    APPROVE = "approve"  # an operator approved it
    ORDER = "order"  # the mark was passed to the connector and may or may not be written
    REFUSE = "refuse"  # the requirements no longer held; nothing was written
    APPEAR = "appear"  # Trueup's mark was observed
    LOCK = "lock"  # a worker locked the mark
    UNLOCK = "unlock"  # the worker released the lock and the mark still exists
    VANISH = "vanish"  # no mark of Trueup exists, and the ledger is unchanged
    HEAL = "heal"  # metadata and liveness show that the ledger is true, and no mark of Trueup is left
    FAIL = "fail"  # workers failed for the whole time placement.give_up_s
    LAPSE = "lapse"  # nothing is left to repair, no remedy exists any more, or a mass loss is held
    WITHDRAW = "withdraw"  # Trueup removed its mark
    GO = "go"  # the ledger was deleted
    COPY = "copy"  # Trueup began to copy the ledger
    DONE = "done"  # Trueup has copied it and changed its metadata


LOST_MEMBER = "placement.lost-member"
"""The rule of the ledgers that miss replicas and are repaired."""

_S, _E = RepairStage, RepairEvent
_UNDER_WAY = (
    _S.APPROVED,
    _S.DECLINED,
    _S.ORDERED,
    _S.MARKED,
    _S.WORKING,
    _S.UNMARKED,
    _S.LEAVING,
    _S.STUCK,
    _S.COPYING,
    _S.COPIED,
)
TRANSITIONS: Mapping[tuple[RepairStage, RepairEvent], RepairStage] = {
    (_S.PLANNED, _E.APPROVE): _S.APPROVED,
    (_S.PLANNED, _E.ORDER): _S.ORDERED,
    (_S.APPROVED, _E.ORDER): _S.ORDERED,
    (_S.APPROVED, _E.LAPSE): _S.DROPPED,
    (_S.APPROVED, _E.APPEAR): _S.MARKED,  # the mark is from an order before the approval
    (_S.APPROVED, _E.VANISH): _S.DECLINED,
    (_S.DECLINED, _E.APPROVE): _S.APPROVED,
    (_S.DECLINED, _E.ORDER): _S.ORDERED,
    (_S.DECLINED, _E.APPEAR): _S.MARKED,  # the mark is from an order that was given up
    (_S.ORDERED, _E.REFUSE): _S.DROPPED,
    (_S.ORDERED, _E.APPEAR): _S.MARKED,
    (_S.ORDERED, _E.LOCK): _S.WORKING,
    (_S.ORDERED, _E.VANISH): _S.DECLINED,
    (_S.MARKED, _E.LOCK): _S.WORKING,
    (_S.MARKED, _E.VANISH): _S.UNMARKED,
    (_S.MARKED, _E.LAPSE): _S.LEAVING,
    (_S.MARKED, _E.FAIL): _S.STUCK,
    (_S.WORKING, _E.UNLOCK): _S.MARKED,
    (_S.WORKING, _E.VANISH): _S.UNMARKED,
    (_S.WORKING, _E.LAPSE): _S.LEAVING,
    (_S.WORKING, _E.FAIL): _S.STUCK,
    (_S.STUCK, _E.WITHDRAW): _S.DECLINED,
    (_S.STUCK, _E.VANISH): _S.DECLINED,
    (_S.STUCK, _E.LAPSE): _S.LEAVING,
    (_S.UNMARKED, _E.APPEAR): _S.MARKED,
    (_S.UNMARKED, _E.VANISH): _S.DECLINED,  # after SETTLE_MS, when new metadata would be visible
    (_S.UNMARKED, _E.LAPSE): _S.DROPPED,
    (_S.LEAVING, _E.WITHDRAW): _S.WITHDRAWN,
    (_S.LEAVING, _E.VANISH): _S.WITHDRAWN,
    **{(stage, _E.COPY): _S.COPYING for stage in (_S.PLANNED, _S.APPROVED, _S.DECLINED)},
    (_S.COPYING, _E.DONE): _S.COPIED,
    (_S.COPYING, _E.VANISH): _S.DECLINED,
    (_S.COPIED, _E.VANISH): _S.DECLINED,  # after SETTLE_MS, when new metadata would be visible
    **{(stage, _E.HEAL): _S.SAFE for stage in _UNDER_WAY},
    **{(stage, _E.GO): _S.DROPPED for stage in _UNDER_WAY},
}
ENDS = frozenset({RepairStage.SAFE, RepairStage.WITHDRAWN, RepairStage.DROPPED})
IN_FLIGHT = frozenset(
    {
        RepairStage.ORDERED,
        RepairStage.MARKED,
        RepairStage.WORKING,
        RepairStage.UNMARKED,
        RepairStage.LEAVING,
        RepairStage.STUCK,
        RepairStage.COPYING,
        RepairStage.COPIED,
    }
)


class Repair(NamedTuple):
    """One ledger's repair. Times are ms since the epoch."""

    ledger: int
    rule: str
    version: int
    """The version of the znode of the ledger at the decision."""
    since_ms: int
    stage: RepairStage = RepairStage.PLANNED
    at_ms: int = 0
    mark_ctime_ms: int = 0
    """The ctime in Trueup's mark; 0 if Trueup has ordered none. A mark with another ctime belongs to another writer and
    is not touched."""
    attempts: int = 0
    next_ms: int = 0
    """The earliest time of the next order. For a marked repair: the time after which workers count as failed; 0 until a
    worker takes the mark."""
    detail: str = ""


UNCHANGED = "a worker removed the mark and left the ledger unchanged"


def renewed(repair: Repair, rule: str) -> bool:
    """Whether a finding of this rule needs another repair: a member was lost after workers declined to move replicas.
    The wait, which can be a day, is for the earlier reason only."""
    return rule == LOST_MEMBER and repair.rule != LOST_MEMBER


def advance(
    repair: Repair, event: RepairEvent, now_ms: int, detail: str = "", mark_ctime_ms: int | None = None
) -> Repair:
    """The repair after an event; ``mark_ctime_ms`` replaces the ctime of the mark if given.

    Raises `Refused` if the table has no such transition.
    """
    stage = TRANSITIONS.get((repair.stage, event))
    if stage is None:
        raise Refused(f"an event permitted in stage {repair.stage}", event, f"observe ledger {repair.ledger} again")
    next_ms = 0 if event in (RepairEvent.ORDER, RepairEvent.COPY) else repair.next_ms
    ctime_ms = repair.mark_ctime_ms if mark_ctime_ms is None else mark_ctime_ms
    # Called for tens of thousands of repairs at once: `_replace` would dominate the time.
    return Repair(
        repair.ledger,
        repair.rule,
        repair.version,
        repair.since_ms,
        stage,
        now_ms,
        ctime_ms,
        repair.attempts,
        next_ms,
        detail,
    )


def declined(
    repair: Repair, now_ms: int, first_wait_ms: int, event: RepairEvent = RepairEvent.VANISH, detail: str = UNCHANGED
) -> Repair:
    """The repair after an attempt left the ledger unchanged; each wait is twice the previous one, up to one day."""
    wait = backoff(first_wait_ms, repair.attempts, 86_400_000)
    detail = repair.detail if repair.stage is RepairStage.STUCK else detail
    after = advance(repair, event, now_ms, detail)
    return after._replace(attempts=repair.attempts + 1, next_ms=now_ms + wait)


def withdrawn(repair: Repair, now_ms: int, first_wait_ms: int) -> Repair:
    """The repair after its mark was withdrawn; a stuck repair is retried later."""
    if repair.stage is RepairStage.STUCK:
        return declined(repair, now_ms, first_wait_ms, RepairEvent.WITHDRAW)
    return advance(repair, RepairEvent.WITHDRAW, now_ms, repair.detail)
