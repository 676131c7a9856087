"""Configuration from a YAML file, the environment and flags; the last of these that sets a key takes effect.

`load` reports all problems at once, each with its key and the place where the key was set. `reference` prints
conf/trueup.yaml from the settings.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import Field, fields, is_dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_type_hints

import yaml

from trueup.state.common.errors import BadSettings
from trueup.state.common.options import default_of, entries, keys_of, required, shown_name
from trueup.state.settings.settings import Sections, Settings, all_keys, parse

PREFIX = "TRUEUP__"
NONE: Sections = MappingProxyType({})
WIDTH = 112


def load(path: Path | None, env: Mapping[str, str], flags: Mapping[str, object], sections: Sections = NONE) -> Settings:
    """The effective settings. ``env``: variables TRUEUP__SECTION__KEY; ``flags``: section.key to value.

    A value of the environment or a flag is parsed as YAML unless the key is a string. A list or table replaces that of
    the file. ``sections``: those of streams. Raises `BadSettings`.
    """
    layers = [_from_file(path)] if path else []
    known = [name for values, _, _ in layers for name in values]
    layers += [_from_env(env, known, sections), _from_flags(flags, sections)]
    raw: dict[str, Any] = {}
    origins: dict[str, str] = {}
    problems: list[str] = []
    for values, where, wrong in layers:
        problems += wrong
        origins |= where
        for name, value in values.items():
            _put(raw, name, value)
    try:
        settings = parse(raw, sections)
    except BadSettings as error:
        raise BadSettings([*problems, *(_placed(line, origins) for line in error.problems)]) from None
    if problems:
        raise BadSettings(problems)
    return settings


Layer = tuple[dict[str, Any], dict[str, str], list[str]]


def _from_file(path: Path) -> Layer:
    """Values by full key, the place where each was set, and problems of the file."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        found = getattr(error, "strerror", None) or str(error)
        raise BadSettings([f"{path}: expected a readable YAML file; found: {found}"]) from None
    try:
        root, raw = yaml.compose(text, yaml.SafeLoader), yaml.safe_load(text)
    except _BAD_YAML as error:
        raise BadSettings([f"{path}{_place(error)}: expected YAML; found: {_reason(error)}"]) from None
    if raw is None:
        return {}, {}, []
    if not isinstance(raw, dict):
        raise BadSettings([f"{path}: expected sections with keys; found {type(raw).__name__}"])
    lines: dict[str, list[int]] = {}
    for name, line in _marks(root):
        lines.setdefault(name, []).append(line)
    twice = [
        f"{name}: expected once; found {len(at)} times, in lines {', '.join(map(str, at))} of {path}"
        for name, at in lines.items()
        if len(at) > 1
    ]
    return dict(_flat(raw)), {name: f"line {at[-1]} of {path}" for name, at in lines.items()}, twice


_BAD_YAML = (yaml.YAMLError, ValueError, OverflowError, RecursionError)
"""PyYAML does not convert Python's errors for invalid dates, numbers of thousands of digits, and deep nesting."""


