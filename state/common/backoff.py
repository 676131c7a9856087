"""How long to wait after failures in a row."""

from typing import TypeVar

_T = TypeVar("_T", int, float)
_DOUBLINGS = 16


def backoff(first: _T, failures: int, longest: _T) -> _T:
    """The wait after one failure that follows ``failures`` others: twice the one before, ``longest`` at most."""
    return min(first * (1 << min(failures, _DOUBLINGS)), longest)
