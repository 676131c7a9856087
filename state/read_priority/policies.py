"""The read priority in force for a topic, per field: which level sets it, and which levels it masks (PIP-73).

A broker merges the policies of topic, namespace and broker field by field (OffloadPoliciesImpl.mergeConfiguration).
Before 3.3.7 and 4.0.5 a policy object without the field counted as tiered-storage-first (PR 24151), so that an object
made for another purpose masks the broker's setting. Before 2.8.4, 2.9.4 and 2.10.2 the broker's setting was ignored
(#16436).
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from trueup.state.read_priority.tiers import ReadPriority

_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?")
Version = tuple[int, int, int]
DEFAULT = ReadPriority.TIERED_STORAGE_FIRST
"""Of managedLedgerDataReadPriority, and of the field in Java."""


class Level(StrEnum):
    """Where a value is from, the weakest first."""

    BROKER = "broker"
    NAMESPACE = "namespace"
    TOPIC = "topic"


class PolicyView(NamedTuple):
    """What is known of the policy of one level."""

    present: bool = False
    priority: ReadPriority | None = None
    lag_ms: int | None = None
    """The delay in ms after which a broker deletes the BookKeeper ledger of an offloaded ledger. None if the policy
    does not set it. The admin API describes a negative delay as never, but brokers then delete at once
    (ManagedLedgerImpl.isOffloadedNeedsDelete)."""
    digest: str = ""
    """The digest of all fields of the policy except the priority. Empty if there is no policy."""
    plain: str = ""
    """The same digest without the fields that may contain credentials, so that it may be stored."""


class BrokerFacts(NamedTuple):
    """One broker."""

    address: str
    version: Version
    priority: ReadPriority | None = None
    """The setting managedLedgerDataReadPriority, None if the broker does not show it."""
    lag_ms: int | None = None


class InForce(NamedTuple):
    """The priority that brokers use for a topic."""

    priority: ReadPriority
    origin: Level
    """The level that sets the priority."""
    masked: tuple[Level, ...] = ()
    """The weaker levels that set another priority."""
    why: str = ""
    """An explanation of the masked levels, empty if there are none."""


class Contradiction(NamedTuple):
    """Why the priority in force is not known."""

    reason: str


def parsed_version(text: str) -> Version:
    """The version in a text such as 4.2.4 or 3.0.0-SNAPSHOT; zeros if there is none."""
    match = _VERSION.match(text.strip().strip('"'))
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else (0, 0, 0)


def defaulted(version: Version) -> bool:
    """Whether a policy object without the field counts as tiered-storage-first (PR 24151)."""
    return version < (3, 3, 7) or (4, 0, 0) <= version < (4, 0, 5)


def broker_ignored(version: Version) -> bool:
    """Whether the broker's own setting is ignored (#16432, #16436, #17803)."""
    fixed = {(2, 8): 4, (2, 9): 4, (2, 10): 2}
    return version < (2, 8, 0) or version[2] < fixed.get(version[:2], 0)


def in_force(
    brokers: Sequence[BrokerFacts], namespace: PolicyView, topic: PolicyView, applied: PolicyView | None
) -> InForce | Contradiction:
    """The priority in force for a topic. ``applied``: the broker's own merge, None if it has none to offer."""
    versions = {broker.version for broker in brokers}
    values = {broker.priority or DEFAULT for broker in brokers}
    old = any(map(defaulted, versions))
    broker = DEFAULT if versions and all(map(broker_ignored, versions)) else next(iter(values), DEFAULT)
    levels = ((Level.TOPIC, _of(topic, old)), (Level.NAMESPACE, _of(namespace, old)), (Level.BROKER, broker))
    origin, priority = next((level, value) for level, value in levels if value is not None)
    if not versions:
        return Contradiction("no broker showed its version and settings")
    if origin is Level.BROKER and (len(values) > 1 or len(set(map(broker_ignored, versions))) > 1):
        return Contradiction("brokers of the cluster differ in version or managedLedgerDataReadPriority")
    if applied is not None and applied.priority not in (None, priority):
        return Contradiction(f"policies set {priority} at the {origin}, and the broker applies {applied.priority}")
    weaker = levels[[level for level, _ in levels].index(origin) + 1 :]
    masked = tuple(level for level, value in weaker if value not in (None, priority))
    return InForce(priority, origin, masked, _why(priority, origin, masked, old))


def _of(policy: PolicyView, old: bool) -> ReadPriority | None:
    if not policy.present:
        return None
    return policy.priority or (DEFAULT if old else None)


def _why(priority: ReadPriority, origin: Level, masked: Sequence[Level], old: bool) -> str:
    if not masked:
        return ""
    text = f"the policy of the {origin} sets {priority} and masks the value of the {' and the '.join(masked)}"
    if old and priority is DEFAULT:
        return f"{text}; in this version every policy object has this value unless it is set (PR 24151)"
    return text
