"""Section security on a broker with SCRAM, TLS, client certificates and an authorizer: every client library logs in,
and what is wrong has the name of the key to change."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.certificates import certify
from tests.configuration import parse
from tests.integration.kafka.journals import journal, read_by_spark
from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.kafka.client.admin import Admin
from trueup.connectors.kafka.client.cluster import KafkaClient
from trueup.connectors.kafka.client.options import librdkafka
from trueup.connectors.kafka.logdirs.client import LogDirsClient
from trueup.sandbox.servers.security import Security
from trueup.state.common.errors import Stop
from trueup.streams.cli import machine
from trueup.streams.journal.journal import Journal

pytestmark = pytest.mark.servers

PREFIX, PASSWORD = "ours", 'scram "secret\\'
USERS = ("User:link", "User:CN=127.0.0.1")
RIGHTS = (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE)
PREFIXED, LITERAL = ResourcePatternType.PREFIXED, ResourcePatternType.LITERAL
SECURED = ("plain", "scram-256", "scram-512", "certificate")


class Secured:
    """A broker, and the settings of clients by the way in which they log in."""

    def __init__(self, root: Path) -> None:
        (root / "client").mkdir()
        self.certificate, self.key = certify(root / "client")
        self.security = Security(root / "keys", clients=self.certificate)
        self.broker = Kafka(root, "256m", security=self.security)
        self.password = root / "password"
        self.password.write_text(f"{PASSWORD}\n")

    def up(self) -> None:
        """Start it, and create the credentials and rights of its users."""
        self.broker.up()
        self.admin = AdminClient(self.broker.client())
        mechanisms = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        for one in mechanisms:  # one request may alter a user only once
            new = UserScramCredentialUpsertion("link", ScramCredentialInfo(one, 4_096), PASSWORD.encode())
            for future in self.admin.alter_user_scram_credentials([new]).values():
                future.result(30)
        rights = [
            AclBinding(ResourceType.TOPIC, PREFIX, PREFIXED, user, "*", what, AclPermissionType.ALLOW)
            for user in USERS
            for what in RIGHTS
        ] + [
            AclBinding(ResourceType.GROUP, "trueup", LITERAL, user, "*", AclOperation.READ, AclPermissionType.ALLOW)
            for user in USERS
        ]
        for future in self.admin.create_acls(rights).values():
            future.result(30)

    def way(self, name: str) -> tuple[str, dict[str, str]]:
        """Address and section security."""
        trust = {"tls.ca": str(self.security.certificate)}
        login = {"sasl.username": "link", "sasl.password.file": str(self.password)}
        ways = {
            "plain": (
                "SASL_SSL",
                {
                    **trust,
                    "sasl.mechanism": "PLAIN",
                    "sasl.username": "link",
                    "sasl.password": self.security.users["link"],
                },
            ),
            "scram-256": ("SASL_PLAINTEXT", {"sasl.mechanism": "SCRAM-SHA-256", **login}),
            "scram-512": ("SASL_SSL", {**trust, "sasl.mechanism": "SCRAM-SHA-512", **login}),
            "certificate": ("SSL", {**trust, "tls.certificate": str(self.certificate), "tls.key": str(self.key)}),
        }
        listener, security = ways[name]
        return self.broker.address(listener), security

    def endpoint(self, name: str) -> Endpoint:
        address, security = self.way(name)
        return Endpoint("east", address, 0, {}, security=security, system="kafka")

    def settings(self, name: str) -> dict[str, Any]:
        """The settings of an application whose journal is here."""
        address, security = self.way(name)
        return {
            "cluster": {"zookeeper": "127.0.0.1:1", "name": "c"},
            "spark": {"buckets": 2, "trigger_ms": 0, "memory": "512m"},
            "journal": {"bootstrap": address, "prefix": PREFIX, "security": security},
        }


@pytest.fixture(scope="module")
def secured(new_root: Callable[[], Path]) -> Iterator[Secured]:
    made = Secured(new_root())
    with made.broker:
        made.up()
        journal({**made.settings("plain"), "journal": {"bootstrap": made.broker.bootstrap, "prefix": PREFIX}}).create()
        yield made


@pytest.mark.parametrize("name", SECURED)
def test_librdkafka_logs_in(secured: Secured, name: str) -> None:
    found = AdminClient(librdkafka(secured.endpoint(name))).list_topics(timeout=30).topics
    assert f"{PREFIX}.c.ledgers" in found


@pytest.mark.parametrize("name", SECURED)
def test_kafka_python_logs_in(secured: Secured, name: str) -> None:
    with LogDirsClient(secured.endpoint(name)) as client:
        assert client.brokers() == {1: ""}


@pytest.mark.parametrize("name", SECURED)
def test_connections_of_the_batches_path_log_in(secured: Secured, name: str) -> None:
    with closing(KafkaClient(secured.endpoint(name))) as client:
        client.refresh([f"{PREFIX}.c.ledgers"])
        assert client.leader(LogId(f"{PREFIX}.c.ledgers", 0)) == 1


@pytest.mark.release
@pytest.mark.parametrize("name", ["scram-512", "certificate"])
def test_spark_reads_a_journal_whose_topics_others_created(secured: Secured, name: str, tmp_path: Path) -> None:
    assert read_by_spark(secured.settings(name), tmp_path) == [7]


def test_a_missing_topic_needs_a_right_to_create(secured: Secured) -> None:
    settings = secured.settings("scram-512")
    other = parse({**settings, "cluster": {"zookeeper": "127.0.0.1:1", "name": "other"}})
    with pytest.raises(Stop, match="uthorization"):
        Journal(other.journal.bootstrap, other.journal, "other").create(30.0)


WRONG = [
    ("plain", {"sasl.password": "wrong"}, "sasl.password"),
    ("scram-512", {"sasl.username": "nobody"}, "sasl.password"),
    ("scram-512", {"tls.ca": "system"}, "tls.ca"),
    ("scram-512", {"tls.ca": "CLIENT"}, "tls.ca"),
    ("certificate", {"tls.certificate": "", "tls.key": ""}, "tls.certificate"),
]


def wrong(secured: Secured, security: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """The section with changes; an empty value removes a key."""
    given = {
        **security,
        **{key: str(secured.certificate) if value == "CLIENT" else value for key, value in changes.items()},
    }
    return {key: value for key, value in given.items() if value}


@pytest.mark.parametrize(("name", "changes", "key"), WRONG)
def test_doctor_names_the_key_of_the_journal(secured: Secured, name: str, changes: dict[str, str], key: str) -> None:
    settings = secured.settings(name)
    settings["journal"]["security"] = wrong(secured, settings["journal"]["security"], changes)
    found = machine.journal(parse(settings))
    assert (found.status, f"journal.security.{key}" in found.todo) == ("fail", True), found


@pytest.mark.parametrize(("name", "changes", "key"), WRONG)
def test_an_error_names_the_key_of_a_cluster(secured: Secured, name: str, changes: dict[str, str], key: str) -> None:
    address, security = secured.way(name)
    endpoint = Endpoint("east", address, 0, {}, security=wrong(secured, security, changes), system="kafka")
    with Admin(endpoint, 4.0) as admin, pytest.raises(Stop, match=rf"kafka\.east\.security\.{re.escape(key)}"):
        admin.ask("describe the cluster", admin.client.describe_cluster)
