import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.replication.pair import Pair
from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.kafka.replication.batch_stats import sample
from trueup.connectors.replication.ports import Sample

pytestmark = pytest.mark.servers


def filled(broker: Kafka, topic: str, batch: int) -> list[LogId]:
    """A topic with two partitions of 3,000 records each, ``batch`` records per batch."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 500, "batch.num.messages": batch})
    for number in range(6_000):
        producer.produce(topic, b"x" * 20, partition=number % 2)
    producer.flush(120)
    return [LogId(topic, 0), LogId(topic, 1)]


@pytest.mark.parametrize("batch", [1, 10, 500])
def test_the_records_of_a_batch_are_counted(pair: Pair, batch: int) -> None:
    found = sample(Endpoint("east", pair.east.bootstrap, 0), filled(pair.east, f"sampled-{batch}", batch))
    # A batch has 61 bytes before its records. Each record has 7 or 8 bytes besides its value.
    assert (found.per_batch, found.magic) == (batch, 2)
    assert found.record_bytes == pytest.approx(61 / batch + 27, abs=1)


def test_of_an_empty_topic_nothing_is_known(pair: Pair) -> None:
    admin = AdminClient({"bootstrap.servers": pair.east.bootstrap})
    admin.create_topics([NewTopic("sampled-empty", 2, 1)])["sampled-empty"].result(30)
    assert sample(Endpoint("east", pair.east.bootstrap, 0), [LogId("sampled-empty", 0)]) == Sample()


def test_a_topic_that_is_not_there_is_left_out(pair: Pair) -> None:
    assert sample(Endpoint("east", pair.east.bootstrap, 0), [LogId("none", 0)]) == Sample()
