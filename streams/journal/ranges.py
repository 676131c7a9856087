"""Ranges of the numbers in records, by their Avro schema: the attributes ``minimum`` and ``maximum`` of a field,
otherwise those of its type; a time in ms must be one that can be shown."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from trueup.streams.rows import Row

Check = Callable[[Any], None]
"""Raises `OverflowError` for a value with a number that is out of range."""
_OF_TYPES = {"int": (-(1 << 31), (1 << 31) - 1), "long": (-(1 << 63), (1 << 63) - 1)}
_TIMES = (-1, 253_402_300_799_999)
"""Times in ms since the epoch, up to the year 9999, and durations."""


def check_of(kind: Any, name: str = "", field: Row | None = None) -> Check | None:
    """The check of values of an Avro type; None if there is nothing to check. ``field``: the field with the type."""
    field = field or {}
    if isinstance(kind, list):
        return _optional(check_of(next(branch for branch in kind if branch != "null"), name, field))
    if not isinstance(kind, Mapping):
        return _number(str(kind), name, field)
    match kind["type"]:
        case "record":
            return _record({child["name"]: check_of(child["type"], child["name"], child) for child in kind["fields"]})
        case "array":
            return _each(check_of(kind["items"], name), list)
        case "map":
            return _each(check_of(kind["values"], name), lambda value: value.values())
    return check_of(kind["type"], name, field)


def _number(kind: str, name: str, field: Row) -> Check | None:
    if kind not in _OF_TYPES:
        return None
    least, most = _TIMES if name.endswith("_ms") else _OF_TYPES[kind]
    least, most = field.get("minimum", least), field.get("maximum", most)

    def check(value: int) -> None:
        if not least <= value <= most:
            raise OverflowError(f"{name} {value}, expected {least} to {most}")

    return check


def _optional(inner: Check | None) -> Check | None:
    def check(value: object) -> None:
        if inner is not None and value is not None:
            inner(value)

    return check if inner is not None else None


def _record(fields: Mapping[str, Check | None]) -> Check | None:
    parts = [(name, check) for name, check in fields.items() if check is not None]

    def check(value: Row) -> None:
        for name, inner in parts:
            inner(value[name])

    return check if parts else None


def _each(inner: Check | None, items: Callable[[Any], Iterable[object]]) -> Check | None:
    def check(value: object) -> None:
        if inner is not None:
            for item in items(value):
                inner(item)

    return check if inner is not None else None
