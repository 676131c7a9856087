"""The administration of a Kafka cluster by links.

CreateTopics, CreatePartitions, IncrementalAlterConfigs (KIP-339), CreateAcls and DeleteAcls (KIP-140; prefixed ones
KIP-290). Each request has a result per item. Repeated requests change nothing.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from trueup.connectors.closing import Closing
from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.kafka.client.admin import Admin
from trueup.connectors.kafka.client.group_offsets import KafkaGroups
from trueup.connectors.kafka.client.metadata import Discovery, KafkaTopic
from trueup.connectors.kafka.client.options import problems
from trueup.connectors.kafka.logdirs.client import LogDirsClient
from trueup.connectors.kafka.replication.batch_stats import sample
from trueup.connectors.kafka.replication.heartbeat import KafkaHeartbeats
from trueup.connectors.replication.ports import Capabilities, Log, Sample, TopicState
from trueup.state.common.errors import TrueupError
from trueup.state.replication.config_sync import Action, ChangeKind, Right
from trueup.state.replication.settings import Start

_ANY: Any = None
_RESOURCES = (ResourceType.TOPIC, ResourceType.GROUP)


class KafkaAdmin(Closing):
    """Implements `connectors.replication.ports.ClusterAdmin`. Connects at the first request."""

    can = Capabilities()

    def __init__(self, endpoint: Endpoint, discovery: Discovery | None = None) -> None:
        self.endpoint, self._found = endpoint, discovery

    @property
    def discovery(self) -> Discovery:
        """The cluster with Kafka's own types."""
        if self._found is None:
            self._found = Discovery(self.endpoint)
        return self._found

    def close(self) -> None:
        """Close all connections."""
        if self._found is not None:
            self._found.close()
            self._found = None

    def cluster_id(self) -> str:
        """The id with which the cluster was formatted."""
        return self.discovery.cluster_id()

    def names(self) -> list[str]:
        """Names of all visible topics."""
        return self.discovery.names()

    def topics(self, names: Iterable[str], configs: bool = True) -> dict[str, TopicState]:
        """Those of ``names`` that exist."""
        return {name: _state(topic) for name, topic in self.discovery.topics(names, configs).items()}

    def logs(self, logs: Iterable[LogId], committed_only: bool = True) -> dict[LogId, Log]:
        """Start and end of partitions; ``committed_only``: the end before the first open transaction."""
        return self.discovery.logs(logs, committed_only)

    def starts(self, logs: Iterable[LogId], start: Start) -> dict[LogId, int | TrueupError]:
        """The first offset to copy of each partition."""
        return self.discovery.starts(logs, start)

    def sizes(self, logs: Iterable[LogId]) -> dict[LogId, int]:
        """Bytes of the largest replica of each partition; empty if brokers do not report them."""
        partitions = set(logs)
        try:
            with LogDirsClient(self.endpoint) as directories:
                rows = [seen.broker.replicas for seen in directories.look() if seen.broker is not None]
        except TrueupError:
            return {}
        sizes: dict[LogId, int] = {}
        for replicas in rows:
            for row in range(len(replicas)):
                log = LogId(*replicas.name(row))
                if log in partitions and not replicas.future[row]:
                    sizes[log] = max(sizes.get(log, 0), int(replicas.size[row]))
        return sizes

    def known_settings(self) -> frozenset[str]:
        """Topic settings that the cluster's version supports; empty if it has no topic to read them from."""
        names = self.names()
        configs = self.discovery.configs(names[:1]).get(names[0]) if names else None
        return frozenset() if configs is None or isinstance(configs, TrueupError) else frozenset(configs)

    def group_configs(self, groups: Collection[str]) -> dict[str, list[Mapping[str, str]]]:
        """Empty: the settings of groups are those of their consumers."""
        del groups
        return {}

    def rights(self) -> list[Right]:
        """ACLs on topics and groups. Raises `Stop` if there is no authorizer."""
        return _rights(self.discovery.admin)

    def apply(self, kind: ChangeKind, actions: Sequence[Action]) -> list[Any]:
        """Execute actions of one kind together."""
        return _DO[kind](self.discovery.admin, actions)

    def groups(self) -> KafkaGroups:
        """Its consumer groups, over separate connections."""
        return KafkaGroups(self.endpoint)

    def heartbeats(self, topic: str) -> KafkaHeartbeats:
        """Its heartbeats' topic."""
        return KafkaHeartbeats(self.endpoint, topic)

    def sample(self, logs: Sequence[LogId]) -> Sample:
        """Properties of the newest batches of some partitions."""
        return sample(self.endpoint, logs)

    def notes(self, heartbeat_topic: str) -> list[str]:
        """Nothing."""
        del heartbeat_topic
        return []

    def problems(self) -> list[str]:
        """Errors of the options."""
        return problems(self.endpoint)


