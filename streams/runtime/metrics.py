"""The metrics of the application and its streams, in one registry; `reference` prints all of them.

Gauges are set from the status of the application at each scrape; counters are incremented when events occur. Each
series has the label of the cluster; other labels have values from fixed tables, except for those of log directories.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics import MetricWrapperBase

from trueup.streams.progress import Offsets, QueryProgress
from trueup.streams.rows import Row

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
REFUSALS = ("missing", "invalid", "role")
SOURCE_STATES = ("up", "slow", "down")
NAN = float("nan")
SAFE_BUCKETS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_800, 3_600, 14_400, 86_400)
BATCH_BUCKETS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)


class StreamMetrics:
    """The metrics of one stream. Its constructor registers its families with the `Metrics`."""

    noun = ""
    """The noun of /api whose rows `rows` receives; empty if none."""

    def status(self, status: Row) -> None:
        """Set its gauges from the status of the application (`streams.web.engine.Engine.status`)."""

    def rows(self, rows: Iterable[Row]) -> None:
        """Set its gauges from the rows of its noun."""


Made = TypeVar("Made", bound=StreamMetrics)


class Metrics:
    """The metrics of one application. Safe to use from several threads."""

    def __init__(self, registry: CollectorRegistry | None = None, cluster: str = "bookkeeper") -> None:
        self.registry, self._cluster = registry or CollectorRegistry(), cluster
        self.families: list[Family] = []
        self._parts: dict[Callable[[Metrics], StreamMetrics], StreamMetrics] = {}
        self._sources: set[str] = set()
        ProcessCollector(registry=self.registry)
        self._levels()
        self._streams()

    def of(self, kind: Callable[["Metrics"], Made]) -> Made:
        """The part of this kind, created on first use."""
        if kind not in self._parts:
            self._parts[kind] = kind(self)
        return self._parts[kind]  # type: ignore[return-value]

    def _levels(self) -> None:
        self.info = self.gauge("info", "always 1; the label is the version", "version")
        self.ready = self.gauge("ready", "1 while findings are reliable: /readyz returns 200")
        self.age = self.gauge(
            "observation_age_seconds",
            "time since the last observation from this source; since the start without one",
            "source",
        )
        self.source = self.gauge("source_state", "1 for the current state of a source", "source", "state")
        self.problems = self.gauge("problems", "problems listed on the status page")
        self.unreadable = self.gauge("journal_unreadable_records", "records of the journal that are skipped")
        self.leader = self.gauge("leader", "1 while this instance may act: it leads, or there is no section ha")
        self.epoch = self.gauge("epoch", "epoch of the leader, 0 without section ha")
        self.refused = self.counter(
            "requests_refused_total",
            "requests refused for a missing or invalid token, or for the role of the caller",
            "reason",
        )
        for reason in REFUSALS:
            self.refused.at(reason)

    def _streams(self) -> None:
        self.running = self.gauge("stream_running", "1 while a query or loop runs", "stream")
        self.behind = self.gauge("behind_records", "journal records that a query has not processed yet", "query")
        self.state_rows = self.gauge("state_rows", "rows in a query's state stores", "query")
        self.state_bytes = self.gauge("state_memory_bytes", "memory used by a query's state stores", "query")
        self.batch = self.histogram("batch_duration_seconds", "duration of a micro-batch", BATCH_BUCKETS, "query")
        self.rows = self.counter("batch_rows_total", "records processed from the journal", "query")
        self.restarts = self.counter("restarts_total", "restarts of a query or loop by the supervisor", "stream")

    def gauge(self, name: str, doc: str, *labels: str) -> "Family":
        """A gauge trueup_NAME with these labels in addition to the cluster."""
        return self._family(Gauge, name, doc, labels)

    def counter(self, name: str, doc: str, *labels: str) -> "Family":
        """A counter trueup_NAME with these labels in addition to the cluster."""
        return self._family(Counter, name, doc, labels)

    def histogram(self, name: str, doc: str, buckets: Sequence[float], *labels: str) -> "Family":
        """A histogram trueup_NAME with these labels in addition to the cluster."""
        return self._family(Histogram, name, doc, labels, buckets=buckets)

    def _family(self, kind: Any, name: str, doc: str, labels: tuple[str, ...], **options: Any) -> "Family":
        full = f"trueup_{name}"
        metric = kind(full, doc, ("cluster", *labels), registry=self.registry, **options)
        family = Family(full, kind.__name__.lower(), labels, doc, metric, self._cluster)
        self.families.append(family)
        if not labels:
            family.at()
        return family

    def supervised(self, stream: str) -> None:
        """Create the counter of a query or loop with value zero: `increase` ignores the first event of a counter that
        appears with it."""
        self.restarts.at(stream)

    def restarted(self, stream: str) -> None:
        """Count one restart of a query or loop."""
        self.restarts.at(stream).inc()

    def on_progress(self, progress: QueryProgress) -> None:
        """Process a progress report of Spark (StreamingQueryProgress as JSON)."""
        query = str(progress.get("name") or "unnamed")
        rows = int(progress.get("numInputRows") or 0)
        if rows:
            took_ms = progress.get("batchDuration") or (progress.get("durationMs") or {}).get("triggerExecution") or 0
            self.batch.at(query).observe(took_ms / 1000)
            self.rows.at(query).inc(rows)
        self.behind.at(query).set(behind(progress))
        operators = progress.get("stateOperators") or []
        self.state_rows.at(query).set(sum(int(o.get("numRowsTotal") or 0) for o in operators))
        self.state_bytes.at(query).set(sum(int(o.get("memoryUsedBytes") or 0) for o in operators))

    def status(self, status: Row, rows: Callable[[str], Iterable[Row]] = lambda _: ()) -> None:
        """Set every gauge from the application's status (`streams.web.engine.Engine.status`) and from ``rows``, which
        returns the rows of a noun."""
        self.info.at(str(status["version"])).set(1)
        self.ready.at().set(bool(status["ready"]))
        self.problems.at().set(len(status["problems"]))
        ha = status.get("ha") or {"role": "leader", "epoch": 0}
        self.leader.at().set(ha["role"] != "standby")
        self.epoch.at().set(ha["epoch"])
        self._observed(status["sources"], status["now_ms"] - status["started_ms"])
        for stream in status["streams"]:
            self.running.at(stream["name"]).set(stream["state"] == "running")
        for part in list(self._parts.values()):
            part.status(status)
            if part.noun:
                part.rows(rows(part.noun))

    def _observed(self, sources: Iterable[Row], up_ms: int) -> None:
        """Set the gauges of sources, and remove those of sources that are not listed any more: they would keep their
        last state. ``up_ms``: the age of a source without observations, so that it can be alerted on."""
        for source in sources:
            self.age.at(source["name"]).set((up_ms if source["age_ms"] is None else source["age_ms"]) / 1000)
            self.source.one_of(SOURCE_STATES, source["state"], source["name"])
        gone, self._sources = self._sources - (listed := {source["name"] for source in sources}), listed
        for name in gone:
            self.age.remove(name)
            for state in SOURCE_STATES:
                self.source.remove(name, state)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format 0.0.4 (`CONTENT_TYPE`)."""
        return generate_latest(self.registry)


