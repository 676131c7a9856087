"""A single-node Kafka broker (KRaft) on 127.0.0.1: that of the embedded journal, and the base of the sandbox's."""

import base64
import json
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from trueup.connectors.embedded.jars import Progress, cache_dir, jars
from trueup.connectors.embedded.processes import Port, Process
from trueup.connectors.embedded.server import LocalServer, jvm, write_properties, write_whole
from trueup.state.common.errors import Retry

VERSION = "4.3.1"
SET = f"kafka-{VERSION}"


class BrokerSecurity(Protocol):
    """Authenticated listeners of a broker; see `sandbox.servers.security`."""

    @property
    def listeners(self) -> Sequence[str]:
        """Their names."""

    @property
    def flags(self) -> Sequence[str]:
        """Flags of the broker's JVM."""

    def make(self) -> None:
        """Create the keys once. Raises `Stop` on failure."""

    def settings(self) -> Mapping[str, object]:
        """The entries of server.properties besides the listeners."""

    def client(self, listener: str, user: str) -> Mapping[str, str]:
        """A client's options (librdkafka's names) for a listener; none for the plain one."""


class Kafka(LocalServer):
    """A broker with its data in ``root``, where they remain.

    Started again on the same directory it serves the same topics, on the same port if it is free. ``heap`` is
    its maximum heap; ``settings`` override the defaults here (server.properties). Records are in the page cache: they
    survive a SIGKILL of the broker, but not a power failure. ``security`` adds authenticated listeners; ``version``
    requires a lock.
    """

    listener = "PLAINTEXT"
    """The listener of clients without ``security``, named after its protocol."""

    def __init__(
        self,
        root: Path,
        heap: str = "384m",
        settings: Mapping[str, object] | None = None,
        progress: Progress | None = None,
        security: BrokerSecurity | None = None,
        name: str = "kafka",
        version: str = VERSION,
    ) -> None:
        super().__init__(name, root.absolute())
        self._set = f"kafka-{version}"
        self._checkpoint = _SNAPSHOT if tuple(map(int, version.split("."))) >= _SNAPSHOT_SINCE else _CHECKPOINT
        self._heap, self._settings, self._security = heap, dict(settings or {}), security
        self._progress = progress or (lambda _done, _total: None)
        self._ports = self._take_ports()

    @property
    def bootstrap(self) -> str:
        """host:port for clients."""
        return self.address(self.listener)

    def address(self, listener: str) -> str:
        """host:port of a listener: PLAINTEXT, CONTROLLER, and those of its security."""
        return str(self._ports[listener])

    def client(self, listener: str = "PLAINTEXT", user: str = "admin") -> dict[str, str]:
        """Client options (librdkafka's names) for a user on a listener."""
        more = self._security.client(listener, user) if self._security else {}
        return {"bootstrap.servers": self.address(listener), **more}

    def prepare(self) -> None:
        """Create the keys and format a new directory. Raises `Stop` on failure."""
        if self._security:
            self._security.make()
        self._format()

    def make(self) -> Process:
        """The broker; it is its own controller, in a static quorum so that its port can change between runs."""
        conf = self._write_settings()
        flags = ["-Xms128m", f"-Xmx{self._heap}", "-XX:+UseSerialGC", _EXIT, *_LOGGING]
        flags += self._security.flags if self._security else []
        return self.jvm(self.name, self.root, ["kafka.Kafka", conf], flags)

    def is_ready(self) -> bool:
        """Whether it logged its start: only then it is unfenced, and topics can be created."""
        return "Kafka Server started" in self.process.output()

    def close(self) -> None:
        """Kill it and release its ports."""
        super().close()
        for port in self._ports.values():
            port.release()

    def cluster_id(self) -> str:
        """The id with which a new directory is formatted."""
        return new_id()

    def _format(self) -> None:
        """Format new directories: with Kafka's tool the first time, then from its output, because it needs a JVM."""
        template = cache_dir() / "formatted" / f"{self._set}.checkpoint"
        directories = [Path(path) for path in str(self._settings.get("log.dirs", self.root / "data")).split(",")]
        if any(map(_is_formatted, directories)):
            return  # the broker formats a directory that is added, or empty after a repair, itself
        if template.exists():
            self._format_as(template.read_bytes(), directories)
            return
        self._run_format()
        template.parent.mkdir(exist_ok=True)
        draft = template.with_suffix(f".{uuid.uuid4()}")
        shutil.copyfile(directories[0] / self._checkpoint, draft)
        draft.replace(template)

    def _format_as(self, checkpoint: bytes, directories: Sequence[Path]) -> None:
        """Format the directories. Each has its own id; a checkpoint contains only the features of Kafka's version
        (Formatter.java)."""
        cluster = self.cluster_id()
        for number, path in enumerate(directories):
            path.mkdir(parents=True, exist_ok=True)
            if number == 0 or self._checkpoint == _CHECKPOINT:
                (path / self._checkpoint).parent.mkdir(exist_ok=True)
                (path / self._checkpoint).write_bytes(checkpoint)
            ids = {"cluster.id": cluster, "node.id": self.layout()["node.id"], "directory.id": new_id()}
            write_properties(path / _META, {"version": 1, **ids})

    def _run_format(self) -> None:
        conf = self._write_settings()
        main = ["kafka.tools.StorageTool", "format", f"--cluster-id={self.cluster_id()}", "--config", conf]
        flags = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *_LOGGING]
        self.jvm("format", self.root / "format", main, flags).run(120.0)

    def jvm(self, name: str, root: Path, main: Sequence[object], flags: Sequence[str]) -> Process:
        """A Java process with this broker's jars."""
        return jvm(name, root, jars(self._set, self._progress), main, flags)

    def _take_ports(self) -> dict[str, Port]:
        """The ports of the last run by listener, or new ones for those that are in use."""
        names = [self.listener, "CONTROLLER", *(self._security.listeners if self._security else ())]
        record = self.root / "ports.json"
        before = _recorded(record)
        ports = {name: _port(number) for name, number in zip(names, [*before, *[0] * len(names)], strict=False)}
        if (numbers := [port.number for port in ports.values()]) != before:
            write_whole(record, json.dumps(numbers))
        return ports

    def layout(self) -> dict[str, object]:
        """Its identity and addresses."""
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "listeners": _addresses(self._ports),
            "advertised.listeners": _addresses({n: p for n, p in self._ports.items() if n != "CONTROLLER"}),
            "controller.quorum.voters": f"1@{self.address('CONTROLLER')}",
        }

    def _write_settings(self) -> Path:
        values = {
            **self.layout(),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": self.listener,
            "listener.security.protocol.map": ",".join(["CONTROLLER:PLAINTEXT", *(f"{n}:{n}" for n in _PROTOCOLS)]),
            "log.dirs": self.root / "data",
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 4,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "broker.session.timeout.ms": 6_000,  # a killed broker can register again only after this
            "broker.heartbeat.interval.ms": 500,
            "log.cleaner.enable": "true",
            "log.cleaner.dedupe.buffer.size": 16 << 20,
            "num.network.threads": 2,
            "num.io.threads": 4,
            **(self._security.settings() if self._security else {}),
            **self.logins(),
        }
        return write_properties(self.root / "server.properties", {**values, **self._settings}, 0o600)

    def logins(self) -> dict[str, object]:
        """The entries of server.properties for logins on `listener` and to the controller; none for the plain one."""
        return {}


