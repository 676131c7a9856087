"""The decision on the log directories of one broker: which are open to new partitions, and which replicas move.

A pure function of (broker, policy, earlier changes by Trueup, now). Changes by other clients are never reverted: their
cordons and throttles remain, a directory that they cordoned is neither opened nor a target of moves, and their moves
continue. Trueup's own changes are reverted as soon as they are not needed, in any mode.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple
from zlib import crc32

import numpy as np

from trueup.state.common.patterns import matches
from trueup.state.common.systems import internal
from trueup.state.logdirs.lifecycle import (
    STALLED_MS,
    TRANSITIONS,
    UNDER_WAY,
    MoveEvent,
    MoveStage,
    Relocation,
    advance,
    follow,
)
from trueup.state.logdirs.model import Broker, opened, rank, usable_after
from trueup.state.logdirs.plan import Balance, Move, headroom, plan, startable
from trueup.state.logdirs.settings import PARTITION, SIZE, LogDirsSettings, within


class RequestedSettings(NamedTuple):
    """The settings of a broker that were requested last, until the broker shows them."""

    at_ms: int = 0
    """When they were requested, in ms since the epoch."""
    cordoned: frozenset[str] | None = None
    """The paths of all cordoned directories; None if the cordons were not changed."""
    throttle: int | None = None
    """The rate limit of moves in bytes per second; 0 if it was removed, None if it was not changed."""


NO_SETTINGS = RequestedSettings()


class OwnChanges(NamedTuple):
    """Trueup's changes on a broker that are not reverted yet, and the moves that it ordered."""

    cordoned: frozenset[str] = frozenset()
    throttles: frozenset[int] = frozenset()
    """Every limit, in bytes per second, that Trueup set or was about to set."""
    moves: tuple[Relocation, ...] = ()
    approved: frozenset[str] = frozenset()
    """The names of approved actions. See `move_name` and `cordon_name`."""
    requested: RequestedSettings = NO_SETTINGS


NOTHING = OwnChanges()


class Decision(NamedTuple):
    """The desired state of one broker."""

    broker: int
    strategy: str
    skew: float
    after: float
    steer: frozenset[str]
    """All paths that the strategy wants cordoned, including those that other clients cordoned."""
    cordon: frozenset[str] | None
    """All paths that are to be cordoned from now on, None for no change."""
    moves: tuple[Move, ...]
    """The whole plan."""
    start: tuple[Move, ...]
    """The moves that may start now."""
    cancel: tuple[Relocation, ...]
    """The moves of `OwnChanges.moves` to cancel now."""
    throttle: int | None
    """The throttle to set now, in bytes per second. None removes the throttle of Trueup, and 0 changes nothing."""
    rule: str
    """The id of a rule of `state.logdirs.rules`, empty if nothing differs."""
    reason: str
    """The details of the rule."""


def followed_by(ours: OwnChanges, broker: Broker, now_ms: int) -> tuple[Broker, OwnChanges]:
    """The broker with the bytes that moves have yet to free, and the own state updated by the broker's."""
    moves, freeing = follow(ours.moves, broker, now_ms)
    return replace(broker, freeing=freeing), ours._replace(moves=moves)


def cordons(broker: Broker, ours: OwnChanges) -> frozenset[str]:
    """Cordoned directories. A broker does not report cordons of an offline directory: own ones count until removed."""
    shown = frozenset(d.path for d in broker.dirs if d.cordoned)
    return shown | (ours.cordoned & frozenset(d.path for d in broker.dirs if not d.online))


