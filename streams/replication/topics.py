"""The journal's topics of the replication stream."""

from trueup.streams.journal.topic import SETTING, JournalTopic, Record, declare, name_of

_NEW = {"cleanup.policy": "delete", "retention.ms": "600000", "segment.ms": "600000"}
"""For records that are read only while they are new."""


def _log(record: Record) -> bytes:
    return f"{record['link']}/{record['topic']}-{record['partition']}".encode()


TOPICS = declare(
    JournalTopic("links", "replication/schemas/copy.avsc", key=_log, form="replication.links.checkpoints:copy_of"),
    JournalTopic(
        "offsets",
        "replication/schemas/offsets.avsc",
        form="replication.links.checkpoints:part_of",
        key=lambda record: b"%s/%d" % (_log(record), record["part"]),
    ),
    JournalTopic("memory", SETTING, key=name_of, form="replication.links.memory:remembered"),
    JournalTopic(
        "reports",
        "replication/schemas/report.avsc",
        configs=_NEW,
        form="replication.leases:message_of",
        ordered=False,  # the clocks of workers differ; the receiver takes only the next report of an attempt
        key=lambda record: f"{record['link']}/{record['part']}".encode(),
    ),
)
LINKS, OFFSETS, MEMORY, REPORTS = (topic.name for topic in TOPICS)
