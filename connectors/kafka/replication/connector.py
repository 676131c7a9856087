"""The connector of the batches path."""

from trueup.connectors.contract import Copier, Lease
from trueup.connectors.kafka.replication.batches.copier import BatchCopier


class Batches:
    """Copies whole record batches without decompression: exactly once; headers, keys, times and order are kept."""

    def open(self, lease: Lease) -> Copier:
        """Connect to both ends and read the position of each partition. Raises `Retry` and `Stop`."""
        return BatchCopier(lease)
