"""Reads a sample of entries from one bookie only, to verify that its replica of a ledger is intact. Never fences."""

from bisect import bisect_right

from trueup.connectors.bookkeeper.bookie.bulk_reads import ReadConnection
from trueup.connectors.bookkeeper.bookie.codes import Code
from trueup.connectors.bookkeeper.bookie.entries import DamagedEntry, Digest
from trueup.connectors.bookkeeper.bookie.striping import write_set
from trueup.state.bookkeeper.observations import LedgerRecord, LedgerState
from trueup.state.common.errors import Refused
from trueup.state.placement.damage import ReplicaRange, ReplicaRead

MOST_READ = 64
"""Maximum number of entries that one check reads."""


def check(record: LedgerRecord, digest: Digest, reads: ReadConnection, replica: ReplicaRange) -> ReplicaRead:
    """Read entries of a replica from its bookie: the first, the last, and others between them. Entries of a ledger that
    is not closed may arrive later, so they are never missing. Raises `Refused` if the bookie should not hold any of
    them, `Retry` if it does not respond, and `Stop` if it refuses to read."""
    entries = sampled(record, replica)
    if not entries:
        where = f"entries {replica.first} to {replica.last} of ledger {replica.ledger} in a write set"
        raise Refused(f"{where} with bookie {replica.bookie}", "none", "nothing: the bookie does not hold them")
    missing, damaged = list[int](), list[int]()
    for entry, code, stored in reads.some(replica.ledger, entries):
        if code in (Code.NO_LEDGER, Code.NO_ENTRY):
            missing.append(entry)
        elif code:
            raise reads.failure(code, entry)
        else:
            try:
                digest.check(replica.ledger, entry, stored)
            except DamagedEntry:
                damaged.append(entry)
    lost = sorted(missing) if record["state"] == LedgerState.CLOSED else []
    return ReplicaRead(len(entries), tuple(lost), tuple(sorted(damaged)))


def sampled(record: LedgerRecord, replica: ReplicaRange) -> list[int]:
    """At most `MOST_READ` entries of the range that the bookie should hold according to the metadata."""
    last = replica.last
    if record["state"] == LedgerState.CLOSED:
        last = min(last, record["last_entry"])
    if last < replica.first:
        return []
    count = min(MOST_READ, last - replica.first + 1)
    # Integers: entries of an id above 2^53 have no exact floating-point value.
    samples = [replica.first + (last - replica.first) * at // max(1, count - 1) for at in range(count)]
    starts = [fragment["first_entry"] for fragment in record["fragments"]]
    return [entry for entry in samples if replica.bookie in _members(record, starts, entry)]


def _members(record: LedgerRecord, starts: list[int], entry: int) -> list[str]:
    """The write set of an entry. ``starts``: the first entry of each fragment."""
    bookies = record["fragments"][max(0, bisect_right(starts, entry) - 1)]["bookies"]
    return [bookies[at] for at in write_set(entry, len(bookies), record["quorum"])]
