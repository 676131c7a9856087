"""The settings: frozen values, validated all at once; each key has a unit, a default and a description.

`parse` converts nested mappings (YAML, environment) to `Settings`; `change` applies one live key, as the config
topic does. Both report every problem with key, value and expectation.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from types import MappingProxyType
from typing import Any

from trueup.state.common import options
from trueup.state.common.errors import BadSettings
from trueup.state.common.options import (
    COUNT,
    YEAR_S,
    build,
    entries,
    from_text,
    hints_of,
    key,
    keys_of,
    near,
    shown,
    shown_name,
)
from trueup.state.common.systems import SYSTEMS
from trueup.state.deletion.settings import DeletionSettings
from trueup.state.deletion.stores import StoreSettings, check_stores
from trueup.state.kafka.settings import KafkaCluster
from trueup.state.logdirs.settings import LogDirsSettings
from trueup.state.placement.settings import PlacementSettings
from trueup.state.replication import settings as replication
from trueup.state.settings import validation


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The BookKeeper cluster that Trueup reconciles."""

    zookeeper: str = key(
        "", "ZooKeeper servers of the cluster, host:port[,host:port...]; optional if only links or logdirs are "
        "configured",
    )  # fmt: skip
    name: str = key("bookkeeper", "Name of this cluster in metrics and journal topics")
    ledgers_root: str = key("/ledgers", "Root path of the ledgers, as in metadataServiceUri")
    session_timeout_ms: int = key(10_000, "ZooKeeper session timeout in milliseconds", least=1_000, most=300_000)
    auth: dict[str, str] = key(
        dict, "ZooKeeper authentication as scheme: credential, for example digest: user:password", secret=True
    )
    bookies: dict[str, str] = key(
        dict, "TLS for connections to bookies: tls.ca (PEM file, or system), tls.certificate, tls.key, "
        "tls.key.password, tls.check.host", secret=True,
    )  # fmt: skip
    autorecovery: list[str] = key(
        list, "HTTP addresses of the AutoRecovery daemons; `trueup doctor` checks their configuration"
    )


