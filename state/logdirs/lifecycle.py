"""The life cycle of a move of a replica between log directories, as a table.

A broker keeps an order in memory and in the name of a directory, and may forget it; only the next DescribeLogDirs
response shows the progress. An event that the table does not list changes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from trueup.state.common.errors import Refused
from trueup.state.logdirs.model import Broker


class MoveStage(StrEnum):
    """The stage of a move. ``planned`` is the first; the last three are final."""

    PLANNED = "planned"
    APPROVED = "approved"
    ORDERED = "ordered"
    COPYING = "copying"
    FORGOTTEN = "forgotten"
    REFUSED = "refused"
    LEAVING = "leaving"
    ARRIVED = "arrived"
    DONE = "done"
    CANCELLED = "cancelled"
    DROPPED = "dropped"


class MoveEvent(StrEnum):
    """An event of a move."""

    APPROVE = "approve"  # an operator approved it
    ORDER = "order"  # it is about to be sent to the broker and may or may not arrive
    REFUSE = "refuse"  # the broker refused it
    APPEAR = "appear"  # the future replica is in the target
    ARRIVE = "arrive"  # the replica is in the target, and no copy is in progress
    FORGET = "forget"  # the replica is in the source, and no copy is in progress
    TURN = "turn"  # another client moves the replica elsewhere
    GO = "go"  # the broker no longer has the replica
    CANCEL = "cancel"  # a move to the present directory is about to be sent, which cancels the order
    FREE = "free"  # the replica in the source directory is deleted
    LAPSE = "lapse"  # it is no longer needed, or may be retried


_S, _E = MoveStage, MoveEvent
_UNDER_WAY = (_S.ORDERED, _S.COPYING, _S.FORGOTTEN, _S.LEAVING)
TRANSITIONS: Mapping[tuple[MoveStage, MoveEvent], MoveStage] = {
    (_S.PLANNED, _E.APPROVE): _S.APPROVED,
    (_S.PLANNED, _E.ORDER): _S.ORDERED,
    (_S.APPROVED, _E.ORDER): _S.ORDERED,
    (_S.APPROVED, _E.LAPSE): _S.DROPPED,
    (_S.ORDERED, _E.REFUSE): _S.REFUSED,
    (_S.ORDERED, _E.APPEAR): _S.COPYING,
    (_S.ORDERED, _E.FORGET): _S.FORGOTTEN,
    (_S.ORDERED, _E.CANCEL): _S.LEAVING,
    (_S.COPYING, _E.FORGET): _S.FORGOTTEN,
    (_S.COPYING, _E.CANCEL): _S.LEAVING,
    (_S.FORGOTTEN, _E.ORDER): _S.ORDERED,
    (_S.FORGOTTEN, _E.APPEAR): _S.COPYING,  # an order that took long to arrive
    (_S.FORGOTTEN, _E.LAPSE): _S.DROPPED,
    (_S.REFUSED, _E.LAPSE): _S.DROPPED,
    (_S.LEAVING, _E.FORGET): _S.CANCELLED,
    (_S.ARRIVED, _E.FREE): _S.DONE,
    **{(stage, _E.ARRIVE): _S.ARRIVED for stage in _UNDER_WAY},
    **{(stage, _E.TURN): _S.DROPPED for stage in _UNDER_WAY},
    **{(stage, _E.GO): _S.DROPPED for stage in _UNDER_WAY},
}
ENDS = frozenset({MoveStage.DONE, MoveStage.CANCELLED, MoveStage.DROPPED})
UNDER_WAY = frozenset(_UNDER_WAY) - {MoveStage.FORGOTTEN}
REST_MS = 300_000
"""The time before a refused move is ordered again."""
STALLED_MS = 600_000
"""The time after which a copy without progress is cancelled and planned again."""
FREED_MS = 900_000
"""The time after which a moved replica's source counts as deleted, whatever the volume reports."""


@dataclass(frozen=True, slots=True)
class Relocation:
    """One move that was or may be ordered. Times are ms since the epoch, sizes are bytes."""

    topic: str
    partition: int
    source: str
    target: str
    bytes: int
    stage: MoveStage = MoveStage.PLANNED
    at_ms: int = 0
    attempts: int = 0
    """The number of orders for the move. An order is counted before it is sent."""
    beside: int = 0
    """The bytes on the volume of the source that were neither replicas nor waiting for deletion at the time of the
    order."""
    shared: int = 1
    """The number of directories on that volume at the time of the order."""
    detail: str = ""
    copied: int = 0
    """The bytes that were at the target at ``further_ms``."""
    further_ms: int = 0
    """The time of the last progress, 0 if there was none."""

    @property
    def what(self) -> tuple[str, int, str, str]:
        """The identity of the move."""
        return self.topic, self.partition, self.source, self.target


