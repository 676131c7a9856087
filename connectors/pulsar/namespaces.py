"""Namespaces of a cluster, and the ledgers of topics, from Pulsar's nodes."""

from collections.abc import Callable, Iterator, Sequence

from trueup.connectors.pulsar.layout import PulsarPaths
from trueup.connectors.pulsar.metadata import topic_ledgers
from trueup.connectors.pulsar.queries import GONE, Node, read
from trueup.connectors.pulsar.topics import PulsarTopic, TopicLog, topic_of
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.state.common.errors import Stop

_TOGETHER = 250


def namespaces(client: ZooKeeperClient, paths: PulsarPaths) -> list[str]:
    """Namespaces, tenant/namespace, that have or had persistent topics. Raises `Retry`."""
    (tenants,), _ = client.listings([paths.ledgers])
    full_names = list[str]()
    for at in range(0, len(tenants), _TOGETHER):
        some = [name.decode() for name in tenants[at : at + _TOGETHER]]
        lists, _ = client.listings([f"{paths.ledgers}/{tenant}" for tenant in some])
        full_names += [f"{tenant}/{name.decode()}" for tenant, names in zip(some, lists, strict=True) for name in names]
    return sorted(full_names)


def ledgers(
    client: ZooKeeperClient, paths: PulsarPaths, topics: Sequence[PulsarTopic], bad: Callable[[PulsarTopic, Stop], None]
) -> Iterator[tuple[PulsarTopic, TopicLog]]:
    """The ledgers of these topics, without topics that are gone meanwhile; those of shadow topics last. ``bad``
    receives topics whose node, or whose source's node, is not readable. Raises `Retry`."""
    shadows = dict[PulsarTopic, PulsarTopic]()
    for topic, node in zip(topics, _nodes(client, paths, topics), strict=True):
        if node.error == GONE:
            continue
        try:
            infos, source = topic_ledgers(_data(node), node.path)
            if source:
                owner = topic_of(source)
                paths.node(owner.owner)  # one that is no path is the error of this topic, not of all
                shadows[topic] = owner
        except Stop as error:
            bad(topic, error)
        else:
            if not source:
                yield topic, TopicLog(topic, infos)
    for (topic, owner), node in zip(shadows.items(), _nodes(client, paths, list(shadows.values())), strict=True):
        try:
            yield topic, TopicLog(owner, topic_ledgers(_data(node), node.path)[0])
        except Stop as error:
            bad(topic, error)


def _nodes(client: ZooKeeperClient, paths: PulsarPaths, topics: Sequence[PulsarTopic]) -> Iterator[Node]:
    return (node for nodes in read(client, [paths.node(topic.owner) for topic in topics]) for node in nodes)


def _data(node: Node) -> bytes:
    """The content of a node. Raises `Stop` if there is none."""
    if node.error == GONE:
        raise Stop(
            f"the node {node.path} of a shadow topic's source", "none", "create the source, or delete the shadow"
        )
    if node.stat is None:
        raise Stop(f"the right to read {node.path}", "none", "grant it; see docs/reads.md")
    return node.data
