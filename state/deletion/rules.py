"""Rules of deletion: verdicts on ledgers that their owner does not reference, and the possible actions."""

from trueup.state.common.rules import Rule, Rules, Verdict
from trueup.state.deletion.orphan_objects import FORGOTTEN, LOST, REPLACED, UNOWNED

_D, _B, _U = Verdict.DRIFTED, Verdict.BLOCKED, Verdict.UNKNOWN
NOTHING_DONE = "Nothing is deleted. "
PERSON = (
    "Once the objects are older than deletion.grace_s, they wait for `trueup approve`, also in mode enforce. "
    "Objects that become unreferenced after the first listing of a run wait for that whole time. After the approval, "
    "the owner is read again, objects are deleted and multipart uploads aborted, and each is looked up until it is "
    "gone. It cannot be undone."
)
DROPPED = "deletion.dropped"
"""The only rule for ledgers that are still in their owner's list."""

LEAK_RULES = Rules(
    [
        Rule(
            "deletion.forgotten",
            _D,
            "the owner lists later ledgers and not this one",
            "The ledger names a managed ledger as its owner. The owner's node can be read, does not list the ledger, "
            "and lists a ledger with a higher id. Ledgers are listed in order of their creation, so this ledger was "
            "removed from the list or will never be added: a broker removes ledgers from its list first, deletes them "
            "afterwards, and loses the pending deletions when it stops.",
            "After deletion.grace_s and a second check with the same result, the ledger is deleted by one ZooKeeper "
            "transaction that succeeds only if neither the owner nor the ledger changed. It cannot be undone.",
        ),
        Rule(
            "deletion.forgotten-empty",
            _D,
            "an empty ledger that was never listed, and later ledgers are listed",
            "The same for a closed ledger without entries: it was created while its topic was being closed, or was "
            "replaced immediately. It contains no data.",
            "It is deleted in the same way as a forgotten ledger.",
        ),
        Rule(
            "deletion.not-superseded",
            _B,
            "not listed, and no later ledger is listed",
            "The owner lists no ledger with a higher id. A ledger that was just created looks the same until its owner "
            "lists it, and there is no upper limit for that time.",
            NOTHING_DONE + "The next rollover of the topic decides: either this ledger is listed or a later one is.",
        ),
        Rule(
            "deletion.owner-gone",
            _B,
            "the managed ledger does not exist",
            "The ledger names an owner that has no node. Either the topic was deleted and the ledger was left behind, "
            "or the owner is in another cluster that shares this BookKeeper, or its metadata are being migrated.",
            NOTHING_DONE + "If the topic will not return, delete the ledger with `bookkeeper shell deleteledger`.",
        ),
        Rule(
            "deletion.owner-unreadable",
            _U,
            "a node of the owner cannot be read",
            "The managed ledger or one of its cursors contains bytes that cannot be decoded, its list was emptied, or "
            "the permission to read it or a directory above it is missing. It may reference the ledger.",
            NOTHING_DONE
            + "`trueup describe ledger ID` names the node and the byte; inspect the node with Pulsar's tools.",
        ),
        Rule(
            "deletion.cursor",
            _B,
            "a cursor's ledger that no cursor references",
            "The ledger was created to store the position of a subscription, and the node of that cursor references "
            "another ledger or does not exist. A broker replaces this ledger often and attempts to delete the old one "
            "once.",
            NOTHING_DONE + "The ledger is reported with its size.",
        ),
        Rule(
            "deletion.compacted",
            _B,
            "a compacted ledger without an observed reference",
            "The result of a topic's compaction is referenced by a property of the cursor __compaction. The property "
            "may be in a cursor ledger while the node has an older value, so the current compacted ledger may appear "
            "unreferenced.",
            NOTHING_DONE + "`pulsar-admin topics stats-internal` shows the current compacted ledger.",
        ),
        Rule(
            "deletion.schema",
            _B,
            "a schema's ledger that its locator does not list",
            "A schema is written to its ledger before the locator is changed. If the change fails, or the schema was "
            "deleted, the ledger remains.",
            NOTHING_DONE + "The ledger is reported with its size.",
        ),
        Rule(
            "deletion.delayed",
            _B,
            "a snapshot of delayed messages that no cursor references",
            "The ledger contains a part of the index of delayed messages, and no cursor's properties reference it.",
            NOTHING_DONE + "The ledger is reported with its size.",
        ),
        Rule(
            "deletion.unknown-owner",
            _B,
            "the ledger names no known owner",
            "The custom metadata of the ledger are not Pulsar's, name an unknown component, or are not text. The "
            "ledger may belong to another application.",
            NOTHING_DONE + "Contact the owner of the application that wrote the ledger.",
        ),
        Rule(
            DROPPED,
            _D,
            "its owner records it as deleted, and it still exists",
            "The ledger was offloaded to tiered storage, and its owner recorded that the copy in BookKeeper is "
            "deleted. A broker records this before it deletes the ledger, and never retries. Consumers already read "
            "from tiered storage.",
            "After deletion.grace_s and a second check with the same result, the copy in tiered storage is verified: "
            "both objects exist and contain every entry of the ledger's metadata. The copy is verified again "
            "immediately before the ledger is deleted in the same way as a forgotten ledger. While the copy is "
            "missing, incomplete, unreadable or in no store of stores, the deletion is blocked and shows the reason. "
            "It cannot be undone.",
        ),
        Rule(
            "deletion.missing",
            _B,
            "its owner lists it, and the ledger does not exist",
            "A managed ledger lists a ledger that has no metadata and no complete copy in tiered storage. Its messages "
            "cannot be read: consumers stop there, or skip it if autoSkipNonRecoverableData is set. The ledger is "
            "reported after deletion.missing_s, because a broker that deletes a topic deletes its ledgers before the "
            "list.",
            "Trueup cannot repair this. Find out what deleted the ledger; bookies may hold its entries until they "
            "collect them.",
        ),
        Rule(
            "deletion.ordered",
            _D,
            "an operator ordered the deletion",
            "`trueup delete ledger` named a closed ledger of a BookKeeper cluster whose owners Trueup does not know "
            "(deletion.owners: operator). Trueup cannot verify that the ledger is not in use.",
            "After a second check the ledger is deleted by one ZooKeeper transaction that succeeds only if its "
            "metadata did not change. It cannot be undone.",
        ),
        Rule(
            FORGOTTEN,
            _D,
            "objects of a ledger that its owner does not list",
            "Objects in tiered storage name this managed ledger as their owner. It can be read, and neither lists the "
            "ledger nor references the objects. A broker removes a ledger from its list first, deletes its objects "
            "afterwards, and gives up after ten attempts.",
            PERSON,
        ),
        Rule(
            REPLACED,
            _D,
            "objects of a ledger for which the owner references other objects, or none",
            "The managed ledger lists the ledger, with a copy of another UUID or without a copy. An owner records the "
            "UUID before anything is sent and uses a new one for each attempt, so these objects belong to an attempt "
            "that did not complete.",
            PERSON,
        ),
        Rule(
            UNOWNED,
            _B,
            "objects without an existing, known owner",
            "The objects name no managed ledger, or several, or one that has no node; or they name another Pulsar "
            "cluster than stores.NAME.cluster, or that setting is empty; or no owner lists the ledger of a multipart "
            "upload.",
            NOTHING_DONE + "If you know their owner, delete them with the tools of the store.",
        ),
        Rule(
            LOST,
            _B,
            "its owner references a copy in tiered storage that does not exist",
            "The managed ledger references a complete copy in this bucket, and an object of the copy is missing. "
            "Trueup checked the object itself and not only the listing, twice within deletion.missing_s or more. "
            "Consumers that read from tiered storage stop there.",
            "Trueup cannot repair this. An older version or a backup of the bucket may contain the object.",
        ),
    ]
)
