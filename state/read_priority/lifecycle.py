"""The life cycle of a change of a read priority, as a table, and the switches that are in effect.

A broker applies a written policy some time after it responds, and may store null for a value that it does not know. A
change is therefore done only when an observation shows it.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from trueup.state.common.errors import Refused
from trueup.state.read_priority.policies import PolicyView
from trueup.state.read_priority.tiers import ReadPriority


class Purpose(StrEnum):
    """Why a policy is changed; ``unload`` is no change of a policy."""

    DECLARE = "declare"
    SWITCH = "switch"
    RETURN = "return"
    UNLOAD = "unload"


class ChangeStage(StrEnum):
    """The stage of a change. ``planned`` is the first; done and dropped are final."""

    PLANNED = "planned"
    APPROVED = "approved"
    ORDERED = "ordered"
    REFUSED = "refused"
    DONE = "done"
    DROPPED = "dropped"


class ChangeEvent(StrEnum):
    """An event of a change."""

    APPROVE = "approve"  # an operator approved it
    ORDER = "order"  # it is about to be sent and may or may not arrive
    CONFIRM = "confirm"  # a broker shows it
    REFUSE = "refuse"  # a broker refused it, another client changed the policy, or it had no effect
    LAPSE = "lapse"  # it is no longer needed, or may be planned again


_S, _E = ChangeStage, ChangeEvent
TRANSITIONS: Mapping[tuple[ChangeStage, ChangeEvent], ChangeStage] = {
    (_S.PLANNED, _E.APPROVE): _S.APPROVED,
    (_S.PLANNED, _E.ORDER): _S.ORDERED,
    (_S.APPROVED, _E.ORDER): _S.ORDERED,
    (_S.APPROVED, _E.LAPSE): _S.DROPPED,
    (_S.ORDERED, _E.CONFIRM): _S.DONE,
    (_S.ORDERED, _E.REFUSE): _S.REFUSED,
    (_S.REFUSED, _E.LAPSE): _S.DROPPED,
}
ENDS = frozenset({ChangeStage.DONE, ChangeStage.DROPPED})
REST_MS = 300_000
"""The time before a refused change is planned again."""
CHANGED = "read_priority.changed-meanwhile"
EFFECT_MS = 60_000
"""The time within which a broker shows a written policy."""


class Change(NamedTuple):
    """One change."""

    target: str
    """The namespace or topic, as tenant/namespace[/topic]."""
    purpose: Purpose
    want: ReadPriority | None
    """The priority in the policy of the target after the change. None if the change sets none, and for an unload."""
    before: ReadPriority | None = None
    """The priority in the policy of the target before the change, None if it is not set."""
    stage: ChangeStage = ChangeStage.PLANNED
    at_ms: int = 0
    rule: str = ""
    """The id of the rule that is the reason for the change or for its refusal."""
    detail: str = ""
    digest: str = ""
    """`PolicyView.digest` of the policy for which the change was decided."""
    plain: str = ""
    """`PolicyView.plain` of the policy for which the change was decided."""
    model: str = ""
    """A topic that shows what the target inherits. Empty if the target has a policy of its own."""

    @property
    def id(self) -> str:
        """Its name in the plan. Two decisions for the same change have the same."""
        return f"{self.purpose}/{self.target}/{self.want or 'none'}"


class Switch(NamedTuple):
    """A topic whose priority Trueup switched."""

    before: ReadPriority | None
    """The priority in the policy of the topic before the switch, None if it was not set. A return sets it again, unless
    a priority is declared for the topic itself."""
    priority: ReadPriority
    at_ms: int
    """The time of the switch, ms since the epoch."""
    made: str = ""
    """The digest of the policy that Trueup made for a topic without a policy of its own, empty if the topic had one."""
    looks: int = 0
    """The number of consecutive passes in which brokers would read every ledger with the priority ``toward``. See
    `verdicts.ReadVerdict.well`."""
    whole_ms: int = 0
    """The time of the first pass that ``looks`` counts, in ms since the epoch, 0 if there is none."""
    unloaded: bool = False
    """Whether an unload of the topic was ordered after the switch. The broker may have refused it."""
    toward: ReadPriority | None = None
    """The priority that the topic would have without the switch, as last determined. None if not determined yet."""


class PriorityState(NamedTuple):
    """What Trueup remembers of a namespace or topic."""

    change: Change | None = None
    switch: Switch | None = None
    stalls: int = 0
    """The number of consecutive passes that found that the topic would stall."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to remember across a restart."""
        return self.change is None and self.switch is None


NOTHING = PriorityState()


def advance(change: Change, event: ChangeEvent, now_ms: int, detail: str = "", rule: str = "") -> Change:
    """The change after an event. Raises `Refused` if the table has no such transition."""
    stage = TRANSITIONS.get((change.stage, event))
    if stage is None:
        raise Refused(f"an event permitted in stage {change.stage}", event, f"observe {change.target} again")
    return change._replace(stage=stage, at_ms=now_ms, detail=detail or change.detail, rule=rule or change.rule)


def followed(target: str, kept: PriorityState, policy: PolicyView, now_ms: int) -> PriorityState:
    """What is remembered after an observation of the policy of ``target``."""
    change, switch, shown = kept.change, kept.switch, policy.priority
    if change is not None and change.stage is ChangeStage.ORDERED and change.purpose is not Purpose.UNLOAD:
        return _ordered(kept, change, policy, now_ms)
    if change is not None and (change.stage in _OVER or _rested(change, now_ms)):
        kept = kept._replace(change=None)
    if switch is None or shown == switch.priority:
        return kept
    detail = f"another client set {shown or 'no priority'} while the switch to {switch.priority} was in effect"
    ours = Change(target, Purpose.SWITCH, switch.priority, switch.before, ChangeStage.REFUSED, now_ms)
    return PriorityState(ours._replace(rule=CHANGED, detail=detail))


_OVER = frozenset({*ENDS, ChangeStage.ORDERED})
"""Stages that are not remembered: an unload that an earlier process ordered is not repeated."""


def _rested(change: Change, now_ms: int) -> bool:
    return change.stage is ChangeStage.REFUSED and now_ms - change.at_ms >= REST_MS


def _ordered(kept: PriorityState, change: Change, policy: PolicyView, now_ms: int) -> PriorityState:
    """A change that was sent or was about to be sent. A policy with the old priority and other fields is another
    client's."""
    shown = policy.priority
    if shown == change.want:
        done = advance(change, ChangeEvent.CONFIRM, now_ms)
        return kept._replace(change=done, switch=None if change.purpose is Purpose.RETURN else kept.switch)
    before = shown == change.before and policy.plain == change.plain
    if before and now_ms - change.at_ms < EFFECT_MS:
        return kept
    rule = "read_priority.refused" if before else CHANGED
    detail = f"the policy shows {shown or 'no priority'} after {change.want or 'no priority'} was written"
    return refused(kept, detail, rule, now_ms, lost=not before)


def refused(kept: PriorityState, detail: str, rule: str, now_ms: int, lost: bool = False) -> PriorityState:
    """What is remembered after a change had no effect. A switch that did not happen is forgotten, and one whose policy
    another client replaced (``lost``)."""
    assert kept.change is not None, "a change that was ordered"
    change = advance(kept.change, ChangeEvent.REFUSE, now_ms, detail, rule)
    return PriorityState(change, None if lost or change.purpose is Purpose.SWITCH else kept.switch)
