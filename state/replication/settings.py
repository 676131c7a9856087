"""The sections of links between clusters."""

import re
from calendar import monthrange, timegm
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from trueup.state.common.options import BYTES, MODES, YEAR_S, key

EXCLUDED = (
    "compression.type",
    "min.insync.replicas",
    "unclean.leader.election.enable",
    r"/(local\.retention|message\.timestamp|remote)\..*/",
    r"/(leader|follower)\.replication\..*/",
)
"""Settings that belong to the cluster, not to the topic; timestamp settings are set as a copy needs them."""
DEAD_LETTERS = "{topic}.dead-letters"
"""A name that not every system allows; a link without dead letters needs no other."""
MOMENT = re.compile(
    r"([12]\d{3})-(\d\d)-(\d\d)T([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:\.(\d{3}))?)?"
    r"(?:Z|(?P<sign>[+-])(?P<hours>[01]\d):(?P<minutes>[0-5]\d))"
)


class LogCluster(Protocol):
    """A cluster of any system, as its section declares it. Links refer to it by its name."""

    @property
    def address(self) -> str:
        """The address of its servers, host:port[,...]."""

    @property
    def bit(self) -> int:
        """Its number in the path of a record, 0 to 31."""

    @property
    def options(self) -> Mapping[str, str]:
        """Client settings, which can contain secrets."""

    @property
    def security(self) -> Mapping[str, str]:
        """Login and encryption, where they are not among the options."""

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment variable of each client setting that is in one."""


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """A link copies topics from one cluster to another, in one direction."""

    source: str = key(doc="Name of the source cluster, as declared")
    target: str = key(doc="Name of the target cluster, as declared")
    topics: list[str] = key(
        doc="Topics to copy: names, or /regular expressions/ in RE2 syntax that match the whole name; names that begin "
        "with two underscores, which tools use, are matched by no expression",
        live=True,
    )
    mode: str = key(
        "observe",
        "observe: copy and change nothing, report differences; approve: copy records, changes of topics, "
        "settings and ACLs wait for `trueup approve`; enforce: execute all changes",
        one_of=MODES,
        live=True,
    )
    exclude: list[str] = key(
        list,
        "Topics that are not copied, in the syntax of topics; internal topics of the clusters and of "
        "Trueup are always excluded",
        live=True,
    )
    rename: str = key("{topic}", "Name of the target topic; {topic} and {source} are replaced")
    into: str = key("", "A single target topic for all source topics; overrides rename")
    start: str = key(
        "earliest",
        "Initial position in a new partition: earliest, latest, time:2026-01-31T00:00:00Z or group:NAME "
        "(the committed offsets of that group at the source)",
        live=True,
    )
    copy: str = key(
        "auto",
        "Copy path; batches: whole record batches without decompression; records: single records; auto: the "
        "path with the lower cost, shown by `trueup describe link`",
        one_of=("auto", "batches", "records"),
    )
    forward: bool = key(
        True,
        "Copy records that came from a third cluster (ring, chain, tree); set to false if every pair of "
        "clusters has a link",
    )
    flow: int = key(
        0,
        "Number that distinguishes the records of links with the same target, in all installations; 0: derived from "
        "the link's name and the bit of its source",
        least=0,
        most=(1 << 16) - 1,
    )
    paused: bool = key(False, "Copy no records; alignment, groups and heartbeats continue", live=True)
    paused_topics: list[str] = key(list, "Source topics that are paused, in the syntax of topics", live=True)
    records_per_s: float = key(
        0.0,
        "Maximum number of records copied per second by all tasks together; 0: no limit",
        least=0,
        most=1_000_000_000,
        live=True,
    )
    bytes_per_s: float = key(
        0.0,
        "Maximum number of bytes copied per second by all tasks together; 0: no limit",
        least=0,
        most=BYTES,
        live=True,
    )
    fetch_bytes: int = key(
        1 << 20, "Maximum number of bytes per fetch of a partition", least=1_024, most=1 << 30, live=True
    )
    in_flight: int = key(
        4,
        "Maximum number of unacknowledged requests per broker, on paths that permit several",
        least=1,
        most=5,
        live=True,
    )
    lease_s: float = key(
        10.0,
        "Time in seconds for which a task copies before its partitions are redistributed",
        least=1,
        most=300,
        live=True,
    )
    tasks: int = key(1, "Maximum number of tasks that copy concurrently", least=1, most=1_024, live=True)
    heartbeat_s: float = key(
        10.0, "Interval in seconds at which a heartbeat is written to the source", least=0.1, most=3_600
    )
    heartbeat_topic: str = key("trueup-heartbeats", "Name of the heartbeat topic at the source and at the target")
    slow_s: float = key(
        30.0,
        "A link is slow if a record or a heartbeat has waited for longer than this time in seconds",
        least=0.1,
        most=YEAR_S,
    )
    stalled_s: float = key(
        120.0,
        "A link is stalled if for longer than this time in seconds pending records were not copied or no "
        "heartbeat arrived",
        least=0.1,
        most=YEAR_S,
    )
    align: list[str] = key(
        lambda: ["partitions", "configs", "groups"],
        "What is copied from the source to the target; partitions: their "
        "number; configs: settings of topics; groups: settings of the consumer groups in groups, in systems that have "
        "them; acls: rights on topics and groups",
        one_of=("partitions", "configs", "groups", "acls"),
    )
    config_exclude: list[str] = key(
        lambda: list(EXCLUDED), "Settings of topics and groups that are not copied, in the syntax of topics"
    )
    groups: list[str] = key(
        list, "Consumer groups whose offsets are translated to the target, in the syntax of topics", live=True
    )
    failures: str = key(
        "stop",
        "Handling of a record that the target rejects; stop: the partition stops; dead-letter: the record is "
        "written to dead_letter_topic; hook: the hook decides",
        one_of=("stop", "dead-letter", "hook"),
    )
    dead_letter_topic: str = key(
        DEAD_LETTERS, "Name of the dead-letter topic at the target; {topic} is replaced by the name of the source topic"
    )
    hook: str = key("", "Function that handles rejected records, module:function")
    transform: str = key(
        "", "Function that receives each record and returns it, a different record, or None to skip it, module:function"
    )


class Start(NamedTuple):
    """The initial position of a new partition."""

    kind: str
    """The kind of position: earliest, latest, time or group."""
    at_ms: int = 0
    """The time of a position of kind time, ms since the epoch."""
    group: str = ""
    """The consumer group of a position of kind group."""


def start_of(text: str) -> Start | None:
    """``start`` of a link; None if it is invalid."""
    kind, _, rest = text.partition(":")
    if kind in ("earliest", "latest") and text == kind:
        return Start(kind)
    if kind == "group" and rest:
        return Start(kind, group=rest)
    match = MOMENT.fullmatch(rest) if kind == "time" else None
    if match is None:
        return None
    year, month, day, hour, minute, second, thousandths = (int(part or 0) for part in match.groups()[:7])
    if not 1 <= month <= 12 or not 1 <= day <= monthrange(year, month)[1]:
        return None
    away = int(match["sign"] + "1") * (int(match["hours"]) * 60 + int(match["minutes"])) if match["sign"] else 0
    at_s = timegm((year, month, day, hour, minute, second)) - away * 60
    return Start(kind, at_s * 1_000 + thousandths)
