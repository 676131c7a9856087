"""The state of a link and the stages of its partitions, derived from the observations at each request.

Progress decides: a link is `up` only if every record that should be copied is copied within slow_s. A partition whose
pending records are not copied is in one of the other stages, which determines the state of the link.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from trueup.state.common.counts import many


class LinkState(StrEnum):
    """The state of a link; if several apply, the first in this order is reported. A link that does not copy because it
    was told so is no better than what was observed of it."""

    DOWN = "down"
    STOPPED = "stopped"
    STALLED = "stalled"
    WAITING = "waiting"
    SLOW = "slow"
    STARTING = "starting"
    PAUSED = "paused"
    OBSERVING = "observing"
    CATCHING_UP = "catching-up"
    UP = "up"


MEANINGS: Mapping[LinkState, str] = {
    LinkState.DOWN: "a cluster does not respond",
    LinkState.STOPPED: "the link must not copy, or at least one partition requires an operator; others continue",
    LinkState.STALLED: "for longer than stalled_s no heartbeat arrived, or pending records were not copied",
    LinkState.WAITING: "at least one partition waits for `trueup approve`, a topic of the link does not exist, or no "
    "topic matches; others continue",
    LinkState.SLOW: "a record or heartbeat has waited for longer than slow_s, a partition or alignment is retried, or "
    "the end of a partition is not known",
    LinkState.STARTING: "both clusters are queried for the first time, or at least one partition has not been copied "
    "yet in this run, for at most slow_s",
    LinkState.PAUSED: "an operator paused the link or at least one topic; heartbeats and alignment continue",
    LinkState.OBSERVING: "mode is observe: both clusters are observed, nothing is copied",
    LinkState.CATCHING_UP: "records that existed before their copy started are being copied",
    LinkState.UP: "every partition is copied, and records and heartbeats arrive within slow_s",
}


class Reason(NamedTuple):
    """Why a link is not `up`: the id of a rule, and the observation."""

    rule: str
    text: str


class PartitionStage(StrEnum):
    """The stage of a partition's copy; if several apply, the first in this order is reported."""

    GONE = "gone"
    STOPPED = "stopped"
    PAUSED = "paused"
    OBSERVED = "observed"
    WAITING = "waiting"
    UNKNOWN = "unknown"
    RETRYING = "retrying"
    NEW = "new"
    CATCHING_UP = "catching-up"
    COPYING = "copying"


class StageMeaning(NamedTuple):
    """The condition of a stage, what ends it, and the resulting state of the link."""

    holds: str
    ends: str
    state: LinkState


STAGES: Mapping[PartitionStage, StageMeaning] = {
    PartitionStage.GONE: StageMeaning(
        "the source does not have the topic",
        "its creation; a recreated topic stops; or the topic is excluded",
        LinkState.WAITING,
    ),
    PartitionStage.STOPPED: StageMeaning(
        "an operator has to act; the error shows the reason", "a successful retry, or a reset", LinkState.STOPPED
    ),
    PartitionStage.PAUSED: StageMeaning("the link or the topic is paused", "`trueup link resume`", LinkState.PAUSED),
    PartitionStage.OBSERVED: StageMeaning(
        "mode is observe, or the link must not copy", "another mode; the reason no longer applies", LinkState.OBSERVING
    ),
    PartitionStage.WAITING: StageMeaning(
        "a change at the target is required before the first record and waits for approval",
        "`trueup approve`",
        LinkState.WAITING,
    ),
    PartitionStage.UNKNOWN: StageMeaning(
        "a cluster does not respond, or the source does not report the end of the partition",
        "its response",
        LinkState.SLOW,
    ),
    PartitionStage.RETRYING: StageMeaning(
        "the last task failed with a temporary error", "a successful retry", LinkState.SLOW
    ),
    PartitionStage.NEW: StageMeaning(
        "no task has copied the partition in this run; the error shows what is missing",
        "the first report of a task",
        LinkState.STARTING,
    ),
    PartitionStage.CATCHING_UP: StageMeaning(
        "records that existed before its copy started or resumed are left", "the last of them", LinkState.CATCHING_UP
    ),
    PartitionStage.COPYING: StageMeaning("new records are copied as they arrive", "any of the above", LinkState.UP),
}
MOVING = (
    PartitionStage.UNKNOWN,
    PartitionStage.RETRYING,
    PartitionStage.NEW,
    PartitionStage.CATCHING_UP,
    PartitionStage.COPYING,
)
"""Stages in which progress is expected."""


