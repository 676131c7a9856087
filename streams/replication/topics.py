"""The journal's topics of the replication stream."""

from trueup.streams.journal.topic import SETTING, JournalTopic, declare

_NEW = {"cleanup.policy": "delete", "retention.ms": "600000", "segment.ms": "600000"}
"""For records that are read only while they are new."""
TOPICS = declare(
    JournalTopic("links", "replication/schemas/copy.avsc"),
    JournalTopic("offsets", "replication/schemas/offsets.avsc"),
    JournalTopic("memory", SETTING, signed=True),
    JournalTopic("reports", "replication/schemas/report.avsc", configs=_NEW),
)
LINKS, OFFSETS, MEMORY, REPORTS = (topic.name for topic in TOPICS)
