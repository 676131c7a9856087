"""Names of topics, and their managed ledgers (TopicName.java, PartitionedTopicResources)."""

import re
from typing import NamedTuple
from urllib.parse import quote_plus, unquote_plus

from trueup.connectors.pulsar.layout import PulsarPaths
from trueup.connectors.pulsar.metadata import topic_ledgers
from trueup.connectors.pulsar.schemas import SchemaPlace, schema_places
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.state.common.errors import Refused, Stop
from trueup.state.deletion.owners import SCHEMA
from trueup.state.reads.tiers import LedgerInfo

_PARTITION = "-partition-"
_OWN = ("__change_events", "__transaction_", "__namespace_heartbeat", "__load_balancer", "__healthcheck")
"""Parts of names of topics that Pulsar creates for itself (SystemTopicNames)."""
_DOMAIN = re.compile(r"(?:(?P<domain>[a-z-]+)://)?(?P<rest>.+)\Z")
_WORD = re.compile(r"[-=:.\w]+\Z", re.ASCII)
"""Names of tenants and namespaces (NamedEntity.java)."""


class Topic(NamedTuple):
    """A persistent topic, or one partition of it. ``local``: the last part of its name."""

    tenant: str
    namespace: str
    local: str

    def __str__(self) -> str:
        return f"persistent://{self.tenant}/{self.namespace}/{self.local}"

    @property
    def owner(self) -> str:
        """The name of its managed ledger (TopicName.getPersistenceNamingEncoding; Codec.java encodes as URLEncoder)."""
        return f"{self.tenant}/{self.namespace}/persistent/{_encoded(self.local)}"

    @property
    def schema(self) -> str:
        """The name of its schema, which all partitions share (TopicName.getSchemaName)."""
        return f"{self.tenant}/{self.namespace}/{_encoded(self.base)}"

    @property
    def partition(self) -> int:
        """The number of the partition, -1 if it is none."""
        name, dash, number = self.local.rpartition(_PARTITION)
        return int(number) if name and dash and number.isdecimal() and number.isascii() else -1

    @property
    def base(self) -> str:
        """The last part of the name, without the number of the partition."""
        return self.local if self.partition < 0 else self.local.rpartition(_PARTITION)[0]


def topic_of(name: str) -> Topic:
    """The topic with this name: persistent://TENANT/NAMESPACE/NAME, TENANT/NAMESPACE/NAME, or NAME in public/default.
    Raises `Stop`."""
    found = _DOMAIN.match(name)
    words = found["rest"].split("/") if found else []
    domain = found["domain"] if found else None
    words = ["public", "default", *words] if len(words) == 1 and not domain else words
    valid = len(words) >= 3 and all(map(_WORD.match, words[:2])) and all(words)
    if not valid or domain not in (None, "persistent"):
        raise Stop("the name of a persistent topic, TENANT/NAMESPACE/NAME", repr(name[:200]), "correct the name")
    return Topic(words[0], words[1], "/".join(words[2:]))


def partitions(client: ZooKeeperClient, paths: PulsarPaths, topic: Topic) -> list[Topic]:
    """The topic itself, or its partitions by number. Raises `Refused` if there is neither, `Retry`."""
    client.settle(paths.ledgers)
    if client.look(paths.node(topic.owner)) is not None:
        return [topic]
    parent = paths.node(topic.owner).rpartition("/")[0]
    names = [unquote_plus(name.decode()) for name in client.listings([parent])[0][0]]
    all_of = (topic._replace(local=name) for name in names if name.startswith(f"{topic.local}{_PARTITION}"))
    found = sorted((one for one in all_of if one.partition >= 0), key=lambda one: one.partition)
    if not found:
        raise Refused(f"topic {topic}", f"no node {paths.node(topic.owner)}", "check its name and deletion.root")
    return found


def topics_in(client: ZooKeeperClient, paths: PulsarPaths, namespace: str) -> list[Topic]:
    """The topics of a namespace TENANT/NAMESPACE that have ledgers, by name, without those of Pulsar itself. Raises
    `Stop` for an invalid name, `Retry`."""
    words = namespace.split("/")
    if len(words) != 2 or not all(map(_WORD.match, words)):
        raise Stop("a namespace TENANT/NAMESPACE", repr(namespace[:200]), "correct the name")
    client.settle(paths.ledgers)
    names = client.listings([f"{paths.ledgers}/{namespace}/persistent"])[0][0]
    found = (Topic(words[0], words[1], unquote_plus(name.decode())) for name in names)
    return sorted(one for one in found if not any(mark in one.local for mark in _OWN))


def ledgers_of(client: ZooKeeperClient, paths: PulsarPaths, topic: Topic) -> list[LedgerInfo]:
    """The ledgers of one topic or partition, by id. Raises `Refused` if it does not exist, `Retry`, `BadBytes`."""
    node = paths.node(topic.owner)
    found = client.look(node)
    if found is None:
        raise Refused(f"topic {topic}", f"no node {node}", "it was deleted")
    return topic_ledgers(found[0], node)


def schemas_of(client: ZooKeeperClient, paths: PulsarPaths, topic: Topic) -> list[SchemaPlace]:
    """The versions of a topic's schema; none if it has no schema. Raises `Retry`, `BadBytes`."""
    node = paths.node(f"{SCHEMA}{topic.schema}")
    found = client.look(node)
    return [] if found is None else schema_places(found[0], node)


def _encoded(local: str) -> str:
    return quote_plus(local, safe="*").replace("~", "%7E")
