"""The clock of this process: it starts with the time of the machine and goes on evenly when that is set.

Ages and time limits within a run are differences of its values. An hour that the machine's clock jumps would otherwise
end every grace period, or let what is silent look alive. The time during which the machine sleeps counts.
"""

import time
from collections.abc import Callable


class SteadyClock:
    """A call returns the time. ``wall``: the machine's clock, in ns; ``even``: a clock that cannot be set, in ns."""

    def __init__(
        self,
        wall: Callable[[], int] = time.time_ns,
        even: Callable[[], int] = lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME),
    ) -> None:
        self._wall, self._even = wall, even
        self._offset = wall() - even()

    def __call__(self) -> int:
        """The time, ms since the epoch."""
        return (self._even() + self._offset) // 1_000_000

    @property
    def ahead_ms(self) -> int:
        """How far the machine's clock is ahead: it was set forward, or back if this is negative."""
        return (self._wall() - self._even() - self._offset) // 1_000_000


now_ms = SteadyClock()
"""The clock of this process."""
