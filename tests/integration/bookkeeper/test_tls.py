"""A real bookie with a name as id and a certificate, which asks for certificates of clients, and one that requires a
login."""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.certificates import certify
from trueup.connectors.bookkeeper.bookie.entries import Digest, DigestType
from trueup.connectors.bookkeeper.bookie.reader import Bookies, LedgerReader
from trueup.connectors.bookkeeper.bookie.security import bookie_tls
from trueup.connectors.bookkeeper.deletion.presence import PresenceAnswer, presence
from trueup.connectors.bookkeeper.metadata import queries
from trueup.connectors.bookkeeper.metadata.addresses import Addresses
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.servers.security import PASSWORD, Security
from trueup.sandbox.writer import LedgerWriter, payload
from trueup.state.common.errors import BadSettings
from trueup.streams.bookkeeper.bookie_checks import connections

pytestmark = pytest.mark.servers
BOOKIE, OPEN = "first-of-all", "without-tls"
FACTORY = "org.apache.bookkeeper.tls.TLSContextFactory"
SASL = "org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory"
_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule required"
Options = Mapping[str, str]


class Keys:
    """The key of the bookies, of a client that they trust, and of one that they do not trust."""

    def __init__(self, root: Path) -> None:
        self.server = Security(root / "server")
        self.server.make()
        (self.server.root / "password").write_text(PASSWORD)
        for name in ("client", "stranger"):
            (root / name).mkdir()
        self.certificate, self.key = certify(root / "client")
        self.stranger = certify(root / "stranger")

    def bookie(self) -> dict[str, object]:
        """Settings of a bookie that asks for a certificate."""
        return {
            "tlsProvider": "JDK",
            "tlsProviderFactoryClass": FACTORY,
            "tlsKeyStoreType": "PKCS12",
            "tlsKeyStore": self.server.root / "keys.p12",
            "tlsKeyStorePasswordPath": self.server.root / "password",
            "tlsClientAuthentication": "true",
            "tlsTrustStoreType": "PEM",
            "tlsTrustStore": self.certificate,
        }

    def client(self, **other: str) -> dict[str, str]:
        """cluster.bookies; ``other`` replaces keys, an empty value removes one."""
        known = {
            "tls.ca": str(self.server.certificate),
            "tls.certificate": str(self.certificate),
            "tls.key": str(self.key),
            **{name.replace("_", "."): value for name, value in other.items()},
        }
        return {name: value for name, value in known.items() if value}


@pytest.fixture(scope="module")
def keys(new_root: Callable[[], Path]) -> Keys:
    return Keys(new_root())


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., SandboxCluster], keys: Keys) -> SandboxCluster:
    return start_cluster(racks={"/rack1": 1}, autorecovery=0, settings={"bookieId": BOOKIE, **keys.bookie()})


@pytest.fixture(scope="module")
def ledger(cluster: SandboxCluster) -> int:
    with LedgerWriter(cluster) as writer:
        return writer.write(1, 1, 1, 30)


@pytest.fixture
def connect() -> Iterator[Callable[[SandboxCluster], ZooKeeperClient]]:
    made: list[ZooKeeperClient] = []

    def connect(cluster: SandboxCluster) -> ZooKeeperClient:
        made.append(ZooKeeperClient(cluster.zookeeper.address, timeout=30.0).open())
        return made[-1]

    yield connect
    for client in made:
        client.shut()


@pytest.fixture
def client(connect: Callable[[SandboxCluster], ZooKeeperClient], cluster: SandboxCluster) -> ZooKeeperClient:
    return connect(cluster)


@pytest.fixture
def addresses(client: ZooKeeperClient) -> Addresses:
    return Addresses(client, queries.paths_of(client, "/ledgers"))


def rows(addresses: Addresses, options: Options, bookie: str = BOOKIE) -> list[tuple[str, str, str]]:
    """The rows of the doctor: status, what was found, and what to do."""
    return [(row.status, row.found, row.todo) for row in connections([bookie], addresses, bookie_tls(options))]


