"""The checks of `trueup doctor`: small functions that return a finding and a remedy."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trueup.state.common.errors import TrueupError


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report."""

    name: str
    status: str
    """One of ok, warn and fail."""
    found: str
    todo: str = ""
    """The remedy; empty if none is needed."""


def ok(name: str, found: str) -> Check:
    """A check that passed."""
    return Check(name, "ok", found)


def warn(name: str, found: str, todo: str) -> Check:
    """A check that passed, but needs attention."""
    return Check(name, "warn", found, todo)


def fail(name: str, found: str, todo: str) -> Check:
    """A check that failed."""
    return Check(name, "fail", found, todo)


def tried(name: str, look: Callable[[], Check | Iterable[Check]]) -> list[Check]:
    """The results of a check. An error or a defect becomes a failure after the results before it: servers of other
    versions respond in other ways, and the other checks are wanted all the same."""
    from trueup.streams.runtime.supervisor import attempted, error_text

    results: list[Check] = []

    def collect() -> None:
        outcome = look()
        for check in [outcome] if isinstance(outcome, Check) else outcome:
            results.append(check)  # noqa: PERF402 - keeps the results before an error

    error = attempted(collect)
    if isinstance(error, TrueupError):
        results.append(fail(name, f"expected {error.expected}; found {error.found}", error.todo))
    elif error is not None:
        todo = "report this defect of Trueup, with the versions of the servers; what was not checked is not known"
        results.append(fail(name, f"the check ended: {error_text(error)}", todo))
    return results