@dataclass(frozen=True, slots=True)
class RackSettings:
    """How racks of bookies are resolved. They must equal the racks of the AutoRecovery workers, or repairs fail."""

    source: str = key("none", "Source of the rack map", one_of=("none", "script", "static", "pulsar"))
    script: str = key("", "Path of the script (networkTopologyScriptFileName); Trueup calls it as BookKeeper does")
    table: dict[str, str] = key(dict, "Static rack map, bookie id or host: /rack")
    refresh_s: int = key(300, "Interval in seconds at which the script is run again", least=1, most=YEAR_S)


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """The Kafka topics that store the observations."""

    bootstrap: str = key(
        "", "Kafka brokers of the journal, host:port[,...]; empty: an embedded single-node broker in data_dir"
    )
    prefix: str = key("trueup", "Prefix of the topic names, <prefix>.<cluster>.<topic>")
    partitions: int = key(4, "Number of partitions of a new ledger topic", least=1, most=1_000)
    replication: int = key(1, "Replication factor of a new topic", least=1, most=9)
    history_days: int = key(90, "Retention in days of the actions that `trueup get actions` lists", least=1, most=3_650)
    options: dict[str, str] = key(
        dict, "librdkafka settings, for example security.protocol and sasl.username", secret=True
    )


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The Spark session."""

    master: str = key("local[2]", "Spark master, local[N] or spark://host:port")
    buckets: int = key(
        16, "Number of buckets of the view, fixed for the lifetime of the checkpoint; fewer buckets reduce latency, "
        "more buckets use more cores", least=1, most=4_096,
    )  # fmt: skip
    partitions: int = key(
        2, "Number of tasks that process the buckets, fixed for the lifetime of the checkpoint; the maximum number of "
        "cores used", least=1, most=1_024,
    )  # fmt: skip
    trigger_ms: int = key(200, "Minimum interval between micro-batches in milliseconds", least=0, most=86_400_000)
    max_records: int = key(250_000, "Maximum number of records per micro-batch", least=1, most=COUNT)
    memory: str = key("2g", "Heap size of the driver")
    ui_port: int = key(0, "Port of the Spark UI; 0: any free port", least=0, most=65_535)
    checkpoint: str = key("", "Location of the checkpoints; empty: a directory in data_dir")
    conf: dict[str, str] = key(dict, "Additional Spark settings", secret=True)


_MEMORY = re.compile(r"[1-9][0-9]{0,8}[kmgt]b?", re.IGNORECASE)
"""The syntax of Java's -Xmx and of Spark's spark.driver.memory (JavaUtils.byteStringAs)."""


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """The API and the status page."""

    host: str = key("127.0.0.1", "Listen address; the API has no authentication")
    port: int = key(8480, "Listen port; 0: any free port", least=0, most=65_535)


@dataclass(frozen=True, slots=True)
class Settings:
    """The contents of trueup.yaml."""

    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    racks: RackSettings = field(default_factory=RackSettings)
    placement: PlacementSettings = field(default_factory=PlacementSettings)
    deletion: DeletionSettings = field(default_factory=DeletionSettings)
    stores: dict[str, StoreSettings] = field(default_factory=dict)
    kafka: dict[str, KafkaCluster] = field(default_factory=dict)
    links: dict[str, replication.LinkSettings] = field(default_factory=dict)
    logdirs: dict[str, LogDirsSettings] = field(default_factory=dict)
    journal: JournalSettings = field(default_factory=JournalSettings)
    spark: SparkSettings = field(default_factory=SparkSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    data_dir: str = key("trueup-data", "Directory of the embedded journal, checkpoints and logs")
    sections: dict[str, Any] = field(default_factory=dict, metadata={"inner": True})
    """Further sections, by name: those that streams declare."""

    @property
    def clusters(self) -> dict[str, tuple[str, replication.LogCluster]]:
        """Every cluster that a link can name: its system (the section's name) and its settings."""
        return {name: (system, one) for system in SYSTEMS for name, one in getattr(self, system).items()}


Sections = Mapping[str, type]
"""Dataclasses of further sections, by name."""


def parse(raw: Mapping[str, Any], sections: Sections = MappingProxyType({})) -> Settings:
    """Convert nested mappings to settings. Raises `BadSettings` with every problem."""
    problems: list[str] = []
    made = build(Settings, raw, "", problems, sections)
    more = {name: build(cls, raw.get(name) or {}, f"{name}.", problems) for name, cls in sections.items()}
    if not any(_given(raw, *path) for path in (("links",), ("logdirs",), ("cluster", "zookeeper"))):
        wanted = "ZooKeeper servers of the cluster, host:port[,host:port...], or links or logdirs of Kafka clusters"
        problems.insert(0, f"cluster.zookeeper: expected {wanted}; found nothing")
    problems += validation.check(
        {system: _good(raw, system) for system in SYSTEMS}, _good(raw, "links"), _good(raw, "logdirs")
    )
    if made is not None:
        problems += _together(made)
    if problems or made is None:
        raise BadSettings(problems)
    return replace(made, sections=more)  # type: ignore[no-any-return]


def _given(raw: Any, *path: str) -> bool:
    for name in path:
        raw = raw.get(name) if isinstance(raw, Mapping) else None
    return raw not in (None, "", {})


def _good(raw: Any, section: str) -> dict[str, Any]:
    """The entries of a table; None for entries that are invalid by themselves."""
    table = raw.get(section) if isinstance(raw, Mapping) else None
    cls = entries(_HINTS[section])
    return (
        {shown_name(name): build(cls, inner, "", []) for name, inner in table.items()}
        if isinstance(table, Mapping)
        else {}
    )


def change(settings: Settings, name: str, value: Any) -> Settings:
    """The settings with one live key changed. Raises `BadSettings` if the key is unknown, fixed or out of bounds."""
    live = live_keys(settings)
    if name not in live:
        raise BadSettings(
            [f"{name[:200]}: expected a live key, one of {', '.join(live)}; found this one{near(name, live)}"]
        )
    problems: list[str] = []
    section, *table, leaf = name.split(".")
    part = _part(settings, name)
    kind = hints_of(part.__class__)[leaf]
    made = replace(part, **{leaf: options.value(live[name], kind, from_text(value, kind), name, problems)})
    if table and not problems:
        systems = {cluster: system for cluster, (system, _) in settings.clusters.items()}
        problems += validation.check_entry(section, table[0], made, systems)
    if problems:
        raise BadSettings(problems)
    if section in settings.sections:
        return replace(settings, sections={**settings.sections, section: made})
    found: Any = {**getattr(settings, section), table[0]: made} if table else made
    return replace(settings, **{section: found})


def live_keys(settings: Settings) -> Mapping[str, Field[Any]]:
    """Keys that can change while the application runs, by full name."""
    return {name: spec for name, spec, _ in all_keys(settings) if spec.metadata["live"]}


def all_keys(
    settings: Settings | None = None, sections: Sections = MappingProxyType({})
) -> Iterator[tuple[str, Field[Any], Any]]:
    """Full name, field and type of every key: for all entries of tables or, without settings, for one named NAME and
    for these ``sections``."""
    for spec in keys_of(Settings):
        kind, cls = _HINTS[spec.name], entries(_HINTS[spec.name])
        if cls:
            names = ["NAME"] if settings is None else getattr(settings, spec.name)
            yield from (found for name in names for found in _leaves(cls, f"{spec.name}.{name}"))
        elif is_dataclass(kind):
            yield from _leaves(kind, spec.name)
        else:
            yield spec.name, spec, kind
    for name, cls in sections.items() if settings is None else settings.sections.items():
        yield from _leaves(cls, name)


def _leaves(cls: Any, path: str) -> Iterator[tuple[str, Field[Any], Any]]:
    hints = hints_of(cls)
    return ((f"{path}.{leaf.name}", leaf, hints[leaf.name]) for leaf in fields(cls))


def value_of(settings: Settings, name: str) -> Any:
    """The value of a key by its full name."""
    return getattr(_part(settings, name), name.rpartition(".")[2])


def _part(settings: Settings, name: str) -> Any:
    """The object that has a key: a section, an entry of a table, or the settings themselves."""
    path = name.split(".")[:-1]
    if not path:
        return settings
    if path[0] in settings.sections:
        return settings.sections[path[0]]
    section = getattr(settings, path[0])
    return section[path[1]] if len(path) > 1 else section


def _together(settings: Settings) -> list[str]:
    """Checks across keys."""
    problems, racks, root = [*check_stores(settings.stores)], settings.racks, settings.cluster.ledgers_root
    if racks.source == "script" and not racks.script:
        problems.append("racks.script: expected the path of the script because racks.source is script; found nothing")
    if racks.source == "static" and not racks.table:
        problems.append("racks.table: expected bookie: /rack pairs because racks.source is static; found nothing")
    if not _MEMORY.fullmatch(settings.spark.memory):
        problems.append(f"spark.memory: expected a size such as 512m or 2g; found {shown(settings.spark.memory)}")
    if not root.startswith("/"):
        problems.append(f"cluster.ledgers_root: expected a path like /ledgers; found {shown(root)}")
    if settings.deletion.owners != "none" and not settings.cluster.zookeeper:
        problems.append("deletion.owners: expected none without cluster.zookeeper; found " + settings.deletion.owners)
    if settings.deletion.mode != "observe" and not settings.deletion.instance:
        found = f"because deletion.mode is {settings.deletion.mode}; found nothing; `trueup doctor` shows it"
        problems.append(f"deletion.instance: expected the INSTANCEID of the BookKeeper cluster {found}")
    if settings.deletion.owners == "pulsar" and settings.deletion.mode != "observe" and not settings.deletion.exclusive:
        found = "found false; ledgers of other Pulsar clusters could be deleted"
        problems.append(f"deletion.exclusive: expected true because deletion.mode is {settings.deletion.mode}; {found}")
    return problems


_HINTS = hints_of(Settings)
