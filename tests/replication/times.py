"""Records with times that clients of Kafka refuse to write."""

from collections.abc import Sequence
from contextlib import closing

from tests.replication.pair import Broker
from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.kafka.client.cluster import KafkaClient
from trueup.connectors.kafka.client.fetch_produce import PRODUCE, PRODUCE_VERSION, produce_body, produced
from trueup.connectors.kafka.replication.records.encode import BatchProducer, records_of
from trueup.connectors.replication.ports import Columns

STAMPS = (0, -1, -1_000, 1)
VALUE = b"v"


def write_times(broker: Broker, topic: str, stamps: Sequence[int]) -> None:
    """Write records with these times (ms since 1970), the value `VALUE` and no key to partition 0, in one batch."""
    count, log = len(stamps), LogId(topic, 0)
    columns = Columns(range(count), [None] * count, [VALUE] * count, stamps, [()] * count)
    [batch] = records_of(columns).batches(0)
    with closing(KafkaClient(Endpoint("raw", broker.bootstrap, 0))) as client:
        client.refresh([topic])
        connection = client.asking(client.leader(log))
        connection.send(PRODUCE, PRODUCE_VERSION, *produce_body({log: batch.sent_by(BatchProducer(-1, -1, -1))}, 5_000))
        assert produced(connection.receive())[log].error == 0
