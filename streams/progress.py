"""Progress reports of Spark's queries (StreamingQueryProgress), as the JSON that Spark makes."""

from typing import TypedDict

Offsets = dict[str, dict[str, int]]
"""Offsets of a Kafka source by topic and partition."""


class SourceProgress(TypedDict, total=False):
    """A source of a query."""

    endOffset: Offsets | None
    latestOffset: Offsets | None
    metrics: dict[str, str]


class StateProgress(TypedDict, total=False):
    """The state store of an operator of a query."""

    numRowsTotal: int
    memoryUsedBytes: int


class QueryProgress(TypedDict, total=False):
    """One micro-batch of a query."""

    name: str | None
    batchId: int
    numInputRows: int
    processedRowsPerSecond: float
    batchDuration: int
    """In ms."""
    durationMs: dict[str, int]
    sources: list[SourceProgress]
    stateOperators: list[StateProgress]
