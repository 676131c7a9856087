"""What the records path cannot see by itself: that the source partition is written by links that copy whole batches.

Such batches tell where they have been by their producer id (state/replication/provenance.py), which librdkafka does not
show. The leader of the partition lists the producers that wrote in the last day (DescribeProducers, KIP-664).
"""

from collections.abc import Iterable

from trueup.connectors.contract import Lease, LogId
from trueup.connectors.kafka.client.cluster import Cluster
from trueup.state.common.errors import Stop, TrueupError
from trueup.state.replication.provenance import onward, tag_of


class Guard:
    """Asks the source of a lease. A source whose options only librdkafka understands cannot be asked: all its links
    copy records then, and there is nothing to find."""

    def __init__(self, lease: Lease, source: Cluster | None) -> None:
        self._lease, self._source = lease, source
        self._refreshed = False

    def obstacles(self, partitions: Iterable[LogId]) -> dict[LogId, TrueupError]:
        """What forbids to copy partitions: `Stop` for batches that must not go to the target, else that this could
        not be found out. Raises `Retry` and `Stop` for the whole source."""
        wanted = list(partitions)
        if self._source is None or not wanted:
            return {}
        if not self._refreshed:
            self._source.refresh(partition.topic for partition in wanted)
        found: dict[LogId, TrueupError] = {}
        for partition, ids in self._source.producers(wanted).items():
            if isinstance(ids, TrueupError):
                found[partition] = ids
            elif bad := [each for each in ids if self._loops(each)]:
                found[partition] = Stop(
                    "records that this link may carry",
                    f"batches in {partition} (producer id {bad[0]:#x}) that a link with copy: batches wrote and that "
                    f"must not go to {self._lease.target.name}",
                    "set the same copy: for the links of both directions",
                )
        self._refreshed = not found
        return found

    def _loops(self, producer_id: int) -> bool:
        tag, lease = tag_of(producer_id), self._lease
        return tag is not None and onward(tag.path, lease.source.bit, lease.target.bit, lease.forward) is None
