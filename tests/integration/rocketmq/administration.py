"""Changes that only operators make to a cluster of RocketMQ, with its mqadmin."""

import json
from collections.abc import Mapping

from trueup.connectors.rocketmq.client.cluster import RocketMqClient
from trueup.connectors.rocketmq.client.codes import RequestCode, ResponseCode
from trueup.connectors.rocketmq.client.connection import RocketMqRequest
from trueup.connectors.rocketmq.client.rights import User


def put_user(client: RocketMqClient, broker: str, user: User, password: str, new: bool = True) -> None:
    """Create a user, or replace password, type and status of one that exists."""
    code, name = RequestCode.CREATE_USER if new else RequestCode.UPDATE_USER, user["username"]
    body = json.dumps({**user, "password": password}).encode()
    client.ask(broker, RocketMqRequest(code, f"store user {name}", {"username": name}, body, changes=True))


def drop_user(client: RocketMqClient, broker: str, name: str) -> None:
    """Delete a user."""
    client.ask(
        broker, RocketMqRequest(RequestCode.DELETE_USER, f"delete user {name}", {"username": name}, changes=True)
    )


def drop_topic(client: RocketMqClient, name: str) -> None:
    """Delete a topic on all brokers and name servers. A topic that does not exist is no error."""
    accepted = {ResponseCode.OK, ResponseCode.NO_TOPIC}
    doing, fields = f"delete topic {name}", {"topic": name}
    for broker in client.masters():
        client.ask(
            broker, RocketMqRequest(RequestCode.DELETE_TOPIC_IN_BROKER, doing, fields, accepted=accepted, changes=True)
        )
    client.ask_name_servers(
        RocketMqRequest(RequestCode.DELETE_TOPIC_IN_NAME_SERVER, doing, fields, accepted=accepted, changes=True)
    )


def drop_group(client: RocketMqClient, broker: str, name: str) -> None:
    """Delete a subscription group with its offsets."""
    fields = {"groupName": name, "cleanOffset": True}
    client.ask(broker, RocketMqRequest(RequestCode.DELETE_GROUP, f"delete group {name}", fields, changes=True))


def put_settings(client: RocketMqClient, broker: str, changed: Mapping[str, object]) -> None:
    """Change settings of a running broker, which stores them in its file."""
    body = "".join(f"{name}={value}\n" for name, value in changed.items()).encode()
    client.ask(
        broker, RocketMqRequest(RequestCode.UPDATE_BROKER_CONFIG, f"set {', '.join(changed)}", {}, body, changes=True)
    )
