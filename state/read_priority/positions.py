"""Positions in a topic: message ids, and the part of each ledger between two positions."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from trueup.state.common.errors import Stop
from trueup.state.read_priority.tiers import LedgerInfo

_ID = re.compile(r"(\d{1,19}):(\d{1,19})(?::(?:-1|\d{1,9}))?\Z", re.ASCII)


class EntryPosition(NamedTuple):
    """An entry of a topic."""

    ledger: int
    entry: int


class LedgerRange(NamedTuple):
    """A range of entries of one ledger."""

    info: LedgerInfo
    first: int
    """The first entry."""
    last: int | None
    """The last entry, which is included. None if the range ends at the last readable entry of the ledger."""
    confirmed: bool = True
    """Whether the ledger is known to have the last entry. If not, the range may end before it."""


def position_of(text: str) -> EntryPosition:
    """The position in a message id, LEDGER:ENTRY or LEDGER:ENTRY:BATCH-INDEX, which is its whole entry: the index is
    not used. Raises `Stop`."""
    match = _ID.match(text)
    if match is None or max(int(match[1]), int(match[2])) >= 1 << 63:
        raise Stop("a message id as LEDGER:ENTRY", repr(text[:100]), "use the ids that `trueup read` shows")
    return EntryPosition(int(match[1]), int(match[2]))


def parts(ledgers: Sequence[LedgerInfo], first: EntryPosition | None, last: EntryPosition | None) -> list[LedgerRange]:
    """The parts of these ledgers from ``first`` to ``last``, both included; None: without limit. By ledger id, which
    is their order in the topic. A position in a ledger that the topic no longer has stands for the next one."""
    ranges = []
    for info in sorted(ledgers, key=lambda ledger: ledger.ledger):
        if (first and info.ledger < first.ledger) or (last and info.ledger > last.ledger):
            continue
        begin = first.entry if first and info.ledger == first.ledger else 0
        end = info.entries - 1 if info.closed_ms else None
        if last and info.ledger == last.ledger:
            end = last.entry if end is None else min(end, last.entry)
        if end is None or begin <= end:
            ranges.append(LedgerRange(info, begin, end, confirmed=end is None or bool(info.closed_ms)))
    return ranges
