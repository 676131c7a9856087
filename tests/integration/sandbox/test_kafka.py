import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from trueup.connectors.embedded.kafka import Kafka
from trueup.state.common.errors import Stop

pytestmark = [pytest.mark.servers, pytest.mark.release]


@pytest.fixture(scope="module")
def kafka(new_root: Callable[[], Path]) -> Iterator[Kafka]:
    with Kafka(new_root()) as server:
        server.up()
        yield server


def write(broker: Kafka, topic: str, records: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(records):
        producer.produce(topic, str(number))
    assert producer.flush(120) == 0


def read(broker: Kafka, topic: str, records: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "test", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = [message.value().decode() for message in consumer.consume(records, 60.0)]
    consumer.close()
    return found


def test_records_outlive_a_kill_and_the_address_stays(kafka: Kafka) -> None:
    write(kafka, "kept", 100)
    before = kafka.bootstrap
    kafka.restart()
    assert (read(kafka, "kept", 100), kafka.bootstrap) == ([str(n) for n in range(100)], before)


def test_a_topic_is_made_only_on_purpose(kafka: Kafka) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.list_topics("mistyped", timeout=30)
    assert "mistyped" not in admin.list_topics(timeout=30).topics


def test_the_log_cleaner_runs(kafka: Kafka) -> None:
    resource = ConfigResource(ResourceType.BROKER, "1")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    found = admin.describe_configs([resource])[resource].result(30)
    assert found["log.cleaner.enable"].value == "true"


def test_records_are_served_on_another_port_when_theirs_is_taken(new_root: Callable[[], Path]) -> None:
    root = new_root()
    with Kafka(root) as broker:
        broker.up()
        write(broker, "kept", 10)
        host, port = broker.bootstrap.split(":")
    with socket.create_server((host, int(port))), Kafka(root) as broker:
        broker.up()
        assert broker.bootstrap != f"{host}:{port}"
        assert len(read(broker, "kept", 10)) == 10


def test_a_directory_in_use_is_refused(kafka: Kafka) -> None:
    with Kafka(kafka.root) as second, pytest.raises(Stop, match="another process"):
        second.start()
