"""The journal's topics of the deletion stream."""

from trueup.streams.journal.topic import IN_BULK, JournalTopic, declare, ledger_of

TOPICS = declare(
    JournalTopic(
        "owners",
        "deletion/schemas/owner.avsc",
        observed=True,
        key=lambda record: record["path"].encode(),
        form="deletion.owners:node_of",
        unsigned=IN_BULK,
    ),
    *(
        JournalTopic(
            name, "deletion/schemas/deletion.avsc", observed=True, key=ledger_of, form="deletion.reconciler:deletion_of"
        )
        for name in ("deletions", "orphans")
    ),
)
OWNERS, DELETIONS, ORPHANS = (topic.name for topic in TOPICS)
