"""Keys of settings: their declaration, and validation that reports all problems at once."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, field, fields
from difflib import get_close_matches
from functools import cache
from math import isfinite
from reprlib import Repr
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
MODES = ("observe", "approve", "enforce")
"""How far a stream acts: report only, execute approved actions, execute all actions."""
COUNT, YEAR_S, BYTES = (1 << 31) - 1, 366 * 86_400, 1 << 50
"""Upper bounds of a counter, a time in seconds and a number of bytes."""
ADDRESS = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}")
"""host:port"""
_LONGEST, _ITEMS, _LONGEST_NAME = 100_000, 10_000, 200
_UNSENDABLE = re.compile("[\0\ud800-\udfff]")
_TEXT = f"UTF-8 text of at most {_LONGEST:,} characters, without NUL"


def key(
    default: Any = MISSING,
    doc: str = "",
    *,
    one_of: tuple[str, ...] = (),
    least: float | None = None,
    most: float | None = None,
    live: bool = False,
    secret: bool = False,
) -> Any:
    """Declare one key: its default (MISSING: required; a callable: a factory), description, bounds (required for every
    number), whether it can change while the application runs, and whether its value is a secret."""
    meta = {"doc": doc, "one_of": one_of, "least": least, "most": most, "live": live, "secret": secret}
    if isinstance(default, Callable):  # type: ignore[arg-type]
        return field(default_factory=default, metadata=meta, repr=not secret)
    return field(default=default, metadata=meta, repr=not secret)


def hints_of(cls: type[Any]) -> Mapping[str, Any]:
    """The type of each field of a dataclass."""
    return _hints(cls)  # type: ignore[arg-type] # a type is hashable


_hints = cache(get_type_hints)


def default_of(spec: Field[Any]) -> Any:
    """The default of a key; None if the key is required."""
    if spec.default_factory is not MISSING:
        return spec.default_factory()
    return None if spec.default is MISSING else spec.default


def required(spec: Field[Any]) -> bool:
    """Whether the key must be set."""
    return spec.default is MISSING and spec.default_factory is MISSING


def unknown(raw: Mapping[Any, Any], names: Sequence[str], path: str) -> list[str]:
    """A problem for each key of a mapping that is none of these names."""
    return [
        f"{path}{name}: expected {one_of(names, name)}; found this unknown key{near(name, names)}"
        for name in sorted(set(map(shown_name, raw)) - set(names))
    ]


def one_of(names: Sequence[str], found: str, what: str = "a known key") -> str:
    """What a message says was expected in place of ``found``: a list only if it is short and nothing is near."""
    return what if len(names) > _LISTED or near(found, names) else f"one of {', '.join(names)}"


def build(cls: type[T], raw: Any, path: str, problems: list[str]) -> T | None:
    """Build a dataclass of keys from a mapping; None: from an empty one. Problems are added to ``problems``; returns
    None if there are any."""
    if not isinstance(raw, Mapping | None):
        problems.append(f"{path}: expected keys and values, found {_kind_of(raw)}")
        return None
    raw, before, hints, specs = raw or {}, len(problems), hints_of(cls), keys_of(cls)
    problems += unknown(raw, [spec.name for spec in specs], path)
    values: dict[str, Any] = {}
    for spec in specs:
        given = raw.get(spec.name)
        if given is not None:
            values[spec.name] = value(spec, hints[spec.name], given, path + spec.name, problems)
        elif required(spec):
            problems.append(f"{path}{spec.name}: expected a value ({spec.metadata['doc']}); found nothing")
    return None if len(problems) > before else cls(**values)


def build_table(cls: type[T], raw: Any, path: str, problems: list[str]) -> dict[str, T | None] | None:
    """Build a dataclass of keys for each name of a mapping. Problems are added to ``problems``; entries with problems
    are None. Returns None if there is no mapping."""
    if not isinstance(raw, Mapping | None):
        problems.append(f"{path}: expected names with keys and values, found {_kind_of(raw)}")
        return None
    named = {shown_name(name): inner for name, inner in (raw or {}).items()}
    return {name: build(cls, inner or {}, f"{path}{name}.", problems) for name, inner in named.items()}


def keys_of(cls: Any) -> tuple[Field[Any], ...]:
    """The keys of a dataclass."""
    return fields(cls)


def value(spec: Field[Any], kind: Any, raw: Any, path: str, problems: list[str]) -> Any:
    """Validate one value and convert it to float if required. Problems are added to ``problems``."""
    base = get_origin(kind) or kind
    candidate: Any = _float(raw) if base is float else raw
    if not _fits(spec.metadata, kind, base, candidate):
        given = "something else" if spec.metadata.get("secret") else shown(raw)
        expected = _wanted(spec, kind) if _sendable(raw) else _TEXT
        problems.append(f"{path}: expected {expected}; found {given}")
    return candidate


def _float(raw: Any) -> Any:
    try:
        return float(raw) if isinstance(raw, int) and not isinstance(raw, bool) else raw
    except OverflowError:
        return raw


def _fits(meta: Mapping[str, Any], kind: Any, base: Any, candidate: Any) -> bool:
    if not isinstance(candidate, base) or (base is int and isinstance(candidate, bool)):
        return False
    if base is float and not isfinite(candidate):
        return False
    items = [*candidate, *candidate.values()] if base is dict else candidate if base is list else [candidate]
    if get_args(kind) and not all(isinstance(item, str) for item in items):
        return False
    if len(items) > _ITEMS or not _sendable(items):
        return False
    if meta.get("one_of") and not set(items) <= set(meta["one_of"]):
        return False
    least, most = meta.get("least"), meta.get("most")
    return (least is None or candidate >= least) and (most is None or candidate <= most)


def _sendable(raw: Any) -> bool:
    """Whether this text, or every text in this list, can be passed to other programs."""
    texts = [text for text in (raw if isinstance(raw, list) else [raw]) if isinstance(text, str)]
    return all(len(text) <= _LONGEST and not _UNSENDABLE.search(text) for text in texts)


def _wanted(spec: Field[Any], kind: Any) -> str:
    meta = spec.metadata
    if meta.get("one_of"):
        return ("any of " if get_origin(kind) is list else "one of ") + ", ".join(meta["one_of"])
    words = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
    text = words.get(kind, "names and texts" if get_origin(kind) is dict else "a list of texts")
    if meta.get("least") is not None:
        text += f", at least {meta['least']}"
    if meta.get("most") is not None:
        text += f", at most {meta['most']}"
    return text


def from_text(raw: Any, kind: Any) -> Any:
    """A value from the command line, converted to its type. A list is JSON, or items separated by commas."""
    if not isinstance(raw, str) or kind is str:
        return raw
    if get_origin(kind) is list and not raw.startswith("["):
        return [word.strip() for word in raw.split(",") if word.strip()]
    try:
        return json.loads(raw.lower() if kind is bool else raw)
    except (ValueError, RecursionError):
        return raw


_LISTED = 16


def near(name: str, choices: Iterable[str]) -> str:
    """A suggestion for an unknown name, as the end of a message."""
    matches = get_close_matches(name[:_LONGEST_NAME], list(choices), 1, 0.75)
    return f"; did you mean {matches[0]}?" if matches else ""


class _Shown(Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 200
        self.maxlevel = 3

    def repr_int(self, x: int, level: int) -> str:  # noqa: ARG002 - as Repr calls it
        return repr(x) if x.bit_length() <= 128 else f"a number of {x.bit_length()} bits"


shown: Callable[[Any], str] = _Shown().repr
"""A value as messages show it: Python syntax, truncated if it is long or deep."""


def shown_name(raw: Any) -> str:
    """A key of a mapping as text: YAML keys can have other types."""
    return raw if isinstance(raw, str) else shown(raw)


def _kind_of(raw: Any) -> str:
    """The type of a value that should be a section. The content is not shown: it can hold a secret."""
    kinds = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "a list"}
    return kinds.get(type(raw), "something else")
