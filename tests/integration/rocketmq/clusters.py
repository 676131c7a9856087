"""Clusters of RocketMQ for a module, and what their tests share."""

import datetime
import ipaddress
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.rocketmq.client import messages, topics
from trueup.connectors.rocketmq.client.cluster import RocketMqClient
from trueup.connectors.rocketmq.client.connection import RocketMqConnection
from trueup.connectors.rocketmq.protocol.stored import StoredMessages
from trueup.sandbox.servers.rocketmq import NameServer, RocketMqBroker, Tls
from trueup.state.common.errors import Retry

BORN_MS = 1_700_000_000_000


class Cluster:
    """Name servers, and brokers by name. ``client``: with all permissions."""

    def __init__(self, name_servers: list[NameServer], brokers: list[RocketMqBroker], **options: str) -> None:
        self.name_servers, self.brokers = name_servers, {broker.name: broker for broker in brokers}
        self.options = options
        self.client = self.as_user()

    def as_user(self, **options: str) -> RocketMqClient:
        """A client with these options instead of those of the cluster."""
        return RocketMqClient(self.endpoint(**options))

    def endpoint(self, name: str = "east", bit: int = 0, **options: str) -> Endpoint:
        """The cluster as an end of a link, with these options instead of its own."""
        given = {option.replace("_", "."): value for option, value in {**self.options, **options}.items()}
        return Endpoint(name, ";".join(server.address for server in self.name_servers), bit, given, "rocketmq")

    def new_topic(self, name: str, queues: int = 1, **settings: object) -> list[LogId]:
        """The queues of a topic that was created on all brokers."""
        for broker in self.brokers:
            topics.put_topic(self.client, broker, topics.RocketMqTopic(name, queues, queues, **settings))  # type: ignore[arg-type]
        return wait_for_queues(self.client, name, queues * len(self.brokers))


@contextmanager
def running(
    new_root: Callable[[], Path],
    name_servers: int = 1,
    brokers: tuple[str, ...] = ("broker-a",),
    user: tuple[str, str] | None = None,
    tls: Tls | None = None,
    settings: Mapping[str, object] | None = None,
    **options: str,
) -> Iterator[Cluster]:
    with ExitStack() as stack:
        plain = Tls(tls.certificate, tls.key) if tls else None
        servers = [stack.enter_context(NameServer(new_root(), f"names{n}", plain)) for n in range(name_servers)]
        made = [
            stack.enter_context(RocketMqBroker(new_root(), servers, name, user=user, tls=tls, settings=settings))
            for name in brokers
        ]
        for group in (servers, made):
            for server in group:
                server.start()
            for server in group:
                server.wait_ready()
        cluster = Cluster(servers, made, **options)
        stack.enter_context(cluster.client)
        yield cluster


def wait_for_figures(client: RocketMqClient, broker: str) -> None:
    """Wait until a broker that was started has its first figures: until then, it fails to list them."""
    wait_until(lambda: _has_figures(client, broker), 180.0, f"the first figures of {broker}")


def _has_figures(client: RocketMqClient, broker: str) -> bool:
    try:
        return bool(topics.runtime(client, broker))
    except Retry:
        return False


def wait_for_queues(client: RocketMqClient, topic: str, queues: int, limit_s: float = 180.0) -> list[LogId]:
    wait_until(
        lambda: topic in client.topics() and len(client.logs(topic)) == queues, limit_s, f"{queues} queues of {topic}"
    )
    return client.logs(topic)


def wait_for_end(connection: RocketMqConnection, log: LogId, end: int) -> None:
    """Wait until readers see this end: it lags behind acknowledgements."""
    ask = messages.end_offset(log)
    wait_until(lambda: messages.offset_of(connection.ask(ask)) >= end, 180.0, f"{end} messages in {log}")


def read(connection: RocketMqConnection, log: LogId, offset: int, most: int = 100) -> StoredMessages:
    """Messages of a queue, of which there must be some."""
    found = messages.pulled(connection.ask(messages.pull(log, offset, most))).messages
    assert found is not None
    return found


def keys_for(root: Path) -> Tls:
    """A key and its own certificate for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    certificate = (
        builder.not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    made = Tls(root / "certificate.pem", root / "key.pem", enforced=True)
    made.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    form, none = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    made.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, none))
    return made
