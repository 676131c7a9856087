"""Reader and writer of Kafka for the generic pump."""

from trueup.connectors.kafka.replication.records.reader import WireReader
from trueup.connectors.kafka.replication.records.writer import WireWriter
from trueup.connectors.replication.ports import SystemPorts

MEDIUM = SystemPorts(WireReader, WireWriter)
