"""Reader and writer of Kafka for the generic pump: the fast ones, unless only librdkafka supports the options."""

from trueup.connectors.contract import Lease
from trueup.connectors.kafka.client.options import only_records
from trueup.connectors.kafka.replication.records.reader import KafkaReader
from trueup.connectors.kafka.replication.records.writer import KafkaWriter
from trueup.connectors.kafka.replication.wire.reader import WireReader
from trueup.connectors.kafka.replication.wire.writer import WireWriter
from trueup.connectors.replication.ports import Medium, Reader, Writer


def _reader(lease: Lease) -> Reader:
    return KafkaReader(lease) if only_records(lease.source.options) else WireReader(lease)


def _writer(lease: Lease) -> Writer:
    return KafkaWriter(lease) if only_records(lease.target.options) else WireWriter(lease)


MEDIUM = Medium(_reader, _writer)
