"""Reader and writer of RocketMQ for the generic pump."""

from trueup.connectors.replication.ports import SystemPorts
from trueup.connectors.rocketmq.replication.reader import RocketMqReader
from trueup.connectors.rocketmq.replication.writer import RocketMqWriter

MEDIUM = SystemPorts(RocketMqReader, RocketMqWriter)
