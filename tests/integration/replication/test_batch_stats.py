import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.kafka.replication.batch_stats import sample
from trueup.connectors.replication.ports import Sample
from trueup.connectors.sandbox.servers.kafka import Kafka

pytestmark = pytest.mark.servers


def filled(kafka: Kafka, topic: str, batch: int) -> list[LogId]:
    """A topic with two partitions of 3,000 records each, ``batch`` records per batch."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 500, "batch.num.messages": batch})
    for number in range(6_000):
        producer.produce(topic, b"x" * 20, partition=number % 2)
    producer.flush(120)
    return [LogId(topic, 0), LogId(topic, 1)]


@pytest.mark.parametrize("batch", [1, 10, 500])
def test_the_records_of_a_batch_are_counted(kafka: Kafka, batch: int) -> None:
    found = sample(Endpoint("east", kafka.bootstrap, 0), filled(kafka, f"of-{batch}", batch))
    # A batch has 61 bytes before its records. Each record has 7 or 8 bytes besides its value.
    assert (found.per_batch, found.magic) == (batch, 2)
    assert found.record_bytes == pytest.approx(61 / batch + 27, abs=1)


def test_of_an_empty_topic_nothing_is_known(kafka: Kafka) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic("empty", 2, 1)])["empty"].result(30)
    assert sample(Endpoint("east", kafka.bootstrap, 0), [LogId("empty", 0)]) == Sample()


def test_a_topic_that_is_not_there_is_left_out(kafka: Kafka) -> None:
    assert sample(Endpoint("east", kafka.bootstrap, 0), [LogId("none", 0)]) == Sample()
