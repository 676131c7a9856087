"""Writer of RocketMQ for the generic pump: batches of messages, at most one in flight per queue.

A broker handles the requests of one connection on several threads, so that two requests for a queue could be stored in
either order. Requests for different queues are in flight together, on one connection per broker.

A broker that waits in vain for its disk or its replicas reports that, and may not show the messages until they are
there. They count as acknowledged when their queue shows them. A queue that does not show them in time has no bounds
until it does: messages that a read of its tail does not find would be sent again.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from trueup.connectors.contract import Lease, LogId
from trueup.connectors.replication.packed import Packed
from trueup.connectors.replication.ports import Columns, Written, following
from trueup.connectors.replication.tail import Bounds
from trueup.connectors.rocketmq.client import messages
from trueup.connectors.rocketmq.client.cluster import WRITABLE, RocketMqClient
from trueup.connectors.rocketmq.client.codes import Illegal, NoRoute
from trueup.connectors.rocketmq.client.connection import PendingRequest, RocketMqConnection, RocketMqRequest
from trueup.connectors.rocketmq.client.dispatch import WAIT_S, unconfirmed, wait_shown
from trueup.connectors.rocketmq.protocol import batch
from trueup.connectors.rocketmq.protocol.batch import MessageBatch
from trueup.connectors.rocketmq.replication.ends import RocketMqEnd
from trueup.connectors.rocketmq.replication.records.columns import Encoder, OutgoingMessages, untouched
from trueup.connectors.rocketmq.replication.records.incoming import incoming
from trueup.connectors.rocketmq.replication.records.native import NativeRows
from trueup.connectors.rocketmq.replication.tails import RocketMqTails
from trueup.state.common.errors import Stop, TrueupError

BATCH_BYTES = 1 << 20
"""Maximum size of a request with several messages. Brokers accept 4 MB by default (maxMessageSize)."""
SHOWN_S = WAIT_S
"""Seconds for which a write waits until its queues show what their brokers stored without confirming it."""


class RocketMqWriter(RocketMqEnd):
    """Implements `connectors.replication.ports.Writer` for the target of a lease."""

    def __init__(self, lease: Lease) -> None:
        super().__init__(lease.target)
        self._tails, self._encoder = RocketMqTails(self._client, self.binding), Encoder(untouched(lease))
        self._connections = _Connections(self._client)

    def bounds(self, logs: Iterable[LogId]) -> dict[LogId, Bounds | TrueupError]:
        """See `RocketMqEnd.bounds`. An error for a queue that does not show messages which its broker stored."""
        bounds = super().bounds(logs)
        return {log: self._connections.shown(log, end) for log, end in bounds.items()}

    def tails(self) -> RocketMqTails:
        """The reader of queues' tails."""
        return self._tails

    def logs_of(self, topic: str) -> list[LogId]:
        """Queues of a topic."""
        try:
            return self._client.logs(topic, WRITABLE)
        except NoRoute:
            return []

    def write(self, batches: Mapping[LogId, Columns]) -> dict[LogId, Written]:
        """Send to several queues, and wait for the results."""
        prepared = self.prepare(batches)
        prepared.send()
        return prepared.written()

    def prepare(self, batches: Mapping[LogId, Columns]) -> "_RocketMqWrite":
        """A write to several queues: to each one request after the other. After a lost response its queue gets no
        more."""
        return _RocketMqWrite(
            self._connections, [_QueueSend(log, *self._batches(log, columns)) for log, columns in batches.items()]
        )

    def _batches(self, log: LogId, columns: Columns) -> tuple[Iterator[MessageBatch], str]:
        """The batches for one queue, and why the record after them cannot be a message."""
        binding = self.binding(log)
        if isinstance(columns, NativeRows):
            return columns.batches(BATCH_BYTES, binding), ""
        if isinstance(columns, Packed) and (arrays := incoming(columns)) is not None:
            return arrays.batches(BATCH_BYTES, binding), ""
        outgoing = self._encoder.messages(columns.columns(), binding)
        return batches(outgoing), outgoing.refused

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()
        self._tails.close()
        self._client.close()


