"""When the parts of the application end. Each time counts from SIGTERM, so the longest end is the last of them, not a
sum.

| after | ended at the latest | what does not end by then |
|---|---|---|
| `BATCHES_S` | batches of queries | is interrupted and repeated by the next start |
| `QUIET_S` | queries, loops, captures, links, the HTTP server | is left behind |
| `SAVED_S` | the last write of the history | is lost from the history |
| `KILL_S` | Spark's JVM, the embedded journal | is killed |
| `CLOSED_S` | sessions, and all of the above | is left behind |
| `END_S` | the process | is ended at once, and the JVM with it |

What runs until the same time runs side by side. Nothing is lost by an early end: checkpoints and journal are right at
every instant.
"""

import logging
import os
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)
BATCHES_S, QUIET_S, SAVED_S, KILL_S, CLOSED_S, END_S = 5.0, 6.0, 7.5, 8.0, 9.0, 9.5


class Ending:
    """The end of one application. ``stop`` is set when it begins; ``clock`` is in seconds. ``last``: done before the
    process is ended at once."""

    def __init__(
        self, stop: threading.Event, clock: Callable[[], float] = time.monotonic,
        leave: Callable[[int], object] = os._exit,
    ) -> None:  # fmt: skip
        self.stop, self._clock, self._leave = stop, clock, leave
        self.last: Callable[[], object] = lambda: None
        self._begun_s: float | None = None
        self._code = 0

    def begin(self) -> None:
        """Begin to end. Called by the handler of a signal, also in the middle of a start."""
        if self._begun_s is None:
            self._begun_s = self._clock()
            self.stop.set()

    def at(self, after_s: float) -> float:
        """The time so long after the end began, by the same clock. A start that failed begins the end here."""
        if self._begun_s is None:
            self._code = 1
            self.begin()
        assert self._begun_s is not None, "it has begun"
        return self._begun_s + after_s

    def left_s(self, after_s: float) -> float:
        """Seconds until that time; 0 when it is over."""
        return max(0.0, self.at(after_s) - self._clock())

    def passed_s(self) -> float:
        """Seconds since the end began."""
        return self._clock() - self.at(0.0)

    def force(self) -> None:
        """Wait for the end to begin and to be over. The process ends here when it takes too long."""
        self.stop.wait()
        time.sleep(self.left_s(END_S))
        log.error("not ended in time: the process ends at once", extra={"after_s": END_S})
        self.last()
        self.leave()

    def leave(self) -> None:
        """End the process. Python would first take everything apart, which takes seconds on a busy machine."""
        logging.shutdown()
        self._leave(self._code)
