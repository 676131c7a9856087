"""Where a copy stopped, as the target itself tells: the newest marks (`headers.MARK`) in the tails of its logs.

The search goes from the end backwards in growing spans until a record of every source log asked for was met, or down to
the **floor**: the end that the target had when the position was acknowledged, below which nothing newer can be. Each
record tells its source offset, so what a killed predecessor wrote and never reported is known exactly.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from trueup.connectors.contract import LogId

FIRST, GROWTH = 64, 16
"""Offsets of the first span, and by what factor each further one is longer."""
WHOLE = 200_000
"""Offsets. A tail that begins at a known floor and is not longer than this is read at once."""
MOST = 1_000_000
"""Without a floor, own records further from the end than this are not looked for."""


class Bounds(NamedTuple):
    """First offset of a log and the one after its last record."""

    start: int
    end: int


class Met(NamedTuple):
    """A record of ours at the target: its source offset and its target offset."""

    source: int
    target: int


class Search:
    """The tail of one target log, read backwards. ``floors``: of each source log to look for, by its prefix
    (`headers.prefix_of`); -1: not known. ``met``: records found of each, in order. ``low``: what is below it is not
    read yet."""

    def __init__(self, bounds: Bounds, floors: Mapping[bytes, int]) -> None:
        start, self.low = bounds
        self.met: dict[bytes, list[Met]] = {prefix: [] for prefix in floors}
        lowest = min(floors.values())
        self._floor = max(start, lowest if lowest >= 0 else self.low - MOST)
        length = self.low - self._floor
        self._size = length if lowest >= 0 and length <= WHOLE else FIRST

    def span(self) -> tuple[int, int] | None:
        """The next offsets [from, to) to read; None: the search is over."""
        if self.low <= self._floor or all(self.met.values()):
            return None
        return max(self._floor, self.low - self._size), self.low

    def read(self, low: int, records: Iterable[tuple[bytes, Met]]) -> None:
        """Take the marks of the span that begins at ``low``, in order."""
        new: dict[bytes, list[Met]] = {prefix: [] for prefix in self.met}
        for prefix, met in records:
            if prefix in new:
                new[prefix].append(met)
        for prefix, found in new.items():
            self.met[prefix][:0] = found
        self.low, self._size = low, self._size * GROWTH


class Tails(Protocol):
    """Reads tails of one cluster."""

    def run(self, searches: Mapping[LogId, Search]) -> None:
        """Bring all searches to their ends. Raises `Retry` when the cluster does not deliver."""

    def close(self) -> None:
        """Let go of the connections."""
