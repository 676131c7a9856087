"""The state of a partition for `state.replication.recovery`, and the commands that lead out of it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from trueup.connectors.contract import LogId
from trueup.state.replication.recovery import LogIdentity, PartitionStanding, ways
from trueup.streams.replication.links.checkpoints import Copy
from trueup.streams.replication.links.link import Link
from trueup.streams.replication.links.monitor import LinkMonitor
from trueup.streams.replication.links.snapshot import LinkFacts, absent, differ, ends

Ends = Mapping[LogId, tuple[int, int]]
"""First and end offset of logs."""

Place = tuple[str, LogId]
"""A log of a cluster."""


class Standings:
    """The states of a link's partitions at one moment. ``here`` and ``there``: the first and end offsets of the logs at
    the source and at the target, if they were read since the last observation."""

    def __init__(self, watch: LinkMonitor, here: Ends | None = None, there: Ends | None = None) -> None:
        self._watch, self._read = watch, (here, there)
        self._facts = facts = watch.link.snapshot.facts
        self._here = facts.source.logs if here is None else here
        self._there = facts.target.logs if there is None else there
        self._opposite: dict[str, Standings] = {}
        self._reached: dict[str, set[Place]] = {}

    def of(self, source: LogId) -> PartitionStanding:
        """The state of a partition."""
        link, facts = self._watch.link, self._facts
        copy = link.copies.get(source)
        target = copy.target if copy is not None else link.place(source)
        start, end = self._here.get(source, (-1, -1))
        bounds = self._there.get(target)
        there_end = -1 if bounds is None else bounds[1]
        return PartitionStanding(
            source=_source(copy, source, facts, end),
            target=_target(self._watch, copy, target, facts, there_end),
            records=end > start,
            empty=there_end == 0,
            ready=link.snapshot.hold(source.topic, target.topic) is None and bounds is not None,
            stopped=copy is not None and (copy.excluded or absent(copy, facts)),
            leased=link.leased(source),
            refilling=copy is not None and copy.refill is not None,
            begun=copy is not None and copy.offset > max(start, 0),
            placed=copy is None or copy.placed,
            restored=_restored(self._watch, target, facts),
            returned=(link.declared.source, source) in self._returns(target.topic),
        )

    def opposite(self, back: "OppositeLink") -> PartitionStanding:
        """The state of the opposite copy of a partition."""
        name = back.watch.link.name
        if name not in self._opposite:
            here, there = self._read
            self._opposite[name] = Standings(back.watch, there, here)
        return self._opposite[name].of(back.source)

    def _returns(self, topic: str) -> set[Place]:
        """The logs that the records of the present target topic reach over other links, except directly from the target
        to the source: see `back_of`."""
        if topic not in self._reached:
            self._reached[topic] = _reached(self._watch, set(self._left(topic)))
        return self._reached[topic]

    def _left(self, topic: str) -> Iterator[Place]:
        """The logs to which links have copied from the present target topic."""
        declared, topic_id = self._watch.link.declared, self._facts.target.ids.get(topic, "")
        for link in (other.link for other in self._watch.leaving(declared.target)):
            if link.declared.target == declared.source and link.topics([topic]):
                continue
            with link.lock:
                copies = [copy for log, copy in link.copies.items() if log.topic == topic]
            for copy in copies:
                if copy.source_id == topic_id and not copy.excluded and self._begun(link, copy):
                    yield link.declared.target, copy.target

    def _begun(self, link: Link, copy: Copy) -> bool:
        """Whether a link has copied records of a target log, or may have in a lease in progress."""
        if copy.offset > copy.start:
            return True
        _, end = self._there.get(copy.source) or self._facts.target.logs.get(copy.source, (-1, -1))
        return link.leased(copy.source) and end > copy.offset


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


def _reached(watch: LinkMonitor, begins: set[Place]) -> set[Place]:
    """Logs to which links wrote, and those to which other links copy on what links wrote. A log is copied to one log,
    which may have another number: queues of brokers are paired in the order in which they appeared."""
    reached, new = set[Place](), begins
    while new:
        reached |= new
        new = {next_ for place in new for next_ in _nexts(watch, *place)} - reached
    return reached


def _nexts(watch: LinkMonitor, cluster: str, log: LogId) -> Iterator[Place]:
    for link in (other.link for other in watch.leaving(cluster)):
        if link.declared.forward and link.topics([log.topic]):
            yield link.declared.target, link.place(log)


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
    link, options, standings = watch.link, list[RecoveryOption](), Standings(watch)
    with link.lock:
        copies = link.current()
    for topic, some in groupby(copies, key=lambda copy: copy.source.topic):
        whole = list(some)
        by_ways: dict[tuple[tuple[str, str], ...], list[Copy]] = {}
        for copy in whole:
            by_ways.setdefault(tuple(_commands(watch, standings, copy)), []).append(copy)
        for commands, affected in by_ways.items():
            parts = f"--topic {topic}" if len(affected) == len(whole) else _parts(affected)
            options += [
                RecoveryOption(topic, len(affected), command.replace("{part}", parts), does, number == 0)
                for number, (command, does) in enumerate(commands)
            ]
    return options


def _parts(copies: list[Copy]) -> str:
    return " ".join(f"--partition {copy.source}" for copy in copies)


def _commands(watch: LinkMonitor, standings: Standings, copy: Copy) -> Iterator[tuple[str, str]]:
    back = back_of(watch, copy.source)
    other = standings.opposite(back) if back is not None else None
    for way in ways(standings.of(copy.source), other):
        offset = _first_lost(watch, copy) if "{offset}" in way.command else 0
        if offset is not None:
            command = way.command.replace("{link}", watch.link.name).replace("{offset}", str(offset))
            command = command.replace("{exclude}", ",".join([*watch.link.declared.exclude, copy.source.topic]))
            yield command.replace("{back}", back.watch.link.name if back is not None else ""), way.does


def _first_lost(watch: LinkMonitor, copy: Copy) -> int | None:
    """The source offset of the first record that the target lost; None: unknown."""
    _, end = ends(copy, watch.link.snapshot.facts)
    return copy.map.backward(end).offset if end >= 0 else None
