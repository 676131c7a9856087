"""Reader of Kafka for the generic pump: one fetch in flight per leader; batches are decoded when they are given.

Only committed records are given (read_committed, KIP-98).
"""

import time
from collections.abc import Iterable, Mapping, Sequence

from trueup.connectors.contract import Lease, LogId
from trueup.connectors.kafka.client.cluster import KafkaClient
from trueup.connectors.kafka.client.connection import BrokerConnection
from trueup.connectors.kafka.client.fetch_produce import (
    COMMITTED,
    FETCH,
    FETCH_VERSION,
    OFFSET_OUT_OF_RANGE,
    Fetched,
    FetchStart,
    UnknownTopic,
    fetch_body,
    fetched,
    problem,
)
from trueup.connectors.kafka.client.topic_ids import BY_ID, fetch_by_id, fetched_by_id, id_of
from trueup.connectors.kafka.replication.records.decode import Texts
from trueup.connectors.kafka.replication.records.pending import Damaged, PendingRecords
from trueup.connectors.kafka.replication.records.topic_identity import Identity
from trueup.connectors.kafka.replication.tags import Paths
from trueup.connectors.readiness import readable
from trueup.connectors.replication.ports import Columns, Read
from trueup.connectors.replication.tail import Bounds
from trueup.connectors.replication.track import places_of
from trueup.state.common.backoff import backoff
from trueup.state.common.errors import BadBytes, Retry, Stop, TrueupError

