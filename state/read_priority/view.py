"""What one pass observed of namespaces and topics."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trueup.state.read_priority.copies import LedgerCopies
from trueup.state.read_priority.policies import BrokerFacts, Contradiction, InForce, PolicyView, in_force
from trueup.state.read_priority.settings import Declared


class NamespaceView(NamedTuple):
    """A namespace."""

    name: str
    declared: Declared | None
    """The declared priority, None if the namespace is not managed."""
    policy: PolicyView | None
    """The policy of the namespace, None if it is not readable."""
    problem: str = ""
    """The reason why the policy is not readable, empty if it is."""


class TopicView(NamedTuple):
    """A topic, with all partitions."""

    namespace: str
    local: str
    declared: Declared | None
    policy: PolicyView | None
    """The policy of the topic itself, None if it is not readable."""
    applied: PolicyView | None = None
    """The policy that the broker applies to the topic, None if it is not readable."""
    ledgers: tuple[LedgerCopies, ...] = ()
    """The closed ledgers."""
    problem: str = ""
    """The reason why the policies are not readable, empty if they are."""

    @property
    def name(self) -> str:
        """tenant/namespace/topic."""
        return f"{self.namespace}/{self.local}"


class PriorityObservation(NamedTuple):
    """What one pass observed."""

    began_ms: int
    """The time at which the pass began, ms since the epoch."""
    at_ms: int
    """The time at which the pass ended, ms since the epoch."""
    brokers: tuple[BrokerFacts, ...]
    namespaces: Mapping[str, NamespaceView]
    topics: Sequence[TopicView]
    problem: str = ""
    """The reason why nothing is known of the brokers, empty if they are known."""
    incomplete: str = ""
    """The reason why topics may be missing, empty if none are."""

    def of_namespace(self, name: str) -> InForce | Contradiction:
        """The priority in force for topics of a namespace that have no policy of their own."""
        namespace = self.namespaces.get(name)
        if self.problem or namespace is None or namespace.policy is None:
            return Contradiction(self.problem or (namespace.problem if namespace else "the namespace was not observed"))
        return in_force(self.brokers, namespace.policy, PolicyView(), None)

    def of_topic(self, topic: TopicView) -> InForce | Contradiction:
        """The priority in force for a topic."""
        namespace = self.namespaces.get(topic.namespace)
        if self.problem or namespace is None or namespace.policy is None:
            return self.of_namespace(topic.namespace)
        if topic.policy is None:
            return Contradiction(topic.problem or "its policy was not read")
        return in_force(self.brokers, namespace.policy, topic.policy, topic.applied)

    def lag_ms(self, topic: TopicView) -> int | None:
        """The delay after which brokers delete the BookKeeper ledger of an offloaded one; negative: at once, None: not
        set, which is never."""
        namespace = self.namespaces.get(topic.namespace)
        levels = [
            view for view in (topic.applied, topic.policy, namespace.policy if namespace else None) if view is not None
        ]
        set_at = next((view.lag_ms for view in levels if view.lag_ms is not None), None)
        if set_at is None:
            set_at = min((b.lag_ms for b in self.brokers if b.lag_ms is not None), default=None)
        return set_at
