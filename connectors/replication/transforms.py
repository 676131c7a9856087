"""The operator's code for records: entry points ``module:function``."""

import importlib
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple

from trueup.state.common.errors import BadSettings


class Record(NamedTuple):
    """A record of the source."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """The timestamp in ms since 1970. -1: none."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


Transform = Callable[[Record], Record | None]
"""Returns the record to write (key, value, timestamp and headers count), or None to skip it. It is called again for
the same record after a crash, so it must be deterministic."""


def entry_point(name: str, setting: str) -> Callable[..., Any]:
    """The function with the name ``module:function``. Raises `BadSettings`."""
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadSettings([f"{setting}: {name}: {error}; set a module:function that workers can import"]) from error
    if not callable(found):
        raise BadSettings([f"{setting}: {name} is not a function; set module:function"])
    return found  # type: ignore[no-any-return]


class Attempt:
    """Runs the operator's code, which may raise anything: ``error`` has the exception, empty if there was none.

    Only `Exception` is caught; exits of the process are not.
    """

    error = ""

    def __enter__(self) -> "Attempt":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self.error = f"{type(error).__name__}: {error}"
        return True
