"""A real bookie with a name as id and a certificate, located by its registration and read over TLS."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trueup.connectors.bookkeeper.bookie.entries import Digest, ReadResult
from trueup.connectors.bookkeeper.bookie.reader import Bookies, LedgerReader
from trueup.connectors.bookkeeper.deletion.presence import PresenceAnswer, presence
from trueup.connectors.bookkeeper.metadata import queries
from trueup.connectors.bookkeeper.metadata.addresses import Addresses
from trueup.connectors.sandbox.cluster import SandboxCluster
from trueup.connectors.sandbox.servers.security import PASSWORD, Security
from trueup.connectors.sandbox.writer import LedgerWriter, payload
from trueup.connectors.tls import tls_of
from trueup.connectors.zookeeper.client import ZooKeeperClient
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
def cluster(start_cluster: Callable[..., SandboxCluster], security: Security) -> SandboxCluster:
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
def ledger(cluster: SandboxCluster) -> int:
    with LedgerWriter(cluster) as writer:
        return writer.write(1, 1, 1, 30)


@pytest.fixture
def client(cluster: SandboxCluster) -> Iterator[ZooKeeperClient]:
    made = ZooKeeperClient(cluster.zookeeper.address, timeout=30.0).open()
    yield made
    made.shut()


@pytest.fixture
def addresses(client: ZooKeeperClient) -> Addresses:
    return Addresses(client, queries.paths_of(client, "/ledgers"))


def test_a_bookie_is_found_by_its_registration(cluster: SandboxCluster, ledger: int, addresses: Addresses) -> None:
    host, port = cluster.bookie_id(1).split(":")
    assert addresses(BOOKIE) == (host, int(port))


def test_a_ledger_is_read_over_tls(
    client: ZooKeeperClient, ledger: int, addresses: Addresses, security: Security
) -> None:
    found = queries.one(client, queries.paths_of(client, "/ledgers"), ledger, 0)
    assert found is not None
    with Bookies(addresses, 5.0, tls_of({"tls.ca": str(security.certificate)})) as bookies:
        reader = LedgerReader(found[0], Digest(ReadResult.CRC32C), bookies, pytest.fail)
        read = {entry: bytes(content) for entry, content in reader.read()}
    assert read == {entry: payload(ledger, entry) for entry in range(30)}


def test_a_bookie_is_asked_over_tls(ledger: int, addresses: Addresses, security: Security) -> None:
    tls = tls_of({"tls.ca": str(security.certificate)})
    assert presence({ledger: [BOOKIE]}, addresses, 5.0, tls=tls) == {ledger: {BOOKIE: PresenceAnswer.HELD}}


def test_a_certificate_that_is_not_trusted_stops_us(ledger: int, addresses: Addresses) -> None:
    with (
        Bookies(addresses, 5.0, tls_of({"tls.ca": "system"})) as bookies,
        pytest.raises(Stop, match=f"expected a TLS handshake with bookie {BOOKIE}; .*certificate verify failed"),
    ):
        bookies.calls(BOOKIE)