def advance(move: Relocation, event: MoveEvent, now_ms: int, detail: str = "") -> Relocation:
    """The move after an event. Raises `Refused` if the table has no such transition."""
    stage = TRANSITIONS.get((move.stage, event))
    if stage is None:
        todo = f"observe {move.topic}-{move.partition} again"
        raise Refused(f"an event permitted in stage {move.stage}", event, todo)
    attempts = move.attempts + (event is MoveEvent.ORDER)
    return replace(move, stage=stage, at_ms=now_ms, attempts=attempts, detail=detail)


def follow(moves: Sequence[Relocation], broker: Broker, now_ms: int) -> tuple[tuple[Relocation, ...], tuple[int, ...]]:
    """The moves after the broker's current state, and by directory the bytes that moved replicas have yet to free.

    A broker deletes a moved replica after file.delete.delay.ms and does not list it meanwhile, so these bytes are the
    increase of a volume's non-replica bytes since before the moves. A move that is found ``arrived`` is ``done`` in the
    next pass at the earliest: a broker that deletes at once must not hide the arrival.
    """
    placed = [_further(_stepped(move, _event(move, broker, now_ms), now_ms), broker, now_ms) for move in moves]
    left, by_dir = _left(placed, broker), [0] * len(broker.dirs)
    for at, count in left.items():
        by_dir[broker.place[placed[at].source]] += count
    relocations = tuple(
        _stepped(move, MoveEvent.FREE, now_ms)
        if moves[at].stage is MoveStage.ARRIVED and (at not in left or now_ms - move.at_ms > FREED_MS)
        else move
        for at, move in enumerate(placed)
    )
    return relocations, tuple(by_dir)


def _stepped(move: Relocation, event: MoveEvent | None, now_ms: int) -> Relocation:
    return advance(move, event, now_ms) if event and (move.stage, event) in TRANSITIONS else move


def _event(move: Relocation, broker: Broker, now_ms: int) -> MoveEvent | None:
    if move.stage is MoveStage.REFUSED:
        return MoveEvent.LAPSE if now_ms - move.at_ms > REST_MS else None
    if move.stage not in _UNDER_WAY:
        return None
    current, future = _places(move, broker)
    if move.stage is MoveStage.LEAVING and (current, future) == (move.target, move.source):
        return None  # the cancel came after the end of the move: the broker copies the replica back
    if future is not None:
        return MoveEvent.APPEAR if future == move.target else MoveEvent.TURN
    if current not in (None, move.source):
        return MoveEvent.ARRIVE if current == move.target else MoveEvent.TURN
    if not all(d.online for d in broker.dirs):
        return None  # the contents of an offline directory are unknown
    return MoveEvent.GO if current is None else MoveEvent.FORGET


def _further(move: Relocation, broker: Broker, now_ms: int) -> Relocation:
    """The move with the bytes that are at the target now."""
    if move.stage is not MoveStage.COPYING:
        return move
    rows = broker.replicas
    sizes = [int(rows.size[f]) for f, _ in broker.moving if rows.name(f) == (move.topic, move.partition)]
    copied = max(sizes, default=0)
    further = copied != move.copied or not move.further_ms
    return replace(move, copied=copied, further_ms=now_ms) if further else move


def _places(move: Relocation, broker: Broker) -> tuple[str | None, str | None]:
    """The directories of the replica and of the future replica."""
    rows = broker.replicas
    if move.topic not in rows.topics:
        return None, None
    code = rows.topics.index(move.topic)
    places: list[str | None] = [None, None]
    for row in np.flatnonzero((rows.topic == code) & (rows.partition == move.partition)).tolist():
        places[bool(rows.future[row])] = broker.dirs[rows.home[row]].path
    return places[0], places[1]


def _left(moves: Sequence[Relocation], broker: Broker) -> dict[int, int]:
    """Bytes that arrived moves have yet to free, by index in ``moves``; small amounts count as none. The source of the
    last move is deleted last. Nothing counts for a directory whose volume had other directories at the order: equal
    disks with nearly equal contents count as one volume, whose bytes cannot be compared with those of one disk."""
    left: dict[int, int] = {}
    arrived = [(at, m) for at, m in enumerate(moves) if m.stage is MoveStage.ARRIVED and m.source in broker.place]
    for volume in {int(broker.volumes[broker.place[m.source]]) for _, m in arrived} if broker.sized else ():
        dirs = int(np.count_nonzero(broker.volumes == volume))
        mine = [(at, m) for at, m in arrived if broker.volumes[broker.place[m.source]] == volume and m.shared == dirs]
        more = int(broker.beside[volume]) - min((m.beside for _, m in mine), default=0)
        for at, move in sorted(mine, key=lambda pair: -pair[1].at_ms):
            if more > move.bytes // 4:
                left[at] = min(more, move.bytes)
                more -= left[at]
    return left