def new_id() -> str:
    """A cluster or directory id as Kafka creates them: 16 random bytes in base64 that do not start with -."""
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return new_id() if text.startswith("-") else text


_EXIT = "-XX:+ExitOnOutOfMemoryError"
"""Without it, a broker that ran out of memory may go on without some of its threads."""
_META, _CHECKPOINT = "meta.properties", "bootstrap.checkpoint"
_SNAPSHOT, _SNAPSHOT_SINCE = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint", (4, 4)
"""What has the features in place of `_CHECKPOINT` since this version, only in the first directory."""
_PROTOCOLS = ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "SSL")
_LOGGING = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
)


def _is_formatted(directory: Path) -> bool:
    return (directory / _META).exists()


def _addresses(ports: Mapping[str, Port]) -> str:
    """Addresses by listener name, in the form of server.properties."""
    return ",".join(f"{name}://{port}" for name, port in ports.items())


def _recorded(record: Path) -> list[int]:
    """The ports in a file; none if the file is not a list of ports: a power failure can leave it empty."""
    try:
        ports = [int(number) for number in json.loads(record.read_text())]
    except (OSError, ValueError, TypeError):
        return []
    return ports if all(0 <= number < 1 << 16 for number in ports) else []


def _port(number: int) -> Port:
    try:
        return Port(number=number)
    except Retry:
        return Port()
