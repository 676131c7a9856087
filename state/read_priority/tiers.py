"""The tiers of a ledger: which one a broker opens (PIP-73, ManagedLedgerImpl.getLedgerHandle), and the order in which
Trueup's reader tries them.

A broker decides by the owner's record alone and does not fall back if that tier fails. Trueup's reader tries the
other tier.
"""

from enum import StrEnum
from typing import NamedTuple

from trueup.state.deletion.offloads import OffloadedCopy


class Tier(StrEnum):
    """A place that holds the entries of a ledger."""

    BOOKKEEPER = "bookkeeper"
    TIERED = "tiered"


class ReadPriority(StrEnum):
    """The tier to read first, with the values of PIP-73 (OffloadedReadPriority)."""

    BOOKKEEPER_FIRST = "bookkeeper-first"
    TIERED_STORAGE_FIRST = "tiered-storage-first"


class LedgerInfo(NamedTuple):
    """A ledger in the list of its topic (LedgerInfo of MLDataFormats.proto)."""

    ledger: int
    entries: int = 0
    """The number of entries, 0 for the open ledger."""
    size: int = 0
    """The size in bytes, 0 for the open ledger."""
    closed_ms: int = 0
    """The time of the close in ms since the epoch, 0 for the open ledger."""
    copy: OffloadedCopy | None = None
    """The record of the offload, None if the ledger was never offloaded."""
    dropped: bool = False
    """Whether the BookKeeper ledger counts as deleted."""
    offloaded_ms: int = 0
    """The time of the offload in ms since the epoch, 0 if none is recorded."""

    @property
    def complete(self) -> bool:
        """Whether the topic records a complete copy in tiered storage."""
        return self.copy is not None and self.copy.complete


def opened_by_broker(priority: ReadPriority, ledger: LedgerInfo) -> Tier:
    """The tier from which a broker opens a ledger that is not the open one."""
    if not ledger.complete:
        return Tier.BOOKKEEPER
    tiered = priority is ReadPriority.TIERED_STORAGE_FIRST or ledger.dropped
    return Tier.TIERED if tiered else Tier.BOOKKEEPER


def order(priority: ReadPriority, ledger: LedgerInfo) -> tuple[Tier, ...]:
    """The tiers to try, in order. The objects of an incomplete copy are not read. A BookKeeper ledger that counts as
    deleted is tried last: it may be deleted during the read."""
    if not ledger.complete:
        return (Tier.BOOKKEEPER,)
    if priority is ReadPriority.TIERED_STORAGE_FIRST or ledger.dropped:
        return Tier.TIERED, Tier.BOOKKEEPER
    return Tier.BOOKKEEPER, Tier.TIERED
