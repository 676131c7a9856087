"""The version of a broker. Older ones lack requests, and drop settings that they do not know without an error."""

import re

from trueup.connectors.rocketmq.client import topics
from trueup.connectors.rocketmq.client.cluster import RocketMqClient

Version = tuple[int, ...]
"""As (4, 9, 7); empty if it is unknown."""
ATTRIBUTES = (5, 0)
"""The first version with attributes of topics and groups."""
_FORM = re.compile(r"V(\d{1,3})_(\d{1,3})_(\d{1,3})", re.ASCII)
"""Names in MQVersion.java."""


def version(client: RocketMqClient, broker: str) -> Version:
    """The version of a broker. Raises like `RocketMqClient.ask`."""
    found = _FORM.match(topics.runtime(client, broker).get("brokerVersionDesc", ""))
    return tuple(map(int, found.groups())) if found else ()


def shown(known: Version) -> str:
    """The version as its users write it, as in RocketMQ 4.9.7."""
    return f"RocketMQ {'.'.join(map(str, known))}" if known else "RocketMQ"
