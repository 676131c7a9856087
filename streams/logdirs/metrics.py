"""Metrics of log directories."""

from collections.abc import Iterable

from trueup.state.logdirs import lifecycle
from trueup.state.logdirs.rules import LOGDIR_RULES
from trueup.streams.logdirs.signs import LogDirFields
from trueup.streams.rows import Row
from trueup.streams.runtime.metrics import NAN, Metrics, StreamMetrics


class LogDirMetrics(StreamMetrics):
    """The metrics of the log directories' stream."""

    noun = "directories"

    def __init__(self, metrics: Metrics) -> None:
        where = ("kafka", "broker", "directory")
        self.dir_total = metrics.gauge(
            "logdir_total_bytes", "size of a log directory's volume; NaN: not reported", *where
        )
        self.dir_usable = metrics.gauge(
            "logdir_usable_bytes", "usable bytes of a log directory's volume; NaN: not reported", *where
        )
        self.dir_used = metrics.gauge(
            "logdir_used_bytes", "used bytes of a log directory's volume; NaN: not reported", *where
        )
        self.dir_replicas = metrics.gauge("logdir_replica_bytes", "bytes of the replicas in a log directory", *where)
        self.dir_partitions = metrics.gauge("logdir_partitions", "replicas in a log directory", *where)
        self.dir_online = metrics.gauge("logdir_online", "1 while a log directory is online", *where)
        self.dir_cordoned = metrics.gauge("logdir_cordoned", "1 while a log directory is cordoned", *where)
        self.broker_skew = metrics.gauge(
            "logdir_skew_ratio",
            "difference between a broker's fullest and emptiest volume with all moves complete",
            "kafka",
            "broker",
        )
        self.logdir_brokers = metrics.gauge(
            "logdir_brokers", "brokers that violate a rule of log directories, by rule", "kafka", "rule"
        )
        self.logdir_planned = metrics.gauge("logdir_planned_bytes", "bytes that the plan moves", "kafka")
        self.logdir_moving = metrics.gauge(
            "logdir_moves_under_way", "moves in progress, of Trueup and of other clients", "kafka"
        )
        self.moves = metrics.counter(
            "logdir_moves_total", "transitions of moves, by the stage reached", "kafka", "stage"
        )
        self.moved = metrics.counter(
            "logdir_moved_bytes_total", "bytes of replicas that arrived at their target", "kafka"
        )

    def declare(self, clusters: Iterable[str]) -> "LogDirMetrics":
        """Create the counters of these clusters with value zero."""
        for kafka in clusters:
            self.moved.at(kafka)
            for step in lifecycle.MoveStage:
                self.moves.at(kafka, step)
        return self

    def move(self, kafka: str, stage: str, count: int) -> None:
        """Count a transition of a move of ``count`` bytes."""
        self.moves.at(kafka, stage).inc()
        if stage == lifecycle.MoveStage.ARRIVED:
            self.moved.at(kafka).inc(count)

    def status(self, status: Row) -> None:
        """Set the gauges of clusters."""
        for cluster in LogDirFields.of(status).logdirs:
            for rule in LOGDIR_RULES:
                self.logdir_brokers.at(cluster.kafka, rule.id).set(cluster.rules.get(rule.id, 0))
            self.logdir_planned.at(cluster.kafka).set(cluster.planned_bytes)
            self.logdir_moving.at(cluster.kafka).set(cluster.moving)

    def rows(self, rows: Iterable[Row]) -> None:
        """Set the gauges of all log directories and remove those of directories that are gone."""
        levels = {
            self.dir_total: "total",
            self.dir_usable: "usable",
            self.dir_used: "used",
            self.dir_replicas: "bytes",
            self.dir_partitions: "partitions",
            self.dir_online: "online",
            self.dir_cordoned: "cordoned",
        }
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
