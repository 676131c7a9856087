"""The settings: frozen values, validated all at once; each key has a unit, a default and a description.

`parse` converts nested mappings (YAML, environment) to `Settings`; `change` applies one live key, as the config
topic does. Both report every problem with key, value and expectation. Besides the sections of the application, the
settings have those that streams declare, each known by its dataclass.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, replace
from typing import Any, TypeVar

from trueup.state.common import options
from trueup.state.common.errors import BadSettings
from trueup.state.common.options import MODES, YEAR_S, from_text, hints_of, key, keys_of, near, one_of, shown, unknown
from trueup.state.common.systems import SYSTEMS
from trueup.state.common.tls import DOC as TLS
from trueup.state.common.tls import only_tls
from trueup.state.settings.callers import OIDC, PROXY, OidcSettings, ProxySettings, is_loopback
from trueup.state.settings.kafka_security import DOC as SECURITY
from trueup.state.settings.kafka_security import problems as security_problems
from trueup.state.settings.kafka_security import settings_of_security
from trueup.state.settings.roles import HOST, PORT
from trueup.state.settings.section import Draft, Section, Sections, value_in
from trueup.state.settings.spark import SPARK, SparkSettings
from trueup.state.settings.zookeeper_security import DOC as ZOOKEEPER
from trueup.state.settings.zookeeper_security import problems as zookeeper_problems

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The BookKeeper cluster that Trueup reconciles."""

    zookeeper: str = key(
        "",
        "ZooKeeper servers of the cluster, host:port[,host:port...]; optional if only links or logdirs are configured",
    )
    name: str = key("bookkeeper", "Name of this cluster in metrics and journal topics")
    ledgers_root: str = key("/ledgers", "Root path of the ledgers, as in metadataServiceUri")
    session_timeout_ms: int = key(10_000, "ZooKeeper session timeout in milliseconds", least=1_000, most=300_000)
    auth: dict[str, str] = key(
        dict, "ZooKeeper authentication as scheme: credential, for example digest: user:password", secret=True
    )
    security: dict[str, str] = key(dict, ZOOKEEPER, secret=True)
    bookies: dict[str, str] = key(dict, f"TLS for connections to bookies: {TLS}", secret=True)
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
        dict, "librdkafka settings of connections and clients, for example socket.timeout.ms", secret=True
    )
    security: dict[str, str] = key(dict, SECURITY, secret=True)
    key_file: str = key(
        "",
        "File of keys that sign the records of the journal, one per line of at least 32 characters: the "
        "first signs, all verify. Records without a valid signature are refused. Empty: records are not signed",
    )
    confirmed: str = key(
        "",
        "Id and first offset of the config topic that holds all settings. Trueup sets it once; while the topic is "
        "another one, settings may have been lost, and every mode is observe. To confirm the present settings, set it "
        "to the value that `trueup status` shows",
        live=True,
    )


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """The API and the status page."""

    host: str = key(HOST, "Listen address; one that other machines can reach requires http.tokens_file")
    port: int = key(PORT, "Listen port; 0: any free port", least=0, most=65_535)
    tokens_file: str = key(
        "",
        "File of the tokens that callers must send, one line NAME ROLE sha256:DIGEST each, as `trueup token new` "
        "prints it; read again when it changes. Empty: callers are not authenticated",
    )
    open_metrics: bool = key(False, "Serve /metrics to callers without a token")
    names: list[str] = key(
        list, "Names besides its addresses and the name of this machine under which callers may address the API"
    )
    tls_certificate: str = key(
        "", "PEM file with the certificate of the API and its chain; read again when it changes. Empty: no TLS"
    )
    tls_key: str = key("", "PEM file with the private key of http.tls_certificate, not encrypted")


@dataclass(frozen=True, slots=True)
class HaSettings:
    """High availability: several `trueup run` of one application, of which one leads and the others stand by."""

    id: str = key(
        "",
        "Name of the application, the same for all of its instances; part of the transactional.id of the journal's "
        "producer. Empty: one instance, without a standby",
    )
    takeover_s: float = key(
        10.0,
        "Time in seconds without a sign of the leader after which a standby takes over; a leader ends after "
        "70% of it without a proof that it leads. Of different values, standbys wait for the larger one",
        least=4,
        most=600,
    )
    address: str = key("", "URL of this instance that the others show to operators; empty: http.host and http.port")


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """Bounds of what callers and the journal's records can set."""

    modes_at_most: dict[str, str] = key(
        dict,
        "The highest mode (observe, approve, enforce) that can be set while Trueup runs, by stream, or by link or "
        "cluster as links.NAME; for example placement: approve, links: observe",
    )


