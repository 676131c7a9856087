"""A sample of a cluster's newest batches, which decides the copy path."""

from collections.abc import Sequence

from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.kafka.client.cluster import EARLIEST, KafkaClient
from trueup.connectors.kafka.protocol.record_batch import BatchHeader, batch_of, entries
from trueup.connectors.replication.ports import Sample
from trueup.state.common.errors import TrueupError

PARTITIONS, BACK, BYTES = 8, 5_000, 256 << 10
"""The sample: number of partitions, records before the end, bytes of each."""


def sample(endpoint: Endpoint, partitions: Sequence[LogId]) -> Sample:
    """Sample some of these partitions, spread evenly. Raises `Retry` and `Stop` for the whole cluster; unreadable
    partitions are omitted."""
    sampled = partitions[:: max(1, len(partitions) // PARTITIONS)][:PARTITIONS]
    cluster = KafkaClient(endpoint)
    try:
        cluster.refresh(partition.topic for partition in sampled)
        starts, ends = cluster.ends(sampled, EARLIEST), cluster.ends(sampled)
        batches: list[tuple[int, BatchHeader, int]] = []
        for partition in sampled:
            start, end = starts[partition], ends[partition]
            if isinstance(start, int) and isinstance(end, int) and start < end:
                batches += _batches(cluster, partition, max(start, end - BACK))
    finally:
        cluster.close()
    if not batches:
        return Sample()
    records = sum(header.records for _, header, _ in batches)
    size = sum(size for _, _, size in batches)
    return Sample(records / len(batches), min(magic for magic, _, _ in batches), size / max(1, records))


def _batches(cluster: KafkaClient, partition: LogId, offset: int) -> list[tuple[int, BatchHeader, int]]:
    """Stored format, header and stored size of each batch."""
    try:
        answers = cluster.fetch(cluster.leader(partition), {partition: offset}, BYTES, BYTES, 1)
        stored = entries(answers[partition].records) if partition in answers else ()
        return [(magic, batch_of(magic, entry)[0], len(entry)) for magic, entry in stored]
    except TrueupError:
        return []
