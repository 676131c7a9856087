"""Rows of read priorities for the API: namespaces and topics, one topic in detail, and due changes."""

from collections import Counter
from collections.abc import Iterable

from trueup.state.deletion.owners import namespace_of
from trueup.state.read_priority.copies import CopyState, LedgerCopies
from trueup.state.read_priority.lifecycle import NOTHING, Change, ChangeStage, Purpose
from trueup.state.read_priority.policies import Contradiction, InForce, PolicyView
from trueup.state.read_priority.rules import READ_RULES
from trueup.state.read_priority.settings import Declared, ReadPrioritySettings
from trueup.state.read_priority.tiers import ReadPriority, opened_by_broker, order
from trueup.state.read_priority.verdicts import ReadFinding
from trueup.state.read_priority.view import PriorityObservation, TopicView
from trueup.streams.journal.history_row import HistoryRow
from trueup.streams.read_priority.reconciler import ReadPriorityReconciler
from trueup.streams.read_priority.signs import ReadPriorityStatus
from trueup.streams.rows import Row
from trueup.streams.runtime.approvals import APPROVAL
from trueup.streams.runtime.stream import AWAITING, Filter, Finding, PlanRow

POLICY, UNLOAD = "read priority", "unload"
"""Kinds of actions in the plan and the history."""
SHOWN = 20
"""Maximum number of actions in the description of a topic."""


def rows(reconciler: ReadPriorityReconciler) -> list[Row]:
    """Namespaces and topics with what is declared and in force."""
    seen = reconciler.seen
    if seen is None:
        return []
    findings = {finding.target: finding for finding in reversed(reconciler.decided.findings)}
    listed = [
        _row(reconciler, view.name, "namespace", view.declared, view.policy, seen.of_namespace(view.name), findings)
        for view in seen.namespaces.values()
        if view.declared is not None
    ]
    listed += [
        _row(reconciler, view.name, "topic", view.declared, view.policy, seen.of_topic(view), findings)
        | _tiers(view.ledgers)
        for view in seen.topics
        if view.declared is not None or reconciler.kept.get(view.name, NOTHING).switch
    ]
    return listed


def _row(
    reconciler: ReadPriorityReconciler,
    name: str,
    level: str,
    declared: Declared | None,
    policy: PolicyView | None,
    force: InForce | Contradiction,
    findings: dict[str, ReadFinding],
) -> Row:
    finding, kept = findings.get(name), reconciler.kept.get(name, NOTHING)
    in_force = force if isinstance(force, InForce) else None
    return {
        "name": name,
        "level": level,
        "declared": declared.priority if declared else "",
        "declared_at": declared.level if declared else "",
        "pattern": declared.pattern if declared else "",
        "in_force": in_force.priority if in_force else "unknown",
        "origin": in_force.origin if in_force else "",
        "masks": list(in_force.masked) if in_force else [],
        "own": (policy.priority or "") if policy else "unknown",
        "switched_ms": kept.switch.at_ms if kept.switch else None,
        "ledgers": 0,
        "offloaded": 0,
        "tiers": {},
        "rule": finding.rule if finding else "",
        "reason": finding.reason if finding else "",
    }


def _tiers(ledgers: tuple[LedgerCopies, ...]) -> Row:
    states = Counter(
        f"{tier}:{check.state}"
        for ledger in ledgers
        for tier, check in (("bookkeeper", ledger.bookkeeper), ("tiered", ledger.tiered))
    )
    return {
        "ledgers": len(ledgers),
        "offloaded": sum(ledger.info.complete for ledger in ledgers),
        "tiers": dict(states),
    }


def described(
    reconciler: ReadPriorityReconciler, seen: PriorityObservation, topic: TopicView, history: Iterable[HistoryRow] = ()
) -> Row:
    """One topic: what is declared and in force, its ledgers, and the actions on it in ``history``."""
    force = seen.of_topic(topic)
    findings = {finding.target: finding for finding in reversed(reconciler.decided.findings)}
    kept = reconciler.kept.get(topic.name, NOTHING)
    head = _row(reconciler, topic.name, "topic", topic.declared, topic.policy, force, findings)
    priority = force.priority if isinstance(force, InForce) else None
    return {
        **head,
        **_tiers(topic.ledgers),
        "why": force.why if isinstance(force, InForce) else force.reason,
        "lag_ms": seen.lag_ms(topic),
        "at_ms": seen.at_ms,
        "findings": [finding._asdict() for finding in reconciler.decided.findings if finding.target == topic.name],
        "copies": [_ledger(ledger, priority) for ledger in topic.ledgers],
        "unloaded": kept.switch and kept.switch.unloaded,
        "history": _history(topic.name, history),
    }


