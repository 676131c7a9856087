"""The journal's topics of the placement stream."""

from trueup.streams.journal.topic import JournalTopic, Record, declare, ledger_of

REPLICA = "ledger", "bookie", "first", "last"
"""The fields of a report that say which replica it is about (`state.placement.damage.ReplicaRange`)."""


def damage_key(report: Record) -> bytes:
    """The key of a report."""
    return "/".join(str(report[name]) for name in REPLICA).encode()


TOPICS = declare(
    # Only ages are taken from it: an older record does not matter, and needs no place in memory.
    JournalTopic("findings", "placement/schemas/finding.avsc", observed=True, key=ledger_of, ordered=False),
    JournalTopic(
        "repairs", "placement/schemas/repair.avsc", observed=True, key=ledger_of, form="placement.reconciler:repair_of"
    ),
    JournalTopic(
        "damages", "placement/schemas/damage.avsc", observed=True, key=damage_key, form="placement.damages:damage_of"
    ),
)
FINDINGS, REPAIRS, DAMAGES = (topic.name for topic in TOPICS)
