"""What went wrong, by what to do about it.

TrueupError
├── Retry            it may work later: try again with back-off
├── Stop             it will not get better by itself: a person must change something
│   ├── BadSettings  configuration that cannot be used, every problem at once
│   ├── BadBytes     bytes that do not have the form they must have, with their place
│   └── Refused      an action whose requirements no longer hold; decide afresh
└── Unknown          it may or may not have happened: observe before trying again
"""

from collections.abc import Sequence


class TrueupError(Exception):
    """Says what was expected, what was found and what to do about it."""

    def __init__(self, expected: str, found: str, todo: str) -> None:
        super().__init__(f"expected {expected}; found {found}; {todo}")
        self.expected, self.found, self.todo = expected, found, todo

    def __reduce__(self) -> tuple[type["TrueupError"], tuple[str, str, str]]:
        return type(self), (self.expected, self.found, self.todo)


class Retry(TrueupError):  # noqa: N818 - the names answer "what now?"
    """It may work later."""


class Stop(TrueupError):  # noqa: N818
    """It will not get better by itself."""


class Unknown(TrueupError):  # noqa: N818
    """It may or may not have happened."""


class Refused(Stop):
    """The requirements of an action no longer hold."""


class BadBytes(Stop):
    """Bytes that do not have the form they must have.

    ``where`` names the znode, topic or file; ``at`` is the offset in bytes.
    """

    def __init__(self, where: str, at: int, expected: str, found: str, todo: str = "repair or remove it") -> None:
        super().__init__(f"{expected} at byte {at} of {where}", found, todo)
        self.where, self.at, self.wanted = where, at, expected

    def __reduce__(self) -> tuple[type["BadBytes"], tuple[str, int, str, str, str]]:  # type: ignore[override]
        return type(self), (self.where, self.at, self.wanted, self.found, self.todo)


class BadSettings(Stop):
    """Configuration that cannot be used. ``problems`` holds one line for each key."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("usable settings", "\n  " + "\n  ".join(problems), "correct these keys")
        self.problems = tuple(problems)

    def __reduce__(self) -> tuple[type["BadSettings"], tuple[tuple[str, ...]]]:  # type: ignore[override]
        return type(self), (self.problems,)


def ended(error: TrueupError, stopped: str = "refused") -> str:
    """How an order that ended so is told: retry (nothing was done), unknown (it may have been), or ``stopped``."""
    return "unknown" if isinstance(error, Unknown) else "retry" if isinstance(error, Retry) else stopped
