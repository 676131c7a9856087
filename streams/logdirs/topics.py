"""The journal's topics of the log directory stream."""

from collections.abc import Mapping
from typing import Any

from trueup.streams.journal.topic import JournalTopic, declare


def _broker(record: Mapping[str, Any]) -> bytes:
    return f"{record['kafka']}/{record['broker']}".encode()


TOPICS = declare(
    JournalTopic(
        "directories", "logdirs/schemas/directories.avsc", key=_broker, form="logdirs.reconciler:directories_of"
    ),
    JournalTopic("changes", "logdirs/schemas/changes.avsc", key=_broker, form="logdirs.executor:ours_of"),
)
DIRECTORIES, CHANGES = (topic.name for topic in TOPICS)
