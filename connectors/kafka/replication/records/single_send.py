"""Sends records one at a time, waiting for each result, to find and handle a refused record."""

import time

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from trueup.connectors.contract import Lease
from trueup.connectors.kafka.replication.records.clients import BATCH_BYTES, REFUSED, dropped, producer, served
from trueup.connectors.kafka.replication.records.letters import KafkaLetters
from trueup.connectors.kafka.replication.records.partitions import Chunk, PartitionTrack
from trueup.connectors.kafka.replication.records.rewrite import Broken, Rewriter, Row, record_of
from trueup.connectors.kafka.replication.records.topic_identity import Identity
from trueup.connectors.replication.failures import failure_of, policy_of


class SingleSender:
    """The one-by-one writer of a lease, with its policy for refused records."""

    def __init__(self, lease: Lease, rewriter: Rewriter, target: Identity) -> None:
        self._lease, self._rewriter, self._policy = lease, rewriter, policy_of(lease, KafkaLetters(lease))
        self._producer: Producer | None = None
        self._target = target
        self.refused = 0

    def send(self, track: PartitionTrack, message: Message, deadline_s: float) -> None:
        """Write one record, or handle its refusal; an error that stops the partition is recorded in its track.

        Without a result until ``deadline_s`` (monotonic) the partition's position is unknown.
        """
        after, stamp = (message.offset() or 0) + 1, message.timestamp()[1]
        try:
            rewritten = self._rewriter.one(track.prefix, message)
        except Broken as broken:
            self._refuse(track, message, str(broken))
            return
        chunk = track.chunk(after, stamp, rewritten.offsets)
        chunk.dropped, chunk.filtered, chunk.size = rewritten.dropped, rewritten.filtered, rewritten.size
        for row in rewritten.rows():
            error = self._write(track, chunk, row, deadline_s)
            if error is None:
                return
            track.pending.pop().forget()
            if error.code() in REFUSED:
                self._refuse(track, message, error.str())
            else:
                self.close()
                track.lose(error.str())
        track.settle()

    def _write(self, track: PartitionTrack, chunk: Chunk, row: Row, deadline_s: float) -> KafkaError | None:
        answers: list[KafkaError | None] = []

        def on_result(error: KafkaError | None, message: Message) -> None:
            if error is None:
                chunk.delivered(None, message)
            answers.append(error)

        (topic, number, _), (value, key, stamp, headers) = track.lane.target, row
        if doubt := self._unsure(track):
            return doubt
        client = self._client()
        try:
            client.produce(topic, value, key, number, timestamp=stamp, headers=headers, on_delivery=on_result)
        except KafkaException as error:
            return error.args[0]  # type: ignore[no-any-return]
        while not answers and time.monotonic() < deadline_s:
            if ended := served(client, 0.05) or (None if answers else self._unsure(track)):
                return ended
        return answers[0] if answers else KafkaError(KafkaError._TIMED_OUT)

    def _unsure(self, track: PartitionTrack) -> KafkaError | None:
        """Why the record must not be written now; None if it may be."""
        error = self._target.unsure([track.lane.target]).get(track.lane.target)
        return KafkaError(KafkaError._STATE, str(error)) if error else None

    def _refuse(self, track: PartitionTrack, message: Message, reason: str) -> None:
        """Apply the policy. If the record was handled, the copy continues after it."""
        self.refused += 1
        record = record_of(message)
        if problem := self._policy.handle(failure_of(self._lease, track.source, record, reason), record):
            track.stop(problem)
            return
        chunk = track.chunk(record.offset + 1, record.timestamp, [])
        chunk.dismissed = 1
        track.settle()

    def _client(self) -> Producer:
        if self._producer is None:
            more = {"enable_gapless_guarantee": False, "linger_ms": 0}
            self._producer = producer(self._lease.target, self._lease.limits, _ignore_error, BATCH_BYTES, **more)
        return self._producer

    def close(self) -> None:
        """Close the connections."""
        self._policy.close()
        if self._producer is not None:
            dropped(self._producer, 0.0)
            self._producer = None


def _ignore_error(_error: KafkaError) -> None:
    """Ignored: each record has its own result."""
