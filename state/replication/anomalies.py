"""Anomalies of a link that cause no error, and the choice of its copy path. See also `state.replication.verdicts`."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from trueup.state.common.counts import many


@dataclass(frozen=True, slots=True)
class CopyObservation:
    """One observation of one partition from both sides. Unknown numbers are -1, and unknown ids are empty."""

    position: int = -1
    """The source offset that the copy has reached, -1 if nothing was copied."""
    start: int = -1
    """The source offset at which the copy begins."""
    source_id: str = ""
    source_start: int = -1
    source_end: int = -1
    target_id: str = ""
    target_end: int = -1
    copied_end: int = -1
    """The target offset after the last acknowledged record."""
    foreign: int = 0
    """The number of records of other writers between the copied records at the target, so far."""
    alone: bool = True
    """Whether the link should be the only writer of the target topic."""
    gone: bool = False
    """Whether the source does not have the topic."""
    target_gone: bool = False
    """Whether the target does not have the target topic, while the source has the source topic."""

    @property
    def offset(self) -> int:
        """The source offset of the next record to copy."""
        return self.position if self.position >= 0 else self.start


class Anomaly(NamedTuple):
    """An anomaly that causes no error."""

    rule: str
    records: int
    """The number of affected records, -1 if unknown."""
    text: str
    stops: bool = False
    """Whether the partition must not be copied until an operator resets it."""


def anomalies(before: CopyObservation, now: CopyObservation) -> list[Anomaly]:
    """The anomalies in two consecutive observations of a partition; after a restart ``before`` is what was kept of the
    last one. A broker may report an old end for a moment after an
    election, so an end that moves backwards counts only if both observations show it."""
    if now.gone:
        return [Anomaly("replication.topic-gone", -1, "the source does not have it")] if now.position >= 0 else []
    findings = [*_recreated(before, now)]
    if now.copied_end >= 0 and now.target_gone and before.target_gone:
        findings.append(Anomaly("replication.target-gone", -1, "the target does not have the topic", stops=True))
    if findings:
        return findings
    lost = now.source_start - now.position
    if now.position >= 0 and lost > 0:
        text = f"copied up to {now.position}, the log starts at {now.source_start}"
        findings.append(Anomaly("replication.retention-outran", lost, text))
    if _short(now.source_end, now.offset) and _short(before.source_end, before.offset):
        reached = "copied up to" if now.position >= 0 else "the copy begins at"
        text = f"{reached} {now.offset}, the source ends at {now.source_end}"
        findings.append(Anomaly("replication.source-lost-records", now.offset - now.source_end, text, stops=True))
    if _short(now.target_end, now.copied_end) and _short(before.target_end, before.copied_end):
        text = f"acknowledged up to {now.copied_end}, the target ends at {now.target_end}"
        lost = now.copied_end - now.target_end
        findings.append(Anomaly("replication.target-lost-records", lost, text, stops=True))
    if now.alone and now.foreign > 0:
        text = (
            many(now.foreign, "record of another writer is", "records of other writers are")
            + " between those of the link"
        )
        findings.append(Anomaly("replication.target-written", now.foreign, text))
    return findings


def bare(now: CopyObservation, observed: Iterable[Anomaly]) -> bool:
    """Whether the target has none of the records that the link wrote to a partition."""
    rules = {anomaly.rule for anomaly in observed}
    emptied = "replication.target-lost-records" in rules and now.target_end == 0
    return emptied or not rules.isdisjoint({"replication.target-recreated", "replication.target-gone"})


def target_replaced(partitions: Iterable[tuple[str, bool]], clusters: tuple[str, str]) -> str:
    """Why the target is another cluster, or one that lost its data; empty if it is not.

    ``partitions``: target topic of each partition that was written to, and whether it is `bare`; ``clusters``: id of
    the cluster that was written to and the current one ("": unknown). A single topic may have been deleted on
    purpose, so it alone does not show a loss of the cluster.
    """
    was, now = clusters
    if was and now and was != now:
        return f"the target's cluster id was {was} and is {now}"
    pairs = list(partitions)
    topics = {topic for topic, _ in pairs}
    if len(topics) > 1 and all(gone for _, gone in pairs):
        return f"nothing is left there of {many(len(topics), 'topic')} that the link wrote to"
    return ""


def _recreated(before: CopyObservation, now: CopyObservation) -> Iterator[Anomaly]:
    for side, old, new in (("topic", before.source_id, now.source_id), ("target", before.target_id, now.target_id)):
        if old and new and old != new:
            yield Anomaly(f"replication.{side}-recreated", -1, f"its id was {old} and is {new}", stops=True)


def _short(end: int, offset: int) -> bool:
    return 0 <= end < offset


BATCH_US, RECORD_US, BYTE_US = 75.0, 1.5, 0.005
"""CPU of the copier and of both clusters' brokers: the additional cost of a batch if it is copied as a whole, and those
of a record and of a stored byte of it if it is copied individually.

