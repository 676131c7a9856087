"""Certificates and passwords that are replaced while clients run: the same objects use the new ones."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tests.certificates import certify
from trueup.connectors.contract import Endpoint
from trueup.connectors.kafka.client.admin import Admin
from trueup.connectors.kafka.logdirs.client import LogDirsClient
from trueup.connectors.kafka.replication.heartbeat import Heartbeats
from trueup.connectors.sandbox.jvm.processes import wait_until
from trueup.connectors.sandbox.servers.kafka import Kafka
from trueup.connectors.sandbox.servers.security import Security
from trueup.state.common.errors import TrueupError

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
        self._secured, self._kind = secured, kind
        self._files = (root / "certificate.pem", root / "key.pem")
        self._password = root / "password"
        self.spoil()

    def spoil(self) -> None:
        for place, file in zip(self._files, self._secured.stranger, strict=True):
            shutil.copyfile(file, place)
        self._password.write_text(OLD)

    def endpoint(self) -> Endpoint:
        ca = {"tls.ca": str(self._secured.security.certificate)}
        if self._kind == "certificate":
            own = {"tls.certificate": str(self._files[0]), "tls.key": str(self._files[1])}
            return Endpoint("east", self._secured.broker.address("SSL"), 0, {}, security={**ca, **own})
        login = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "link", "sasl.password.file": str(self._password)}
        return Endpoint("east", self._secured.broker.address("SASL_SSL"), 0, {}, security={**ca, **login})

    def replace(self) -> None:
        if self._kind == "password":
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
    with closing(Heartbeats(way.endpoint(), "beats")) as beats:
        beats.prepare()
        before = beats._ready
        way.replace()

        def arrived() -> bool:
            beats.prepare()
            beats.write(b"us", int(time.time() * 1_000))
            return bool(beats.read(b"us"))

        wait_until(arrived, 180.0, "a heartbeat")
        assert not before
