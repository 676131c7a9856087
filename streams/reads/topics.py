"""Opens the clusters of a configuration for reads of topics."""

from collections.abc import Iterator
from contextlib import contextmanager

from trueup.connectors.pulsar.layout import PulsarPaths
from trueup.connectors.pulsar.topics import Topic, partitions, topic_of
from trueup.connectors.s3.store import store_of
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.state.common.errors import BadSettings
from trueup.state.deletion.settings import DeletionSettings
from trueup.state.deletion.stores import StoreSettings
from trueup.state.reads.tiers import Tier
from trueup.state.settings.settings import Settings
from trueup.streams.bookkeeper.cluster import bookie_tls
from trueup.streams.reads.reader import Range, ReadOptions, ReadReport, TopicMessage, TopicReader
from trueup.streams.reads.sources import BookKeeperSource, Source, TieredSource


class Topics:
    """The topics of one cluster. Reads ZooKeeper, bookies and object stores; changes nothing."""

    def __init__(self, client: ZooKeeperClient, settings: Settings, options: ReadOptions) -> None:
        self._client, self._paths = client, PulsarPaths(settings.section(DeletionSettings).root)
        self._stores = {name: store_of(store) for name, store in settings.table(StoreSettings).items()}
        self.report = ReadReport()
        cluster = settings.cluster
        self.bookkeeper = BookKeeperSource(
            client, cluster.ledgers_root, bookie_tls(cluster.bookies), self.report.damaged
        )
        self._reader = TopicReader(client, self._paths, self._sources, options, self.report)

    def _sources(self, owner: str) -> dict[Tier, Source]:
        return {Tier.BOOKKEEPER: self.bookkeeper, Tier.TIERED: TieredSource(self._stores, owner)}

    def partitions(self, name: str) -> list[Topic]:
        """The topic with this name, or its partitions. Raises `Stop` for an invalid name, `Refused`, `Retry`."""
        return partitions(self._client, self._paths, topic_of(name))

    def read(self, topic: Topic, wanted: Range) -> Iterator[TopicMessage]:
        """The messages of one topic or partition; see `TopicReader.read`."""
        return self._reader.read(topic, wanted)


@contextmanager
def opened(settings: Settings, options: ReadOptions) -> Iterator[Topics]:
    """The topics of the configured cluster. Raises `BadSettings` if there is none, `Retry`."""
    cluster = settings.cluster
    if not cluster.zookeeper:
        raise BadSettings(["cluster.zookeeper: expected the ZooKeeper servers of the cluster; found nothing"])
    client = ZooKeeperClient(
        cluster.zookeeper, timeout=cluster.session_timeout_ms / 1000, auth_data=list(cluster.auth.items()) or None
    )
    client.open()
    try:
        topics = Topics(client, settings, options)
        try:
            yield topics
        finally:
            topics.bookkeeper.close()
    finally:
        client.shut()
