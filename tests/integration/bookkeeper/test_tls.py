"""A real bookie with a name for an id and a certificate: found by its registration, read over TLS."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trueup.connectors.bookkeeper.bookie.connection import tls_of
from trueup.connectors.bookkeeper.bookie.entries import Digest, Kind
from trueup.connectors.bookkeeper.bookie.reader import Bookies, Reader
from trueup.connectors.bookkeeper.deletion.presence import Answer, presence
from trueup.connectors.bookkeeper.metadata import queries
from trueup.connectors.bookkeeper.metadata.addresses import Addresses
from trueup.connectors.sandbox.cluster import Cluster
from trueup.connectors.sandbox.servers.security import PASSWORD, Security
from trueup.connectors.sandbox.writer import Writer, payload
from trueup.connectors.zookeeper.client import Client
from trueup.state.common.errors import Stop

pytestmark = pytest.mark.servers
BOOKIE = "first-of-all"


@pytest.fixture(scope="module")
def security(new_root: Callable[[], Path]) -> Security:
    made = Security(new_root())
    made.make()
    (made.root / "password").write_text(PASSWORD)
    return made


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., Cluster], security: Security) -> Cluster:
    tls = {
        "tlsProvider": "JDK",
        "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
        "tlsKeyStoreType": "PKCS12",
        "tlsKeyStore": security.root / "keys.p12",
        "tlsKeyStorePasswordPath": security.root / "password",
        "tlsClientAuthentication": "false",
    }
    return start_cluster(racks={"/rack1": 1}, autorecovery=0, settings={"bookieId": BOOKIE, **tls})


@pytest.fixture(scope="module")
def ledger(cluster: Cluster) -> int:
    with Writer(cluster) as writer:
        return writer.write(1, 1, 1, 30)


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    made = Client(cluster.zookeeper.address, timeout=30.0).open()
    yield made
    made.shut()


@pytest.fixture
def addresses(client: Client) -> Addresses:
    return Addresses(client, queries.paths_of(client, "/ledgers"))


def test_a_bookie_is_found_by_its_registration(cluster: Cluster, ledger: int, addresses: Addresses) -> None:
    host, port = cluster.bookie_id(1).split(":")
    assert addresses(BOOKIE) == (host, int(port))


def test_a_ledger_is_read_over_tls(client: Client, ledger: int, addresses: Addresses, security: Security) -> None:
    found = queries.one(client, queries.paths_of(client, "/ledgers"), ledger, 0)
    assert found is not None
    with Bookies(addresses, 5.0, tls_of({"tls.ca": str(security.certificate)})) as bookies:
        reader = Reader(found[0], Digest(Kind.CRC32C), bookies, pytest.fail)
        read = {entry: bytes(content) for entry, content in reader.read()}
    assert read == {entry: payload(ledger, entry) for entry in range(30)}


def test_a_bookie_is_asked_over_tls(ledger: int, addresses: Addresses, security: Security) -> None:
    tls = tls_of({"tls.ca": str(security.certificate)})
    assert presence({ledger: [BOOKIE]}, addresses, 5.0, tls=tls) == {ledger: {BOOKIE: Answer.HELD}}


def test_a_certificate_that_is_not_trusted_stops_us(ledger: int, addresses: Addresses) -> None:
    with (
        Bookies(addresses, 5.0, tls_of({"tls.ca": "system"})) as bookies,
        pytest.raises(Stop, match=f"expected a TLS handshake with bookie {BOOKIE}; .*certificate verify failed"),
    ):
        bookies.calls(BOOKIE)
