"""AutoRecovery daemons: whether any is running, and whether any takes marks."""

from collections.abc import Callable, Sequence

from trueup.state.bookkeeper.marks import MarkRows
from trueup.state.bookkeeper.repair_workers import NOTICED_MS, IdleWorkers, idle, present
from trueup.state.common.counts import many
from trueup.streams.runtime.format import age

LATE_MS = 60_000


class RepairWorkers:
    """Observes BookKeeper's AutoRecovery daemons. Safe to use from several threads.

    ``voters`` lists the voters for the Auditor and may raise `Retry`; ``named``: number of daemons in the settings.
    """

    def __init__(self, voters: Callable[[], Sequence[str]], named: int, clock: Callable[[], int]) -> None:
        self._voters, self._named, self._clock = voters, named, clock
        self._found: tuple[str, ...] = ()
        self._looked_ms, self._ever = 0, named > 0
        self._idle: IdleWorkers | None = None

    def look(self) -> None:
        """List the voters. Raises `Retry`."""
        self._found, self._looked_ms = tuple(self._voters()), self._clock()
        self._ever |= bool(self._found)

    def step(self, marks: MarkRows) -> None:
        """Observe whether workers take marks."""
        there = marks[marks["version"] >= 0]
        self._idle = idle(self._idle, len(there), int((there["locked"] > 0).sum()), self._clock())

    def idle_ms(self, now_ms: int) -> int:
        """Time for which no worker took any of the marks; 0: no marks, or active workers."""
        return 0 if self._idle is None else now_ms - self._idle.since_ms

    def source(self, now_ms: int, needed: bool) -> list[tuple[str, str, int | None, str]]:
        """The row of the sources; none if no daemon is configured, required, or was ever observed."""
        if not (needed or self._ever):
            return []
        if not self._looked_ms:
            return [("autorecovery", "slow", None, "not checked yet")]
        state, detail = present(self._found, self._named)
        age_ms = now_ms - self._looked_ms
        return [("autorecovery", "slow" if state == "up" and age_ms > LATE_MS else state, age_ms, detail)]

    def problems(self, now_ms: int) -> list[str]:
        """Why marks are not processed."""
        if self._idle is None or self.idle_ms(now_ms) < NOTICED_MS:
            return []
        waiting = f"{many(self._idle.marks, 'ledger is', 'ledgers are')} marked, and no worker has taken one"
        todo = "start the AutoRecovery daemons, or check their logs"
        return [f"{waiting} for {age(self.idle_ms(now_ms))}: {todo}"]