def decide(
    broker: Broker, policy: LogDirsSettings, ours: OwnChanges, now_ms: int, throttled: int | None = None
) -> Decision:
    """The decision for one broker. Time is ms since the epoch; ``throttled``: the throttle that is set now (0: none,
    None: the own one)."""
    limits = limits_of(broker, policy)
    # Own cordons steer new partitions only. A broker refuses moves into cordoned directories, so the targets of moves
    # are opened first.
    free = replace(
        broker, dirs=tuple(d._replace(cordoned=d.cordoned and d.path not in ours.cordoned) for d in broker.dirs)
    )
    planned, now_set = plan(free, limits), max(ours.throttles, default=0) if throttled is None else throttled
    ranking = rank(broker, policy.strategy, policy.exclude_dirs)
    cancel = _cancelled(broker, ours, limits, now_ms)
    steer = _steer(free, policy, ours, planned.moves, cancel)
    waiting = "" if within(policy.windows, now_ms) else f"moves start only within {', '.join(policy.windows)} UTC"
    may = () if waiting else tuple(move for move in planned.moves if _may(policy, ours, move))
    start = tuple(startable(broker, may, limits))
    rule, reason = _rule(broker, policy, planned.reason, bool(planned.moves), waiting)
    steered = policy.strategy == SIZE and broker.sized and not broker.cordons
    return Decision(
        broker.id,
        PARTITION if steered else ranking.strategy,
        planned.before,
        planned.after,
        steer,
        _cordon(broker, policy, ours, steer),
        planned.moves,
        start,
        cancel,
        _throttle(policy, ours, bool(start), now_set),
        rule,
        reason,
    )


def cancellable(broker: Broker, moves: Iterable[Relocation]) -> list[Relocation]:
    """The moves that the broker can cancel now: it refuses all moves of a replica while the target is offline."""
    online = {d.path for d in broker.dirs if d.online}
    return [move for move in moves if move.target in online]


def move_name(broker: int, move: Move | Relocation) -> str:
    """Name of a move: unchanged while source and target are the same."""
    where = crc32(f"{move.source}>{move.target}".encode())
    return f"move-{broker}-{move.topic}-{move.partition}-{where:08x}"


def cordon_name(broker: int, paths: frozenset[str]) -> str:
    """Name of a cordon: it changes with the directories."""
    return f"cordon-{broker}-{crc32(','.join(sorted(paths)).encode()):08x}"


def ordered(ours: OwnChanges, move: Move, broker: Broker, now_ms: int) -> OwnChanges:
    """The state with an order for this move; earlier orders for the same replica are removed."""
    volume = broker.volumes[broker.place[move.source]]
    beside, shared = int(broker.beside[volume]), int(np.count_nonzero(broker.volumes == volume))
    same = next((m for m in ours.moves if m.what == move.what), None)
    begun = same if same and (same.stage, MoveEvent.ORDER) in TRANSITIONS else Relocation(*move[1:6])
    relocation = replace(advance(begun, MoveEvent.ORDER, now_ms), bytes=move.bytes, beside=beside, shared=shared)
    others = tuple(
        m for m in ours.moves if (m.topic, m.partition) != (move.topic, move.partition) or m.stage is MoveStage.ARRIVED
    )
    return ours._replace(moves=(*others, relocation))


def after(ours: OwnChanges, changed: Mapping[tuple[str, int, str, str], Relocation]) -> OwnChanges:
    """The state with these moves replaced."""
    return ours._replace(moves=tuple(changed.get(move.what, move) for move in ours.moves))


def limits_of(broker: Broker, policy: LogDirsSettings) -> Balance:
    """The policy as input of the plan: topics by name, directories cordoned by other clients excluded."""
    excluded = frozenset(t for t in broker.replicas.topics if matches(policy.exclude, t) or internal(t))
    return Balance(
        policy.target_skew,
        policy.headroom_share,
        policy.headroom_bytes,
        policy.least_bytes,
        policy.at_once,
        excluded,
        frozenset(policy.exclude_dirs),
    )


def _may(policy: LogDirsSettings, ours: OwnChanges, move: Move) -> bool:
    """Whether this move may be ordered, which includes an approved one that its broker forgot."""
    relocation = next((m for m in ours.moves if m.what == move.what), None)
    if policy.paused or policy.mode == "observe" or (relocation and relocation.stage is MoveStage.REFUSED):
        return False
    forgotten = relocation is not None and relocation.stage is MoveStage.FORGOTTEN
    return policy.mode == "enforce" or forgotten or move_name(move.broker, move) in ours.approved


