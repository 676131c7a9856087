"""Errors, classified by what the caller can do about them.

TrueupError
├── Retry            transient: retry with back-off
├── Stop             permanent: an operator must change something
│   ├── BadSettings  invalid configuration; lists every problem
│   ├── BadBytes     malformed bytes, with their location
│   └── Refused      the requirements of an action no longer hold; decide again
└── Unknown          the action may or may not have happened: observe before retrying
"""

from collections.abc import Sequence


class TrueupError(Exception):
    """An error that states what was expected, what was found and what to do."""

    def __init__(self, expected: str, found: str, todo: str) -> None:
        super().__init__(f"expected {expected}; found {found}; {todo}")
        self.expected, self.found, self.todo = expected, found, todo

    def __reduce__(self) -> tuple[type["TrueupError"], tuple[str, str, str]]:
        return type(self), (self.expected, self.found, self.todo)


class Retry(TrueupError):  # noqa: N818 - the names state the reaction
    """A transient error: a later attempt can succeed."""


class Stop(TrueupError):  # noqa: N818
    """A permanent error: an operator must change something."""


class Unknown(TrueupError):  # noqa: N818
    """The action may or may not have happened."""


class Refused(Stop):
    """The requirements of an action no longer hold."""


class BadBytes(Stop):
    """Malformed bytes.

    ``where`` names the znode, topic or file; ``at`` is the offset in bytes.
    """

    def __init__(self, where: str, at: int, expected: str, found: str, todo: str = "repair or remove it") -> None:
        super().__init__(f"{expected} at byte {at} of {where}", found, todo)
        self.where, self.at, self.wanted = where, at, expected

    def __reduce__(self) -> tuple[type["BadBytes"], tuple[str, int, str, str, str]]:  # type: ignore[override]
        return type(self), (self.where, self.at, self.wanted, self.found, self.todo)


class BadSettings(Stop):
    """Invalid configuration. ``problems`` holds one line for each invalid key."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("usable settings", "\n  " + "\n  ".join(problems), "correct these keys")
        self.problems = tuple(problems)

    def __reduce__(self) -> tuple[type["BadSettings"], tuple[tuple[str, ...]]]:  # type: ignore[override]
        return type(self), (self.problems,)


def ended(error: TrueupError, stopped: str = "refused") -> str:
    """The outcome of an action that failed: retry (nothing was done), unknown (maybe done), or ``stopped``."""
    return "unknown" if isinstance(error, Unknown) else "retry" if isinstance(error, Retry) else stopped
