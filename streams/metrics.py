"""Every metric there is, on a registry of its own; `reference` prints them as docs/metrics.md.

Levels come from the status of the application when somebody scrapes; events are counted where they happen. Each
series carries the cluster's name; the other labels take values from fixed tables only.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics import MetricWrapperBase

from state.repairs import Stage
from state.rules import RULES, Verdict
from state.settings import MODES

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
SOURCE_STATES = ("up", "slow", "down")
SESSION_STATES = ("connected", "suspended")
ACTIONS = {
    "mark": ("written", "already", "refused", "gone", "unknown", "retry", "failed"),
    "withdraw": ("withdrawn", "gone", "refused", "unknown", "retry"),
}
SAFE_BUCKETS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_800, 3_600, 14_400, 86_400)
BATCH_BUCKETS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)


class Metrics:
    """The metrics of one application. Safe to use from several threads."""

    def __init__(self, registry: CollectorRegistry | None = None, cluster: str = "bookkeeper") -> None:
        self.registry, self._cluster = registry or CollectorRegistry(), cluster
        self.families: list[Family] = []
        self._unreadable = 0
        ProcessCollector(registry=self.registry)
        self._levels()
        self._streams()
        self._events()
        self._zeros()

    def _levels(self) -> None:
        self.info = self._gauge("info", "always 1; the label says what runs", "version")
        self.ready = self._gauge("ready", "1 when findings can be relied upon: /readyz answers 200")
        self.ledgers = self._gauge("ledgers", "ledgers by verdict", "verdict")
        self.found = self._gauge("findings", "ledgers that are not true, by verdict and rule", "verdict", "rule")
        self.unknown = self._gauge(
            "unknown_ledgers", "ledgers nothing can be said about, by reason: a rule, or stale observations", "reason"
        )
        self.oldest = self._gauge("oldest_drift_seconds", "how long the oldest drifted ledger has been so; 0: none is")
        self.age = self._gauge("observation_age_seconds", "since this source was last heard", "source")
        self.source = self._gauge("source_state", "1 for the state that a source is in", "source", "state")
        self.sessions = self._gauge(
            "zookeeper_sessions", "our ZooKeeper sessions by state; those that ended are not counted", "state"
        )
        self.marks = self._gauge("marks_outstanding", "under-replication marks, by who wrote them", "owner")
        self.cap = self._gauge("marks_cap", "placement.max_marks: no more marks are written beyond it")
        self.mode = self._gauge("mode", "1 for the mode of the placement stream", "mode")
        self.paused = self._gauge("paused", "1 while placement.paused holds")
        self.held = self._gauge("held", "1 while a mass loss is held for an operator")
        self.problems = self._gauge("problems", "things that the status page names as wrong")

    def _streams(self) -> None:
        self.running = self._gauge("stream_running", "1 while a query or loop runs", "stream")
        self.behind = self._gauge("behind_records", "journal records that a query has not taken yet", "query")
        self.state_rows = self._gauge("state_rows", "rows in a query's state stores", "query")
        self.state_bytes = self._gauge("state_memory_bytes", "memory of a query's state stores", "query")
        self.batch = self._histogram("batch_duration_seconds", "time of a micro-batch", BATCH_BUCKETS, "query")
        self.rows = self._counter("batch_rows_total", "records taken from the journal", "query")
        self.restarts = self._counter("restarts_total", "times the supervisor started a query or loop anew", "stream")

    def _events(self) -> None:
        self.actions = self._counter(
            "actions_total", "changes tried on the cluster, by kind and what became of them", "kind", "outcome"
        )
        self.repairs = self._counter("repair_steps_total", "steps of repairs, by the stage reached", "stage")
        self.safe = self._histogram("time_to_safe_seconds", "from not true to true, for each ledger", SAFE_BUCKETS)
        self.reconnects = self._counter("zookeeper_reconnects_total", "times a ZooKeeper session connected again")

    def _zeros(self) -> None:
        """Series that alerts count from: one that appears with its first event hides that event from `increase`."""
        for state in SESSION_STATES:
            self.sessions.at(state)
        for stage in Stage:
            self.repairs.at(stage)
        for kind, outcomes in ACTIONS.items():
            for outcome in outcomes:
                self.actions.at(kind, outcome)
        self.findings({})

    def _gauge(self, name: str, doc: str, *labels: str) -> "Family":
        return self._family(Gauge, name, doc, labels)

    def _counter(self, name: str, doc: str, *labels: str) -> "Family":
        return self._family(Counter, name, doc, labels)

    def _histogram(self, name: str, doc: str, buckets: Sequence[float], *labels: str) -> "Family":
        return self._family(Histogram, name, doc, labels, buckets=buckets)

    def _family(self, kind: Any, name: str, doc: str, labels: tuple[str, ...], **options: Any) -> "Family":
        full = f"trueup_{name}"
        metric = kind(full, doc, ("cluster", *labels), registry=self.registry, **options)
        family = Family(full, kind.__name__.lower(), labels, doc, metric, self._cluster)
        self.families.append(family)
        if not labels:
            family.at()
        return family

    def action(self, kind: str, outcome: str) -> None:
        """Count one change that was tried."""
        self.actions.at(kind, outcome).inc()

    def repair(self, stage: str) -> None:
        """Count one step of a repair."""
        self.repairs.at(str(stage)).inc()

    def healed(self, seconds: float) -> None:
        """Note how long one ledger took to become true again."""
        self.safe.at().observe(max(0.0, seconds))

    def restarted(self, stream: str) -> None:
        """Count one restart of a query or loop."""
        self.restarts.at(stream).inc()

    def zookeeper_session(self) -> Callable[[str], None]:
        """A listener for one more session. It takes new states as kazoo calls them: CONNECTED, SUSPENDED, LOST."""
        states = [""]

        def heard(state: str) -> None:
            before, states[0] = states[0], state.lower()
            if states[0] == "connected" and before:
                self.reconnects.at().inc()
            for known in SESSION_STATES:
                self.sessions.at(known).inc((states[0] == known) - (before == known))

        return heard

    def on_progress(self, progress: Mapping[str, Any]) -> None:
        """Take one of Spark's progress reports (StreamingQueryProgress as JSON)."""
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

    def findings(self, by_rule: Mapping[str, int]) -> None:
        """Set how many ledgers each rule names now; rules that are left out name none."""
        for rule in RULES:
            if rule.verdict is not Verdict.TRUE:
                self.found.at(rule.verdict.name.lower(), rule.id).set(by_rule.get(rule.id, 0))
        blind = {rule.id: by_rule.get(rule.id, 0) for rule in RULES if rule.verdict is Verdict.UNKNOWN}
        for rule_id, count in blind.items():
            self.unknown.at(rule_id).set(count)
        self._unreadable = sum(blind.values())

    def status(self, status: Mapping[str, Any]) -> None:
        """Set every level from the application's status, as `streams.web.engine.Engine.status` gives it."""
        self.info.at(str(status["version"])).set(1)
        self.ready.at().set(bool(status["ready"]))
        self.mode.one_of(MODES, status["mode"])
        self.paused.at().set(bool(status["paused"]))
        self.held.at().set(bool(status["held"]))
        self.problems.at().set(len(status["problems"]))
        for verdict, count in status["counts"].items():
            self.ledgers.at(verdict).set(count)
        self.unknown.at("stale").set(max(0, status["counts"]["unknown"] - self._unreadable))
        self.oldest.at().set((status["oldest_drift_ms"] or 0) / 1000)
        marks = status["marks"]
        self.marks.at("ours").set(marks["ours"])
        self.marks.at("others").set(max(0, marks["outstanding"] - marks["ours"]))
        self.cap.at().set(marks["cap"])
        for source in status["sources"]:
            self.age.at(source["name"]).set(source["age_ms"] / 1000)
            self.source.one_of(SOURCE_STATES, source["state"], source["name"])
        for stream in status["streams"]:
            self.running.at(stream["name"]).set(stream["state"] == "running")

    def text(self) -> bytes:
        """All metrics in Prometheus' text format 0.0.4 (`CONTENT_TYPE`)."""
        return generate_latest(self.registry)