def _rule(broker: Broker, policy: LogDirsSettings, why: str, planned: bool, waiting: str) -> tuple[str, str]:
    """The finding of the highest severity: (rule, reason)."""
    offline = [d.path for d in broker.dirs if not d.online]
    if offline:
        return "logdirs.offline", f"offline: {', '.join(offline)}; no replica moves until the directory returns"
    if not broker.sized:
        return "logdirs.sizes-unknown", "the broker does not report the sizes of its log directories"
    full = [
        d.path
        for d, free in zip(broker.dirs, usable_after(broker).tolist(), strict=True)
        if free < headroom(limits_of(broker, policy), d.total)
    ]
    if full:
        return "logdirs.headroom", f"usable bytes below the headroom: {', '.join(full)}" + (f"; {why}" if why else "")
    if why:
        return "logdirs.no-move", why
    if planned:
        return "logdirs.uneven", waiting or "replicas must be moved"
    if policy.strategy == SIZE and not broker.cordons:
        return "logdirs.cannot-cordon", "the broker does not support cordons; it selects the directories itself"
    return "", ""


def _steer(
    free: Broker, policy: LogDirsSettings, ours: OwnChanges, moves: tuple[Move, ...], cancel: tuple[Relocation, ...]
) -> frozenset[str]:
    """All directories that the strategy wants cordoned. ``free``: the broker without own cordons."""
    others = frozenset(d.path for d in free.dirs if d.cordoned)
    if policy.strategy != SIZE or not free.cordons:
        return others
    shut = others | frozenset(policy.exclude_dirs)
    was = [d.path for d in free.dirs if d.path not in shut | ours.cordoned] if ours.cordoned else []
    best = opened(free, was, policy.band, policy.open_dirs, shut).paths
    if not best:
        return others
    going = {move.target for move in ours.moves if move.stage in UNDER_WAY and move not in cancel}
    # A move is cancelled by a request to move the replica to its source, which a broker refuses if that is cordoned.
    back = {move.source for move in cancellable(free, cancel)}
    kept = {*best, *(move.target for move in moves), *going, *back}
    cordoned = others | frozenset(d.path for d in free.dirs if d.online and d.path not in kept)
    return cordoned if any(d.online and d.path not in cordoned for d in free.dirs) else others


def _cordon(broker: Broker, policy: LogDirsSettings, ours: OwnChanges, steer: frozenset[str]) -> frozenset[str] | None:
    """The cordons to set now; None if they are set already or not approved."""
    present = cordons(broker, ours)
    idle = policy.paused or policy.mode == "observe"
    wanted = present - ours.cordoned if idle else steer
    if policy.mode == "approve" and wanted - present and cordon_name(broker.id, wanted) not in ours.approved:
        wanted = present & wanted  # removing an own cordon needs no approval
    return None if wanted == present else wanted


def _cancelled(broker: Broker, ours: OwnChanges, limits: Balance, now_ms: int) -> tuple[Relocation, ...]:
    """Own moves to cancel: other writes have filled the target so that half of the headroom would be used, or the copy
    has made no progress for too long."""
    if not broker.sized:
        return ()
    free = usable_after(broker)

    def bad(move: Relocation) -> bool:
        place = broker.place.get(move.target)
        if place is None or move.stage not in (MoveStage.ORDERED, MoveStage.COPYING):
            return move.stage is MoveStage.LEAVING
        stalled = move.stage is MoveStage.COPYING and now_ms - move.further_ms > STALLED_MS
        return stalled or bool(free[place] < headroom(limits, broker.dirs[place].total) // 2)

    return tuple(move for move in ours.moves if bad(move))


def _throttle(policy: LogDirsSettings, ours: OwnChanges, starting: bool, now_set: int) -> int | None:
    if now_set and now_set not in ours.throttles:
        return 0  # set by another client
    rate = policy.throttle_bytes_per_s
    if not rate or not (starting or any(move.stage in UNDER_WAY for move in ours.moves)):
        return None if ours.throttles else 0
    return rate if rate != now_set else 0
