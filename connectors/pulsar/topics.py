"""Names of topics, and their managed ledgers (TopicName.java, SystemTopicNames.java)."""

import re
from typing import NamedTuple

from trueup.connectors.pulsar.layout import PulsarPaths
from trueup.connectors.pulsar.metadata import topic_ledgers
from trueup.connectors.pulsar.schemas import SchemaPlace, schema_places
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.state.common.errors import Refused, Stop
from trueup.state.deletion.owners import SCHEMA, encoded
from trueup.state.read_priority.tiers import LedgerInfo

_PARTITION = "-partition-"
_INT32 = (1 << 31) - 1
_EVENTS = frozenset(
    {
        "__change_events",
        "__transaction_buffer_snapshot",
        "__transaction_buffer_snapshot_indexes",
        "__transaction_buffer_snapshot_segments",
    }
)
_COORDINATOR = ("pulsar/system/transaction_coordinator_assign", "pulsar/system/__transaction_log_")
_PENDING_ACK = "__transaction_pending_ack"
_SERVICE = re.compile(r"pulsar/system|(?:pulsar|sla-monitor)/[^:]+:[0-9]+")
_DOMAIN = re.compile(r"(?:(?P<domain>[a-z-]+)://)?(?P<rest>.+)\Z")
_WORD = re.compile(r"[-=:.\w]+\Z", re.ASCII)
"""Names of tenants and namespaces (NamedEntity.java)."""


class PulsarTopic(NamedTuple):
    """A persistent topic, or one partition of it."""

    tenant: str
    namespace: str
    local: str
    """The last part of the name."""

    def __str__(self) -> str:
        return f"persistent://{self.tenant}/{self.namespace}/{self.local}"

    @property
    def owner(self) -> str:
        """The name of its managed ledger (TopicName.getPersistenceNamingEncoding)."""
        return f"{self.tenant}/{self.namespace}/persistent/{encoded(self.local)}"

    @property
    def schema(self) -> str:
        """The name of its schema, which all partitions share (TopicName.getSchemaName)."""
        return f"{self.tenant}/{self.namespace}/{encoded(self.whole.local)}"

    @property
    def partition(self) -> int:
        """The number of the partition according to its name, -1 if it is none (TopicName.getPartitionIndex)."""
        name, _, number = self.local.rpartition(_PARTITION)
        return _number(number) if name else -1

    @property
    def whole(self) -> "PulsarTopic":
        """The topic of a partition, by their names alone; any other topic itself (getPartitionedTopicName)."""
        return self if self.partition < 0 else self._replace(local=self.local.rpartition(_PARTITION)[0])

    @property
    def system(self) -> bool:
        """Whether Pulsar keeps it for itself (SystemTopicNames.isSystemTopic)."""
        whole = self.whole
        internal = f"{whole.tenant}/{whole.namespace}/{whole.local}".startswith(_COORDINATOR)
        return internal or whole.local in _EVENTS or whole.local.endswith(_PENDING_ACK)


def _number(text: str) -> int:
    """The partition that Pulsar reads in the end of a name, -1 if it reads none: Integer.parseInt, which reads decimal
    digits of any script in UTF-16, and the length of the number without leading zeros."""
    if not text.isdecimal() or len(text) > len(str(_INT32)) or max(text) > "\uffff":
        return -1
    number = int(text)
    return number if number <= _INT32 and len(str(number)) == len(text) else -1


def topic_of(name: str) -> PulsarTopic:
    """The topic with this name: persistent://TENANT/NAMESPACE/NAME, TENANT/NAMESPACE/NAME, or NAME in public/default.
    Raises `Stop`."""
    match = _DOMAIN.match(name)
    words = match["rest"].split("/") if match else []
    domain = match["domain"] if match else None
    words = ["public", "default", *words] if len(words) == 1 and not domain else words
    valid = len(words) == 3 and all(map(_WORD.match, words[:2])) and words[2].strip()
    if not valid or domain not in (None, "persistent"):
        todo = "correct the name; names with a cluster, of before Pulsar 2.0, are not read"
        raise Stop("the name of a persistent topic, TENANT/NAMESPACE/NAME", repr(name[:200]), todo)
    return PulsarTopic(*words)


def of_service(namespace: str) -> bool:
    """Whether brokers keep a namespace for themselves (NamespaceService.isSystemServiceNamespace). They offload neither
    its topics nor system topics (BrokerService.getManagedLedgerConfig)."""
    return _SERVICE.fullmatch(namespace) is not None


def check_namespace(name: str) -> None:
    """Raises `Stop` for a name that is not TENANT/NAMESPACE."""
    words = name.split("/")
    if len(words) != 2 or not all(map(_WORD.match, words)):
        raise Stop("a namespace TENANT/NAMESPACE", repr(name[:200]), "correct the name")


class TopicLog(NamedTuple):
    """The ledgers of a topic."""

    topic: PulsarTopic
    """The topic that owns the ledgers. They have its schema."""
    ledgers: list[LedgerInfo]
    """The ledgers, ordered by id."""


def log_of(client: ZooKeeperClient, paths: PulsarPaths, topic: PulsarTopic) -> TopicLog:
    """The ledgers of one topic or partition. A shadow topic has the ledgers of its source (ShadowManagedLedgerImpl,
    PersistentTopic.getSchemaId). Raises `Refused` if it does not exist, `Retry`, `BadBytes`."""
    node = paths.node(topic.owner)
    ledgers, source = topic_ledgers(_existing(client, topic, node), node)
    if not source:
        return TopicLog(topic, ledgers)
    owner = topic_of(source)
    node = paths.node(owner.owner)
    return TopicLog(owner, topic_ledgers(_existing(client, owner, node), node)[0])


def _existing(client: ZooKeeperClient, topic: PulsarTopic, node: str) -> bytes:
    content = client.look(node)
    if content is None:
        raise Refused(f"topic {topic}", f"no node {node}", "it was deleted")
    return content[0]


def schemas_of(client: ZooKeeperClient, paths: PulsarPaths, topic: PulsarTopic) -> list[SchemaPlace]:
    """The versions of a topic's schema; none if it has no schema. Raises `Retry`, `BadBytes`."""
    node = paths.node(f"{SCHEMA}{topic.schema}")
    content = client.look(node)
    return [] if content is None else schema_places(content[0], node)
