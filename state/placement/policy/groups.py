"""The bookies in which Pulsar's IsolatedBookieEnsemblePlacementPolicy (4.2) places a ledger.

The class excludes all bookies but those of the primary groups. If fewer of them are writable than the ensemble needs,
those of the secondary groups are also allowed; if both together are still fewer, so are the bookies of no group.
"""

from collections import defaultdict
from functools import lru_cache

from trueup.state.bookkeeper.isolation import BROKEN, groups_in, namespace_in
from trueup.state.bookkeeper.topology import NamespaceGroups, Status, Topology

Groups = tuple[frozenset[str], frozenset[str]]
"""The primary and the secondary groups of a ledger."""
_ABSENT = NamespaceGroups("", ())
EVERY_GROUP = "*"
"""A primary group of this name disables isolation."""


class IsolationGroups:
    """The groups of one topology."""

    def __init__(self, topology: Topology) -> None:
        policy = topology.policy
        here = (bookie for bookie in topology.bookies if bookie.status in (Status.WRITABLE, Status.READONLY))
        self.listed = all(bookie.groups is not None for bookie in here)
        """Whether the groups of all registered bookies are known."""
        self._isolates, self._respected = policy.kind == "isolation", policy.workers_isolate
        self._default: Groups = frozenset(policy.groups), frozenset(policy.secondary_groups)
        self._writable = {bookie.id for bookie in topology.bookies if bookie.status is Status.WRITABLE}
        self._others = frozenset(bookie.id for bookie in topology.bookies if not bookie.groups)
        self._members = defaultdict[str, set[str]](set)
        for bookie in topology.bookies:
            for group in bookie.groups or ():
                self._members[group].add(bookie.id)
        self._read = topology.namespaces is not None
        self._namespaces = {namespace.name: namespace for namespace in topology.namespaces or ()}
        self._allowed: dict[tuple[str, int], frozenset[str] | None] = {}

    def understood(self, isolation: str) -> bool:
        """Whether it is known where ledgers of this text belong (`state.bookkeeper.isolation`)."""
        if namespace := namespace_in(isolation):
            return not self._isolates or (self._read and self._namespaces.get(namespace, _ABSENT).readable)
        return not isolation or (self._isolates and isolation != BROKEN)

    def of(self, isolation: str) -> Groups | None:
        """The groups of ledgers of this text; None if they are placed without groups."""
        if not self._isolates:
            return None
        primary, secondary = groups_in(isolation) if isolation.startswith("[") else self._client(isolation)
        isolated = bool(primary or isolation.startswith("[")) and EVERY_GROUP not in primary
        return (primary, secondary) if isolated else None

    def respected(self, isolation: str) -> bool:
        """Whether workers replace lost bookies within the groups of this text. They know the groups in the metadata and
        in their own settings, not those of namespaces."""
        own = isolation.startswith("[") or self._client(isolation) == self._default
        return own and self._respected

    def source(self, isolation: str) -> str:
        """Where the groups of this text are from."""
        if isolation.startswith("["):
            return "its metadata"
        namespace = namespace_in(isolation)
        return f"the namespace {namespace}" if namespace in self._namespaces else "placement.groups"

    def _client(self, isolation: str) -> Groups:
        """The groups of the client that writes ledgers without groups in their metadata."""
        own = self._namespaces.get(namespace_in(isolation))
        return (frozenset(own.primary), frozenset(own.secondary)) if own else self._default

    def allowed(self, isolation: str, size: int) -> frozenset[str] | None:
        """The bookies in which the class places ledgers of this text with ensembles of this size now; None: all."""
        key = isolation, size
        if key not in self._allowed:
            groups = self.of(isolation)
            self._allowed[key] = None if groups is None or not self._members else self._select(*groups, size)
        return self._allowed[key]

    def _select(self, primary: frozenset[str], secondary: frozenset[str], size: int) -> frozenset[str]:
        first, second = self._in(primary), self._in(secondary)
        available = len(first & self._writable)
        if available >= size:
            return first
        # The class counts the other bookies of the secondary groups whether they are available or not.
        enough = available + len(second - first) >= size
        return first | second if enough else first | second | self._others

    def _in(self, groups: frozenset[str]) -> frozenset[str]:
        return frozenset(bookie for group in groups for bookie in self._members.get(group, ()))


@lru_cache(maxsize=8)
def groups_of(topology: Topology) -> IsolationGroups:
    """The groups of a topology."""
    return IsolationGroups(topology)
