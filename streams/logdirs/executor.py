"""Changes the log directories of one broker: cordons, throttle, moves.

Changes are written to the journal before they are executed, so that a process that starts after a SIGKILL can continue
or revert them. Results are written to the journal afterwards, or found by the next observation.

A setting is changed at the controller. The broker shows it when it has applied the record of it, usually within
milliseconds, later while it starts. Until then it shows the setting of before, which looks like another client's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import NamedTuple, Protocol

from trueup.connectors.kafka.logdirs.client import MoveOutcome, ReplicaLocation
from trueup.state.common.errors import Retry, Stop, TrueupError
from trueup.state.logdirs.lifecycle import ENDS, MoveEvent, MoveStage, Relocation, advance
from trueup.state.logdirs.model import Broker
from trueup.state.logdirs.verdicts import (
    NO_SETTINGS,
    NOTHING,
    Decision,
    OwnChanges,
    RequestedSettings,
    after,
    cancellable,
    cordons,
    ordered,
)
from trueup.streams.journal.topic import Record
from trueup.streams.runtime.format import size

Say = Callable[[int, str, str, str, str], None]
"""Broker, kind, outcome, rule, detail."""

SETTLED_MS = 90_000
"""Time after a request in which the broker must show the setting; then it is judged by what it shows. A request may
take 30 s (request.timeout.ms), and be executed although there was no response."""

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


class CordonChange(NamedTuple):
    """The cordoned directories of a broker after a change."""

    own: frozenset[str]
    """Those that Trueup cordons."""
    others: frozenset[str]
    """Those that other clients cordoned."""

    @property
    def all(self) -> frozenset[str]:
        """The new value of the setting."""
        return self.own | self.others


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

    def of(self, broker: int) -> OwnChanges:
        """The changes of Trueup on a broker."""
        return self.ours.get(broker, NOTHING)

    def shows(self, requests: BrokerRequests, broker: Broker, throttled: Callable[[int], int], now_ms: int) -> bool:
        """Whether the broker shows the settings that were requested last, or has had the time to. ``throttled``:
        queries the rate limit of a broker; 0: none. Raises a `TrueupError`."""
        requested = self.of(broker.id).requested
        if requested == NO_SETTINGS:
            return True
        cordoned, limit = requested.cordoned, requested.throttle
        shown = cordoned is None or all(d.cordoned == (d.path in cordoned) for d in broker.dirs if d.online)
        if shown and cordoned is not None and not all(d.online for d in broker.dirs):
            shown = requests.cordoned(broker.id) == cordoned  # an offline directory shows no cordon
        shown = shown and (limit is None or throttled(broker.id) == limit)
        if not shown and now_ms - requested.at_ms < SETTLED_MS:
            return False
        self._remember(broker.id, self.of(broker.id)._replace(requested=NO_SETTINGS))
        return True

    def act(
        self,
        requests: BrokerRequests,
        broker: Broker,
        ours: OwnChanges,
        decision: Decision,
        throttled: int | None,
        now_ms: int,
    ) -> None:
        """Execute a decision. ``ours``: the changes of Trueup, updated from the broker's report of moves. Raises a
        `TrueupError`; the next pass decides again about the rest."""
        change = _cordon_change(requests, broker, ours, decision.cordon)
        before, intended = self.of(broker.id), _intended(broker, ours, decision, throttled, change, now_ms)
        self._remember(broker.id, intended)
        # After the write: a pass after a failed one finds the same changes of stages again.
        self._report(broker.id, before, ours)
        done = self._cordon(requests, broker.id, intended, change)
        if decision.throttle:
            self._throttle(requests, broker.id, decision.throttle)
            self._say(
                broker.id, "throttle", "set", "logdirs.uneven", f"moves write at most {size(decision.throttle)}/s"
            )
        done, failed = self._order(requests, broker.id, done, decision, now_ms)
        if decision.throttle is None:
            self._throttle(requests, broker.id, None)
            self._say(broker.id, "throttle", "removed", "logdirs.uneven", "no move is in progress")
            done = done._replace(throttles=frozenset())
        self._remember(broker.id, done._replace(moves=tuple(m for m in done.moves if m.stage not in ENDS)))
        if decision.cordon is None:  # otherwise the broker may not have opened the source yet
            _cancelled(broker, decision, failed)

    def _remember(self, broker: int, ours: OwnChanges) -> None:
        if ours != self.of(broker):
            self._keep(broker, ours)
            self.ours[broker] = ours

    def _throttle(self, requests: BrokerRequests, broker: int, limit: int | None) -> None:
        try:
            requests.throttle(broker, limit)
        except Stop:  # refused: the broker will not show it
            self._unrequest(broker, self.of(broker).requested._replace(throttle=None))
            raise

    def _unrequest(self, broker: int, requested: RequestedSettings) -> None:
        self._remember(broker, self.of(broker)._replace(requested=requested))

    def _cordon(
        self, requests: BrokerRequests, broker: int, intended: OwnChanges, change: CordonChange | None
    ) -> OwnChanges:
        if change is None:
            return intended
        try:
            requests.cordon(broker, sorted(change.all))
        except TrueupError as error:  # the throttle was not requested
            refused = isinstance(error, Stop)
            self._unrequest(broker, NO_SETTINGS if refused else intended.requested._replace(throttle=None))
            raise
        closed = ", ".join(sorted(change.all)) or "no directory"
        self._say(broker, "cordon", "set", "logdirs.steer", f"excluded from new partitions: {closed}")
        return intended._replace(cordoned=change.own)

    def _order(
        self, requests: BrokerRequests, broker: int, ours: OwnChanges, decision: Decision, now_ms: int
    ) -> tuple[OwnChanges, list[MoveOutcome]]:
        """Start and cancel moves. Returns the changes, and the outcomes of requests that failed."""
        going = [ReplicaLocation(broker, m.topic, m.partition, m.target) for m in decision.start]
        back = [_home(broker, move) for move in decision.cancel]
        if not going and not back:
            return ours, []
        failed = [o for o in requests.place([*going, *back]) if o.result in ("refused", "failed")]
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
    requested = value["requested"]
    paths = None if requested["cordoned"] is None else frozenset(requested["cordoned"])
    ours = OwnChanges(
        frozenset(value["cordoned"]),
        frozenset(value["throttles"]),
        moves,
        frozenset(value["approved"]),
        RequestedSettings(requested["at_ms"], paths, requested["throttle"]),
    )
    return value["kafka"], value["broker"], ours


def record_of(kafka: str, broker: int, ours: OwnChanges, at_ms: int) -> dict[str, object] | None:
    """The changes of Trueup as a record of the topic; None without any."""
    if ours == NOTHING:
        return None
    names = [spec.name for spec in fields(Relocation)]
    paths = ours.requested.cordoned
    return {
        "kafka": kafka,
        "broker": broker,
        "at_ms": at_ms,
        "cordoned": sorted(ours.cordoned),
        "throttles": sorted(ours.throttles),
        "approved": sorted(ours.approved),
        "requested": {**ours.requested._asdict(), "cordoned": None if paths is None else sorted(paths)},
        "moves": [{name: getattr(move, name) for name in names} for move in ours.moves],
    }


def _intended(
    broker: Broker,
    ours: OwnChanges,
    decision: Decision,
    throttled: int | None,
    change: CordonChange | None,
    now_ms: int,
) -> OwnChanges:
    """The changes of Trueup after complete or partial execution of the decision. ``change``: see `_cordon_change`."""
    cordoned = (ours.cordoned & cordons(broker, ours)) | (frozenset() if change is None else change.own)
    limit = 0 if decision.throttle is None else decision.throttle or None
    requested = NO_SETTINGS
    if change is not None or limit is not None:
        requested = RequestedSettings(now_ms, None if change is None else change.all, limit)
    theirs = bool(throttled) and throttled not in ours.throttles
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
    intended = after(ours, {**lapsed, **back})._replace(cordoned=cordoned, throttles=throttles, requested=requested)
    for move in decision.start:
        intended = ordered(intended, move, broker, now_ms)
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


def _others(broker: Broker, ours: OwnChanges) -> frozenset[str]:
    """Directories that other clients cordoned."""
    return frozenset(d.path for d in broker.dirs if d.cordoned) - ours.cordoned


def _cordon_change(
    requests: BrokerRequests, broker: Broker, ours: OwnChanges, cordon: frozenset[str] | None
) -> CordonChange | None:
    """The change of the setting, which replaces all cordons; None for no change. Cordons of other clients are read now:
    they may have changed since the broker was described, and are not reported for offline directories. The operations
    APPEND and SUBTRACT (KIP-339) begin at the dynamic setting, and would override cordons in the file of the broker."""
    if cordon is None:
        return None
    others = requests.cordoned(broker.id) - ours.cordoned
    return CordonChange(cordon - _others(broker, ours) - others, others)
