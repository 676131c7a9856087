"""Keys of settings: what one may hold, and values checked against that, every problem told at once."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from math import isfinite
from reprlib import Repr
from typing import Any, get_args, get_origin, get_type_hints

MODES = ("observe", "approve", "enforce")
"""How far a stream may go: report, do what is approved, do all."""
COUNT, YEAR_S, BYTES = (1 << 31) - 1, 366 * 86_400, 1 << 50
"""The most that a counter, a time in seconds and a number of bytes may be."""
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
    """One key: its default (none: the operator must give it; a type or function makes it), what it means, its bounds,
    and whether it may change while the application runs, and whether it may hold what nobody is to read. Every number
    has bounds."""
    meta = {"doc": doc, "one_of": one_of, "least": least, "most": most, "live": live, "secret": secret}
    if isinstance(default, Callable):  # type: ignore[arg-type]
        return field(default_factory=default, metadata=meta, repr=not secret)
    return field(default=default, metadata=meta, repr=not secret)


@cache
def hints_of(cls: Any) -> Mapping[str, Any]:
    """The type of each field of a dataclass."""
    return get_type_hints(cls)


def default_of(spec: Field[Any]) -> Any:
    """What a key holds that nobody gave; None where one must."""
    if spec.default_factory is not MISSING:
        return spec.default_factory()
    return None if spec.default is MISSING else spec.default


def required(spec: Field[Any]) -> bool:
    """Whether the operator must give it."""
    return spec.default is MISSING and spec.default_factory is MISSING


def entries(kind: Any) -> Any:
    """The dataclass of each entry, where a section is a table of them by name; else None."""
    args = get_args(kind)
    return args[1] if get_origin(kind) is dict and is_dataclass(args[1]) else None


def build(cls: Any, raw: Any, path: str, problems: list[str]) -> Any:
    """A dataclass of settings from nested mappings; what is wrong goes to ``problems``. None where it cannot be."""
    if not isinstance(raw, Mapping):
        problems.append(f"{path}: expected keys and values, found {_kind_of(raw)}")
        return None
    before, hints, known = len(problems), hints_of(cls), {f.name: f for f in fields(cls)}
    strange = sorted(set(map(shown_name, raw)) - set(known))
    problems += [
        f"{path}{name}: expected one of {', '.join(known)}; found this unknown key{near(name, known)}"
        for name in strange
    ]
    values: dict[str, Any] = {}
    for name, spec in known.items():
        given = raw.get(name)
        if is_dataclass(hints[name]):
            values[name] = build(hints[name], {} if given is None else given, f"{path}{name}.", problems)
        elif entries(hints[name]):
            values[name] = _table(entries(hints[name]), {} if given is None else given, f"{path}{name}.", problems)
        elif given is not None:
            values[name] = value(spec, hints[name], given, path + name, problems)
        elif required(spec):
            problems.append(f"{path}{name}: expected a value ({spec.metadata['doc']}); found nothing")
    return None if len(problems) > before else cls(**values)


def _table(cls: Any, raw: Any, path: str, problems: list[str]) -> Any:
    if not isinstance(raw, Mapping):
        problems.append(f"{path}: expected names with keys and values, found {_kind_of(raw)}")
        return None
    named = {shown_name(name): inner for name, inner in raw.items()}
    return {name: build(cls, inner or {}, f"{path}{name}.", problems) for name, inner in named.items()}


def value(spec: Field[Any], kind: Any, raw: Any, path: str, problems: list[str]) -> Any:
    """One value, made a float where one is wanted; what is wrong with it goes to ``problems``."""
    base = get_origin(kind) or kind
    found: Any = _float(raw) if base is float else raw
    if not _fits(spec.metadata, kind, base, found):
        told = "something else" if spec.metadata.get("secret") else shown(raw)
        wanted = _wanted(spec, kind) if _sendable(raw) else _TEXT
        problems.append(f"{path}: expected {wanted}; found {told}")
    return found


def _float(raw: Any) -> Any:
    try:
        return float(raw) if isinstance(raw, int) and not isinstance(raw, bool) else raw
    except OverflowError:
        return raw


def _fits(meta: Mapping[str, Any], kind: Any, base: Any, found: Any) -> bool:
    if not isinstance(found, base) or (base is int and isinstance(found, bool)):
        return False
    if base is float and not isfinite(found):
        return False
    items = [*found, *found.values()] if base is dict else found if base is list else [found]
    if get_args(kind) and not all(isinstance(item, str) for item in items):
        return False
    if len(items) > _ITEMS or not _sendable(items):
        return False
    if meta.get("one_of") and not set(items) <= set(meta["one_of"]):
        return False
    least, most = meta.get("least"), meta.get("most")
    return (least is None or found >= least) and (most is None or found <= most)


def _sendable(found: Any) -> bool:
    """Whether other programs can be given this text, or all texts of this list."""
    texts = [text for text in (found if isinstance(found, list) else [found]) if isinstance(text, str)]
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
    """A value typed on a command line, or already of its kind. A list: JSON, or words with commas between."""
    if not isinstance(raw, str) or kind is str:
        return raw
    if get_origin(kind) is list and not raw.startswith("["):
        return [word.strip() for word in raw.split(",") if word.strip()]
    try:
        return json.loads(raw.lower() if kind is bool else raw)
    except (ValueError, RecursionError):
        return raw


def near(name: str, known: Iterable[str]) -> str:
    """What may have been meant by a name that is not among these, as the end of a message."""
    found = get_close_matches(name[:_LONGEST_NAME], list(known), 1, 0.75)
    return f"; did you mean {found[0]}?" if found else ""


class _Shown(Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 200
        self.maxlevel = 3

    def repr_int(self, x: int, level: int) -> str:  # noqa: ARG002 - as Repr calls it
        return repr(x) if x.bit_length() <= 128 else f"a number of {x.bit_length()} bits"


shown: Callable[[Any], str] = _Shown().repr
"""A value as a message shows it: as Python writes it, cut where it is long or deep."""


def shown_name(raw: Any) -> str:
    """A key of a mapping as text: YAML allows more than texts."""
    return raw if isinstance(raw, str) else shown(raw)


def _kind_of(raw: Any) -> str:
    """What a section is that should be keys and values. Not its content: there may be a secret in it."""
    kinds = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "a list"}
    return kinds.get(type(raw), "something else")
