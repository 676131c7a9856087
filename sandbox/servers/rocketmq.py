"""RocketMQ on 127.0.0.1: name servers and brokers as plain JVM processes (NamesrvStartup, BrokerStartup).

Settings: NamesrvConfig, BrokerConfig, MessageStoreConfig, AuthConfig and TlsSystemConfig of RocketMQ 5.5; older
versions ignore those that they do not know.
"""

import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trueup.connectors.closing import Closing
from trueup.connectors.embedded.jars import jars
from trueup.connectors.embedded.processes import Port, Process
from trueup.connectors.embedded.server import LocalServer, jvm, write_properties, write_whole
from trueup.state.common.errors import Retry

VERSION = "5.5.0"
SET = f"rocketmq-{VERSION}"
_FAST, _REPLICATION = -2, 1
"""The other ports of a broker, relative to the first. The second follows from it whatever the settings are; in RocketMQ
4.9, so does that of replicas."""
_OLD_JVM = tuple(
    f"--add-{access}=java.base/{package}=ALL-UNNAMED"
    for access in ("opens", "exports")
    for package in ("jdk.internal.ref", "sun.nio.ch")
)
"""Older versions unmap their files through Java's internal classes (MappedFile.java of 4.9, UtilAll.java of 5.1)."""
_CLUSTER_REQUEST = b'{"code":106,"language":"OTHER","version":479,"opaque":1,"flag":0}'


@dataclass(frozen=True, slots=True)
class Tls:
    """The TLS settings of a server."""

    certificate: Path
    """The PEM file with the certificate."""
    key: Path
    """The PEM file with the key."""
    enforced: bool = False
    """Whether connections without TLS are refused."""


