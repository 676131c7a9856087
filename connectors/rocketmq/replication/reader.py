"""Reader of RocketMQ for the generic pump: one pull in flight per queue, which its broker holds while there is nothing.

Pulls have connections of their own, one per broker: a broker whose responses are not read stops to read requests.
"""

import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trueup.connectors.contract import Lease, LogId
from trueup.connectors.readiness import readable
from trueup.connectors.replication.ports import Columns, Read
from trueup.connectors.replication.tail import Bounds
from trueup.connectors.replication.track import places_of
from trueup.connectors.rocketmq.client import messages
from trueup.connectors.rocketmq.client.connection import PendingRequest, RocketMqConnection
from trueup.connectors.rocketmq.client.options import REPLICATOR
from trueup.connectors.rocketmq.protocol import flags
from trueup.connectors.rocketmq.replication.ends import RocketMqEnd
from trueup.connectors.rocketmq.replication.records.binding import Binding
from trueup.connectors.rocketmq.replication.records.columns import Decoder, native, untouched
from trueup.state.common.errors import Retry, Stop, TrueupError
from trueup.state.replication.provenance import token_of

MOST, LEAST = 4_000, 32
"""Messages that one pull asks for: of all queues together, and of one at least."""
HELD_S = 5.0
"""Seconds for which a broker is asked to hold a pull from the end of a queue."""