def _state(topic: KafkaTopic) -> TopicState:
    logs = () if topic.error else tuple(topic.partitions)
    return TopicState(topic.name, logs, topic.id, topic.configs, topic.error)


def _rights(admin: Admin) -> list[Right]:
    rights: list[Right] = []
    for resource in _RESOURCES:
        every = AclBindingFilter(
            resource, _ANY, ResourcePatternType.ANY, _ANY, _ANY, AclOperation.ANY, AclPermissionType.ANY
        )
        rights += [_right(acl) for acl in admin.ask("describe its ACLs", admin.client.describe_acls, every)]
    return sorted(rights)


def _right(acl: Any) -> Right:
    words = (acl.restype.name, acl.resource_pattern_type.name, acl.operation.name, acl.permission_type.name)
    resource, pattern, operation, permission = (word.lower() for word in words)
    return Right(resource, pattern, acl.name, acl.principal, acl.host, operation, permission)


def _binding(kind: type[AclBinding], right: Right) -> AclBinding:
    return kind(
        ResourceType[right.resource.upper()],
        right.name,
        ResourcePatternType[right.pattern.upper()],
        right.principal,
        right.host,
        AclOperation[right.operation.upper()],
        AclPermissionType[right.permission.upper()],
    )


def _create(admin: Admin, actions: Sequence[Action]) -> list[Any]:
    """Create topics with the cluster's default replication factor."""
    new = [NewTopic(a.topic, a.partitions, -1, config=_given(a.configs)) for a in actions]
    answers = admin.do_each("create topic", admin.client.create_topics, new)
    return [answers[action.topic] for action in actions]


def _given(configs: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in configs.items() if value is not None}


def _grow(admin: Admin, actions: Sequence[Action]) -> list[Any]:
    new = [NewPartitions(action.topic, action.partitions) for action in actions]
    answers = admin.do_each("add partitions to topic", admin.client.create_partitions, new)
    return [answers[action.topic] for action in actions]


def _set(admin: Admin, actions: Sequence[Action]) -> list[Any]:
    asked = [_altered(action) for action in actions]
    answers = admin.do_each("set settings of topic", admin.client.incremental_alter_configs, asked)
    return [answers[resource] for resource in asked]


def _altered(action: Action) -> ConfigResource:
    entries = [
        ConfigEntry(name, value, incremental_operation=_SET if value is not None else _DELETE)
        for name, value in action.configs.items()
    ]
    return ConfigResource(ResourceType.TOPIC, action.topic, incremental_configs=entries)


def _grant(admin: Admin, actions: Sequence[Action]) -> list[Any]:
    asked = [_binding(AclBinding, _of(action)) for action in actions]
    answers = admin.do_each("add an ACL on", admin.client.create_acls, asked)
    return [answers[binding] for binding in asked]


def _revoke(admin: Admin, actions: Sequence[Action]) -> list[Any]:
    asked = [_binding(AclBindingFilter, _of(action)) for action in actions]
    answers: Mapping[Any, Any] = admin.do_each("remove an ACL from", admin.client.delete_acls, asked)
    return [answers[binding] for binding in asked]


def _of(action: Action) -> Right:
    assert action.right is not None, "actions on rights have one"
    return action.right


_SET, _DELETE = AlterConfigOpType.SET, AlterConfigOpType.DELETE
_DO: Mapping[ChangeKind, Callable[[Admin, Sequence[Action]], list[Any]]] = {
    ChangeKind.CREATE: _create,
    ChangeKind.SECURE: _set,
    ChangeKind.GROW: _grow,
    ChangeKind.SET: _set,
    ChangeKind.DENY: _grant,
    ChangeKind.REVOKE: _revoke,
    ChangeKind.ALLOW: _grant,
    ChangeKind.RELENT: _revoke,
}
