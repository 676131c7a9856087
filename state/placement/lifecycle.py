"""The life of a repair, as a table.

A repair is BookKeeper's to do: Trueup writes a mark, a worker takes it, and only the ledger's own metadata says
that it is safe. A mark that went away proves nothing. An event that the table does not know changes nothing.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from trueup.state.common.backoff import backoff
from trueup.state.common.errors import Refused


class Stage(StrEnum):
    """How far a repair is. ``planned`` is where it starts; the last three end it."""

    PLANNED = "planned"
    APPROVED = "approved"
    ORDERED = "ordered"
    MARKED = "marked"
    WORKING = "working"
    UNMARKED = "unmarked"
    LEAVING = "leaving"
    STUCK = "stuck"
    DECLINED = "declined"
    SAFE = "safe"
    WITHDRAWN = "withdrawn"
    DROPPED = "dropped"


class Event(StrEnum):
    """What can happen to a repair."""

    APPROVE = "approve"  # an operator said yes to it
    ORDER = "order"  # the mark was handed to the connector; it may or may not be written
    REFUSE = "refuse"  # the requirements no longer held; nothing was written
    APPEAR = "appear"  # our mark was seen
    LOCK = "lock"  # a worker took it
    UNLOCK = "unlock"  # the worker let it go and the mark is still there
    VANISH = "vanish"  # no mark of ours is to be seen, and the ledger is as it was
    HEAL = "heal"  # metadata and liveness say that the ledger is true, and no mark of ours is left
    FAIL = "fail"  # workers tried for so long that they cannot do it
    LAPSE = "lapse"  # nothing is left to repair, or no remedy exists any more
    WITHDRAW = "withdraw"  # we took our mark back
    GO = "go"  # the ledger was deleted


_S, _E = Stage, Event
_UNDER_WAY = (_S.APPROVED, _S.DECLINED, _S.ORDERED, _S.MARKED, _S.WORKING, _S.UNMARKED, _S.LEAVING, _S.STUCK)
TRANSITIONS: Mapping[tuple[Stage, Event], Stage] = {
    (_S.PLANNED, _E.APPROVE): _S.APPROVED,
    (_S.PLANNED, _E.ORDER): _S.ORDERED,
    (_S.APPROVED, _E.ORDER): _S.ORDERED,
    (_S.APPROVED, _E.LAPSE): _S.DROPPED,
    (_S.APPROVED, _E.APPEAR): _S.MARKED,  # of an order before the approval
    (_S.APPROVED, _E.VANISH): _S.DECLINED,
    (_S.DECLINED, _E.APPROVE): _S.APPROVED,
    (_S.DECLINED, _E.ORDER): _S.ORDERED,
    (_S.DECLINED, _E.APPEAR): _S.MARKED,  # an old outcome that we had given up on
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
    (_S.UNMARKED, _E.VANISH): _S.DECLINED,  # for so long that the ledger's new metadata would have shown
    (_S.UNMARKED, _E.LAPSE): _S.DROPPED,
    (_S.LEAVING, _E.WITHDRAW): _S.WITHDRAWN,
    (_S.LEAVING, _E.VANISH): _S.WITHDRAWN,
    **{(stage, _E.HEAL): _S.SAFE for stage in _UNDER_WAY},
    **{(stage, _E.GO): _S.DROPPED for stage in _UNDER_WAY},
}
ENDS = frozenset({Stage.SAFE, Stage.WITHDRAWN, Stage.DROPPED})
IN_FLIGHT = frozenset({Stage.ORDERED, Stage.MARKED, Stage.WORKING, Stage.UNMARKED, Stage.LEAVING, Stage.STUCK})


class Repair(NamedTuple):
    """One ledger's repair. Times are ms since the epoch.

    ``mark_ctime_ms`` is the ctime that our mark carries; a mark with another ctime is somebody else's and is left
    alone. ``version`` is the znode version of the ledger that the action was decided on. ``next_ms``: not ordered
    again before that; of a marked one when its workers have tried for long enough, 0 until one took it.
    """

    ledger: int
    rule: str
    version: int
    since_ms: int
    stage: Stage = Stage.PLANNED
    at_ms: int = 0
    mark_ctime_ms: int = 0
    attempts: int = 0
    next_ms: int = 0
    detail: str = ""


def advance(repair: Repair, event: Event, now_ms: int, detail: str = "", mark_ctime_ms: int | None = None) -> Repair:
    """The repair after an event; with a new ``mark_ctime_ms`` if one is given.

    Raises `Refused`, and changes nothing, where the table has no such step.
    """
    stage = TRANSITIONS.get((repair.stage, event))
    if stage is None:
        raise Refused(f"an event that {repair.stage} knows", event, f"look at ledger {repair.ledger} again")
    next_ms = 0 if event is Event.ORDER else repair.next_ms
    ctime_ms = repair.mark_ctime_ms if mark_ctime_ms is None else mark_ctime_ms
    # Of tens of thousands at once: `_replace` takes longer than all the rest.
    return Repair(
        repair.ledger, repair.rule, repair.version, repair.since_ms, stage, now_ms, ctime_ms, repair.attempts, next_ms,
        detail,
    )  # fmt: skip


def declined(repair: Repair, now_ms: int, first_wait_ms: int, event: Event = Event.VANISH) -> Repair:
    """The repair after workers left the ledger as it was; each wait is twice the one before, a day at most."""
    wait = backoff(first_wait_ms, repair.attempts, 86_400_000)
    stuck = repair.stage is Stage.STUCK
    detail = repair.detail if stuck else "a worker took the mark away and left the ledger as it was"
    after = advance(repair, event, now_ms, detail)
    return after._replace(attempts=repair.attempts + 1, next_ms=now_ms + wait)


def withdrawn(repair: Repair, now_ms: int, first_wait_ms: int) -> Repair:
    """The repair after its mark was taken back: one that was stuck is tried again later."""
    if repair.stage is Stage.STUCK:
        return declined(repair, now_ms, first_wait_ms, Event.WITHDRAW)
    return advance(repair, Event.WITHDRAW, now_ms, repair.detail)
