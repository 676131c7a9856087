"""Configuration from a YAML file, the environment and flags; the last of these that sets a key takes effect.

`load` reports all problems at once, each with its key and the place where the key was set. `reference` prints
conf/trueup.yaml from the settings.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import Field
from pathlib import Path
from typing import Any

import yaml

from trueup.state.common.errors import BadSettings
from trueup.state.common.options import default_of, keys_of, required, shown_name
from trueup.state.settings.section import Section
from trueup.state.settings.settings import DATA_DIR, Declared, Settings, all_sections, parse, possible_keys
from trueup.streams.rows import Row

PREFIX = "TRUEUP__"
WIDTH = 112


def load(path: Path | None, env: Mapping[str, str], flags: Mapping[str, object], declared: Declared) -> Settings:
    """The effective settings. ``env``: variables TRUEUP__SECTION__KEY; ``flags``: section.key to value.

    A value of the environment or a flag is parsed as YAML unless the key is a string. A list or table replaces that of
    the file. ``declared``: the sections of streams. Raises `BadSettings`.
    """
    kinds = {name: kind for name, _, kind in possible_keys(declared)}
    tables = {section.name for section in declared if section.entries}
    layers = [_from_file(path, tables)] if path else []
    names = [name for values, _, _ in layers for name in values]
    layers += [_from_env(env, names, kinds, tables), _from_flags(flags, kinds, tables)]
    raw: Row = {}
    origins: dict[str, str] = {}
    problems: list[str] = []
    for values, where, wrong in layers:
        problems += wrong
        origins |= where
        for name, value in values.items():
            _put(raw, name, value, tables)
    try:
        settings = parse(raw, declared)
    except BadSettings as error:
        raise BadSettings([*problems, *(_placed(line, origins) for line in error.problems)]) from None
    if problems:
        raise BadSettings(problems)
    return settings


Layer = tuple[Row, dict[str, str], list[str]]
Tables = Collection[str]
"""Names of sections with entries by name."""


def _from_file(path: Path, tables: Tables) -> Layer:
    """Values by full key, the place where each was set, and problems of the file."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadSettings([f"{path}: expected a readable YAML file; found: {reason}"]) from None
    try:
        root, raw = yaml.compose(text, yaml.SafeLoader), yaml.safe_load(text)
    except _BAD_YAML as error:
        raise BadSettings([f"{path}{_place(error)}: expected YAML; found: {_reason(error)}"]) from None
    if raw is None:
        return {}, {}, []
    if not isinstance(raw, dict):
        raise BadSettings([f"{path}: expected sections with keys; found {type(raw).__name__}"])
    lines: dict[str, list[int]] = {}
    for name, line in _marks(root, tables):
        lines.setdefault(name, []).append(line)
    twice = [
        f"{name}: expected once; found {len(at)} times, in lines {', '.join(map(str, at))} of {path}"
        for name, at in lines.items()
        if len(at) > 1
    ]
    return dict(_flat(raw, tables)), {name: f"line {at[-1]} of {path}" for name, at in lines.items()}, twice


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
    if "'\\t'" in (error.problem or ""):
        return "a tab; indent with spaces"
    return re.sub(r"'.*'", "something", error.problem or "something else", flags=re.DOTALL)


def _marks(node: yaml.Node | None, tables: Tables, path: str = "", depth: int = 2) -> Iterator[tuple[str, int]]:
    """Full name and line of every key."""
    if depth and isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = f"{path}{key.value}"
            yield name, key.start_mark.line + 1
            yield from _marks(value, tables, f"{name}.", depth - (name not in tables))


def _flat(raw: Mapping[object, object], tables: Tables, path: str = "", depth: int = 1) -> Iterator[tuple[str, object]]:
    for key, value in raw.items():
        name = f"{path}{shown_name(key)}"
        if depth and isinstance(value, dict) and value:
            yield from _flat(value, tables, f"{name}.", depth - (name not in tables))
        elif value is not None:
            yield name, value


