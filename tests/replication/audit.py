"""Comparison of whole logs: every record of a cluster's writers must exist at every other cluster, once and in order.

The reference for a record is the log of its origin cluster, read with read_committed, because a link must copy these
records. A separate check verifies that this log keeps its acknowledged records. A writer of `writers.REPEATING` may
write a record twice: its log at the origin says how often each exists, and a copy that came home is not found in it.
For other writers, the producer of each repeated record at the origin tells whether a link wrote it.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, suppress
from itertools import pairwise
from typing import NamedTuple

from confluent_kafka import Consumer, Message, TopicPartition

from tests.replication.reading import committed
from tests.replication.writers import REPEATING, Site, Writers
from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.kafka.client.cluster import KafkaClient
from trueup.connectors.kafka.protocol.record_batch import walk
from trueup.state.common.errors import Retry
from trueup.state.replication.provenance import tag_of

OURS = "trueup-"
"""Prefix of the headers that links add. They are not compared."""
LIMIT_S = 420.0
STILL_S, AFTER_S = 2.0, 6.0
"""Seconds without a change of the ends: before logs are read, and after they are complete (more than a lease)."""


class Stream(NamedTuple):
    """Records of one writer in one partition. Their order must be the same at every cluster."""

    origin: str
    kind: str
    partition: int


class Content(NamedTuple):
    """A record without its offset."""

    number: int
    value: bytes
    timestamp: tuple[int, int]
    headers: tuple[tuple[str, bytes], ...]


Log = dict[Stream, list[Content]]


class Verdict(NamedTuple):
    """Faults found at one cluster, all 0 if there are none. ``lost``: acknowledged by this cluster to its writers, but
    missing. ``extra``: present here but not at the origin."""

    records: int
    missing: int = 0
    duplicates: int = 0
    order_breaks: int = 0
    altered: int = 0
    extra: int = 0
    lost: int = 0

    @property
    def faults(self) -> int:
        return sum(self[1:])


class Audit(NamedTuple):
    """The verdict of each cluster, and whether their ends did not change afterwards."""

    clusters: Mapping[str, Verdict]
    still: bool

    @property
    def right(self) -> bool:
        return self.still and not any(verdict.faults for verdict in self.clusters.values())


def audit(sites: Sequence[Site], writers: Writers) -> Audit:
    """Stop the writers, wait until no record is missing, and compare. The links must be running. They may pause after a
    broker was killed. The wait ends early at a fault that further copying cannot correct."""
    writers.stop()
    verdicts: dict[str, Verdict] = {}
    before: list[list[int]] = []

    def settled() -> bool:
        nonlocal before
        before = wait_still(sites)
        if before != [ends(site, "read_uncommitted") for site in sites]:
            return False  # a transaction that a killed broker left open hides what follows it until it times out
        logs = {site.name: read(site) for site in sites}
        repeating = {stream for site in sites for stream in repeated(site, logs[site.name])}
        for site in sites:
            verdicts[site.name] = judge(site.name, logs, writers.acknowledged(site.name), repeating)
        if any(verdict.faults > verdict.missing for verdict in verdicts.values()):
            return True
        # A link with a longer pause may write between the read of the ends and of the logs.
        return not any(verdict.missing for verdict in verdicts.values()) and _all_ends(sites) == before

    with suppress(Retry):  # the verdict contains the missing records
        wait_until(settled, LIMIT_S, "nothing to be missing")
    return Audit(verdicts, wait_still(sites, AFTER_S) == before)


def judge(
    name: str, logs: Mapping[str, Log], acknowledged: Collection[bytes] = (), repeating: Collection[Stream] = ()
) -> Verdict:
    """Missing, duplicate, reordered, altered, extra and lost records of one cluster's log. ``repeating``: the streams
    whose writers wrote a record twice."""
    log = logs[name]
    born = {s: records for origin, other in logs.items() for s, records in other.items() if s.origin == origin}
    parts = [
        _compare(
            born.get(stream, []), log.get(stream, []), stream not in repeating and not stream.kind.startswith(REPEATING)
        )
        for stream in born.keys() | log.keys()
    ]
    here = {b"%s|%s|%d" % (s.origin.encode(), s.kind.encode(), r.number) for s, rs in log.items() for r in rs}
    sums = [sum(column) for column in zip(*parts, strict=True)] or [0] * 5
    return Verdict(sum(map(len, log.values())), *sums, lost=len(set(acknowledged) - here))


def _compare(wanted: Sequence[Content], found: Sequence[Content], once: bool) -> tuple[int, int, int, int, int]:
    """Counts of missing, duplicate, reordered, altered and extra records. ``once``: their writer writes no record
    twice."""
    seen, written = (Counter(record.number for record in records) for records in (found, wanted))
    right = {record.number: record for record in wanted}
    allowed = Counter(seen.keys()) if once else Counter({number: max(1, written[number]) for number in seen})
    # The order is that of the origin's log, because a writer without idempotence may reorder its own records.
    order = defaultdict[int, list[int]](list)
    for at, record in enumerate(wanted):
        order[record.number].append(at)
    nth = Counter[int]()
    places = list[int]()
    for number in (record.number for record in found if record.number in order):
        places.append(order[number][min(nth[number], written[number] - 1)])
        nth[number] += 1
    return (
        (written - seen).total(),
        (seen - allowed).total(),
        sum(later <= earlier for earlier, later in pairwise(places)),
        sum(record.number in right and record != right[record.number] for record in found),
        len(seen.keys() - right.keys()),
    )


def read(site: Site) -> Log:
    """Every committed record of a topic."""
    found: Log = defaultdict(list)
    for message in committed(site.bootstrap, site.topic, range(site.partitions)):
        _note(found, message)
    return dict(found)


def repeated(site: Site, log: Log) -> set[Stream]:
    """The streams of writers at this site that contain a record twice, each time written by a producer that is not a
    link. An idempotent producer of librdkafka that begins a new epoch sends records again whose responses were lost
    (seen after a broker was killed: the same producer id, epochs 2 and 3)."""
    twice = {
        (stream, number)
        for stream, records in log.items()
        if stream.origin == site.name and not stream.kind.startswith(REPEATING)
        for number, times in Counter(record.number for record in records).items()
        if times > 1
    }
    if not twice:
        return set()
    places = defaultdict[Stream, list[int]](list)
    for message in committed(site.bootstrap, site.topic, range(site.partitions)):
        stream, content = _content(message)
        if (stream, content.number) in twice:
            places[stream].append(message.offset())
    with closing(KafkaClient(Endpoint(site.name, site.bootstrap, 0))) as cluster:
        cluster.refresh([site.topic])
        return {
            stream
            for stream, offsets in places.items()
            if all(tag_of(_producer(cluster, LogId(site.topic, stream.partition), at)) is None for at in offsets)
        }


def _producer(cluster: KafkaClient, log: LogId, offset: int) -> int:
    """The producer id of the batch with this offset."""
    answer = cluster.fetch(cluster.leader(log), {log: offset}, 1 << 20, 1 << 20, 1_000)[log]
    return next(header.producer_id for header, _ in walk(answer.records))


def _note(found: Log, message: Message) -> None:
    stream, content = _content(message)
    found[stream].append(content)


def _content(message: Message) -> tuple[Stream, Content]:
    origin, kind, number = message.key().decode().split("|")
    headers = tuple((name, value) for name, value in message.headers() or () if not name.startswith(OURS))
    content = Content(int(number), message.value(), message.timestamp(), headers)
    return Stream(origin, kind, message.partition()), content


def ends(site: Site, isolation: str = "read_committed") -> list[int]:
    """End offset of each partition for consumers with this isolation level."""
    consumer = Consumer(
        {"bootstrap.servers": site.bootstrap, "group.id": "audit", "log_level": 0, "isolation.level": isolation}
    )
    try:
        partitions = [TopicPartition(site.topic, number) for number in range(site.partitions)]
        return [consumer.get_watermark_offsets(each, timeout=30)[1] for each in partitions]
    finally:
        consumer.close()


def _all_ends(sites: Sequence[Site]) -> list[list[int]]:
    return [ends(site) for site in sites]


def wait_still(sites: Sequence[Site], still_s: float = STILL_S) -> list[list[int]]:
    """The ends of all sites after ``still_s`` seconds without a change. Raises `Retry` if they keep changing."""
    last: list[list[int]] = []
    since = 0.0

    def still() -> bool:
        nonlocal last, since
        now = _all_ends(sites)
        if now != last:
            last, since = now, time.monotonic()
        return time.monotonic() - since >= still_s

    wait_until(still, LIMIT_S, "no end to move")
    return last
