"""Users and rights of ACL 2.0 on one broker (UserInfo.java, AclInfo.java). Raises like `RocketMqClient.ask`.

A cluster without ACL responds to every request with a system error; these functions raise `NoRights` then. Brokers
return passwords in clear; they are removed from what is read here.
"""

import json
from collections.abc import Mapping
from typing import Any

from trueup.connectors.rocketmq.client.cluster import RocketMqClient
from trueup.connectors.rocketmq.client.codes import RequestCode
from trueup.connectors.rocketmq.client.connection import RocketMqRequest, RocketMqResponse
from trueup.state.common.errors import BadBytes, Stop

Rights = Mapping[str, Any]
"""An AclInfo: subject (`User:name`), and policies with entries of resource, actions, sourceIps and decision."""
User = Mapping[str, str]
"""A UserInfo without its password: username, userType (Normal, Super), userStatus (enable, disable)."""
_PASSWORD = "password"  # noqa: S105 - the name of a field
_WITHOUT_ACL = ("MetadataProvider is not configured", "An system error occurred")
"""Remarks of brokers without ACL (AdminBrokerProcessor.java, AuthenticationMetadataManagerImpl.java)."""


class NoRights(Stop):
    """The broker has no ACL."""


def users(client: RocketMqClient, broker: str) -> dict[str, User]:
    """The users of a broker by name."""
    infos = _listed(_ask(client, broker, RequestCode.USERS, "list its users", {}))
    return {str(u.get("username")): {k: str(v) for k, v in u.items() if k != _PASSWORD} for u in infos}


def rights(client: RocketMqClient, broker: str) -> dict[str, Rights]:
    """The rights on a broker by subject."""
    infos = _listed(_ask(client, broker, RequestCode.RIGHTS, "list its rights", {}))
    return {str(info.get("subject")): info for info in infos}


def put_rights(client: RocketMqClient, broker: str, acl: Rights, merge: bool = False) -> None:
    """Create the rights of a subject, which must have none; or merge them into those that it has, by resource."""
    subject = acl["subject"]
    code = RequestCode.UPDATE_RIGHTS if merge else RequestCode.CREATE_RIGHTS
    _ask(client, broker, code, f"store rights of {subject}", {"subject": subject}, json.dumps(acl).encode())


def drop_rights(client: RocketMqClient, broker: str, subject: str, resource: str = "") -> None:
    """Delete all rights of a subject, or only its first entry for this resource."""
    fields = {"subject": subject, **({"resource": resource} if resource else {})}
    _ask(client, broker, RequestCode.DELETE_RIGHTS, f"delete rights of {subject}", fields, b"")


def _ask(
    client: RocketMqClient,
    broker: str,
    code: RequestCode,
    doing: str,
    fields: Mapping[str, object],
    body: bytes | None = None,
) -> RocketMqResponse:
    """Send a request to the master of a broker. ``body``: the body of a change; None: the request changes nothing."""
    try:
        return client.ask(broker, RocketMqRequest(code, doing, fields, body or b"", changes=body is not None))
    except Stop as error:
        if not any(text in error.found for text in _WITHOUT_ACL):
            raise
        todo = "nothing is to be done if it has no ACL (authorizationEnabled); otherwise check its log"
        raise NoRights(error.expected, error.found, todo) from error


def _listed(response: RocketMqResponse) -> list[Mapping[str, Any]]:
    infos = response.parsed() if len(response.body) else []
    if not isinstance(infos, list) or not all(isinstance(info, dict) for info in infos):
        raise BadBytes(response.where, 0, "a list of objects", str(type(infos)), "check its version")
    return infos
