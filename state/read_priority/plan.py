"""The changes that are due: observations, the settings and what Trueup remembers to at most one change per target."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from trueup.state.read_priority.copies import other
from trueup.state.read_priority.lifecycle import NOTHING, Change, ChangeStage, PriorityState, Purpose, Switch, followed
from trueup.state.read_priority.policies import Contradiction, Level
from trueup.state.read_priority.settings import ReadPrioritySettings
from trueup.state.read_priority.tiers import ReadPriority
from trueup.state.read_priority.verdicts import (
    ReadFinding,
    harmed,
    model_of,
    namespace_findings,
    reads,
    topic_findings,
    worse,
)
from trueup.state.read_priority.view import NamespaceView, PriorityObservation, TopicView

Remembered = Mapping[str, PriorityState]


class PassResult(NamedTuple):
    """The result of one pass."""

    findings: tuple[ReadFinding, ...]
    due: tuple[Change, ...]
    """The changes that are needed and not sent yet, each with the stage that it reached."""
    kept: Remembered
    """What Trueup remembers from now on, by target."""


def decide(seen: PriorityObservation, before: Remembered, settings: ReadPrioritySettings) -> PassResult:
    """Decide about all namespaces and topics. Of topics that left their namespace nothing is remembered; other targets
    that were not observed are remembered as they are."""
    there = {topic.name for topic in seen.topics}
    kept = {name: state for name, state in before.items() if name in there or not _left(seen, name)}
    findings, due = list[ReadFinding](), list[Change]()
    for namespace in seen.namespaces.values():
        if namespace.policy is not None:
            mine = followed(namespace.name, kept.get(namespace.name, NOTHING), namespace.policy, seen.at_ms)
            kept[namespace.name] = mine
        if namespace.declared is not None:
            findings += namespace_findings(seen, namespace, kept.get(namespace.name, NOTHING))
            due += _pending(kept, namespace.name, _of_namespace(seen, namespace))
    for topic in seen.topics:
        kept[topic.name] = mine = _looked(seen, topic, kept.get(topic.name, NOTHING))
        if topic.declared is not None or mine.switch is not None:
            findings += topic_findings(seen, topic, mine, settings)
            due += _pending(kept, topic.name, _of_topic(seen, topic, mine, settings))
    return PassResult(tuple(findings), tuple(due), {name: state for name, state in kept.items() if state != NOTHING})


def _left(seen: PriorityObservation, target: str) -> bool:
    """Whether a target that was not observed is a topic of a namespace that was."""
    return target.count("/") > 1 and "/".join(target.split("/")[:2]) in seen.namespaces and not seen.incomplete


def _pending(kept: dict[str, PriorityState], target: str, change: Change | None) -> Iterator[Change]:
    """The change that is due, and what is remembered of the one before. A change that was sent, or that rests after a
    refusal, comes first; an approval holds for the same change only."""
    mine = kept.get(target, NOTHING)
    if mine.change is not None and mine.change.stage is not ChangeStage.APPROVED:
        return
    if mine.change is not None and (change is None or mine.change.id != change.id):
        kept[target] = mine = mine._replace(change=None)
    if change is not None:
        yield change._replace(stage=mine.change.stage) if mine.change is not None else change


def _looked(seen: PriorityObservation, topic: TopicView, before: PriorityState) -> PriorityState:
    """What is remembered of a topic after this pass."""
    if topic.policy is None:
        return _blind(before)
    kept = followed(topic.name, before, topic.policy, seen.at_ms)
    force = seen.of_topic(topic)
    if isinstance(force, Contradiction):
        return _blind(kept)
    if any(ledger.checked_ms < seen.began_ms for ledger in topic.ledgers):
        return kept  # a look counts only if every copy was checked in this pass
    stalls = reads(topic.ledgers, force.priority).bad and reads(topic.ledgers, other(force.priority)).well
    kept = kept._replace(stalls=kept.stalls + 1 if stalls else 0)
    if kept.switch is None:
        return kept
    if _own(topic) is kept.switch.priority:
        return kept._replace(switch=None)  # it is declared now
    return kept._replace(switch=_settling(kept.switch, topic, _returns_to(seen, topic, kept), seen.at_ms))


def _blind(kept: PriorityState) -> PriorityState:
    """After a pass that did not see the priority: passes that count must be consecutive."""
    return PriorityState(kept.change, kept.switch and kept.switch._replace(looks=0, whole_ms=0))


def _settling(switch: Switch, topic: TopicView, toward: ReadPriority, now_ms: int) -> Switch:
    """A switch after a look at what returns. What was found of another priority does not count."""
    if not reads(topic.ledgers, toward).well:
        return switch._replace(looks=0, whole_ms=0, toward=toward)
    if toward is not switch.toward or not switch.looks:
        return switch._replace(looks=1, whole_ms=now_ms, toward=toward)
    return switch._replace(looks=switch.looks + 1)


def _returns_to(seen: PriorityObservation, topic: TopicView, kept: PriorityState) -> ReadPriority:
    """The priority that is in force without the switch."""
    if (priority := _restored(topic, kept)) is not None:
        return priority
    assert kept.switch is not None, "called for switched topics"
    force = seen.of_namespace(topic.namespace)
    return other(kept.switch.priority) if isinstance(force, Contradiction) else force.priority


def _moot(seen: PriorityObservation, topic: TopicView, kept: PriorityState) -> bool:
    """Whether a switched topic would have the same priority without the switch. False while the namespace is to get
    another one: a topic that does not inherit does not hold that up."""
    assert kept.switch is not None, "called for switched topics"
    if _returns_to(seen, topic, kept) is not kept.switch.priority:
        return False
    namespace = seen.namespaces.get(topic.namespace)
    return namespace is None or _of_namespace(seen, namespace) is None


def _restored(topic: TopicView, kept: PriorityState) -> ReadPriority | None:
    """The field that a return sets: what is declared for the topic itself, else its value from before the switch."""
    assert kept.switch is not None, "called for switched topics"
    return _own(topic) or kept.switch.before


def _own(topic: TopicView) -> ReadPriority | None:
    """The priority that is declared for the policy of the topic."""
    return topic.declared.priority if topic.declared and topic.declared.level is Level.TOPIC else None


def _of_namespace(seen: PriorityObservation, namespace: NamespaceView) -> Change | None:
    force = seen.of_namespace(namespace.name)
    declared, policy = namespace.declared, namespace.policy
    if isinstance(force, Contradiction) or declared is None or policy is None or declared.priority is force.priority:
        return None
    model = model_of(seen, namespace.name)
    if harmed(seen, namespace.name, declared.priority) or not (policy.present or model):
        return None
    return Change(
        namespace.name,
        Purpose.DECLARE,
        declared.priority,
        policy.priority,
        at_ms=seen.at_ms,
        rule="read_priority.differs",
        detail=f"set {declared.priority}, as declared for {declared.pattern}; {force.priority} is in force",
        digest=policy.digest,
        plain=policy.plain,
        model="" if policy.present else model,
    )


def _of_topic(
    seen: PriorityObservation, topic: TopicView, kept: PriorityState, settings: ReadPrioritySettings
) -> Change | None:
    force = seen.of_topic(topic)
    if isinstance(force, Contradiction) or topic.policy is None:
        return None
    if kept.switch is not None:
        return _of_switched(seen, topic, kept, settings)
    if topic.declared is None:
        return None
    declared = topic.declared.priority
    differs = _own(topic) is not None and declared is not force.priority
    if kept.stalls >= settings.stall_looks and not differs:
        text = f"set {other(force.priority)} until the other tier is whole; brokers would stall with {force.priority}"
        return _change(seen, topic, Purpose.SWITCH, other(force.priority), "read_priority.would-stall", text)
    if differs and not worse(topic, force.priority, declared):
        text = f"set {declared}, as declared for {topic.declared.pattern}; {force.priority} is in force"
        return _change(seen, topic, Purpose.DECLARE, declared, "read_priority.differs", text)
    return None


def _of_switched(
    seen: PriorityObservation, topic: TopicView, kept: PriorityState, settings: ReadPrioritySettings
) -> Change | None:
    """The return of a switched topic, or its unload."""
    assert kept.switch is not None, "called for switched topics"
    switch, since_ms = kept.switch, kept.switch.whole_ms or seen.at_ms
    if _moot(seen, topic, kept):  # readers notice nothing, and the topic can be switched again
        want = _restored(topic, kept)
        text = f"set {want or 'no priority of its own'} again; {switch.priority} is in force without the switch"
        return _change(seen, topic, Purpose.RETURN, want, "read_priority.switched", text)
    if switch.looks >= settings.settle_looks and seen.at_ms - since_ms >= 1000 * settings.settle_s:
        want = _restored(topic, kept)
        text = f"set {want or 'no priority of its own'} again; its tier was whole in {switch.looks} passes"
        return _change(seen, topic, Purpose.RETURN, want, "read_priority.switched", text)
    if settings.unload and not switch.unloaded:
        text = "unload it, so that its broker opens ledgers with the switched priority"
        return _change(seen, topic, Purpose.UNLOAD, None, "read_priority.cached", text)
    return None


def _change(
    seen: PriorityObservation, topic: TopicView, purpose: Purpose, want: ReadPriority | None, rule: str, text: str
) -> Change:
    assert topic.policy is not None, "known topics only are changed"
    return Change(
        topic.name,
        purpose,
        want,
        topic.policy.priority,
        at_ms=seen.at_ms,
        rule=rule,
        detail=text,
        digest=topic.policy.digest,
        plain=topic.policy.plain,
        model="" if topic.policy.present else topic.name,
    )
