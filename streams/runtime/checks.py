"""What `trueup doctor` looks at: each check a small function that says what it found and what to do about it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trueup.state.common.errors import TrueupError


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report. ``status``: ok, warn or fail; ``todo`` is empty where nothing is to be done."""

    name: str
    status: str
    found: str
    todo: str = ""


def ok(name: str, found: str) -> Check:
    """All is well."""
    return Check(name, "ok", found)


def warn(name: str, found: str, todo: str) -> Check:
    """It works, but somebody should look."""
    return Check(name, "warn", found, todo)


def fail(name: str, found: str, todo: str) -> Check:
    """It will not work like this."""
    return Check(name, "fail", found, todo)


def tried(name: str, look: Callable[[], Check | Iterable[Check]]) -> list[Check]:
    """What a check says; its error is a failure, after what it said before."""
    said: list[Check] = []
    try:
        found = look()
        for check in [found] if isinstance(found, Check) else found:
            said.append(check)  # noqa: PERF402 - what comes before an error must stay
    except TrueupError as error:
        said.append(fail(name, f"expected {error.expected}; found {error.found}", error.todo))
    return said
