"""The topics of a soak, with their links and writers.

batches, records, auto: two clusters, linked both ways on that path. All kinds of writers write to both, and an
application at each passes copies on to the same topic.
passed: the same clusters, linked both ways. Only applications write to it: they pass copies of batches and records on.
purged-batches, purged-records: the same clusters, linked both ways. All kinds of writers, anew after each purge.
into: from east to another name at west. All kinds of writers.
old-batches, old-auto: from brokers 3.0 to west. A writer in message format v1, and then all kinds of writers.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain

from confluent_kafka.admin import ConfigResource, ResourceType

from bench.common.measure import Failed
from tests.replication.audit import Audit, audit
from tests.replication.old_kafka import OldKafka
from tests.replication.pair import Pair, configure, create
from tests.replication.passing import Passer
from tests.replication.writers import KINDS, OLD, Site, Writers
from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.kafka.replication.batch_stats import sample

PARTITIONS = 2
SIDES = EAST, WEST = ("east", "west")
OLDER = "old"
PATHS = ("batches", "records")
BOTH_WAYS = (*PATHS, "auto")
QUIET = 0.25
"""The rate of a writer to topics without applications, as a part of the usual one."""
FEW = ("idempotent", "transactional")
"""Their kinds. Each writer costs a client."""
FORMATS = {OLD: "0.10.2", "v2": "2.8"}
"""Values of message.format.version."""
BITS = {EAST: 0, WEST: 1, OLDER: 2}


@dataclass(slots=True)
class Lane:
    """The sites of one topic and its writers."""

    sites: list[Site]
    writers: Writers
    targets: tuple[str, ...] = SIDES
    """The clusters at which records of another one arrive."""

    @property
    def topic(self) -> str:
        """The name at the first site."""
        return self.sites[0].topic

    @property
    def arriving(self) -> list[Site]:
        """The sites at which records of another one arrive."""
        return [site for site in self.sites if site.name in self.targets]

    def acknowledged(self, kind: str) -> int:
        """Number of acknowledged records of a kind."""
        return sum(len(writer.acknowledged) for writer in self.writers.all if writer.kind == kind)


class Lanes:
    """All lanes, with new topics on a pair of clusters and an older one."""

    def __init__(self, pair: Pair, old: OldKafka, per_s: float) -> None:
        self.all: dict[str, Lane] = {}
        self.per_s, self._old = per_s, old
        for name in BOTH_WAYS:
            self.all[name] = _both_ways(pair, per_s)
        for name in PATHS:
            self.all[f"purged-{name}"] = _both_ways(pair, per_s * QUIET, FEW)
        self.all["passed"] = passed = _both_ways(pair, 0)
        passed.writers = Writers([], ())
        for name, written in [*((name, self.all[name]) for name in BOTH_WAYS), *((name, passed) for name in PATHS)]:
            read = self.all[name].sites
            written.writers.all += [Passer(*both) for both in zip(read, written.sites, strict=True)]
        self.all["into"] = _one_way(pair.site(EAST, pair.topic(PARTITIONS), PARTITIONS), pair, "all-of-east")
        self.all["into"].writers = Writers(self.all["into"].sites[:1], FEW, per_s * QUIET)
        for name in ("batches", "auto"):
            lane = self.all[f"{OLDER}-{name}"] = _old(old, pair, f"{OLDER}-{name}")
            lane.writers = Writers(lane.sites[:1], (OLD,), per_s * QUIET)

    def links(self) -> dict[str, dict[str, object]]:
        """The links of all lanes. A link copies several topics, because each link costs a query of Spark."""
        lanes = {
            "batches": ("batches", "purged-batches"),
            "records": ("records", "purged-records"),
            "auto": ("auto", "passed"),
        }
        made: dict[str, dict[str, object]] = {}
        for path, names in lanes.items():
            for source, target in (SIDES, SIDES[::-1]):
                made[f"{path}-{source}"] = _link(source, target, [self.all[name] for name in names], copy=path)
        made["into"] = _link(EAST, WEST, [self.all["into"]], into=self.all["into"].sites[1].topic)
        for path in ("batches", "auto"):
            name = f"{OLDER}-{path}"
            made[name] = _link(OLDER, WEST, [self.all[name]], copy=path)
        return made

    def sites(self) -> Iterator[Site]:
        """All sites at which copies arrive, without those of purged topics: consumers there may not see the new one."""
        return chain.from_iterable(lane.arriving for name, lane in self.all.items() if not name.startswith("purged"))

    @contextmanager
    def writing(self) -> Iterator[None]:
        """All writers write."""
        with ExitStack() as stack:
            for lane in self.all.values():
                stack.enter_context(lane.writers)
            yield

    def convert(self) -> None:
        """From now on the old cluster stores format v2, for writers of all kinds. Raises `Failed` if it has not stored
        v1 until now."""
        for name in ("batches", "auto"):
            lane = self.all[f"{OLDER}-{name}"]
            stored = sample(_endpoint(self._old), [LogId(lane.topic, number) for number in range(PARTITIONS)]).magic
            if stored != 1:
                raise Failed(f"{lane.topic} has records of format {stored} in place of 1")
            lane.writers.stop()
            resource = ConfigResource(ResourceType.TOPIC, lane.topic)
            configure(self._old, resource, "message.format.version", FORMATS["v2"])
            modern = Writers(lane.sites[:1], FEW, self.per_s * QUIET).all
            lane.writers.all += modern
            for writer in modern:
                writer.start()

    def audits(self) -> dict[str, Audit]:
        """Stop the writers of each lane and compare its logs."""
        return {name: audit(lane.sites, lane.writers) for name, lane in self.all.items()}


def _both_ways(pair: Pair, per_s: float, kinds: Sequence[str] = tuple(KINDS)) -> Lane:
    topic = pair.topic(PARTITIONS)
    sites = [pair.site(side, topic, PARTITIONS) for side in SIDES]
    return Lane(sites, Writers(sites, kinds, per_s))


def _one_way(source: Site, pair: Pair, topic: str) -> Lane:
    return Lane([source, pair.site(WEST, topic, PARTITIONS)], Writers([], ()), (WEST,))


def _old(old: OldKafka, pair: Pair, topic: str) -> Lane:
    create(old, topic, PARTITIONS, {"message.format.version": FORMATS[OLD]})
    return _one_way(Site(OLDER, old.bootstrap, topic, PARTITIONS), pair, topic)


def _endpoint(old: OldKafka) -> Endpoint:
    return Endpoint(OLDER, old.bootstrap, BITS[OLDER], system="kafka")


def _link(source: str, target: str, lanes: Sequence[Lane], **more: object) -> dict[str, object]:
    return {"source": source, "target": target, "topics": [lane.topic for lane in lanes], "mode": "enforce", **more}
