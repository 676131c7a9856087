"""What an operator declares: frozen settings, checked all at once, each key with its unit, default and reason.

`parse` turns nested mappings (YAML, environment) into `Settings`; `change` applies one live key, as the config
topic does. Both say everything that is wrong, naming key, value and what was expected.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from state.errors import BadSettings

MODES = ("observe", "approve", "enforce")


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
    """One key: its default (none: the operator must give it), what it means, its bounds, and whether it may
    change while the application runs, and whether it may hold what nobody is to read."""
    meta = {"doc": doc, "one_of": one_of, "least": least, "most": most, "live": live, "secret": secret}
    if isinstance(default, type):
        return field(default_factory=default, metadata=meta)
    return field(default=default, metadata=meta)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The BookKeeper cluster to keep true."""

    zookeeper: str = key(doc="ZooKeeper servers of the cluster, host:port[,host:port...]")
    name: str = key("bookkeeper", "what this cluster is called in metrics and topics")
    ledgers_root: str = key("/ledgers", "path in metadataServiceUri")
    session_timeout_ms: int = key(10_000, "ZooKeeper session time-out", least=1_000, most=300_000)
    auth: dict[str, str] = key(
        dict, "ZooKeeper authentication as scheme: credential (digest: user:password)", secret=True
    )
    autorecovery: list[str] = key(list, "HTTP addresses of AutoRecovery daemons, for `trueup doctor`")


@dataclass(frozen=True, slots=True)
class Racks:
    """Where a bookie stands. It must be what the AutoRecovery workers believe, or repairs go round in circles."""

    source: str = key("none", "who knows the rack of a bookie", one_of=("none", "script", "static", "pulsar"))
    script: str = key("", "networkTopologyScriptFileName, called as BookKeeper calls it")
    table: dict[str, str] = key(dict, "bookie id or host: /rack")
    refresh_s: int = key(300, "how often a script is asked again", least=1)


@dataclass(frozen=True, slots=True)
class Placement:
    """The placement stream: what may be done, how soon and how much of it at once."""

    mode: str = key(
        "observe",
        "observe: findings only; approve: actions wait for `trueup approve`; enforce",
        one_of=MODES,
        live=True,
    )
    paused: bool = key(False, "act on nothing new; marks already written stay", live=True)
    grace_s: float = key(60.0, "how long a bookie may be away before its ledgers are repaired", least=0, live=True)
    hold_share: float = key(
        0.3, "losing more than this share of the bookies at once is held for an operator", least=0, most=1, live=True
    )
    release_hold: int = key(0, "raise by one to act on a loss that is held", least=0, live=True)
    max_marks: int = key(200, "marks outstanding at most; the riskiest ledgers go first", least=0, live=True)
    marks_per_s: float = key(500.0, "marks written a second at most", least=0.1, live=True)
    decline_retry_s: float = key(
        60.0, "first wait before a ledger is marked again that a worker left as it was; doubles", least=1, live=True
    )
    min_racks: int = key(2, "minNumRacksPerWriteQuorum of the cluster", least=0, live=True)
    enforce_min_racks: bool = key(False, "enforceMinNumRacksPerWriteQuorum of the cluster", live=True)
    hold_vote: bool = key(
        True, "take the Auditor's place while in approve or enforce; BookKeeper takes over when we go"
    )
    stale_s: float = key(
        60.0, "older observations than this make every verdict unknown and stop all acts", least=1, live=True
    )


@dataclass(frozen=True, slots=True)
class Journal:
    """The Kafka topics that hold what was observed."""

    bootstrap: str = key("", "brokers, host:port[,...]; empty: an embedded single-node broker in data_dir")
    prefix: str = key("trueup", "topics are called <prefix>.<cluster>.<what>")
    partitions: int = key(4, "partitions of a new ledger topic", least=1, most=1_000)
    replication: int = key(1, "replicas of a new topic", least=1, most=9)
    options: dict[str, str] = key(dict, "librdkafka settings (security.protocol, sasl.username ...)", secret=True)


@dataclass(frozen=True, slots=True)
class Spark:
    """The engine."""

    master: str = key("local[2]", "local[N] or spark://host:port")
    buckets: int = key(64, "pieces of the view, fixed for the life of the checkpoint", least=1, most=4_096)
    partitions: int = key(
        2,
        "tasks that work on them, fixed for the life of the checkpoint; the most cores ever wanted",
        least=1,
        most=1_024,
    )
    trigger_ms: int = key(200, "a micro-batch at most this often", least=0)
    max_records: int = key(250_000, "records taken in one micro-batch", least=1)
    memory: str = key("2g", "heap of the driver")
    ui_port: int = key(0, "port of the Spark UI; 0: any free one", least=0, most=65_535)
    checkpoint: str = key("", "where the view's checkpoints go; empty: data_dir")
    conf: dict[str, str] = key(dict, "further Spark settings", secret=True)


