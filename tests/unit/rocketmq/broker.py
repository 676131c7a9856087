"""A name server and broker in one listener, whose responses a test sets."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.unit.rocketmq.peers import Peer, answer
from trueup.connectors.contract import Assignment, Endpoint, Lease, LogId, Position
from trueup.connectors.rocketmq.client.codes import RequestCode

BROKER, LOG = "broker-a", LogId("orders", 0, "broker-a")
ID = "0" * 32
"""The id of the cluster."""
Answers = Mapping[RequestCode, Callable[[dict[str, Any]], bytes | None]]


def broker(answers: Answers) -> Peer:
    """Responds to requests by code, and names itself as the only broker."""

    def respond(request: dict[str, Any]) -> bytes | None:
        code = RequestCode(request["code"])
        if code in answers:
            return answers[code](request)
        if code is RequestCode.ALL_GROUPS:
            group = {"groupName": f"trueup-cluster-{ID}"}
            return answer(request, body=json.dumps({"subscriptionGroupTable": {group["groupName"]: group}}).encode())
        assert code is RequestCode.CLUSTER
        addresses = f'{{"0":"{peer.address}"}}'
        table = f'{{"brokerAddrTable":{{"{BROKER}":{{"brokerName":"{BROKER}","brokerAddrs":{addresses}}}}}}}'
        return answer(request, body=table.encode())

    peer = Peer(respond)
    return peer


def endpoint(peer: Peer, name: str = "east", system: str = "rocketmq") -> Endpoint:
    return Endpoint(name, peer.address, 0, {"timeout.ms": "2000"}, system)


def lease(peer: Peer, source: str = "rocketmq", position: Position | None = None) -> Lease:
    """From a queue to the queue of the same name, both of this broker. ``source``: its system."""
    ends = endpoint(peer, system=source), endpoint(peer, "west")
    return Lease("east-west", *ends, 7, "records", (Assignment(LOG, LOG, position or Position(), 0),))