def _check_access(draft: Draft) -> Iterator[str]:
    access = draft.section(AccessSettings)
    if access is None:
        return
    modes = dict(_modes(draft.sections))
    names = {*modes, *(name.partition(".")[0] for name in modes), *_streams(draft.sections)}
    for name, most in access.modes_at_most.items():
        if most not in MODES:
            yield f"access.modes_at_most.{name}: expected one of {', '.join(MODES)}; found {shown(most)}"
        if name not in names:
            expected = f"one of {', '.join(sorted(names))}"
            yield f"access.modes_at_most.{name}: expected {expected}; found this one{near(name, names)}"
    for name, mode in modes.items():
        most = _at_most(access.modes_at_most, name)
        if most and exceeds(mode, most):
            yield f"{name}.mode: expected at most {most}, by access.modes_at_most; found {mode}"


def _streams(sections: Sections) -> list[str]:
    """Names of the sections that have modes."""
    return [section.name for section in sections if any(spec.name == "mode" for spec in keys_of(section.keys))]


def _modes(sections: Sections) -> Iterator[tuple[str, str]]:
    """The mode of each section and entry that has one. Invalid ones are left out."""
    for section, value in sections.items():
        if section.name not in _streams(sections):
            continue
        parts = (
            {f"{section.name}.{name}": part for name, part in (value or {}).items()}
            if section.entries
            else {section.name: value}
        )
        yield from ((name, part.mode) for name, part in parts.items() if part is not None)


def _at_most(bounds: Mapping[str, str], name: str) -> str:
    """The lowest bound of a stream, or of an entry of one; empty if there is none."""
    modes = [bounds[level] for level in (name, name.partition(".")[0]) if bounds.get(level) in MODES]
    return min(modes, key=MODES.index, default="")


def mode_at_most(settings: "Settings", name: str) -> str:
    """The bound of a live key that is a mode; empty for other keys, and without a bound."""
    part, _, leaf = name.rpartition(".")
    return _at_most(settings.access.modes_at_most, part) if leaf == "mode" else ""


def observing(settings: "Settings") -> "Settings":
    """The settings with every mode observe."""

    def held(section: Section[Any], value: Any) -> Any:
        if section.name not in streams or not value:
            return value
        if section.entries:
            return {name: replace(part, mode=MODES[0]) for name, part in value.items()}
        return replace(value, mode=MODES[0])

    streams = _streams(settings.sections)
    return replace(settings, sections={section: held(section, value) for section, value in settings.sections.items()})


def exceeds(mode: object, most: str) -> bool:
    """Whether a mode permits more than another one."""
    return mode in MODES and MODES.index(str(mode)) > MODES.index(most)


def _check_cluster(draft: Draft) -> Iterator[str]:
    cluster = draft.section(ClusterSettings)
    if cluster is None:
        return
    if not cluster.ledgers_root.startswith("/"):
        yield f"cluster.ledgers_root: expected a path like /ledgers; found {shown(cluster.ledgers_root)}"
    yield from (f"cluster.security.{problem}" for problem in zookeeper_problems(cluster.security, cluster.auth))
    yield from (f"cluster.bookies.{problem}" for problem in only_tls(cluster.bookies))


def _check_journal(draft: Draft) -> Iterator[str]:
    journal = draft.section(JournalSettings)
    if journal is None:
        return
    yield from security_problems(journal.security, journal.options, "journal")
    spark = draft.section(SparkSettings)
    if spark and spark.on_cluster and not journal.bootstrap:
        yield (
            "journal.bootstrap: expected Kafka brokers because spark.master is a cluster, whose executors cannot reach "
            "the embedded one; found nothing"
        )
    if journal.security and not journal.bootstrap:
        yield "journal.security: expected journal.bootstrap; found none, and the embedded broker makes its own login"
    if not journal.security:
        for name in sorted(settings_of_security(journal.options)):
            yield f"journal.options.{name}: expected journal.security, which the Java client of Spark also reads"


