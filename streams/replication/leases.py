"""Reports of running leases, from the worker to the driver through a topic of the journal.

Spark returns a task's result only when the task ends. The journal is available in every deployment: executors already
have its credentials, and the driver needs no additional port.

A report may be lost or delayed. Reports are therefore numbered, the driver accepts only the next one in sequence, and
the result of the lease contains all of them.
"""

import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import fields
from itertools import chain
from typing import NamedTuple

from trueup.connectors.contract import LogId, Position, Progress, Run, log_of
from trueup.streams.journal.channel import Channel, publish
from trueup.streams.journal.codec import encode
from trueup.streams.journal.topic import Record
from trueup.streams.replication.topics import REPORTS

REPORT_S, IDLE_S = 0.25, 5.0
"""Interval between two reports, and between two reports without progress."""
RUNS = 20_000
"""Maximum number of runs and partitions in one report, which keeps it below a broker's maximum record size."""
NUMBERS = {f.name: f.default for f in fields(Progress) if f.type in (int, "int")}


class Report(NamedTuple):
    """The progress of one attempt at an order since the last report of the attempt."""

    attempt: str
    at: int
    """The number of the report within the attempt. The first report has the number 1."""
    progress: list[Progress]


class ReportMessage(NamedTuple):
    """A report with its order."""

    link: str
    term: str
    number: int
    part: int
    report: Report


class Reporter:
    """The reports of one attempt at an order. ``with_order``: the function that adds the order to a report. Errors of
    the journal are not raised."""

    def __init__(self, channel: Channel | None, with_order: Callable[[Report], ReportMessage]) -> None:
        self._channel, self._with_order = channel, with_order
        self._attempt, self._due_s, self._reported_s = uuid.uuid4().hex, 0.0, 0.0
        self._last: dict[LogId, Progress] = {}
        self.reports: list[Report] = []

    def report_if_due(self, progress: Callable[[], list[Progress]]) -> None:
        """Report changed progress if a report is due. Cheap to call often."""
        now = time.monotonic()
        if now >= self._due_s:
            self._due_s = now + REPORT_S
            changed = [entry for entry in progress() if entry != self._last.get(entry.source)]
            if changed or now - self._reported_s >= IDLE_S:
                self._reported_s = now
                self.report(changed)

    def report(self, progress: list[Progress]) -> None:
        """Report this progress now."""
        self._last |= {entry.source: entry for entry in progress}
        for part in _pieces(progress):
            self.keep(part)
            if self._channel is not None:
                message = self._with_order(self.reports[-1])
                body = encode(REPORTS, record_of(message))
                publish(self._channel, f"{message.link}/{message.part}".encode(), body)

    def keep(self, progress: list[Progress]) -> None:
        """Add this progress to the result only."""
        self.reports.append(Report(self._attempt, len(self.reports) + 1, progress))


def _pieces(progress: list[Progress]) -> Iterable[list[Progress]]:
    """Split progress into reports of limited size. Yields at least one: an empty report shows that the lease is
    held."""
    piece, size = list[Progress](), 0
    for entry in progress:
        if piece and size + len(entry.runs) >= RUNS:
            yield piece
            piece, size = [], 0
        piece.append(entry)
        size += 1 + len(entry.runs)
    yield piece


def record_of(message: ReportMessage) -> dict[str, object]:
    """The record of the topic."""
    where = {name: getattr(message, name) for name in ("link", "term", "number", "part")}
    report = message.report
    return {**where, "attempt": report.attempt, "at": report.at, "progress": [_as_record(p) for p in report.progress]}


def message_of(record: Record) -> ReportMessage:
    """The inverse of `record_of`."""
    report = Report(record["attempt"], record["at"], [_progress(row) for row in record["progress"]])
    return ReportMessage(record["link"], record["term"], record["number"], record["part"], report)


def _as_record(progress: Progress) -> dict[str, object]:
    return {
        "topic": progress.source.path,
        "partition": progress.source.number,
        "target_topic": progress.target.path,
        "target_partition": progress.target.number,
        "offset": progress.position.offset,
        "carry": dict(progress.position.resume_state),
        "chosen": progress.position.chosen,
        "runs": list(chain.from_iterable(progress.runs)),
        "numbers": {name: value for name, none in NUMBERS.items() if (value := getattr(progress, name)) != none},
        "path": progress.path,
        "error": progress.error,
        "stopped": progress.stopped,
    }


def _progress(record: Record) -> Progress:
    flat = iter(record["runs"])
    return Progress(
        source=log_of(record["topic"], record["partition"]),
        target=log_of(record["target_topic"], record["target_partition"]),
        position=Position(record["offset"], record["carry"], record["chosen"]),
        runs=tuple(Run(*run) for run in zip(flat, flat, flat, strict=True)),
        **{name: value for name, value in record["numbers"].items() if name in NUMBERS},
        path=record["path"],
        error=record["error"],
        stopped=record["stopped"],
    )