class PartitionObservation(NamedTuple):
    """The last observation of one partition."""

    name: str
    error: str = ""
    """The reason why the partition is not copied, empty if it is."""
    stopped: bool = False
    """Whether an operator must change something before the partition is copied."""
    approval: str = ""
    """The change that waits for approval, empty if there is none."""
    begun: bool = True
    """Whether a task has copied the partition in this run."""
    paused: bool = False
    observed: bool = False
    """Whether the link does not copy, because of its mode or because it must not."""
    gone: bool = False
    unknown: str = ""
    """The reason why nothing is known of the partition now, empty otherwise."""
    left: int = 0
    """The number of source offsets that are not copied yet, -1 if unknown."""
    backlog: bool = False
    """Whether some of the records that are not copied yet existed when the copy began or resumed."""
    idle_ms: int = 0
    """The time in ms without a copied record although records wait. For a new partition, the time since it should be
    copied."""
    wait_ms: int = 0
    """The time in ms for which the oldest waiting record has waited, as observed and not by its timestamp."""


def stage_of(part: PartitionObservation) -> PartitionStage:
    """The stage of a partition, derived from the observation only."""
    holds = {
        PartitionStage.GONE: part.gone,
        PartitionStage.STOPPED: part.stopped,
        PartitionStage.PAUSED: part.paused,
        PartitionStage.OBSERVED: part.observed,
        PartitionStage.WAITING: bool(part.approval),
        PartitionStage.UNKNOWN: bool(part.unknown),
        PartitionStage.RETRYING: part.begun and bool(part.error),
        PartitionStage.NEW: not part.begun,
        PartitionStage.CATCHING_UP: part.backlog,
    }
    return next((stage for stage in PartitionStage if holds.get(stage)), PartitionStage.COPYING)


@dataclass(frozen=True, slots=True)
class LinkObservations:
    """The observations of a link. Times are ms since the epoch, 0 for never."""

    looked: bool = True
    """Whether both clusters were queried."""
    observing: bool = False
    paused: bool = False
    refused: str = ""
    """The reason why the link must not copy, empty if it may."""
    source: str = ""
    """The reason why the source does not respond, empty if it does."""
    target: str = ""
    """The reason why the target does not respond, empty if it does."""
    parts: Sequence[PartitionObservation] = ()
    arrived_ms: int = 0
    """The write time of the newest heartbeat that arrived."""
    beat_error: str = ""
    """The errors of the clusters for the last heartbeat, empty if it succeeded."""
    failing: Sequence[str] = ()
    """Other failures of the link."""
    reported_ms: int = 0
    """The time of the last report of a task plus the duration of a lease, at most the present time."""
    since_ms: int = 0
    """The start of the uninterrupted time in which records should be copied."""
    beating_ms: int = 0
    """The start of the uninterrupted time in which heartbeats should arrive, also while nothing should be copied."""
    slow_ms: int = 30_000
    stalled_ms: int = 120_000


def state_of(signs: LinkObservations, now_ms: int) -> tuple[LinkState, list[Reason]]:
    """The state of a link, and all reasons for states other than ``up``, the most severe first."""
    causes = list(_signs(signs, now_ms))
    reasons = [reason for state in LinkState for at, reason in causes if at is state]
    states = {at for at, _ in causes}
    if signs.looked:
        states |= {STAGES[stage_of(part)].state for part in signs.parts}
    if signs.observing:
        states.add(LinkState.OBSERVING)
    return min(states, key=list(LinkState).index, default=LinkState.UP), reasons


Found = tuple[LinkState, Reason]


def _signs(signs: LinkObservations, now_ms: int) -> Iterator[Found]:
    if signs.refused:
        yield LinkState.STOPPED, Reason("replication.refused", signs.refused)
    if signs.paused:
        yield LinkState.PAUSED, Reason("replication.paused", "an operator paused the link")
    if not signs.looked:
        yield LinkState.STARTING, Reason("replication.starting", "both clusters are queried for the first time")
        return
    sides = {"source": signs.source, "target": signs.target}
    for side, problem in sides.items():
        if problem:
            yield LinkState.DOWN, Reason("replication.down", f"the {side} does not respond: {problem}")
    yield from _parts(signs)
    if not any(sides.values()):
        for text in signs.failing:
            yield LinkState.SLOW, Reason("replication.loop-failing", text)
        if not signs.parts:
            text = "the source shows the link's user no topic of the link"
            yield LinkState.WAITING, Reason("replication.no-topics", text)
    if signs.observing:
        return
    moving = [part for part in signs.parts if stage_of(part) in MOVING]
    if moving and signs.since_ms:
        yield from _silent(signs, now_ms)
    elif signs.beating_ms:
        yield from _beats(signs, signs.beating_ms, now_ms)
    yield from _waits(moving, signs)


