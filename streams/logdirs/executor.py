"""What is done to the log directories of one broker: cordons, throttle, moves.

All of it is on the journal before it is done, so that whoever starts after a SIGKILL knows what is ours, goes on with
it or takes it back. What a call came to is on the journal afterwards, or is found out by the next look.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Protocol

from trueup.connectors.kafka.logdirs.client import MoveOutcome, ReplicaLocation
from trueup.state.logdirs.decision import NOTHING, Decision, Ours, after, cordons, ordered
from trueup.state.logdirs.lifecycle import ENDS, MoveEvent, MoveStage, Relocation, advance
from trueup.state.logdirs.model import Broker
from trueup.streams.journal.journal import Record
from trueup.streams.runtime.format import size

Say = Callable[[int, str, str, str, str], None]
"""Broker, kind, outcome, rule, detail."""

RULES = {MoveStage.FORGOTTEN: "logdirs.move-forgotten", MoveStage.REFUSED: "logdirs.move-refused"}
"""Of stages that are not as one would have them."""


class Levers(Protocol):
    """What a broker can be told. Calls raise our errors."""

    def place(self, places: list[ReplicaLocation]) -> list[MoveOutcome]:
        """Order moves, or cancel them."""

    def throttle(self, broker: int, bytes_per_s: int | None) -> None:
        """Limit moves; None takes the limit away."""

    def cordon(self, broker: int, paths: list[str]) -> None:
        """Keep new partitions out of these directories alone."""


class DirectoryBalancer:
    """The changes on the brokers of one cluster. ``ours``: what earlier runs left. Used by one thread."""

    def __init__(
        self, ours: Mapping[int, Ours], keep: Callable[[int, Ours], None], say: Say,
        moved: Callable[[str, int], None],
    ) -> None:  # fmt: skip
        self.ours, self._keep, self._say, self._moved = dict(ours), keep, say, moved

    def of(self, broker: int) -> Ours:
        """What is ours on a broker."""
        return self.ours.get(broker, NOTHING)

    def act(
        self, levers: Levers, broker: Broker, ours: Ours, decision: Decision, throttled: int | None, now_ms: int
    ) -> None:
        """Carry out a decision. ``ours``: after what the broker said of our moves. Raises our errors; what was not
        done then is decided afresh at the next look."""
        self._tell(broker.id, self.of(broker.id), ours)
        intended = _intended(broker, ours, decision, throttled, now_ms)
        self._remember(broker.id, intended)
        done = self._cordon(levers, broker, ours, intended, decision)
        if decision.throttle:
            levers.throttle(broker.id, decision.throttle)
            self._say(
                broker.id, "throttle", "set", "logdirs.uneven", f"moves write {size(decision.throttle)}/s at most"
            )
            done = done._replace(throttles=frozenset({decision.throttle}))
        done = self._order(levers, broker.id, done, decision, now_ms)
        if decision.throttle is None:
            levers.throttle(broker.id, None)
            self._say(broker.id, "throttle", "removed", "logdirs.uneven", "no move is under way")
            done = done._replace(throttles=frozenset())
        self._remember(broker.id, done._replace(moves=tuple(m for m in done.moves if m.stage not in ENDS)))

    def _remember(self, broker: int, ours: Ours) -> None:
        if ours != self.of(broker):
            self._keep(broker, ours)
            self.ours[broker] = ours

    def _cordon(self, levers: Levers, broker: Broker, ours: Ours, intended: Ours, decision: Decision) -> Ours:
        if decision.cordon is None:
            return intended
        levers.cordon(broker.id, sorted(decision.cordon))
        now = decision.cordon - _others(broker, ours)
        closed = ", ".join(sorted(decision.cordon)) or "no directory"
        self._say(broker.id, "cordon", "set", "logdirs.steer", f"new partitions keep out of {closed}")
        return intended._replace(cordoned=now)

    def _order(self, levers: Levers, broker: int, ours: Ours, decision: Decision, now_ms: int) -> Ours:
        going = [ReplicaLocation(broker, m.topic, m.partition, m.target) for m in decision.start]
        back = [ReplicaLocation(broker, m.topic, m.partition, m.source) for m in decision.cancel]
        if not going and not back:
            return ours
        refused = {(o.place.topic, o.place.partition): o for o in levers.place([*going, *back])
                   if o.result in ("refused", "failed")}  # fmt: skip
        sent = {move.what for move in decision.start}
        chosen = {move.what: move for move in ours.moves if (move.topic, move.partition) in refused}
        changed = {
            what: advance(move, MoveEvent.REFUSE, now_ms, refused[move.topic, move.partition].detail)
            for what, move in chosen.items() if move.at_ms == now_ms and what in sent
        }  # fmt: skip
        found = after(ours, changed)
        self._tell(broker, ours, found)
        return found

    def _tell(self, broker: int, before: Ours, now: Ours) -> None:
        """Say which moves came further."""
        stages = {move.what: move.stage for move in before.moves}
        for move in now.moves:
            if move.stage != stages.get(move.what):
                self._say(broker, "move", move.stage, RULES.get(move.stage, "logdirs.uneven"), told(move))
                self._moved(move.stage, move.bytes)


def told(move: Relocation) -> str:
    """A move in words."""
    words = f"{move.topic}-{move.partition}, {size(move.bytes)}, from {move.source} to {move.target}"
    return words + (f": {move.detail}" if move.detail else "")


def ours_of(record: Record) -> Ours:
    """What `record_of` made."""
    value = record.value
    moves = tuple(Relocation(**{**move, "stage": MoveStage(move["stage"])}) for move in value["moves"])
    return Ours(frozenset(value["cordoned"]), frozenset(value["throttles"]), moves, frozenset(value["approved"]))


def record_of(kafka: str, broker: int, ours: Ours, at_ms: int) -> dict[str, object] | None:
    """What is ours as a record of its topic; None where nothing is."""
    if ours == NOTHING:
        return None
    names = [spec.name for spec in fields(Relocation)]
    return {
        "kafka": kafka, "broker": broker, "at_ms": at_ms, "cordoned": sorted(ours.cordoned),
        "throttles": sorted(ours.throttles), "approved": sorted(ours.approved),
        "moves": [{name: getattr(move, name) for name in names} for move in ours.moves],
    }  # fmt: skip


def _intended(broker: Broker, ours: Ours, decision: Decision, throttled: int | None, now_ms: int) -> Ours:
    """What will be ours once the decision is carried out, or may be if it is carried out in part."""
    present, others = cordons(broker, ours), _others(broker, ours)
    cordoned = (ours.cordoned & present) | ((decision.cordon or frozenset()) - others)
    theirs = bool(throttled) and throttled not in ours.throttles
    throttles = (frozenset() if theirs else ours.throttles) | (
        frozenset({decision.throttle}) if decision.throttle else frozenset()
    )
    planned = {move.what for move in decision.moves}
    lapsed = {m.what: advance(m, MoveEvent.LAPSE, now_ms) for m in ours.moves
              if m.stage is MoveStage.FORGOTTEN and m.what not in planned}  # fmt: skip
    back = {m.what: advance(m, MoveEvent.CANCEL, now_ms) for m in decision.cancel if m.stage is not MoveStage.LEAVING}
    made = after(ours, {**lapsed, **back})._replace(cordoned=cordoned, throttles=throttles)
    for move in decision.start:
        made = ordered(made, move, int(broker.beside[broker.volumes[broker.place[move.source]]]), now_ms)
    return made


def _others(broker: Broker, ours: Ours) -> frozenset[str]:
    """Directories that others cordoned."""
    return frozenset(d.path for d in broker.dirs if d.cordoned) - ours.cordoned