def _check_racks(draft: Draft) -> Iterator[str]:
    racks = draft.section(RackSettings)
    if racks and racks.source == "script" and not racks.script:
        yield "racks.script: expected the path of the script because racks.source is script; found nothing"
    if racks and racks.source == "static" and not racks.table:
        yield "racks.table: expected bookie: /rack pairs because racks.source is static; found nothing"


def _check_http(draft: Draft) -> Iterator[str]:
    http = draft.section(HttpSettings)
    if http is None:
        return
    oidc, proxy = draft.section(OidcSettings), draft.section(ProxySettings)
    if not is_loopback(http.host) and not http.tokens_file and not (oidc and oidc.issuer):
        yield (
            "http.host: expected an address of this machine alone, such as 127.0.0.1, because http.tokens_file is not "
            f"set; found {shown(http.host)}. To serve other machines, set http.tokens_file; see docs/security.md"
        )
    if proxy and proxy.tokens and not http.tokens_file:
        yield "http.tokens_file: expected the file with the tokens of proxy.tokens; found nothing"
    if bool(http.tls_certificate) != bool(http.tls_key):
        missing = "tls_key" if http.tls_certificate else "tls_certificate"
        yield f"http.{missing}: expected a PEM file, as the certificate and its key belong together; found nothing"


_HA_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")


def _check_ha(draft: Draft) -> Iterator[str]:
    ha, journal = draft.section(HaSettings), draft.section(JournalSettings)
    if ha is None or not (ha.id or ha.address):
        return
    if not _HA_ID.fullmatch(ha.id):
        yield f"ha.id: expected 1 to 100 letters, digits, dots, underscores and hyphens; found {shown(ha.id)}"
    if ha.address and not _URL.fullmatch(ha.address):
        yield f"ha.address: expected http://host:port or https://host:port; found {shown(ha.address)}"
    if journal and not journal.bootstrap:
        yield (
            "journal.bootstrap: expected Kafka brokers because section ha is set: all instances need one journal; "
            "found nothing"
        )


_URL = re.compile(r"https?://[^\s/@]+")

CLUSTER = Section("cluster", ClusterSettings, examples={"zookeeper": "127.0.0.1:2181"}, check=_check_cluster)
RACKS = Section("racks", RackSettings, check=_check_racks)
JOURNAL = Section("journal", JournalSettings, check=_check_journal)
HTTP = Section("http", HttpSettings, check=_check_http)
HA = Section("ha", HaSettings, check=_check_ha)
ACCESS = Section("access", AccessSettings, check=_check_access)
Declared = Sequence[Section[Any]]
"""The sections that streams declare."""


def all_sections(declared: Declared) -> list[Section[Any]]:
    """The sections of the application and these of streams, in the order of the reference."""
    return [CLUSTER, RACKS, *declared, JOURNAL, SPARK, HTTP, OIDC, PROXY, HA, ACCESS]


