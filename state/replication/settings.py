"""Links between Kafka clusters, as an operator declares them."""

import re
from calendar import monthrange, timegm
from dataclasses import dataclass
from typing import NamedTuple

from trueup.state.common.options import BYTES, MODES, YEAR_S, key
from trueup.state.replication.provenance import BITS

EXCLUDED = (
    "compression.type",
    "min.insync.replicas",
    "unclean.leader.election.enable",
    r"/(local\.retention|message\.timestamp|remote)\..*/",
    r"/(leader|follower)\.replication\..*/",
)
"""Settings that belong to the cluster, not to the topic. Those of timestamps are set as a copy needs."""
MOMENT = re.compile(
    r"([12]\d{3})-(\d\d)-(\d\d)T([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:\.(\d{3}))?)?"
    r"(?:Z|(?P<sign>[+-])(?P<hours>[01]\d):(?P<minutes>[0-5]\d))"
)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Kafka cluster, by the name that links know it by."""

    bootstrap: str = key(doc="brokers, host:port[,...]")
    bit: int = key(
        doc="its place in the path of a record: another for each cluster, the same wherever it is declared, for ever",
        least=0,
        most=BITS - 1,
    )
    options: dict[str, str] = key(dict, "librdkafka settings (security.protocol, sasl.username ...)", secret=True)


@dataclass(frozen=True, slots=True)
class Link:
    """A link copies topics from one Kafka cluster to another, one way."""

    source: str = key(doc="the cluster of kafka: to copy from")
    target: str = key(doc="the cluster of kafka: to copy to")
    topics: list[str] = key(
        doc="what to copy: names, or /regular expressions/ of RE2 that match the whole name", live=True
    )
    mode: str = key(
        "observe",
        "observe: nothing is copied or changed, differences are shown; approve: records are copied, changes of topics, "
        "settings and rights wait for `trueup approve`; enforce",
        one_of=MODES,
        live=True,
    )
    exclude: list[str] = key(
        list, "topics left out, written as topics are; internal topics of Kafka and Trueup always are", live=True
    )
    rename: str = key("{topic}", "what a topic is called at the target; {topic} and {source} are filled in")
    into: str = key("", "one topic of the target for all; takes the place of rename")
    start: str = key(
        "earliest",
        "where the copy of a new partition begins: earliest, latest, time:2026-01-31T00:00:00Z or group:NAME (what it "
        "committed at the source)",
        live=True,
    )
    copy: str = key(
        "auto",
        "batches: whole, unopened; records: one by one; auto: the better one, and `trueup describe link` says why",
        one_of=("auto", "batches", "records"),
    )
    forward: bool = key(
        True, "records that came from a third cluster go on (ring, chain, tree); false where every pair has a link"
    )
    flow: int = key(
        0, "tells what links wrote to one cluster apart; 0: made from the link's name", least=0, most=(1 << 16) - 1
    )
    paused: bool = key(False, "copy nothing; everything else goes on", live=True)
    paused_topics: list[str] = key(list, "topics of the source not copied now, written as topics are", live=True)
    records_per_s: float = key(
        0.0, "records copied a second at most, all tasks together; 0: no limit", least=0, most=1_000_000_000, live=True
    )
    bytes_per_s: float = key(
        0.0, "bytes copied a second at most, all tasks together; 0: no limit", least=0, most=BYTES, live=True
    )
    fetch_bytes: int = key(1 << 20, "bytes asked of a partition at once", least=1_024, most=1 << 30, live=True)
    in_flight: int = key(4, "requests to a broker that wait for their answer at most", least=1, most=5, live=True)
    lease_s: float = key(
        10.0, "how long a task copies before its partitions are divided anew", least=1, most=300, live=True
    )
    tasks: int = key(1, "tasks that copy at the same time at most", least=1, most=1_024, live=True)
    heartbeat_s: float = key(10.0, "how often a heartbeat is written to the source", least=0.1, most=3_600)
    heartbeat_topic: str = key("trueup-heartbeats", "where heartbeats are written, at the source and at the target")
    slow_s: float = key(30.0, "a link whose newest arrival is older than this is slow", least=0.1, most=YEAR_S)
    stalled_s: float = key(120.0, "and older than this, stalled", least=0.1, most=YEAR_S)
    align: list[str] = key(
        lambda: ["partitions", "configs"],
        "what of the source's topics the target's are to have",
        one_of=("partitions", "configs", "acls"),
    )
    config_exclude: list[str] = key(
        lambda: list(EXCLUDED), "settings of topics that are the target's own, written as topics are"
    )
    groups: list[str] = key(
        list, "consumer groups whose offsets are translated to the target, written as topics are", live=True
    )
    failures: str = key(
        "stop",
        "what becomes of a record that the target refuses: its partition stops, it goes to dead_letter_topic, or hook "
        "decides",
        one_of=("stop", "dead-letter", "hook"),
    )
    dead_letter_topic: str = key("{topic}.dead-letters", "at the target; {topic} is what the source calls it")
    hook: str = key("", "module:function that is given refused records")
    transform: str = key(
        "", "module:function that is given each record, and returns it, another, or None to leave it out"
    )


class Start(NamedTuple):
    """Where the copy of a new partition begins. ``kind``: earliest, latest, time (``at_ms``, since the epoch) or
    group (``group``)."""

    kind: str
    at_ms: int = 0
    group: str = ""


def start_of(text: str) -> Start | None:
    """``start`` of a link; None where it says nothing that can be used."""
    kind, _, rest = text.partition(":")
    if kind in ("earliest", "latest") and text == kind:
        return Start(kind)
    if kind == "group" and rest:
        return Start(kind, group=rest)
    found = MOMENT.fullmatch(rest) if kind == "time" else None
    if found is None:
        return None
    year, month, day, hour, minute, second, thousandths = (int(part or 0) for part in found.groups()[:7])
    if not 1 <= month <= 12 or not 1 <= day <= monthrange(year, month)[1]:
        return None
    away = int(found["sign"] + "1") * (int(found["hours"]) * 60 + int(found["minutes"])) if found["sign"] else 0
    at_s = timegm((year, month, day, hour, minute, second)) - away * 60
    return Start(kind, at_s * 1_000 + thousandths)
