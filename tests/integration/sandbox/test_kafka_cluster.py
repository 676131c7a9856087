from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import wait_until
from trueup.sandbox.servers.kafka_cluster import Brokers
from trueup.sandbox.servers.security import Security

pytestmark = [pytest.mark.servers, pytest.mark.release]


@pytest.fixture(scope="module")
def brokers(new_root: Callable[[], Path]) -> Iterator[Brokers]:
    root = new_root()
    with Brokers(root, security=Security(root / "security")) as made:
        made.up()
        yield made


def create(client: Mapping[str, str], topic: str, partitions: int = 1) -> AdminClient:
    admin = AdminClient(dict(client))
    admin.list_topics(timeout=30)  # from then on it keeps the connections to the brokers
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(30)
    return admin


def write(client: Mapping[str, str], topic: str, records: int) -> list[str]:
    """Write records and return the errors of those that failed."""
    failed = []
    producer = Producer({**client, "enable.idempotence": True})
    for number in range(records):
        producer.produce(topic, str(number), on_delivery=lambda error, _message: error and failed.append(str(error)))
    assert producer.flush(120) == 0
    return failed


def read(client: Mapping[str, str], topic: str, records: int) -> list[str]:
    consumer = Consumer({**client, "group.id": "test"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = [message.value().decode() for message in consumer.consume(records, 60.0)]
    consumer.close()
    return found


def leader(admin: AdminClient, topic: str) -> int:
    return int(admin.list_topics(topic, timeout=30).topics[topic].partitions[0].leader)


def in_sync(admin: AdminClient, topic: str) -> set[int]:
    return set(admin.list_topics(topic, timeout=30).topics[topic].partitions[0].isrs)


def test_a_partition_gets_another_leader_when_its_own_is_killed(brokers: Brokers) -> None:
    admin = create(brokers.client(), "moves")
    assert write(brokers.client(), "moves", 100) == []
    first = leader(admin, "moves")
    brokers.kill(first)
    wait_until(lambda: leader(admin, "moves") not in (first, -1), 180.0, "another leader")
    assert read(brokers.client(), "moves", 100) == [str(n) for n in range(100)]
    brokers.start(first)
    wait_until(lambda: in_sync(admin, "moves") == {1, 2}, 180.0, "both replicas in sync")


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_listener_takes_users_with_their_password(brokers: Brokers, listener: str) -> None:
    client = brokers.client(listener)
    create(client, listener)
    assert write(client, listener, 10) == []


def test_a_user_without_an_acl_may_not_write(brokers: Brokers) -> None:
    create(brokers.client(), "guarded")
    guest = Producer({**brokers.client("SASL_PLAINTEXT", "guest"), "message.timeout.ms": 20_000})
    seen = []
    guest.produce("guarded", b"x", on_delivery=lambda error, _message: seen.append(error.code()))
    guest.flush(120)
    assert seen == [KafkaError.TOPIC_AUTHORIZATION_FAILED]


def test_a_wrong_password_is_refused(brokers: Brokers) -> None:
    errors: list[str] = []
    client = {**brokers.client("SASL_PLAINTEXT"), "sasl.password": "wrong", "error_cb": lambda e: errors.append(str(e))}
    with pytest.raises(KafkaException):
        AdminClient(client).list_topics(timeout=5)


def test_one_broker_has_the_same_listeners(new_root: Callable[[], Path]) -> None:
    root = new_root()
    with Kafka(root, security=Security(root / "security")) as broker:
        broker.up()
        create(broker.client("SASL_SSL"), "one")
        assert write(broker.client("SASL_SSL"), "one", 10) == []
