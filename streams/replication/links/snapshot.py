"""A snapshot of a link: the last observation of both clusters, and the decisions based on it.

Anomalies of a partition are detected by comparing two observations.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypedDict

from trueup.connectors.contract import LogId
from trueup.state.replication.anomalies import CopyObservation, PathChoice
from trueup.streams.replication.links.checkpoints import Copy


class ClusterSnapshot(NamedTuple):
    """One cluster of a link, as it was last observed."""

    topics: Mapping[str, Collection[LogId]] = {}
    """The logs of each topic of the link. A topic without logs cannot be read."""
    ids: Mapping[str, str] = {}
    """The id of each topic of the link that has one."""
    logs: Mapping[LogId, tuple[int, int]] = {}
    """The first offset and the end offset of each log whose end is known."""
    problem: str = ""
    """Why the last observation failed; the other fields are then older. Empty if the observation succeeded."""
    cluster: str = ""
    """The id of the cluster; empty if it is unknown."""
    names: frozenset[str] = frozenset()
    """The names of all topics of the source cluster; empty for the target cluster."""
    ends_lag_s: float = 0.0
    """The time in seconds by which end offsets may lag acknowledged records."""
    unreadable: Mapping[str, str] = {}
    """The topics that cannot be read, with the reason."""

    def identity(self, topic: str, last_id: str) -> str:
        """The id of a topic; ``last_id`` if the topic cannot be read; empty if the topic has none or does not exist."""
        return last_id if topic in self.unreadable else self.ids.get(topic, "")

    def lacks(self, log: LogId) -> bool:
        """Whether a topic that can be read does not have a log."""
        logs = self.topics.get(log.topic, ())
        return bool(logs) and log not in logs


class LinkFacts(NamedTuple):
    """Both clusters of a link, as they were last observed."""

    source: ClusterSnapshot
    target: ClusterSnapshot
    at_ms: int
    """The time of the last complete observation, in ms since the epoch; 0 if there is none yet."""

    @property
    def complete(self) -> bool:
        """Whether both clusters were observed at least once."""
        return self.at_ms > 0


NOTHING = LinkFacts(ClusterSnapshot(problem="not observed yet"), ClusterSnapshot(problem="not observed yet"), 0)


class TargetHold(NamedTuple):
    """The reason why no record may be copied to a target topic yet."""

    reason: str
    approval: bool = False
    """Whether a change that must precede the copy waits for approval."""
    stopped: bool = False
    """Whether the target refused that change, or the change was not attempted because an earlier change was not
    done."""


NOT_COMPARED = TargetHold("the topics of both clusters are not compared yet")


@dataclass(frozen=True, slots=True)
class LinkSnapshot:
    """The state of a link at one moment."""

    facts: LinkFacts = NOTHING
    """The last observation of both clusters."""
    choice: PathChoice | None = None
    """The chosen path; None if no path is chosen yet."""
    waiting: Mapping[str, TargetHold] = field(default_factory=dict)
    """The targets of compared topics to which no record may be copied yet."""
    compared: frozenset[str] = frozenset()
    """The source topics that were compared with the target. A topic is observed before it is compared."""
    unfit: str = ""
    """Why the comparison of topics failed; empty if it did not fail."""
    blocked_reason: str = ""
    """Why nothing may be copied; empty if there is no such reason."""
    arrived_ms: int = 0
    """The write time of the newest heartbeat that arrived, in ms since the epoch; 0 if none arrived."""
    slots: int = 1 << 30
    """The maximum number of concurrent tasks."""

    def hold(self, topic: str, target: str) -> TargetHold | None:
        """Why no record of a source topic may be copied to its target yet; None if it may."""
        return self.waiting.get(target) if topic in self.compared else NOT_COMPARED


class Changes(TypedDict, total=False):
    """Some fields of a `LinkSnapshot`."""

    facts: LinkFacts
    choice: PathChoice | None
    waiting: Mapping[str, TargetHold]
    compared: frozenset[str]
    unfit: str
    blocked_reason: str
    arrived_ms: int
    slots: int


def ids(copy: Copy, facts: LinkFacts) -> tuple[str, str]:
    """The present topic ids at both ends. A topic that cannot be read counts as the one that was copied: nothing shows
    that it was replaced."""
    return (
        "" if absent(copy, facts) else facts.source.identity(copy.source.topic, copy.source_id),
        facts.target.identity(copy.target.topic, copy.target_id),
    )


def absent(copy: Copy, facts: LinkFacts) -> bool:
    """Whether the source topic never had the partition of a copy, which was set while the id of its topic was not
    known. A topic that has an id loses no partitions."""
    topic_id = facts.source.ids.get(copy.source.topic)
    return bool(topic_id and not copy.source_id) and facts.source.lacks(copy.source)


def ends(copy: Copy, facts: LinkFacts) -> tuple[int, int]:
    """The end offsets of both partitions; -1: unknown."""
    return facts.source.logs.get(copy.source, (-1, -1))[1], facts.target.logs.get(copy.target, (-1, -1))[1]


def differ(one: str, other: str) -> bool:
    """Whether two ids are of different topics. Empty: it is not known."""
    return bool(one and other) and one != other


def look(copy: Copy, facts: LinkFacts, alone: bool = True) -> CopyObservation:
    """The input of `state.replication.anomalies.anomalies` for one partition. ``alone``: whether no other link writes
    to the target of the partition."""
    source_id, target_id = ids(copy, facts)
    start, end = facts.source.logs.get(copy.source, (-1, -1))
    return CopyObservation(
        position=copy.position.offset,
        start=copy.start,
        source_id=source_id,
        source_start=start,
        source_end=end,
        target_id=target_id,
        target_end=ends(copy, facts)[1],
        copied_end=copy.copied_end,
        foreign=copy.foreign,
        alone=alone,
        gone=bool(facts.source.topics) and copy.source.topic not in facts.source.topics,
        target_gone=_asked(copy, facts) and copy.target.topic not in facts.target.topics,
    )


def _asked(copy: Copy, facts: LinkFacts) -> bool:
    """Whether the target was asked for the topic: it is asked for copies of the topics that the source has now, and
    these are none while no broker of the source responds after a start."""
    return bool(facts.target.cluster) and copy.source.topic in facts.source.topics


def seen(copy: Copy, facts: LinkFacts, was: CopyObservation) -> CopyObservation:
    """The observation of one partition whose progress was ``was`` before both clusters were observed. A cluster that
    did not respond contributes nothing."""
    now = replace(
        look(copy, facts, was.alone),
        position=was.position,
        start=was.start,
        copied_end=was.copied_end,
        foreign=was.foreign,
    )
    if facts.source.problem:
        now = replace(now, source_start=-1, source_end=-1, gone=False)
    return replace(now, target_end=-1, target_gone=False) if facts.target.problem else now


class AcknowledgedEnds:
    """The target ends that must be visible by now, for targets whose end offsets lag acknowledged records."""

    def __init__(self) -> None:
        self._history: dict[LogId, deque[tuple[float, int]]] = {}

    def end(self, copy: Copy, lag_s: float, now_s: float) -> int:
        """`Copy.copied_end` as of ``lag_s`` seconds ago; -1: unknown. To be called regularly."""
        if lag_s <= 0:
            return copy.copied_end
        history = self._history.setdefault(copy.source, deque())
        if history and copy.copied_end < history[-1][1]:
            history.clear()  # the copy restarted
        history.append((now_s, copy.copied_end))
        while len(history) > 1 and history[1][0] <= now_s - lag_s:
            history.popleft()
        return history[0][1] if history[0][0] <= now_s - lag_s else -1


def pairs(
    sources: Iterable[LogId], topic: str, targets: Iterable[LogId], former: Mapping[LogId, LogId]
) -> dict[LogId, LogId]:
    """Map the logs of a source topic to logs of a target topic: to the former one (``former``), else to the one of the
    same name, else to the first unused one, both in the order of places and numbers. Logs without a target are left
    out."""
    there, mine = set(targets), sorted(sources, key=_in_place)
    held = {source: former[source] for source in mine if source in former and former[source].topic == topic}
    taken = {target for target in former.values() if target.topic == topic}
    pairing, left = {source: target for source, target in held.items() if target in there}, list[LogId]()
    for source in mine:
        same = LogId(topic, source.number, source.place)
        if source in held:
            continue
        if same in there and same not in taken:
            pairing[source] = same
            taken.add(same)
        else:
            left.append(source)
    free = sorted(there - taken, key=_in_place)
    return {**pairing, **dict(zip(left, free, strict=False))}


def _in_place(log: LogId) -> tuple[str, int]:
    return log.local
