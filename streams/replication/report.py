"""Rows of a link for the API: partitions, topics and group checkpoints."""

from collections.abc import Callable, Iterable
from itertools import groupby

from trueup.connectors.contract import LogId
from trueup.connectors.replication.group_sync import Checkpoint
from trueup.state.replication.rules import LINK_RULES
from trueup.state.replication.verdicts import PartitionStage
from trueup.streams.replication.links.checkpoints import Copy
from trueup.streams.replication.links.link import Link
from trueup.streams.replication.links.status import PartitionRow as Observed
from trueup.streams.rows import Row


def checkpoint(row: Checkpoint) -> Row:
    """The row of one group and partition."""
    return {
        "group": row.group,
        "source": str(row.source),
        "target": str(row.target),
        "committed": row.committed,
        "translated": row.translated,
        "present": row.present,
        "lag": row.lag,
        "action": row.action,
        "reason": row.reason,
    }


def partition(link: Link, source: LogId, row: Observed) -> Row:
    """The row of one partition."""
    copy = row.copy or Copy(source, link.place(source), -1)
    last = copy.last
    return {
        "topic": source.topic,
        "place": source.place,
        "partition": source.number,
        "target_topic": copy.target.topic,
        "target_place": copy.target.place,
        "target_partition": copy.target.number,
        "stage": row.stage.value,
        "start": copy.start,
        "offset": copy.offset,
        "source_end": last.source_end if last else link.snapshot.facts.source.logs.get(source, (-1, -1))[1],
        "target_end": last.target_end if last else -1,
        "lag_records": row.left,
        "lag_ms": row.lag_ms,
        "path": copy.path,
        "runs": len(copy.map),
        "reset": copy.reset,
        "at_ms": copy.at_ms,
        "error": row.error,
        "stopped": row.stage is PartitionStage.STOPPED,
        "refill_until": copy.refill.until if copy.refill is not None else -1,
    }


def remedies(rules: Iterable[str]) -> list[Row]:
    """The remedies of these rules. Ids that are not rules of links are left out."""
    matches = (LINK_RULES.find(rule) for rule in dict.fromkeys(rules))
    return [{"rule": rule.id, "remedy": rule.remedy} for rule in matches if rule is not None]


def total(partitions: Iterable[tuple[PartitionStage, int]], combine: Callable[[list[int]], int] = sum) -> int:
    """A number of all partitions; -1 if it is unknown of any that exists. Topics that are gone have nothing to copy."""
    numbers = [number for stage, number in partitions if stage is not PartitionStage.GONE]
    return combine(numbers) if numbers and min(numbers) >= 0 else -1


def by_topic(copies: Iterable[Row]) -> list[Row]:
    """One row per topic, aggregated from sorted rows of `partition`."""
    return [_topic(topic, list(rows)) for topic, rows in groupby(copies, key=lambda row: str(row["topic"]))]


def _topic(topic: str, rows: list[Row]) -> Row:
    stages = {row["stage"] for row in rows}
    return {
        "topic": topic,
        "target_topic": rows[0]["target_topic"],
        "partitions": len(rows),
        "stage": next(stage.value for stage in PartitionStage if stage.value in stages),
        "stopped": sum(row["stopped"] for row in rows),
        "lag_records": total((PartitionStage(row["stage"]), row["lag_records"]) for row in rows),
        "lag_ms": total(((PartitionStage(row["stage"]), row["lag_ms"]) for row in rows), max),
        "error": next((row["error"] for row in rows if row["error"]), ""),
    }
