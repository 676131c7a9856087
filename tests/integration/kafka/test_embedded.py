"""The broker of the embedded journal serves only who can read the password in its directory."""

import re
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from kafka import KafkaAdminClient

from tests.integration.kafka.journals import read_by_spark
from trueup.connectors.contract import Endpoint
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.kafka.client.options import kafka_python
from trueup.connectors.kafka.client.security import librdkafka_of
from trueup.connectors.kafka.journal.embedded import MECHANISM, USER, EmbeddedKafka
from trueup.connectors.kafka.journal.topics import TopicClient, TopicSpec
from trueup.state.common.errors import Retry, TrueupError

pytestmark = pytest.mark.servers
REFUSED_S = 3.0
TOPIC = "trueup.embedded.config"


@pytest.fixture(scope="module")
def broker(new_root: Callable[[], Path]) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(new_root() / "journal") as made:
        made.up()
        topics_of(made).create([TopicSpec(TOPIC, 1, 1, {})], 30.0)
        yield made


def topics_of(broker: EmbeddedKafka) -> TopicClient:
    return TopicClient(broker.bootstrap, librdkafka_of(broker.security, "journal"))


def own_password(broker: EmbeddedKafka) -> str:
    """The broker's password of this start."""
    found = re.search(r'user_broker="([^"]+)"', (broker.root / "server.properties").read_text())
    assert found
    return found[1]


def login(mechanism: str, user: str, password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def produced(bootstrap: str, client: Mapping[str, str]) -> list[KafkaError | None]:
    """The outcome of one record; none is one that is not acknowledged or refused in time."""
    outcomes: list[KafkaError | None] = []
    producer = Producer(
        {"bootstrap.servers": bootstrap, "message.timeout.ms": int(REFUSED_S * 1_000), "log_level": "0", **client}
    )
    producer.produce(TOPIC, b"placement.mode", b"enforce", partition=0, on_delivery=lambda e, _: outcomes.append(e))
    producer.flush(2 * REFUSED_S)
    return outcomes


@pytest.mark.parametrize(
    "client",
    [
        {},
        login(MECHANISM, USER, "guessed"),
        login("PLAIN", USER, "guessed"),
        login("PLAIN", "broker", "guessed"),
        login(MECHANISM, "broker", "guessed"),
    ],
)
def test_a_client_without_the_password_cannot_write(broker: EmbeddedKafka, client: dict[str, str]) -> None:
    before = topics_of(broker).ends(TOPIC)
    (outcome,) = produced(broker.bootstrap, client)
    assert outcome is not None
    assert topics_of(broker).ends(TOPIC) == before


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "CONTROLLER"])
def test_only_who_logs_in_reaches_the_broker_and_its_controller(broker: EmbeddedKafka, listener: str) -> None:
    address = broker.address(listener)
    assert describes_the_cluster(address, own_password(broker))
    assert not describes_the_cluster(address, None)
    assert not describes_the_cluster(address, "guessed")


def describes_the_cluster(address: str, password: str | None) -> bool:
    """Whether a server responds to DescribeCluster, after a login as the broker unless ``password`` is None."""
    host, _, port = address.partition(":")
    handshake = struct.pack(">hhih", 17, 1, 1, -1) + struct.pack(">h", 5) + b"PLAIN"
    token = f"\0broker\0{password}".encode()
    authenticate = struct.pack(">hhih", 36, 0, 2, -1) + struct.pack(">i", len(token)) + token
    describe = struct.pack(">hhih", 60, 0, 3, -1) + b"\0" + b"\0" + b"\0"  # tags, no operations, tags
    logins = [] if password is None else [handshake, authenticate]
    with socket.create_connection((host, int(port)), 10.0) as connection, connection.makefile("rb") as answers:
        for request in (*logins, describe):
            connection.sendall(struct.pack(">i", len(request)) + request)
            try:
                size = answers.read(4)
            except ConnectionResetError:
                return False
            if len(size) < 4:
                return False
            answers.read(int.from_bytes(size))
    return True


def test_all_client_libraries_log_in(broker: EmbeddedKafka, tmp_path: Path) -> None:
    client = {"bootstrap.servers": broker.bootstrap, **librdkafka_of(broker.security, "journal")}
    assert produced(broker.bootstrap, client) == [None]
    python = KafkaAdminClient(**kafka_python(Endpoint("own", broker.bootstrap, 0, security=broker.security)))
    assert TOPIC in python.list_topics()
    python.close()
    journal = {"bootstrap": broker.bootstrap, "security": broker.security}
    settings = {"journal": journal, "cluster": {"name": "embedded", "zookeeper": "127.0.0.1:1"}}
    assert read_by_spark(settings, tmp_path) == [7]


def ends_once_led(topics: TopicClient) -> dict[int, int]:
    """The ends of the topic. A broker that has just started accepts requests before it leads partitions."""
    found: list[dict[int, int]] = []

    def led() -> bool:
        with suppress(Retry):
            found.append(topics.ends(TOPIC))
        return bool(found)

    wait_until(led, 60.0, "the broker to lead the topic")
    return found[0]


def test_after_a_kill_clients_go_on_and_the_own_password_of_the_broker_is_another(broker: EmbeddedKafka) -> None:
    topics, before = topics_of(broker), own_password(broker)
    (end,) = topics.ends(TOPIC).values()
    broker.restart()
    assert ends_once_led(topics) == {0: end}
    topics.send([(TOPIC, [b"key"], [b"body"])])
    assert topics.ends(TOPIC) == {0: end + 1}
    assert own_password(broker) != before
    (outcome,) = produced(broker.bootstrap, login("PLAIN", "broker", before))
    assert outcome is not None


def test_a_start_without_the_password_makes_another_one(broker: EmbeddedKafka) -> None:
    client = librdkafka_of(broker.security, "journal")
    broker.close()
    Path(broker.security["sasl.password.file"]).unlink()
    with EmbeddedKafka(broker.root) as again:
        again.up()
        assert TOPIC in topics_of(again).identities([TOPIC])
        with pytest.raises(TrueupError):
            TopicClient(again.bootstrap, client).brokers(3.0)


def test_other_users_read_nothing(broker: EmbeddedKafka) -> None:
    assert broker.root.stat().st_mode & 0o777 == 0o700
    secret = own_password(broker), Path(broker.security["sasl.password.file"]).read_text()
    holding = {
        path
        for path in broker.root.iterdir()
        if path.is_file() and any(one.encode() in path.read_bytes() for one in secret)
    }
    assert {path.name for path in holding} == {"password", "server.properties"}
    assert {path.stat().st_mode & 0o777 for path in (*holding, broker.root / "lock", broker.log)} == {0o600}
