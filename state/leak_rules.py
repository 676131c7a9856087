"""Rules of deletion: what Trueup says of a ledger that its owner forgot, and what may be done about it."""

from state.rules import Rule, Rules, Verdict

_D, _B, _U = Verdict.DRIFTED, Verdict.BLOCKED, Verdict.UNKNOWN
NOTHING_DONE = "Nothing is deleted. "

LEAK_RULES = Rules([
    Rule(
        "deletion.forgotten", _D, "the owner lists later ledgers and not this one",
        "The ledger names a managed ledger as its owner. The owner's node can be read, does not list the ledger, and "
        "lists one with a higher id. Ledgers are listed in the order in which they are created, so this one was listed "
        "and taken out, or never will be: a broker takes ledgers out of its list first, deletes them after, and "
        "forgets those that it could not delete when it stops.",
        "After deletion.grace_s, and a second look that finds the same, the ledger is deleted by one ZooKeeper "
        "transaction that holds only if neither the owner nor the ledger changed. It cannot be undone.",
    ),
    Rule(
        "deletion.forgotten-empty", _D, "an empty ledger that was never listed, and later ones are",
        "The same of a closed ledger without entries: it was created when its topic was being closed, or was replaced "
        "at once. There is nothing in it to lose.",
        "It is deleted as a forgotten one is.",
    ),
    Rule(
        "deletion.not-superseded", _B, "not listed, and nothing later is listed either",
        "The owner lists no ledger with a higher id. A ledger that was just created looks the same until its owner "
        "lists it, and there is no upper limit to how long that takes.",
        NOTHING_DONE + "The next rollover of the topic decides: either it is listed or a later one is.",
    ),
    Rule(
        "deletion.owner-gone", _B, "its managed ledger is not there",
        "The ledger names an owner that has no node. The topic was deleted and this ledger was left behind, or the "
        "owner is in another cluster that shares this BookKeeper, or its metadata are being moved.",
        NOTHING_DONE + "Whoever knows that the topic will not come back uses `bookkeeper shell deleteledger`.",
    ),
    Rule(
        "deletion.owner-unreadable", _U, "a node of its owner cannot be read",
        "The managed ledger or one of its cursors holds bytes that are not understood, or may not be read. What cannot "
        "be read may point to the ledger.",
        NOTHING_DONE + "`trueup describe ledger ID` names node and byte; look at it with Pulsar's own tools.",
    ),
    Rule(
        "deletion.cursor", _B, "a cursor's ledger that no cursor points to",
        "The ledger was made to hold the position of a subscription, and the node of that cursor points elsewhere or "
        "is gone. A broker replaces it often and tries to delete the old one once.",
        NOTHING_DONE + "It is reported, with its bytes.",
    ),
    Rule(
        "deletion.compacted", _B, "a compacted ledger that nothing is seen to point to",
        "What a topic's compaction produced is named by a property of the cursor __compaction, which may stand in a "
        "cursor ledger while the node still holds an older value. So the one that is in use may look forgotten.",
        NOTHING_DONE + "`pulsar-admin topics stats-internal` names the one in use.",
    ),
    Rule(
        "deletion.schema", _B, "a schema's ledger that its locator does not list",
        "A schema is written to its ledger before the locator is changed; where the change fails, or the schema was "
        "deleted, the ledger stays.",
        NOTHING_DONE + "It is reported, with its bytes.",
    ),
    Rule(
        "deletion.delayed", _B, "a snapshot of delayed messages that no cursor points to",
        "The ledger holds a part of the index of delayed messages, and no cursor's properties name it.",
        NOTHING_DONE + "It is reported, with its bytes.",
    ),
    Rule(
        "deletion.unknown-owner", _B, "it names no owner that is known",
        "Its custom metadata are not Pulsar's, name a component that is not known, or are not text: an application of "
        "its own may need it.",
        NOTHING_DONE + "Who wrote it has to know.",
    ),
    Rule(
        "deletion.dropped", _B, "its owner counts it as deleted, and it is still there",
        "The ledger was copied to tiered storage and its owner noted that the copy in BookKeeper is deleted, which is "
        "done before the deletion and never tried again.",
        NOTHING_DONE + "The copy in tiered storage would have to be verified first, which is not done yet.",
    ),
    Rule(
        "deletion.missing", _B, "its owner lists it, and there is no such ledger",
        "A managed ledger lists a ledger that has no metadata and of which it knows no complete copy in tiered "
        "storage. Its messages cannot be read: readers stop there, or skip it where autoSkipNonRecoverableData is on.",
        "Nothing can be done from outside. Look for who deleted it; bookies may hold its entries until they collect.",
    ),
])  # fmt: skip
