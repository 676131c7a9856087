"""The journal's topics of the placement stream."""

from trueup.streams.journal.topic import JournalTopic, declare

TOPICS = declare(
    JournalTopic("findings", "placement/schemas/finding.avsc", observed=True),
    JournalTopic("repairs", "placement/schemas/repair.avsc", observed=True, signed=True),
    JournalTopic("damages", "placement/schemas/damage.avsc", observed=True),
)
FINDINGS, REPAIRS, DAMAGES = (topic.name for topic in TOPICS)
