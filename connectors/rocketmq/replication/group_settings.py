"""Settings of subscription groups as links compare them (SubscriptionGroupConfig.java).

A setting is text: a value of JSON, or the text of an attribute, ``attributes.*``. Compared are those that decide how
messages are delivered, retried and given up. Not compared are those of one cluster: ``consumeEnable``, with which an
operator determines at which cluster the group may run; ``brokerId`` and ``whichBrokerWhenConsumeSlowly``, which name
replicas of brokers; ``groupSysFlag``, which belongs to a unit; and ``subscriptionDataSet``.

RocketMQ 4.9 accepts every setting and drops those that it does not know. A group there has their defaults.
"""

import json
from collections.abc import Mapping, Sequence

from trueup.connectors.rocketmq.client import topics
from trueup.connectors.rocketmq.client.cluster import RocketMqClient
from trueup.connectors.rocketmq.client.topics import Group
from trueup.state.common.errors import Retry, Stop
from trueup.state.replication.config_sync import Action

ATTRIBUTES, ENABLED = "attributes.", "consumeEnable"
COMPARED: Mapping[str, object] = {
    "consumeBroadcastEnable": True,
    "consumeFromMinEnable": True,
    "consumeMessageOrderly": False,
    "consumeTimeoutMinute": 15,
    "groupRetryPolicy": {"type": "CUSTOMIZED"},
    "notifyConsumerIdsChangedEnable": True,
    "retryMaxTimes": 16,
    "retryQueueNums": 1,
}
"""Their defaults (SubscriptionGroupConfig.java of RocketMQ 5.5)."""


def configs_of(group: Group) -> dict[str, str]:
    """The settings of a group that its copy must have."""
    settings = {name: json.dumps(group.get(name, default), sort_keys=True) for name, default in COMPARED.items()}
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


class GroupSetter:
    """Sets settings of groups, and remembers what a broker does not keep, so that it is not written again and again."""

    def __init__(self) -> None:
        self._dropped: dict[tuple[str, str], tuple[Group, Mapping[str, str | None]]] = {}
        """By broker and group: the group after it was written, and the settings that were to be different."""

    def __call__(self, client: RocketMqClient, brokers: Sequence[str], action: Action) -> None:
        """Set settings of a group on those of these brokers that have it. Raises `Retry` if none has, and `Stop` if
        brokers do not keep some of them."""
        parts = _parts(client, brokers, action.group)
        if not parts:
            expected = f"group {action.group} in {client.endpoint.name}"
            raise Retry(expected, "it is on none of its brokers", "it is read again")
        written = {broker: group for broker, group in parts.items() if self._may_help(broker, group, action)}
        for broker, group in written.items():
            settings, without = changed(group, action.configs)
            topics.put_group(client, broker, {**settings, "groupName": action.group}, without)
        parts |= _parts(client, list(written), action.group)
        dropped = {broker: _different(group, action.configs) for broker, group in parts.items()}
        self._dropped |= {(broker, action.group): (parts[broker], names) for broker, names in dropped.items()}
        if wrong := {broker: names for broker, names in dropped.items() if names}:
            raise _not_kept(action.group, wrong)

    def _may_help(self, broker: str, group: Group, action: Action) -> bool:
        """Whether the broker was not asked for the same, or its group is not as it was after that."""
        before, dropped = self._dropped.get((broker, action.group), (None, {}))
        return before != group or _different(group, action.configs) != dropped


def _parts(client: RocketMqClient, brokers: Sequence[str], name: str) -> dict[str, Group]:
    """The group on each of these brokers that has it."""
    by_broker = {broker: topics.groups(client, broker) for broker in brokers}
    return {broker: groups[name] for broker, groups in by_broker.items() if name in groups}


def _different(group: Group, configs: Mapping[str, str | None]) -> dict[str, str | None]:
    """Those of these settings that a group does not have."""
    found = configs_of(group)
    return {name: value for name, value in configs.items() if found.get(name) != value}


def _not_kept(group: str, by_broker: Mapping[str, Mapping[str, str | None]]) -> Stop:
    expected = "; ".join(
        f"{', '.join(f'{name} {value}' for name, value in names.items())} on {broker}"
        for broker, names in by_broker.items()
    )
    names = ", ".join(sorted({name for dropped in by_broker.values() for name in dropped}))
    todo = f"its version may not have such settings (RocketMQ 4.9): upgrade it, or add {names} to config_exclude"
    return Stop(f"group {group} with {expected}", "the broker accepted it and did not keep it", todo)
