"""Writer of Kafka for the generic pump: an idempotent producer with one batch in flight per partition.

A batch is sent after the one before it is acknowledged by all replicas in sync, so that nothing is written behind a
refused or lost one: a leader that has forgotten the producer, for example because its records are old, accepts any
sequence number (``ProducerAppendInfo.checkSequence``). A batch that is refused because of its size or of a record is
divided until the refused record is alone. After a lost or unexpected response the producer continues with its next
epoch, as Java's clients do (KIP-360). The pump reads the target before it writes again; a request of the former epoch
that is still on its way is refused once a partition has a batch of the next one. The id of a producer says which
clusters its records passed (`producers`).
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import KafkaError

from trueup.connectors.contract import Lease, LogId
from trueup.connectors.kafka.client.cluster import KafkaClient
from trueup.connectors.kafka.client.connection import BrokerConnection
from trueup.connectors.kafka.client.fetch_produce import (
    PRODUCE,
    PRODUCE_VERSION,
    Produced,
    UnknownTopic,
    problem,
    produce_body,
    produced,
)
from trueup.connectors.kafka.client.topic_ids import BY_ID, id_of, produce_by_id, produced_by_id
from trueup.connectors.kafka.protocol.compression import LZ4, NAMES
from trueup.connectors.kafka.replication.records.encode import BATCH_BYTES, EncodedBatch, Stretches, stretches_of
from trueup.connectors.kafka.replication.records.errors import MISSING, OF_RECORDS, OF_TOPIC, TOO_LARGE
from trueup.connectors.kafka.replication.records.producers import Producers
from trueup.connectors.kafka.replication.records.target import KafkaTarget
from trueup.connectors.kafka.replication.tags import Paths
from trueup.connectors.readiness import readable
from trueup.connectors.replication.ports import Columns, Written, following
from trueup.state.common.errors import Retry, Stop, TrueupError

_REPLICATED_MS, _ANSWER_S = 4_000, 5.0
_KNOWN_S = 5.0
"""Seconds for which brokers that have just started, or since its creation, may not know a topic."""
_NOT_WRITTEN = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.NOT_ENOUGH_REPLICAS,
    }
)
"""Errors of a batch that its broker did not append: it is sent again."""
_PARTS = 4
"""A refused batch is divided into this number of batches."""
_PATIENCE_S, _AGAIN_S = 1.0, 0.1
"""Seconds for which such batches are sent again in one write, and between two attempts."""
_TODO = "their presence at the target is checked"
_COMPRESSION = ("compression.type", "compression.codec")


class WireWriter(KafkaTarget):
    """Implements `connectors.replication.ports.Writer` for the target of a lease."""

    def __init__(self, lease: Lease) -> None:
        super().__init__(lease)
        self._client = KafkaClient(lease.target)
        self._meant = {a.target.topic: id_of(a.target_id) for a in lease.assignments}
        self._codec = _codec(lease.target.options)
        self._open: dict[int, BrokerConnection] = {}
        self._producers, self._paths = Producers(lease.writer_id), Paths(lease)
        self._found = set[str]()
        self._unlearned = dict[LogId, TrueupError]()
        self._unknown_s = dict[LogId, float]()
        self._sizes = dict[LogId, int]()

    def cluster_id(self) -> str:
        """See `ClusterAdmin.cluster_id`."""
        return self._client.cluster_id()

    def logs_of(self, topic: str) -> list[LogId]:
        """Partitions of a topic."""
        self._client.refresh([topic])
        return self._client.logs(topic)

    def write(self, batches: Mapping[LogId, Columns]) -> dict[LogId, Written]:
        """Send to several partitions, and wait for the results."""
        prepared = self.prepare(batches)
        prepared.send()
        return prepared.written()

    def prepare(self, batches: Mapping[LogId, Columns]) -> "_KafkaWrite":
        """A write to several partitions: to each one batch after another. One that fails gets no more."""
        return _KafkaWrite(
            self,
            {
                log: _PartitionSend(
                    log, stretches_of(columns, self._path), self._codec, self._sizes.get(log, BATCH_BYTES)
                )
                for log, columns in batches.items()
            },
        )

    def _path(self, text: bytes | None) -> int:
        """The bits for a header; without one, those of a record that was produced at the source."""
        return self._paths.path(text) if text else self._paths.default

    def again(self) -> None:
        """Look for leaders again."""
        self._found.clear()

    def fits(self, log: LogId, size: int) -> None:
        """A partition accepts batches of at most about this number of bytes."""
        self._sizes[log] = size

    def failed(self) -> None:
        """The fate of some batches is unknown."""
        self._producers.forget()
        self._found.clear()

    def _ready(self, logs: Iterable[LogId]) -> bool:
        """Find leaders and the producers that they know. Returns whether all were known, which means that no time has
        passed."""
        logs = list(logs)
        topics = {log.topic for log in logs}
        known = topics <= self._found
        if not known:
            self._client.refresh(topics | self._found)
            self._found |= topics
        if not (unknown := self._producers.unknown(logs)):
            return known
        epochs = self._client.epochs(unknown)
        self._unlearned = {log: error for log, error in epochs.items() if isinstance(error, TrueupError)}
        self._producers.learn({log: latest for log, latest in epochs.items() if not isinstance(latest, TrueupError)})
        return False

    def _prepared(self, sendings: Mapping[LogId, "_PartitionSend"]) -> list["_PartitionSend"]:
        """Those whose topics are the intended ones."""
        unsure: Mapping[LogId, TrueupError] = {}
        try:
            if not self._ready(sendings):
                unsure = self._identity.unsure(sendings)
        except TrueupError as error:
            unsure = dict.fromkeys(sendings, error)
        for log, wrong in unsure.items():
            if sendings[log].waits is None or not isinstance(wrong, Retry):
                sendings[log].fail(wrong)
        return [sending for log, sending in sendings.items() if log not in unsure]

    def start(self, sendings: Iterable["_PartitionSend"]) -> "_InFlight":
        """Send a batch to each of some partitions."""
        of_node: dict[int, dict[LogId, _PartitionSend]] = {}
        for sending in self._prepared({send.log: send for send in sendings}):
            try:
                self._meant[sending.log.topic] = self._client.identify(
                    sending.log.topic, self._meant.get(sending.log.topic, b"")
                )
                leader = self._client.leader(sending.log)
                if sending.log in self._unlearned:
                    raise self._unlearned[sending.log]
                of_node.setdefault(leader, {})[sending.log] = sending
            except UnknownTopic as error:
                if self._may_be_new(sending.log):
                    sending.waits = error
                else:
                    sending.fail(Stop(error.expected, error.found, error.todo))
            except Retry as error:
                sending.waits = error
            except TrueupError as error:
                sending.fail(error)
        asked = [_LeaderRequest(node, self._send(node, sent), sent) for node, sent in of_node.items()]
        return _InFlight(asked, time.monotonic() + _ANSWER_S)

    def finish(self, begun: "_InFlight") -> None:
        """Wait for the responses."""
        for node, names, sent in begun.asked:
            if names is None:
                continue
            try:
                answers = self._answers(node, names, begun.until_s)
            except TrueupError as error:
                self._lose(node, sent, error)
                continue
            for log, sending in sent.items():
                self._answered(sending, answers.get(log), bool(names))

    def _send(self, node: int, sent: Mapping[LogId, "_PartitionSend"]) -> dict[bytes, str] | None:
        """Send one request, with topic ids if the broker supports them. Returns their names (empty: it does not); None
        if it could not be sent."""
        ids = {log.topic: self._meant[log.topic] for log in sent}
        try:
            connection = self._connection(node)
            batches = {log: sending.bytes(self._producers) for log, sending in sent.items()}
            if all(ids.values()) and connection.takes(PRODUCE, BY_ID):
                connection.send(PRODUCE, BY_ID, *produce_by_id(batches, ids, _REPLICATED_MS))
                return {topic_id: topic for topic, topic_id in ids.items()}
            connection.send(PRODUCE, PRODUCE_VERSION, *produce_body(batches, _REPLICATED_MS))
        except TrueupError as error:
            self._lose(node, sent, error)
            return None
        return {}

    def _connection(self, node: int) -> BrokerConnection:
        """The connection to a leader, without outstanding responses. One that its broker closed is replaced."""
        kept = self._open.get(node)
        if kept is not None and readable([kept], 0.0):
            self._open.pop(node).close()
        if node not in self._open:
            self._open[node] = self._client.take(node)
        return self._open[node]

    def _answers(self, node: int, names: Mapping[bytes, str], until_s: float) -> dict[LogId, Produced]:
        connection = self._open[node]
        if not connection.buffered and not readable([connection], max(0.0, until_s - time.monotonic())):
            raise Retry("acknowledged records", "the target did not respond in time", _TODO)
        body = connection.receive()
        return produced_by_id(body, names) if names else produced(body)

    def _answered(self, sending: "_PartitionSend", answer: Produced | None, by_id: bool) -> None:
        if answer is None or answer.error or not by_id:
            self._identity.doubted(sending.log)
        else:
            self._identity.proved(sending.log)
        if answer is None:
            sending.fail(Retry("a response for every batch", "a missing one", _TODO))
        elif not answer.error:
            self._unknown_s.pop(sending.log, None)
            sending.stored(answer.offset, self._producers)
        elif answer.error in OF_RECORDS:
            sending.refuse(answer.error)
        elif answer.error in OF_TOPIC and not (answer.error in MISSING and self._may_be_new(sending.log)):
            refused = problem(answer.error, f"write to {sending.log} of {self._client.endpoint.name}")
            sending.fail(Stop(refused.expected, refused.found, refused.todo))
        else:
            error = Retry("acknowledged records", KafkaError(answer.error).str(), _TODO)
            if answer.error in _NOT_WRITTEN:
                sending.waits = error
            else:
                sending.fail(error)

    def _may_be_new(self, log: LogId) -> bool:
        """Whether a broker that does not know the partition may know it soon."""
        now = time.monotonic()
        return now - self._unknown_s.setdefault(log, now) < _KNOWN_S

    def _lose(self, node: int, sent: Mapping[LogId, "_PartitionSend"], error: TrueupError) -> None:
        """Close a connection. What was sent may be written."""
        if (connection := self._open.pop(node, None)) is not None:
            connection.close()
        self._client.lost(node)
        for sending in sent.values():
            sending.fail(error)

    def close(self) -> None:
        """Close the connections."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()
        self._client.close()
        super().close()