def _history(name: str, rows: Iterable[HistoryRow]) -> list[Row]:
    """The newest actions on a topic, oldest first. Their ids are PURPOSE/TOPIC/PRIORITY."""
    of_topic = [
        row
        for row in rows
        if row.kind in (POLICY, UNLOAD, APPROVAL) and row.id.partition("/")[2].rpartition("/")[0] == name
    ]
    return [
        {"at_ms": row.at_ms, "event": f"{row.id.partition('/')[0]} {row.outcome}", "who": row.who, "detail": row.detail}
        for row in of_topic[-SHOWN:]
    ]


def _ledger(copies: LedgerCopies, priority: ReadPriority | None) -> Row:
    info = copies.info
    broker = opened_by_broker(priority, info) if priority else None
    return {
        "ledger": info.ledger,
        "part": copies.part,
        "entries": info.entries,
        "bytes": info.size,
        "offloaded": info.complete,
        "dropped": info.dropped,
        "bookkeeper": copies.bookkeeper.state,
        "bookkeeper_detail": copies.bookkeeper.detail,
        "tiered": copies.tiered.state,
        "tiered_detail": copies.tiered.detail,
        "checked_ms": copies.checked_ms,
        "broker": broker or "unknown",
        "stalls": None if broker is None else _stalls(copies.of(broker).state),
        "reader": [str(tier) for tier in order(priority or ReadPriority.BOOKKEEPER_FIRST, info)],
    }


def _stalls(state: CopyState) -> bool | None:
    return None if state is CopyState.UNKNOWN else state is not CopyState.WHOLE


def status(reconciler: ReadPriorityReconciler, settings: ReadPrioritySettings) -> ReadPriorityStatus:
    """Its field of the status."""
    seen, listed = reconciler.seen, rows(reconciler)
    rules = Counter(finding.rule for finding in reconciler.decided.findings)
    ledgers = Counter(
        f"{tier}:{check.state}"
        for topic in (seen.topics if seen else ())
        for ledger in topic.ledgers
        for tier, check in (("bookkeeper", ledger.bookkeeper), ("tiered", ledger.tiered))
    )
    return ReadPriorityStatus(
        mode=settings.mode,
        rules=dict(rules),
        copies=dict(ledgers),
        due=len(reconciler.decided.due),
        namespaces=sum(row["level"] == "namespace" for row in listed),
        topics=sum(row["level"] == "topic" for row in listed),
        switched=sum(row["switched_ms"] is not None for row in listed),
        brokers=len(seen.brokers) if seen else 0,
        at_ms=seen.at_ms if seen else 0,
        problem=reconciler.problem or (seen.problem if seen else ""),
        incomplete=seen.incomplete if seen else "",
    )


def findings(every: Iterable[ReadFinding], filter_: Filter) -> list[Finding]:
    """The findings that a filter selects, without its limit."""
    some = (finding for finding in every if filter_.namespace in (None, namespace_of(finding.target)))
    converted = map(finding_of, some)
    return [
        finding
        for finding in converted
        if filter_.verdict in (None, finding.verdict) and filter_.rule in (None, finding.rule)
    ]


def finding_of(finding: ReadFinding) -> Finding:
    """A finding for all streams."""
    rule = READ_RULES.find(finding.rule)
    assert rule is not None, "findings name rules of the table"
    return Finding({"topic": finding.target}, rule.verdict.name.lower(), finding.rule, finding.reason, None)


def plan_rows(reconciler: ReadPriorityReconciler) -> list[PlanRow]:
    """Changes that are due, and those that were sent or refused."""
    due = [_due(reconciler, change) for change in reconciler.decided.due]
    return due + [
        _plan_row(kept.change, str(kept.change.stage))
        for kept in reconciler.kept.values()
        if kept.change is not None and kept.change.stage in (ChangeStage.ORDERED, ChangeStage.REFUSED)
    ]


def _due(reconciler: ReadPriorityReconciler, change: Change) -> PlanRow:
    return _plan_row(change, AWAITING if reconciler.waits(change) else str(change.stage))


def _plan_row(change: Change, stage: str) -> PlanRow:
    evidence = {"before": change.before or "", "want": change.want or "", "purpose": str(change.purpose)}
    requirements = {"priority": change.before or "", "other fields": "unchanged since the decision"}
    return PlanRow(
        change.id,
        UNLOAD if change.purpose is Purpose.UNLOAD else POLICY,
        change.rule,
        change.detail,
        stage,
        {"topic": change.target},
        requirements=requirements,
        evidence=evidence,
    )
