"""Namespaces of a cluster, and the ledgers of topics, from Pulsar's nodes."""

from collections.abc import Callable, Iterator, Sequence

from trueup.connectors.pulsar.layout import PulsarPaths
from trueup.connectors.pulsar.metadata import topic_ledgers
from trueup.connectors.pulsar.queries import GONE, read
from trueup.connectors.pulsar.topics import Topic
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.state.common.errors import BadBytes, Stop
from trueup.state.reads.tiers import LedgerInfo

_TOGETHER = 250


def namespaces(client: ZooKeeperClient, paths: PulsarPaths) -> list[str]:
    """Namespaces, tenant/namespace, that have or had persistent topics. Raises `Retry`."""
    (tenants,), _ = client.listings([paths.ledgers])
    found = list[str]()
    for at in range(0, len(tenants), _TOGETHER):
        some = [name.decode() for name in tenants[at : at + _TOGETHER]]
        lists, _ = client.listings([f"{paths.ledgers}/{tenant}" for tenant in some])
        found += [f"{tenant}/{name.decode()}" for tenant, names in zip(some, lists, strict=True) for name in names]
    return sorted(found)


def ledgers(
    client: ZooKeeperClient, paths: PulsarPaths, wanted: Sequence[Topic], bad: Callable[[Topic, Stop], None]
) -> Iterator[tuple[Topic, list[LedgerInfo]]]:
    """The ledgers of these topics, without topics that are gone meanwhile. ``bad`` receives topics whose node is not
    readable. Raises `Retry`."""
    rows = (node for nodes in read(client, [paths.node(topic.owner) for topic in wanted]) for node in nodes)
    for topic, node in zip(wanted, rows, strict=True):
        if node.error == GONE:
            continue
        if node.stat is None:
            bad(topic, Stop(f"the right to read {node.path}", "none", "grant it; see docs/reads.md"))
            continue
        try:
            yield topic, topic_ledgers(node.data, node.path)
        except BadBytes as error:
            bad(topic, error)