class _LeaderRequest(NamedTuple):
    """The batches that were sent to one leader."""

    node: int
    names: Mapping[bytes, str] | None
    """The names of the topics by id. Empty: the request has no topic ids. None: the request could not be sent."""
    sent: Mapping[LogId, "_PartitionSend"]


class _InFlight(NamedTuple):
    """Batches that are in flight, at most one for each partition."""

    asked: Sequence[_LeaderRequest]
    until_s: float
    """The time by ``time.monotonic`` until which responses are awaited."""


class _KafkaWrite:
    """Implements `connectors.replication.ports.Write`."""

    def __init__(self, writer: WireWriter, sendings: Mapping[LogId, "_PartitionSend"]) -> None:
        self._writer, self._sendings = writer, sendings
        self._left = [sending for sending in sendings.values() if sending.next(patient=True)]
        self._round = _InFlight((), 0.0)
        self._patient_s = 0.0

    def send(self) -> None:
        """Send the first batch for each partition."""
        self._patient_s = time.monotonic() + _PATIENCE_S
        self._round = self._start(self._left)

    def written(self) -> dict[LogId, Written]:
        """Wait for the responses, and send the other batches."""
        sendings = self._sendings.values()
        self._writer.finish(self._round)
        while left := [sending for sending in sendings if sending.next(time.monotonic() < self._patient_s)]:
            if any(sending.waits is not None for sending in left):
                time.sleep(_AGAIN_S)
                self._writer.again()
            self._writer.finish(self._start(left))
        if any(sending.error is not None for sending in sendings):
            self._writer.failed()
        for log, finished in self._sendings.items():
            if finished.fitting:
                self._writer.fits(log, finished.fitting)
        return {log: sending.written() for log, sending in self._sendings.items()}

    def _start(self, sendings: Sequence["_PartitionSend"]) -> _InFlight:
        """Send a batch to each partition, and make the ones after them."""
        begun = self._writer.start(sendings)
        for sending in sendings:
            sending.look_ahead()
        return begun