@dataclass(frozen=True, slots=True)
class Settings:
    """The contents of trueup.yaml."""

    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    racks: RackSettings = field(default_factory=RackSettings)
    journal: JournalSettings = field(default_factory=JournalSettings)
    spark: SparkSettings = field(default_factory=SparkSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    oidc: OidcSettings = field(default_factory=OidcSettings)
    proxy: ProxySettings = field(default_factory=ProxySettings)
    ha: HaSettings = field(default_factory=HaSettings)
    access: AccessSettings = field(default_factory=AccessSettings)
    data_dir: str = key("trueup-data", "Directory of the embedded journal, checkpoints and logs")
    sections: Sections = field(default_factory=dict)
    """The sections that streams declare."""

    def section(self, keys: type[T]) -> T:
        """The section with this dataclass."""
        value: T = value_in(self.sections, keys, table=False)
        return value

    def table(self, keys: type[T]) -> dict[str, T]:
        """The entries of the table with this dataclass, by name."""
        entries: dict[str, T] = value_in(self.sections, keys, table=True)
        return entries


DATA_DIR = next(spec for spec in keys_of(Settings) if spec.name == "data_dir")
"""The only key outside of sections."""


def parse(raw: Mapping[str, Any], declared: Declared) -> Settings:
    """Convert nested mappings to settings. Raises `BadSettings` with every problem."""
    sections = all_sections(declared)
    problems = unknown(raw, [*(section.name for section in sections), DATA_DIR.name], "")
    values = {section: section.build(raw.get(section.name), problems) for section in sections}
    data_dir: Any = DATA_DIR.default if raw.get(DATA_DIR.name) is None else raw[DATA_DIR.name]
    options.value(DATA_DIR, str, data_dir, DATA_DIR.name, problems)
    alone = [section.name for section in declared if section.complete]
    if not any(_given(raw, *path) for path in ((CLUSTER.name, "zookeeper"), *((name,) for name in alone))):
        others = f"{' or '.join(alone)} of {' or '.join(system.title for system in SYSTEMS.values())} clusters"
        expected = f"ZooKeeper servers of the cluster, host:port[,host:port...], or {others}"
        problems.insert(0, f"cluster.zookeeper: expected {expected}; found nothing")
    draft = Draft(values)
    problems += [problem for section in sections for problem in section.check(draft)]
    if problems:
        raise BadSettings(problems)
    own = {section.name: values.pop(section) for section in all_sections(())}
    return Settings(**own, data_dir=data_dir, sections=values)


def _given(raw: Any, *path: str) -> bool:
    for name in path:
        raw = raw.get(name) if isinstance(raw, Mapping) else None
    return raw not in (None, "", {})


def change(settings: Settings, name: str, value: Any) -> Settings:
    """The settings with one live key changed. Raises `BadSettings` if the key is unknown, fixed or out of bounds."""
    live = live_keys(settings)
    if name not in live:
        raise BadSettings(
            [f"{name[:200]}: expected {one_of([*live], name, 'a live key')}; found this one{near(name, live)}"]
        )
    problems: list[str] = []
    section, entry, leaf = _path(settings, name)
    part = _part(settings, name)
    kind = hints_of(part.__class__)[leaf]
    new_part = replace(part, **{leaf: options.value(live[name], kind, from_text(value, kind), name, problems)})
    changed = {**settings.sections[section], entry: new_part} if entry else new_part
    own = {own_section: getattr(settings, own_section.name) for own_section in all_sections(())}
    sections = {**own, **settings.sections, section: changed}
    if not problems:
        draft = Draft(sections)
        problems += section.check_entry(entry, new_part, draft) if entry else section.check(draft)
    if problems:
        raise BadSettings(problems)
    return replace(settings, **{own_section.name: sections.pop(own_section) for own_section in own}, sections=sections)


def live_keys(settings: Settings) -> Mapping[str, Field[Any]]:
    """Keys that can change while the application runs, by full name."""
    return {name: spec for name, spec, _ in all_keys(settings) if spec.metadata["live"]}


Key = tuple[str, Field[Any], Any]
"""Full name, field and type of a key."""


def all_keys(settings: Settings) -> Iterator[Key]:
    """Every key, those of tables for all entries."""
    for section in all_sections(tuple(settings.sections)):
        for entry in settings.sections[section] if section.entries else ("",):
            yield from section.leaves(entry)
    yield DATA_DIR.name, DATA_DIR, str


def possible_keys(declared: Declared) -> Iterator[Key]:
    """Every key that settings can have, those of tables for an entry with the name NAME."""
    for section in all_sections(declared):
        yield from section.leaves("NAME" if section.entries else "")
    yield DATA_DIR.name, DATA_DIR, str


def value_of(settings: Settings, name: str) -> Any:
    """The value of a key by its full name."""
    return getattr(_part(settings, name), name.rpartition(".")[2])


def _part(settings: Settings, name: str) -> Any:
    """The object that has a key: a section, an entry of a table, or the settings themselves."""
    path = name.split(".")[:-1]
    if not path:
        return settings
    for section, value in settings.sections.items():
        if section.name == path[0]:
            return value[path[1]] if section.entries else value
    return getattr(settings, path[0])


def _path(settings: Settings, name: str) -> tuple[Section[Any], str, str]:
    """Section, entry (empty if the section is no table) and key of a full name."""
    first, *entry, leaf = name.split(".")
    return (
        next(section for section in all_sections(tuple(settings.sections)) if section.name == first),
        "".join(entry),
        leaf,
    )
