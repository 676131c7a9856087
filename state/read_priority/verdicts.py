"""What is wrong with the read priority of a topic or namespace, from what one pass observed."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trueup.state.read_priority.copies import BAD, CopyState, LedgerCopies, other
from trueup.state.read_priority.lifecycle import ChangeStage, PriorityState
from trueup.state.read_priority.policies import Contradiction, InForce, Level
from trueup.state.read_priority.settings import ReadPrioritySettings
from trueup.state.read_priority.tiers import ReadPriority, opened_by_broker
from trueup.state.read_priority.view import NamespaceView, PriorityObservation, TopicView

SHOWN = 3
WHOLE, UNKNOWN = CopyState.WHOLE, CopyState.UNKNOWN


class ReadFinding(NamedTuple):
    """One finding about a namespace or topic."""

    target: str
    rule: str
    reason: str


class ReadVerdict(NamedTuple):
    """How a broker reads the ledgers of a topic with one priority."""

    bad: tuple[LedgerCopies, ...]
    """The ledgers that the broker reads from a tier that does not have them."""
    unknown: tuple[LedgerCopies, ...]
    """The ledgers that the broker reads from a tier where the state of the copy is unknown."""
    lost: tuple[LedgerCopies, ...]
    """The ledgers that no tier has, whatever the priority. The other lists do not contain them."""

    @property
    def well(self) -> bool:
        """Whether every ledger that a tier has is read from one that has it."""
        return not self.bad and not self.unknown


def reads(ledgers: Sequence[LedgerCopies], priority: ReadPriority) -> ReadVerdict:
    """How a broker reads these ledgers."""
    lost = tuple(ledger for ledger in ledgers if ledger.bookkeeper.state in BAD and ledger.tiered.state in BAD)
    rest = [ledger for ledger in ledgers if ledger not in lost]
    return ReadVerdict(
        tuple(ledger for ledger in rest if ledger.opened(priority).state in BAD),
        tuple(ledger for ledger in rest if ledger.opened(priority).state is UNKNOWN),
        lost,
    )


def topic_findings(
    seen: PriorityObservation, topic: TopicView, kept: PriorityState, settings: ReadPrioritySettings
) -> Iterator[ReadFinding]:
    """The findings about a managed topic, the most important first."""
    force = seen.of_topic(topic)
    yield from _refused(topic.name, kept)
    if isinstance(force, Contradiction):
        yield ReadFinding(topic.name, "read_priority.unknown", force.reason)
        return
    verdict = reads(topic.ledgers, force.priority)
    if verdict.lost:
        yield ReadFinding(topic.name, "read_priority.lost", _named(verdict.lost, force.priority))
    yield from _stalls(topic, force, verdict)
    yield from _declared(topic, force, kept)
    yield from _due(seen, topic, settings)


def _refused(target: str, kept: PriorityState) -> Iterator[ReadFinding]:
    if kept.change is not None and kept.change.stage is ChangeStage.REFUSED:
        yield ReadFinding(target, kept.change.rule, kept.change.detail)


def _stalls(topic: TopicView, force: InForce, verdict: ReadVerdict) -> Iterator[ReadFinding]:
    if verdict.bad:
        instead = reads(topic.ledgers, other(force.priority))
        text = f"{force.priority} by the {force.origin}: {_named(verdict.bad, force.priority)}"
        if instead.well:
            yield ReadFinding(topic.name, "read_priority.would-stall", text)
        elif instead.bad:
            yield ReadFinding(
                topic.name,
                "read_priority.no-priority",
                f"{text}; otherwise {_named(instead.bad, other(force.priority))}",
            )
        else:
            why = _named(instead.unknown, other(force.priority))
            yield ReadFinding(topic.name, "read_priority.unknown", f"it would stall ({text}); of the other tier: {why}")
    elif verdict.unknown:
        yield ReadFinding(topic.name, "read_priority.unknown", _named(verdict.unknown, force.priority))


def _declared(topic: TopicView, force: InForce, kept: PriorityState) -> Iterator[ReadFinding]:
    declared = topic.declared
    if declared is None:
        return
    if kept.switch is not None:
        text = f"{force.priority} instead of {declared.priority}; {_settling(kept)}"
        yield ReadFinding(topic.name, "read_priority.switched", text)
    elif declared.priority is not force.priority and declared.level is Level.TOPIC:
        yield ReadFinding(topic.name, "read_priority.differs", _apart(declared.priority, force))
    elif declared.priority is not force.priority and force.origin is Level.TOPIC:
        text = (
            f"expected {declared.priority} as declared for {declared.pattern}; found {force.priority} in its own policy"
        )
        yield ReadFinding(topic.name, "read_priority.masked", f"{text}; {force.why}" if force.why else text)


def _settling(kept: PriorityState) -> str:
    assert kept.switch is not None, "called for switched topics"
    if not kept.switch.looks:
        return "the preferred tier is not whole"
    return f"the preferred tier was whole in the last {kept.switch.looks} passes"


def _apart(expected: ReadPriority, force: InForce) -> str:
    text = f"expected {expected}; found {force.priority}, set by the {force.origin}"
    return f"{text}; {force.why}" if force.why else text


def namespace_findings(
    seen: PriorityObservation, namespace: NamespaceView, kept: PriorityState
) -> Iterator[ReadFinding]:
    """The findings about a managed namespace."""
    yield from _refused(namespace.name, kept)
    force = seen.of_namespace(namespace.name)
    if isinstance(force, Contradiction):
        yield ReadFinding(namespace.name, "read_priority.unknown", force.reason)
    elif namespace.declared is not None and namespace.declared.priority is not force.priority:
        why = harmed(seen, namespace.name, namespace.declared.priority)
        if not why and namespace.policy and not namespace.policy.present and not model_of(seen, namespace.name):
            why = "it has no policy, and no topic with an offloaded ledger shows what it would inherit"
        if why:
            yield ReadFinding(namespace.name, "read_priority.not-ready", why)
        yield ReadFinding(namespace.name, "read_priority.differs", _apart(namespace.declared.priority, force))


def model_of(seen: PriorityObservation, namespace: str) -> str:
    """A topic that has only what the namespace inherits or sets; empty if none was observed."""
    return next(
        (
            topic.name
            for topic in seen.topics
            if topic.namespace == namespace and topic.policy and not topic.policy.present
        ),
        "",
    )


def harmed(seen: PriorityObservation, namespace: str, priority: ReadPriority) -> str:
    """Why topics of a namespace that inherit its priority would read worse with this one; empty if none would."""
    if seen.incomplete:
        return seen.incomplete
    for topic in seen.topics:
        if topic.namespace != namespace:
            continue
        force = seen.of_topic(topic)
        if isinstance(force, Contradiction):
            return f"{topic.name}: {force.reason}"
        if force.origin is not Level.TOPIC and (why := worse(topic, force.priority, priority)):
            return why
    return ""


def worse(topic: TopicView, now: ReadPriority, wanted: ReadPriority) -> str:
    """Why a topic would or might read worse with this priority than now; empty if it would not."""
    for ledger in topic.ledgers:
        before, after = ledger.opened(now).state, ledger.opened(wanted).state
        moves = opened_by_broker(now, ledger.info) is not opened_by_broker(wanted, ledger.info)
        if moves and after is not WHOLE and not (before in BAD and after in BAD):
            return f"{topic.name}: {_named([ledger], wanted)}"
    return ""


def _due(seen: PriorityObservation, topic: TopicView, settings: ReadPrioritySettings) -> Iterator[ReadFinding]:
    lag_ms = seen.lag_ms(topic)
    if lag_ms is None:
        return
    soon = seen.at_ms + int(1000 * settings.lag_warning_s)
    due = [
        ledger
        for ledger in topic.ledgers
        if ledger.info.complete
        and not ledger.info.dropped
        and ledger.info.offloaded_ms + lag_ms <= soon
        and ledger.tiered.state is not WHOLE
    ]
    if due:
        text = ", ".join(
            f"ledger {ledger.info.ledger}: {ledger.tiered.state} ({ledger.tiered.detail})" for ledger in due[:SHOWN]
        )
        yield ReadFinding(topic.name, "read_priority.deletion-due", f"{len(due)} due: {text}")


def _named(ledgers: Sequence[LedgerCopies], priority: ReadPriority) -> str:
    """The first of these ledgers, each with the copy that a broker opens."""
    parts = []
    for ledger in ledgers[:SHOWN]:
        check = ledger.opened(priority)
        tier = opened_by_broker(priority, ledger.info)
        parts.append(f"ledger {ledger.info.ledger} is {check.state} in {tier} ({check.detail})")
    more = f" and {len(ledgers) - SHOWN} more" if len(ledgers) > SHOWN else ""
    return "; ".join(parts) + more
