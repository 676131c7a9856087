"""Collects the observations of a link's partitions for `state.replication.verdicts`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from trueup.connectors.contract import LogId
from trueup.connectors.replication.heartbeat import HeartbeatState
from trueup.state.common.patterns import matches
from trueup.state.replication.verdicts import (
    MOVING,
    LinkObservations,
    LinkState,
    PartitionObservation,
    PartitionStage,
    Reason,
    stage_of,
    state_of,
)
from trueup.state.replication.waits import Wait
from trueup.streams.replication.links.checkpoints import Copy
from trueup.streams.replication.links.link import LATE_MS, Link
from trueup.streams.replication.links.snapshot import NOT_COMPARED, NOTHING, absent


def beat_error(beat: HeartbeatState) -> str:
    """Errors of the last heartbeat; empty: it succeeded at both clusters."""
    ends = (("source", beat.source_error), ("target", beat.target_error))
    return "; ".join(f"{end}: {error}" for end, error in ends if error)


class PartitionRow(NamedTuple):
    """The state of one partition."""

    copy: Copy | None
    """The copy of the partition; None if nothing was ever copied."""
    stage: PartitionStage
    left: int
    """The number of offsets that are not copied; -1 if it is unknown."""
    lag_ms: int
    """The age in ms of the oldest record that is not copied; 0 if there is no such record, -1 if it is unknown."""
    error: str
    """Why the partition is not copied; empty if no reason is known."""


@dataclass(slots=True)
class LinkStatus:
    """The state of one link. Safe to use from several threads."""

    link: Link
    beat: Callable[[], HeartbeatState] = HeartbeatState
    unreadable: Callable[[], Mapping[str, str]] = dict
    """The function that returns the topics that cannot be compared, with the reason."""
    failing: Callable[[], Mapping[str, str]] = dict
    """The function that returns the other operations that fail, with the reason."""
    _waits: dict[LogId, Wait] = field(default_factory=dict)
    _since_ms: int = 0
    _beating_ms: int = 0

    def state(self, now_ms: int) -> tuple[LinkState, list[Reason]]:
        """The state of the link and its reasons."""
        link, beat = self.link, self.beat()
        declared, snapshot = link.declared, link.snapshot
        facts, parts = snapshot.facts, list(self.observe(now_ms).values())
        # A running lease may report late; that is not a stall.
        reported_ms = min(now_ms, link.taken_ms + int(declared.lease_s * 1000)) if link.taken_ms else 0
        return state_of(
            LinkObservations(
                looked=facts is not NOTHING,
                observing=declared.mode == "observe",
                paused=declared.paused,
                refused=snapshot.blocked_reason,
                source=facts.source.problem,
                target=facts.target.problem,
                parts=parts,
                arrived_ms=snapshot.arrived_ms,
                beat_error=beat_error(beat),
                failing=[f"{what}: {why}" for what, why in self.failing().items()],
                reported_ms=reported_ms,
                since_ms=self._since_ms,
                beating_ms=self._beating_ms,
                slow_ms=int(declared.slow_s * 1000),
                stalled_ms=int(declared.stalled_s * 1000),
            ),
            now_ms,
        )

    def rows(self, now_ms: int) -> dict[LogId, PartitionRow]:
        """Every partition of the link, sorted."""
        with self.link.lock:
            parts, copies = self.observe(now_ms), self.link.copies
            return {source: self._row(source, copies.get(source), part, now_ms) for source, part in parts.items()}

    def _row(self, source: LogId, copy: Copy | None, part: PartitionObservation, now_ms: int) -> PartitionRow:
        lag_ms = self._lag_ms(source, copy, part, now_ms)
        return PartitionRow(copy, stage_of(part), part.left, lag_ms, part.approval or part.error or part.unknown)

    def observe(self, now_ms: int) -> dict[LogId, PartitionObservation]:
        """Observe every partition of the link, sorted. To be called every few seconds."""
        link = self.link
        with link.lock:
            parts = {source: self._part(source) for source in self._sources()}
            self._waits = {source: self._waits.get(source) or Wait(-1, now_ms) for source in parts}
            able = self._able()
            parts = {source: self._timed(source, part, able, now_ms) for source, part in parts.items()}
            moving = any(wait.moving for wait in self._waits.values())
            self._since_ms = (self._since_ms or now_ms) if moving else 0
            self._beating_ms = (self._beating_ms or now_ms) if self._may_write() else 0
        return parts

    def _sources(self) -> list[LogId]:
        link, facts = self.link, self.link.snapshot.facts
        sources = {copy.source for copy in link.current()}
        for topic in link.topics(facts.source.topics):
            # A topic that cannot be read has no logs, but must be listed.
            sources.update(facts.source.topics[topic] or (LogId(topic, 0),))
        if facts.complete:  # and so must one that is declared by its name and does not exist
            have = {source.topic for source in sources}
            sources.update(LogId(topic, 0) for topic in link.named() if topic not in have)
        return sorted(sources)

    def _able(self) -> bool:
        return not self.link.declared.paused and self._may_write()

    def _may_write(self) -> bool:
        """Whether the link may write, and both clusters respond."""
        link, facts = self.link, self.link.snapshot.facts
        down = facts.source.problem or facts.target.problem
        return not (link.declared.mode == "observe" or link.snapshot.blocked_reason or down)

    def _part(self, source: LogId) -> PartitionObservation:
        link, facts = self.link, self.link.snapshot.facts
        copy, topic = link.copies.get(source), source.topic
        part = PartitionObservation(
            str(source),
            copy.error if copy else "",
            bool(copy and (copy.stopped or copy.excluded)),
            paused=link.declared.paused or matches(link.declared.paused_topics, topic),
            observed=link.declared.mode == "observe" or bool(link.snapshot.blocked_reason),
            gone=facts.complete and topic not in facts.source.topics,
            begun=copy is not None and bool(copy.at_ms or copy.error),
            left=self._left(source, copy),
            unknown="; ".join(side.problem for side in (facts.source, facts.target) if side.problem),
        )
        if part.stopped or part.gone:
            return part
        if copy is not None and absent(copy, facts):
            return part._replace(error=f"the recreated topic {topic} does not have the partition", stopped=True)
        for side, seen, name in (("source", facts.source, topic), ("target", facts.target, link.target(topic))):
            if name in seen.topics and not seen.topics[name]:  # it exists, but cannot be read
                problem = seen.unreadable.get(name) or self.unreadable().get(topic)
                none = f"the {side} does not report the partitions of {name}"
                return part._replace(error=problem or none, stopped=True)
        if (hold := link.snapshot.hold(topic, link.target(topic))) not in (None, NOT_COMPARED):
            approval = hold.reason if hold.approval else ""
            return part._replace(error=hold.reason, approval=approval, stopped=hold.stopped, begun=False)
        if part.left < 0 and not part.unknown:
            part = part._replace(unknown=self._unreported(source))
        return part if part.begun else part._replace(error=self._missing(source))

    def _unreported(self, source: LogId) -> str:
        """Why the end of a partition is not known."""
        if not self.link.snapshot.facts.source.lacks(source):
            return "the source does not report the end of the partition"
        forget = f"`trueup link reset {self.link.name} --partition {source} --to earliest --yes` forgets it"
        return f"the source does not show the partition; if its topic was recreated without it, {forget}"

    def _missing(self, source: LogId) -> str:
        """Why no task has copied a partition yet."""
        link = self.link
        if (problem := self.unreadable().get(source.topic)) is not None:
            return problem
        target = link.target(source.topic)
        if link.snapshot.hold(source.topic, target) is NOT_COMPARED:
            return link.snapshot.unfit or NOT_COMPARED.reason
        if source not in link.pairs(source.topic):
            return f"topic {target} of the target has no partition for {source}"
        return "no path is chosen yet" if link.snapshot.choice is None else "no task has reported yet"

    def _left(self, source: LogId, copy: Copy | None) -> int:
        facts = self.link.snapshot.facts
        if facts.complete and not facts.source.topics.get(source.topic):
            return -1  # gone or not readable: the last report is of what was
        if copy is not None:
            return self.link.behind(copy)
        start, end = self.link.snapshot.facts.source.logs.get(source, (-1, -1))
        return end - start if end >= 0 else -1

    def _timed(self, source: LogId, part: PartitionObservation, able: bool, now_ms: int) -> PartitionObservation:
        copy, wait = self.link.copies.get(source), self._waits[source]
        start, end = self.link.snapshot.facts.source.logs.get(source, (-1, -1))
        moving = able and stage_of(part) in MOVING
        wait.observe(copy.offset if copy else start, end, moving, part.begun, now_ms)
        if not moving:
            return part
        hidden_ms = self._hidden_ms(now_ms)
        return part._replace(
            backlog=wait.backlog,
            idle_ms=max(0, now_ms - wait.moved_ms - hidden_ms),
            wait_ms=max(0, wait.waited_ms(now_ms) - hidden_ms),
        )

    def _hidden_ms(self, now_ms: int) -> int:
        """For how long a lease may have copied without a report."""
        taken_ms, lease_ms = self.link.taken_ms, int(self.link.declared.lease_s * 1000)
        return min(now_ms - taken_ms, lease_ms) if taken_ms else 0

    def _lag_ms(self, source: LogId, copy: Copy | None, part: PartitionObservation, now_ms: int) -> int:
        """The age of the oldest record not copied, by its timestamp if a task has reported one. Without reports it
        grows."""
        last = copy.last if copy is not None else None
        fresh = copy is not None and now_ms - copy.at_ms <= self.link.declared.lease_s * 1000 + LATE_MS
        if last is not None and fresh and stage_of(part) in MOVING:
            return last.lag_ms
        if part.left <= 0:
            return part.left
        lag_ms = last.lag_ms + now_ms - copy.at_ms if copy is not None and last is not None and last.lag_ms > 0 else 0
        return max(lag_ms, self._waits[source].waited_ms(now_ms))
