"""Kafka's connectors: how leases are opened."""

from trueup.connectors.contract import Copier, Lease
from trueup.connectors.kafka.replication.batches.copier import BatchCopier


class Batches:
    """Copies whole record batches, unopened: exactly once, headers, keys, times and order kept."""

    def open(self, lease: Lease) -> Copier:
        """Connect both ends and look up each partition. Raises `Retry` and `Stop`."""
        return BatchCopier(lease)