def test_a_bookie_is_found_by_its_registration(cluster: SandboxCluster, ledger: int, addresses: Addresses) -> None:
    host, port = cluster.bookie_id(1).split(":")
    assert addresses(BOOKIE) == (host, int(port))


def test_a_ledger_is_read_over_tls(client: ZooKeeperClient, ledger: int, addresses: Addresses, keys: Keys) -> None:
    found = queries.one(client, queries.paths_of(client, "/ledgers"), ledger, 0)
    assert found is not None
    with Bookies(addresses, 5.0, bookie_tls(keys.client())) as bookies:
        reader = LedgerReader(found[0], Digest(DigestType.CRC32C), bookies, pytest.fail)
        read = {entry: bytes(content) for entry, content in reader.read()}
    assert read == {entry: payload(ledger, entry) for entry in range(30)}


def test_a_bookie_is_asked_over_tls(ledger: int, addresses: Addresses, keys: Keys) -> None:
    tls = bookie_tls(keys.client())
    assert presence({ledger: [BOOKIE]}, addresses, 5.0, tls=tls) == {ledger: {BOOKIE: PresenceAnswer.HELD}}


def test_the_doctor_reads_from_the_bookie(addresses: Addresses, keys: Keys) -> None:
    assert rows(addresses, keys.client()) == [("ok", "1 of 1 bookie responded, TLS", "")]


@pytest.mark.parametrize(
    ("other", "key"),
    [
        ({"tls_ca": "system"}, "tls.ca"),
        ({"tls_certificate": "", "tls_key": ""}, "tls.certificate"),
        ({"tls_certificate": "stranger", "tls_key": "stranger"}, "tls.certificate"),
    ],
)
def test_the_doctor_names_the_key_that_the_bookie_refuses(
    other: dict[str, str], key: str, addresses: Addresses, keys: Keys
) -> None:
    chosen = {
        name: str(keys.stranger[name == "tls_key"]) if value == "stranger" else value for name, value in other.items()
    }
    ((status, _, todo),) = rows(addresses, keys.client(**chosen))
    assert (status != "ok", f"cluster.bookies.{key}" in todo) == (True, True), todo


def test_a_password_of_a_key_that_is_not_there_is_named(keys: Keys) -> None:
    with pytest.raises(BadSettings, match=r"cluster\.bookies\.tls\.key\.password\.env: expected the variable NO_SUCH"):
        bookie_tls(keys.client(**{"tls.key.password.env": "NO_SUCH"}))


@pytest.fixture(scope="module")
def with_login(new_root: Callable[[], Path], start_cluster: Callable[..., SandboxCluster]) -> SandboxCluster:
    """A cluster without TLS whose bookie requires SASL."""
    jaas = new_root() / "jaas.conf"
    jaas.write_text(f'Bookie {{ {_MODULE} user_writer="secret"; }};\n')
    with pytest.MonkeyPatch.context() as environment:
        flags = f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} -Djava.security.auth.login.config={jaas}"
        environment.setenv("JAVA_TOOL_OPTIONS", flags)
        settings = {"bookieId": OPEN, "bookieAuthProviderFactoryClass": SASL}
        return start_cluster(racks={"/rack1": 1}, autorecovery=0, settings=settings)


@pytest.fixture
def places(connect: Callable[[SandboxCluster], ZooKeeperClient], with_login: SandboxCluster) -> Addresses:
    client = connect(with_login)
    return Addresses(client, queries.paths_of(client, "/ledgers"))


def test_the_doctor_says_that_a_login_of_a_bookie_is_not_supported(places: Addresses) -> None:
    ((status, _, todo),) = rows(places, {}, OPEN)
    assert (status, "requires a login (bookieAuthProviderFactoryClass)" in todo) == ("fail", True), todo


def test_the_doctor_says_that_a_bookie_has_no_tls(places: Addresses, keys: Keys) -> None:
    ((status, _, todo),) = rows(places, keys.client(), OPEN)
    assert (status, todo.startswith("remove cluster.bookies")) == ("fail", True), todo
