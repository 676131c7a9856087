"""SASL/OAUTHBEARER with a token endpoint, on a broker with an authorizer that ends sessions after two seconds."""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient, NewTopic
from confluent_kafka.admin import ResourcePatternType as Pattern
from confluent_kafka.admin import ResourceType as Kind

from tests.configuration import parse
from tests.integration.kafka.journals import journal, read_by_spark
from tests.issuer import Issuer
from tests.replication.audit import ends
from tests.replication.reading import committed
from tests.replication.writers import Site
from trueup.connectors.contract import Assignment, Connector, Endpoint, Lease, LogId, Position
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.kafka.client.admin import Admin
from trueup.connectors.kafka.client.cluster import KafkaClient
from trueup.connectors.kafka.client.options import librdkafka
from trueup.connectors.kafka.logdirs.client import LogDirsClient
from trueup.connectors.kafka.replication.connector import Batches
from trueup.sandbox.servers.security import Security
from trueup.state.common.errors import Retry, Stop
from trueup.streams.cli import machine
from trueup.streams.replication.clusters import pump

pytestmark = pytest.mark.servers
SESSION_MS, SESSIONS = 2_000, 3
SECRET = "client-secret"
RIGHTS = (
    (Kind.TOPIC, "ours", Pattern.PREFIXED, AclOperation.READ),
    (Kind.TOPIC, "ours", Pattern.PREFIXED, AclOperation.WRITE),
    (Kind.BROKER, "kafka-cluster", Pattern.LITERAL, AclOperation.DESCRIBE),
    (Kind.GROUP, "trueup", Pattern.LITERAL, AclOperation.READ),
)


class Secured:
    """A broker, the provider, and the settings of a client."""

    def __init__(self, root: Path, issuer: Issuer) -> None:
        self.issuer, self.secret = issuer, root / "secret"
        self.secret.write_text(f"{SECRET}\n")
        issuer.secrets["link"] = SECRET
        self.security = Security(root / "keys", issuer=issuer.url, session_ms=SESSION_MS)
        self.broker = Kafka(root, "256m", security=self.security)

    def up(self) -> None:
        self.broker.up()
        admin = AdminClient(self.broker.client())
        granted = [
            AclBinding(kind, name, pattern, "User:link", "*", what, AclPermissionType.ALLOW)
            for kind, name, pattern, what in RIGHTS
        ]
        for future in admin.create_acls(granted).values():
            future.result(30)

    def way(self, **changes: str) -> tuple[str, dict[str, str]]:
        security = {
            "tls.ca": str(self.security.certificate),
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauth.url": f"{self.issuer.url}/token",
            "sasl.oauth.client.id": "link",
            "sasl.oauth.client.secret.file": str(self.secret),
            "sasl.oauth.scope": "kafka",
        }
        if "sasl.oauth.client.secret" in changes:
            del security["sasl.oauth.client.secret.file"]
        return self.broker.address("SASL_SSL"), {**security, **changes}

    def endpoint(self, name: str = "east", **changes: str) -> Endpoint:
        address, security = self.way(**changes)
        return Endpoint(name, address, 0, {}, "kafka", security)

    def topics(self, *names: str) -> None:
        admin = AdminClient(self.broker.client())
        for future in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
            future.result(30)
        wait_until(lambda: {*names} <= {*admin.list_topics(timeout=30).topics}, 180.0, "the topics")


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with Issuer() as made:
        yield made


def started(root: Path, issuer: Issuer) -> Iterator[Secured]:
    made = Secured(root, issuer)
    with made.broker:
        made.up()
        made.topics("ours.c.ledgers")
        yield made


@pytest.fixture(scope="module")
def secured(new_root: Callable[[], Path], issuer: Issuer) -> Iterator[Secured]:
    yield from started(new_root(), issuer)


@pytest.fixture(scope="module")
def other(new_root: Callable[[], Path], issuer: Issuer) -> Iterator[Secured]:
    yield from started(new_root(), issuer)


def test_librdkafka_logs_in(secured: Secured) -> None:
    assert "ours.c.ledgers" in AdminClient(librdkafka(secured.endpoint())).list_topics(timeout=30).topics


def test_kafka_python_logs_in(secured: Secured) -> None:
    with LogDirsClient(secured.endpoint()) as client:
        assert [*client.brokers()] == [1]


