"""The faults, their times and rates. All seams of a simulated run use one `Faults`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

from trueup.state.common.errors import Retry


class Crash(BaseException):
    """Trueup crashes; no error handler may catch this."""


class WallClock:
    """The clock of the machines of Trueup, which stops and jumps."""

    def __init__(self) -> None:
        self.frozen_ms: int | None = None
        self.jumped_ms = 0

    def read(self, now_ms: int) -> int:
        """The time that it shows."""
        return (now_ms if self.frozen_ms is None else self.frozen_ms) + self.jumped_ms

    def stir(self, rng: Random, now_ms: int) -> None:
        """Stop, continue or jump."""
        if rng.random() < 0.04:
            self.frozen_ms = now_ms
        elif self.frozen_ms is not None and rng.random() < 0.4:
            self.end(now_ms)
        if rng.random() < 0.01:
            self.jumped_ms += rng.choice((5_000, 60_000, 3_600_000))

    def end(self, now_ms: int) -> None:
        """Continue from the frozen time, without catching up."""
        if self.frozen_ms is not None:
            self.jumped_ms += self.frozen_ms - now_ms
        self.frozen_ms = None


class Faults:
    """The faults of one process. ``fuse``: number of further seams before it crashes; -1: no crash. ``halts``: whether
    it is stopped soon, most likely directly before it acts; ``halted``: the function that is called then, and returns
    when the process continues."""

    def __init__(self, rng: Random, halted: Callable[[], None] | None = None) -> None:
        self.rng = rng
        self.on = True
        self.fuse = -1
        self.halted, self.halts = halted, False
        self.journal_away = self.refused = self.cut = False
        self.time = WallClock()
        self.unknown, self.late, self.again, self.partial = (rng.choice((0.0, 0.1, 0.4)) for _ in range(4))

    def seam(self, acts: bool = False) -> None:
        """Called between any two steps of Trueup. ``acts``: the next one changes a cluster."""
        if self.fuse == 0:
            self.fuse = -1
            raise Crash
        self.fuse -= self.fuse > 0
        if self.halts and self.halted is not None and (acts or self.rng.random() < 0.03):
            self.halts = False
            self.halted()

    @contextmanager
    def unstopped(self) -> Iterator[None]:
        """The process is not stopped in the meantime."""
        halted, self.halted = self.halted, None
        try:
            yield
        finally:
            self.halted = halted

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
        return self.time.read(now_ms)

    def stir(self) -> None:
        """Start or end faults of the environment."""
        rng = self.rng
        if rng.random() < 0.10:
            self.fuse = rng.randint(0, 14)
        if self.halted is not None:
            self.halts = rng.random() < 0.15
        self.journal_away = rng.random() < (0.5 if self.journal_away else 0.03)
        self.refused = rng.random() < (0.5 if self.refused else 0.04)

    def end(self, now_ms: int) -> None:
        """End all faults."""
        self.time.end(now_ms)
        self.fuse, self.halts = -1, False
        self.on = self.journal_away = self.refused = self.cut = False
