"""What one pass observed of namespaces and topics."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trueup.state.read_priority.copies import LedgerCopies
from trueup.state.read_priority.policies import BrokerFacts, Contradiction, InForce, PolicyView, in_force
from trueup.state.read_priority.settings import Declared


class NamespaceView(NamedTuple):
    """A namespace. ``policy`` None: not readable, for the reason in ``problem``; ``declared`` None: unmanaged."""

    name: str
    declared: Declared | None
    policy: PolicyView | None
    problem: str = ""


class TopicView(NamedTuple):
    """A topic, with all partitions. ``policy`` and ``applied`` None: not readable, for the reason in ``problem``.
    ``ledgers``: all but the open ones."""

    namespace: str
    local: str
    declared: Declared | None
    policy: PolicyView | None
    applied: PolicyView | None = None
    ledgers: tuple[LedgerCopies, ...] = ()
    problem: str = ""

    @property
    def name(self) -> str:
        """tenant/namespace/topic."""
        return f"{self.namespace}/{self.local}"


class Observation(NamedTuple):
    """One pass from ``began_ms`` to ``at_ms``. ``problem``: why nothing is known of the brokers; ``incomplete``: why
    topics may be missing."""

    began_ms: int
    at_ms: int
    brokers: tuple[BrokerFacts, ...]
    namespaces: Mapping[str, NamespaceView]
    topics: Sequence[TopicView]
    problem: str = ""
    incomplete: str = ""

    def of_namespace(self, name: str) -> InForce | Contradiction:
        """The priority in force for topics of a namespace that have no policy of their own."""
        found = self.namespaces.get(name)
        if self.problem or found is None or found.policy is None:
            return Contradiction(self.problem or (found.problem if found else "the namespace was not observed"))
        return in_force(self.brokers, found.policy, PolicyView(), None)

    def of_topic(self, topic: TopicView) -> InForce | Contradiction:
        """The priority in force for a topic."""
        found = self.namespaces.get(topic.namespace)
        if self.problem or found is None or found.policy is None:
            return self.of_namespace(topic.namespace)
        if topic.policy is None:
            return Contradiction(topic.problem or "its policy was not read")
        return in_force(self.brokers, found.policy, topic.policy, topic.applied)

    def lag_ms(self, topic: TopicView) -> int | None:
        """The delay after which brokers delete the BookKeeper ledger of an offloaded one; None: never."""
        found = self.namespaces.get(topic.namespace)
        levels = [view for view in (topic.applied, topic.policy, found.policy if found else None) if view is not None]
        set_at = next((view.lag_ms for view in levels if view.lag_ms is not None), None)
        if set_at is None:
            set_at = min((b.lag_ms for b in self.brokers if b.lag_ms is not None), default=None)
        return None if set_at is None or set_at < 0 else set_at
