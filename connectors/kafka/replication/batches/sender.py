"""Writes to the leaders of the target: a request contains one batch per partition; several requests are in flight.

Responses arrive in the order of requests, so the batches of a partition are written in order. A broker remembers the
last five batches of a producer: it recognizes a repeated one of these; an older one is out of order, and the
position of the partition is read again.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from selectors import EVENT_READ, BaseSelector

from trueup.connectors.contract import LogId
from trueup.connectors.kafka.client.cluster import KafkaClient
from trueup.connectors.kafka.client.connection import BrokerConnection
from trueup.connectors.kafka.client.fetch_produce import (
    PRODUCE,
    PRODUCE_VERSION,
    UNKNOWN_ID,
    Produced,
    problem,
    produce_body,
    produced,
)
from trueup.connectors.kafka.client.topic_ids import (
    BY_ID,
    IDS,
    METADATA,
    SURE_S,
    ids_body,
    ids_found,
    produce_by_id,
    produced_by_id,
)
from trueup.connectors.kafka.replication.batches.partition import SentBatch, Track
from trueup.state.common.errors import Retry, TrueupError

MOST_IN_FLIGHT = 64
_REPLICATED_MS = 10_000
Sent = dict[LogId, tuple[Track, SentBatch]]
Answered = Callable[[Track, SentBatch, Produced], None]
Failed = Callable[[Track, TrueupError], None]
_UNSEEN = b"", -math.inf
_NO_ANSWER = Retry("a response for every batch", "a missing one", "the batches are retried")


class BrokerWriter:
    """The connection to one broker. Topics are written by id if it supports that. Otherwise their ids are read before a
    write, unless they were within `SURE_S`, and after each write. A topic that is deleted and recreated between can get
    the write, which is then an error with the offset there."""

    def __init__(self, connection: BrokerConnection) -> None:
        self.connection = connection
        self.by_id = connection.takes(PRODUCE, BY_ID)
        self.flying: deque[Sent] = deque()
        self.answered_s = 0.0
        self._seen: dict[str, tuple[bytes, float]] = {}

    def unsure(self, tracks: Iterable[Track]) -> set[str]:
        """The topics whose ids must be read before a write."""
        since_s = time.monotonic() - SURE_S
        return (
            set()
            if self.by_id
            else {
                name for name in (track.target.topic for track in tracks) if self._seen.get(name, _UNSEEN)[1] < since_s
            }
        )

    def learn(self, ids: Mapping[str, bytes]) -> None:
        """The broker has topics with these ids now."""
        now = time.monotonic()
        self._seen |= {name: (topic_id, now) for name, topic_id in ids.items()}

    def has(self, track: Track) -> bool:
        """Whether the broker has the target of a track, as far as this is known before a write."""
        return self.by_id or self._seen.get(track.target.topic, _UNSEEN)[0] == track.target_id

    def write(self, sent: Sent) -> None:
        """Send a batch for each partition."""
        batches = {partition: entry.batch for partition, (_, entry) in sent.items()}
        self.flying.append(sent)
        if self.by_id:
            self.connection.send(PRODUCE, BY_ID, *produce_by_id(batches, _ids(sent), _REPLICATED_MS))
        else:
            self.connection.send(PRODUCE, PRODUCE_VERSION, *produce_body(batches, _REPLICATED_MS))
            self.connection.send(METADATA, IDS, ids_body(_ids(sent)))

    def answers(self) -> tuple[Sent, dict[LogId, Produced]]:
        """Read the response to the oldest request."""
        body, sent = self.connection.receive(), self.flying[0]
        if self.by_id:
            answers = produced_by_id(body, {topic_id: topic for topic, topic_id in _ids(sent).items()})
        else:
            answers = produced(body)
            self.learn(dict.fromkeys(_ids(sent), b"") | ids_found(self.connection.receive()))
            wrong = [log for log, (track, _) in sent.items() if log in answers and not self.has(track)]
            answers |= {log: answers[log]._replace(error=UNKNOWN_ID) for log in wrong}
        return self.flying.popleft(), answers


def _ids(sent: Sent) -> dict[str, bytes]:
    return {track.target.topic: track.target_id for track, _ in sent.values()}


class Sender:
    """All writers of a copier. ``answered`` is called for every response to a batch, ``failed`` for the batches of a
    broken connection, which may or may not be written."""

    def __init__(
        self, target: KafkaClient, selector: BaseSelector, in_flight: int, answered: Answered, failed: Failed
    ) -> None:
        self._target, self._selector = target, selector
        self._answered, self._failed = answered, failed
        self._most = max(1, min(MOST_IN_FLIGHT, in_flight))
        self._writers: dict[int, BrokerWriter] = {}

    @property
    def flying(self) -> bool:
        """Whether responses are outstanding."""
        return any(writer.flying for writer in self._writers.values())

    def room(self, node: int) -> bool:
        """Whether another request can be sent to this broker."""
        return node not in self._writers or len(self._writers[node].flying) < self._most

    def send(self, node: int, tracks: Sequence[Track]) -> tuple[int, int]:
        """Send the next batch of each partition in one request. Returns records and bytes."""
        sent: Sent = {track.target: (track, track.next()) for track in self._sure(node, tracks)}
        if not sent:
            return 0, 0
        writer = self._writers[node]
        try:
            if not writer.flying:
                writer.answered_s = time.monotonic()
            writer.write(sent)
        except TrueupError as error:
            self._drop(node, error)
        entries = [entry for _, entry in sent.values()]
        return sum(entry.records for entry in entries), sum(entry.size for entry in entries)

    def _sure(self, node: int, tracks: Sequence[Track]) -> list[Track]:
        """Those whose topics the broker has. The others fail."""
        try:
            writer = self._writers.get(node) or self._open(node)
            if unsure := writer.unsure(tracks):
                writer.learn(dict.fromkeys(unsure, b"") | self._target.ids(node, unsure))
        except TrueupError as error:
            self._drop(node, error)
            for track in tracks:
                self._failed(track, error)
            return []
        for track in tracks:
            if not writer.has(track):
                self._failed(track, problem(UNKNOWN_ID, f"write to {track.target} of {self._target.endpoint.name}"))
        return [track for track in tracks if writer.has(track)]

    def receive(self, node: int) -> None:
        """Read the available responses."""
        writer = self._writers[node]
        while True:
            try:
                sent, answers = writer.answers()
            except TrueupError as error:
                self._drop(node, error)
                return
            for partition, (track, entry) in sent.items():
                track.flying -= 1
                if partition in answers:
                    self._answered(track, entry, answers[partition])
                else:
                    self._failed(track, _NO_ANSWER)
            if not (writer.flying and writer.connection.buffered):
                writer.answered_s = time.monotonic()
                return

    def give_up(self, error: TrueupError, since_s: float) -> None:
        """Close connections with outstanding responses and none received since ``since_s``."""
        for node in [node for node, writer in self._writers.items() if writer.flying and writer.answered_s <= since_s]:
            self._drop(node, error)

    def rest(self) -> None:
        """Return the connections; nothing is in flight."""
        for node, writer in self._writers.items():
            self._selector.unregister(writer.connection)
            self._target.give(node, writer.connection)
        self._writers.clear()

    def close(self) -> None:
        """Close all connections."""
        for node in list(self._writers):
            self._drop(node, _NO_ANSWER)

    def _open(self, node: int) -> BrokerWriter:
        writer = BrokerWriter(self._target.take(node))
        self._writers[node] = writer
        self._selector.register(writer.connection, EVENT_READ, (self, node))
        return writer

    def _drop(self, node: int, error: TrueupError) -> None:
        writer = self._writers.pop(node, None)
        if writer:
            self._selector.unregister(writer.connection)
            writer.connection.close()
            for sent in writer.flying:
                self._fail(sent, error)
        self._target.lost(node)

    def _fail(self, sent: Sent, error: TrueupError) -> None:
        for track, _ in sent.values():
            track.flying -= 1
            self._failed(track, error)