class NameServer(LocalServer):
    """A name server. It keeps nothing: brokers register again within 30 s after a restart. ``port``: the port of its
    last run, if there was one; ``version`` requires a lock; ``settings`` override the defaults here (namesrv.conf)."""

    def __init__(
        self,
        root: Path,
        name: str = "nameserver",
        tls: Tls | None = None,
        port: Port | None = None,
        version: str = VERSION,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(name, root.absolute())
        self._port, self._tls, self._version = port or Port(), tls, version
        self._settings = dict(settings or {})

    @property
    def address(self) -> str:
        """host:port."""
        return str(self._port)

    def make(self) -> Process:
        """Its settings besides the addresses are the defaults."""
        conf = write_properties(
            self.root / "namesrv.conf",
            {
                "listenPort": self._port.number,
                "bindAddress": self._port.host,
                "kvConfigPath": self.root / "kv.json",
                "rocketmqHome": self.root,
                **self._settings,
            },
        )
        flags = ["-Xms48m", "-Xmx128m", "-XX:MaxDirectMemorySize=64m"]
        return _process(self, "org.apache.rocketmq.namesrv.NamesrvStartup", conf, flags, self._tls, self._version)

    def is_ready(self) -> bool:
        """Whether it responds."""
        return bool(_brokers(self._port))

    def close(self) -> None:
        """Kill it and release its port."""
        super().close()
        self._port.release()


class RocketMqBroker(LocalServer):
    """A master broker with its data in ``root``; started again it has the same address and data.

    Messages are in the page cache: they survive a SIGKILL of the broker, but not a power failure. ``user``: name and
    password of a user with all permissions; with it, all requests must be signed: ACL 2.0, and ACL 1.0 before
    5.0, where both have more than six characters.
    ``settings`` override the defaults here (broker.conf); ``version`` requires a lock.
    """

    ready_s = 180.0

    def __init__(
        self,
        root: Path,
        name_servers: Sequence[NameServer],
        name: str = "broker-a",
        cluster: str = "sandbox",
        user: tuple[str, str] | None = None,
        tls: Tls | None = None,
        settings: Mapping[str, object] | None = None,
        version: str = VERSION,
    ) -> None:
        super().__init__(name, root.absolute())
        self._name_servers, self._cluster, self._tls = name_servers, cluster, tls
        self._user, self._settings, self._version = user, dict(settings or {}), version
        self._port, *self._others = _ports()

    @property
    def address(self) -> str:
        """host:port."""
        return str(self._port)

    def make(self) -> Process:
        """Small files, so that it starts fast, and a response takes as many messages as a client asks for."""
        store = self.root / "store"
        conf = write_properties(
            self.root / "broker.conf",
            {
                "brokerClusterName": self._cluster,
                "brokerName": self.name,
                "brokerId": 0,
                "brokerIP1": self._port.host,
                "brokerIP2": self._port.host,
                "namesrvAddr": ";".join(server.address for server in self._name_servers),
                "listenPort": self._port.number,
                "haListenPort": self._port.number + _REPLICATION,
                "bindAddress": self._port.host,
                "storePathRootDir": store,
                "storePathCommitLog": store / "commitlog",
                "mappedFileSizeCommitLog": 16 << 20,
                "mappedFileSizeConsumeQueue": 600_000,
                "maxIndexNum": 10_000,
                "maxHashSlotNum": 2_500,
                "mappedFileSizeTimerLog": 16 << 20,
                "timerFlushIntervalMs": 60_000,  # each flush compares 38 MB byte by byte: a tenth of a core at 1,000
                "diskMaxUsedSpaceRatio": 98,
                "autoCreateTopicEnable": "false",
                "autoCreateSubscriptionGroup": "true",
                "enablePropertyFilter": "true",
                "flushDiskType": "ASYNC_FLUSH",
                "waitTimeMillsInSendQueue": 5_000,  # a loaded machine; the default is 200
                **{f"maxTransferCountOnMessageIn{place}": 1024 for place in ("Memory", "Disk")},
                **{f"maxTransferBytesOnMessageIn{place}": 4 << 20 for place in ("Memory", "Disk")},
                **(self._access_control(*self._user) if self._user else {}),
                **self._settings,
            },
        )
        flags = ["-Xms128m", "-Xmx384m", "-XX:MaxDirectMemorySize=192m"]
        return _process(self, "org.apache.rocketmq.broker.BrokerStartup", conf, flags, self._tls, self._version)

    def _access_control(self, name: str, password: str) -> dict[str, object]:
        """Settings with which requests must be signed."""
        if not self._version.startswith("4."):
            return _acl_2(name, password)
        account = {"accessKey": name, "secretKey": password, "admin": True}
        write_whole(self.root / "conf" / "plain_acl.yml", json.dumps({"accounts": [account]}))  # JSON is valid YAML
        return {"aclEnable": "true"}

    def is_ready(self) -> bool:
        """Whether every name server has its address."""
        name = f'"{self.name}"'.encode()
        return self._port.open() and all(
            name in _brokers(server._port) for server in self._name_servers if server.alive
        )

    def close(self) -> None:
        """Kill it and release its ports."""
        super().close()
        for port in (self._port, *self._others):
            port.release()


class RocketMq(Closing):
    """A small cluster with a name: one name server, NAME-names, and one broker, NAME-broker."""

    def __init__(self, root: Path, name: str, port: Port | None = None) -> None:
        self.name = name
        self.names = NameServer(root / f"{name}-names", f"{name}-names", port=port)
        self.broker = RocketMqBroker(root / f"{name}-broker", [self.names], f"{name}-broker", cluster=name)
        self.servers: tuple[NameServer, RocketMqBroker] = (self.names, self.broker)

    @property
    def address(self) -> str:
        """The name server's host:port, for clients."""
        return self.names.address

    def up(self) -> None:
        """Start both and wait."""
        for server in self.servers:
            server.start()
        for server in self.servers:
            server.wait_ready()

    def close(self) -> None:
        """Kill both and release their ports."""
        for server in reversed(self.servers):
            server.close()


_AUTH = "org.apache.rocketmq.auth"


def _acl_2(name: str, password: str) -> dict[str, object]:
    """Settings with which requests must be signed, and rights are enforced. Other users are created by requests."""
    return {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
        "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
        "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
        "initAuthenticationUser": json.dumps({"username": name, "password": password}),
        "innerClientAuthenticationCredentials": json.dumps({"accessKey": name, "secretKey": password}),
    }


def _process(
    server: LocalServer, main: str, conf: Path, flags: Sequence[str], tls: Tls | None, version: str
) -> Process:
    root, older = server.root, () if version == VERSION else _OLD_JVM
    options = [
        f"-Duser.home={root}",
        f"-Drocketmq.home.dir={root}",
        f"-Drmq.logback.configurationFile={_logback(root)}",
        "-Drocketmq.client.logUseSlf4j=true",
        f"-Dtls.config.file={_tls(root, tls)}",
        f"-Dtls.server.mode={'enforcing' if tls and tls.enforced else 'permissive'}",
    ]
    classpath = jars(f"rocketmq-{version}")
    return jvm(server.name, root, classpath, [*options, main, "-c", conf], [*flags, *older, "-XX:+UseSerialGC"])


def _tls(root: Path, tls: Tls | None) -> Path:
    """Its TLS settings; without a certificate it makes one for itself."""
    files = {"tls.server.certPath": tls.certificate, "tls.server.keyPath": tls.key} if tls else {}
    return write_properties(root / "tls.properties", {"tls.test.mode.enable": str(not tls).lower(), **files})


def _logback(root: Path) -> Path:
    """A logback configuration without its own status lines, of which there are 1 MB per start. RocketMQ 4.9 expects one
    for each kind of server in the folder conf."""
    text = (
        '<configuration><statusListener class="ch.qos.logback.core.status.NopStatusListener"/>'
        '<appender name="out" class="ch.qos.logback.core.ConsoleAppender">'
        "<encoder><pattern>%d %p %c{0} %m%n</pattern></encoder></appender>"
        '<Root level="WARN"><appender-ref ref="out"/></Root></configuration>\n'
    )
    for kind in ("broker", "namesrv"):
        write_whole(root / "conf" / f"logback_{kind}.xml", text)
    return write_whole(root / "logback.xml", text)


def _ports() -> list[Port]:
    """A free port whose ports at the distances `_FAST` and `_REPLICATION` are also free."""
    while True:
        ports = [Port()]
        try:
            for distance in (_FAST, _REPLICATION):
                ports.append(Port(number=ports[0].number + distance, unused=True))
            return ports
        except Retry:
            for port in ports:
                port.release()


def _brokers(port: Port) -> bytes:
    """The response of a name server to the request for all brokers; empty if there is none."""
    head = len(_CLUSTER_REQUEST)
    try:
        with socket.create_connection((port.host, port.number), 2.0) as connection:
            connection.sendall((head + 4).to_bytes(4, "big") + head.to_bytes(4, "big") + _CLUSTER_REQUEST)
            with connection.makefile("rb") as stream:
                return stream.read(int.from_bytes(stream.read(4), "big"))
    except OSError:
        return b""
