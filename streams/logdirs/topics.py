"""The journal's topics of the log directory stream."""

from trueup.streams.journal.topic import JournalTopic, Record, declare


def _broker(record: Record) -> bytes:
    return f"{record['kafka']}/{record['broker']}".encode()


TOPICS = declare(
    JournalTopic(
        "directories", "logdirs/schemas/directories.avsc", key=_broker, form="logdirs.reconciler:directories_of"
    ),
    JournalTopic("changes", "logdirs/schemas/changes.avsc", key=_broker, form="logdirs.executor:ours_of"),
)
DIRECTORIES, CHANGES = (topic.name for topic in TOPICS)
