"""The journal's topics of the placement stream."""

from trueup.streams.journal.topic import JournalTopic, declare

TOPICS = declare(
    JournalTopic("findings", "placement/schemas/finding.avsc", observed=True),
    JournalTopic("repairs", "placement/schemas/repair.avsc", observed=True),
)
FINDINGS, REPAIRS = (topic.name for topic in TOPICS)
