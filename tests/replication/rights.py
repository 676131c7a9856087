"""The user of a link loses its rights on a source topic for some seconds."""

import random
import time

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.e2e.trueup import Trueup
from tests.replication.pair import Broker
from tests.replication.relayed import HOST

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
NOTICED_S, AWAY_S = 60.0, 10.0
"""Maximum seconds until a link without rights is not up, and how long it is observed then."""
Rule = tuple[ResourceType, str, ResourcePatternType, str, str, AclOperation, AclPermissionType]
RIGHTS = (AclOperation.ALL, AclOperation.READ, AclOperation.DESCRIBE)


def take_away(trueup: Trueup, broker: Broker, link: str, topic: str) -> None:
    """Deny a right on a topic to clients behind the relay, watch the link, and give the right back."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    right = random.choice(RIGHTS)
    denied = _rule(topic, HOST, right, AclPermissionType.DENY)
    # A topic with any rule is closed to everyone without one.
    allowed = _rule(topic, "*", AclOperation.ALL, AclPermissionType.ALLOW)
    for future in admin.create_acls([AclBinding(*rule) for rule in (allowed, denied)]).values():
        future.result(30)
    try:
        what = f"{link} without {right.name} on {topic} not to be up"
        trueup.until(what, lambda: _state(trueup, link) != "up", NOTICED_S)
        until_s = time.monotonic() + AWAY_S
        while time.monotonic() < until_s:
            assert _state(trueup, link) != "up", f"{link} is up without {right.name} on {topic}"
    finally:
        for deleted in admin.delete_acls([AclBindingFilter(*denied)]).values():
            deleted.result(30)


def _rule(topic: str, host: str, right: AclOperation, what: AclPermissionType) -> Rule:
    return ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:*", host, right, what


def _state(trueup: Trueup, link: str) -> str:
    return str(trueup.api(f"links/{link}")["state"])