@dataclass(frozen=True, slots=True)
class Family:
    """One metric. ``labels`` are those beside the cluster's, which `at` fills in."""

    name: str
    kind: str
    labels: tuple[str, ...]
    doc: str
    metric: MetricWrapperBase
    cluster: str

    def at(self, *labels: str) -> Any:
        """The series with these label values: a Gauge, Counter or Histogram of prometheus-client."""
        return self.metric.labels(self.cluster, *labels)

    def one_of(self, values: Iterable[str], chosen: str, *labels: str) -> None:
        """Set the series of the chosen last label to 1 and those of all others to 0."""
        for value in values:
            self.at(*labels, value).set(value == chosen)


def behind(progress: Mapping[str, Any]) -> int:
    """Records that Kafka held and the batch did not reach: latest minus end offset, over all partitions."""
    return sum(
        max(0, int(latest) - int(ends.get(topic, {}).get(partition, latest)))
        for source in progress.get("sources") or []
        if isinstance(ends := source.get("endOffset"), Mapping)
        for topic, partitions in _mapping(source.get("latestOffset")).items()
        for partition, latest in partitions.items()
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def reference() -> str:
    """docs/metrics.md."""
    rows = [
        f"| `{family.name}` | {family.kind} | {', '.join(family.labels)} | {family.doc} |"
        for family in sorted(Metrics().families, key=lambda family: family.name)
    ]
    return _HEAD + "\n".join(rows) + _FOOT


_HEAD = """# Metrics

Generated from `streams/metrics.py` by `python -m streams.docs`; a test compares.

`GET /metrics` answers in Prometheus' text format. Every series has the label `cluster` (`cluster.name` of the
configuration). All labels take their values from fixed tables: no ledger, bookie or path is ever a label.
Histograms have the usual `_bucket`, `_sum` and `_count`.

| metric | type | further labels | meaning |
|---|---|---|---|
"""

_FOOT = """

Beside these, `process_cpu_seconds_total`, `process_resident_memory_bytes`, `process_open_fds` and their kin are those
of the application's Python process. Spark's own figures are on the Spark UI, which the status page links to.

Boards: `conf/grafana/`. Alerts: `conf/prometheus/alerts.yml`, with runbooks in [operations.md](operations.md).
"""