class _Connections:
    """One connection to each broker, and the ends of queues that do not show what was stored through it: whether the
    broker still has that when the connection is lost is not known."""

    def __init__(self, client: RocketMqClient) -> None:
        self._client = client
        self._open: dict[str, RocketMqConnection] = {}
        self._hidden: dict[LogId, tuple[int, RocketMqConnection]] = {}

    def renew(self) -> None:
        """Give up those that their brokers closed, and those to former masters. Nothing is in flight."""
        for broker, connection in [*self._open.items()]:
            if connection.ended() or self._client.replaced(broker, connection):
                self._open.pop(broker).close()

    def of(self, broker: str) -> RocketMqConnection:
        """The connection of this write, which stays the same when it is lost: all its requests are."""
        if broker not in self._open:
            self._open[broker] = self._client.connect(broker)
        return self._open[broker]

    def await_shown(self, log: LogId, end: int, until_s: float) -> None:
        """Wait for the end of a queue whose broker stored messages without confirming them. Raises as `wait_shown`."""
        self._hidden[log] = end, self._open[log.place]
        wait_shown(self._client, log, end, until_s)
        del self._hidden[log]

    def shown(self, log: LogId, bounds: Bounds | TrueupError) -> Bounds | TrueupError:
        """The bounds of a queue, or an error while it does not show what was stored. Nothing is in flight."""
        if log not in self._hidden or not isinstance(bounds, Bounds):
            return bounds
        self.renew()
        end, connection = self._hidden[log]
        if bounds.end < end and self._open.get(log.place) is connection:
            return unconfirmed(log, end, bounds.end)
        del self._hidden[log]
        return bounds

    def close(self) -> None:
        """Close them."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()


class _RocketMqWrite:
    """Implements `connectors.replication.ports.Write`."""

    def __init__(self, connections: _Connections, sendings: Sequence["_QueueSend"]) -> None:
        self._connections, self._sendings = connections, sendings
        self._left: list[_QueueSend] = []
        self._shown_s = 0.0
        for sending in sendings:
            sending.next()

    def send(self) -> None:
        """Send the first request for each queue, and make the second one."""
        self._connections.renew()
        self._left = [sending for sending in self._sendings if self._submit(sending)]
        for sending in self._left:
            sending.next()

    def written(self) -> dict[LogId, Written]:
        """Wait for each response, and send the next request for its queue."""
        left = self._left
        while left:
            left = [sending for sending in left if self._answered(sending) and self._submit(sending)]
            for sending in left:
                sending.next()
        return {sending.log: sending.written() for sending in self._sendings}

    def _submit(self, sending: "_QueueSend") -> bool:
        """Send the next batch of a queue. Returns whether there was one."""
        if sending.request is None:
            return False
        sending.begin()
        try:
            sending.pending = self._connections.of(sending.log.place).submit(sending.request)
        except TrueupError as error:
            sending.error = error
        return sending.error is None

    def _answered(self, sending: "_QueueSend") -> bool:
        """Wait for the response to the batch of a queue that is in flight. Returns whether it was stored."""
        if sending.pending is None:
            return False
        try:
            sent = messages.sent(self._connections.of(sending.log.place).wait(sending.pending))
            if not sent.durable and sent.queue == sending.log.number:
                self._shown_s = self._shown_s or time.monotonic() + SHOWN_S
                self._connections.await_shown(sending.log, sending.end(sent), self._shown_s)
        except Illegal as error:
            sending.refused = error.found
        except TrueupError as error:
            sending.error = error
        else:
            sending.stored(sent)
        return sending.error is None and not sending.refused


class _QueueSend:
    """The batches for one queue in a write, and their outcome. ``unfit``: the reason why the record after the batches
    cannot be a message; empty if there is no such record."""

    def __init__(self, log: LogId, batches: Iterator[MessageBatch], unfit: str) -> None:
        self.log, self._batches, self._unfit = log, batches, unfit
        self._next = self._sent = 0
        self.request: RocketMqRequest | None = None
        self.pending: PendingRequest | None = None
        self.offsets: Sequence[int] = ()
        self.refused = ""
        self.error: TrueupError | None = None

    def next(self) -> None:
        """Make the request for the next batch; None: there is none."""
        if (message_batch := next(self._batches, None)) is None:
            self.request = None
            return
        self._next = message_batch.messages
        self.request = messages.send_batch(self.log, message_batch.body, message_batch.born, message_batch.sys)

    def begin(self) -> None:
        """The request is sent now."""
        self._sent = self._next

    def end(self, sent: messages.SendResult) -> int:
        """The offset after the batch that was sent last."""
        return sent.offset + self._sent

    def stored(self, sent: messages.SendResult) -> None:
        """Record the offsets of the batch that was sent last."""
        if sent.queue != self.log.number:
            expected = f"messages in queue {self.log.number} of {self.log.topic}"
            self.error = Stop(expected, f"them in queue {sent.queue}", "check its broker's settings")
            return
        self.offsets = following(self.offsets, sent.offset, self._sent)

    def written(self) -> Written:
        """The outcome. Messages after a record that cannot be one were not sent."""
        done = self.error is None and not self.refused
        return Written(self.offsets, self._unfit if done else self.refused, self.error)


def batches(outgoing: OutgoingMessages) -> Iterator[MessageBatch]:
    """Messages with the same system flag and time of birth, in order."""
    first, kinds = 0, [*zip(outgoing.sys, outgoing.born, strict=True)]
    while first < len(kinds):
        last, size, (sys, born) = first, 0, kinds[first]
        while last < len(kinds) and kinds[last] == (sys, born):
            size += batch.size_of(len(outgoing.bodies[last]), len(outgoing.properties[last]))
            if size > BATCH_BYTES and last > first:
                break
            last += 1
        rows = slice(first, last)
        yield MessageBatch(
            last - first,
            born,
            sys,
            batch.encode(outgoing.bodies[rows], outgoing.properties[rows], outgoing.flags[rows]),
        )
        first = last
