"""What the writer of Kafka knows of the target of a lease besides how to write: its ends, and topics' ids."""

from collections.abc import Iterable

from trueup.connectors.contract import Lease, LogId
from trueup.connectors.kafka.client.cluster import KafkaClient
from trueup.connectors.kafka.client.topic_ids import id_of
from trueup.connectors.kafka.replication.records.tails import KafkaTails
from trueup.connectors.kafka.replication.records.topic_identity import Identity
from trueup.connectors.replication.tail import Bounds
from trueup.state.common.errors import TrueupError


class KafkaTarget:
    """A part of `connectors.replication.ports.Writer`.

    Its queries have a client of their own: the leaders that a writer knows change only together with the producers that
    it learned from them.
    """

    lag_s = 0.0

    def __init__(self, lease: Lease) -> None:
        self._queries = KafkaClient(lease.target)
        self._identity = Identity(self._queries, {a.target.topic: id_of(a.target_id) for a in lease.assignments})
        self._tails = KafkaTails(self._queries, lease.writer_id)

    def bounds(self, logs: Iterable[LogId]) -> dict[LogId, Bounds | TrueupError]:
        """Start and end of partitions, after everything that their leaders have is replicated: before that, records are
        hidden and may belong to this copy."""
        partitions = set(logs)
        self._queries.refresh(log.topic for log in partitions)
        settled = self._queries.settled(partitions)
        wrong = {log: end for log, end in settled.items() if isinstance(end, TrueupError)}
        return {**self._queries.bounds(partitions), **wrong}

    def unsure(self, logs: Iterable[LogId]) -> dict[LogId, TrueupError]:
        """Partitions of recreated topics."""
        return self._identity.unsure(logs)

    def tails(self) -> KafkaTails:
        """The reader of partitions' tails."""
        return self._tails

    def close(self) -> None:
        """Close the connections."""
        self._queries.close()