The values are derived from the rows "900 a batch" and "10 a batch" of `python -m bench.replication --only copy`, for
batches and for records of 100 and 1,000 bytes, each with its row "CPU of both brokers", by `bench.replication.costs`.
Each run prints its own values beside them; the choice depends on their ratios."""
STAY = 2.0
"""A link changes its path when batches are this many times larger, or smaller, than the size at which both cost the
same: the newest batches differ from one start to the next."""


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """The inputs of the choice of a path. Unknown numbers are -1, and unknown texts are empty."""

    copy: str = "auto"
    """The setting ``copy`` of the link: auto, or the name of a path."""
    transform: bool = False
    magic: int = 2
    """The version of the oldest record format at the source."""
    per_batch: float = -1.0
    """The average number of records per batch of the source."""
    source_compression: str = ""
    target_compression: str = ""
    target_times: str = ""
    source_max_bytes: int = -1
    target_max_bytes: int = -1
    now: str = ""
    """The current path."""
    failures: str = "stop"
    record_bytes: float = -1.0
    """The average stored size of a record, in bytes."""
    into: str = ""
    """The common target topic, empty if there is none."""
    paths: Collection[str] = ("batches", "records")
    """The paths that can copy between the two systems."""
    compacted: bool = False
    """Whether the source compacts all topics of the link."""


class PathChoice(NamedTuple):
    """A path and the reason for it."""

    path: str
    reason: str


def choose(facts: PartitionFacts) -> PathChoice:
    """The path of a link."""
    if facts.copy != "auto" and facts.copy in facts.paths:
        return PathChoice(facts.copy, "set by the link's copy")
    blocked_reason = _blocked_reason(facts)
    if blocked_reason:
        return PathChoice("records", blocked_reason)
    if facts.compacted:
        return PathChoice("records", "the source compacts all topics; batches with gaps would be encoded again")
    least = worth_while(facts.record_bytes) * {"records": STAY, "batches": 1 / STAY}.get(facts.now, 1.0)
    if 0 <= facts.per_batch < least:
        reason = f"batches of the source hold {facts.per_batch:.1f} records, fewer than {least:.1f}"
        return PathChoice("records", f"{reason}; copying single records costs less")
    return PathChoice("batches", "whole batches can be copied without decompression")


def worth_while(record_bytes: float) -> float:
    """The number of records per batch above which whole batches take less CPU, of copier and brokers together, than
    single records in larger batches. ``record_bytes`` < 0: unknown."""
    return BATCH_US / (RECORD_US + BYTE_US * max(0.0, record_bytes))


def single_records(transform: bool, failures: str) -> str:
    """Why a link with these settings cannot copy whole batches; empty if it can."""
    if transform:
        return "transform processes every record"
    return f"refused records are handled one by one (failures: {failures})" if failures != "stop" else ""


def _blocked_reason(facts: PartitionFacts) -> str:
    """Why whole batches cannot be copied; empty if they can."""
    if "batches" not in facts.paths:
        return "only single records can be copied between these systems"
    if reason := single_records(facts.transform, facts.failures):
        return reason
    if facts.into:
        return f"all topics go into {facts.into}"
    if 0 <= facts.magic < 2:
        return f"the source has records of the old format {facts.magic}"
    if facts.target_compression not in ("", "producer", facts.source_compression):
        return f"the target recompresses batches (compression.type {facts.target_compression})"
    if facts.target_times == "LogAppendTime":
        return "the target sets its own timestamps (message.timestamp.type LogAppendTime)"
    if 0 <= facts.target_max_bytes < facts.source_max_bytes:
        return f"the target accepts batches of {facts.target_max_bytes} bytes, the source of {facts.source_max_bytes}"
    return ""
