"""The state of a partition for `state.replication.recovery`, and the commands that lead out of it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from trueup.connectors.contract import LogId
from trueup.state.replication.recovery import LogIdentity, PartitionStanding, ways
from trueup.streams.replication.links.checkpoints import Copy
from trueup.streams.replication.links.monitor import LinkMonitor
from trueup.streams.replication.links.snapshot import LinkFacts, absent, differ, ends

Ends = Mapping[LogId, tuple[int, int]]
"""First and end offset of logs."""


def standing(
    watch: LinkMonitor, source: LogId, here: Ends | None = None, there: Ends | None = None
) -> PartitionStanding:
    """The state of a partition. ``here`` and ``there``: the first and end offsets of the logs at the source and at the
    target, if they were read since the last observation."""
    link, facts = watch.link, watch.link.snapshot.facts
    copy = link.copies.get(source)
    target = copy.target if copy is not None else link.place(source)
    start, end = (facts.source.logs if here is None else here).get(source, (-1, -1))
    bounds = (facts.target.logs if there is None else there).get(target)
    there_end = -1 if bounds is None else bounds[1]
    return PartitionStanding(
        source=_source(copy, source, facts, end),
        target=_target(watch, copy, target, facts, there_end),
        records=end > start,
        empty=there_end == 0,
        ready=link.snapshot.hold(source.topic, target.topic) is None and bounds is not None,
        stopped=copy is not None and (copy.excluded or absent(copy, facts)),
        leased=link.leased(source),
        refilling=copy is not None and copy.refill is not None,
        begun=copy is not None and copy.offset > max(start, 0),
        placed=copy is None or copy.placed,
        restored=_restored(watch, target, facts),
        returned=_returned(watch, source, target, {**facts.target.logs, **(there or {})}),
    )


def _source(copy: Copy | None, source: LogId, facts: LinkFacts, end: int) -> LogIdentity:
    if source.topic not in facts.source.topics:
        return LogIdentity.GONE
    if copy is None:
        return LogIdentity.SAME
    if differ(copy.source_id, facts.source.ids.get(source.topic, "")) or absent(copy, facts):
        return LogIdentity.OTHER
    if not 0 <= end < copy.offset:
        return LogIdentity.SAME
    # If nothing was copied, the target has no record of a log that ends before the first offset.
    return LogIdentity.SHORT if copy.position.offset >= 0 else LogIdentity.OTHER


def _target(watch: LinkMonitor, copy: Copy | None, target: LogId, facts: LinkFacts, end: int) -> LogIdentity:
    if copy is None:
        return LogIdentity.SAME
    if differ(copy.target_id, facts.target.ids.get(target.topic, "")) or (copy.excluded and watch.replaced):
        return LogIdentity.OTHER
    if target.topic not in facts.target.topics:
        # The target is asked for copies of the topics that the source has now.
        return LogIdentity.GONE if copy.source.topic in facts.source.topics else LogIdentity.SAME
    return LogIdentity.SHORT if 0 <= end < copy.copied_end else LogIdentity.SAME


def _restored(watch: LinkMonitor, target: LogId, facts: LinkFacts) -> bool:
    identity = target.topic, facts.target.ids.get(target.topic, "")
    return any(identity in other.link.refilled for other in watch.beside())


def _returned(watch: LinkMonitor, source: LogId, target: LogId, there: Ends) -> bool:
    """Whether a link has copied from the present target topic to a cluster from which the records reach the source,
    other than directly: see `back_of`. ``there``: the first and end offsets of the logs of the target topic."""
    declared, topic_id = watch.link.declared, watch.link.snapshot.facts.target.ids.get(target.topic, "")
    for first in watch.leaving(declared.target):
        if first.link.declared.target == declared.source and first.link.topics([target.topic]):
            continue
        for log, copy in first.link.copies.items():
            if log.topic != target.topic or copy.source_id != topic_id or copy.excluded:
                continue
            begun = copy.offset > copy.start or (first.link.leased(log) and there.get(log, (-1, -1))[1] > copy.offset)
            if begun and _leads(watch, (first.link.declared.target, copy.target), (declared.source, source)):
                return True
    return False


def _leads(watch: LinkMonitor, begin: tuple[str, LogId], end: tuple[str, LogId]) -> bool:
    """Whether links copy what other links wrote to a log of a cluster on to another log. A log is copied to one log,
    which may have another number: queues of brokers are paired in the order in which they appeared."""
    places = [begin]
    for cluster, log in places:
        links = [other.link for other in watch.leaving(cluster) if other.link.declared.forward]
        nexts = [(link.declared.target, link.place(log)) for link in links if link.topics([log.topic])]
        places += [place for place in dict.fromkeys(nexts) if place not in places]
    return end in places


class OppositeLink(NamedTuple):
    """The link that copies a target log back to its source log."""

    watch: LinkMonitor
    source: LogId

    @property
    def copy(self) -> Copy:
        """Its copy."""
        return self.watch.link.copies[self.source]


def back_of(watch: LinkMonitor, source: LogId) -> OppositeLink | None:
    """The opposite copy of a partition."""
    copy = watch.link.copies.get(source)
    target = copy.target if copy is not None else watch.link.place(source)
    for other in watch.backwards():
        back = other.link.copies.get(target)
        if back is not None and back.target == source:
            return OppositeLink(other, target)
    return None


@dataclass(frozen=True, slots=True)
class RecoveryOption:
    """A command for some partitions of a topic."""

    topic: str
    partitions: int
    command: str
    does: str
    """The effect of the command."""
    recommended: bool
    """Whether the command is the first of the commands for these partitions."""


def ways_out(watch: LinkMonitor) -> list[RecoveryOption]:
    """The commands that lead out of the states of the link's partitions, by topic."""
    link, options = watch.link, list[RecoveryOption]()
    with link.lock:
        copies = link.current()
    for topic, some in groupby(copies, key=lambda copy: copy.source.topic):
        whole = list(some)
        by_ways: dict[tuple[tuple[str, str], ...], list[Copy]] = {}
        for copy in whole:
            by_ways.setdefault(tuple(_commands(watch, copy)), []).append(copy)
        for commands, affected in by_ways.items():
            parts = f"--topic {topic}" if len(affected) == len(whole) else _parts(affected)
            options += [
                RecoveryOption(topic, len(affected), command.replace("{part}", parts), does, number == 0)
                for number, (command, does) in enumerate(commands)
            ]
    return options


def _parts(copies: list[Copy]) -> str:
    return " ".join(f"--partition {copy.source}" for copy in copies)


def _commands(watch: LinkMonitor, copy: Copy) -> Iterator[tuple[str, str]]:
    back = back_of(watch, copy.source)
    other = standing(back.watch, back.source) if back is not None else None
    for way in ways(standing(watch, copy.source), other):
        offset = _first_lost(watch, copy) if "{offset}" in way.command else 0
        if offset is not None:
            command = way.command.replace("{link}", watch.link.name).replace("{offset}", str(offset))
            command = command.replace("{exclude}", ",".join([*watch.link.declared.exclude, copy.source.topic]))
            yield command.replace("{back}", back.watch.link.name if back is not None else ""), way.does


def _first_lost(watch: LinkMonitor, copy: Copy) -> int | None:
    """The source offset of the first record that the target lost; None: unknown."""
    _, end = ends(copy, watch.link.snapshot.facts)
    return copy.map.backward(end).offset if end >= 0 else None
