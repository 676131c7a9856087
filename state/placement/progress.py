"""The queue of ledgers that wait for their verdict.

The capture publishes ledgers to the journal, and the stream judges them in the order of the journal's partitions. A
ledger waits from its publication until the stream has processed every record up to it: the verdict is then current.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trueup.state.common.rules import Verdict
from trueup.state.placement.view import Rows

EXACT = 200_000  # above this number, deduplication would take as long as the verdicts
NO_LEDGERS: Rows = np.zeros(0, np.int64)
Positions = Mapping[int, int]
"""The offset after the last record, by partition."""


@dataclass(frozen=True, slots=True)
class WaitingLedgers:
    """Ledgers that wait for their verdict. Above `EXACT` rows, a ledger that was published several times counts several
    times."""

    ledgers: Rows
    """The ids of the ledgers that wait."""
    present: int
    """The number of ledgers in ``ledgers`` that exist."""


@dataclass(slots=True)
class _Part:
    ledgers: Rows
    present: Rows
    at_ms: int
    ends: Positions | None = None


class Queue:
    """Ledgers that were published and are not judged yet. Not safe for use from several threads at once.

    Records in the journal at the start of a run also wait until the stream has passed them: ``started``.
    """

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._start: Positions | None = None
        self._taken: Positions = {}
        self._waiting: WaitingLedgers | None = None
        self.started = False

    def start(self, ends: Positions) -> None:
        """Set the ends of the journal at the start of the run."""
        self._start = ends
        self.take(self._taken)

    def restart(self, ends: Positions) -> None:
        """The view was lost: the stream judges everything up to these ends of the journal again."""
        self._taken = {}
        self.start(ends)

    def add(self, ledgers: Rows, present: Rows, now_ms: int) -> None:
        """Add ledgers that were published now: ids, and whether each exists."""
        if len(ledgers):
            self._parts.append(_Part(ledgers, present, now_ms))
            self._waiting = None

    @property
    def unlocated(self) -> int:
        """The number of parts, the newest ones, that have no position yet."""
        return sum(part.ends is None for part in self._parts)

    def locate(self, count: int, ends: Positions) -> None:
        """Set the position of the ``count`` oldest parts without one: the ends of the journal, requested after the
        parts were counted."""
        for part in [part for part in self._parts if part.ends is None][:count]:
            part.ends = ends
        self.take(self._taken)

    def take(self, positions: Positions) -> None:
        """Record that the stream has judged everything before these positions."""
        self._taken = positions
        self.started = self._start is not None and self._covered(self._start)
        left = [part for part in self._parts if part.ends is None or not self._covered(part.ends)]
        if len(left) < len(self._parts):
            self._parts, self._waiting = left, None

    def _covered(self, ends: Positions) -> bool:
        return all(self._taken.get(partition, 0) >= end for partition, end in ends.items())

    @property
    def oldest_ms(self) -> int | None:
        """When the longest-waiting ledgers were published; None if none waits."""
        return self._parts[0].at_ms if self._parts else None

    @property
    def waiting(self) -> WaitingLedgers:
        """The ledgers that wait now. If a ledger was published several times, the last publication counts."""
        if self._waiting is None:
            ledgers = np.concatenate([NO_LEDGERS, *(part.ledgers for part in self._parts)])[::-1]
            present = np.concatenate([np.zeros(0, bool), *(part.present for part in self._parts)])[::-1]
            if len(ledgers) <= EXACT:
                ledgers, last = np.unique(ledgers, return_index=True)
                present = present[last]
            self._waiting = WaitingLedgers(ledgers, int(present.sum()))
        return self._waiting


def counted(findings: Rows, waiting: WaitingLedgers, ledgers: int, outdated: Rows = NO_LEDGERS) -> dict[str, int]:
    """The number of ledgers by verdict name, of ``ledgers`` in total. ``findings``: the findings, ordered by id. A
    ledger that waits, or that may not be read any more (``outdated``), is unknown, whatever its last finding. One that
    is neither and has no finding is true."""
    current = np.ones(len(findings), bool)
    hidden = outdated[~np.isin(outdated, waiting.ledgers)] if len(outdated) else outdated
    if len(findings):
        unknown = np.concatenate([waiting.ledgers, hidden])
        at = np.minimum(np.searchsorted(findings["ledger"], unknown), len(findings) - 1)
        current[at[findings["ledger"][at] == unknown]] = False
    totals = np.bincount(findings["verdict"][current], minlength=len(Verdict))
    counts = {v.name.lower(): int(totals[v]) for v in Verdict if v is not Verdict.TRUE}
    counts["unknown"] += min(waiting.present + len(hidden), ledgers)
    return {"true": max(0, ledgers - sum(counts.values())), **counts}