@dataclass(frozen=True, slots=True)
class Http:
    """The API and status page."""

    host: str = key("127.0.0.1", "address to listen on; there is no authentication")
    port: int = key(8480, "port; 0: any free one", least=0, most=65_535)


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything in trueup.yaml."""

    cluster: Cluster
    racks: Racks = field(default_factory=Racks)
    placement: Placement = field(default_factory=Placement)
    journal: Journal = field(default_factory=Journal)
    spark: Spark = field(default_factory=Spark)
    http: Http = field(default_factory=Http)
    data_dir: str = key("trueup-data", "embedded journal, checkpoints and logs")


def parse(raw: Mapping[str, Any]) -> Settings:
    """Settings from nested mappings. Raises `BadSettings` with every problem found."""
    problems: list[str] = []
    made = _build(Settings, raw, "", problems)
    if made is not None:
        problems += _together(made)
    if problems or made is None:
        raise BadSettings(problems)
    return made  # type: ignore[no-any-return]


def change(settings: Settings, name: str, value: Any) -> Settings:
    """The settings with one live key changed. Raises `BadSettings` when it is unknown, fixed or out of bounds."""
    section, _, leaf = name.partition(".")
    live = live_keys()
    if name not in live:
        raise BadSettings([f"{name}: expected a live key, one of {', '.join(live)}; found {value!r}"])
    problems: list[str] = []
    part = getattr(settings, section)
    found = _value(live[name], get_type_hints(type(part))[leaf], _from_text(value), name, problems)
    if problems:
        raise BadSettings(problems)
    return replace(settings, **{section: replace(part, **{leaf: found})})


@cache
def live_keys() -> Mapping[str, Field[Any]]:
    """Keys that may change while the application runs, by full name."""
    sections = {f.name: get_type_hints(Settings)[f.name] for f in fields(Settings)}
    return {
        f"{name}.{leaf.name}": leaf
        for name, cls in sections.items()
        if is_dataclass(cls)
        for leaf in fields(cls)
        if leaf.metadata.get("live")
    }


def value_of(settings: Settings, name: str) -> Any:
    """The value of a key by its full name."""
    section, _, leaf = name.partition(".")
    return getattr(getattr(settings, section), leaf)


def _build(cls: Any, raw: Any, path: str, problems: list[str]) -> Any:
    if not isinstance(raw, Mapping):
        problems.append(f"{path}: expected keys and values, found {raw!r}")
        return None
    hints, known = get_type_hints(cls), {f.name: f for f in fields(cls)}
    strange = sorted(set(map(str, raw)) - set(known))
    problems += [f"{path}{name}: expected one of {', '.join(known)}; found this unknown key" for name in strange]
    values: dict[str, Any] = {}
    for name, spec in known.items():
        if is_dataclass(hints[name]):
            section = raw.get(name)
            values[name] = _build(hints[name], {} if section is None else section, f"{path}{name}.", problems)
        elif raw.get(name) is not None:
            values[name] = _value(spec, hints[name], raw[name], path + name, problems)
        elif spec.default is MISSING and spec.default_factory is MISSING:
            problems.append(f"{path}{name}: expected {spec.metadata['doc']}; found nothing")
    return None if problems else cls(**values)


def _value(spec: Field[Any], kind: Any, raw: Any, path: str, problems: list[str]) -> Any:
    wanted = _wanted(spec, kind)
    base = get_origin(kind) or kind
    value: Any = float(raw) if base is float and isinstance(raw, int) and not isinstance(raw, bool) else raw
    good = isinstance(value, base) and not (base is int and isinstance(value, bool))
    if good and get_args(kind):
        items = value.values() if base is dict else value
        good = all(isinstance(item, str) for item in items)
    meta = spec.metadata
    if good and meta.get("one_of"):
        good = value in meta["one_of"]
    if good and meta.get("least") is not None:
        good = value >= meta["least"]
    if good and meta.get("most") is not None:
        good = value <= meta["most"]
    if not good:
        found = "something else" if meta.get("secret") else repr(raw)
        problems.append(f"{path}: expected {wanted}; found {found}")
    return value


def _wanted(spec: Field[Any], kind: Any) -> str:
    meta = spec.metadata
    if meta.get("one_of"):
        return "one of " + ", ".join(meta["one_of"])
    words = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
    text = words.get(kind, "names and texts" if get_origin(kind) is dict else "a list of texts")
    if meta.get("least") is not None:
        text += f", at least {meta['least']}"
    if meta.get("most") is not None:
        text += f", at most {meta['most']}"
    return text


def _together(settings: Settings) -> list[str]:
    """Rules that concern more than one key."""
    problems, racks = [], settings.racks
    if racks.source == "script" and not racks.script:
        problems.append("racks.script: expected the path of the rack script, as racks.source is script; found nothing")
    if racks.source == "static" and not racks.table:
        problems.append("racks.table: expected bookie: /rack pairs, as racks.source is static; found nothing")
    if not settings.cluster.ledgers_root.startswith("/"):
        problems.append(f"cluster.ledgers_root: expected a path like /ledgers; found {settings.cluster.ledgers_root!r}")
    return problems


def _from_text(value: Any) -> Any:
    """A value typed on a command line, or already of its kind."""
    if not isinstance(value, str):
        return value
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
