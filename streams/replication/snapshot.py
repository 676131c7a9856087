"""What the loops around a link know of it: what both clusters said last, and what was decided from that.

Two such looks at both clusters show what became of a partition.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypedDict

from trueup.connectors.contract import LogId
from trueup.state.replication.anomalies import Choice, Look
from trueup.streams.replication.checkpoints import Copy


class Side(NamedTuple):
    """One cluster: logs and id of each topic of the link that it has (no log: the topic cannot be read), first and end
    offset of each log.

    ``problem``: why it did not answer the last time it was asked; the rest is older then. ``cluster``: its id.
    ``names``: of all topics that the source has, of the link or not. ``ends_lag_s``: by how much its ends may lag what
    it acknowledged.
    """

    topics: Mapping[str, Collection[LogId]] = {}
    ids: Mapping[str, str] = {}
    logs: Mapping[LogId, tuple[int, int]] = {}
    problem: str = ""
    cluster: str = ""
    names: frozenset[str] = frozenset()
    ends_lag_s: float = 0.0


class LinkFacts(NamedTuple):
    """Both sides. ``at_ms``: when both answered last."""

    source: Side
    target: Side
    at_ms: int

    @property
    def complete(self) -> bool:
        """Whether both answered, some time."""
        return self.at_ms > 0


NOTHING = LinkFacts(Side(problem="not asked yet"), Side(problem="not asked yet"), 0)


class Hold(NamedTuple):
    """Why no record may be copied to a topic of the target yet. ``approval``: an operator has to approve the change
    that must come first; ``stopped``: the target refuses it."""

    reason: str
    approval: bool = False
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class LinkSnapshot:
    """What is known of a link at one moment. ``facts``: what both clusters said last; ``choice``: the path to take,
    None: not chosen yet; ``waiting``: target topics that no record may be copied to yet, None: topics are not compared
    yet; ``unfit``: why they could not be compared; ``blocked_reason``: why nothing may be copied at all;
    ``arrived_ms``: when the newest heartbeat that arrived was written, ms since the epoch; ``slots``: tasks that may
    run at once."""

    facts: LinkFacts = NOTHING
    choice: Choice | None = None
    waiting: Mapping[str, Hold] | None = None
    unfit: str = ""
    blocked_reason: str = ""
    arrived_ms: int = 0
    slots: int = 1 << 30


class Changes(TypedDict, total=False):
    """Some fields of a `LinkSnapshot`."""

    facts: LinkFacts
    choice: Choice | None
    waiting: Mapping[str, Hold] | None
    unfit: str
    blocked_reason: str
    arrived_ms: int
    slots: int


def ids(copy: Copy, facts: LinkFacts) -> tuple[str, str]:
    """Ids of the topics at both ends as they are now."""
    return facts.source.ids.get(copy.source.topic, ""), facts.target.ids.get(copy.target.topic, "")


def look(copy: Copy, facts: LinkFacts, alone: bool = True) -> Look:
    """One partition, as `state.replication.anomalies.silences` wants it. ``alone``: nobody else is to write to its
    target."""
    source_id, target_id = ids(copy, facts)
    start, end = facts.source.logs.get(copy.source, (-1, -1))
    return Look(
        position=copy.position.offset,
        source_id=source_id,
        source_start=start,
        source_end=end,
        target_id=target_id,
        target_end=facts.target.logs.get(copy.target, (-1, -1))[1],
        copied_end=copy.copied_end,
        foreign=copy.foreign,
        alone=alone,
        gone=bool(facts.source.topics) and copy.source.topic not in facts.source.topics,
        target_gone=bool(facts.target.cluster) and copy.target.topic not in facts.target.topics,
    )


def seen(copy: Copy, facts: LinkFacts, was: Look) -> Look:
    """One partition that stood as ``was`` before both sides were asked; a side that did not answer says nothing."""
    now = replace(look(copy, facts, was.alone), position=was.position, copied_end=was.copied_end, foreign=was.foreign)
    if facts.source.problem:
        now = replace(now, source_start=-1, source_end=-1, gone=False)
    return replace(now, target_end=-1, target_gone=False) if facts.target.problem else now


class Settled:
    """Up to where targets must show what they acknowledged, where their ends lag that."""

    def __init__(self) -> None:
        self._told: dict[LogId, deque[tuple[float, int]]] = {}

    def end(self, copy: Copy, lag_s: float, now_s: float) -> int:
        """`Copy.copied_end` as it was ``lag_s`` seconds ago, -1 when that is not known. To be asked regularly."""
        if lag_s <= 0:
            return copy.copied_end
        told = self._told.setdefault(copy.source, deque())
        if told and copy.copied_end < told[-1][1]:
            told.clear()  # the copy began anew
        told.append((now_s, copy.copied_end))
        while len(told) > 1 and told[1][0] <= now_s - lag_s:
            told.popleft()
        return told[0][1] if told[0][0] <= now_s - lag_s else -1


def pairs(
    sources: Iterable[LogId], topic: str, targets: Iterable[LogId], known: Mapping[LogId, LogId]
) -> dict[LogId, LogId]:
    """Where the logs of one topic go among those of a topic of the target: where they went before (``known``), else to
    the one of the same name, else to the first that nothing goes to. Logs without a place are left out."""
    there, mine = set(targets), sorted(sources)
    held = {source: known[source] for source in mine if source in known and known[source].topic == topic}
    taken = {target for target in known.values() if target.topic == topic}
    found, left = {source: target for source, target in held.items() if target in there}, list[LogId]()
    for source in mine:
        same = LogId(topic, source.number, source.place)
        if source in held:
            continue
        if same in there and same not in taken:
            found[source] = same
            taken.add(same)
        else:
            left.append(source)
    free = sorted(there - taken)
    return {**found, **dict(zip(left, free, strict=False))}