class _PartitionSend:
    """The batches for one partition in a write, and their outcome. ``waits``: why the batch that was taken could not be
    sent, or was not appended; then it is sent again."""

    def __init__(self, log: LogId, records: Stretches, codec: int, size: int) -> None:
        self.log, self._records, self._codec, self._size = log, records, codec, size
        self._batches: Iterator[EncodedBatch] = records.batches(codec, size)
        self._too_large = self._alone = False
        self._batch: EncodedBatch | None = None
        self._ahead: EncodedBatch | None = None
        self._offsets: Sequence[int] = ()
        self.refused = ""
        self.error: TrueupError | None = None
        self.waits: TrueupError | None = None

    def next(self, patient: bool) -> bool:
        """Take the next batch, or the same one if it ``waits``. Returns whether there is one to send. A batch that
        waits fails if not ``patient``."""
        if self.waits is not None and not patient:
            self.fail(self.waits)
        if self.refused or self.error is not None:
            return False
        if self.waits is None:
            self.look_ahead()
            self._batch, self._ahead = self._ahead, None
        return self._batch is not None

    def look_ahead(self) -> None:
        """Make the next batch, while the one that was taken is in flight."""
        if self._ahead is None:
            self._ahead = next(self._batches, None)

    def bytes(self, producers: Producers) -> memoryview:
        """The batch that was taken."""
        assert self._batch is not None, "asked only after `next`"
        return self._batch.sent_by(producers.sender(self.log, self._batch.path))

    def stored(self, offset: int, producers: Producers) -> None:
        """The batch is at the target, from this offset on."""
        assert self._batch is not None, "asked only after `next`"
        self.waits = None
        producers.wrote(self.log, self._batch.path, self._batch.records)
        self._offsets = following(self._offsets, offset, self._batch.records)

    def refuse(self, error: int) -> None:
        """The batch that was taken is refused. It is divided until the refused record is alone."""
        assert self._batch is not None, "asked only after `next`"
        self.waits = None
        self._alone = self._batch.records == 1
        if self._alone:
            self.refused = KafkaError(error).str()
            return
        self._too_large |= error in TOO_LARGE
        self._size = max(1, min(self._size, self._batch.size) // _PARTS)
        self._batches = self._records.behind(len(self._offsets)).batches(self._codec, self._size)
        self._ahead = None

    @property
    def fitting(self) -> int:
        """The size of batches in bytes that the partition accepted after it had refused larger ones, not because of a
        record; 0: it refused none."""
        return self._size if self._too_large and not self.refused and self.error is None else 0

    def fail(self, error: TrueupError) -> None:
        """The fate of the batch that was taken, and of those after it, is not known."""
        lasting = isinstance(error, Stop) or not isinstance(error, Retry)
        self.error = error if lasting else Retry(error.expected, error.found, _TODO)

    def written(self) -> Written:
        """The outcome."""
        return Written(self._offsets, self.refused, self.error, self._alone)


def _codec(options: Mapping[str, str]) -> int:
    codec = next((options[name] for name in _COMPRESSION if name in options), NAMES[LZ4])
    return NAMES.index(codec) if codec in NAMES else LZ4
