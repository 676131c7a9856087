"""Whether anybody takes the marks that there are: AutoRecovery daemons, and since when no mark was taken."""

from collections.abc import Sequence
from typing import NamedTuple

NOTICED_MS = 60_000
"""A worker takes a mark within seconds, or sleeps for a few after one that it could not repair."""


class Idle(NamedTuple):
    """So many marks, none locked and none taken away, ``since_ms``."""

    since_ms: int
    marks: int


def idle(before: Idle | None, marks: int, locked: int, now_ms: int) -> Idle | None:
    """One look later; None while there is nothing to take, or some worker holds a lock."""
    if not marks or locked:
        return None
    if before is None or marks < before.marks:
        return Idle(now_ms, marks)
    return Idle(before.since_ms, marks)


def present(voters: Sequence[str], named: int) -> tuple[str, str]:
    """State and detail of the source: every daemon with a worker votes for the Auditor (AutoRecoveryMain).

    ``voters``: who votes, without this application; ``named``: how many daemons the settings name.
    """
    count, wanted = len(voters), max(1, named)
    of = f"{count} of {named}" if named else str(count)
    names = f": {', '.join(sorted(voters)[:3])}" if voters else ""
    state = "up" if count >= wanted else "slow" if count else "down"
    return state, f"{of} AutoRecovery {'daemon is' if count == 1 and not named else 'daemons are'} registered{names}"
