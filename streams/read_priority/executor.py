"""Executes one change of a read priority: reads the policy, compares, writes, reads back.

The admin API has no conditional write. The policy is therefore compared right before and right after a write; if it is
not what it should be, nothing is overwritten. Each change is written to the journal before it is sent, so that a
process that starts after a SIGKILL knows what it may have changed.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from trueup.connectors.pulsar.admin.client import PolicyScope, scope_of
from trueup.connectors.pulsar.admin.policies import OffloadPolicy
from trueup.state.common.errors import Retry, Stop, Unknown
from trueup.state.read_priority.lifecycle import (
    CHANGED,
    Change,
    ChangeEvent,
    PriorityState,
    Purpose,
    Switch,
    advance,
    refused,
)
from trueup.state.read_priority.policies import PolicyView

Keep = Callable[[str, PriorityState], None]
"""Writes what is remembered of a target to the journal. Raises `Retry`."""


class PolicyAdmin(Protocol):
    """The admin API; see `connectors.pulsar.admin.client.PulsarAdmin`."""

    def policy(self, scope: PolicyScope) -> OffloadPolicy:
        """The policy of this level itself."""

    def applied(self, scope: PolicyScope) -> OffloadPolicy:
        """The policy in force for a topic."""

    def set(self, scope: PolicyScope, policy: OffloadPolicy) -> None:
        """Replace the policy of this level."""

    def remove(self, scope: PolicyScope) -> None:
        """Remove the policy of this level."""

    def unload(self, scope: PolicyScope) -> None:
        """Make the broker close a topic."""


class PolicyWrite(NamedTuple):
    """The write of one change."""

    policy: OffloadPolicy | None
    """The policy to write; None if the policy is removed."""
    made: bool = False
    """Whether there was no policy before the write."""


class PolicyWriter:
    """Used by one thread."""

    def __init__(self, admin: PolicyAdmin, keep: Keep, clock: Callable[[], int]) -> None:
        self._admin, self._keep, self._clock = admin, keep, clock

    def execute(self, change: Change, kept: PriorityState) -> PriorityState:
        """Execute a change that is due. Returns what is remembered then. Raises `Retry` if nothing was done."""
        if change.purpose is Purpose.UNLOAD:
            return self._unload(change, kept)
        scope = scope_of(change.target)
        try:
            before = self._admin.policy(scope)
        except Stop as error:
            return self._ended(change, kept, str(error), "read_priority.refused")
        if not _as_decided(before.view(), change):
            return self._ended(change, kept, "the policy is not the one for which it was decided", CHANGED)
        try:
            write = self._write(change, kept, before)
        except Stop as error:
            return self._ended(change, kept, str(error), "read_priority.refused")
        ordered = self._ordered(change, kept, write)
        self._keep(change.target, ordered)
        return self._sent(scope, ordered, before, write)

    def _write(self, change: Change, kept: PriorityState, before: OffloadPolicy) -> PolicyWrite:
        """What to write. A policy that Trueup made is removed if nobody changed it."""
        view = before.view()
        if change.purpose is Purpose.RETURN and kept.switch and kept.switch.made == view.digest and view.present:
            return PolicyWrite(None)
        if view.present:
            return PolicyWrite(before.with_priority(change.want))
        inherited = self._admin.applied(scope_of(change.model))
        return PolicyWrite(inherited.without_secrets().with_priority(change.want), made=True)

    def _ordered(self, change: Change, kept: PriorityState, write: PolicyWrite) -> PriorityState:
        now_ms = self._clock()
        ordered = advance(change, ChangeEvent.ORDER, now_ms)
        if change.purpose is not Purpose.SWITCH:
            return kept._replace(change=ordered)
        assert change.want is not None, "a switch sets a priority"
        digest = write.policy.view().digest if write.made and write.policy is not None else ""
        return PriorityState(ordered, Switch(change.before, change.want, now_ms, digest))

    def _sent(
        self, scope: PolicyScope, ordered: PriorityState, before: OffloadPolicy, write: PolicyWrite
    ) -> PriorityState:
        """Write and read back. Without a response the next observation decides."""
        try:
            if write.policy is None:
                self._admin.remove(scope)
            else:
                self._admin.set(scope, write.policy)
        except Unknown:
            return ordered
        except (Retry, Stop) as error:
            return refused(ordered, str(error), "read_priority.refused", self._clock())
        try:
            after = self._admin.policy(scope)
        except (Retry, Stop):
            return ordered
        if _as_written(after, write) or after.view() == before.view():  # brokers apply it after a while
            return ordered
        problem = "after the write the policy is neither the one before nor the written one"
        return refused(ordered, problem, CHANGED, self._clock(), lost=True)

    def _unload(self, change: Change, kept: PriorityState) -> PriorityState:
        """Unload a topic, at most once after a switch."""
        assert kept.switch is not None, "only switched topics are unloaded"
        ordered = PriorityState(advance(change, ChangeEvent.ORDER, self._clock()), kept.switch._replace(unloaded=True))
        assert ordered.change is not None, "just set"
        self._keep(change.target, ordered)
        try:
            self._admin.unload(scope_of(change.target))
        except Unknown as error:
            return refused(ordered, str(error), "read_priority.refused", self._clock())
        except (Retry, Stop) as error:
            return refused(ordered, str(error), "read_priority.refused", self._clock())
        return ordered._replace(change=advance(ordered.change, ChangeEvent.CONFIRM, self._clock()))

    def _ended(self, change: Change, kept: PriorityState, problem: str, rule: str) -> PriorityState:
        """A change that was not sent."""
        ordered = kept._replace(change=advance(change, ChangeEvent.ORDER, self._clock()))
        return refused(ordered, problem, rule, self._clock())


def _as_decided(view: PolicyView, change: Change) -> bool:
    return (view.priority, view.digest) == (change.before, change.digest)


def _as_written(after: OffloadPolicy, write: PolicyWrite) -> bool:
    if write.policy is None:
        return not after.view().present
    same = after.keeps(write.policy) and (write.made or write.policy.keeps(after))
    return same and after.view().priority is write.policy.view().priority
