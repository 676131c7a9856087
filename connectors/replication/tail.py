"""Reads how far a copy progressed from the target: the newest marks (`headers.MARK`) in the tails of its logs.

The search reads backwards from the end in growing spans until it finds a record of every requested source log, or down
to the **floor**: the target's end when the position was acknowledged, below which no newer record can be. Each
record contains its source offset, so unreported records of a killed predecessor are known exactly.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from trueup.connectors.contract import LogId
from trueup.state.common.errors import TrueupError

FIRST, GROWTH = 64, 16
"""Offsets of the first span, and the factor by which each further one is longer."""
WHOLE = 200_000
"""Offsets. A tail from a known floor that is not longer than this is read at once."""
MOST = 1_000_000
"""Without a floor, the search ends at this distance from the end."""


class Bounds(NamedTuple):
    """The bounds of a log."""

    start: int
    """The first offset of the log."""
    end: int
    """The offset after the last record."""


class CopiedRecord(NamedTuple):
    """A record that Trueup wrote to the target: its source offset and its target offset."""

    source: int
    target: int


class TailSearch:
    """The tail of one target log, read backwards. ``floors``: the floor of each requested source log, by its prefix
    (`headers.prefix_of`); -1: unknown. ``met``: the records of each source log that were found, in order. ``low``: the
    offset from which on the tail was read."""

    def __init__(self, bounds: Bounds, floors: Mapping[bytes, int]) -> None:
        start, self.low = bounds
        self.met: dict[bytes, list[CopiedRecord]] = {prefix: [] for prefix in floors}
        lowest = min(floors.values())
        self._floor = max(start, lowest if lowest >= 0 else self.low - MOST)
        length = self.low - self._floor
        self._size = length if lowest >= 0 and length <= WHOLE else FIRST

    def span(self) -> tuple[int, int] | None:
        """The next offsets [from, to) to read; None: the search is over."""
        if self.low <= self._floor or all(self.met.values()):
            return None
        return max(self._floor, self.low - self._size), self.low

    def read(self, low: int, records: Iterable[tuple[bytes, CopiedRecord]]) -> None:
        """Process the marks of the span that starts at ``low``, in order."""
        new: dict[bytes, list[CopiedRecord]] = {prefix: [] for prefix in self.met}
        for prefix, met in records:
            if prefix in new:
                new[prefix].append(met)
        for prefix, copies in new.items():
            self.met[prefix][:0] = copies
        self.low, self._size = low, self._size * GROWTH


class Tails(Protocol):
    """Reads tails of one cluster."""

    def run(self, searches: Mapping[LogId, TailSearch]) -> Mapping[LogId, TrueupError]:
        """Run all searches to their ends. Returns the errors of logs that the cluster refuses. Raises `Retry` if the
        cluster does not deliver records."""
