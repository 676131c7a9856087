"""The faults, their times and rates. All seams of a simulated run use one `Faults`."""

from collections.abc import Sequence
from random import Random

from trueup.state.common.errors import Retry


class Crash(BaseException):
    """Trueup crashes; no error handler may catch this."""


class Faults:
    """``fuse``: number of further seams before Trueup crashes; -1: no crash."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.on = True
        self.fuse = -1
        self.journal_away = self.refused = self.cut = False
        self.frozen_ms: int | None = None
        self.jumped_ms = 0
        self.unknown, self.late, self.again, self.partial = (rng.choice((0.0, 0.1, 0.4)) for _ in range(4))

    def seam(self) -> None:
        """Called between any two steps of Trueup."""
        if self.fuse == 0:
            self.fuse = -1
            raise Crash
        self.fuse -= self.fuse > 0

    def journal(self) -> None:
        self.seam()
        if self.journal_away:
            raise Retry("acknowledged records", "no broker", "try again")

    def acting(self) -> None:
        self.seam()
        if self.refused:
            raise Retry("a session with ZooKeeper", "connection refused", "it reconnects by itself")

    def answer_lost(self) -> bool:
        return self.happens(self.unknown)

    def happens(self, share: float) -> bool:
        return self.on and self.rng.random() < share

    def clock(self, now_ms: int) -> int:
        """The time of Trueup's clock."""
        return (now_ms if self.frozen_ms is None else self.frozen_ms) + self.jumped_ms

    def stir(self, now_ms: int) -> None:
        """Start or end faults of the environment."""
        rng = self.rng
        if rng.random() < 0.10:
            self.fuse = rng.randint(0, 14)
        self.journal_away = rng.random() < (0.5 if self.journal_away else 0.03)
        self.refused = rng.random() < (0.5 if self.refused else 0.04)
        if rng.random() < 0.04:
            self.frozen_ms = now_ms
        elif self.frozen_ms is not None and rng.random() < 0.4:
            # The clock continues from its frozen time and does not catch up.
            self.jumped_ms += self.frozen_ms - now_ms
            self.frozen_ms = None
        if rng.random() < 0.01:
            self.jumped_ms += rng.choice((5_000, 60_000, 3_600_000))

    def end(self, now_ms: int) -> None:
        """End all faults."""
        if self.frozen_ms is not None:
            self.jumped_ms += self.frozen_ms - now_ms
        self.frozen_ms, self.fuse = None, -1
        self.on = self.journal_away = self.refused = self.cut = False


def shuffled(rng: Random, items: Sequence[object], share: float) -> list[object]:
    """The items with some adjacent pairs swapped."""
    out = list(items)
    for at in range(len(out) - 1):
        if rng.random() < share:
            out[at], out[at + 1] = out[at + 1], out[at]
    return out
