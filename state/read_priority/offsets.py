"""Offsets of a stream that reads topics: where the next entry to read is, and the ranges between two offsets.

Of a range, the first position is included and the second is not.
"""

from collections.abc import Mapping, Sequence

from trueup.state.read_priority.positions import EntryPosition, LedgerRange, parts
from trueup.state.read_priority.tiers import LedgerInfo

BEGIN = EntryPosition(0, 0)
"""Before every ledger."""


def begin_of(ledgers: Sequence[LedgerInfo]) -> EntryPosition:
    """The first position of a topic."""
    return EntryPosition(min(info.ledger for info in ledgers), 0) if ledgers else BEGIN


def end_of(ledgers: Sequence[LedgerInfo], last: int) -> EntryPosition:
    """The position after all readable entries. ``last``: the last readable entry of the open ledger, -1: none."""
    if not ledgers:
        return BEGIN
    newest = max(ledgers, key=lambda info: info.ledger)
    return EntryPosition(newest.ledger, newest.entries if newest.closed_ms else last + 1)


def settled(ledgers: Sequence[LedgerInfo], at: EntryPosition) -> EntryPosition:
    """The same position, at the start of the next ledger if it is at the end of a closed one: the closed ledger may be
    trimmed without any loss then."""
    sizes = {info.ledger: info.entries for info in ledgers if info.closed_ms}
    for ledger in sorted(info.ledger for info in ledgers):
        if at.ledger in sizes and at.entry >= sizes[at.ledger] and ledger > at.ledger:
            at = EntryPosition(ledger, 0)
    return at


def between(ledgers: Sequence[LedgerInfo], start: EntryPosition, end: EntryPosition) -> list[LedgerRange]:
    """The parts of these ledgers from ``start`` to ``end``; every part has a last entry."""
    ranges = parts(ledgers, start, EntryPosition(end.ledger, end.entry - 1))
    return [part for part in ranges if part.last is not None]


def count(ranges: Sequence[LedgerRange]) -> int:
    """The entries of parts that have a last one."""
    return sum(part.last - part.first + 1 for part in ranges if part.last is not None)


def trimmed(ledgers: Sequence[LedgerInfo], start: EntryPosition) -> bool:
    """Whether the ledger of an offset left the topic, and possibly entries that were not read.

    Brokers trim ledgers from the oldest one on. A ledger that left before an older one had no entries: a broker that
    opens a topic drops such ledgers (ManagedLedgerImpl.initializeBookKeeper)."""
    if start == BEGIN or any(info.ledger == start.ledger for info in ledgers):
        return False
    return start.entry > 0 or all(info.ledger > start.ledger for info in ledgers)


def limited(ledgers: Sequence[LedgerInfo], start: EntryPosition, end: EntryPosition, most: int) -> EntryPosition:
    """The position at most ``most`` entries after ``start``, and not after ``end``."""
    for part in between(ledgers, start, end):
        size = count([part])
        if size > most:
            return EntryPosition(part.info.ledger, part.first + most)
        most -= size
    return end


def shares(backlogs: Mapping[str, int], most: int) -> dict[str, int]:
    """How many entries of each topic to read: all of small backlogs, and equal shares of the others. Every topic with
    a backlog gets at least one."""
    counts, left = dict[str, int](), most
    waiting = sorted(backlogs, key=lambda name: (backlogs[name], name))
    for at, name in enumerate(waiting):
        counts[name] = min(backlogs[name], max(1, left // (len(waiting) - at)))
        left -= counts[name]
    return counts


def cut(part: LedgerRange, most: int) -> list[LedgerRange]:
    """A part in pieces of at most ``most`` entries, of equal size as far as possible."""
    size = count([part])
    pieces = -(-size // most) or 1
    bounds = [part.first + size * at // pieces for at in range(pieces + 1)]
    return [part._replace(first=bounds[at], last=bounds[at + 1] - 1) for at in range(pieces)]


def shown(at: EntryPosition) -> str:
    """An offset as text, which `positions.position_of` reads."""
    return f"{at.ledger}:{at.entry}"