class RocketMqReader(RocketMqEnd):
    """Implements `connectors.replication.ports.Reader` for the source of a lease."""

    def __init__(self, lease: Lease) -> None:
        super().__init__(lease.source)
        replicated = REPLICATOR in lease.source.options
        self._decoder = Decoder(untouched(lease), replicated, _called(lease), native(lease))
        self._open: dict[str, RocketMqConnection] = {}
        self._queues: dict[LogId, _Queue] = {}
        self._last = {log: _Last(at - 1, place) for log, (at, place) in places_of(lease.assignments).items()}

    def seek(self, places: Mapping[LogId, int]) -> None:
        """Read these queues from these offsets. Pulls in flight from other offsets, or to former masters, are given
        up."""
        for broker in [
            broker for broker, connection in self._open.items() if self._client.replaced(broker, connection)
        ]:
            self._drop(broker)
        kept = {
            log: queue
            for log, queue in self._queues.items()
            if queue.pending is not None and queue.rows is None and places.get(log) == queue.wanted
        }
        for log, queue in self._queues.items():
            if queue.pending is not None and log not in kept:
                self._drop(log.place)
        self._queues = {
            log: kept[log] if log in kept and kept[log].pending is not None else _Queue(log, at)
            for log, at in places.items()
        }

    def poll(self, most: int, wait_s: float) -> dict[LogId, Read]:
        """The next messages: those that arrived, or the first within this time."""
        until_s = time.monotonic() + wait_s
        failed = self._pull()
        while True:
            failed |= self._take()
            ready = [log for log, queue in self._queues.items() if queue.rows is not None]
            left_s = until_s - time.monotonic()
            if failed or ready or left_s <= 0:
                break
            readable([c for c in self._open.values() if not c.lost], left_s)
        share = max(1, most // max(1, len(ready)))
        reads = {log: self._given(log, share) for log in ready} | failed
        self._pull()  # while these are written; the next call repeats what fails
        return reads

    def _pull(self) -> dict[LogId, Read]:
        """Pull from every queue of which nothing is here or in flight. Returns those of which this fails."""
        failed, errors = dict[LogId, Read](), dict[str, TrueupError]()
        share = max(LEAST, MOST // max(1, len(self._queues)))
        for log, queue in self._queues.items():
            if queue.pending is not None or queue.rows is not None:
                continue
            try:
                if log.place not in errors:
                    connection = self._connection(log.place)
                    queue.use(connection, self._last.get(log))
                    request = messages.pull(log, queue.at, share, HELD_S if queue.idle else 0.0)
                    queue.pending = connection.submit(request)
            except TrueupError as error:
                errors[log.place] = error
            if log.place in errors:
                failed[log] = Read(Columns(), queue.wanted, error=errors[log.place])
        return failed

    def _take(self) -> dict[LogId, Read]:
        """Decode the responses that arrived. Returns the queues that cannot be read."""
        failed, now = dict[LogId, Read](), time.monotonic()
        for log, queue in self._queues.items():
            connection = self._open.get(log.place)
            if queue.pending is None or connection is None:
                continue
            if not connection.arrived(queue.pending) and now < queue.pending.until:
                continue
            pending, queue.pending = queue.pending, None
            try:
                pulled = messages.pulled(connection.wait(pending), together=True)
                queue.put(pulled, self._decoder, self.binding(log))
            except TrueupError as error:
                failed[log] = Read(Columns(), queue.wanted, error=error)
        return failed

    def _given(self, log: LogId, most: int) -> Read:
        """Up to ``most`` of the messages of a queue that are here."""
        read, last = self._queues[log].given(most)
        if last is not None:
            self._last[log] = last
        return read

    def _connection(self, broker: str) -> RocketMqConnection:
        if broker in self._open and self._open[broker].lost:
            self._drop(broker)
        if broker not in self._open:
            self._open[broker] = self._client.connect(broker)
        return self._open[broker]

    def _drop(self, broker: str) -> None:
        """Close a connection; its pulls are given up."""
        if (connection := self._open.pop(broker, None)) is not None:
            connection.close()
        for log, queue in self._queues.items():
            if log.place == broker:
                queue.pending = None

    def close(self) -> None:
        """Close the connections."""
        for broker in [*self._open]:
            self._drop(broker)
        self._client.close()


def _called(lease: Lease) -> dict[bytes, bytes]:
    """The clusters as in a path, by the names that RocketMQ's replicator uses for them."""
    tokens = {name: token_of(name, bit) for name, bit in lease.bits.items()}
    for end in (lease.source, lease.target):
        if called := end.options.get(REPLICATOR):
            tokens[called] = token_of(end.name, end.bit)
    return {name.encode(): token.encode() for name, token in tokens.items()}


class _Last(NamedTuple):
    """The last message of a queue that was read."""

    offset: int
    stored_ms: int
    """The time at which the broker stored the message, in ms since 1970."""


class _Queue:
    """The messages of one queue between its broker and the pump.

    ``at``: the offset of the next pull. ``wanted``: the offset of the next message to give. ``idle``: whether the last
    pull reached the end of the queue. ``rows``: the messages that arrived and were not given yet; None if no response
    is left to give. The times at which these messages were stored, and the offsets of those with foreign tags
    (`records.columns.DecodedMessages`), are kept beside them.

    Offsets of a queue have no gaps. Those that are missing in a response have expired: a broker deletes a file of its
    commit log before it moves the start of the queues, and continues behind the file until then.

    The first pull of a connection repeats the last message that was read, if that message directly precedes ``wanted``.
    Another message is there if the topic was deleted and created again, or if the queue lost its end in a crash and
    grew again. A message that a broker moves keeps its time of storing.
    """

    def __init__(self, log: LogId, wanted: int) -> None:
        self.log, self.wanted, self.at, self.idle = log, wanted, wanted, False
        self._connection: RocketMqConnection | None = None
        self._check: _Last | None = None
        self.pending: PendingRequest | None = None
        self.rows: Columns | None = None
        self._stored, self._bounds = list[int](), Bounds(-1, -1)
        self._foreign: Sequence[int] = ()
        self._refused = ""

    def use(self, connection: RocketMqConnection, last: _Last | None) -> None:
        """Prepare a pull; nothing is here or in flight. ``last``: the last message that was given."""
        if connection is not self._connection:
            self._connection = connection
            self._check = last if last is not None and last.offset == self.wanted - 1 else None
            self.at = self.wanted if self._check is None else self.wanted - 1

    def put(self, pulled: messages.PullResult, decoder: Decoder, binding: Binding) -> None:
        """Take the response to a pull. Raises `Retry` if the queue starts or ends elsewhere."""
        check, start, self._bounds = self._check, pulled.start, Bounds(pulled.start, pulled.end)
        expired = check is not None and pulled.moved and check.offset < start <= self.wanted <= pulled.end
        if not expired and (pulled.moved or pulled.end < self.wanted):
            content = f"messages from {start} to {pulled.end}"
            raise Retry(f"offset {self.at} of {self.log}", content, "its start and end are read")
        stored = pulled.block or pulled.messages
        if stored is None:
            self._go(self.wanted if expired else min(pulled.next, pulled.end), pulled)
            self.rows, self._stored, self._refused, self._foreign = Columns(), [], "", ()
            return
        if pulled.messages is not None and any(sys & flags.INNER_BATCH for sys in pulled.messages.sys):
            content = "batches that are stored as one message"
            raise Stop(
                f"messages of their own in {self.log}", content, "set the topic's attribute queue.type to SimpleCQ"
            )
        again = check is not None and stored.offsets[0] == check.offset
        if check is not None and again and stored.stored[0] != check.stored_ms:
            raise Stop(
                f"message {check.offset} of {self.log} as it was read before",
                "another message there",
                "the topic was recreated or lost messages: exclude it from the link, or set another target topic",
            )
        self.rows, self._refused, self._foreign = decoder.columns(stored, binding, int(again))
        end = again + len(self.rows.offsets)
        self._stored = list(stored.stored[again:end])
        self._go(pulled.next if end == len(stored) else stored.offsets[end], pulled)

    def _go(self, following: int, pulled: messages.PullResult) -> None:
        """Continue at an offset. What it passes is not looked at any more: it was, or has expired."""
        self.at, self.idle = max(self.at, following), following >= pulled.end
        if self.at >= self.wanted:
            self._check = None

    def given(self, most: int) -> tuple[Read, _Last | None]:
        """Up to ``most`` messages, and the last of them. Either messages without a gap, or the gap before the next."""
        rows = self.rows or Columns()
        count = _without_gap(rows.offsets[:most], self.wanted)
        now, self.rows = rows.cut(0, count), rows.cut(count)
        refused = self._refused if count and not self.rows.offsets else ""
        following, lost = self.wanted + count, 0
        if not count:
            following = self.rows.offsets[0] if self.rows.offsets else max(self.wanted, self.at)
            lost = following - self.wanted
        if lost < 0:
            self.rows = None
            offsets = f"offset {following} after {self.wanted - 1}"
            return Read(now, self.wanted, error=Stop(f"{self.log} in order", offsets, "check its broker's log")), None
        self.wanted = following
        if not self.rows.offsets and self.wanted >= self.at:
            self.rows = None
        last = _Last(now.offsets[-1], self._stored[count - 1]) if count else None
        self._stored = self._stored[count:]
        foreign = bisect_left(self._foreign, self.wanted)
        self._foreign = self._foreign[foreign:]
        idle, place = self.idle and self.rows is None, last.stored_ms if last is not None else -1
        return Read(now, self.wanted, idle, None, lost, place, refused, self._bounds, foreign), last


def _without_gap(offsets: Sequence[int], first: int) -> int:
    """How many of these offsets follow one another from ``first`` on."""
    if offsets and offsets[0] == first and offsets[-1] - first == len(offsets) - 1:
        return len(offsets)
    return next((n for n, offset in enumerate(offsets) if offset != first + n), len(offsets))
