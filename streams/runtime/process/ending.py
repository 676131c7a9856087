"""Deadlines for the shutdown of the application. Each counts from SIGTERM, so the last is the longest duration.

| after | ended at the latest | otherwise it |
|---|---|---|
| `BATCHES_S` | batches of queries | is interrupted and repeated by the next start |
| `QUIET_S` | queries, loops, captures, links, the HTTP server | is left behind |
| `SAVED_S` | the last write of the history | is lost |
| `KILL_S` | Spark's JVM, the embedded journal | is killed |
| `CLOSED_S` | sessions, and all of the above | is left behind |
| `END_S` | the process | is ended at once, and the JVM with it |

Parts with the same deadline end concurrently. An early end loses nothing else: checkpoints and journal are consistent
at any time.
"""

import logging
import os
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)
BATCHES_S, QUIET_S, SAVED_S, KILL_S, CLOSED_S, END_S = 5.0, 6.0, 7.5, 8.0, 9.0, 9.5


class Ending:
    """The shutdown of one application. ``stop``: the event that is set when the shutdown begins; ``clock``: a function
    that returns the time in seconds; ``last``: a function that is called before the process is ended forcibly."""

    def __init__(
        self,
        stop: threading.Event,
        clock: Callable[[], float] = time.monotonic,
        leave: Callable[[int], object] = os._exit,
    ) -> None:
        self.stop, self._clock, self._leave = stop, clock, leave
        self.last: Callable[[], object] = lambda: None
        self._begun_s: float | None = None
        self._code = 0

    def begin(self) -> None:
        """Begin the shutdown. Called by signal handlers, also during the start."""
        if self._begun_s is None:
            self._begun_s = self._clock()
            self.stop.set()

    def fail(self) -> None:
        """Begin the shutdown; the exit code states a failure."""
        self._code = 1
        self.begin()

    def abort(self) -> None:
        """End the process at once, without a shutdown; the exit code states a failure."""
        self._code = 1
        self.last()
        self.leave()

    def at(self, after_s: float) -> float:
        """The time ``after_s`` seconds after the shutdown began. A failed start begins the shutdown here."""
        if self._begun_s is None:
            self.fail()
        assert self._begun_s is not None, "begin sets it"
        return self._begun_s + after_s

    def left_s(self, after_s: float) -> float:
        """Seconds until that time; 0 if it has passed."""
        return max(0.0, self.at(after_s) - self._clock())

    def passed_s(self) -> float:
        """Seconds since the shutdown began."""
        return self._clock() - self.at(0.0)

    def force(self) -> None:
        """Wait for the shutdown to begin, and end the process if it exceeds the last deadline."""
        self.stop.wait()
        time.sleep(self.left_s(END_S))
        log.error("process killed", extra={"after_s": END_S})
        self.last()
        self.leave()

    def leave(self) -> None:
        """End the process without the finalization of Python, which takes seconds on a busy machine."""
        logging.shutdown()
        self._leave(self._code)
