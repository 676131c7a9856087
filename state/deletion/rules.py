"""Rules of deletion: what Trueup says of a ledger that its owner forgot, and what may be done about it."""

from trueup.state.common.rules import Rule, Rules, Verdict
from trueup.state.deletion.orphan_objects import FORGOTTEN, LOST, REPLACED, UNOWNED

_D, _B, _U = Verdict.DRIFTED, Verdict.BLOCKED, Verdict.UNKNOWN
NOTHING_DONE = "Nothing is deleted. "
PERSON = (
    "Once they are older than deletion.grace_s they wait for `trueup approve`, in mode enforce too. Then the owner is "
    "read once more, objects are deleted and uploads given up, and each is looked for until it is gone. It cannot be "
    "undone."
)
DROPPED = "deletion.dropped"
"""Of the one rule whose ledgers are still on their owner's list."""

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
        DROPPED, _D, "its owner counts it as deleted, and it is still there",
        "The ledger was copied to tiered storage, and its owner noted that the copy in BookKeeper is deleted. A broker "
        "notes that before it deletes, and never tries again. Readers go to tiered storage already.",
        "After deletion.grace_s, and a second look that finds the same, the copy in tiered storage is verified: both "
        "objects are there, and hold every entry that the ledger's metadata say it has. It is looked at again right "
        "before the ledger is deleted as a forgotten one is. While the copy is missing, short, unreadable or in no "
        "store of stores:, the deletion is blocked and says why. It cannot be undone.",
    ),
    Rule(
        "deletion.missing", _B, "its owner lists it, and there is no such ledger",
        "A managed ledger lists a ledger that has no metadata and of which it knows no complete copy in tiered "
        "storage. Its messages cannot be read: readers stop there, or skip it where autoSkipNonRecoverableData is on. "
        "It is reported once it has been so for deletion.missing_s: a broker that deletes a topic deletes its ledgers "
        "before the list of them.",
        "Nothing can be done from outside. Look for who deleted it; bookies may hold its entries until they collect.",
    ),
    Rule(
        "deletion.ordered", _D, "an operator ordered it",
        "`trueup delete ledger` named a closed ledger of a BookKeeper cluster whose owners Trueup does not know "
        "(deletion.owners: operator). That nobody needs it is the operator's word alone.",
        "At a second look the ledger is deleted by one ZooKeeper transaction that holds only if its metadata did not "
        "change. It cannot be undone.",
    ),
    Rule(
        FORGOTTEN, _D, "objects of a ledger that its owner does not list",
        "Objects in tiered storage name this managed ledger as theirs. It can be read, and neither lists the ledger "
        "nor points to them. A broker takes a ledger off its list first and deletes its objects after, and gives up "
        "after ten times.",
        PERSON,
    ),
    Rule(
        REPLACED, _D, "objects of a ledger whose owner points to others, or to none",
        "The managed ledger lists the ledger, with a copy of another UUID or without any. An owner notes the UUID "
        "before anything is sent and takes a new one for each attempt, so these are of one that came to nothing.",
        PERSON,
    ),
    Rule(
        UNOWNED, _B, "objects whose owner is not there, or not known",
        "They name no managed ledger, or several, or one that has no node; or another Pulsar cluster than that of "
        "stores.NAME.cluster, or that key is empty; or, of an upload, no owner lists its ledger.",
        NOTHING_DONE + "Whoever knows whose they are deletes them with the tools of the store.",
    ),
    Rule(
        LOST, _B, "its owner counts on a copy in tiered storage that is not there",
        "The managed ledger notes a complete copy in this bucket, and an object of it is not there, which was looked "
        "at itself and not only in a listing, twice within deletion.missing_s or more. Readers that are sent to tiered "
        "storage stop there.",
        "Nothing can be done from outside. A version or a backup of the bucket may still have it.",
    ),
])  # fmt: skip
