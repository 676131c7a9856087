"""The heartbeats' topic of a RocketMQ cluster: one queue on one broker.

RIP-45 names it rmq_sys_replicator_heartbeat. Brokers refuse to create topics with that prefix unless
validateSystemTopicWhenUpdateTopic is false; the declared name is used then. A message is the time at which it was
written, and the key.
"""

import time
from contextlib import suppress

from trueup.connectors.closing import Closing
from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.rocketmq.client import messages, topics
from trueup.connectors.rocketmq.client.cluster import RocketMqClient
from trueup.connectors.rocketmq.client.connection import PendingRequest, RocketMqConnection, RocketMqRequest
from trueup.connectors.rocketmq.client.topics import RocketMqTopic
from trueup.connectors.rocketmq.protocol import batch
from trueup.connectors.rocketmq.replication.each_broker import ask_each_broker, worst
from trueup.state.common.errors import Retry, Stop, TrueupError

RIP_45 = "rmq_sys_replicator_heartbeat"
TAIL = 100
"""Messages before the end that are read first."""
POLL_S = 0.02
DIGITS = 18
"""Maximum digits of a time; `int` raises ValueError for thousands."""


def names(topic: str) -> tuple[str, ...]:
    """The names of the topic, the preferred one first."""
    return tuple(dict.fromkeys((RIP_45, topic)))


def queue_of(client: RocketMqClient, topic: str) -> LogId | None:
    """The queue of the heartbeats' topic; None if no broker has it. Raises the error of a broker without an answer if
    none of the others has it."""
    every, failed = ask_each_broker(sorted(client.masters()), lambda broker: topics.topics(client, broker))
    places = (LogId(name, 0, broker) for name in names(topic) for broker in every if name in every[broker])
    place = next(places, None)
    if place is None and failed:
        raise worst(failed.values())
    return place


class RocketMqHeartbeats(Closing):
    """Implements `connectors.replication.ports.HeartbeatLog`."""

    def __init__(self, endpoint: Endpoint, topic: str) -> None:
        self._client, self._topic = RocketMqClient(endpoint), topic
        self.error, self.written_ms = "", 0
        self._connection: RocketMqConnection | None = None
        self._log, self._at = LogId(topic, 0), 0
        self._sent: list[tuple[PendingRequest, int]] = []

    def prepare(self) -> None:
        """Create the topic if it is missing, and start to read near its end."""
        if self._connection is not None:
            return
        try:
            self._log = queue_of(self._client, self._topic) or self._made()
            self._connection = self._client.connect(self._log.place)
            start, end = (self._number(ask(self._log)) for ask in (messages.first_offset, messages.end_offset))
        except TrueupError as error:
            self._lost(error)
            return
        self._at = max(start, end - TAIL)

    def _made(self) -> LogId:
        """The topic, created on the first broker under the first name that it accepts."""
        broker = min(self._client.masters(), default="")
        if not broker:
            expected = f"a broker of {self._client.endpoint.name} for heartbeats"
            raise Retry(expected, "none is registered at the name servers", "start one; retrying")
        for name in names(self._topic)[:-1]:
            with suppress(Stop):
                topics.put_topic(self._client, broker, RocketMqTopic(name, 1, 1))
                return LogId(name, 0, broker)
        topics.put_topic(self._client, broker, RocketMqTopic(self._topic, 1, 1))
        return LogId(self._topic, 0, broker)

    def write(self, key: bytes, sent_ms: int) -> None:
        """Send a heartbeat without waiting; ``written_ms`` shows its acknowledgement later."""
        if self._connection is None:
            return
        body = batch.encode([b"%d %s" % (sent_ms, key)], [b""], [0])
        try:
            pending = self._connection.submit(messages.send_batch(self._log, body, sent_ms))
        except TrueupError as error:
            self._lost(error)
        else:
            self._sent.append((pending, sent_ms))

    def read(self, key: bytes) -> list[int]:
        """The write times of received heartbeats with this key. Waits briefly for the first."""
        connection = self._connection
        if connection is None:
            time.sleep(POLL_S)  # the caller repeats this until its time is over
            return []
        try:
            self._acknowledge(connection)
            pulled = messages.pulled(connection.ask(messages.pull(self._log, self._at, TAIL)))
        except TrueupError as error:
            self._lost(error)
            return []
        self._at, self.error = pulled.next, ""
        if pulled.messages is None:
            time.sleep(POLL_S)
            return []
        parts = [bytes(body).partition(b" ") for body in pulled.messages.bodies]
        return [int(sent) for sent, _, other in parts if other == key and sent.isdigit() and len(sent) <= DIGITS]

    def _acknowledge(self, connection: RocketMqConnection) -> None:
        """Collect the responses that have arrived."""
        left = list[tuple[PendingRequest, int]]()
        for pending, sent_ms in self._sent:
            if connection.arrived(pending):
                messages.sent(connection.wait(pending))
                self.written_ms = max(self.written_ms, sent_ms)
            else:
                left.append((pending, sent_ms))
        self._sent = left

    def _number(self, request: RocketMqRequest) -> int:
        assert self._connection is not None, "it was just opened"
        return messages.offset_of(self._connection.ask(request))

    def _lost(self, error: TrueupError) -> None:
        """Keep the error. The next `prepare` connects again, and creates a topic that is missing."""
        self.error, self._sent = f"{self._client.endpoint.name}: {error}", []
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        """Close the connections; heartbeats in flight are lost."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._client.close()
