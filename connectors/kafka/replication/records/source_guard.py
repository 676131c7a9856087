"""Detects that a link with copy: batches writes to a source partition, which the records path cannot see in records.

The path of such batches is in their producer ids (state/replication/provenance.py), which librdkafka does not expose.
The leader of the partition lists the producers of the last day (DescribeProducers, KIP-664).
"""

from collections.abc import Iterable

from trueup.connectors.contract import Lease, LogId
from trueup.connectors.kafka.client.cluster import KafkaClient
from trueup.state.common.errors import Stop, TrueupError
from trueup.state.replication.provenance import onward, tag_of


class SourceGuard:
    """Queries the source of a lease. A source whose options only librdkafka supports cannot be queried: all of its
    links copy records then, and there is nothing to detect."""

    def __init__(self, lease: Lease, source: KafkaClient | None) -> None:
        self._lease, self._source = lease, source
        self._refreshed = False

    def blocked_reasons(self, partitions: Iterable[LogId]) -> dict[LogId, TrueupError]:
        """Why partitions must not be copied: `Stop` for batches that must not go to the target, otherwise the error
        of the query. Raises `Retry` and `Stop` for the whole source."""
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
                    "records that this link may copy",
                    f"batches in {partition} (producer id {bad[0]:#x}) from a link with copy: batches, which "
                    f"must not go to {self._lease.target.name}",
                    "set the same value of copy for the links of both directions",
                )
        self._refreshed = not found
        return found

    def _loops(self, producer_id: int) -> bool:
        tag, lease = tag_of(producer_id), self._lease
        return tag is not None and onward(tag.path, lease.source.bit, lease.target.bit, lease.forward) is None
