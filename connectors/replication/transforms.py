"""The operator's own code on the way of a record: entry points ``module:function``."""

import importlib
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple

from trueup.state.common.errors import BadSettings


class Record(NamedTuple):
    """A record as the source has it. ``timestamp`` is in ms since 1970, -1: none."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


Transform = Callable[[Record], Record | None]
"""Returns what is to be written (key, value, timestamp and headers count), or None for nothing. It is called again for
the same record after a crash, so it must depend on nothing else."""


def entry_point(name: str, setting: str) -> Callable[..., Any]:
    """The function that ``module:function`` names. Raises `BadSettings`."""
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadSettings([f"{setting}: {name}: {error}; give module:function that workers can import"]) from error
    if not callable(found):
        raise BadSettings([f"{setting}: {name} is no function; give module:function"])
    return found  # type: ignore[no-any-return]


class Attempt:
    """Runs code of the operator's, which may raise anything: ``said`` tells what, empty when it did not.

    Only errors are taken; what ends the process goes on.
    """

    said = ""

    def __enter__(self) -> "Attempt":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self.said = f"{type(error).__name__}: {error}"
        return True
