"""Reader and writer of Kafka for the generic pump."""

from trueup.connectors.kafka.replication.wire.reader import WireReader
from trueup.connectors.kafka.replication.wire.writer import WireWriter
from trueup.connectors.replication.ports import Medium

MEDIUM = Medium(WireReader, WireWriter)
