"""Metrics of links."""

from collections.abc import Iterable

from trueup.connectors.contract import Progress
from trueup.state.replication.verdicts import LinkState
from trueup.streams.replication.signs import LinkFields
from trueup.streams.rows import Row
from trueup.streams.runtime.metrics import NAN, Metrics, StreamMetrics

OUTCOMES = ("copied", "dropped", "skipped", "dismissed", "filtered", "lost", "repeated")


class LinkMetrics(StreamMetrics):
    """The metrics of the replication stream."""

    def __init__(self, metrics: Metrics) -> None:
        self.link_state = metrics.gauge("link_state", "1 for the current state of a link", "link", "state")
        self.link_lag = metrics.gauge(
            "link_lag_records", "source offsets that a link has not copied yet; NaN: unknown", "link"
        )
        self.link_age = metrics.gauge(
            "link_lag_seconds", "age of the oldest record that a link has not copied yet; 0: none, NaN: unknown", "link"
        )
        self.link_partitions = metrics.gauge("link_partitions", "source partitions that a link copies", "link")
        self.link_stopped = metrics.gauge(
            "link_stopped_partitions", "partitions of a link that require an operator", "link"
        )
        self.link_beat_age = metrics.gauge(
            "link_heartbeat_age_seconds",
            "age of the newest heartbeat that arrived at the target; NaN: none arrived",
            "link",
        )
        self.link_beat_lag = metrics.gauge("link_heartbeat_lag_seconds", "latency of a heartbeat", "link")
        self.link_groups = metrics.gauge("link_groups", "consumer groups whose offsets are translated", "link")
        self.link_group_lag = metrics.gauge(
            "link_group_lag_records",
            "maximum number of records by which a group is behind at the target; NaN: unknown",
            "link",
        )
        self.link_differences = metrics.gauge(
            "link_differences", "pending changes that would align the target; NaN: not compared yet", "link"
        )
        self.link_records = metrics.counter("link_records_total", "records of a link, by outcome", "link", "outcome")
        self.link_bytes = metrics.counter("link_bytes_total", "bytes written by a link", "link")
        self.link_foreign = metrics.counter(
            "link_foreign_records_total", "target offsets between a link's records that the link did not write", "link"
        )
        self.link_foreign_tags = metrics.counter(
            "link_foreign_tags_total", "source records with a tag of a link that an application passed on", "link"
        )
        self.link_rounds = metrics.counter("link_rounds_total", "completed rounds of leases of a link", "link")

    def declare(self, links: Iterable[str]) -> "LinkMetrics":
        """Create the counters of these links with value zero: `increase` ignores the first event of a counter that
        appears with it."""
        for link in links:
            for outcome in OUTCOMES:
                self.link_records.at(link, outcome)
            for counter in (self.link_bytes, self.link_foreign, self.link_foreign_tags, self.link_rounds):
                counter.at(link)
        return self

    def copied(self, link: str, progress: Progress) -> None:
        """Count the records of one partition by outcome."""
        for outcome in OUTCOMES:
            self.link_records.at(link, outcome).inc(getattr(progress, outcome))
        self.link_bytes.at(link).inc(progress.bytes)
        self.link_foreign.at(link).inc(progress.foreign)
        self.link_foreign_tags.at(link).inc(progress.foreign_tags)

    def round(self, link: str) -> None:
        """Count one round of leases."""
        self.link_rounds.at(link).inc()

    def status(self, status: Row) -> None:
        """Set every gauge from the status."""
        for row in LinkFields.of(status).links:
            self.link_lag.at(row.link).set(_known(row.lag_records))
            self.link_age.at(row.link).set(_known(row.lag_ms) / 1000)
            self.link_partitions.at(row.link).set(row.partitions)
            self.link_stopped.at(row.link).set(row.stopped)
            self.link_state.one_of(LinkState, row.state, row.link)
            self.link_beat_age.at(row.link).set(_known(row.heartbeat_age_ms) / 1000)
            self.link_beat_lag.at(row.link).set(_known(row.heartbeat_lag_ms) / 1000)
            self.link_groups.at(row.link).set(row.groups)
            self.link_group_lag.at(row.link).set(_known(row.group_lag))
            self.link_differences.at(row.link).set(_known(row.differences))


def _known(value: float) -> float:
    """A number of a link; NaN if it is unknown."""
    return value if value >= 0 else NAN
