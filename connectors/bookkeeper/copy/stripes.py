"""Writes the entries that a bookie needs to take a place in a fragment, and reads all of them back from it.

The metadata are not changed here.
"""

from collections.abc import Iterable
from typing import NamedTuple

from trueup.connectors.bookkeeper.bookie.reader import Bookies
from trueup.connectors.bookkeeper.bookie.striping import EnsembleRange, held
from trueup.connectors.bookkeeper.copy.adds import AddConnection, AddedEntries
from trueup.connectors.bookkeeper.copy.ledger_source import SourceMetadata
from trueup.state.common.errors import Refused, Retry


class StripeCopy(NamedTuple):
    """The part of a fragment that one bookie gets."""

    piece: EnsembleRange
    position: int
    """The place in the ensemble that the bookie takes, from 0."""
    target: str
    """The id of the bookie."""


def copy(
    source: SourceMetadata,
    stripe: StripeCopy,
    entries: Iterable[tuple[int, memoryview]],
    bookies: Bookies,
    adds: AddConnection,
) -> AddedEntries:
    """Write a stripe. ``source`` was read under the lock of the ledger; ``entries`` are those of the stripe in stored
    form, verified; ``adds`` leads to the target.

    Raises `Refused` if the target is in an ensemble of the ledger, or if no bookie has one of the entries; errors of
    the reader; `Retry` if bookies do not respond, or the target does not return what it acknowledged.
    """
    record, ledger = source.record, source.record["ledger"]
    if any(stripe.target in fragment["bookies"] for fragment in record["fragments"]):
        raise Refused(f"a bookie without entries of ledger {ledger}", stripe.target, "choose another bookie")
    if stripe.piece.last > record["last_entry"]:
        raise Refused(f"an entry of ledger {ledger}", f"entry {stripe.piece.last}", "read the metadata again")
    written = adds.add(ledger, source.key, entries)
    verify(source, stripe, bookies)
    return written


def verify(source: SourceMetadata, stripe: StripeCopy, bookies: Bookies) -> None:
    """Read every entry of a stripe from its target. Raises `Retry` if one is missing or not returned, and
    `DamagedEntry`."""
    ledger, reads = source.record["ledger"], bookies.reads(stripe.target)
    entries = held(stripe.piece, stripe.position, source.record["quorum"])
    left = set(entries)
    for entry, code, stored in reads.some(ledger, entries):
        if code:
            raise Retry(f"entry {entry} of ledger {ledger}", str(reads.failure(code, entry)), "copy it again")
        source.digest.check(ledger, entry, stored)
        left.discard(entry)
    if left:
        raise Retry(f"entries of ledger {ledger} from bookie {stripe.target}", f"none for {min(left)}", "copy it again")
