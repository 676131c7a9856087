"""A consumer of Pulsar's Java client, in a JVM of its own that Python drives."""

from typing import Any

from trueup.connectors.closing import Closing
from trueup.sandbox.gateway import Gateway


class JavaConsumer(Closing):
    """Consumes a topic, ``tenant/namespace/name``, from its first message. ``contents``: what it received so far;
    ``queue``: maximum number of messages of a partition that it receives ahead of use."""

    def __init__(self, gateway: Gateway, service_url: str, topic: str, queue: int = 1_000) -> None:
        api, java = gateway.java.org.apache.pulsar.client.api, gateway.java.java
        self.topic, self.contents = topic, list[bytes]()
        self._unit = java.util.concurrent.TimeUnit.MILLISECONDS
        self._client: Any = api.PulsarClient.builder().serviceUrl(service_url).build()
        names = java.util.ArrayList()
        names.add(f"persistent://{topic}")
        builder = self._client.newConsumer().topics(names).subscriptionName("java").receiverQueueSize(queue)
        self._consumer = builder.subscriptionInitialPosition(api.SubscriptionInitialPosition.Earliest).subscribe()

    def take(self, wait_ms: int) -> bool:
        """Receive and acknowledge one message; False if none arrives."""
        message = self._consumer.receive(wait_ms, self._unit)
        if message is None:
            return False
        self.contents.append(bytes(message.getData()))
        self._consumer.acknowledge(message)
        return True

    def take_all(self, wait_ms: int) -> int:
        """Receive until nothing arrives for ``wait_ms``; returns the number of messages received so far."""
        while self.take(wait_ms):
            pass
        return len(self.contents)

    def close(self) -> None:
        """Close the client."""
        self._client.close()
