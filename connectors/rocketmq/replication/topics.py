"""Topics as links compare them: the queues of all brokers together, and settings that all brokers should share.

Settings have these names: ``perm`` (6 read and write, 2 write only), ``order``, ``attributes.*`` (message.type ...),
and ``queues.BROKER``, which is shown and never copied. A copy must accept messages, so the permission to write is not
compared and not changed. Attributes have a prefix because Kafka has a setting cleanup.policy with other values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from trueup.connectors.contract import LogId
from trueup.connectors.replication.ports import TopicState
from trueup.connectors.rocketmq.client import topics
from trueup.connectors.rocketmq.client.cluster import READABLE, WRITABLE, RocketMqClient
from trueup.connectors.rocketmq.client.topics import RocketMqTopic
from trueup.state.common.errors import Retry
from trueup.state.replication.config_sync import Action, Setting

PERM, ORDER, ATTRIBUTES, QUEUES = "perm", "order", "attributes.", "queues."
_TYPE, _POLICY = "message.type", "cleanup.policy"
_REFUSED = ((_TYPE, "LITE", "its lite topics"), (_POLICY, "COMPACTION", "what was compacted"))
"""Attributes of topics that are not copied, and what cannot be copied. Brokers add only single messages to the queues
of lite topics (SendMessageProcessor.java), and copies are batches. Pulls from a topic with compaction begin at older
offsets than the start of the queue that the broker reports (CompactionStore.java)."""
_DEFAULTS = {PERM: str(READABLE | WRITABLE), ORDER: "false", ATTRIBUTES + _TYPE: "NORMAL"}
_OTHERS = ("queue.type", _POLICY, "reserve.time", "lite.topic.expiration")
KNOWN = frozenset({*_DEFAULTS, *(ATTRIBUTES + name for name in _OTHERS)})
"""Settings of RocketMQ 5.5 (TopicAttributes.java). The broker refuses to change queue.type and cleanup.policy."""
WITHOUT_ATTRIBUTES = frozenset({PERM, ORDER})
"""Settings of RocketMQ 4.9."""
Parts = Mapping[str, RocketMqTopic]
"""A topic on each broker that has it."""
Configs = Mapping[str, str | None]


def state_of(name: str, parts: Parts) -> TopicState:
    """The topic in the order of its brokers and queues, with the settings of its first broker. A topic that is not
    copied (`_REFUSED`) is an error, also if only one of its brokers says so."""
    for attribute, value, what in _REFUSED:
        if any(part.attributes.get(attribute) == value for part in parts.values()):
            problem = f"{attribute} {value}: {what} cannot be copied; exclude it from the link"
            return TopicState(name, configs=settings_of(parts), error=problem)
    logs = (LogId(name, number, broker) for broker in sorted(parts) for number in range(parts[broker].read))
    return TopicState(name, tuple(logs), configs=settings_of(parts))


def settings_of(parts: Parts) -> dict[str, Setting]:
    """All settings; those of the first broker, if brokers differ."""
    first = parts[min(parts)]
    values = {PERM: str(first.permissions & READABLE | WRITABLE), ORDER: str(first.ordered).lower()}
    values |= {ATTRIBUTES + name: value for name, value in first.attributes.items()}
    settings = {name: Setting(value, value != _DEFAULTS.get(name)) for name, value in (_DEFAULTS | values).items()}
    shown = {
        QUEUES + broker: Setting(f"{topic.read} to read, {topic.write} to write", False)
        for broker, topic in parts.items()
    }
    return settings | shown


def changed(topic: RocketMqTopic, configs: Configs) -> tuple[RocketMqTopic, list[str]]:
    """The topic with these settings (None: the default), with only those attributes that change, and the names of those
    to remove."""
    settings = {name: _DEFAULTS.get(name) if value is None else value for name, value in configs.items()}
    perm, order = settings.get(PERM) or str(topic.permissions), settings.get(ORDER) or str(topic.ordered).lower()
    removed = {name.removeprefix(ATTRIBUTES) for name, value in configs.items() if value is None}
    attributes = {
        name.removeprefix(ATTRIBUTES): value
        for name, value in configs.items()
        if name.startswith(ATTRIBUTES) and value is not None
    }
    permissions = topic.permissions & ~READABLE | int(perm) & READABLE
    new_topic = replace(topic, permissions=permissions, ordered=order == "true", attributes=attributes)
    return new_topic, sorted(removed & topic.attributes.keys())


def grown(topic: RocketMqTopic, queues: int) -> RocketMqTopic | None:
    """The topic with at least this number of queues; None if it has them."""
    wider = replace(topic, read=max(queues, topic.read), write=max(queues, topic.write), attributes={})
    return None if (wider.read, wider.write) == (topic.read, topic.write) else wider


def on_each(logs: int, brokers: int) -> int:
    """The number of queues on each of these brokers, which together are at least ``logs``."""
    return -(-logs // max(1, brokers))


def create(client: RocketMqClient, brokers: Sequence[str], action: Action) -> None:
    """Create a topic on these brokers; one that exists on a broker is not changed there."""
    queues = on_each(action.partitions, len(brokers))
    topic, _ = changed(RocketMqTopic(action.topic, queues, queues), action.configs)
    for broker in brokers:
        if topics.topic(client, broker, action.topic) is None:
            topics.put_topic(client, broker, topic)


def grow(client: RocketMqClient, brokers: Sequence[str], action: Action) -> None:
    """Add queues on those of these brokers that have the topic, until it has this number in total."""
    parts = _parts(client, brokers, action.topic)
    for broker, topic in parts.items():
        if larger := grown(topic, on_each(action.partitions, len(parts))):
            topics.put_topic(client, broker, larger)


def set_configs(client: RocketMqClient, brokers: Sequence[str], action: Action) -> None:
    """Set settings on those of these brokers that have the topic."""
    for broker, topic in _parts(client, brokers, action.topic).items():
        topics.put_topic(client, broker, *changed(topic, action.configs))


def _parts(client: RocketMqClient, brokers: Sequence[str], name: str) -> dict[str, RocketMqTopic]:
    """The topic on each broker that has it. Raises `Retry` if none has."""
    by_broker = {broker: topics.topic(client, broker, name) for broker in brokers}
    parts = {broker: topic for broker, topic in by_broker.items() if topic is not None}
    if not parts:
        raise Retry(f"topic {name} in {client.endpoint.name}", "it is on none of its brokers", "it is read again")
    return parts
