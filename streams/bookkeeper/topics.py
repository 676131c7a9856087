"""The journal's topics with observations of BookKeeper."""

from trueup.streams.journal.topic import IN_BULK, SETTING, JournalTopic, declare, name_of

TOPOLOGY_KEY = b"topology"
TOPICS = declare(
    JournalTopic("reached", SETTING, observed=True, key=name_of, form="bookkeeper.reached:observed"),
    JournalTopic(
        "ledgers",
        "bookkeeper/schemas/ledger.avsc",
        partitioned=True,
        observed=True,
        columns="bookkeeper.codec:ledgers_of",
        unsigned=IN_BULK,
    ),
    JournalTopic(
        "topology",
        "bookkeeper/schemas/topology.avsc",
        observed=True,
        key=lambda _: TOPOLOGY_KEY,
        form="bookkeeper.codec:topology_of",
    ),
)
REACHED, LEDGERS, TOPOLOGY = (topic.name for topic in TOPICS)
