"""The life cycle of a deletion, as a table, and its transitions by observation and time.

Every action is recorded in the deletion first, and the record remains until storage confirms: the metadata are gone,
and every bookie that they named reports that it has none. Bookies that left the ensembles before, because AutoRecovery
replaced them, are not asked: they collect what no metadata name. An event that the table does not list changes nothing.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from trueup.state.common.backoff import backoff
from trueup.state.common.errors import Refused

LONGEST_MS = 3_600_000


class DeletionStage(StrEnum):
    """The stage of a deletion. ``suspected`` is the first; the last two are final."""

    SUSPECTED = "suspected"
    MARKED = "marked"
    DELETING = "deleting"
    GONE = "gone-from-metadata"
    BLOCKED = "blocked"
    CONFIRMED = "confirmed"
    WITHDRAWN = "withdrawn"


class DeletionEvent(StrEnum):
    """An event of a deletion."""

    MARK = "mark"  # the grace period ended, and a second check had the same result
    ORDER = "order"  # the transaction was sent and may or may not be executed
    DONE = "done"  # the transaction was executed
    FAIL = "fail"  # it failed for a transient reason, or the outcome is unknown and the ledger still exists
    REFUSE = "refuse"  # its requirements do not hold, or no longer hold
    CLEAR = "clear"  # the ledger is referenced, or was changed
    VANISH = "vanish"  # the ledger's metadata are gone
    RETURN = "return"  # the ledger's metadata exist again
    CONFIRM = "confirm"  # every bookie reports that it has no such ledger


_S, _E = DeletionStage, DeletionEvent
_WAITING = (_S.SUSPECTED, _S.MARKED, _S.BLOCKED)
TRANSITIONS: Mapping[tuple[DeletionStage, DeletionEvent], DeletionStage] = {
    (_S.SUSPECTED, _E.MARK): _S.MARKED,
    (_S.SUSPECTED, _E.VANISH): _S.GONE,
    (_S.MARKED, _E.ORDER): _S.DELETING,
    (_S.MARKED, _E.VANISH): _S.GONE,
    (_S.MARKED, _E.REFUSE): _S.BLOCKED,
    (_S.DELETING, _E.DONE): _S.GONE,
    (_S.DELETING, _E.VANISH): _S.GONE,
    (_S.DELETING, _E.FAIL): _S.MARKED,
    (_S.DELETING, _E.REFUSE): _S.BLOCKED,
    (_S.DELETING, _E.CLEAR): _S.BLOCKED,
    (_S.BLOCKED, _E.MARK): _S.MARKED,
    (_S.BLOCKED, _E.VANISH): _S.GONE,
    (_S.GONE, _E.RETURN): _S.BLOCKED,
    (_S.GONE, _E.CONFIRM): _S.CONFIRMED,
    **{(stage, _E.CLEAR): _S.WITHDRAWN for stage in _WAITING},
}
ENDS = frozenset({DeletionStage.CONFIRMED, DeletionStage.WITHDRAWN})


class Deletion(NamedTuple):
    """One deletion of a ledger, or of the objects of a ledger in tiered storage. Times are in ms since the epoch."""

    ledger: int
    rule: str
    owner: str
    version: int
    """The version of the ledger's znode at the decision; -1 for objects."""
    ctime_ms: int
    """The ctime of the ledger's znode at the decision; 0 for objects."""
    length: int
    """The size of the ledger or of the objects, in bytes."""
    since_ms: int
    """When the ledger was first observed as unreferenced. For an ordered deletion: when it was ordered. For objects:
    when the newest of them was written, or when a later listing of the run first contained them as unreferenced."""
    stage: DeletionStage = DeletionStage.SUSPECTED
    at_ms: int = 0
    approved: bool = False
    """Whether an operator approved the deletion."""
    attempts: int = 0
    """The number of failed attempts to delete the ledger or, after the deletion, to have it confirmed."""
    next_ms: int = 0
    """The time of the next attempt; 0: at once."""
    bookies: tuple[str, ...] = ()
    """All bookies of any ensemble of the ledger, or the places of the objects."""
    pending: tuple[str, ...] = ()
    """The bookies or places that have not reported yet that they hold nothing of the ledger. Set when the metadata of
    the ledger are gone."""
    detail: str = ""
    by: str = ""
    """Who ordered or approved the deletion, or found the ledger; empty if an earlier release recorded it."""


def advance(deletion: Deletion, event: DeletionEvent, now_ms: int, detail: str = "") -> Deletion:
    """The deletion after an event. Raises `Refused` if the table has no such transition."""
    stage = TRANSITIONS.get((deletion.stage, event))
    if stage is None:
        raise Refused(f"an event permitted in stage {deletion.stage}", event, f"observe ledger {deletion.ledger} again")
    after = deletion._replace(stage=stage, at_ms=now_ms, detail=detail)
    return after._replace(attempts=0, next_ms=0, pending=deletion.bookies) if stage is DeletionStage.GONE else after


