"""Settings of subscription groups as links compare them (SubscriptionGroupConfig.java).

A setting is text: a value of JSON, or the text of an attribute, ``attributes.*``. Compared are those that decide how
messages are delivered, retried and given up. Not compared are those of one cluster: ``consumeEnable``, with which an
operator determines at which cluster the group may run; ``brokerId`` and ``whichBrokerWhenConsumeSlowly``, which name
replicas of brokers; ``groupSysFlag``, which belongs to a unit; and ``subscriptionDataSet``.
"""

import json
from collections.abc import Mapping, Sequence

from trueup.connectors.rocketmq.client import topics
from trueup.connectors.rocketmq.client.cluster import RocketMqClient
from trueup.connectors.rocketmq.client.topics import Group
from trueup.state.common.errors import Retry
from trueup.state.replication.config_sync import Action

ATTRIBUTES, ENABLED = "attributes.", "consumeEnable"
COMPARED = (
    "consumeBroadcastEnable",
    "consumeFromMinEnable",
    "consumeMessageOrderly",
    "consumeTimeoutMinute",
    "groupRetryPolicy",
    "notifyConsumerIdsChangedEnable",
    "retryMaxTimes",
    "retryQueueNums",
)


def configs_of(group: Group) -> dict[str, str]:
    """The settings of a group that its copy must have."""
    settings = {name: json.dumps(group[name], sort_keys=True) for name in COMPARED if name in group}
    return settings | {ATTRIBUTES + name: value for name, value in _attributes(group).items()}


def _attributes(group: Group) -> dict[str, str]:
    attributes = group.get("attributes")
    return {str(name): str(value) for name, value in attributes.items()} if isinstance(attributes, Mapping) else {}


def copied(group: Group) -> Group:
    """The settings with which a group is created at another cluster."""
    return {name: value for name, value in group.items() if name != ENABLED}


def changed(group: Group, configs: Mapping[str, str | None]) -> tuple[Group, list[str]]:
    """The group with these settings, with only those attributes that change, and the names of those to remove. A
    setting without a value (None) is left out, so that the broker sets its default."""
    fields = {name: value for name, value in configs.items() if not name.startswith(ATTRIBUTES)}
    others = {name: value for name, value in group.items() if name not in {*fields, "attributes"}}
    values = {name: json.loads(value) for name, value in fields.items() if value is not None}
    changes = {name.removeprefix(ATTRIBUTES): v for name, v in configs.items() if name.startswith(ATTRIBUTES)}
    present = _attributes(group)
    attributes = {name: v for name, v in changes.items() if v is not None and v != present.get(name)}
    removed = sorted(name for name, v in changes.items() if v is None and name in present)
    return {**others, **values, "attributes": attributes}, removed


def set_group(client: RocketMqClient, brokers: Sequence[str], action: Action) -> None:
    """Set settings of a group on those of these brokers that have it. Raises `Retry` if none has."""
    by_broker = {broker: topics.groups(client, broker) for broker in brokers}
    parts = {broker: groups[action.group] for broker, groups in by_broker.items() if action.group in groups}
    if not parts:
        expected = f"group {action.group} in {client.endpoint.name}"
        raise Retry(expected, "it is on none of its brokers", "it is read again")
    for broker, group in parts.items():
        settings, without = changed(group, action.configs)
        topics.put_group(client, broker, {**settings, "groupName": action.group}, without)
