"""The options of the data source.

Spark writes options to plans and shows them in its user interface. An option whose name is a key with secret values is
therefore refused: secrets are in the configuration file, or in environment variables of driver and executors.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from trueup.state.common.errors import BadSettings, Stop
from trueup.state.common.options import near
from trueup.state.common.patterns import problem_of, regex_of
from trueup.state.read_priority.settings import ADDRESS
from trueup.state.read_priority.tiers import ReadPriority
from trueup.state.settings.settings import Settings, possible_keys
from trueup.streams.catalog import sections
from trueup.streams.config.file import load
from trueup.streams.terminal.client import ApiTarget
from trueup.streams.terminal.options import target_of
from trueup.streams.topic_reader.limits import range_of
from trueup.streams.topic_reader.reader import Range, ReadOptions

T = TypeVar("T")
DEFAULTS: Mapping[str, str] = {
    "topics": "",
    "namespace": "public/default",
    "config": "",
    "from": "earliest",
    "to": "latest",
    "priority": ReadPriority.BOOKKEEPER_FIRST.value,
    "missing": "error",
    "transactions": "false",
    "partition_mb": "128",
    "max_entries_per_batch": "0",
    "value_type": "bytes",
    "undecodable": "error",
    "report_to": "",
    "report_token_file": "",
}
"""Every option of a read and its default. Further options are keys of the configuration."""
_SHORT = {"zookeeper": "cluster.zookeeper", "root": "deletion.root"}
_OTHER = {"path": "topics", "topic": "topics"}


@dataclass(frozen=True)
class SourceOptions:
    """The options, checked."""

    names: tuple[str, ...]
    """The names of the topics, each with its namespace; empty if there is a pattern."""
    pattern: str
    """A regular expression between slashes that selects topics of the namespace; empty if there are names."""
    namespace: str
    config: str
    """The absolute path of a configuration file; empty if there is none."""
    keys: tuple[tuple[str, str], ...]
    """Keys of the configuration and their values, as text."""
    range: Range
    from_latest: bool
    """Whether a stream begins with new messages."""
    read: ReadOptions
    partition_bytes: int
    """The target size of a Spark partition, in bytes."""
    batch_entries: int
    """The maximum number of entries of a micro-batch; 0 if there is no limit."""
    value_type: str
    """The type of the column ``value``: bytes, string, json, avro or auto."""
    strict: bool
    """Whether a value that does not fit the type is an error. Otherwise the value is null."""
    report_to: str = ""
    """The address of a running Trueup that receives reports of damaged replicas; empty if there is none."""
    report_token_file: str = ""
    """The absolute path of a file with the token for ``report_to``. If empty, the token is in the environment."""

    def settings(self) -> Settings:
        """The configuration, from the file and the environment of this process. Raises `BadSettings`."""
        return load(Path(self.config) if self.config else None, os.environ, dict(self.keys), sections())

    def report_target(self) -> ApiTarget:
        """Where to report damaged replicas, with the token of a file or of the environment of this process. The URL is
        empty: nowhere. Raises `BadSettings`."""
        file = Path(self.report_token_file) if self.report_token_file else None
        return target_of(self.report_to, file) if self.report_to else ApiTarget("")


def options_of(given: Mapping[str, str]) -> SourceOptions:
    """The options by name. Raises `BadSettings` with every problem."""
    problems: list[str] = []
    keys = _keys(given, problems)
    values = {**DEFAULTS, **{_OTHER.get(name, name): value for name, value in given.items()}}
    names, pattern = _topics(values["topics"].strip(), values["namespace"], problems)
    latest = values["from"] == "latest"
    begin = "earliest" if latest else values["from"]
    limits = _parsed(lambda: range_of(begin, values["to"]), Range(), "from, to", problems)
    priority = _one_of(values, "priority", [member.value for member in ReadPriority], problems)
    skip = _one_of(values, "missing", ["error", "skip"], problems) == "skip"
    transactions = _one_of(values, "transactions", ["false", "true"], problems) == "true"
    size, most = _number(values, "partition_mb", 1, problems), _number(values, "max_entries_per_batch", 0, problems)
    problems += [
        f"{name}: expected an absolute path, for all executors; found {values[name][:200]!r}"
        for name in ("config", "report_token_file")
        if values[name] and not Path(values[name]).is_absolute()
    ]
    value = _one_of(values, "value_type", ["bytes", "string", "json", "avro", "auto"], problems)
    strict = _one_of(values, "undecodable", ["error", "null"], problems) == "error"
    if values["report_to"] and not ADDRESS.fullmatch(values["report_to"]):
        problems.append("report_to: expected http(s)://host[:port] without path or user; found something else")
    if problems:
        raise BadSettings(problems)
    read = ReadOptions(ReadPriority(priority), skip, transactions)
    head = names, pattern, values["namespace"], values["config"], tuple(sorted(keys.items())), limits, latest, read
    report = values["report_to"], values["report_token_file"]
    return SourceOptions(*head, size << 20, most, value, strict, *report)


def _keys(given: Mapping[str, str], problems: list[str]) -> dict[str, str]:
    """The options that are keys of the configuration."""
    secret = [name for name, spec, _ in possible_keys(sections()) if spec.metadata["secret"]]
    keys = {}
    for name, value in given.items():
        key = _SHORT.get(name, name)
        if "." in key:
            keys[key] = value
            if any(key == secret_key or key.startswith(f"{secret_key}.") for secret_key in secret):
                problems.append(
                    f"{name}: expected it in the file of the option config, or in an environment variable; "
                    "found it as an option, which Spark shows"
                )
        elif name not in DEFAULTS and name not in _OTHER:
            problems.append(f"{name}: expected an option of pulsar-ledgers; found this one{near(name, [*DEFAULTS])}")
    return keys


def _topics(given: str, namespace: str, problems: list[str]) -> tuple[tuple[str, ...], str]:
    """Full names, or a pattern."""
    if regex_of(given) is not None:
        if problem := problem_of(given):
            problems.append(f"topics: expected a regular expression between slashes; found {given[:200]!r}: {problem}")
        return (), given
    names = [name.strip() for name in given.split(",") if name.strip()]
    if not names:
        problems.append("topics: expected names of topics, or a regular expression between slashes; found nothing")
    return tuple(name if "/" in name else f"{namespace}/{name}" for name in dict.fromkeys(names)), ""


def _one_of(values: Mapping[str, str], name: str, allowed: list[str], problems: list[str]) -> str:
    value = values[name].lower()
    if value in allowed:
        return value
    problems.append(f"{name}: expected {' or '.join(allowed)}; found {values[name][:100]!r}")
    return allowed[0]


def _number(values: Mapping[str, str], name: str, least: int, problems: list[str]) -> int:
    text = values[name]
    if text.isascii() and text.isdecimal() and len(text) < 10 and int(text) >= least:
        return int(text)
    problems.append(f"{name}: expected a number of at least {least}; found {text[:100]!r}")
    return least


def _parsed(read: Callable[[], T], default: T, name: str, problems: list[str]) -> T:
    try:
        return read()
    except Stop as error:
        problems.append(f"{name}: expected {error.expected}; found {error.found}")
        return default
