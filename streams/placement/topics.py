"""The journal's topics of the placement stream."""

from collections.abc import Mapping
from typing import Any

from trueup.state.placement.damage import ReplicaRange
from trueup.streams.journal.topic import JournalTopic, declare, ledger_of


def replica_of(record: Mapping[str, Any]) -> ReplicaRange:
    """The replica of a report."""
    return ReplicaRange(*(record[name] for name in ReplicaRange._fields))


def damage_key(replica: ReplicaRange) -> bytes:
    """The key of a report."""
    return "/".join(map(str, replica)).encode()


TOPICS = declare(
    JournalTopic("findings", "placement/schemas/finding.avsc", observed=True, key=ledger_of),
    JournalTopic(
        "repairs", "placement/schemas/repair.avsc", observed=True, signed=True, key=ledger_of,
        form="placement.reconciler:repair_of",
    ),
    JournalTopic(
        "damages", "placement/schemas/damage.avsc", observed=True, signed=True,
        key=lambda record: damage_key(replica_of(record)), form="placement.damages:damage_of",
    ),
)  # fmt: skip
FINDINGS, REPAIRS, DAMAGES = (topic.name for topic in TOPICS)
