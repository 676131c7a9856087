"""Which topics of a namespace clients read: the partitions of a partitioned topic, and topics without partitions.

A partitioned topic is a node with its number of partitions (PartitionedTopicMetadata, PartitionedTopicResources), not
the managed ledgers whose names look like partitions. Clients look it up first. A topic of the same name without
partitions, and partitions from that number on, are out of their reach. The nodes are in the configuration metadata
store, which may be another ensemble; then only managed ledgers show what there is, and a name that has both forms is
not decided.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote_plus

from trueup.connectors.pulsar.layout import PulsarPaths
from trueup.connectors.pulsar.queries import GONE, Node, read
from trueup.connectors.pulsar.topics import PulsarTopic, check_namespace
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.connectors.zookeeper.errors import Forbidden
from trueup.state.common.counts import many
from trueup.state.common.errors import Refused, Stop
from trueup.state.deletion.owners import encoded

_TOGETHER = 250
_DOMAIN = "persistent"


class Partitioned(NamedTuple):
    """The numbers of partitions of topics."""

    counts: Mapping[PulsarTopic, int | None]
    """The number of partitions by topic; None if the node of the topic is not readable or has no valid number."""
    known: bool = True
    """Whether all topics that are not in ``counts`` are known to have no partitions."""

    def size(self, topic: PulsarTopic) -> int | None:
        """The number of partitions of a topic, 0 if it is not partitioned, None if that is not known."""
        return self.counts.get(topic, 0 if self.known else None)

    def named(self, topic: PulsarTopic) -> PulsarTopic:
        """The topic whose policies apply, and that clients name: the partitioned one of a partition."""
        return topic if self.size(topic.whole) == 0 else topic.whole


class ReadableTopics(NamedTuple):
    """What clients read of the topics of a namespace."""

    read: list[PulsarTopic]
    """The topics and partitions that clients read."""
    doubtful: list[PulsarTopic]
    """The topics that exist with and without partitions, if it is not known which of both clients read."""


def choice(candidates: Collection[PulsarTopic], of: Partitioned) -> ReadableTopics:
    """What clients read of these topics of a namespace."""
    split = {topic.whole for topic in candidates if topic.partition >= 0}
    readable = ReadableTopics([], [])
    for topic in candidates:
        own, all_of = of.size(topic), of.size(topic.whole)
        if own is None and topic in split:
            readable.doubtful.append(topic)
        elif not own and (topic.partition < 0 or not all_of or topic.partition < all_of):
            readable.read.append(topic)
    return readable


def partitions(client: ZooKeeperClient, paths: PulsarPaths, topic: PulsarTopic) -> list[PulsarTopic]:
    """The topic itself, or its partitions by number. Raises `Refused` if there is neither, `Stop` if it is not known
    which of both clients read, `Retry`."""
    client.settle(paths.ledgers)
    of = _of_topic(client, paths, topic)
    if of.size(topic) == 0:
        if client.look(paths.node(topic.owner)) is None:
            raise _missing(client, paths, topic)
        return [topic]
    (there,) = _managed_ledgers(client, paths, [f"{topic.tenant}/{topic.namespace}"])
    readable = choice([candidate for candidate in there if topic in (candidate, candidate.whole)], of)
    if readable.doubtful:
        raise undecided(paths, topic)
    if not readable.read and not of.size(topic):
        raise _missing(client, paths, topic)
    return sorted(readable.read, key=lambda part: part.partition)


def topics_in(
    client: ZooKeeperClient, paths: PulsarPaths, namespace: str, predicate: Callable[[PulsarTopic], bool]
) -> list[PulsarTopic]:
    """The topics and partitions of a namespace TENANT/NAMESPACE that have managed ledgers, that clients read, and that
    ``predicate`` selects, by name, without those of Pulsar itself. Raises `Stop` for an invalid name, and for a topic
    that is not decided, `Retry`."""
    check_namespace(namespace)
    client.settle(paths.ledgers)
    (there,) = _managed_ledgers(client, paths, [namespace])
    candidates = [topic for topic in there if not topic.system and predicate(topic)]
    readable = choice(candidates, of_namespaces(client, paths, [namespace])) if candidates else ReadableTopics([], [])
    for topic in readable.doubtful:
        raise undecided(paths, topic)
    return sorted(readable.read)


def topics(client: ZooKeeperClient, paths: PulsarPaths, namespaces: Sequence[str]) -> Iterator[list[PulsarTopic]]:
    """The managed ledgers of each of these namespaces, by name. Raises `Retry`."""
    for ledgers in _managed_ledgers(client, paths, namespaces):
        yield sorted(ledgers)


def of_namespaces(client: ZooKeeperClient, paths: PulsarPaths, namespaces: Sequence[str]) -> Partitioned:
    """The partitioned topics of these namespaces, TENANT/NAMESPACE. Raises `Retry`."""
    names, complete = list[tuple[str, bytes]](), _known(client, paths)
    try:
        for at in range(0, len(namespaces) if complete else 0, _TOGETHER):
            some = namespaces[at : at + _TOGETHER]
            lists, _ = client.listings([f"{paths.partitioned}/{name}/{_DOMAIN}" for name in some])
            names += [(name, local) for name, listing in zip(some, lists, strict=True) for local in listing]
    except Forbidden:
        complete = False
    nodes = _read(client, [f"{paths.partitioned}/{name}/{_DOMAIN}/{local.decode()}" for name, local in names])
    return Partitioned({_topic(*name): _count(node) for name, node in zip(names, nodes, strict=True)}, complete)


def _of_topic(client: ZooKeeperClient, paths: PulsarPaths, topic: PulsarTopic) -> Partitioned:
    path = f"{paths.partitioned}/{topic.tenant}/{topic.namespace}/{_DOMAIN}/{encoded(topic.local)}"
    (node,) = _read(client, [path])
    return Partitioned({} if node.error == GONE else {topic: _count(node)}, _known(client, paths))


def _known(client: ZooKeeperClient, paths: PulsarPaths) -> bool:
    """Whether this ensemble is the configuration metadata store."""
    (node,) = _read(client, [paths.policies])
    return node.error != GONE


def _read(client: ZooKeeperClient, paths: Iterable[str]) -> Iterator[Node]:
    return (node for nodes in read(client, paths) for node in nodes)


def _count(node: Node) -> int | None:
    """The number in a node; None if it is not readable, or none."""
    if node.error == GONE:
        return 0
    try:
        content = json.loads(node.data)
    except ValueError:
        return None
    count = content.get("partitions") if isinstance(content, dict) else None
    return count if isinstance(count, int) and not isinstance(count, bool) and count >= 0 else None


def _managed_ledgers(
    client: ZooKeeperClient, paths: PulsarPaths, namespaces: Sequence[str]
) -> Iterator[list[PulsarTopic]]:
    for at in range(0, len(namespaces), _TOGETHER):
        some = namespaces[at : at + _TOGETHER]
        lists, _ = client.listings([f"{paths.ledgers}/{name}/{_DOMAIN}" for name in some])
        for name, listing in zip(some, lists, strict=True):
            yield [_topic(name, local) for local in listing]


def _topic(namespace: str, node: bytes) -> PulsarTopic:
    tenant, name = namespace.split("/")
    return PulsarTopic(tenant, name, unquote_plus(node.decode(errors="surrogateescape")))


def _missing(client: ZooKeeperClient, paths: PulsarPaths, topic: PulsarTopic) -> Refused:
    (there,) = _managed_ledgers(client, paths, [f"{topic.tenant}/{topic.namespace}"])
    alike = sorted(partition for partition in there if partition.whole == topic)
    problem = f"no node {paths.node(topic.owner)}"
    if not alike:
        return Refused(f"topic {topic}", problem, "check its name and deletion.root")
    problem = (
        f"{many(len(alike), 'topic')} such as {alike[0].local}, and nothing in {paths.partitioned} that makes them one"
    )
    return Refused(f"topic {topic}", problem, "name each of them, or create the partitioned topic again")


def undecided(paths: PulsarPaths, topic: PulsarTopic) -> Stop:
    """The error of a doubtful topic."""
    problem = f"partitions and a topic without partitions, and no readable node of it in {paths.partitioned}"
    return Stop(f"{topic} with or without partitions", problem, "grant the right to read it, or name each partition")
