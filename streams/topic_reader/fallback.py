"""Reads a part of a ledger from the preferred tier, and from the other one wherever that fails."""

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

from trueup.connectors.bookkeeper.bookie.codes import NoSuchEntry
from trueup.connectors.bookkeeper.bookie.ledger_access import NoSuchMetadata
from trueup.connectors.pulsar.offload_read import NoSuchObject
from trueup.state.common.errors import BadBytes, Refused, Retry, Stop, TrueupError, Unknown
from trueup.state.read_priority.positions import LedgerRange
from trueup.state.read_priority.tiers import ReadPriority, Tier, order
from trueup.streams.topic_reader.sources import LedgerSource

T = TypeVar("T")


class ServedEntry(NamedTuple, Generic[T]):
    """The content of an entry, and the tier that served it."""

    entry: int
    content: T
    tier: Tier


class Fallback(NamedTuple):
    """A tier that could not serve an entry, and the reason."""

    ledger: int
    entry: int
    tier: Tier
    reason: str


class LostEntries(Stop):
    """No tier has an entry: each of them proved that it is missing or damaged."""

    whole = False
    """Whether no tier has any entry of the ledger."""


def read(
    part: LedgerRange,
    priority: ReadPriority,
    sources: Mapping[Tier, LedgerSource],
    decode: Callable[[int, memoryview], T],
    fell_back: Callable[[Fallback], None],
) -> Iterator[ServedEntry[T]]:
    """The entries of a part in order, without gaps. A tier that fails is tried again only if the other one fails at a
    later entry. ``decode`` is called with each entry and its payload; a tier whose bytes it refuses with a
    `TrueupError` has failed: objects in tiered storage have no digests of entries.

    Raises `LostEntries` if no tier has an entry, `Retry` if a tier that may have it does not respond or is an open
    ledger that does not show it yet, and `Stop` if a tier that may have it refuses access."""
    at, failed = part.first, dict[Tier, TrueupError]()
    tiers = order(priority, part.info)
    while len(failed) < len(tiers):
        tier = next(candidate for candidate in tiers if candidate not in failed)
        try:
            for entry, payload in sources[tier].read(part.info, at, part.last):
                yield ServedEntry(entry, decode(entry, payload), tier)
                at = entry + 1
                if failed:
                    failed.clear()
            if part.last is None or at > part.last or not part.confirmed:
                return
            raise _ended(part, at)
        except TrueupError as error:
            failed[tier] = error
            fell_back(Fallback(part.info.ledger, at, tier, str(error)))
    raise _lost(part, at, failed)


def _ended(part: LedgerRange, at: int) -> TrueupError:
    """The error for a tier that ends before entry ``at``. Bookies that respond may not know yet which entries of an
    open ledger are confirmed."""
    expected, found = f"entries up to {part.last} of ledger {part.info.ledger}", f"the end after {at - 1}"
    return NoSuchEntry(expected, found, _TODO) if part.info.closed_ms else Retry(expected, found, "read again later")


def _lost(part: LedgerRange, at: int, failed: Mapping[Tier, TrueupError]) -> TrueupError:
    """The error if no tier returns an entry. A tier that does not respond or refuses access may have it."""
    end = "its last entry" if part.last is None else f"entry {part.last}"
    expected = f"entries {at} to {end} of ledger {part.info.ledger} from {' or '.join(failed)}"
    found = "; ".join(f"{tier}: {error.found}" for tier, error in failed.items())
    if any(isinstance(error, Retry | Unknown) for error in failed.values()):
        return Retry(expected, found, "retry when it responds")
    if unproven := [error.todo for error in failed.values() if not isinstance(error, Refused | BadBytes)]:
        return Stop(expected, found, "; ".join(unproven))
    lost = LostEntries(expected, found, _TODO)
    # Bookies that do not have the ledger prove that only for the entries of their write set and fragment.
    lost.whole = all(isinstance(error, NoSuchMetadata | NoSuchObject) for error in failed.values())
    return lost


_TODO = "restore the ledger, or skip it with --missing skip (missing: skip)"
