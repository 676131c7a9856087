"""The broker of the embedded journal: every client must log in, and only who can read its directory knows the password.

Clients use SCRAM (RFC 5802), which does not send the password: while the broker is down, any process of the machine can
listen on its port. The broker itself uses PLAIN, because a new controller has no SCRAM credentials (KIP-900): a
connection to itself, and one connection of `EmbeddedKafka.wait_ready`, with a password that is valid for one start.
"""

import secrets
import time
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from trueup.connectors.embedded.jars import Progress
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.embedded.server import write_whole
from trueup.state.common.errors import Retry

USER, MECHANISM = "trueup", "SCRAM-SHA-512"
_ITERATIONS = 4_096
"""The least that Kafka accepts; the password is random, so that more would not help."""
_BROKER = "broker"
_ASK_S, _LOGIN_S = 10.0, 30.0
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


class EmbeddedKafka(Kafka):
    """A broker with its data in ``root``, which is made a directory of this user alone. It serves only clients that log
    in as `security` says; its controller serves only itself."""

    listener = "SASL_PLAINTEXT"

    def __init__(self, root: Path, progress: Progress | None = None) -> None:
        root.mkdir(parents=True, exist_ok=True)
        root.chmod(0o700)
        super().__init__(root, progress=progress)
        self._own = ""
        self._secret = self.root / "password"
        if not self._secret.exists() or not self._secret.stat().st_size:
            write_whole(self._secret, secrets.token_urlsafe(32), 0o600)

    @property
    def security(self) -> dict[str, str]:
        """The login of clients, in the vocabulary of `state.settings.kafka_security`."""
        return {"sasl.mechanism": MECHANISM, "sasl.username": USER, "sasl.password.file": str(self._secret)}

    def prepare(self) -> None:
        """Create the broker's own password for this start, then as `Kafka.prepare`."""
        self._own = secrets.token_urlsafe(32)
        super().prepare()
        self._write_settings()

    def wait_ready(self) -> None:
        """Wait until clients can log in. Raises `Stop` if the broker dies first, `Retry` after the time-out."""
        super().wait_ready()
        self._admit()

    def logins(self) -> dict[str, object]:
        """The entries of server.properties for logins of clients, of the broker, and to the controller."""
        own = f'{_PLAIN} username="{_BROKER}" password="{self._own}" user_{_BROKER}="{self._own}";'
        clients = f"listener.name.{self.listener.lower()}"
        return {
            "listener.security.protocol.map": f"CONTROLLER:{self.listener},{self.listener}:{self.listener}",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": own,
            f"{clients}.sasl.enabled.mechanisms": f"PLAIN,{MECHANISM}",
            f"{clients}.plain.sasl.jaas.config": own,
            f"{clients}.{MECHANISM.lower()}.sasl.jaas.config": _SCRAM,
        }

    def _admit(self) -> None:
        """Store the credentials of clients, and wait until the broker knows them. Raises `Retry`.

        A process that took the port of a broker that just died learns nothing that is valid at the next start: the
        broker's password and the salt of the credentials are new then.
        """
        password = self._secret.read_text()
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS)
        credential = UserScramCredentialUpsertion(USER, info, password.encode())
        admin = AdminClient(self._client(_BROKER, "PLAIN", self._own))
        try:
            admin.alter_user_scram_credentials([credential], request_timeout=_ASK_S)[USER].result()
        except KafkaException as error:
            reason = str(error.args[0])
            raise Retry("the embedded broker to store the login of its clients", reason, "start again") from error
        login = self._client(USER, MECHANISM, password)
        wait_until(lambda: _knows(login), _LOGIN_S, "the login of clients to be valid at the embedded broker")

    def _client(self, user: str, mechanism: str, password: str) -> dict[str, str | int | float | bool]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": self.listener,
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "log_level": "0",
        }


def _knows(login: Mapping[str, str | int | float | bool]) -> bool:
    try:
        AdminClient(dict(login)).list_topics(timeout=2.0)
    except KafkaException:
        time.sleep(0.05)
        return False
    return True
