"""Reader and writer of RocketMQ for the generic pump."""

from trueup.connectors.replication.ports import Medium
from trueup.connectors.rocketmq.replication.reader import RocketMqReader
from trueup.connectors.rocketmq.replication.writer import RocketMqWriter

MEDIUM = Medium(RocketMqReader, RocketMqWriter)
