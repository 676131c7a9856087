"""The producers of a lease: their ids say that a link wrote a batch, and which clusters its records passed.

Kafka assigns ids to producers, but brokers accept any (`provenance`). Sequence numbers start at 0 in a new epoch, and
brokers refuse a request of an earlier epoch of an id (``ProducerAppendInfo.checkProducerEpoch``). A producer therefore
takes an epoch that the leader has not seen, of an id that it chooses among many: a request of a former producer that
is still on its way is never taken for one of this producer, which the leader would acknowledge without writing it.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trueup.connectors.contract import LogId
from trueup.connectors.kafka.replication.records.encode import BatchProducer
from trueup.state.common.errors import Retry
from trueup.state.replication.provenance import SINGLE, producer_id

LAST_EPOCH = (1 << 15) - 2
_SEQUENCES = (1 << 31) - 1


@dataclass(slots=True)
class _Producer:
    """Id, epoch and next sequence number."""

    id: int
    epoch: int
    next: int = 0


class Producers:
    """One for each log and path (bits of clusters). ``mark``: the mark of `provenance.SINGLE` to begin with; None:
    any mark."""

    def __init__(self, writer_id: int, mark: int | None = None) -> None:
        self._writer_id = writer_id
        first = SINGLE.index(mark) if mark is not None else random.randrange(len(SINGLE))  # noqa: S311
        self._marks = [*SINGLE[first:], *SINGLE[:first]]
        self._epochs: dict[LogId, Mapping[int, int]] = {}
        self._used: dict[tuple[LogId, int], int] = {}
        self._active: dict[tuple[LogId, int], _Producer] = {}

    def unknown(self, logs: Iterable[LogId]) -> list[LogId]:
        """Those of the logs whose leaders must be asked for their producers."""
        return [log for log in logs if log not in self._epochs]

    def learn(self, epochs: Mapping[LogId, Mapping[int, int]]) -> None:
        """Take the producer ids that leaders know, each with its epoch (`KafkaClient.epochs`)."""
        self._epochs.update(epochs)

    def forget(self) -> None:
        """The fate of some batches is not known: continue with new epochs, after leaders were asked again."""
        self._used.update({(log, producer.id): producer.epoch for (log, _), producer in self._active.items()})
        self._active.clear()
        self._epochs.clear()

    def sender(self, log: LogId, path: int) -> BatchProducer:
        """The sender of the next batch for a log. Raises `Retry` if all ids are used up."""
        if (log, path) not in self._active:
            self._active[log, path] = self._begun(log, path)
        producer = self._active[log, path]
        return BatchProducer(producer.id, producer.epoch, producer.next)

    def wrote(self, log: LogId, path: int, records: int) -> None:
        """Count acknowledged records."""
        producer = self._active[log, path]
        producer.next = (producer.next + records) & _SEQUENCES

    def _begun(self, log: LogId, path: int) -> _Producer:
        epochs = self._epochs[log]
        for mark in self._marks:
            candidate = producer_id(path, self._writer_id, mark)
            epoch = 1 + max(epochs.get(candidate, -1), self._used.get((log, candidate), -1))
            if epoch <= LAST_EPOCH:
                return _Producer(candidate, epoch)
        raise Retry(f"a producer id for {log}", "that all are used up", "wait for producer.id.expiration.ms")
