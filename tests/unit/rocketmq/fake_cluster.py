"""A name server and brokers that answer as told."""

import json
from contextlib import ExitStack
from typing import Any

from tests.unit.rocketmq.peers import Handler, Peer, answer
from tests.unit.rocketmq.test_cluster import table
from trueup.connectors.contract import Endpoint
from trueup.connectors.rocketmq.client.codes import RequestCode

SYSTEM = {"sandbox", "sandbox_REPLY_TOPIC", "BenchmarkTest"}


class FakeCluster:
    """``brokers``: those that the name server knows; ``topics``: the topics that it lists."""

    def __init__(self, stack: ExitStack, **handlers: Handler) -> None:
        self.peers = {name: stack.enter_context(Peer(handler)) for name, handler in handlers.items()}
        self.brokers = {name: peer.address for name, peer in self.peers.items()}
        self.topics: set[str] = set()
        self.names = stack.enter_context(Peer(self._names))
        self.endpoint = Endpoint("east", self.names.address, 0)

    def kill(self, name: str) -> None:
        """Close a broker; the name server forgets it."""
        del self.brokers[name]
        self.peers[name].close()

    def asked(self, name: str) -> list[int]:
        """The codes of all requests to a broker."""
        return [request["code"] for request in self.peers[name].requests]

    def _names(self, request: dict[str, Any]) -> bytes:
        if request["code"] == RequestCode.TOPICS:
            return answer(request, body=json.dumps({"topicList": [*self.topics, *SYSTEM]}).encode())
        if request["code"] == RequestCode.SYSTEM_TOPICS:
            return answer(request, body=json.dumps({"topicList": ["sandbox", *self.brokers]}).encode())
        return answer(request, body=table(self.brokers))
