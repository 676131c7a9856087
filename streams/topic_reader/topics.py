"""Opens the clusters of a configuration for reads of topics."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from trueup.connectors.bookkeeper.bookie.security import bookie_tls
from trueup.connectors.pulsar.layout import PulsarPaths
from trueup.connectors.pulsar.partitioned import partitions, topics_in
from trueup.connectors.pulsar.protocol.message import Message
from trueup.connectors.pulsar.topics import PulsarTopic, schemas_of, topic_of
from trueup.connectors.s3.store import ObjectStore, store_of
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.connectors.zookeeper.session import client_of
from trueup.state.common.errors import BadSettings, Stop
from trueup.state.common.patterns import matches
from trueup.state.deletion.settings import DeletionSettings
from trueup.state.deletion.stores import StoreSettings
from trueup.state.read_priority.positions import LedgerRange
from trueup.state.read_priority.tiers import LedgerInfo, Tier
from trueup.state.settings.settings import ClusterSettings, Settings
from trueup.streams.topic_reader.fallback import ServedEntry
from trueup.streams.topic_reader.reader import Range, ReadOptions, ReadReport, StoredEntry, TopicMessage, TopicReader
from trueup.streams.topic_reader.schemas import SchemaHistory
from trueup.streams.topic_reader.sources import BookKeeperSource, LedgerSource, TieredSource

MOST = 10_000
"""Maximum number of topics and partitions that a pattern may match."""


class TopicCatalog:
    """The topics of one cluster. Reads ZooKeeper, bookies and object stores; changes nothing."""

    def __init__(self, client: ZooKeeperClient, settings: Settings, options: ReadOptions) -> None:
        self._client, self._paths = client, PulsarPaths(settings.section(DeletionSettings).root)
        self._stores = {name: _store(store) for name, store in settings.table(StoreSettings).items()}
        self.report = ReadReport()
        cluster = settings.cluster
        self.bookkeeper = BookKeeperSource(
            client, cluster.ledgers_root, bookie_tls(cluster.bookies), self.report.damaged
        )
        self._reader = TopicReader(client, self._paths, self._sources, options, self.report)

    def _sources(self, owner: str) -> dict[Tier, LedgerSource]:
        return {Tier.BOOKKEEPER: self.bookkeeper, Tier.TIERED: TieredSource(self._stores, owner)}

    def partitions(self, name: str) -> list[PulsarTopic]:
        """The topic with this name, or its partitions. Raises `Stop` for an invalid name, `Refused`, `Retry`."""
        return partitions(self._client, self._paths, topic_of(name))

    def matching(self, namespace: str, pattern: str) -> list[PulsarTopic]:
        """The topics of a namespace, and partitions of topics, whose names without the number of the partition match
        ``pattern``. Topics of Pulsar itself are left out. Raises `Stop` for more than `MOST` topics, `Retry`."""
        topics = topics_in(self._client, self._paths, namespace, lambda topic: matches([pattern], topic.whole.local))
        if len(topics) > MOST:
            raise Stop(f"at most {MOST} topics and partitions", f"{len(topics)}", "use a narrower pattern")
        return topics

    def ledgers(self, topic: PulsarTopic) -> list[LedgerInfo]:
        """The ledgers of one topic or partition, by id; see `TopicReader.ledgers`."""
        return self._reader.ledgers(topic)

    def entries(self, topic: PulsarTopic, part: LedgerRange) -> Iterator[ServedEntry[list[Message]]]:
        """The messages of each entry of a part; see `TopicReader.entries`."""
        return self._reader.entries(topic, part)

    def stored(self, topic: PulsarTopic, part: LedgerRange) -> Iterator[ServedEntry[StoredEntry]]:
        """Each entry of a part, not parsed; see `TopicReader.stored`."""
        return self._reader.stored(topic, part)

    def parsed(self, ledger: int, entry: int, stored: bytes) -> list[Message]:
        """The messages of an entry of `stored`; see `TopicReader.parsed`."""
        return self._reader.parsed(ledger, entry, stored)

    def schemas(self, topic: PulsarTopic) -> SchemaHistory:
        """The versions of a topic's schema; a shadow topic has the schema of its source. Raises `Refused` if it does
        not exist, `Retry`, `BadBytes`."""
        owner = self._reader.owner(topic)
        return SchemaHistory(str(topic), lambda: schemas_of(self._client, self._paths, owner), self.bookkeeper)

    def read(self, topic: PulsarTopic, range_: Range) -> Iterator[TopicMessage]:
        """The messages of one topic or partition; see `TopicReader.read`."""
        return self._reader.read(topic, range_)


@lru_cache(100)
def _store(declared: StoreSettings) -> ObjectStore:
    """One client for all reads of this process: to make one takes as long as to read 10 MB."""
    return store_of(declared)


@contextmanager
def opened(settings: Settings, options: ReadOptions, keep: bool = False) -> Iterator[TopicCatalog]:
    """The topics of the configured cluster. ``keep``: whether the session of ZooKeeper stays open for the next use in
    this process, unless this one fails. Raises `BadSettings` if there is no cluster, `Retry`."""
    cluster = settings.cluster
    if not cluster.zookeeper:
        raise BadSettings(["cluster.zookeeper: expected the ZooKeeper servers of the cluster; found nothing"])
    client, done = _session(cluster), False
    try:
        topics = TopicCatalog(client, settings, options)
        try:
            yield topics
            done = True
        finally:
            topics.bookkeeper.close()
    finally:
        if done and keep and not _KEPT and client.connected:
            _KEPT.append((cluster, client))
        else:
            client.shut()


_KEPT = list[tuple[ClusterSettings, ZooKeeperClient]]()
"""At most one session, which nobody uses now."""


def end_kept() -> None:
    """Close the session that is kept, if there is one."""
    while _KEPT:
        _KEPT.pop()[1].shut()


def _session(cluster: ClusterSettings) -> ZooKeeperClient:
    while _KEPT:
        of, kept = _KEPT.pop()
        if of == cluster and kept.connected:
            return kept
        kept.shut()
    return client_of(cluster).open()
