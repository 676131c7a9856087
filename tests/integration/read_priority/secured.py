"""Two real brokers whose admin API needs a token and uses TLS."""

import base64
import hashlib
import hmac
import json
from pathlib import Path

from trueup.connectors.embedded.server import LocalServer
from trueup.sandbox.pulsar import PulsarBroker, SandboxPulsar
from trueup.sandbox.servers.security import PASSWORD, Security

KEY = b"only-on-127.0.0.1-and-32-bytes-long"
_PROVIDER = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"
_PLUGIN = "org.apache.pulsar.client.impl.auth.AuthenticationToken"


def token_of(role: str, key: bytes = KEY) -> str:
    """A JSON Web Token of a role (RFC 7519, HS256)."""
    head = ".".join(_part(json.dumps(part).encode()) for part in ({"alg": "HS256"}, {"sub": role}))
    return f"{head}.{_part(hmac.new(key, head.encode(), hashlib.sha256).digest())}"


def _part(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


class SecuredPulsar(SandboxPulsar):
    """Servers as of `SandboxPulsar`, and broker2. ``secure``: addresses of the admin API of both with TLS. The role
    admin is the superuser. Each topic is owned by one broker; the other redirects."""

    def __init__(self, root: Path, **settings: object) -> None:
        super().__init__(root, tiered=True)
        self.security = Security(self.root / "keys")
        self.security.root.mkdir(parents=True, exist_ok=True)
        self._key = self.security.root / "token.key"
        self._key.write_bytes(KEY)
        self.secure: list[str] = []
        self.broker = self._secured("broker", settings)
        self.second = self._secured("broker2", settings)
        self._ports.save()

    def _secured(self, name: str, settings: dict[str, object]) -> PulsarBroker:
        binary, web, tls = (self._ports.take(f"{name}-secured{kind}") for kind in ("", "-web", "-tls"))
        self.secure.append(f"https://{tls}")
        quorums = {f"managedLedgerDefault{what}": 2 for what in ("EnsembleSize", "WriteQuorum", "AckQuorum")}
        given = {**quorums, **self._offloading(), **self._access(), "webServicePortTls": tls.number, **settings}
        root = self.root / name
        made = PulsarBroker(root, self.zookeeper.address, binary, web, self.jar_set, given, tiered=True, name=name)
        made.headers = {"Authorization": f"Bearer {token_of('admin')}"}
        return made

    def _access(self) -> dict[str, object]:
        store = {"Type": "PKCS12", "": self.security.root / "keys.p12", "Password": PASSWORD}
        return {
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "superUserRoles": "admin",
            "authenticationProviders": _PROVIDER,
            "tokenSecretKey": f"file://{self._key}",
            "brokerClientAuthenticationPlugin": _PLUGIN,
            "brokerClientAuthenticationParameters": f"token:{token_of('admin')}",
            "topicLevelPoliciesEnabled": "true",
            "systemTopicEnabled": "true",
            "tlsEnabledWithKeyStore": "true",
            **{f"tls{kind}{name}": value for kind in ("KeyStore", "TrustStore") for name, value in store.items()},
        }

    @property
    def servers(self) -> dict[str, LocalServer]:
        """See `SandboxPulsar`."""
        return {**super().servers, self.second.name: self.second}

    @property
    def bookie_clients(self) -> list[LocalServer]:
        """See `SandboxPulsar`."""
        return [*super().bookie_clients, self.second]

    def format(self) -> None:
        """See `SandboxPulsar`."""
        self.security.make()
        super().format()

    def down(self, grace_s: float = 10.0) -> None:
        """See `SandboxPulsar`."""
        if grace_s:
            self.second.stop(grace_s)
        super().down(grace_s)
