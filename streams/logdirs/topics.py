"""The journal's topics of the log directory stream."""

from trueup.streams.journal.topic import JournalTopic, declare

TOPICS = declare(
    JournalTopic("directories", "logdirs/schemas/directories.avsc"),
    JournalTopic("changes", "logdirs/schemas/changes.avsc", signed=True),
)
DIRECTORIES, CHANGES = (topic.name for topic in TOPICS)
