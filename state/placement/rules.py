"""The rules of placement, as `trueup explain` prints them.

Findings store a rule as its code, the index in the table: append, never reorder.
"""

from trueup.state.common.rules import Rule, Rules, Verdict

_COPY = " With placement.executor copy the verdict is drifted: Trueup copies its replicas to other bookies."
_T, _D, _B, _U = Verdict.TRUE, Verdict.DRIFTED, Verdict.BLOCKED, Verdict.UNKNOWN

RULES = Rules(
    [
        Rule(
            "placement.adheres",
            _T,
            "every fragment adheres",
            "Every window of write-quorum bookies on the ring of every fragment spans enough racks, and every member "
            "is live.",
            "No action. The loss of a member, a new rack map or a different minNumRacksPerWriteQuorum changes the "
            "verdict.",
        ),
        Rule(
            "placement.gone",
            _T,
            "the ledger was deleted",
            "The metadata znode of the ledger does not exist, so there is nothing to place.",
            "No action. The ledger is removed from the findings.",
        ),
        Rule(
            "placement.open",
            _T,
            "open, and placed correctly",
            "The ledger is open or in recovery, every member is live and every window spans enough racks.",
            "No action. The ledger is judged again when its writer or a recovery closes it.",
        ),
        Rule(
            "placement.lost-member",
            _D,
            "a member is lost and can be replaced",
            "A closed ledger names a bookie that has been neither writable nor read-only for longer than "
            "placement.grace_s. Every entry of that fragment still has a live replica, and BookKeeper's replaceBookie "
            "can select a replacement. A fragment without entries also counts: only its metadata must change. Entries "
            "of another fragment may have no live replica: the finding then has 0 copies, and its rule is "
            "placement.all-copies-lost after the repair.",
            "The ledger is marked under-replicated and a worker copies it. The replacement need not adhere: BookKeeper "
            "restores the replicas first and the placement later, and Trueup then judges the racks again. If the "
            "bookie returns, the ledger is true.",
        ),
        Rule(
            "placement.too-few-racks",
            _D,
            "a write quorum spans too few racks",
            "A window of write-quorum bookies on the ring spans fewer racks than min(Qw, minNumRacksPerWriteQuorum). "
            "Every member is live, and BookKeeper's replacement algorithm can reach an ensemble that adheres. Windows "
            "without entries also count: BookKeeper's policy receives the ensemble and not the entries.",
            "The ledger is marked without naming a bookie; a worker of BookKeeper 4.16 or later with "
            "repairedPlacementPolicyNotAdheringBookieEnabled moves replicas. If BookKeeper selects bookies randomly, "
            "several attempts may be necessary; the evidence shows this. While a daemon of cluster.autorecovery is "
            "older, the ledger is not marked: the older worker would remove the mark and change nothing.",
        ),
        Rule(
            "placement.read-only-member",
            _D,
            "does not adhere only because a member is read-only",
            "BookKeeper's policy considers only writable bookies: a read-only member does not contribute its rack, and "
            "with its rack the ledger would adhere. The data is safe and readable. The usual cause is a full disk.",
            "The ledger is marked and its replica moves off the read-only bookie. If the bookie becomes writable "
            "first, the ledger is true again and the mark is withdrawn.",
        ),
        Rule(
            "placement.default-rack",
            _D,
            "a member is in the default rack, which is not allowed",
            "enforceMinNumRacksPerWriteQuorum is set and a writable member has no rack in the rack map "
            "(/default-rack). Otherwise the windows would span enough racks.",
            "The ledger is marked and the replica moves to a bookie with a rack. Alternatively assign a rack to the "
            "member in the rack map; this moves no data.",
        ),
        Rule(
            "placement.no-walk",
            _B,
            "an ensemble that adheres exists, but BookKeeper cannot reach it",
            "The writable bookies can form an ensemble in which every window adheres, but "
            "replaceToAdherePlacementPolicy replaces bookies greedily around the ring, keeps as many as possible, and "
            "fails from every start. Workers would retry a mark forever.",
            "The ledger is not marked. More writable bookies, or bookies in another rack, give the algorithm more "
            "choices." + _COPY,
        ),
        Rule(
            "placement.cannot-adhere",
            _B,
            "no ensemble of the writable bookies adheres",
            "With the available racks no ring of this size has enough racks in every window. For example, E=3 and Qw=2 "
            "on two racks cannot adhere: an odd ring cannot alternate between two racks. Workers would retry a mark "
            "forever.",
            "The ledger is not marked. Writable bookies in another rack or a lower minNumRacksPerWriteQuorum change "
            "the verdict.",
        ),
        Rule(
            "placement.too-few-bookies",
            _B,
            "no bookie can replace a lost member",
            "Members of a fragment are lost and each of its entries has a live replica, but the number of eligible "
            "writable bookies outside the ensemble is smaller than the number of lost members. BookKeeper replaces "
            "either all lost members of a fragment or none. With enforceMinNumRacksPerWriteQuorum, a bookie whose rack "
            "is unknown is not eligible.",
            "The ledger is not marked. The return of the lost bookie, or another writable bookie, changes the verdict.",
        ),
        Rule(
            "placement.all-copies-lost",
            _B,
            "some entries have no live replica",
            "Every bookie of a window on the ring is lost, so the entries that are striped to that window cannot be "
            "read. For a closed ledger with one fragment, windows without entries do not count.",
            "The ledger is not marked: a worker could not read the data. Only the return of one of these bookies "
            "helps; until then treat the entries as lost. If an ensemble was changed after fewer entries than bookies, "
            "read the ledger: if all entries are readable, `bookkeeper shell recover -l ID BOOKIE` repairs it.",
        ),
        Rule(
            "placement.refused-by-target",
            _B,
            "every bookie that could receive the replica refuses it",
            "All possible targets held this ledger before. A bookie that collected its replica answers "
            "LedgerFencedAndDeleted to new replicas for 7 days after the last request, or until it restarts. The time "
            "of the collection is not known: it is within gcOverreplicatedLedgerWaitTime (placement.collect_s) after "
            "the bookie was removed from the ensemble.",
            "The ledger is not marked. Another writable bookie changes the verdict, or time. Alternatively restart one "
            "of the targets and increase placement.restarted by one: Trueup cannot distinguish a restart from an "
            "expired session." + _COPY,
        ),
        Rule(
            "placement.open-waits-for-writer",
            _B,
            "open, and a member of the last fragment is lost",
            "The writer replaces a lost bookie itself when it writes the next entry. After "
            "openLedgerRereplicationGracePeriod a mark would cause a worker to fence the ledger, and an idle writer "
            "would lose it.",
            "The ledger is not marked. The next entry, the close of the ledger, or the return of the bookie changes "
            "the verdict.",
        ),
        Rule(
            "placement.open-older-fragment",
            _B,
            "open, and an older fragment has a lost member",
            "The ledger is open or in recovery. All members of its last fragment are live, but an earlier, complete "
            "fragment names a lost bookie. A mark would cause workers to also process the last fragment.",
            "The ledger is not marked. It is repaired when it is closed.",
        ),
        Rule(
            "placement.open-not-adhering",
            _B,
            "open, and a window spans too few racks",
            "The ledger is open or in recovery, and a fragment does not adhere. Workers move replicas of closed "
            "ledgers only.",
            "The ledger is not marked. It is repaired when it is closed.",
        ),
        Rule(
            "placement.pending-member",
            _B,
            "a member is unavailable within the grace period, and the repair depends on it",
            "The ledger needs repair, and another member has been unavailable for less than placement.grace_s. A "
            "worker would also copy the data of that member, or could not read the only live replica.",
            "The ledger is not marked until the bookie returns or the grace period ends.",
        ),
        Rule(
            "placement.odd-rack-depth",
            _B,
            "racks differ in depth, and the ensemble does not adhere for each of them",
            "Writable bookies have racks of different depths (/a and /a/b), or the rack of a member has another depth. "
            "BookKeeper uses only bookies with the depth of the bookie that joined first, which cannot be observed and "
            "may differ between processes. All other bookies do not contribute a rack.",
            "The ledger is not marked. Assign racks of the same depth to all bookies, then restart the processes that "
            "cache the old rack map.",
        ),
        Rule(
            "placement.unreadable",
            _U,
            "the metadata cannot be read",
            "The znode of the ledger contains bytes that cannot be decoded, an unknown state, or no bookies.",
            "The ledger is not marked. The finding names the znode and the byte; repair or remove the znode.",
        ),
        Rule(
            "placement.unknown-bookie",
            _U,
            "the metadata name an unregistered bookie",
            "A member has neither a cookie nor a registration, and had none earlier. Either it is so new that Trueup "
            "has read the ledger before the list of bookies, or its cookie was removed long ago.",
            "The ledger is not marked until the bookie is observed, or has not been found for the whole grace period.",
        ),
        Rule(
            "placement.unknown-rack",
            _U,
            "the rack of a bookie on which the verdict depends is unknown",
            "A member, or a possible replacement, is writable and its rack is unknown: racks.script failed, was too "
            "slow or returned something other than a location, or Pulsar's znode or the bookie's registration could "
            "not be read, and no earlier result exists. Replicas of lost bookies are repaired nevertheless, unless "
            "enforceMinNumRacksPerWriteQuorum is set and too few bookies have a known rack "
            "(placement.too-few-bookies).",
            "The ledger is not marked for its racks. The source racks or the problems of `trueup status` show the "
            "error; Trueup reads rack map and registrations again by itself.",
        ),
        Rule(
            "placement.outside-isolation-group",
            _B,
            "a member is outside the isolation groups of the ledger",
            "Pulsar's IsolatedBookieEnsemblePlacementPolicy would not select this member today: it is in none of the "
            "ledger's primary groups, and enough of their bookies are writable that neither the secondary groups nor "
            "bookies of no group are allowed. The groups are those in the ledger's custom metadata, otherwise "
            "placement.groups. The usual cause is a repair by workers that ignore groups. BookKeeper's own check of "
            "the placement does not consider groups.",
            "The ledger is not marked: workers do not move replicas back into a group. The finding ends when the "
            "ledger is deleted, or the rack map lists the member in one of its groups." + _COPY,
        ),
        Rule(
            "placement.leaves-isolation-group",
            _B,
            "a repair could move a replica out of the isolation groups",
            "The ledger needs a repair, and a writable bookie outside its isolation groups could receive the replica. "
            "Workers ignore groups when they move replicas for the sake of racks, and also when they replace a lost "
            "bookie, unless they use Pulsar's class with isolationBookieGroups.",
            "The ledger is not marked. The return of the lost bookie changes the verdict. If the workers are "
            "configured with Pulsar's class, set placement.workers_isolate. If replicas matter more than groups, set "
            "placement.leave_isolation; the ledger is then repaired, and reported as outside its groups." + _COPY,
        ),
        Rule(
            "placement.unknown-isolation-group",
            _U,
            "the isolation groups of the ledger are not known",
            "The custom metadata of the ledger contain isolation groups, and one of these holds: placement.policy is "
            "not isolation; Pulsar's znode /bookies could not be read yet; the metadata name a policy without class or "
            "properties, for which Pulsar's class fails.",
            "The ledger is not marked. Set placement.policy: isolation and racks.source: pulsar. For unreadable "
            "metadata, the evidence shows them.",
        ),
        Rule(
            "placement.too-few-regions",
            _B,
            "the ensemble breaks what RegionAwareEnsemblePlacementPolicy guarantees",
            "placement.policy is region. With the bookies of now, the clients would form no such ensemble: it spans "
            "too few regions for Qa, misses a region of placement.regions, or has too few racks. The evidence names "
            "the condition. BookKeeper's own check of the placement answers for every ensemble that it adheres.",
            "The ledger is not marked: workers do not move replicas under this policy, and would remove the mark. "
            "Replicas of lost bookies are repaired. More writable bookies in the missing region do not change a closed "
            "ledger; rewrite it, or accept the finding." + _COPY,
        ),
        Rule(
            "placement.too-few-zones",
            _B,
            "the ensemble does not adhere to ZoneawareEnsemblePlacementPolicy",
            "placement.policy is zone. A write quorum spans fewer zones than minNumZonesPerWriteQuorum, members of one "
            "zone share their upgrade domain, a member has no location /zone/upgradeDomain, E is no multiple of Qw, or "
            "Qw is not above the minimum. The evidence names the condition. Lost and read-only members count with "
            "their location, as in BookKeeper.",
            "The ledger is not marked: workers cannot move replicas under this policy, and would try again forever. "
            "Replicas of lost bookies are repaired. Other locations in the rack map change the verdict; BookKeeper's "
            "clients read them only when they start." + _COPY,
        ),
        Rule(
            "placement.adheres-softly",
            _T,
            "placed as required, but not as desired",
            "placement.policy is zone, and a write quorum spans minNumZonesPerWriteQuorum zones, but fewer than "
            "desiredNumZonesPerWriteQuorum. Or placement.policy is region, and the ensemble breaks a condition that "
            "BookKeeper's clients do not guarantee for these bookies, for example because a region has a single rack. "
            "The evidence names the condition.",
            "No action. Other locations in the rack map, or other settings of the policy, change the verdict.",
        ),
        Rule(
            "placement.draining-member",
            _B,
            "a member is to be drained",
            "A closed ledger names a bookie of placement.drain. All its replicas are live, and it adheres or no "
            "ensemble of this size adheres. A ledger with another rule can also name the bookie: its repair has "
            "priority, and moves this replica as well.",
            "The ledger is not marked: BookKeeper's workers replace only lost bookies."
            + _COPY
            + " `trueup get drains` "
            "shows what is left on each bookie.",
        ),
        Rule(
            "placement.open-draining-member",
            _B,
            "open, and a member is to be drained",
            "The ledger is open or in recovery and names a bookie of placement.drain. Only its writer may change it.",
            "The ledger is not touched. It is copied when it is closed: its writer closes it when it rolls over or "
            "ends; for a topic of Pulsar, `pulsar-admin topics unload TOPIC` closes it.",
        ),
    ]
)

