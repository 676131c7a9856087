"""Fetches from the leaders of the source: one request per broker in flight, answered as soon as there is a record,
while earlier records are written."""

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from selectors import EVENT_READ, BaseSelector

from trueup.connectors.contract import LogId
from trueup.connectors.kafka.client.cluster import KafkaClient
from trueup.connectors.kafka.client.connection import BrokerConnection
from trueup.connectors.kafka.client.fetch_produce import (
    COMMITTED,
    FETCH,
    FETCH_VERSION,
    UNKNOWN_ID,
    Fetched,
    FetchStart,
    fetch_body,
    fetched,
)
from trueup.connectors.kafka.client.topic_ids import (
    BY_ID,
    IDS,
    METADATA,
    fetch_by_id,
    fetched_by_id,
    ids_body,
    ids_found,
)
from trueup.connectors.kafka.replication.batches.partition import Track
from trueup.state.common.errors import TrueupError

_WAIT_MS, _SOME_FULL_MS = 250, 2
"""How long a broker holds a request without new records; short while other partitions wait for room."""
_MOST_BYTES = 32 << 20
Failed = Callable[[Track, TrueupError], None]
_ANOTHER = Fetched(UNKNOWN_ID, -1, -1, (), memoryview(b""))
"""The response of a broker that has another topic of this name."""


class BrokerReader:
    """The connection to one broker."""

    def __init__(self, connection: BrokerConnection) -> None:
        self.connection = connection
        self.asked: dict[LogId, tuple[Track, int]] = {}
        self.names: dict[bytes, str] = {}
        self.by_id = False
        self.rotation = 0
        self.asked_s = 0.0

    def ask(self, tracks: Iterable[Track], sizes: tuple[int, int, int, int]) -> None:
        """Request the next records, with topic ids if the broker supports them. Otherwise it returns the ids after the
        records: a broker that still has the topic then returned no records of another one."""
        by_id: dict[bytes, list[FetchStart]] = {}
        by_name: dict[str, list[FetchStart]] = {}
        names: dict[bytes, str] = {}
        for track in tracks:
            place = FetchStart(track.source.number, track.reached, track.epoch)
            by_name.setdefault(track.source.topic, []).append(place)
            by_id.setdefault(track.source_id, []).append(place)
            names[track.source_id] = track.source.topic
        self.names, self.by_id = names, self.connection.takes(FETCH, BY_ID)
        if self.by_id:
            self.connection.send(FETCH, BY_ID, fetch_by_id(by_id, *sizes))
        else:
            self.connection.send(FETCH, FETCH_VERSION, fetch_body(by_name, *sizes))
            self.connection.send(METADATA, IDS, ids_body(by_name))

    def answers(self) -> dict[LogId, Fetched]:
        """Read the broker's response. Records of a topic with another id are replaced by the error for it."""
        body = self.connection.receive()
        if self.by_id:
            return fetched_by_id(body, self.names)
        answers, after = fetched(body), self.connection.receive()
        if not any(answer.error or answer.records for answer in answers.values()):
            return answers
        meant, ids = {name: topic_id for topic_id, name in self.names.items()}, ids_found(after)
        return {
            log: answer if ids.get(log.topic) == meant.get(log.topic) else _ANOTHER for log, answer in answers.items()
        }


class Fetcher:
    """All readers of a copier. ``failed`` is called for every partition of a broken connection."""

    def __init__(self, source: KafkaClient, selector: BaseSelector, fetch_bytes: int, failed: Failed) -> None:
        self._source, self._selector, self._failed = source, selector, failed
        self._each = fetch_bytes
        self._readers: dict[int, BrokerReader] = {}

    def ask(self, tracks: Iterable[tuple[int, Track]]) -> None:
        """Fetch for partitions with room: (leader, partition) of all that are copied."""
        of_node: dict[int, list[Track]] = {}
        for node, track in tracks:
            of_node.setdefault(node, []).append(track)
        for node, led in of_node.items():
            reader = self._readers.get(node)
            if reader is None or not reader.asked:
                wanting = [track for track in led if track.queued < 2 * self._each]
                if wanting:
                    self._guarded(node, wanting, partial(self._send, node, wanting, len(wanting) < len(led)))

    def receive(self, node: int) -> Iterator[tuple[Track, int, Fetched]]:
        """Read a response: each partition with the requested offset."""
        reader = self._readers[node]
        asked, reader.asked = reader.asked, {}
        answers: dict[LogId, Fetched] = {}
        self._guarded(node, [track for track, _ in asked.values()], lambda: answers.update(reader.answers()))
        for partition, answer in answers.items():
            if partition in asked:
                track, offset = asked[partition]
                yield track, offset, answer

    def give_up(self, error: TrueupError, since_s: float) -> None:
        """Close connections with a response outstanding since ``since_s``."""
        for node, reader in list(self._readers.items()):
            if reader.asked and reader.asked_s <= since_s:
                self._drop(node)
                for track, _ in reader.asked.values():
                    self._failed(track, error)

    def close(self) -> None:
        """Close all connections."""
        for node in list(self._readers):
            self._drop(node)

    def _send(self, node: int, tracks: list[Track], some_full: bool) -> None:
        if node not in self._readers:
            self._readers[node] = BrokerReader(self._source.take(node))
            self._selector.register(self._readers[node].connection, EVENT_READ, (self, node))
        reader = self._readers[node]
        reader.rotation, reader.asked_s = reader.rotation + 1, time.monotonic()
        first = reader.rotation % len(tracks)  # a broker fills its response in the order of the request
        reader.asked = {track.source: (track, track.reached) for track in tracks}
        wait = _SOME_FULL_MS if some_full else _WAIT_MS
        whole = max(self._each, min(_MOST_BYTES, self._each * len(tracks)))
        reader.ask((*tracks[first:], *tracks[:first]), (self._each, whole, wait, COMMITTED))

    def _guarded(self, node: int, tracks: Iterable[Track], action: Callable[[], object]) -> None:
        try:
            action()
        except TrueupError as error:
            self._drop(node)
            for track in tracks:
                self._failed(track, error)

    def _drop(self, node: int) -> None:
        reader = self._readers.pop(node, None)
        if reader:
            self._selector.unregister(reader.connection)
            reader.connection.close()
        self._source.lost(node)
