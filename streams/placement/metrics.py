"""Metrics of ledgers, marks, bookies and repairs."""

from collections.abc import Mapping

import numpy as np

from trueup.state.common.options import MODES
from trueup.state.common.rules import Verdict
from trueup.state.placement.lifecycle import RepairStage
from trueup.state.placement.policy.fragments import COPIED
from trueup.state.placement.rules import RULES
from trueup.streams.placement.signs import PlacementFields
from trueup.streams.rows import Row
from trueup.streams.runtime.metrics import SAFE_BUCKETS, Metrics, StreamMetrics

ACTIONS = {
    "mark": ("written", "already", "refused", "gone", "unknown", "retry", "failed"),
    "copy": ("copied", "refused", "retry", "unknown", "failed"),
    "withdraw": ("withdrawn", "gone", "refused", "unknown", "retry", "failed"),
}
_FOUND = [
    *((rule.id, rule.verdict) for rule in RULES if rule.verdict is not Verdict.TRUE),
    *((RULES[code].id, Verdict.DRIFTED) for code in np.flatnonzero(COPIED).tolist()),
]
"""The rules of findings, with the verdicts that they can have."""


class PlacementMetrics(StreamMetrics):
    """The metrics of the placement stream."""

    def __init__(self, metrics: Metrics) -> None:
        self._unreadable = 0
        self.ledgers = metrics.gauge("ledgers", "ledgers by verdict", "verdict")
        self.found = metrics.gauge(
            "findings", "ledgers with a verdict other than true, by verdict and rule", "verdict", "rule"
        )
        self.unknown = metrics.gauge(
            "unknown_ledgers", "ledgers with verdict unknown, by reason: a rule, or stale observations", "reason"
        )
        self.not_judged = metrics.gauge("not_judged_ledgers", "ledgers whose current version is not judged yet")
        self.without_copies = metrics.gauge(
            "ledgers_without_copies", "drifted and blocked ledgers without a live replica of some entries"
        )
        self.unbound = metrics.gauge("auditor_unbound", "1 while hold and approve do not bind BookKeeper's Auditor")
        self.oldest = metrics.gauge("oldest_drift_seconds", "age of the oldest drift; 0: no ledger is drifted")
        self.marks = metrics.gauge(
            "marks_outstanding", "under-replication marks by owner: Trueup or other processes", "owner"
        )
        self.marks_idle = metrics.gauge(
            "marks_idle_seconds", "time for which no worker took any of the marks; 0: no marks, or active workers"
        )
        self.bookies = metrics.gauge("bookies", "bookies by status", "status")
        self.cap = metrics.gauge("marks_cap", "maximum number of outstanding marks (placement.max_marks)")
        self.mode = metrics.gauge("mode", "1 for the current mode of the placement stream", "mode")
        self.paused = metrics.gauge("paused", "1 while placement.paused is set")
        self.held = metrics.gauge("held", "1 while repairs of a mass loss are held for an operator")
        self.actions = metrics.counter(
            "actions_total", "attempted changes of the cluster, by kind and outcome", "kind", "outcome"
        )
        self.repairs = metrics.counter("repair_steps_total", "transitions of repairs, by the stage reached", "stage")
        self.damages = metrics.gauge(
            "damaged_replicas",
            "replicas that readers reported as damaged: reported, or confirmed by a read of Trueup",
            "state",
        )
        self.damage_reports = metrics.counter(
            "replica_reports_total", "replicas that readers reported as damaged, and what became of them", "outcome"
        )
        self.safe = metrics.histogram(
            "time_to_safe_seconds", "time from another verdict to true, per ledger", SAFE_BUCKETS
        )
        for stage in RepairStage:
            self.repairs.at(stage)
        for kind, outcomes in ACTIONS.items():
            for outcome in outcomes:
                self.actions.at(kind, outcome)
        for outcome in ("reported", "confirmed", "refuted", "repaired", "dropped"):
            self.damage_reports.at(outcome)
        self.findings({})

    def action(self, kind: str, outcome: str, count: int = 1) -> None:
        """Count attempted changes."""
        self.actions.at(kind, outcome).inc(count)

    def damage(self, outcome: str, count: int = 1) -> None:
        """Count reported replicas."""
        self.damage_reports.at(outcome).inc(count)

    def repair(self, stage: str, count: int = 1) -> None:
        """Count transitions of repairs."""
        self.repairs.at(str(stage)).inc(count)

    def healed(self, seconds: float) -> None:
        """Record the time until one ledger became true again."""
        self.safe.at().observe(max(0.0, seconds))

    def findings(self, counts: Mapping[tuple[str, Verdict], int]) -> None:
        """Set the number of ledgers by rule and verdict; 0 for those that are not listed."""
        for rule, verdict in _FOUND:
            self.found.at(verdict.name.lower(), rule).set(counts.get((rule, verdict), 0))
        blind = {rule: counts.get((rule, verdict), 0) for rule, verdict in _FOUND if verdict is Verdict.UNKNOWN}
        for rule_id, count in blind.items():
            self.unknown.at(rule_id).set(count)
        self._unreadable = sum(blind.values())

    def status(self, status: Row) -> None:
        """Set all gauges."""
        fields = PlacementFields.of(status)
        self.mode.one_of(MODES, fields.mode)
        self.paused.at().set(fields.paused)
        self.held.at().set(bool(fields.held))
        for verdict, count in fields.counts.items():
            self.ledgers.at(verdict).set(count)
        self.not_judged.at().set(fields.not_judged)
        self.without_copies.at().set(fields.without_copies)
        self.unbound.at().set(bool(fields.unbound))
        self.unknown.at("stale").set(max(0, fields.counts["unknown"] - fields.not_judged - self._unreadable))
        self.oldest.at().set((fields.oldest_drift_ms or 0) / 1000)
        marks = fields.marks
        self.marks.at("ours").set(marks.ours)
        self.marks.at("others").set(max(0, marks.outstanding - marks.ours))
        self.cap.at().set(marks.cap)
        self.marks_idle.at().set(marks.idle_ms / 1000)
        for state, count in fields.damages.items():
            self.damages.at(state).set(count)
        for name, bookies in fields.bookies.items():
            self.bookies.at(name).set(len(bookies))
