"""AutoRecovery daemons: whether any is running, whether any takes marks, and whether all repair placement."""

from collections.abc import Callable, Sequence

from trueup.state.bookkeeper.marks import MarkRows
from trueup.state.bookkeeper.repair_workers import NOTICED_MS, IdleWorkers, idle, present
from trueup.state.common.counts import many
from trueup.streams.bookkeeper.worker_versions import LACKS, REMEDY
from trueup.streams.runtime.format import age

LATE_MS = 60_000
VERSIONS_MS = 60_000
"""Interval of questions for versions."""


class RepairWorkers:
    """Observes BookKeeper's AutoRecovery daemons. Safe to use from several threads.

    ``voters`` lists the voters for the Auditor and may raise `Retry`; ``named``: number of daemons in the settings;
    ``versions`` asks which of these are older than 4.16.
    """

    def __init__(
        self,
        voters: Callable[[], Sequence[str]],
        named: int,
        clock: Callable[[], int],
        versions: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._versions, self._asked_ms = versions, -VERSIONS_MS
        self.outdated: tuple[str, ...] = ()
        """Daemons of the settings that do not repair placement, because they are older than 4.16."""
        self._voters, self._named, self._clock = voters, named, clock
        self._found: tuple[str, ...] = ()
        self._looked_ms, self._ever = 0, named > 0
        self._idle: IdleWorkers | None = None

    def look(self) -> None:
        """Ask for versions if it is time, and list the voters. Raises `Retry`."""
        if (now_ms := self._clock()) - self._asked_ms >= VERSIONS_MS:
            self.outdated, self._asked_ms = tuple(self._versions()), now_ms
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

    def may_be_old(self) -> bool:
        """Whether a daemon of the settings is older than 4.16, or none of them was asked yet."""
        return self._named > 0 and (self._asked_ms < 0 or bool(self.outdated))

    def lacking(self) -> list[str]:
        """What the versions of the daemons lack."""
        return [f"{LACKS} ({', '.join(self.outdated)}): {REMEDY}"] if self.outdated else []

    def problems(self, now_ms: int) -> list[str]:
        """Why marks are not processed."""
        if self._idle is None or self.idle_ms(now_ms) < NOTICED_MS:
            return []
        waiting = f"{many(self._idle.marks, 'ledger is', 'ledgers are')} marked, and no worker has taken one"
        todo = "start the AutoRecovery daemons, or check their logs"
        return [f"{waiting} for {age(self.idle_ms(now_ms))}: {todo}"]
