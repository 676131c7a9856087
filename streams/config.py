"""Configuration from a YAML file, the environment and flags, in this order; the last that names a key decides.

`load` says everything that is wrong at once, each line with the key and where it was set. `reference` prints
conf/trueup.yaml from the settings themselves.
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from state.errors import BadSettings
from state.settings import Settings, parse

PREFIX = "TRUEUP__"
WIDTH = 112


def load(path: Path | None, env: Mapping[str, str], flags: Mapping[str, object]) -> Settings:
    """The settings that hold. ``env``: variables TRUEUP__SECTION__KEY; ``flags``: section.key to value.

    A text from the environment or a flag is read as YAML where the key is not itself a text. A list or a table
    given there takes the place of the file's. Raises `BadSettings`.
    """
    layers = [_from_file(path)] if path else []
    layers += [_from_env(env), _from_flags(flags)]
    raw: dict[str, Any] = {}
    origins: dict[str, str] = {}
    problems: list[str] = []
    for values, where, wrong in layers:
        problems += wrong
        origins |= where
        for name, value in values.items():
            _put(raw, name, value)
    try:
        settings = parse(raw)
    except BadSettings as error:
        raise BadSettings([*problems, *(_placed(line, origins) for line in error.problems)]) from None
    if problems:
        raise BadSettings(problems)
    return settings


Layer = tuple[dict[str, Any], dict[str, str], list[str]]


def _from_file(path: Path) -> Layer:
    """Values by full key, where each was set, and what is wrong with the file."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        found = getattr(error, "strerror", None) or str(error)
        raise BadSettings([f"{path}: expected a readable YAML file; found: {found}"]) from None
    try:
        root = yaml.compose(text, yaml.SafeLoader)
        raw = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        raise BadSettings([f"{path}{_place(error)}: expected YAML; found: {error.problem}"]) from None
    except yaml.YAMLError as error:
        raise BadSettings([f"{path}: expected YAML; found: {error}"]) from None
    if raw is None:
        return {}, {}, []
    if not isinstance(raw, dict):
        raise BadSettings([f"{path}: expected sections with keys; found {type(raw).__name__}"])
    lines: dict[str, list[int]] = {}
    for name, line in _marks(root, 2):
        lines.setdefault(name, []).append(line)
    twice = [
        f"{name}: expected once; found {len(at)} times, in lines {', '.join(map(str, at))} of {path}"
        for name, at in lines.items()
        if len(at) > 1
    ]
    return dict(_flat(raw)), {name: f"line {at[-1]} of {path}" for name, at in lines.items()}, twice


def _place(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark
    return f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""


def _marks(node: Any, depth: int, path: str = "") -> Iterator[tuple[str, int]]:
    """Full name and line of every key, down to ``depth`` levels."""
    if depth and isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = f"{path}{key.value}"
            yield name, key.start_mark.line + 1
            yield from _marks(value, depth - 1, f"{name}.")


def _flat(raw: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in raw.items():
        if isinstance(value, dict) and value:
            yield from ((f"{name}.{leaf}", inner) for leaf, inner in value.items())
        elif value is not None:
            yield str(name), value


def _from_env(env: Mapping[str, str]) -> Layer:
    named = {
        variable[len(PREFIX) :].lower().replace("__", "."): (variable, value)
        for variable, value in env.items()
        if variable.startswith(PREFIX)
    }
    return _from_text({name: value for name, (_, value) in named.items()}, {n: v for n, (v, _) in named.items()})


def _from_flags(flags: Mapping[str, object]) -> Layer:
    return _from_text(flags, {name: f"--set {name}" for name in flags})


def _from_text(values: Mapping[str, object], origins: dict[str, str]) -> Layer:
    kinds, read, problems = {name: kind for name, _, kind in keys()}, {}, []
    for name, value in values.items():
        try:
            read[name] = yaml.safe_load(value) if isinstance(value, str) and kinds.get(name) is not str else value
        except yaml.YAMLError:
            problems.append(f"{name}: expected YAML; found {value!r} (from {origins[name]})")
    return read, origins, problems


def _put(raw: dict[str, Any], name: str, value: Any) -> None:
    section, dot, leaf = name.partition(".")
    if not dot:
        raw[section] = value
        return
    inner = raw.setdefault(section, {})
    if isinstance(inner, dict):
        inner[leaf] = value


def _placed(line: str, origins: Mapping[str, str]) -> str:
    """A problem with the place where its key was set."""
    name = line.partition(":")[0].removesuffix(".")
    return f"{line} (from {origins[name]})" if name in origins else line


def keys() -> Iterator[tuple[str, Field[Any], Any]]:
    """Full name, field and type of every key, in the order of the reference."""
    hints = get_type_hints(Settings)
    for spec in fields(Settings):
        kind = hints[spec.name]
        if is_dataclass(kind):
            inner = get_type_hints(kind)
            yield from ((f"{spec.name}.{leaf.name}", leaf, inner[leaf.name]) for leaf in fields(kind))
        else:
            yield spec.name, spec, kind


def reference() -> str:
    """conf/trueup.yaml: every key with its meaning, bounds and default."""
    lines = list(_HEAD)
    hints = get_type_hints(Settings)
    for spec in fields(Settings):
        kind = hints[spec.name]
        lines.append("")
        if is_dataclass(kind):
            lines += [*_comment(str(kind.__doc__), ""), f"{spec.name}:"]
            for leaf in fields(kind):
                lines += _entry(leaf, "  ")
        else:
            lines += _entry(spec, "")
    return "\n".join(lines) + "\n"


def _entry(spec: Field[Any], indent: str) -> list[str]:
    comment = _comment(_meaning(spec), indent)
    if spec.default is MISSING and spec.default_factory is MISSING:
        return [*comment, f"{indent}{spec.name}: {EXAMPLES[spec.name]}"]
    default = spec.default if spec.default_factory is MISSING else spec.default_factory()
    written = yaml.safe_dump(default, default_flow_style=True).removesuffix("\n...\n").strip()
    return [*comment, f"{indent}#{spec.name}: {written}"]


def _meaning(spec: Field[Any]) -> str:
    meta = spec.metadata
    bounds = [f"{word} {meta[name]}" for name, word in (("least", "at least"), ("most", "at most")) if _has(meta, name)]
    if meta["one_of"]:
        bounds.append(" | ".join(meta["one_of"]))
    notes = [note for note, holds in (("live", meta["live"]), ("required", spec.name in EXAMPLES)) if holds]
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


EXAMPLES = {"zookeeper": "127.0.0.1:2181"}
_HEAD = (
    "# Trueup's configuration: every key with its default. Take the # from a key to change it.",
    "# Where a key is set more than once the last of these decides: this file, the environment",
    "# (TRUEUP__SECTION__KEY), --set section.key=value.",
    "# [live]: may change while Trueup runs, for all that follow the cluster's config topic:",
    "# trueup config set placement.mode approve",
    "# Printed by `trueup config reference`.",
)
