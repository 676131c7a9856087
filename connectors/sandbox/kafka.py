"""A single-node Kafka broker (KRaft) on 127.0.0.1: the sandbox's, and the product's embedded journal."""

import base64
import json
import uuid
from collections.abc import Mapping
from pathlib import Path

from connectors.sandbox.jars import Progress, jars
from connectors.sandbox.processes import Port, Process
from connectors.sandbox.server import Server, jvm, write_properties, write_whole
from state.errors import Retry

SET = "kafka-4.3.1"


class Kafka(Server):
    """A broker whose data live in ``root`` and outlast it.

    Started again on the same directory it serves the same topics, on the same port when that is free. ``heap`` is
    its largest heap; ``settings`` go over ours (server.properties). Records are as safe as the page cache: they
    outlast a SIGKILL of the broker, not a power cut.
    """

    def __init__(
        self,
        root: Path,
        heap: str = "384m",
        settings: Mapping[str, object] | None = None,
        progress: Progress | None = None,
    ) -> None:
        super().__init__("kafka", root.absolute())
        self._heap, self._settings = heap, dict(settings or {})
        self._progress = progress or (lambda _done, _total: None)
        self._client, self._controller = self._take_ports()

    @property
    def bootstrap(self) -> str:
        """host:port for clients."""
        return str(self._client)

    def prepare(self) -> None:
        """Format a new directory. Raises `Stop` when that fails."""
        if not (self.root / "data" / "meta.properties").exists():
            self._format()

    def make(self) -> Process:
        """The broker; it is its own controller, in a static quorum so that its port may change between runs."""
        conf = self._write_settings()
        flags = ["-Xms128m", f"-Xmx{self._heap}", "-XX:+UseSerialGC", *_LOGGING]
        return jvm(self.name, self.root, jars(SET, self._progress), ["kafka.Kafka", conf], flags)

    def is_ready(self) -> bool:
        """Whether it said that it started: only then it is unfenced, and topics can be created."""
        return "Kafka Server started" in self.process.output()

    def close(self) -> None:
        """Kill it and give its ports back."""
        super().close()
        self._client.release()
        self._controller.release()

    def _format(self) -> None:
        conf, cluster_id = self._write_settings(), base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        main = ["kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", "--config", conf]
        flags = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *_LOGGING]
        jvm("format", self.root / "format", jars(SET, self._progress), main, flags).run(120.0)

    def _take_ports(self) -> tuple[Port, Port]:
        """The ports of the last run, or new ones for those that are taken meanwhile."""
        record = self.root / "ports.json"
        before = json.loads(record.read_text()) if record.exists() else [0, 0]
        ports = _port(before[0]), _port(before[1])
        write_whole(record, json.dumps([port.number for port in ports]))
        return ports

    def _write_settings(self) -> Path:
        values = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "listeners": f"PLAINTEXT://{self._client},CONTROLLER://{self._controller}",
            "advertised.listeners": f"PLAINTEXT://{self._client}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.quorum.voters": f"1@{self._controller}",
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
            "broker.session.timeout.ms": 6_000,  # a killed broker may register again only after this
            "broker.heartbeat.interval.ms": 500,
            "log.cleaner.enable": "true",
            "log.cleaner.dedupe.buffer.size": 16 << 20,
            "num.network.threads": 2,
            "num.io.threads": 4,
        }
        return write_properties(self.root / "server.properties", {**values, **self._settings})


_LOGGING = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
)


def _port(number: int) -> Port:
    try:
        return Port(number=number)
    except Retry:
        return Port()