DAMAGE_RULES = Rules(
    [
        Rule(
            "placement.replica-damaged",
            _B,
            "a replica on a live bookie is missing or damaged",
            "A reader of topics reported that entries are missing on a bookie of their write set, or have a wrong "
            "digest, and Trueup's own read of that bookie found the same. At most 64 entries of the reported range are "
            "read. The reader received the entries from another bookie. BookKeeper's metadata still count this replica "
            "as a copy.",
            "Trueup changes nothing: a mark makes workers replace bookies that are lost, and this one responds. Check "
            "its disks. `bookkeeper shell recover -l ID BOOKIE` copies the ledger from the other bookies to a new one. "
            "Trueup reads the replica again every 10 minutes and drops the finding when the entries are intact, the "
            "bookie is not in their write set any more, or the ledger is deleted.",
        ),
        Rule(
            "placement.replica-reported",
            _U,
            "a replica is reported as damaged, and Trueup has not read it yet",
            "A reader of topics reported missing or damaged entries. Anyone who reaches the API can send such a "
            "report, so it is no proof. Trueup reads the entries from that bookie itself; the detail of the finding "
            "contains the reason if the bookie or ZooKeeper did not respond.",
            "No action. The read is repeated every minute. It confirms the damage, or the report is dropped. At most "
            "1,000 replicas are remembered; the oldest unconfirmed reports are dropped first.",
        ),
    ]
)
"""Rules of replicas that readers reported; they are not stored with the findings about ledgers."""
