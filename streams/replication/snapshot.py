"""What both clusters of a link said last, and what two such looks show of a partition."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from trueup.connectors.contract import LogId
from trueup.state.replication.anomalies import Look
from trueup.streams.replication.checkpoints import Copy


class Side(NamedTuple):
    """One cluster: partitions and id of each topic of the link that it has, first and end offset of each partition.

    ``problem``: why it did not answer the last time it was asked; the rest is older then. ``cluster``: its id.
    ``names``: of all topics that the source has, of the link or not.
    """

    partitions: Mapping[str, int] = {}
    ids: Mapping[str, str] = {}
    logs: Mapping[LogId, tuple[int, int]] = {}
    problem: str = ""
    cluster: str = ""
    names: frozenset[str] = frozenset()


class Facts(NamedTuple):
    """Both sides. ``at_ms``: when both answered last."""

    source: Side
    target: Side
    at_ms: int

    @property
    def complete(self) -> bool:
        """Whether both answered, some time."""
        return self.at_ms > 0


NOTHING = Facts(Side(problem="not asked yet"), Side(problem="not asked yet"), 0)


def ids(copy: Copy, facts: Facts) -> tuple[str, str]:
    """Ids of the topics at both ends as they are now."""
    return facts.source.ids.get(copy.source.topic, ""), facts.target.ids.get(copy.target.topic, "")


def look(copy: Copy, facts: Facts, alone: bool = True) -> Look:
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
        gone=bool(facts.source.partitions) and copy.source.topic not in facts.source.partitions,
        target_gone=bool(facts.target.cluster) and copy.target.topic not in facts.target.partitions,
    )


def seen(copy: Copy, facts: Facts, was: Look) -> Look:
    """One partition that stood as ``was`` before both sides were asked; a side that did not answer says nothing."""
    now = replace(look(copy, facts, was.alone), position=was.position, copied_end=was.copied_end, foreign=was.foreign)
    if facts.source.problem:
        now = replace(now, source_start=-1, source_end=-1, gone=False)
    return replace(now, target_end=-1, target_gone=False) if facts.target.problem else now