def _place(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    return f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""


def _reason(error: Exception) -> str:
    """The message of a YAML parser without its quotations, which may be secrets."""
    if isinstance(error, RecursionError):
        return "values nested too deep"
    if not isinstance(error, yaml.MarkedYAMLError):
        return (
            "characters that are not allowed" if isinstance(error, yaml.YAMLError) else "a date or number out of range"
        )
    return re.sub(r"'.*'", "something", error.problem or "something else", flags=re.DOTALL)


def _marks(node: Any, path: str = "", depth: int = 2) -> Iterator[tuple[str, int]]:
    """Full name and line of every key."""
    if depth and isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = f"{path}{key.value}"
            yield name, key.start_mark.line + 1
            yield from _marks(value, f"{name}.", depth - (name not in TABLES))


def _flat(raw: Mapping[Any, Any], path: str = "", depth: int = 1) -> Iterator[tuple[str, Any]]:
    for key, value in raw.items():
        name = f"{path}{shown_name(key)}"
        if depth and isinstance(value, dict) and value:
            yield from _flat(value, f"{name}.", depth - (name not in TABLES))
        elif value is not None:
            yield name, value


def _from_env(env: Mapping[str, str], known: Iterable[str], sections: Sections) -> Layer:
    """Values of the environment. The name of a variable cannot contain every character of a link's name; it is compared
    with the names in the file in lower case, with underscores for hyphens."""
    alike = {_plain(name): name for name in (".".join(name.split(".")[:2]) for name in known)}
    named = {}
    for variable, value in env.items():
        if variable.startswith(PREFIX):
            name = variable[len(PREFIX) :].lower().replace("__", ".")
            entry, dot, leaf = name.rpartition(".")
            named[f"{alike.get(entry, entry)}{dot}{leaf}" if _entry(name) else name] = variable, value
    values, origins = {n: value for n, (_, value) in named.items()}, {n: v for n, (v, _) in named.items()}
    return _from_text(values, origins, sections)


def _from_flags(flags: Mapping[str, object], sections: Sections) -> Layer:
    return _from_text(flags, {name: f"--set {name}" for name in flags}, sections)


def _from_text(values: Mapping[str, object], origins: dict[str, str], sections: Sections) -> Layer:
    kinds, read, problems = {name: kind for name, _, kind in all_keys(None, sections)}, {}, []
    for name, value in values.items():
        section, _, leaf = name.partition(".")
        kind = kinds.get(f"{section}.NAME.{leaf.rpartition('.')[2]}" if _entry(name) else name)
        try:
            read[name] = yaml.safe_load(value) if isinstance(value, str) and kind is not str else value
        except _BAD_YAML as error:
            problems.append(f"{name}: expected YAML; found: {_reason(error)} (from {origins[name]})")
    return read, origins, problems


def _put(raw: dict[str, Any], name: str, value: Any) -> None:
    *path, leaf = name.split(".", 2 if _entry(name) else 1)
    inner: Any = raw
    for part in path:
        inner = inner.setdefault(part, {})
        if not isinstance(inner, dict):
            return
    inner[leaf] = value


def _placed(line: str, origins: Mapping[str, str]) -> str:
    """Add the place where its key was set to a problem."""
    name = line.partition(":")[0].removesuffix(".")
    return f"{line} (from {origins[name]})" if name in origins else line


def _entry(name: str) -> bool:
    """Whether a key belongs to an entry of a table: links.NAME.key."""
    return name.partition(".")[0] in TABLES and name.count(".") > 1


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


def reference(sections: Sections = NONE) -> str:
    """The text of conf/trueup.yaml: every key with its meaning, bounds and default; ``sections``: those of streams."""
    lines = list(_HEAD)
    for spec in keys_of(Settings):
        kind, entry = _HINTS[spec.name], entries(_HINTS[spec.name])
        lines.append("")
        if entry:
            name, *more = TABLES[spec.name]
            lines += [*_comment(str(entry.__doc__), ""), f"#{spec.name}:", f"  #{name}:"]
            lines += [line for leaf in fields(entry) for line in _setting(leaf, spec.name, "    ")]
            lines += [f"  #{line}" for line in more]
        elif is_dataclass(kind):
            lines += _section(spec.name, kind)
        else:
            lines += _setting(spec, "", "")
    for section, cls in sections.items():
        lines += ["", *_section(section, cls)]
    return "\n".join(lines) + "\n"


def _section(name: str, kind: Any) -> list[str]:
    lines = [line for leaf in fields(kind) for line in _setting(leaf, name, "  ")]
    return [*_comment(str(kind.__doc__), ""), f"{name}:", *lines]


def _setting(spec: Field[Any], section: str, indent: str) -> list[str]:
    comment, example = _comment(_meaning(spec), indent), EXAMPLES.get(f"{section}.{spec.name}")
    if example is not None:
        return [*comment, f"{indent}{'#' if section in TABLES else ''}{spec.name}: {example}"]
    written = yaml.safe_dump(default_of(spec), default_flow_style=True, width=1_000).removesuffix("\n...\n").strip()
    return [*comment, f"{indent}#{spec.name}: {written}"]


def _meaning(spec: Field[Any]) -> str:
    meta = spec.metadata
    bounds = [f"{word} {meta[name]}" for name, word in (("least", "min"), ("most", "max")) if _has(meta, name)]
    if meta["one_of"]:
        bounds.append(" | ".join(meta["one_of"]))
    notes = [note for note, holds in (("live", meta["live"]), ("required", required(spec))) if holds]
    text: str = meta["doc"] + (f" ({', '.join(bounds)})" if bounds else "")
    return text + "".join(f" [{note}]" for note in notes)


def _has(meta: Mapping[str, Any], name: str) -> bool:
    return meta.get(name) is not None


def _comment(text: str, indent: str) -> list[str]:
    lines, line = [], ""
    for word in text.split():
        if line and len(indent) + 2 + len(line) + 1 + len(word) > WIDTH:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    return [f"{indent}# {part}" for part in [*lines, line]]


EXAMPLES = {
    "cluster.zookeeper": "127.0.0.1:2181",
    "stores.bucket": "pulsar-offloaded",
    "kafka.bootstrap": "127.0.0.1:9092",
    "kafka.bit": "0",
    "links.source": "east",
    "links.target": "west",
    "links.topics": r"[orders, '/pay\..*/']",
}
TABLES = {
    "stores": ("archive",),
    "kafka": ("east", "west: {bootstrap: '127.0.0.1:9093', bit: 1}"),
    "links": ("east-west",),
    "logdirs": ("east",),
}
"""Sections with entries by name, with the names of examples."""
_HINTS = get_type_hints(Settings)
_HEAD = (
    "# Trueup's configuration: every key with its default. Remove the # before a key to change it.",
    "# If a key is set more than once, the last of these takes effect: this file, the environment",
    "# (TRUEUP__SECTION__KEY), --set section.key=value.",
    "# [live]: can be changed while Trueup runs, for all applications that follow the cluster's config topic:",
    "# trueup config set placement.mode approve",
    "# Printed by `trueup config reference`.",
)