@dataclass(frozen=True, slots=True)
class Family:
    """One metric."""

    name: str
    kind: str
    labels: tuple[str, ...]
    """The names of the labels other than the label of the cluster, which `at` sets."""
    doc: str
    metric: MetricWrapperBase
    cluster: str

    def at(self, *labels: str) -> Any:
        """The series with these label values: a Gauge, Counter or Histogram of prometheus-client."""
        return self.metric.labels(self.cluster, *labels)

    def remove(self, *labels: str) -> None:
        """Remove the series with these label values, if there is one."""
        self.metric.remove(self.cluster, *labels)

    def one_of(self, values: Iterable[str], current: str, *labels: str) -> None:
        """Set the series of the chosen last label to 1 and those of all others to 0."""
        for value in values:
            self.at(*labels, value).set(value == current)


def behind(progress: QueryProgress) -> int:
    """Records after the end of the batch: latest minus end offset, over all partitions."""
    return sum(
        max(0, int(latest) - int(ends.get(topic, {}).get(partition, latest)))
        for source in progress.get("sources") or []
        if isinstance(ends := source.get("endOffset"), Mapping)
        for topic, partitions in _mapping(source.get("latestOffset")).items()
        for partition, latest in partitions.items()
    )


def _mapping(offsets: Offsets | None) -> Offsets:
    return offsets if isinstance(offsets, Mapping) else {}


def reference(metrics: Metrics) -> str:
    """The text of docs/metrics.md, for an application with all streams."""
    rows = [
        f"| `{family.name}` | {family.kind} | {', '.join(family.labels)} | {family.doc} |"
        for family in sorted(metrics.families, key=lambda family: family.name)
    ]
    return _HEAD + "\n".join(rows) + _FOOT


_HEAD = """# Metrics

Generated from `streams/*/metrics.py` by `python -m trueup.streams.docs`; a test compares.

`GET /metrics` returns the Prometheus text format. Every series has the label `cluster` (`cluster.name` of the
configuration). Label values come from fixed tables; ledgers and bookies are never labels. The exception are log
directories, which have one series each: `kafka`, `broker` and `directory`. Histograms have the usual suffixes
`_bucket`, `_sum` and `_count`.

| metric | type | further labels | meaning |
|---|---|---|---|
"""

_FOOT = """

In addition, `process_cpu_seconds_total`, `process_resident_memory_bytes`, `process_open_fds` and similar metrics
describe the Python process of the application. Spark's own metrics are on the Spark UI, to which the status page
links.

Boards: `conf/grafana/`. Alerts: `conf/prometheus/alerts.yml`, with runbooks in [operations.md](operations.md).
"""
