"""Finds that the clock of the machine was set while the application runs."""

from trueup.connectors.clock import SteadyClock
from trueup.streams.runtime.format import age

TOLD_MS, BACK_MS = 60_000, 2_000


class ClockWatch:
    """Compares the machine's clock with the steady one of this process. Used by one thread, except for ``problem``."""

    def __init__(self, clock: SteadyClock) -> None:
        self._clock, self._ahead_ms = clock, 0

    def set_back(self) -> str:
        """Why Spark must start again; empty if it need not. Spark's queries wait for their next batch by the machine's
        clock: set back by an hour, they wait for an hour."""
        before, self._ahead_ms = self._ahead_ms, self._clock.ahead_ms
        moved_ms = before - self._ahead_ms
        return f"the clock of this machine was set back by {age(moved_ms)}" if moved_ms > BACK_MS else ""

    def problem(self) -> str:
        """What an operator should know; empty if the clocks agree."""
        ahead_ms = self._clock.ahead_ms
        if abs(ahead_ms) < TOLD_MS:
            return ""
        how = f"{'forward' if ahead_ms > 0 else 'back'} by {age(abs(ahead_ms))}"
        return (
            f"the clock of this machine was set {how} while Trueup runs: ages and grace periods are not affected, but "
            "times in lists and history are by the clock of the start; restart Trueup when the clock is right"
        )
