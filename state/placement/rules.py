"""Why a verdict is what it is: every rule by id, as `trueup explain` prints it.

Findings carry a rule as its code, the place in the table: append, never reorder.
"""

from trueup.state.common.rules import Rule, Rules, Verdict

_T, _D, _B, _U = Verdict.TRUE, Verdict.DRIFTED, Verdict.BLOCKED, Verdict.UNKNOWN

RULES = Rules([
    Rule(
        "placement.adheres", _T, "every fragment adheres",
        "Every window of write-quorum bookies on the ring of every fragment spans enough racks; every member lives.",
        "Nothing is done. The loss of a member, a new rack map or another minNumRacksPerWriteQuorum would change it.",
    ),
    Rule(
        "placement.gone", _T, "the ledger was deleted",
        "Its metadata znode is gone, so nothing is left to place.",
        "Nothing is done; the ledger leaves the findings.",
    ),
    Rule(
        "placement.open", _T, "open, and as it should be",
        "The ledger is open or in recovery, every member lives and every window spans enough racks.",
        "Nothing is done. It is judged again as a closed ledger once its writer, or a recovery, closes it.",
    ),
    Rule(
        "placement.lost-member", _D, "a member is lost and can be replaced",
        "A closed ledger names a bookie that has been neither writable nor read-only for longer than the grace. Every "
        "entry still has a live copy, and BookKeeper's replaceBookie has a bookie to put in its place. "
        "An entry range without entries counts too: only its metadata has to change.",
        "The ledger is marked under-replicated and a worker copies it. The new place need not adhere: BookKeeper takes "
        "data first and racks later, and Trueup judges the racks afresh. The return of the bookie makes it true.",
    ),
    Rule(
        "placement.too-few-racks", _D, "a write quorum stands on too few racks",
        "Some window of write-quorum bookies on the ring spans fewer racks than min(Qw, minNumRacksPerWriteQuorum). "
        "Every member lives, and BookKeeper's walk over the ring can reach an ensemble that adheres. Windows that no "
        "entry was ever written to count too: BookKeeper's rule is given the ensemble and not the entries.",
        "The ledger is marked, no bookie named; a worker with repairedPlacementPolicyNotAdheringBookieEnabled moves "
        "copies. Where the walk chooses by chance it may need more than one attempt; the evidence says so.",
    ),
    Rule(
        "placement.read-only-member", _D, "fails only because a member is read-only",
        "BookKeeper's rule knows writable bookies only: a read-only member gives no rack, and with its rack the ledger "
        "would adhere. The data is safe and readable; a full disk is the usual cause.",
        "The ledger is marked and its copy moves off the read-only bookie. If the bookie turns writable first, the "
        "verdict is true again and the mark is withdrawn.",
    ),
    Rule(
        "placement.default-rack", _D, "a member stands in the default rack, which is forbidden",
        "enforceMinNumRacksPerWriteQuorum holds and a writable member has no rack in the map (/default-rack). "
        "The windows would span enough racks otherwise.",
        "The ledger is marked and the copy moves to a bookie with a rack. A rack for the member in the map ends it "
        "too, and moves no data.",
    ),
    Rule(
        "placement.no-walk", _B, "a good arrangement exists, but BookKeeper cannot get there",
        "The writable bookies could be arranged so that every window adheres, but replaceToAdherePlacementPolicy goes "
        "round the ring greedily, keeps what it can, and fails from every start. A mark would be retried for ever.",
        "Nothing is marked. More writable bookies, or bookies in another rack, give the walk more choices.",
    ),
    Rule(
        "placement.cannot-adhere", _B, "no arrangement of the writable bookies adheres",
        "With the racks at hand no ring of this size has enough racks in every window: E=3/Qw=2 on two racks is an odd "
        "ring to be coloured with two colours. A mark would be retried for ever.",
        "Nothing is marked. Writable bookies in another rack change it; so does a lower minNumRacksPerWriteQuorum.",
    ),
    Rule(
        "placement.too-few-bookies", _B, "no bookie can take the place of a lost member",
        "Members are lost, live copies exist, and fewer writable bookies outside the ensemble may be chosen than "
        "members are lost. BookKeeper replaces all lost members of a fragment or none.",
        "Nothing is marked. The return of the lost bookie, or another writable bookie, changes it.",
    ),
    Rule(
        "placement.all-copies-lost", _B, "some entries have no live copy",
        "Every bookie of some window on the ring is lost, so the entries striped to that window cannot be read. "
        "Windows that a closed ledger of one fragment has no entry on do not count.",
        "Nothing is marked: a worker could read nothing. Only the return of one of these bookies helps; "
        "until then treat the entries as lost. Where an ensemble was changed after fewer entries than bookies, read "
        "the ledger: if all of it is there, `bookkeeper shell recover -l ID BOOKIE` repairs it.",
    ),
    Rule(
        "placement.refused-by-target", _B, "every bookie that could take the copy refuses it",
        "The only possible targets held this ledger once. A bookie that collected its copy answers "
        "LedgerFencedAndDeleted to new copies for 7 days after it was last asked, or until it restarts. When it "
        "collected is not known: within gcOverreplicatedLedgerWaitTime (placement.collect_s) of being dropped.",
        "Nothing is marked. Another writable bookie changes it, or time. Or restart one of the targets and raise "
        "placement.restarted by one: from outside, a restart and an expired session look alike.",
    ),
    Rule(
        "placement.open-waits-for-writer", _B, "open, and a member of the tail is lost",
        "The writer replaces a lost bookie itself at its next entry. A mark would make a worker fence the ledger after "
        "openLedgerRereplicationGracePeriod and take it from an idle writer.",
        "Nothing is marked. The writer's next entry, its closing the ledger, or the return of the bookie changes it.",
    ),
    Rule(
        "placement.open-older-fragment", _B, "open, and an older fragment has a lost member",
        "The ledger is open or in recovery; its tail is whole, but a fragment that is already complete names a lost "
        "bookie. A mark would also put the tail under a worker's eyes.",
        "Nothing is marked. It is repaired as soon as the ledger is closed.",
    ),
    Rule(
        "placement.open-not-adhering", _B, "open, and a window spans too few racks",
        "The ledger is open or in recovery and a fragment does not adhere. Workers move copies of closed ledgers only.",
        "Nothing is marked. It is repaired as soon as the ledger is closed.",
    ),
    Rule(
        "placement.mass-loss-held", _B, "a member went missing together with too many others",
        "More than placement.hold_share of the bookies went at once. That is a rack, a switch or our own eyes, and "
        "copying everything elsewhere may be the worst answer.",
        "Nothing is marked until enough bookies return or an operator raises placement.release_hold.",
    ),
    Rule(
        "placement.pending-member", _B, "a member went a moment ago, and the repair would lean on it",
        "The ledger needs repair, and a member has been away for less than the grace. A worker would copy that "
        "member's data too, or could not read the only copy left.",
        "Nothing is marked until the bookie returns or the grace passes.",
    ),
    Rule(
        "placement.odd-rack-depth", _B, "racks differ in depth, and the ensemble does not adhere by each of them",
        "Writable bookies have racks of several depths (/a and /a/b), or a member's rack has another depth. BookKeeper "
        "knows only bookies of the depth that joined first, which cannot be observed and may differ from process to "
        "process; the others give no rack.",
        "Nothing is marked. Give every bookie a rack of the same depth, then restart what caches the old map.",
    ),
    Rule(
        "placement.unreadable", _U, "the metadata cannot be read",
        "The ledger's znode holds bytes that do not decode, a state nobody knows, or no bookies.",
        "Nothing is marked. The finding names the znode and the byte; repair or remove it.",
    ),
    Rule(
        "placement.unknown-bookie", _U, "the metadata names a bookie that we have not seen",
        "A member has neither cookie nor registration, now or earlier. It may be so new that the list of bookies is "
        "behind the ledgers, or so old that its cookie was removed.",
        "Nothing is marked until the bookie is seen, or has been looked for in vain for the whole grace.",
    ),
    Rule(
        "placement.unknown-rack", _U, "the rack map has not answered for a bookie that the verdict depends on",
        "A member, or a bookie that could take its place, is writable and its rack is not known: racks.script failed, "
        "was too slow or answered something else than a location, or Pulsar's znode could not be read, and no earlier "
        "answer exists. Copies of lost bookies are repaired all the same.",
        "Nothing is marked for the sake of racks. The source racks of `trueup status` has the error; the map is asked "
        "again by itself.",
    ),
])  # fmt: skip