_BE = ("is", "are")


def _parts(signs: LinkObservations) -> Iterator[Found]:
    parts = signs.parts
    for stage, rule, verbs, text in (
        (PartitionStage.STOPPED, "replication.partition-stopped", ("needs", "need"), "an operator"),
        (PartitionStage.GONE, "replication.topic-gone", _BE, "of topics that the source does not have"),
        (PartitionStage.WAITING, "replication.awaiting-approval", ("waits", "wait"), "for `trueup approve`"),
        (PartitionStage.UNKNOWN, "replication.partition-failing", _BE, "not known"),
        (PartitionStage.RETRYING, "replication.partition-failing", _BE, "being retried"),
        (PartitionStage.NEW, "replication.starting", _BE, "not copied yet"),
        (PartitionStage.PAUSED, "replication.paused", _BE, "paused"),
    ):
        at_stage = [part for part in parts if stage_of(part) is stage]
        told = (signs.paused and stage is PartitionStage.PAUSED) or (
            bool(signs.source or signs.target) and stage is PartitionStage.UNKNOWN
        )
        if at_stage and not told:
            why = _why(stage, at_stage[0])
            first = f"{at_stage[0].name}: {why}" if why else at_stage[0].name
            shown = f"{_share(at_stage, parts)} {verbs[len(at_stage) > 1]} {text}; {first}"
            yield STAGES[stage].state, Reason(rule, shown)
    behind = [part for part in parts if stage_of(part) is PartitionStage.CATCHING_UP]
    if behind:
        left = sum(max(0, part.left) for part in behind)
        verb = "copies" if len(behind) == 1 else "copy"
        text = f"{_share(behind, parts)} {verb} existing records; {left:,} left"
        yield LinkState.CATCHING_UP, Reason("replication.catching-up", text)


def _share(subset: Sequence[PartitionObservation], parts: Sequence[PartitionObservation]) -> str:
    return f"{len(subset)} of {many(len(parts), 'partition')}"


def _why(stage: PartitionStage, part: PartitionObservation) -> str:
    if stage in (PartitionStage.GONE, PartitionStage.PAUSED):
        return ""
    return {PartitionStage.WAITING: part.approval, PartitionStage.UNKNOWN: part.unknown}.get(stage, part.error)


def _silent(signs: LinkObservations, now_ms: int) -> Iterator[Found]:
    yield from _beats(signs, signs.since_ms, now_ms)
    if signs.reported_ms:
        yield from _late("no task has reported for %s", now_ms - max(signs.reported_ms, signs.since_ms), signs)


def _beats(signs: LinkObservations, since_ms: int, now_ms: int) -> Iterator[Found]:
    beat = "the newest heartbeat at the target is %s old" if signs.arrived_ms else "no heartbeat has arrived for %s"
    beat += f": {signs.beat_error}" if signs.beat_error else ""
    yield from _late(beat, now_ms - max(signs.arrived_ms, since_ms), signs)


def _waits(moving: Sequence[PartitionObservation], signs: LinkObservations) -> Iterator[Found]:
    """Waiting records: none is copied, or the copied ones arrive late."""
    idle = max(moving, key=lambda part: part.idle_ms, default=None)
    if idle is not None:
        left = f", {idle.left:,} wait" if idle.left > 0 else ""
        yield from _late(f"no record of {idle.name} was copied for %s{left}", idle.idle_ms, signs)
    copying = (part for part in moving if stage_of(part) is PartitionStage.COPYING)
    oldest = max(copying, key=lambda part: part.wait_ms, default=None)
    if oldest is not None and oldest.wait_ms > signs.slow_ms >= oldest.idle_ms:
        text = f"a record of {oldest.name} has waited for {oldest.wait_ms // 1000} s; the copy continues"
        yield LinkState.SLOW, Reason("replication.slow", text)


def _late(template: str, age_ms: int, signs: LinkObservations) -> Iterator[Found]:
    text = template.replace("%s", f"{age_ms // 1000} s", 1)
    if age_ms > signs.stalled_ms:
        yield LinkState.STALLED, Reason("replication.stalled", text)
    elif age_ms > signs.slow_ms:
        yield LinkState.SLOW, Reason("replication.slow", text)
