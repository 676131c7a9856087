"""Every metric there is, on a registry of its own; `reference` prints them as docs/metrics.md.

Levels come from the status of the application when somebody scrapes; events are counted where they happen. Each
series carries the cluster's name; the other labels take values from fixed tables only, but for those of directories.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics import MetricWrapperBase

from trueup.connectors.contract import Progress
from trueup.state.common.options import MODES
from trueup.state.common.rules import Verdict
from trueup.state.deletion import lifecycle as deletion_lifecycle
from trueup.state.logdirs import lifecycle
from trueup.state.logdirs.rules import LOGDIR_RULES
from trueup.state.placement.lifecycle import Stage
from trueup.state.placement.rules import RULES
from trueup.state.replication.status import LinkState

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
SOURCE_STATES = ("up", "slow", "down")
SESSION_STATES = ("connected", "suspended")
ACTIONS = {
    "mark": ("written", "already", "refused", "gone", "unknown", "retry", "failed"),
    "withdraw": ("withdrawn", "gone", "refused", "unknown", "retry", "failed"),
}
NAN = float("nan")
OUTCOMES = ("copied", "dropped", "skipped", "dismissed", "filtered", "lost", "repeated")
SAFE_BUCKETS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_800, 3_600, 14_400, 86_400)
BATCH_BUCKETS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)


class Metrics:
    """The metrics of one application. Safe to use from several threads."""

    def __init__(
        self, registry: CollectorRegistry | None = None, cluster: str = "bookkeeper", links: Iterable[str] = (),
        logdirs: Iterable[str] = (),
    ) -> None:  # fmt: skip
        self.registry, self._cluster, self._names = registry or CollectorRegistry(), cluster, tuple(links)
        self._kafkas = tuple(logdirs)
        self.families: list[Family] = []
        self._unreadable = 0
        ProcessCollector(registry=self.registry)
        self._levels()
        self._streams()
        self._events()
        self._links()
        self._deletion()
        self._logdirs()
        self._zeros()

    def _levels(self) -> None:
        self.info = self._gauge("info", "always 1; the label is the version", "version")
        self.ready = self._gauge("ready", "1 while findings are reliable: /readyz returns 200")
        self.ledgers = self._gauge("ledgers", "ledgers by verdict", "verdict")
        self.found = self._gauge(
            "findings", "ledgers with a verdict other than true, by verdict and rule", "verdict", "rule"
        )
        self.unknown = self._gauge(
            "unknown_ledgers", "ledgers with verdict unknown, by reason: a rule, or stale observations", "reason"
        )
        self.not_judged = self._gauge("not_judged_ledgers", "ledgers whose current version is not judged yet")
        self.unbound = self._gauge("auditor_unbound", "1 while hold and approve do not bind BookKeeper's Auditor")
        self.oldest = self._gauge("oldest_drift_seconds", "age of the oldest drift; 0: no ledger is drifted")
        self.age = self._gauge("observation_age_seconds", "time since the last observation from this source", "source")
        self.source = self._gauge("source_state", "1 for the current state of a source", "source", "state")
        self.sessions = self._gauge(
            "zookeeper_sessions", "Trueup's ZooKeeper sessions by state, without expired sessions", "state"
        )
        self.marks = self._gauge(
            "marks_outstanding", "under-replication marks by owner: Trueup or other processes", "owner"
        )
        self.marks_idle = self._gauge(
            "marks_idle_seconds",
            "time for which no worker took any of the marks; 0: no marks, or active workers",
        )
        self.bookies = self._gauge("bookies", "bookies by status", "status")
        self.cap = self._gauge("marks_cap", "maximum number of outstanding marks (placement.max_marks)")
        self.mode = self._gauge("mode", "1 for the current mode of the placement stream", "mode")
        self.paused = self._gauge("paused", "1 while placement.paused is set")
        self.held = self._gauge("held", "1 while repairs of a mass loss are held for an operator")
        self.problems = self._gauge("problems", "problems listed on the status page")

    def _streams(self) -> None:
        self.running = self._gauge("stream_running", "1 while a query or loop runs", "stream")
        self.behind = self._gauge("behind_records", "journal records that a query has not processed yet", "query")
        self.state_rows = self._gauge("state_rows", "rows in a query's state stores", "query")
        self.state_bytes = self._gauge("state_memory_bytes", "memory used by a query's state stores", "query")
        self.batch = self._histogram("batch_duration_seconds", "duration of a micro-batch", BATCH_BUCKETS, "query")
        self.rows = self._counter("batch_rows_total", "records processed from the journal", "query")
        self.restarts = self._counter("restarts_total", "restarts of a query or loop by the supervisor", "stream")

    def _events(self) -> None:
        self.actions = self._counter(
            "actions_total", "attempted changes of the cluster, by kind and outcome", "kind", "outcome"
        )
        self.repairs = self._counter("repair_steps_total", "transitions of repairs, by the stage reached", "stage")
        self.safe = self._histogram(
            "time_to_safe_seconds", "time from another verdict to true, per ledger", SAFE_BUCKETS
        )
        self.reconnects = self._counter("zookeeper_reconnects_total", "reconnects of ZooKeeper sessions")

    def _links(self) -> None:
        self.link_state = self._gauge("link_state", "1 for the current state of a link", "link", "state")
        self.link_lag = self._gauge("link_lag_records", "source offsets that a link has not copied yet", "link")
        self.link_age = self._gauge(
            "link_lag_seconds",
            "age of the oldest record that a link has not copied yet; 0: none, NaN: unknown",
            "link",
        )
        self.link_partitions = self._gauge("link_partitions", "source partitions that a link copies", "link")
        self.link_stopped = self._gauge(
            "link_stopped_partitions", "partitions of a link that require an operator", "link"
        )
        self.link_beat_age = self._gauge(
            "link_heartbeat_age_seconds",
            "age of the newest heartbeat that arrived at the target; NaN: none arrived",
            "link",
        )
        self.link_beat_lag = self._gauge("link_heartbeat_lag_seconds", "latency of a heartbeat", "link")
        self.link_groups = self._gauge("link_groups", "consumer groups whose offsets are translated", "link")
        self.link_group_lag = self._gauge(
            "link_group_lag_records",
            "maximum number of records that a group has read and the link has not copied",
            "link",
        )
        self.link_differences = self._gauge("link_differences", "pending changes that would align the target", "link")
        self.link_records = self._counter("link_records_total", "records of a link, by outcome", "link", "outcome")
        self.link_bytes = self._counter("link_bytes_total", "bytes written by a link", "link")
        self.link_foreign = self._counter(
            "link_foreign_records_total", "target offsets between a link's records that the link did not write", "link"
        )
        self.link_rounds = self._counter("link_rounds_total", "completed rounds of leases of a link", "link")

    def _deletion(self) -> None:
        where = ("namespace", "rule")
        self.forgotten = self._gauge("unreferenced_ledgers", "unreferenced ledgers", *where)
        self.forgotten_bytes = self._gauge(
            "unreferenced_bytes", "bytes of unreferenced ledgers, each replica counted once", *where
        )
        self.markers = self._gauge("markers", "deletions in progress, by stage", "stage")
        self.oldest_marker = self._gauge(
            "oldest_marker_seconds",
            "age of the oldest deletion in progress, since its ledger was found; 0: none",
        )
        self.deletions = self._counter(
            "deletion_steps_total", "transitions of deletions, by the stage reached", "stage"
        )
        self.deleted_bytes = self._counter("deleted_bytes_total", "bytes of ledgers with a confirmed deletion")
        self.confirmed = self._histogram(
            "time_to_confirmed_seconds",
            "time from the deletion of the metadata to the last bookie's confirmation",
            SAFE_BUCKETS,
        )

    def _logdirs(self) -> None:
        where = ("kafka", "broker", "directory")
        self.dir_total = self._gauge(
            "logdir_total_bytes", "size of a log directory's volume; NaN: not reported", *where
        )
        self.dir_usable = self._gauge(
            "logdir_usable_bytes", "usable bytes of a log directory's volume; NaN: not reported", *where
        )
        self.dir_used = self._gauge(
            "logdir_used_bytes", "used bytes of a log directory's volume; NaN: not reported", *where
        )
        self.dir_replicas = self._gauge("logdir_replica_bytes", "bytes of the replicas in a log directory", *where)
        self.dir_partitions = self._gauge("logdir_partitions", "replicas in a log directory", *where)
        self.dir_online = self._gauge("logdir_online", "1 while a log directory is online", *where)
        self.dir_cordoned = self._gauge("logdir_cordoned", "1 while a log directory is cordoned", *where)
        self.broker_skew = self._gauge(
            "logdir_skew_ratio",
            "difference between a broker's fullest and emptiest volume with all moves complete",
            "kafka",
            "broker",
        )
        self.logdir_brokers = self._gauge(
            "logdir_brokers", "brokers that violate a rule of log directories, by rule", "kafka", "rule"
        )
        self.logdir_planned = self._gauge("logdir_planned_bytes", "bytes that the plan moves", "kafka")
        self.logdir_moving = self._gauge(
            "logdir_moves_under_way", "moves in progress, of Trueup and of other clients", "kafka"
        )
        self.moves = self._counter("logdir_moves_total", "transitions of moves, by the stage reached", "kafka", "stage")
        self.moved = self._counter(
            "logdir_moved_bytes_total", "bytes of replicas that arrived at their target", "kafka"
        )

    def _zeros(self) -> None:
        """Series that alerts count from: one that appears with its first event hides that event from `increase`."""
        for state in SESSION_STATES:
            self.sessions.at(state)
        for stage in Stage:
            self.repairs.at(stage)
        for kind, outcomes in ACTIONS.items():
            for outcome in outcomes:
                self.actions.at(kind, outcome)
        for reached in deletion_lifecycle.Stage:
            self.deletions.at(reached)
        for link in self._names:
            for outcome in OUTCOMES:
                self.link_records.at(link, outcome)
            for counter in (self.link_bytes, self.link_foreign, self.link_rounds):
                counter.at(link)
        for kafka in self._kafkas:
            self.moved.at(kafka)
            for step in lifecycle.Stage:
                self.moves.at(kafka, step)
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

    def action(self, kind: str, outcome: str, count: int = 1) -> None:
        """Count changes that were tried."""
        self.actions.at(kind, outcome).inc(count)

    def repair(self, stage: str, count: int = 1) -> None:
        """Count steps of repairs."""
        self.repairs.at(str(stage)).inc(count)

    def healed(self, seconds: float) -> None:
        """Note how long one ledger took to become true again."""
        self.safe.at().observe(max(0.0, seconds))

    def deletion(self, stage: str, length: int, seconds: float) -> None:
        """Count one step of the deletion of a ledger of so many bytes; ``seconds``: since the step before."""
        self.deletions.at(str(stage)).inc()
        if stage == deletion_lifecycle.Stage.CONFIRMED:
            self.deleted_bytes.at().inc(length)
            self.confirmed.at().observe(max(0.0, seconds))

    def restarted(self, stream: str) -> None:
        """Count one restart of a query or loop."""
        self.restarts.at(stream).inc()

    def copied(self, link: str, progress: Progress) -> None:
        """Count what became of the records of one partition."""
        for outcome in OUTCOMES:
            self.link_records.at(link, outcome).inc(getattr(progress, outcome))
        self.link_bytes.at(link).inc(progress.bytes)
        self.link_foreign.at(link).inc(progress.foreign)

    def round(self, link: str) -> None:
        """Count one round of leases."""
        self.link_rounds.at(link).inc()

    def move(self, kafka: str, stage: str, count: int) -> None:
        """Count one step of a move of so many bytes."""
        self.moves.at(kafka, stage).inc()
        if stage == lifecycle.Stage.ARRIVED:
            self.moved.at(kafka).inc(count)

    def directories(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Set the levels of all log directories; those that are gone go."""
        levels = {
            self.dir_total: "total", self.dir_usable: "usable", self.dir_used: "used", self.dir_replicas: "bytes",
            self.dir_partitions: "partitions", self.dir_online: "online", self.dir_cordoned: "cordoned",
        }  # fmt: skip
        for family in (*levels, self.broker_skew):
            family.metric.clear()
        for row in rows:
            where = row["kafka"], str(row["broker"])
            for family, name in levels.items():
                value = row[name]
                family.at(*where, row["path"]).set(
                    NAN if value == -1 else len(value) > 0 if isinstance(value, str) else value
                )
            self.broker_skew.at(*where).set(row["skew"])

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
        self.not_judged.at().set(status["not_judged"])
        self.unbound.at().set(bool(status["unbound"]))
        self.unknown.at("stale").set(max(0, status["counts"]["unknown"] - status["not_judged"] - self._unreadable))
        self.oldest.at().set((status["oldest_drift_ms"] or 0) / 1000)
        marks = status["marks"]
        self.marks.at("ours").set(marks["ours"])
        self.marks.at("others").set(max(0, marks["outstanding"] - marks["ours"]))
        self.cap.at().set(marks["cap"])
        self.marks_idle.at().set(marks["idle_ms"] / 1000)
        for name, bookies in status["bookies"].items():
            self.bookies.at(name).set(len(bookies))
        for source in status["sources"]:
            self.age.at(source["name"]).set(source["age_ms"] / 1000)
            self.source.one_of(SOURCE_STATES, source["state"], source["name"])
        for link in status["links"]:
            self._link(link)
        for row in status["logdirs"]:
            for rule in LOGDIR_RULES:
                self.logdir_brokers.at(row["kafka"], rule.id).set(row["rules"].get(rule.id, 0))
            self.logdir_planned.at(row["kafka"]).set(row["planned_bytes"])
            self.logdir_moving.at(row["kafka"]).set(row["moving"])
        if status["deletion"] is not None:
            self._deletions(status["deletion"])
        for stream in status["streams"]:
            self.running.at(stream["name"]).set(stream["state"] == "running")

    def _deletions(self, found: Mapping[str, Any]) -> None:
        for family in (self.forgotten, self.forgotten_bytes):
            family.metric.clear()
        for row in found["forgotten"]:
            self.forgotten.at(row["namespace"], row["rule"]).set(row["ledgers"])
            self.forgotten_bytes.at(row["namespace"], row["rule"]).set(row["bytes"])
        for stage in deletion_lifecycle.Stage:
            if stage not in deletion_lifecycle.ENDS:
                self.markers.at(stage).set(found["markers"].get(stage, 0))
        self.oldest_marker.at().set((found["oldest_ms"] or 0) / 1000)

    def _link(self, row: Mapping[str, Any]) -> None:
        name = row["link"]
        self.link_lag.at(name).set(row["lag_records"])
        self.link_age.at(name).set(row["lag_ms"] / 1000 if row["lag_ms"] >= 0 else NAN)
        self.link_partitions.at(name).set(row["partitions"])
        self.link_stopped.at(name).set(row["stopped"])
        self.link_state.one_of(LinkState, row["state"], name)
        for gauge, key in ((self.link_beat_age, "heartbeat_age_ms"), (self.link_beat_lag, "heartbeat_lag_ms")):
            gauge.at(name).set(row[key] / 1000 if row[key] >= 0 else NAN)
        self.link_groups.at(name).set(row["groups"])
        self.link_group_lag.at(name).set(row["group_lag"])
        self.link_differences.at(name).set(row["differences"])

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

Generated from `streams/runtime/metrics.py` by `python -m trueup.streams.docs`; a test compares.

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
