"""Namespaces and topics of a cluster, with the ledgers of topics, from Pulsar's nodes."""

from collections.abc import Callable, Iterator, Sequence
from urllib.parse import unquote_plus

from trueup.connectors.pulsar.layout import PulsarPaths
from trueup.connectors.pulsar.metadata import topic_ledgers
from trueup.connectors.pulsar.queries import GONE, read
from trueup.connectors.pulsar.topics import Topic
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.state.common.errors import BadBytes, Stop
from trueup.state.reads.tiers import LedgerInfo

_TOGETHER = 250
_DOMAIN = "persistent"


def namespaces(client: ZooKeeperClient, paths: PulsarPaths) -> list[str]:
    """Namespaces, tenant/namespace, that have or had persistent topics. Raises `Retry`."""
    (tenants,), _ = client.listings([paths.ledgers])
    found = []
    for tenant, names in _below(client, paths.ledgers, [name.decode() for name in tenants]):
        found += [f"{tenant}/{name}" for name in names]
    return sorted(found)


def topics(client: ZooKeeperClient, paths: PulsarPaths, wanted: Sequence[str]) -> Iterator[Topic]:
    """Topics and partitions of these namespaces, by name. Raises `Retry`."""
    for path, names in _below(client, paths.ledgers, [f"{namespace}/{_DOMAIN}" for namespace in wanted]):
        tenant, namespace, _ = path.split("/")
        yield from sorted(Topic(tenant, namespace, unquote_plus(name)) for name in names)


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


def _below(client: ZooKeeperClient, top: str, parents: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """The names below each of these paths under ``top``."""
    for at in range(0, len(parents), _TOGETHER):
        some = parents[at : at + _TOGETHER]
        lists, _ = client.listings([f"{top}/{parent}" for parent in some])
        for parent, names in zip(some, lists, strict=True):
            yield parent, [name.decode(errors="surrogateescape") for name in names]
