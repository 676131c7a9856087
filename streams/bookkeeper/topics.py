"""The journal's topics with observations of BookKeeper."""

from trueup.streams.journal.topic import SETTING, JournalTopic, declare

TOPICS = declare(
    JournalTopic("reached", SETTING, observed=True),
    JournalTopic("ledgers", "bookkeeper/schemas/ledger.avsc", partitioned=True, observed=True),
    JournalTopic("marks", "bookkeeper/schemas/mark.avsc", partitioned=True, observed=True),
    JournalTopic("topology", "bookkeeper/schemas/topology.avsc", observed=True),
)
REACHED, LEDGERS, MARKS, TOPOLOGY = (topic.name for topic in TOPICS)
