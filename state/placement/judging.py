"""Which ledgers wait for their verdict.

The capture publishes ledgers to the journal, the stream judges them in the order of the journal's partitions. A ledger
waits from its publication until the stream has taken every record up to it: its verdict is of the newest version then.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trueup.state.common.rules import Verdict
from trueup.state.placement.view import Rows

EXACT = 200_000  # above, sorting what waits would take the time that its verdicts need
NOBODY: Rows = np.zeros(0, np.int64)
Positions = Mapping[int, int]
"""Of each partition, the offset after the last record."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """``ledgers``: ids that wait; ``present``: how many of them were not deleted. Above `EXACT` rows, ledgers that were
    published several times count as often."""

    ledgers: Rows
    present: int


@dataclass(slots=True)
class _Part:
    ledgers: Rows
    present: Rows
    at_ms: int
    ends: Positions | None = None


class Queue:
    """Ledgers that were published and are not judged yet. Not safe for use from several threads at once.

    What the journal held at the start of a run waits, too, until the stream has been seen beyond it: ``started``.
    """

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._start: Positions | None = None
        self._taken: Positions = {}
        self._waiting: Waiting | None = None
        self.started = False

    def start(self, ends: Positions) -> None:
        """Take the ends of the journal at the start of the run."""
        self._start = ends
        self.take(self._taken)

    def add(self, ledgers: Rows, present: Rows, now_ms: int) -> None:
        """Let ledgers wait that were published now: ids, and whether each is there."""
        if len(ledgers):
            self._parts.append(_Part(ledgers, present, now_ms))
            self._waiting = None

    @property
    def unlocated(self) -> int:
        """How many parts, the newest ones, have no position yet."""
        return sum(part.ends is None for part in self._parts)

    def locate(self, count: int, ends: Positions) -> None:
        """Set the position of the ``count`` oldest parts without one: the journal's ends, asked for after they were
        counted."""
        for part in [part for part in self._parts if part.ends is None][:count]:
            part.ends = ends
        self.take(self._taken)

    def take(self, positions: Positions) -> None:
        """The stream has judged all that is before these positions."""
        self._taken = positions
        self.started = self._start is not None and self._covered(self._start)
        left = [part for part in self._parts if part.ends is None or not self._covered(part.ends)]
        if len(left) < len(self._parts):
            self._parts, self._waiting = left, None

    def _covered(self, ends: Positions) -> bool:
        return all(self._taken.get(partition, 0) >= end for partition, end in ends.items())

    @property
    def oldest_ms(self) -> int | None:
        """When the ledgers were published that have waited for longest; None if none waits."""
        return self._parts[0].at_ms if self._parts else None

    @property
    def waiting(self) -> Waiting:
        """What waits now. Of a ledger that was published several times, the last time counts."""
        if self._waiting is None:
            ledgers = np.concatenate([NOBODY, *(part.ledgers for part in self._parts)])[::-1]
            present = np.concatenate([np.zeros(0, bool), *(part.present for part in self._parts)])[::-1]
            if len(ledgers) <= EXACT:
                ledgers, last = np.unique(ledgers, return_index=True)
                present = present[last]
            self._waiting = Waiting(ledgers, int(present.sum()))
        return self._waiting


def counted(findings: Rows, waiting: Waiting, ledgers: int) -> dict[str, int]:
    """How many of so many ledgers have each verdict, by its name. ``findings``: in the order of ids. A ledger that
    waits is unknown, whatever was found before; one that neither waits nor has a finding was judged true."""
    current = np.ones(len(findings), bool)
    if len(findings):
        at = np.minimum(np.searchsorted(findings["ledger"], waiting.ledgers), len(findings) - 1)
        current[at[findings["ledger"][at] == waiting.ledgers]] = False
    found = np.bincount(findings["verdict"][current], minlength=len(Verdict))
    counts = {v.name.lower(): int(found[v]) for v in Verdict if v is not Verdict.TRUE}
    counts["unknown"] += min(waiting.present, ledgers)
    return {"true": max(0, ledgers - sum(counts.values())), **counts}
