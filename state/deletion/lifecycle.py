"""The life of a deletion, as a table, and the steps that observation and time make it take.

Whatever is done to a ledger is on its marker first, and the marker stays until storage confirms: the metadata are gone,
and every bookie that ever held the ledger says that it has none. An event that the table does not know changes nothing.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from trueup.state.common.backoff import backoff
from trueup.state.common.errors import Refused

LONGEST_MS = 3_600_000


class Stage(StrEnum):
    """How far a deletion is. ``suspected`` is where it starts; the last two end it."""

    SUSPECTED = "suspected"
    MARKED = "marked"
    DELETING = "deleting"
    GONE = "gone-from-metadata"
    BLOCKED = "blocked"
    CONFIRMED = "confirmed"
    WITHDRAWN = "withdrawn"


class Event(StrEnum):
    """What can happen to it."""

    MARK = "mark"  # the grace is over, and a second look found the same
    ORDER = "order"  # the transaction is sent; it may or may not be carried out
    DONE = "done"  # the transaction was carried out
    FAIL = "fail"  # it was not, for a reason that may pass; or nobody knows, and the ledger is still there
    REFUSE = "refuse"  # what it rests on does not hold, or no longer
    CLEAR = "clear"  # the ledger no longer counts as forgotten, or was changed
    VANISH = "vanish"  # the ledger's metadata are gone
    RETURN = "return"  # the ledger's metadata are there again
    CONFIRM = "confirm"  # every bookie says that there is no such ledger


_S, _E = Stage, Event
_WAITING = (_S.SUSPECTED, _S.MARKED, _S.BLOCKED)
TRANSITIONS: Mapping[tuple[Stage, Event], Stage] = {
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
ENDS = frozenset({Stage.CONFIRMED, Stage.WITHDRAWN})


class Marker(NamedTuple):
    """One deletion. Times in ms since the epoch, ``length`` in bytes.

    ``version`` and ``ctime_ms``: of the ledger's node, as decided on. ``since_ms``: when it was first seen forgotten.
    ``bookies``: all that any of its ensembles named, or the places of objects; ``pending``: those that have not yet
    said that they hold nothing of it. ``next_ms``: nothing is tried before. ``attempts``: in vain, to delete it, or
    once it is gone to have that confirmed. ``approved``: by an operator.
    """

    ledger: int
    rule: str
    owner: str
    version: int
    ctime_ms: int
    length: int
    since_ms: int
    stage: Stage = Stage.SUSPECTED
    at_ms: int = 0
    approved: bool = False
    attempts: int = 0
    next_ms: int = 0
    bookies: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    detail: str = ""


def advance(marker: Marker, event: Event, now_ms: int, detail: str = "") -> Marker:
    """The marker after an event. Raises `Refused`, and changes nothing, where the table has no such step."""
    stage = TRANSITIONS.get((marker.stage, event))
    if stage is None:
        raise Refused(f"an event that {marker.stage} knows", event, f"look at ledger {marker.ledger} again")
    after = marker._replace(stage=stage, at_ms=now_ms, detail=detail)
    return after._replace(attempts=0, next_ms=0, pending=marker.bookies) if stage is Stage.GONE else after


def again(marker: Marker, now_ms: int, first_ms: int) -> Marker:
    """The marker after one more attempt in vain: each wait is twice the one before, an hour at most."""
    wait = backoff(first_ms, marker.attempts, LONGEST_MS)
    return marker._replace(attempts=marker.attempts + 1, next_ms=now_ms + wait)


class Seen(NamedTuple):
    """What the view says of a marker's ledger now. ``there``: its metadata; ``rule``: why it is forgotten, "" if it is
    not, or may not be deleted. ``version``: of its node."""

    there: bool
    rule: str = ""
    version: int = -1


def observed(marker: Marker, seen: Seen, grace_ms: int, retry_ms: int, now_ms: int) -> Marker:
    """The marker after a look. An order whose outcome nobody knows is taken for failed when the ledger is still there
    after a while; one that is not there is gone, whoever did it."""
    stage = marker.stage
    if not seen.there:
        return advance(marker, Event.VANISH, now_ms) if (stage, Event.VANISH) in TRANSITIONS else marker
    if stage is Stage.GONE:
        # The server that was asked may lag behind the one that deleted it.
        return (
            advance(marker, Event.RETURN, now_ms, "its metadata are there again") if _late(marker, now_ms) else marker
        )
    if seen.rule != marker.rule or seen.version != marker.version:
        changed = "its metadata were changed" if seen.rule == marker.rule else f"now it is {seen.rule}"
        why = changed if seen.rule else "it no longer counts as forgotten"
        return advance(marker, Event.CLEAR, now_ms, why) if (stage, Event.CLEAR) in TRANSITIONS else marker
    if stage is Stage.DELETING and _late(marker, now_ms):
        return again(advance(marker, Event.FAIL, now_ms, "the ledger is still there"), now_ms, retry_ms)
    due = now_ms - marker.since_ms >= grace_ms and marker.next_ms <= now_ms
    # The second look is one of another time than the first, however short the grace is.
    if due and stage in (Stage.SUSPECTED, Stage.BLOCKED) and now_ms > marker.at_ms:
        return advance(marker, Event.MARK, now_ms)
    return marker


SETTLE_MS = 30_000  # what was ordered and what is observed of it may be this far apart


def _late(marker: Marker, now_ms: int) -> bool:
    return now_ms - marker.at_ms >= SETTLE_MS


def due(markers: Iterable[Marker], mode: str, room: int, now_ms: int) -> list[Marker]:
    """Those to be deleted now, longest forgotten first, at most ``room`` of them."""
    ready = [
        m for m in markers
        if m.stage is Stage.MARKED and m.next_ms <= now_ms and (mode == "enforce" or (mode == "approve" and m.approved))
    ]  # fmt: skip
    return sorted(ready, key=lambda m: (m.since_ms, m.ledger))[: max(0, room)]


def unconfirmed(markers: Iterable[Marker], now_ms: int) -> list[Marker]:
    """Those whose bookies are to be asked now."""
    return [m for m in markers if m.stage is Stage.GONE and m.next_ms <= now_ms]


def answered(marker: Marker, pending: Iterable[str], now_ms: int, first_ms: int, detail: str = "") -> Marker:
    """The marker after bookies were asked; ``pending``: those that did not say that they have no such ledger."""
    left = tuple(pending)
    if not left:
        return advance(marker, Event.CONFIRM, now_ms)._replace(pending=())
    return again(marker._replace(pending=left, detail=detail), now_ms, first_ms)
