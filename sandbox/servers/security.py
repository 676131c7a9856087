"""Security of sandbox brokers with authenticated listeners: keys, users, the authorizer, and client options.

Keys are created with keytool, a class of the module java.base, so that a reduced Java also has it. Users
log in with SASL/PLAIN, or with SCRAM after an admin created their credentials (KIP-554); the listener SSL takes client
certificates. Anonymous clients (plain listener, other brokers) have all permissions.
Settings: server.properties and the security chapter of Kafka's documentation.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from trueup.connectors.embedded.server import jvm

PASSWORD = "only-on-127.0.0.1"  # noqa: S105 - for keys that are created for every sandbox
USERS: Mapping[str, str] = MappingProxyType({"admin": "admin-secret", "link": "link-secret", "guest": "guest-secret"})
LOGINS = ("SASL_PLAINTEXT", "SASL_SSL")
CERTIFIED = "SSL"
_SCRAM = ("scram-sha-256", "scram-sha-512")
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
_SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


@dataclass(frozen=True, slots=True)
class Security:
    """The keys and the security settings of a cluster, shared by all its brokers."""

    root: Path
    """The directory that contains the keys."""
    users: Mapping[str, str] = field(default_factory=lambda: USERS, repr=False)
    """The password of each user, by name of the user."""
    authorizer: bool = True
    """Whether ACLs are enforced (StandardAuthorizer). The users admin and anonymous have all permissions, other users
    have those granted by ACLs."""
    clients: Path | None = None
    """The PEM file with the authorities of client certificates. The user of a client is the subject of its certificate.
    Without the file there is no listener for client certificates."""
    issuer: str = ""
    """The URL of a provider whose tokens are accepted (OAUTHBEARER); empty if there is none."""
    session_ms: int = 0
    """Milliseconds after which brokers require that clients log in again (KIP-368); 0 if they do not require it."""

    @property
    def listeners(self) -> tuple[str, ...]:
        """The authenticated listeners."""
        return (*LOGINS, CERTIFIED) if self.clients else LOGINS

    @property
    def certificate(self) -> Path:
        """PEM file with the certificate to trust."""
        return self.root / "certificate.pem"

    def make(self) -> None:
        """Create the key and its certificate once, for 127.0.0.1. Raises `Stop` on failure."""
        if self.certificate.exists():
            return
        store = self.root / "keys.p12"
        store.unlink(missing_ok=True)
        _keytool(
            self.root,
            "-genkeypair",
            "-keyalg",
            "EC",
            "-groupname",
            "secp256r1",
            "-dname",
            "CN=127.0.0.1",
            "-ext",
            "san=ip:127.0.0.1",
            "-validity",
            3650,
            "-storetype",
            "PKCS12",
        )
        _keytool(self.root, "-exportcert", "-rfc", "-file", self.certificate)

    def settings(self) -> dict[str, object]:
        """The entries of server.properties besides the listeners."""
        logins = " ".join(f'user_{name}="{password}"' for name, password in self.users.items())
        jaas = f"org.apache.kafka.common.security.plain.PlainLoginModule required {logins};"
        modules = {"plain": jaas, **dict.fromkeys(_SCRAM, _SCRAM_LOGIN)}
        if self.issuer:
            modules["oauthbearer"] = f"{_OAUTH}.OAuthBearerLoginModule required;"
        return {
            "sasl.enabled.mechanisms": ",".join(modules).upper(),
            **{
                f"listener.name.{name.lower()}.{mechanism}.sasl.jaas.config": module
                for name in LOGINS
                for mechanism, module in modules.items()
            },
            **(_certified(self.clients) if self.clients else {}),
            **(_tokens(self.issuer) if self.issuer else {}),
            **({"connections.max.reauth.ms": self.session_ms} if self.session_ms else {}),
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": self.root / "keys.p12",
            "ssl.keystore.password": PASSWORD,
            **(_AUTHORIZER if self.authorizer else {}),
        }

    @property
    def flags(self) -> list[str]:
        """Flags of the broker's JVM: the addresses of which it may read keys."""
        return [f"-D{_ALLOWED}={self.issuer}/keys"] if self.issuer else []

    def client(self, listener: str, user: str = "admin") -> dict[str, str]:
        """A client's options (librdkafka's names) for a listener; none for the plain one."""
        if listener not in LOGINS:
            return {}
        trust = {"ssl.ca.location": str(self.certificate)} if listener == "SASL_SSL" else {}
        login = {"sasl.mechanism": "PLAIN", "sasl.username": user, "sasl.password": self.users[user]}
        return {"security.protocol": listener, **login, **trust}


_AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
}


def _certified(authorities: Path) -> dict[str, object]:
    """The listener for clients with certificates (KIP-651)."""
    prefix = f"listener.name.{CERTIFIED.lower()}.ssl"
    return {
        f"{prefix}.client.auth": "required",
        f"{prefix}.truststore.type": "PEM",
        f"{prefix}.truststore.location": authorities,
    }


def _tokens(issuer: str) -> dict[str, object]:
    """Tokens of the provider, whose audience is kafka (KIP-768)."""
    handler = f"{_OAUTH}.OAuthBearerValidatorCallbackHandler"
    return {
        **{f"listener.name.{name.lower()}.oauthbearer.sasl.server.callback.handler.class": handler for name in LOGINS},
        "sasl.oauthbearer.jwks.endpoint.url": f"{issuer}/keys",
        "sasl.oauthbearer.expected.issuer": issuer,
        "sasl.oauthbearer.expected.audience": "kafka",
    }


def _keytool(root: Path, do: str, *words: object) -> None:
    store = ["-alias", "broker", "-keystore", root / "keys.p12", "-storepass", PASSWORD]
    main = ["--module", "java.base/sun.security.tools.keytool.Main", do, *words, *store]
    jvm("keytool", root / "keytool", [], main, ["-Xmx64m", "-XX:TieredStopAtLevel=1"]).run(60.0)