_WAIT_MS, _SOME_FULL_MS = 250, 2
"""How long a broker holds a request without new records; short while other logs wait to be asked for."""
_MOST_BYTES = 32 << 20
_SILENT_S, _PATIENCE_S = 15.0, 5.0
"""Seconds after which a request counts as lost, and after which a log that cannot be read is reported."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 1.0


class WireReader:
    """Implements `connectors.replication.ports.Reader` for the source of a lease."""

    lag_s = 0.0

    def __init__(self, lease: Lease) -> None:
        self._lease, self._client = lease, KafkaClient(lease.source)
        self._meant = {a.source.topic: id_of(a.source_id) for a in lease.assignments}
        self._identity, self._texts = Identity(self._client, self._meant), Paths(lease).text
        self._fetches: dict[int, _Fetch] = {}
        self._logs: dict[LogId, _Log] = {}
        self._epochs = places_of(lease.assignments)

    def cluster_id(self) -> str:
        """See `ClusterAdmin.cluster_id`."""
        return self._client.cluster_id()

    def bounds(self, logs: Iterable[LogId]) -> dict[LogId, Bounds | TrueupError]:
        """Start and end of partitions, whose leaders are read first. Raises as `KafkaClient.refresh`."""
        partitions = set(logs)
        self._client.refresh(log.topic for log in partitions)
        return self._client.bounds(partitions)

    def unsure(self, logs: Iterable[LogId]) -> dict[LogId, TrueupError]:
        """Partitions of recreated topics."""
        return self._identity.unsure(logs)

    def seek(self, places: Mapping[LogId, int]) -> None:
        """Read these partitions from these offsets. Responses in flight are ignored for those that move."""
        self._logs = {
            log: self._logs[log]
            if log in self._logs and self._logs[log].stands(at)
            else _Log(log, at, self._texts, self._epoch(log, at))
            for log, at in places.items()
        }

    def _epoch(self, log: LogId, at: int) -> int:
        """The leader epoch of the records before an offset, -1: unknown."""
        offset, epoch = self._epochs.get(log, (-1, -1))
        return epoch if offset == at else -1

    def poll(self, most: int, wait_s: float) -> dict[LogId, Read]:
        """The next records: those that arrived, or the first within this time."""
        until_s = time.monotonic() + wait_s
        while True:
            self._ask()
            self._receive()
            ready = [log for log in self._logs.values() if log.pending.ready or log.failed is not None]
            left_s = until_s - time.monotonic()
            if ready or left_s <= 0:
                break
            waiting = [fetch.connection for fetch in self._fetches.values() if fetch.asked]
            readable(waiting, min(left_s, self._pause_s()))
        share = max(1, most // max(1, len(ready)))
        reads = {log.id: self._given(log, share) for log in ready}
        self._ask()  # while these are written
        return reads

    def _given(self, log: "_Log", most: int) -> Read:
        if log.failed is not None:
            return Read(Columns(), -1, error=log.failed)
        try:
            read = log.pending.given(most)
        except BadBytes as error:
            return Read(Columns(), -1, error=Stop(f"records of {log.id}", str(error), "read it with another client"))
        self._epochs[log.id] = read.next, read.place
        return read

    def _ask(self) -> None:
        """Fetch from each leader without a request in flight."""
        now = time.monotonic()
        self._lead([log for log in self._logs.values() if log.node is None and log.not_before <= now])
        of_node: dict[int, list[_Log]] = {}
        for log in self._logs.values():
            if log.node is not None:
                of_node.setdefault(log.node, []).append(log)
        for node, led in of_node.items():
            fetch = self._fetches.get(node)
            if fetch is not None and fetch.asked:
                if fetch.asked_s < now - _SILENT_S:
                    self._lose(node, Retry("a response from the broker", "none", "check the broker and the network"))
                continue
            if wanting := [log for log in led if log.pending.empty]:
                self._send(node, wanting, len(wanting) < len(led))

    def _send(self, node: int, logs: Sequence["_Log"], some_full: bool) -> None:
        per_log = self._lease.limits.fetch_bytes
        whole = max(per_log, min(_MOST_BYTES, per_log * len(logs)))
        try:
            if node not in self._fetches:
                self._fetches[node] = _Fetch(self._client.take(node))
            self._fetches[node].send(logs, (per_log, whole, _SOME_FULL_MS if some_full else _WAIT_MS, COMMITTED))
        except TrueupError as error:
            self._lose(node, error, logs)

    def _receive(self) -> None:
        """Read the responses that arrived."""
        asked = {node: fetch for node, fetch in self._fetches.items() if fetch.asked}
        ready = readable([fetch.connection for fetch in asked.values()], 0.0) if asked else []
        for node, fetch in asked.items():
            if fetch.connection not in ready and not fetch.connection.buffered:
                continue
            try:
                answers = fetch.answers()
            except TrueupError as error:
                self._lose(node, error)
                continue
            logs, fetch.asked = fetch.asked, []
            for log, at in logs:
                if self._logs.get(log.id) is log and log.id in answers:
                    self._take(log, at, answers[log.id], fetch.by_id)

    def _take(self, log: "_Log", at: int, answer: Fetched, by_id: bool) -> None:
        try:
            if answer.error:
                self._identity.doubted(log.id)
                raise problem(answer.error, f"read {log.id} of {self._lease.source.name}")
            if by_id:
                self._identity.proved(log.id)
            log.pending.take(answer, at)
            log.well()
        except TrueupError as error:
            if answer.error == OFFSET_OUT_OF_RANGE:  # also that of a leader without this epoch
                self._epochs.pop(log.id, None)
            log.fail(error, answer.error == OFFSET_OUT_OF_RANGE)

    def _lead(self, logs: Sequence["_Log"]) -> None:
        """Find the leaders of partitions."""
        if not logs:
            return
        try:
            self._client.refresh(log.id.topic for log in logs)
        except TrueupError as error:
            for log in logs:
                log.fail(error)
            return
        for log in logs:
            try:
                topic = log.id.topic
                log.topic_id = self._meant[topic] = self._client.identify(topic, self._meant.get(topic, b""))
                log.node = self._client.leader(log.id)
            except TrueupError as error:
                log.fail(error)

    def _lose(self, node: int, error: TrueupError, logs: Sequence["_Log"] = ()) -> None:
        """Close a connection. Its partitions are asked for again."""
        if (fetch := self._fetches.pop(node, None)) is not None:
            logs = [*logs, *(log for log, _ in fetch.asked)]
            fetch.connection.close()
        self._client.lost(node)
        for log in logs:
            log.fail(error)

    def _pause_s(self) -> float:
        """Seconds until leaders are looked for again."""
        now = time.monotonic()
        return max(0.0, min((log.not_before - now for log in self._logs.values() if log.node is None), default=1.0))

    def close(self) -> None:
        """Close the connections."""
        for fetch in self._fetches.values():
            fetch.connection.close()
        self._fetches.clear()
        self._client.close()


class _Log:
    """A partition that is read. ``node``: its leader, None until it is found. ``failed``: the error to report."""

    def __init__(self, log: LogId, at: int, texts: Texts, epoch: int) -> None:
        self.id, self.topic_id, self.pending = log, b"", PendingRecords(log, at, texts, epoch)
        self.node: int | None = None
        self.failed: TrueupError | None = None
        self.failures, self.not_before, self._since_s = 0, 0.0, 0.0

    def fail(self, error: TrueupError, at_once: bool = False) -> None:
        """Look for the leader again after a pause, and report what does not pass."""
        now = time.monotonic()
        self._since_s = self._since_s or now
        self.node, self.not_before = None, now + backoff(_FIRST_PAUSE_S, self.failures, _LONGEST_PAUSE_S)
        self.failures += 1
        if at_once or not isinstance(error, Retry) or now - self._since_s > _PATIENCE_S:
            lasting = isinstance(error, (UnknownTopic, Damaged))
            self.failed = Stop(error.expected, error.found, error.todo) if lasting else error

    def stands(self, at: int) -> bool:
        """Whether the next record that it gives is the one at this offset."""
        return self.failed is None and self.pending.wanted == at

    def well(self) -> None:
        """Records arrived."""
        self.failures, self._since_s = 0, 0.0


class _Fetch:
    """The connection to one leader. ``asked``: partitions of the request in flight, each with its offset."""

    def __init__(self, connection: BrokerConnection) -> None:
        self.connection, self.asked, self.asked_s = connection, list[tuple[_Log, int]](), 0.0
        self._names: dict[bytes, str] = {}
        self._turn = 0

    def send(self, logs: Sequence[_Log], sizes: tuple[int, int, int, int]) -> None:
        """Ask for the next records, with topic ids if the broker supports them."""
        self._turn += 1
        first = self._turn % len(logs)  # a broker fills its response in the order of the request
        logs = [*logs[first:], *logs[:first]]
        by_id = all(log.topic_id for log in logs) and self.connection.takes(FETCH, BY_ID)
        self._names = {log.topic_id: log.id.topic for log in logs} if by_id else {}
        places: dict[bytes | str, list[FetchStart]] = {}
        for log in logs:
            place = FetchStart(log.id.number, log.pending.at, log.pending.epoch)
            places.setdefault(log.topic_id if by_id else log.id.topic, []).append(place)
        if by_id:
            self.connection.send(FETCH, BY_ID, fetch_by_id(places, *sizes))  # type: ignore[arg-type]
        else:
            self.connection.send(FETCH, FETCH_VERSION, fetch_body(places, *sizes))  # type: ignore[arg-type]
        self.asked, self.asked_s = [(log, log.pending.at) for log in logs], time.monotonic()

    @property
    def by_id(self) -> bool:
        """Whether the last request had topic ids."""
        return bool(self._names)

    def answers(self) -> Mapping[LogId, Fetched]:
        """Read the response."""
        body = self.connection.receive()
        return fetched_by_id(body, self._names) if self._names else fetched(body)
