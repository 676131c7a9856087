"""Exponential back-off."""

from typing import TypeVar

_T = TypeVar("_T", int, float)
_DOUBLINGS = 16


def backoff(first: _T, failures: int, longest: _T) -> _T:
    """The wait after ``failures`` + 1 consecutive failures: it doubles with each failure, up to ``longest``."""
    return min(first * (1 << min(failures, _DOUBLINGS)), longest)