def _from_env(env: Mapping[str, str], names: Iterable[str], kinds: Mapping[str, object], tables: Tables) -> Layer:
    """Values of the environment. The name of a variable cannot contain every character of a link's name; it is compared
    with the names in the file in lower case, with underscores for hyphens."""
    alike = {_plain(name): name for name in (".".join(name.split(".")[:2]) for name in names)}
    named = {}
    for variable, value in env.items():
        if variable.startswith(PREFIX):
            name = variable[len(PREFIX) :].lower().replace("__", ".")
            entry, dot, leaf = name.rpartition(".")
            named[f"{alike.get(entry, entry)}{dot}{leaf}" if _entry(name, tables) else name] = variable, value
    values, origins = {n: value for n, (_, value) in named.items()}, {n: v for n, (v, _) in named.items()}
    return _from_text(values, origins, kinds, tables)


def _from_flags(flags: Mapping[str, object], kinds: Mapping[str, object], tables: Tables) -> Layer:
    return _from_text(flags, {name: f"--set {name}" for name in flags}, kinds, tables)


def _from_text(
    values: Mapping[str, object], origins: dict[str, str], kinds: Mapping[str, object], tables: Tables
) -> Layer:
    read, problems = {}, []
    for name, value in values.items():
        section, _, leaf = name.partition(".")
        kind = kinds.get(f"{section}.NAME.{leaf.rpartition('.')[2]}" if _entry(name, tables) else name)
        try:
            read[name] = yaml.safe_load(value) if isinstance(value, str) and kind is not str else value
        except _BAD_YAML as error:
            problems.append(f"{name}: expected YAML; found: {_reason(error)} (from {origins[name]})")
    return read, origins, problems


def _put(raw: Row, name: str, value: object, tables: Tables) -> None:
    *path, leaf = name.split(".", 2 if _entry(name, tables) else 1)
    inner = raw
    for part in path:
        inner = inner.setdefault(part, {})
        if not isinstance(inner, dict):
            return
    inner[leaf] = value


def _placed(line: str, origins: Mapping[str, str]) -> str:
    """Add the place where its key was set to a problem."""
    name = line.partition(":")[0].removesuffix(".")
    return f"{line} (from {origins[name]})" if name in origins else line


def _entry(name: str, tables: Tables) -> bool:
    """Whether a key belongs to an entry of a table: links.NAME.key."""
    return name.partition(".")[0] in tables and name.count(".") > 1


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


def reference(declared: Declared) -> str:
    """The text of conf/trueup.yaml: every key with its meaning, bounds and default; ``declared``: the sections of
    streams."""
    lines = list(_HEAD)
    for section in all_sections(declared):
        lines += ["", *_section(section)]
    return "\n".join([*lines, "", *_key(DATA_DIR, "")]) + "\n"


def _section(section: Section[Any]) -> list[str]:
    head = _comment(str(section.keys.__doc__), "")
    if not section.entries:
        keys = [line for leaf in keys_of(section.keys) for line in _key(leaf, "  ", section.examples.get(leaf.name))]
        return [*head, f"{section.name}:", *keys]
    name, *more = section.entries
    keys = [line for leaf in keys_of(section.keys) for line in _key(leaf, "    ", section.examples.get(leaf.name), "#")]
    return [*head, f"#{section.name}:", f"  #{name}:", *keys, *(f"  #{line}" for line in more)]


def _key(spec: Field[Any], indent: str, example: str | None = None, mark: str = "") -> list[str]:
    """The lines of one key. ``mark``: the text before an example, which is in effect without this text."""
    comment = _comment(_meaning(spec), indent)
    if example is not None:
        return [*comment, f"{indent}{mark}{spec.name}: {example}"]
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


def _has(meta: Mapping[str, object], name: str) -> bool:
    return meta.get(name) is not None


def _comment(text: str, indent: str) -> list[str]:
    lines, line = [], ""
    for word in text.split():
        if line and len(indent) + 2 + len(line) + 1 + len(word) > WIDTH:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    return [f"{indent}# {part}" for part in [*lines, line]]


_HEAD = (
    "# Trueup's configuration: every key with its default. Remove the # before a key to change it.",
    "# If a key is set more than once, the last of these takes effect: this file, the environment",
    "# (TRUEUP__SECTION__KEY), --set section.key=value.",
    "# [live]: can be changed while Trueup runs, for all applications that follow the cluster's config topic:",
    "# trueup config set placement.mode approve",
    "# Printed by `trueup config reference`.",
)