def again(deletion: Deletion, now_ms: int, first_ms: int) -> Deletion:
    """The deletion after one more failed attempt: each wait is twice the previous one, up to one hour."""
    wait = backoff(first_ms, deletion.attempts, LONGEST_MS)
    return deletion._replace(attempts=deletion.attempts + 1, next_ms=now_ms + wait)


def executing_since(deletion: Deletion, retry_ms: int, now_ms: int) -> int | None:
    """Since when the execution of a deletion has not ended, in ms since the epoch: the last transition, less the waits
    between failed attempts before it, because each attempt is a transition. None for one that was not tried, or that is
    to be tried now: it waits for the end of its grace period, for an operator, or for its turn."""
    stage, failed = deletion.stage, deletion.next_ms > now_ms
    if stage is DeletionStage.SUSPECTED or (stage is DeletionStage.MARKED and not failed):
        return None
    earlier = 0 if stage is DeletionStage.GONE else deletion.attempts - 1
    return deletion.at_ms - sum(backoff(retry_ms, attempt, LONGEST_MS) for attempt in range(earlier))


class DeletionEvidence(NamedTuple):
    """The ledger of a deletion in the view."""

    there: bool
    """Whether the metadata of the ledger exist."""
    rule: str = ""
    """The rule by which the ledger is unreferenced; empty if it is referenced or must not be deleted."""
    version: int = -1
    """The version of the ledger's znode; -1 if the ledger does not exist, and for objects in tiered storage."""
    owner: str = ""
    """The owner by which the ledger or its objects are judged."""


def observed(deletion: Deletion, seen: DeletionEvidence, grace_ms: int, retry_ms: int, now_ms: int) -> Deletion:
    """The deletion after an observation. An order with an unknown outcome counts as failed if the ledger still exists
    after SETTLE_MS; a ledger that does not exist counts as deleted, by any process."""
    stage = deletion.stage
    if not seen.there:
        return (
            advance(deletion, DeletionEvent.VANISH, now_ms)
            if (stage, DeletionEvent.VANISH) in TRANSITIONS
            else deletion
        )
    if stage is DeletionStage.GONE:
        # The server that was read may lag behind the one that executed the deletion.
        return (
            advance(deletion, DeletionEvent.RETURN, now_ms, "its metadata exist again")
            if _late(deletion, now_ms)
            else deletion
        )
    if why := _changed(deletion, seen):
        return (
            advance(deletion, DeletionEvent.CLEAR, now_ms, why)
            if (stage, DeletionEvent.CLEAR) in TRANSITIONS
            else deletion
        )
    if stage is DeletionStage.DELETING and _late(deletion, now_ms):
        return again(advance(deletion, DeletionEvent.FAIL, now_ms, "the ledger still exists"), now_ms, retry_ms)
    due = now_ms - deletion.since_ms >= grace_ms and deletion.next_ms <= now_ms
    # The second check must have a later time than the first, however short the grace period is.
    if due and stage in (DeletionStage.SUSPECTED, DeletionStage.BLOCKED) and now_ms > deletion.at_ms:
        return advance(deletion, DeletionEvent.MARK, now_ms)
    return deletion


def _changed(deletion: Deletion, seen: DeletionEvidence) -> str:
    """What differs from the decision; empty if nothing does. Another owner has to be read before the deletion."""
    if not seen.rule:
        return "it is no longer unreferenced"
    if seen.rule != deletion.rule:
        return f"the rule is now {seen.rule}"
    if seen.version != deletion.version:
        return "its metadata were changed"
    return "" if seen.owner == deletion.owner else f"its owner is now {seen.owner or 'unknown'}"


SETTLE_MS = 30_000  # the maximum delay between an order and the observation of its effect


def _late(deletion: Deletion, now_ms: int) -> bool:
    return now_ms - deletion.at_ms >= SETTLE_MS


def due(deletions: Iterable[Deletion], mode: str, room: int, now_ms: int) -> list[Deletion]:
    """The deletions to execute now, longest unreferenced first, at most ``room``."""
    ready = [
        m
        for m in deletions
        if m.stage is DeletionStage.MARKED
        and m.next_ms <= now_ms
        and (mode == "enforce" or (mode == "approve" and m.approved))
    ]
    return sorted(ready, key=lambda m: (m.since_ms, m.ledger))[: max(0, room)]


def unconfirmed(deletions: Iterable[Deletion], now_ms: int) -> list[Deletion]:
    """The deletions whose bookies are to be queried now."""
    return [m for m in deletions if m.stage is DeletionStage.GONE and m.next_ms <= now_ms]


def answered(deletion: Deletion, pending: Iterable[str], now_ms: int, first_ms: int, detail: str = "") -> Deletion:
    """The deletion after bookies were queried; ``pending``: bookies that did not report that they have no such
    ledger."""
    left = tuple(pending)
    if not left:
        return advance(deletion, DeletionEvent.CONFIRM, now_ms)._replace(pending=())
    return again(deletion._replace(pending=left, detail=detail), now_ms, first_ms)
