"""Certificates and passwords that are replaced while clients run: the same objects use the new ones."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.certificates import certify
from tests.replication.audit import ends
from tests.replication.writers import Site
from trueup.connectors.contract import Assignment, Connector, Endpoint, Lease, LogId, Position
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.kafka.client.admin import Admin
from trueup.connectors.kafka.logdirs.client import LogDirsClient
from trueup.connectors.kafka.replication.connector import Batches
from trueup.connectors.kafka.replication.heartbeat import KafkaHeartbeats
from trueup.sandbox.servers.security import Security
from trueup.state.common.errors import TrueupError
from trueup.streams.replication.clusters import pump

pytestmark = [pytest.mark.servers, pytest.mark.release]
OLD, NEW = "old-password", "new-password"


class Secured:
    """A broker that trusts one client certificate, and has a user with a SCRAM password."""

    def __init__(self, root: Path) -> None:
        for name in ("trusted", "stranger"):
            (root / name).mkdir()
        self.trusted, self.stranger = certify(root / "trusted"), certify(root / "stranger")
        self.security = Security(root / "keys", clients=self.trusted[0], authorizer=False)
        self.broker = Kafka(root, "256m", security=self.security)

    def set_password(self, password: str) -> None:
        admin = AdminClient(self.broker.client())
        new = UserScramCredentialUpsertion(
            "link", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4_096), password.encode()
        )
        for future in admin.alter_user_scram_credentials([new]).values():
            future.result(30)


@pytest.fixture(scope="module")
def secured(new_root: Callable[[], Path]) -> Iterator[Secured]:
    made = Secured(new_root())
    with made.broker:
        made.broker.up()
        made.set_password(NEW)
        yield made


class Way:
    """A client's files, which are not valid until they are replaced."""

    def __init__(self, secured: Secured, root: Path, kind: str) -> None:
        self._secured, self.kind = secured, kind
        self._files = (root / "certificate.pem", root / "key.pem")
        self._password = root / "password"
        self.spoil()

    def spoil(self) -> None:
        for place, file in zip(self._files, self._secured.stranger, strict=True):
            shutil.copyfile(file, place)
        self._password.write_text(OLD)

    def endpoint(self) -> Endpoint:
        ca = {"tls.ca": str(self._secured.security.certificate)}
        if self.kind == "certificate":
            own = {"tls.certificate": str(self._files[0]), "tls.key": str(self._files[1])}
            return Endpoint("east", self._secured.broker.address("SSL"), 0, {}, "kafka", {**ca, **own})
        login = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "link", "sasl.password.file": str(self._password)}
        return Endpoint("east", self._secured.broker.address("SASL_SSL"), 0, {}, "kafka", {**ca, **login})

    def replace(self) -> None:
        if self.kind == "password":
            self._password.write_text(NEW)
            return
        for place, file in zip(self._files, self._secured.trusted, strict=True):
            new = place.with_suffix(".new")
            shutil.copyfile(file, new)
            new.replace(place)


@pytest.fixture(params=["certificate", "password"])
def way(request: pytest.FixtureRequest, secured: Secured, tmp_path: Path) -> Way:
    return Way(secured, tmp_path, request.param)


def works(call: Callable[[], object]) -> bool:
    try:
        call()
    except TrueupError:
        return False
    return True


def test_administration_uses_replaced_files(way: Way) -> None:
    with Admin(way.endpoint(), 3.0) as admin:

        def described() -> bool:
            return works(lambda: admin.ask("describe the cluster", admin.client.describe_cluster))

        before = described()
        way.replace()
        wait_until(described, 180.0, "an answer")
        assert not before


def test_log_directories_use_replaced_files(way: Way) -> None:
    way.replace()  # kafka-python connects when it is made
    with LogDirsClient(way.endpoint()) as client:
        way.spoil()
        spoiled = works(client.brokers)
        way.replace()
        assert (spoiled, client.brokers()) == (False, {1: ""})


def test_heartbeats_use_replaced_files(way: Way) -> None:
    with closing(KafkaHeartbeats(way.endpoint(), "beats")) as beats:
        beats.prepare()
        before = beats._ready
        way.replace()

        def arrived() -> bool:
            beats.prepare()
            beats.write(b"us", int(time.time() * 1_000))
            return bool(beats.read(b"us"))

        wait_until(arrived, 180.0, "a heartbeat")
        assert not before


@pytest.fixture(scope="module")
def source(new_root: Callable[[], Path]) -> Iterator[Kafka]:
    with Kafka(new_root(), "256m") as broker:
        broker.up()
        yield broker


@pytest.mark.parametrize(("path", "connector"), [("batches", Batches()), ("records", pump())])
def test_copiers_use_replaced_files_with_their_next_lease(
    path: str, connector: Connector, way: Way, secured: Secured, source: Kafka
) -> None:
    topic = f"{path}-{way.kind}"
    for broker in (source, secured.broker):
        admin = AdminClient(broker.client())
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": source.bootstrap})
    producer.produce(topic, b"one")
    producer.flush(30)
    east, west = Endpoint("east", source.bootstrap, 0, {}, "kafka"), replace(way.endpoint(), name="west", bit=1)
    lease = Lease("link", east, west, 7, path, (Assignment(LogId(topic, 0), LogId(topic, 0), Position(), 0),))

    def copied() -> bool:
        def leased() -> None:
            with closing(connector.open(lease)) as copier:
                copier.copy(time.monotonic() + 3.0, lambda: True)

        return works(leased) and ends(Site("", secured.broker.bootstrap, topic, 1)) == [1]

    before = copied()
    way.replace()
    wait_until(copied, 180.0, "the copy")
    assert not before
