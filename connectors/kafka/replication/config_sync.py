"""Reads topics and rights of both clusters as `state.replication.config_sync` compares them, and does what it says at
the target.

CreateTopics, CreatePartitions, IncrementalAlterConfigs (KIP-339), CreateAcls and DeleteAcls (KIP-140; prefixed ones
KIP-290). Each of them answers for each thing by itself. Done twice they change nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

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

from trueup.connectors.kafka.client.admin import Admin
from trueup.connectors.kafka.client.metadata import Discovery
from trueup.state.common.errors import TrueupError, ended
from trueup.state.replication.config_sync import Action, Kind, Right, Topic

_ANY: Any = None
_RESOURCES = (ResourceType.TOPIC, ResourceType.GROUP)


@dataclass(frozen=True, slots=True)
class Seen:
    """Both sides of some topics, for `state.replication.config_sync.diff`. ``problems``: topics of the source that are
    left out as one of the sides could not be read, and why: what cannot be read must not be taken for missing."""

    source: Mapping[str, Topic]
    target: Mapping[str, Topic]
    problems: Mapping[str, str] = field(default_factory=dict)


class Outcome(NamedTuple):
    """What became of an action. ``result``:

    done     it is so now (or was already)
    refused  the broker will not do it; a person must change something
    retry    the next pass may do it
    unknown  there was no answer; the next look tells
    skipped  not tried, as what must come first was not done
    """

    action: Action
    result: str
    detail: str = ""


class Alignment:
    """Compares and changes; decides nothing. Calls block; errors of a whole cluster are those of `Admin`."""

    def __init__(self, source: Discovery, target: Discovery) -> None:
        self._source, self._target = source, target

    def look(self, called: Mapping[str, str]) -> Seen:
        """Topics of the source (the keys) and what they are called at the target (the values), where they exist."""
        here, wrong_here = _topics(self._source, called)
        there, wrong_there = _topics(self._target, called.values())
        problems = {name: wrong_there[to] for name, to in called.items() if to in wrong_there} | wrong_here
        return Seen({name: topic for name, topic in here.items() if name not in problems}, there, problems)

    def known(self) -> frozenset[str]:
        """Settings of topics that the target's version knows; empty when it has no topic to tell it by."""
        names = self._target.names()
        told = self._target.configs(names[:1]).get(names[0]) if names else None
        return frozenset() if told is None or isinstance(told, TrueupError) else frozenset(told)

    def rights(self) -> tuple[list[Right], list[Right]]:
        """Rights on topics and groups at the source and at the target. Raises `Stop` where no authorizer runs."""
        return _rights(self._source.admin), _rights(self._target.admin)

    def apply(self, actions: Sequence[Action]) -> list[Outcome]:
        """Do them in their order, those of a kind together. A right is not allowed while one was not denied."""
        outcomes: list[Outcome] = []
        for kind, chosen in groupby(sorted(actions, key=lambda action: action.kind), lambda action: action.kind):
            together = list(chosen)
            if kind is Kind.ALLOW and (
                undone := [o for o in outcomes if o.action.kind is Kind.DENY and o.result != "done"]
            ):
                outcomes += [Outcome(action, "skipped", undone[0].detail) for action in together]
            else:
                outcomes += self._together(kind, together)
        return outcomes

    def _together(self, kind: Kind, actions: Sequence[Action]) -> list[Outcome]:
        do: Callable[[Admin, Sequence[Action]], list[Any]] = _DO[kind]
        answers = do(self._target.admin, actions)
        return [self._outcome(action, answer) for action, answer in zip(actions, answers, strict=True)]

    def _outcome(self, action: Action, answer: object) -> Outcome:
        if not isinstance(answer, TrueupError):
            return Outcome(action, "done")
        if action.kind is Kind.GROW and self._has(action.topic, action.partitions):
            return Outcome(action, "done", "it had them already")
        return Outcome(action, ended(answer), str(answer))

    def _has(self, name: str, partitions: int) -> bool:
        """Whether a topic of the target has so many partitions."""
        found = self._target.topics([name], configs=False).get(name)
        return found is not None and len(found.leaders) >= partitions


def _topics(side: Discovery, names: Iterable[str]) -> tuple[dict[str, Topic], dict[str, str]]:
    found = side.topics(names)
    good = {name: topic for name, topic in found.items() if not topic.error}
    whole = {name: Topic(len(topic.leaders), topic.configs, topic.id) for name, topic in good.items()}
    return whole, {name: topic.error for name, topic in found.items() if topic.error}


def _rights(admin: Admin) -> list[Right]:
    found: list[Right] = []
    for resource in _RESOURCES:
        every = AclBindingFilter(
            resource, _ANY, ResourcePatternType.ANY, _ANY, _ANY, AclOperation.ANY, AclPermissionType.ANY
        )
        found += [_right(told) for told in admin.ask("describe its ACLs", admin.client.describe_acls, every)]
    return sorted(found)


def _right(told: Any) -> Right:
    words = (told.restype.name, told.resource_pattern_type.name, told.operation.name, told.permission_type.name)
    resource, pattern, operation, permission = (word.lower() for word in words)
    return Right(resource, pattern, told.name, told.principal, told.host, operation, permission)


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
    """With the default number of replicas: it belongs to the cluster."""
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
    answers = admin.do_each("add a right on", admin.client.create_acls, asked)
    return [answers[binding] for binding in asked]


def _revoke(admin: Admin, actions: Sequence[Action]) -> list[Any]:
    asked = [_binding(AclBindingFilter, _of(action)) for action in actions]
    answers: Mapping[Any, Any] = admin.do_each("take a right off", admin.client.delete_acls, asked)
    return [answers[binding] for binding in asked]


def _of(action: Action) -> Right:
    assert action.right is not None, "actions on rights have one"
    return action.right


_SET, _DELETE = AlterConfigOpType.SET, AlterConfigOpType.DELETE
_DO: Mapping[Kind, Callable[[Admin, Sequence[Action]], list[Any]]] = {
    Kind.CREATE: _create,
    Kind.SECURE: _set,
    Kind.GROW: _grow,
    Kind.SET: _set,
    Kind.DENY: _grant,
    Kind.REVOKE: _revoke,
    Kind.ALLOW: _grant,
    Kind.RELENT: _revoke,
}
