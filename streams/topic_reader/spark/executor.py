"""What an executor does for one Spark partition: read its range, build record batches, log what happened."""

import gc
import logging
import sys
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pyarrow as pa

from trueup.connectors.pulsar.protocol.message import Message
from trueup.connectors.pulsar.protocol.rows import MessageRows, kept
from trueup.connectors.pulsar.schemas import SchemaType
from trueup.streams.topic_reader import damage_report
from trueup.streams.topic_reader.reader import Range, ReadReport, within
from trueup.streams.topic_reader.spark.columns import OutputColumns
from trueup.streams.topic_reader.spark.options import SourceOptions
from trueup.streams.topic_reader.spark.planner import EntryRange
from trueup.streams.topic_reader.spark.ranges import RangeReader
from trueup.streams.topic_reader.spark.values import Values, ValueSchema
from trueup.streams.topic_reader.topics import opened

log = logging.getLogger("trueup.reads")
_COLLECT = 50_000, 20, 100
"""Thresholds of garbage collections: most record batches have fewer messages."""
_LONGEST = 300
"""Characters of a reason in the log."""


@cache
def _settled() -> None:
    """Take the objects of imported modules out of garbage collections, and collect less often, once per worker.
    Thousands of messages exist at a time, none of them in a cycle: collections took 40 % of the time, and 15 % with
    Python's own thresholds."""
    gc.freeze()
    gc.set_threshold(*_COLLECT)


class RequestedColumns(NamedTuple):
    """The columns to build, and the type of the values."""

    schema: pa.Schema
    value: ValueSchema


def read(options: SourceOptions, columns: RequestedColumns, entries: EntryRange) -> Iterator[pa.RecordBatch]:
    """The record batches of one range. Logs one line at the end, whether all was read or not."""
    _settled()
    with opened(options.settings(), options.read, keep=True) as topics:
        history = topics.schemas(entries.topic) if columns.value.kind is SchemaType.AVRO else None
        values = Values(columns.value, history, options.strict)
        groups = RangeReader(topics, entries, options.read.skip_missing).messages()
        if options.range.from_ms is not None or options.range.to_ms is not None:
            groups = ((_within(options.range, some), tier) for some, tier in groups)
        try:
            for batch in OutputColumns(columns.schema, entries, values).batches(groups):
                topics.report.messages += batch.num_rows
                yield batch
        finally:
            _tell(entries, topics.report, values.undecoded)
            damage_report.send(options.report_target, topics.report)


def _within(limits: Range, some: MessageRows | list[Message]) -> MessageRows | list[Message]:
    if isinstance(some, MessageRows):
        return kept(some, within(limits, some.publish_ms))
    return [message for message in some if within(limits, message.publish_ms)]


def _tell(entries: EntryRange, report: ReadReport, undecoded: int) -> None:
    """Log what happened. A Python worker of Spark has no handler of its own; its standard error is the executor's."""
    if not log.hasHandlers():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
        log.addHandler(handler)
    log.setLevel(logging.INFO)
    amiss = report.fallbacks or report.damages or report.missing or report.trimmed or report.chunks or undecoded
    log.log(logging.WARNING if amiss else logging.INFO, "%s", line_of(entries, report, undecoded))


def line_of(entries: EntryRange, report: ReadReport, undecoded: int = 0) -> str:
    """What happened in a range, in one line: counters, then the first reason of each kind of fallback and damage."""
    numbers = {
        "messages": report.messages,
        **{tier.value: count for tier, count in sorted(report.entries.items())},
        "markers": report.markers,
        "fallbacks": len(report.fallbacks),
        "damages": len(report.damages),
        "missing": report.missing.total(),
        "trimmed": len(report.trimmed),
        "dropped_chunks": report.chunks,
        "undecoded": undecoded,
    }
    counters = " ".join(f"{name}={number}" for name, number in numbers.items())
    notes = [
        f"not from {fallback.tier} from entry {fallback.entry} on: {fallback.reason}"
        for fallback in report.fallbacks.values()
    ]
    notes += [
        f"entry {damage.entry} not from bookie {damage.bookie}: {damage.found}" for damage in report.damages.values()
    ]
    first = f"{entries.topic} ledger={entries.ledger} entries={entries.first}-{entries.last} {counters}"
    return "; ".join([first, *(" ".join(note.split())[:_LONGEST] for note in notes)])
