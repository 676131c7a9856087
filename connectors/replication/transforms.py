"""The operator's code for records: entry points ``module:function``."""

import importlib
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple

from trueup.state.common.errors import BadSettings

INT64 = 1 << 63
"""The first positive number that does not fit into 64 bits."""


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
    loaded: object = None
    with Attempt() as attempt:
        loaded = getattr(importlib.import_module(module), function)
    if attempt.error:
        raise BadSettings([f"{setting}: {name}: {attempt.error}; set a module:function that workers can import"])
    if not callable(loaded):
        raise BadSettings([f"{setting}: {name} is not a function; set module:function"])
    return loaded


def returned(result: object) -> Record | None:
    """The result of a transform. Raises `TypeError` and `ValueError` if it is not a record that can be written."""
    if result is None:
        return None
    if not isinstance(result, Record):
        raise TypeError(f"expected a Record or None; found {_kind(result)}")
    _check_bytes("key", result.key)
    _check_bytes("value", result.value)
    _check_timestamp(result.timestamp)
    _check_headers(result.headers)
    return result


def _check_bytes(part: str, value: object) -> None:
    if value is not None and not isinstance(value, bytes):
        raise TypeError(f"expected bytes or None as {part}; found {_kind(value)}")


def _check_timestamp(timestamp: object) -> None:
    if not isinstance(timestamp, int) or isinstance(timestamp, bool):
        raise TypeError(f"expected an int as timestamp; found {_kind(timestamp)}")
    if not -INT64 <= timestamp < INT64:
        raise ValueError(f"expected a timestamp of 64 bits; found {timestamp}")


def _check_headers(headers: object) -> None:
    if not isinstance(headers, tuple | list):
        raise TypeError(f"expected a tuple or list of headers; found {_kind(headers)}")
    for header in headers:
        if not isinstance(header, tuple) or len(header) != 2:
            raise TypeError(f"expected headers of the form (name, value); found {_kind(header)}")
        name, value = header
        if not isinstance(name, str):
            raise TypeError(f"expected a str as name of a header; found {_kind(name)}")
        _check_bytes(f"value of header {name!r}", value)


def _kind(value: object) -> str:
    return f"{type(value).__name__}" + (f" of {len(value)} items" if isinstance(value, tuple) else "")


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
