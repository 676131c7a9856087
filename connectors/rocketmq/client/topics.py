"""Topics, subscription groups and settings of one broker. Every broker has its own; calls are for one master.

Raises like `RocketMqClient.ask`. Layouts: TopicConfig.java, SubscriptionGroupConfig.java.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from trueup.connectors.rocketmq.client.cluster import READABLE, WRITABLE, RocketMqClient
from trueup.connectors.rocketmq.client.codes import RequestCode, ResponseCode, Unsupported
from trueup.connectors.rocketmq.client.connection import RocketMqRequest, RocketMqResponse
from trueup.state.common.errors import BadBytes, TrueupError

_TAGS = "SINGLE_TAG"
_INVALID = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
Group = Mapping[str, object]
"""A SubscriptionGroupConfig as JSON: groupName, consumeEnable, retryQueueNums ..."""


@dataclass(frozen=True, slots=True)
class RocketMqTopic:
    """A topic on one broker."""

    name: str
    read: int
    """The number of queues to read from (readQueueNums)."""
    write: int
    """The number of queues to write to (writeQueueNums)."""
    permissions: int = READABLE | WRITABLE
    ordered: bool = False
    sys: int = 0
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Attributes such as message.type by name. The names are without the ``+`` that requests for changes add."""


def topics(client: RocketMqClient, broker: str) -> dict[str, RocketMqTopic]:
    """All topics of a broker by name, including system topics."""
    response = client.ask(broker, RocketMqRequest(RequestCode.ALL_TOPIC_CONFIGS, "list its topics", {}))
    table = _table(response, "topicConfigTable")
    return {name: _topic(response, {"topicName": name, **config}) for name, config in table.items()}


def topic(client: RocketMqClient, broker: str, name: str) -> RocketMqTopic | None:
    """A topic of a broker, or None."""
    if client.supports(broker, RequestCode.TOPIC_CONFIG):
        with suppress(Unsupported):
            return _topic_of(client.ask(broker, _topic_request(name)))
    return topics(client, broker).get(name)


def each_topic(
    client: RocketMqClient, broker: str, names: Sequence[str]
) -> dict[str, RocketMqTopic | TrueupError | None]:
    """These topics of a broker as they are after the call began, by name; None if it does not have one. RocketMQ 4.9
    has no request for one topic: all topics are read from it."""
    if client.supports(broker, RequestCode.TOPIC_CONFIG):
        answers = client.ask_each(broker, [_topic_request(name) for name in names])
        if not any(isinstance(answer, Unsupported) for answer in answers):
            return {name: _topic_or_error(answer) for name, answer in zip(names, answers, strict=True)}
    every = topics(client, broker)
    return {name: every.get(name) for name in names}


def _topic_request(name: str) -> RocketMqRequest:
    accepted = {ResponseCode.OK, ResponseCode.NO_TOPIC}
    return RocketMqRequest(RequestCode.TOPIC_CONFIG, f"read topic {name}", {"topic": name}, accepted=accepted)


def _topic_of(response: RocketMqResponse) -> RocketMqTopic | None:
    return _topic(response, response.parsed()) if response.code == ResponseCode.OK else None


def _topic_or_error(answer: RocketMqResponse | TrueupError) -> RocketMqTopic | TrueupError | None:
    try:
        return answer if isinstance(answer, TrueupError) else _topic_of(answer)
    except BadBytes as error:
        return error


def put_topic(client: RocketMqClient, broker: str, config: RocketMqTopic, without: Sequence[str] = ()) -> None:
    """Create or change a topic. Of its attributes, those of ``config`` are set, and those of ``without``, which it must
    have, removed; others stay."""
    attributes = [*(f"+{name}={value}" for name, value in config.attributes.items()), *(f"-{name}" for name in without)]
    fields: dict[str, object] = {
        "topic": config.name,
        "defaultTopic": "TBW102",
        "readQueueNums": config.read,
        "writeQueueNums": config.write,
        "perm": config.permissions,
        "topicFilterType": _TAGS,
        "topicSysFlag": config.sys,
        "order": config.ordered,
        "attributes": ",".join(attributes) or None,
        "force": False,
    }
    client.ask(
        broker, RocketMqRequest(RequestCode.UPDATE_TOPIC, f"create or change topic {config.name}", fields, changes=True)
    )


def groups(client: RocketMqClient, broker: str) -> dict[str, Group]:
    """The subscription groups of a broker by name, in the form that `put_group` takes."""
    request = RocketMqRequest(RequestCode.ALL_GROUPS, "list its subscription groups", {})
    return dict(_table(client.ask(broker, request), "subscriptionGroupTable"))


def put_group(client: RocketMqClient, broker: str, group: Group, without: Sequence[str] = ()) -> None:
    """Create or change a subscription group. Of its attributes, those of ``group`` are set, and those of ``without``,
    which it must have, removed; others stay (AttributeUtil.java)."""
    doing, attributes = f"create or change group {group.get('groupName')}", group.get("attributes")
    if isinstance(attributes, Mapping):
        added = {f"+{name}": value for name, value in attributes.items()}
        group = {**group, "attributes": {**added, **{f"-{name}": "" for name in without}}}
    client.ask(broker, RocketMqRequest(RequestCode.UPDATE_GROUP, doing, {}, json.dumps(group).encode(), changes=True))


def settings(client: RocketMqClient, broker: str) -> dict[str, str]:
    """The settings of a broker."""
    response = client.ask(broker, RocketMqRequest(RequestCode.BROKER_CONFIG, "read its settings", {}))
    lines = str(response.body, "utf-8", "replace").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def runtime(client: RocketMqClient, broker: str) -> dict[str, str]:
    """Figures of a running broker (brokerVersionDesc, putTps, commitLogMaxOffset ...)."""
    return {
        n: str(v)
        for n, v in _table(
            client.ask(broker, RocketMqRequest(RequestCode.BROKER_RUNTIME, "read its figures", {})), "table"
        ).items()
    }


def _table(response: RocketMqResponse, name: str) -> Mapping[str, Any]:
    content = response.parsed()
    if not isinstance(content, dict) or not isinstance(content.get(name), dict):
        raise BadBytes(response.where, 0, f"an object {name}", str(content)[:100], "check its version")
    return content[name]  # type: ignore[no-any-return]


def _topic(response: RocketMqResponse, config: Mapping[str, Any]) -> RocketMqTopic:
    try:
        attributes = {str(name): str(value) for name, value in (config.get("attributes") or {}).items()}
        return RocketMqTopic(
            str(config["topicName"]),
            int(config["readQueueNums"]),
            int(config["writeQueueNums"]),
            int(config["perm"]),
            bool(config["order"]),
            int(config["topicSysFlag"]),
            attributes,
        )
    except _INVALID as error:
        raise BadBytes(response.where, 0, "a topic", f"{type(error).__name__}: {error}", "check its version") from error
