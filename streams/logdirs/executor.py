"""Changes the log directories of one broker: cordons, throttle, moves.

Changes are written to the journal before they are executed, so that a process that starts after a SIGKILL can continue
or revert them. Results are written to the journal afterwards, or found by the next observation.

A setting is changed at the controller. The broker shows it when it has applied the record of it, usually within
milliseconds, later while it starts. Until then it shows the setting of before, which looks like another client's.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import NamedTuple, Protocol

from trueup.connectors.kafka.logdirs.client import MoveOutcome, ReplicaLocation
from trueup.state.common.errors import Retry, TrueupError
from trueup.state.logdirs.lifecycle import ENDS, MoveEvent, MoveStage, Relocation, advance
from trueup.state.logdirs.model import Broker
from trueup.state.logdirs.verdicts import NOTHING, Decision, OwnChanges, after, cancellable, cordons, ordered
from trueup.streams.journal.topic import Record
from trueup.streams.runtime.format import size

Say = Callable[[int, str, str, str, str], None]
"""Broker, kind, outcome, rule, detail."""

SETTLED_MS = 30_000
"""Time after which a broker that does not show a changed setting is judged by what it shows."""

RULES = {MoveStage.FORGOTTEN: "logdirs.move-forgotten", MoveStage.REFUSED: "logdirs.move-refused"}
"""Rules for stages of moves that failed."""


class BrokerRequests(Protocol):
    """The requests to a broker. Calls raise a `TrueupError`."""

    def place(self, places: list[ReplicaLocation]) -> list[MoveOutcome]:
        """Request moves, or cancel them."""

    def throttle(self, broker: int, bytes_per_s: int | None) -> None:
        """Set the rate limit of moves; None removes it."""

    def cordon(self, broker: int, paths: list[str]) -> None:
        """Exclude exactly these directories from new partitions."""

    def cordoned(self, broker: int) -> frozenset[str]:
        """The cordoned directories in the settings of the broker, offline ones included."""


class ChangedSettings(NamedTuple):
    """Settings that were changed on a broker and that it must show."""

    at_ms: int
    cordoned: frozenset[str] | None = None
    """The paths of the cordoned directories; None if the cordons were not changed."""
    throttle: int | None = None
    """The rate limit of moves in bytes per second; 0 if it was removed, None if it was not changed."""


class DirectoryBalancer:
    """Executes changes on the brokers of one cluster. ``ours``: changes of earlier runs. Used by one thread."""

    def __init__(
        self,
        ours: Mapping[int, OwnChanges],
        keep: Callable[[int, OwnChanges], None],
        say: Say,
        moved: Callable[[str, int], None],
    ) -> None:
        self.ours, self._keep, self._say, self._moved = dict(ours), keep, say, moved
        self._altered: dict[int, ChangedSettings] = {}
        self._unsure: dict[int, int | None] = dict.fromkeys(ours)
        """The brokers that may not show yet what an earlier run or a failed request changed, with the time of the
        request; None: before the first pass."""

    def of(self, broker: int) -> OwnChanges:
        """The changes of Trueup on a broker."""
        return self.ours.get(broker, NOTHING)

    def shows(self, broker: Broker, throttled: Callable[[int], int], now_ms: int) -> bool:
        """Whether the broker shows the settings that were changed last, or has had the time to. ``throttled``: queries
        the rate limit of a broker; 0: none."""
        altered = self._altered.get(broker.id)
        if altered is None:
            return True
        shown = altered.cordoned is None or all(
            d.cordoned == (d.path in altered.cordoned) for d in broker.dirs if d.online
        )
        shown = shown and (altered.throttle is None or throttled(broker.id) == altered.throttle)
        if shown or now_ms - altered.at_ms >= SETTLED_MS:
            del self._altered[broker.id]
            return True
        return False

    def act(
        self,
        levers: BrokerRequests,
        broker: Broker,
        ours: OwnChanges,
        decision: Decision,
        throttled: int | None,
        now_ms: int,
    ) -> None:
        """Execute a decision. ``ours``: the changes of Trueup, updated from the broker's report of moves. Raises a
        `TrueupError`; the next pass decides again about the rest."""
        sure = self._sure(broker.id, now_ms)
        before, intended = self.of(broker.id), _intended(broker, ours, decision, throttled, now_ms, sure)
        self._remember(broker.id, intended)
        # After the write: a pass after a failed one finds the same changes of stages again.
        self._report(broker.id, before, ours)
        done = self._cordon(levers, broker, ours, intended, decision, now_ms)
        if decision.throttle:
            with self._changing(broker.id, now_ms):
                levers.throttle(broker.id, decision.throttle)
            self._alter(broker.id, now_ms, throttle=decision.throttle)
            self._say(
                broker.id, "throttle", "set", "logdirs.uneven", f"moves write at most {size(decision.throttle)}/s"
            )
        done, failed = self._order(levers, broker.id, done, decision, now_ms)
        if decision.throttle is None:
            with self._changing(broker.id, now_ms):
                levers.throttle(broker.id, None)
            self._alter(broker.id, now_ms, throttle=0)
            self._say(broker.id, "throttle", "removed", "logdirs.uneven", "no move is in progress")
            done = done._replace(throttles=frozenset())
        self._remember(broker.id, done._replace(moves=tuple(m for m in done.moves if m.stage not in ENDS)))
        if decision.cordon is None:  # otherwise the broker may not have opened the source yet
            _cancelled(broker, decision, failed)

    def _remember(self, broker: int, ours: OwnChanges) -> None:
        if ours != self.of(broker):
            self._keep(broker, ours)
            self.ours[broker] = ours

    def _sure(self, broker: int, now_ms: int) -> bool:
        """Whether the broker shows all changes of Trueup, or has had the time to."""
        if broker not in self._unsure:
            return True
        since_ms = self._unsure[broker] = self._unsure[broker] or now_ms
        if now_ms - since_ms >= SETTLED_MS:
            del self._unsure[broker]
        return broker not in self._unsure

    @contextmanager
    def _changing(self, broker: int, now_ms: int) -> Iterator[None]:
        """A request that fails may have changed the setting."""
        try:
            yield
        except TrueupError:
            self._unsure[broker] = now_ms
            raise

    def _alter(
        self, broker: int, now_ms: int, cordoned: frozenset[str] | None = None, throttle: int | None = None
    ) -> None:
        before = self._altered.get(broker, ChangedSettings(now_ms))
        self._altered[broker] = ChangedSettings(
            now_ms, before.cordoned if cordoned is None else cordoned, before.throttle if throttle is None else throttle
        )

    def _cordon(
        self,
        levers: BrokerRequests,
        broker: Broker,
        ours: OwnChanges,
        intended: OwnChanges,
        decision: Decision,
        now_ms: int,
    ) -> OwnChanges:
        if decision.cordon is None:
            return intended
        paths = decision.cordon | _hidden(levers, broker, ours)
        with self._changing(broker.id, now_ms):
            levers.cordon(broker.id, sorted(paths))
        self._alter(broker.id, now_ms, cordoned=paths)
        # An opened directory remains until the broker shows it as open: another process that starts before must know
        # whose cordon the broker shows.
        now = (decision.cordon - _others(broker, ours)) | (intended.cordoned & _online(broker))
        closed = ", ".join(sorted(paths)) or "no directory"
        self._say(broker.id, "cordon", "set", "logdirs.steer", f"excluded from new partitions: {closed}")
        return intended._replace(cordoned=now)

    def _order(
        self, levers: BrokerRequests, broker: int, ours: OwnChanges, decision: Decision, now_ms: int
    ) -> tuple[OwnChanges, list[MoveOutcome]]:
        """Start and cancel moves. Returns the changes, and the outcomes of requests that failed."""
        going = [ReplicaLocation(broker, m.topic, m.partition, m.target) for m in decision.start]
        back = [_home(broker, move) for move in decision.cancel]
        if not going and not back:
            return ours, []
        failed = [o for o in levers.place([*going, *back]) if o.result in ("refused", "failed")]
        refused = {(o.place.topic, o.place.partition): o for o in failed}
        sent = {move.what for move in decision.start}
        moves = {move.what: move for move in ours.moves if (move.topic, move.partition) in refused}
        changed = {
            what: advance(move, MoveEvent.REFUSE, now_ms, refused[move.topic, move.partition].detail)
            for what, move in moves.items()
            if move.at_ms == now_ms and what in sent
        }
        current = after(ours, changed)
        self._remember(broker, current)
        self._report(broker, ours, current)
        return current, failed

    def _report(self, broker: int, before: OwnChanges, now: OwnChanges) -> None:
        """Note the moves whose stage changed."""
        stages = {move.what: move.stage for move in before.moves}
        for move in now.moves:
            if move.stage != stages.get(move.what):
                self._say(broker, "move", move.stage, RULES.get(move.stage, "logdirs.uneven"), description(move))
                self._moved(move.stage, move.bytes)


def description(move: Relocation) -> str:
    """A description of a move."""
    words = f"{move.topic}-{move.partition}, {size(move.bytes)}, from {move.source} to {move.target}"
    return words + (f": {move.detail}" if move.detail else "")


def ours_of(value: Record) -> tuple[str, int, OwnChanges]:
    """The inverse of `record_of`: the cluster, the broker and the changes."""
    moves = tuple(Relocation(**{**move, "stage": MoveStage(move["stage"])}) for move in value["moves"])
    ours = OwnChanges(frozenset(value["cordoned"]), frozenset(value["throttles"]), moves, frozenset(value["approved"]))
    return value["kafka"], value["broker"], ours


def record_of(kafka: str, broker: int, ours: OwnChanges, at_ms: int) -> dict[str, object] | None:
    """The changes of Trueup as a record of the topic; None without any."""
    if ours == NOTHING:
        return None
    names = [spec.name for spec in fields(Relocation)]
    return {
        "kafka": kafka,
        "broker": broker,
        "at_ms": at_ms,
        "cordoned": sorted(ours.cordoned),
        "throttles": sorted(ours.throttles),
        "approved": sorted(ours.approved),
        "moves": [{name: getattr(move, name) for name in names} for move in ours.moves],
    }


def _intended(
    broker: Broker, ours: OwnChanges, decision: Decision, throttled: int | None, now_ms: int, sure: bool
) -> OwnChanges:
    """The changes of Trueup after complete or partial execution of the decision. ``sure``: whether what the broker does
    not show is not there."""
    present, others = cordons(broker, ours), _others(broker, ours)
    remaining = ours.cordoned & present if sure else ours.cordoned
    cordoned = remaining | ((decision.cordon or frozenset()) - others)
    theirs = sure and bool(throttled) and throttled not in ours.throttles
    throttles = (frozenset() if theirs else ours.throttles) | (
        frozenset({decision.throttle}) if decision.throttle else frozenset()
    )
    planned = {move.what for move in decision.moves}
    lapsed = {
        m.what: advance(m, MoveEvent.LAPSE, now_ms)
        for m in ours.moves
        if m.stage is MoveStage.FORGOTTEN and m.what not in planned
    }
    back = {m.what: advance(m, MoveEvent.CANCEL, now_ms) for m in decision.cancel if m.stage is not MoveStage.LEAVING}
    intended = after(ours, {**lapsed, **back})._replace(cordoned=cordoned, throttles=throttles)
    for move in decision.start:
        intended = ordered(intended, move, int(broker.beside[broker.volumes[broker.place[move.source]]]), now_ms)
    return intended


def _home(broker: int, move: Relocation) -> ReplicaLocation:
    """The request that cancels a move: the replica back to its source."""
    return ReplicaLocation(broker, move.topic, move.partition, move.source)


def _cancelled(broker: Broker, decision: Decision, failed: Sequence[MoveOutcome]) -> None:
    """Raises `Retry` if the broker refused to cancel moves; their stage does not show it. An offline target is a
    problem of its own."""
    able = {_home(broker.id, move) for move in cancellable(broker, decision.cancel)}
    if refused := [outcome for outcome in failed if outcome.place in able]:
        what = ", ".join(f"{o.place.topic}-{o.place.partition} to {o.place.path}" for o in refused)
        why = ", ".join(dict.fromkeys(o.detail for o in refused))
        raise Retry(f"broker {broker.id} to cancel moves: {what}", why, "the next pass requests it again")


def _online(broker: Broker) -> frozenset[str]:
    return frozenset(d.path for d in broker.dirs if d.online)


def _others(broker: Broker, ours: OwnChanges) -> frozenset[str]:
    """Directories that other clients cordoned."""
    return frozenset(d.path for d in broker.dirs if d.cordoned) - ours.cordoned


def _hidden(levers: BrokerRequests, broker: Broker, ours: OwnChanges) -> frozenset[str]:
    """Offline directories that other clients cordoned. The broker does not report their cordons, and a change of the
    setting replaces all of them."""
    offline = frozenset(broker.place) - _online(broker)
    return levers.cordoned(broker.id) & offline - ours.cordoned if offline else frozenset()
