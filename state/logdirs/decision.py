"""What should happen to the log directories of one broker: which are open to new partitions, which replicas move.

A pure function of (broker, policy, what we changed before, now). Nothing an operator set by hand is undone: a cordon
or a throttle that is not ours stays, a directory that others cordoned is neither opened nor moved to, and a move that
others ordered is left to them. What is ours is taken back as soon as it is of no use, whatever the mode.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple
from zlib import crc32

from trueup.state.common.kafka_topics import internal
from trueup.state.common.patterns import matches
from trueup.state.logdirs.lifecycle import STALLED_MS, TRANSITIONS, UNDER_WAY, Event, Relocation, Stage, advance, follow
from trueup.state.logdirs.model import Broker, opened, rank, usable_after
from trueup.state.logdirs.plan import Balance, Move, headroom, plan, startable
from trueup.state.logdirs.settings import PARTITION, SIZE, LogDirs, within


class Ours(NamedTuple):
    """What we changed on a broker and have not taken back, and the moves that we ordered.

    ``throttles``: every limit that we set or were about to set; ``approved``: names of what an operator said yes to
    (`move_name`, `cordon_name`).
    """

    cordoned: frozenset[str] = frozenset()
    throttles: frozenset[int] = frozenset()
    moves: tuple[Relocation, ...] = ()
    approved: frozenset[str] = frozenset()


NOTHING = Ours()


class Decision(NamedTuple):
    """What should be so on one broker.

    ``rule``: of `state.logdirs.rules`, empty where all is as it should be; ``reason`` says it in this case. ``steer``:
    all paths that the strategy wants cordoned, others' among them; ``cordon``: what is to be set now, None: nothing.
    ``moves``: the whole plan; ``start``: those of it that may start now; ``cancel``: ours that must not go on.
    ``throttle``: bytes a second to be set now, None: take ours away, 0: leave it alone.
    """

    broker: int
    strategy: str
    skew: float
    after: float
    steer: frozenset[str]
    cordon: frozenset[str] | None
    moves: tuple[Move, ...]
    start: tuple[Move, ...]
    cancel: tuple[Relocation, ...]
    throttle: int | None
    rule: str
    reason: str


def followed_by(ours: Ours, broker: Broker, now_ms: int) -> tuple[Broker, Ours]:
    """The broker with what our moves left behind, and what is ours after what it says of them."""
    moves, freeing = follow(ours.moves, broker, now_ms)
    return replace(broker, freeing=freeing), ours._replace(moves=moves)


def cordons(broker: Broker, ours: Ours) -> frozenset[str]:
    """Directories that are cordoned. A broker does not tell it of an offline one: ours are, until they are opened."""
    shown = frozenset(d.path for d in broker.dirs if d.cordoned)
    return shown | (ours.cordoned & frozenset(d.path for d in broker.dirs if not d.online))


def decide(broker: Broker, policy: LogDirs, ours: Ours, now_ms: int, throttled: int | None = None) -> Decision:
    """The decision for one broker. Time is ms since the epoch; ``throttled``: the limit that is set there now, 0: none,
    None: the one that we set."""
    limits = limits_of(broker, policy)
    # Our own cordons steer new partitions; they do not bind us: a broker refuses moves into cordoned directories, so
    # those that moves go to are opened first.
    free = replace(
        broker, dirs=tuple(d._replace(cordoned=d.cordoned and d.path not in ours.cordoned) for d in broker.dirs)
    )
    planned, now_set = plan(free, limits), max(ours.throttles, default=0) if throttled is None else throttled
    ranking = rank(broker, policy.strategy, policy.exclude_dirs)
    steer = _steer(free, policy, ours, planned.moves)
    waiting = "" if within(policy.windows, now_ms) else f"moves start only within {', '.join(policy.windows)} UTC"
    may = () if waiting else tuple(move for move in planned.moves if _may(policy, ours, move))
    start = tuple(startable(broker, may, limits))
    rule, reason = _rule(broker, policy, planned.reason, bool(planned.moves), waiting)
    steered = policy.strategy == SIZE and broker.sized and not broker.cordons
    return Decision(
        broker.id, PARTITION if steered else ranking.strategy, planned.before, planned.after, steer,
        _cordon(broker, policy, ours, steer), planned.moves, start, _cancelled(broker, ours, limits, now_ms),
        _throttle(policy, ours, bool(start), now_set), rule, reason,
    )  # fmt: skip


def move_name(broker: int, move: Move | Relocation) -> str:
    """Name of a move: the same as long as it goes from the same directory to the same."""
    where = crc32(f"{move.source}>{move.target}".encode())
    return f"move-{broker}-{move.topic}-{move.partition}-{where:08x}"


def cordon_name(broker: int, paths: frozenset[str]) -> str:
    """Name of a cordon: another one when it is of other directories."""
    return f"cordon-{broker}-{crc32(','.join(sorted(paths)).encode()):08x}"


def ordered(ours: Ours, move: Move, beside: int, now_ms: int) -> Ours:
    """With an order for this move remembered; orders for the same replica before are forgotten.

    ``beside``: bytes that its source's volume holds beside replicas.
    """
    same = next((m for m in ours.moves if m.what == move.what), None)
    begun = same if same and (same.stage, Event.ORDER) in TRANSITIONS else Relocation(*move[1:6])
    made = replace(advance(begun, Event.ORDER, now_ms), bytes=move.bytes, beside=beside)
    others = tuple(
        m for m in ours.moves if (m.topic, m.partition) != (move.topic, move.partition) or m.stage is Stage.ARRIVED
    )
    return ours._replace(moves=(*others, made))


def after(ours: Ours, changed: Mapping[tuple[str, int, str, str], Relocation]) -> Ours:
    """With these moves in place of what was known of them."""
    return ours._replace(moves=tuple(changed.get(move.what, move) for move in ours.moves))


def limits_of(broker: Broker, policy: LogDirs) -> Balance:
    """The policy as the plan takes it: topics by name, directories that others cordoned left alone."""
    barred = frozenset(t for t in broker.replicas.topics if matches(policy.exclude, t) or internal(t))
    return Balance(
        policy.target_skew, policy.headroom_share, policy.headroom_bytes, policy.least_bytes, policy.at_once, barred,
        frozenset(policy.exclude_dirs),
    )  # fmt: skip


def _may(policy: LogDirs, ours: Ours, move: Move) -> bool:
    """Whether this move may be ordered; one that was approved and forgotten by its broker is."""
    known = next((m for m in ours.moves if m.what == move.what), None)
    if policy.paused or policy.mode == "observe" or (known and known.stage is Stage.REFUSED):
        return False
    forgotten = known is not None and known.stage is Stage.FORGOTTEN
    return policy.mode == "enforce" or forgotten or move_name(move.broker, move) in ours.approved


def _rule(broker: Broker, policy: LogDirs, why: str, planned: bool, waiting: str) -> tuple[str, str]:
    """What is not as it should be, the gravest first."""
    offline = [d.path for d in broker.dirs if not d.online]
    if offline:
        return "logdirs.offline", f"offline: {', '.join(offline)}; nothing moves on this broker until it is back"
    if not broker.sized:
        return "logdirs.sizes-unknown", "it does not tell the sizes of its log directories"
    full = [
        d.path for d, free in zip(broker.dirs, usable_after(broker).tolist(), strict=True)
        if free < headroom(limits_of(broker, policy), d.total)
    ]  # fmt: skip
    if full:
        return "logdirs.headroom", f"less than the headroom is left: {', '.join(full)}" + (f"; {why}" if why else "")
    if why:
        return "logdirs.no-move", why
    if planned:
        return "logdirs.uneven", waiting or "replicas are to be moved"
    if policy.strategy == SIZE and not broker.cordons:
        return "logdirs.cannot-cordon", "its own rule places new partitions: it knows no cordoned directories"
    return "", ""


def _steer(free: Broker, policy: LogDirs, ours: Ours, moves: tuple[Move, ...]) -> frozenset[str]:
    """All that the strategy wants cordoned. ``free``: the broker without our cordons."""
    others = frozenset(d.path for d in free.dirs if d.cordoned)
    if policy.strategy != SIZE or not free.cordons:
        return others
    shut = others | frozenset(policy.exclude_dirs)
    was = [d.path for d in free.dirs if d.path not in shut | ours.cordoned] if ours.cordoned else []
    best = opened(free, was, policy.band, policy.open_dirs, shut).paths
    if not best:
        return others
    going = {move.target for move in ours.moves if move.stage in UNDER_WAY}
    kept = {*best, *(move.target for move in moves), *going}
    wanted = others | frozenset(d.path for d in free.dirs if d.online and d.path not in kept)
    return wanted if any(d.online and d.path not in wanted for d in free.dirs) else others


def _cordon(broker: Broker, policy: LogDirs, ours: Ours, steer: frozenset[str]) -> frozenset[str] | None:
    """What is to be cordoned now; None where that is so already, or nobody said yes to it."""
    present = cordons(broker, ours)
    idle = policy.paused or policy.mode == "observe"
    wanted = present - ours.cordoned if idle else steer
    if policy.mode == "approve" and wanted - present and cordon_name(broker.id, wanted) not in ours.approved:
        wanted = present & wanted  # opening needs no yes: it takes back what is ours
    return None if wanted == present else wanted


def _cancelled(broker: Broker, ours: Ours, limits: Balance, now_ms: int) -> tuple[Relocation, ...]:
    """Moves of ours that must not go on: others have filled the target, and half of the headroom would be used up; or
    the copy has not come further for long."""
    if not broker.sized:
        return ()
    free = usable_after(broker)

    def bad(move: Relocation) -> bool:
        place = broker.place.get(move.target)
        if place is None or move.stage not in (Stage.ORDERED, Stage.COPYING):
            return move.stage is Stage.LEAVING
        stalled = move.stage is Stage.COPYING and now_ms - move.further_ms > STALLED_MS
        return stalled or bool(free[place] < headroom(limits, broker.dirs[place].total) // 2)

    return tuple(move for move in ours.moves if bad(move))


def _throttle(policy: LogDirs, ours: Ours, starting: bool, now_set: int) -> int | None:
    if now_set and now_set not in ours.throttles:
        return 0  # somebody else's
    wanted = policy.throttle_bytes_per_s
    if not wanted or not (starting or any(move.stage in UNDER_WAY for move in ours.moves)):
        return None if ours.throttles else 0
    return wanted if wanted != now_set else 0
