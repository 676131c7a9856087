"""The id of a cluster. RocketMQ has none; a subscription group on every broker holds one.

Brokers keep subscription groups with their data and copy them to their slaves; name servers keep nothing. So the id
lives as long as the data, and a replacement without it gets another. The id is derived from the first broker and the
time of its start, so that two clients that plant it at the same time plant the same.
"""

import re
import uuid
from collections.abc import Mapping

from trueup.connectors.rocketmq.client import topics
from trueup.connectors.rocketmq.client.cluster import RocketMqClient
from trueup.connectors.rocketmq.replication.each_broker import ask_each_broker, worst
from trueup.state.common.errors import Retry, Stop

PREFIX = "trueup-cluster-"
GROUP = re.compile(PREFIX + "([0-9a-f]{32})")
"""Names of the groups with an id. Other groups with the prefix are those of users."""
_SPACE = uuid.UUID("6f1c1f0e-6a55-4d3b-9a3e-0d6b1a6b5c0a")


def agreed(cluster: str, planted: Mapping[str, set[str]]) -> str:
    """The one id in these brokers; empty if none has one. Raises `Stop` if there are two."""
    by_id: dict[str, list[str]] = {}
    for broker, ids in sorted(planted.items()):
        for identity in sorted(ids):
            by_id.setdefault(identity, []).append(broker)
    if len(by_id) > 1:
        holders = ", ".join(f"{identity} on {' and '.join(brokers)}" for identity, brokers in by_id.items())
        todo = f"correct namesrv if these are two clusters, else delete the subscription group {PREFIX}ID of one"
        raise Stop(f"brokers of one cluster in {cluster}", holders, todo)
    return next(iter(by_id), "")


def cluster_id(client: RocketMqClient) -> str:
    """The id of the cluster. Brokers that answer and do not have it get it."""
    held, failed = ask_each_broker(client.masters(), lambda broker: topics.groups(client, broker))
    planted = {broker: {own[1] for name in groups if (own := GROUP.fullmatch(name))} for broker, groups in held.items()}
    identity = agreed(client.endpoint.name, planted)
    if not identity and (failed or not planted):  # a broker without an answer may have the id
        raise (
            worst(failed.values())
            if failed
            else Retry(
                f"a broker of {client.endpoint.name}", "none is registered at the name servers", "start it; retrying"
            )
        )
    identity = identity or _new(client, min(planted))
    for broker, ids in planted.items():
        if not ids:
            topics.put_group(client, broker, {"groupName": PREFIX + identity, "consumeEnable": False})
    return identity


def _new(client: RocketMqClient, broker: str) -> str:
    address, started = client.masters().get(broker), topics.runtime(client, broker).get("bootTimestamp", "")
    return uuid.uuid5(_SPACE, f"{broker} {address} {started or uuid.uuid4()}").hex
