"""Whether AutoRecovery workers take the existing marks, and since when none was taken."""

from collections.abc import Sequence
from typing import NamedTuple

NOTICED_MS = 60_000
"""A worker takes a mark within seconds, or sleeps for a few seconds after a mark that it could not repair."""


class IdleWorkers(NamedTuple):
    """Marks that no worker takes."""

    since_ms: int
    """The time since which no mark was locked or removed, ms since the epoch."""
    marks: int
    """The number of marks."""


def idle(before: IdleWorkers | None, marks: int, locked: int, now_ms: int) -> IdleWorkers | None:
    """The state after one more observation; None if there is no mark, or a worker holds a lock."""
    if not marks or locked:
        return None
    if before is None or marks < before.marks:
        return IdleWorkers(now_ms, marks)
    return IdleWorkers(before.since_ms, marks)


def present(voters: Sequence[str], named: int) -> tuple[str, str]:
    """State and detail of the source. Every daemon with a worker votes for the Auditor (AutoRecoveryMain).

    ``voters``: the voters except this application; ``named``: the number of daemons in the settings.
    """
    count, least = len(voters), max(1, named)
    of = f"{count} of {named}" if named else str(count)
    names = f": {', '.join(sorted(voters)[:3])}" if voters else ""
    state = "up" if count >= least else "slow" if count else "down"
    return state, f"{of} AutoRecovery {'daemon is' if count == 1 and not named else 'daemons are'} registered{names}"
