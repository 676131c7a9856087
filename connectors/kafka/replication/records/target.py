"""What both writers of Kafka know of the target of a lease besides how to write: its ends, tails, and topics' ids."""

from collections.abc import Iterable

from trueup.connectors.contract import Lease, LogId
from trueup.connectors.kafka.client.cluster import KafkaClient
from trueup.connectors.kafka.client.topic_ids import id_of
from trueup.connectors.kafka.replication.records.target_tail import KafkaTails, TargetEnds
from trueup.connectors.kafka.replication.records.topic_identity import Identity
from trueup.connectors.replication.tail import Bounds
from trueup.state.common.errors import TrueupError


class KafkaTarget:
    """A part of `connectors.replication.ports.Writer`. ``cluster``: a client of its own; None: options do not permit
    one."""

    lag_s = 0.0

    def __init__(self, lease: Lease, cluster: KafkaClient | None) -> None:
        self._identity = Identity(cluster, {a.target.topic: id_of(a.target_id) for a in lease.assignments})
        self._ends, self._tails = TargetEnds(lease.target, cluster), KafkaTails(lease.target)

    def bounds(self, logs: Iterable[LogId]) -> dict[LogId, Bounds | TrueupError]:
        """Start and end of partitions, after everything that their leaders have is replicated."""
        return self._ends(logs)

    def unsure(self, logs: Iterable[LogId]) -> dict[LogId, TrueupError]:
        """Partitions of recreated topics."""
        return self._identity.unsure(logs)

    def tails(self) -> KafkaTails:
        """The reader of partitions' tails."""
        return self._tails

    def close(self) -> None:
        """Close the connections."""
        self._tails.close()
        self._identity.close()
