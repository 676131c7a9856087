"""Metrics of unreferenced ledgers and their deletions."""

from trueup.state.deletion import lifecycle
from trueup.streams.deletion.signs import DeletionFields
from trueup.streams.rows import Row
from trueup.streams.runtime.metrics import SAFE_BUCKETS, Metrics, StreamMetrics


class DeletionMetrics(StreamMetrics):
    """The metrics of the deletion stream."""

    def __init__(self, metrics: Metrics) -> None:
        where = ("namespace", "rule")
        self.forgotten = metrics.gauge("unreferenced_ledgers", "unreferenced ledgers", *where)
        self.forgotten_bytes = metrics.gauge(
            "unreferenced_bytes", "length of unreferenced ledgers in bytes, without replication", *where
        )
        self.deletions = metrics.gauge("deletions", "deletions in progress, by stage", "stage")
        self.oldest_deletion = metrics.gauge(
            "oldest_deletion_seconds",
            "time since the oldest deletion that is not confirmed was executed or first failed; 0: none",
        )
        self.steps = metrics.counter("deletion_steps_total", "transitions of deletions, by the stage reached", "stage")
        self.deleted_bytes = metrics.counter("deleted_bytes_total", "bytes of ledgers with a confirmed deletion")
        self.confirmed = metrics.histogram(
            "time_to_confirmed_seconds",
            "time from the deletion of the metadata to the last bookie's confirmation",
            SAFE_BUCKETS,
        )
        for reached in lifecycle.DeletionStage:
            self.steps.at(reached)

    def step(self, stage: str, length: int, seconds: float) -> None:
        """Count one transition of the deletion of a ledger with this many bytes; ``seconds``: the
        seconds since the transition before."""
        self.steps.at(str(stage)).inc()
        if stage == lifecycle.DeletionStage.CONFIRMED:
            self.deleted_bytes.at().inc(length)
            self.confirmed.at().observe(max(0.0, seconds))

    def status(self, status: Row) -> None:
        """Set all gauges, if the stream runs."""
        if (deletion := DeletionFields.of(status).deletion) is None:
            return
        for family in (self.forgotten, self.forgotten_bytes):
            family.metric.clear()
        for row in deletion.forgotten:
            self.forgotten.at(row.namespace, row.rule).set(row.ledgers)
            self.forgotten_bytes.at(row.namespace, row.rule).set(row.bytes)
        for stage in lifecycle.DeletionStage:
            if stage not in lifecycle.ENDS:
                self.deletions.at(stage).set(deletion.deletions.get(stage, 0))
        self.oldest_deletion.at().set((deletion.executing_ms or 0) / 1000)
