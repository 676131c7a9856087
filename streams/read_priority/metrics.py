"""Metrics of the read priority of brokers."""

from trueup.state.read_priority.copies import CopyState
from trueup.state.read_priority.lifecycle import ChangeStage, Purpose
from trueup.state.read_priority.rules import READ_RULES
from trueup.state.read_priority.tiers import Tier
from trueup.streams.read_priority.signs import ReadPriorityFields
from trueup.streams.rows import Row
from trueup.streams.runtime.metrics import Metrics, StreamMetrics


class ReadPriorityMetrics(StreamMetrics):
    """The metrics of the read priority stream."""

    def __init__(self, metrics: Metrics) -> None:
        self.findings = metrics.gauge("read_priority_findings", "findings about namespaces and topics, by rule", "rule")
        self.copies = metrics.gauge(
            "read_priority_ledgers",
            "closed ledgers of managed topics, by tier and state of the copy there",
            "tier",
            "state",
        )
        self.switched = metrics.gauge(
            "read_priority_switched_topics", "topics whose priority is switched to the other tier"
        )
        self.due = metrics.gauge("read_priority_due_changes", "changes of policies and unloads that are due")
        self.changes = metrics.counter(
            "read_priority_changes_total",
            "transitions of changes, by purpose and the stage reached",
            "purpose",
            "stage",
        )
        for purpose in Purpose:
            for stage in (ChangeStage.ORDERED, ChangeStage.DONE, ChangeStage.REFUSED):
                self.changes.at(purpose, stage)

    def step(self, purpose: str, stage: str) -> None:
        """Count a transition of a change."""
        self.changes.at(purpose, stage).inc()

    def status(self, status: Row) -> None:
        """Set all gauges, if the stream runs."""
        if (priorities := ReadPriorityFields.of(status).read_priority) is None:
            return
        for rule in READ_RULES:
            self.findings.at(rule.id).set(priorities.rules.get(rule.id, 0))
        for tier in Tier:
            for state in CopyState:
                self.copies.at(tier, state).set(priorities.copies.get(f"{tier}:{state}", 0))
        self.switched.at().set(priorities.switched)
        self.due.at().set(priorities.due)
