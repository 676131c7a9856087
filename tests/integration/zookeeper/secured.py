"""A ZooKeeper with a port for TLS that requires client certificates, and users of DIGEST-MD5."""

from collections.abc import Mapping
from pathlib import Path

from tests.certificates import certify
from trueup.connectors.embedded.processes import Port
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.connectors.zookeeper.session import client_of
from trueup.sandbox.servers.security import PASSWORD, Security
from trueup.sandbox.servers.zookeeper import JVM, ZooKeeper
from trueup.state.settings.settings import ClusterSettings

USERS = {"trueup": "trueup secret", "bookkeeper": "bookkeeper-secret"}
_JAAS = """Server {{
  org.apache.zookeeper.server.auth.DigestLoginModule required {users};
}};
"""


class SecuredZooKeeper:
    """The server and its files. ``server.address`` is the port without TLS, ``tls`` the one with it."""

    def __init__(self, root: Path) -> None:
        (root / "client").mkdir(parents=True)
        (root / "stranger").mkdir()
        self.security = Security(root / "keys")
        self.security.make()
        self.certificate, self.key = certify(root / "client")
        self.stranger = certify(root / "stranger")
        self.password = root / "password"
        self.password.write_text(f"{USERS['trueup']}\n")
        jaas = root / "jaas.conf"
        jaas.write_text(_JAAS.format(users=" ".join(f'user_{name}="{word}"' for name, word in USERS.items())))
        self._port = Port()
        self.tls = str(self._port)
        settings = {
            "secureClientPort": self._port.number,
            "secureClientPortAddress": self._port.host,
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": self.security.root / "keys.p12",
            "ssl.keyStore.type": "PKCS12",
            "ssl.keyStore.password": PASSWORD,
            "ssl.trustStore.location": self.certificate,
            "ssl.trustStore.type": "PEM",
            "ssl.hostnameVerification": "false",
            "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        }
        flags = [*JVM, f"-Djava.security.auth.login.config={jaas}"]
        self.server = ZooKeeper(root / "server", flags=flags, settings=settings)

    def close(self) -> None:
        self.server.close()
        self._port.release()

    def trust(self, **more: str) -> dict[str, str]:
        """Keys of TLS with the client's certificate."""
        return {
            "tls.ca": str(self.security.certificate),
            "tls.certificate": str(self.certificate),
            "tls.key": str(self.key),
            **more,
        }

    def login(self, kind: str) -> dict[str, str]:
        """Keys of the user trueup."""
        mechanism = {"sasl.mechanism": "DIGEST-MD5"} if kind == "sasl" else {}
        return {**mechanism, f"{kind}.username": "trueup", f"{kind}.password.file": str(self.password)}

    def cluster(
        self, security: Mapping[str, str], tls: bool = False, auth: Mapping[str, str] | None = None, root: str = ""
    ) -> ClusterSettings:
        """The settings of a client."""
        address = self.tls if tls else self.server.address
        return ClusterSettings(
            zookeeper=address, security=dict(security), auth=dict(auth or {}), ledgers_root=root or "/ledgers"
        )

    def client(
        self, security: Mapping[str, str], tls: bool = False, auth: Mapping[str, str] | None = None, root: str = ""
    ) -> ZooKeeperClient:
        """A client, not opened yet."""
        return client_of(self.cluster(security, tls, auth, root))