def test_connections_of_the_batches_path_log_in(secured: Secured) -> None:
    with closing(KafkaClient(secured.endpoint())) as client:
        client.refresh(["ours.c.ledgers"])
        assert client.leader(LogId("ours.c.ledgers", 0)) == 1


@pytest.mark.parametrize(
    ("path", "connector"), [("batches", Batches()), pytest.param("records", pump(), marks=pytest.mark.release)]
)
def test_a_copy_goes_on_when_sessions_end(path: str, connector: Connector, secured: Secured, other: Secured) -> None:
    topic = f"ours.{path}"
    secured.topics(topic)
    other.topics(topic)
    assignment = Assignment(LogId(topic, 0), LogId(topic, 0), Position(), 0)
    east, west = secured.endpoint(), replace(other.endpoint("west"), bit=1)
    copier = connector.open(Lease("east-west", east, west, 7, path, (assignment,)))
    producer, written = Producer({"bootstrap.servers": secured.broker.bootstrap}), 0
    until = time.monotonic() + SESSIONS * SESSION_MS / 1_000

    def copied() -> bool:
        try:
            copier.copy(time.monotonic() + 0.2, lambda: True)
        except Retry:
            return False  # a worker also continues
        [row] = copier.progress()
        return row.position.offset >= written

    try:
        while time.monotonic() < until:
            producer.produce(topic, b"%d" % written)
            producer.flush(30)
            written += 1
            copied()
        wait_until(copied, 180.0, "the copy")
    finally:
        copier.close()
    assert ends(Site("", other.broker.bootstrap, topic, 1)) == [written]
    assert [one.value() for one in committed(other.broker.bootstrap, topic, [0])] == [
        b"%d" % number for number in range(written)
    ]


@pytest.mark.release
def test_spark_reads_a_journal(secured: Secured, tmp_path: Path) -> None:
    chosen = {**settings(secured, {}), "spark": {"buckets": 2, "trigger_ms": 0, "memory": "512m"}}
    journal({**chosen, "journal": {"bootstrap": secured.broker.bootstrap, "prefix": "ours"}}).create()
    assert read_by_spark(chosen, tmp_path) == [7]


WRONG: list[tuple[dict[str, str], str]] = [
    ({"sasl.oauth.client.secret": "wrong"}, "sasl.oauth.client.secret"),
    ({"sasl.oauth.client.id": "nobody"}, "sasl.oauth.client.secret"),
    ({"sasl.oauth.url": "http://127.0.0.1:1/token"}, "sasl.oauth.client.secret"),
]


@pytest.mark.release  # each waits for an answer for four seconds
@pytest.mark.parametrize(("changes", "key"), WRONG)
def test_an_error_names_the_key_of_a_cluster(secured: Secured, changes: dict[str, str], key: str) -> None:
    with Admin(secured.endpoint(**changes), 4.0) as admin, pytest.raises(Stop, match=_named("kafka.east", key)):
        admin.ask("describe the cluster", admin.client.describe_cluster)


@pytest.mark.parametrize(("changes", "key"), WRONG)
def test_doctor_names_the_key_of_the_journal(secured: Secured, changes: dict[str, str], key: str) -> None:
    found = machine.journal(parse(settings(secured, changes)))
    assert (found.status, f"journal.security.{key}" in found.todo) == ("fail", True), found


@pytest.mark.parametrize("changes", [changes for changes, _ in WRONG])
def test_an_error_of_the_batches_path_tells_the_endpoint(secured: Secured, changes: dict[str, str]) -> None:
    with closing(KafkaClient(secured.endpoint(**changes))) as client, pytest.raises((Stop, Retry), match="OIDC token"):
        client.refresh([])


@pytest.mark.release
def test_a_token_for_others_names_the_endpoint(secured: Secured) -> None:
    secured.issuer.granted = "others"
    try:
        with (
            Admin(secured.endpoint(**{"sasl.oauth.scope": "other"}), 4.0) as admin,
            pytest.raises(Stop, match=_named("kafka.east", "sasl.oauth.url")),
        ):
            admin.ask("describe the cluster", admin.client.describe_cluster)
    finally:
        secured.issuer.granted = "kafka"


def settings(secured: Secured, changes: Mapping[str, str]) -> dict[str, Any]:
    address, security = secured.way(**changes)
    return {
        "cluster": {"zookeeper": "127.0.0.1:1", "name": "c"},
        "journal": {"bootstrap": address, "prefix": "ours", "security": security},
    }


def _named(path: str, key: str) -> str:
    return re.escape(f"{path}.security.{key}")
