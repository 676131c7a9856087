"""A broker of Kafka with ZooKeeper. Kafka 3.0 is the last one that stores the formats of messages before version 2,
without requests that have topic ids in place of names."""

from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from trueup.connectors.embedded.jars import jars
from trueup.connectors.embedded.processes import Port, Process
from trueup.connectors.embedded.server import LocalServer, jvm, write_properties
from trueup.sandbox.servers.zookeeper import ZooKeeper

VERSION = "3.0.2"
PROTOCOL = "2.8"
"""The last inter.broker.protocol.version with message.format.version, and the first one with topic ids."""
_FLAGS = (
    "-Xms64m",
    "-Xmx384m",
    "-XX:+UseSerialGC",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaServer=info",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


class OldKafka(LocalServer):
    """``settings`` are added to server.properties, and ``version`` requires a lock. Its ZooKeeper is started and closed
    with it."""

    def __init__(self, root: Path, settings: Mapping[str, object] | None = None, version: str = VERSION) -> None:
        super().__init__("old-kafka", root.absolute())
        self._settings, self._port, self._set = dict(settings or {}), Port(), f"kafka-{version}"
        self._zookeeper = ZooKeeper(root / "zookeeper", self._set)

    @property
    def bootstrap(self) -> str:
        """host:port for clients."""
        return str(self._port)

    def prepare(self) -> None:
        """Start ZooKeeper."""
        if not self._zookeeper.alive:
            self._zookeeper.up()

    def make(self) -> Process:
        """The broker."""
        conf = write_properties(
            self.root / "server.properties",
            {
                "broker.id": 1,
                "listeners": f"PLAINTEXT://{self._port}",
                "zookeeper.connect": self._zookeeper.address,
                "inter.broker.protocol.version": PROTOCOL,
                "log.dirs": self.root / "data",
                "auto.create.topics.enable": "false",
                "offsets.topic.replication.factor": 1,
                "offsets.topic.num.partitions": 4,
                "transaction.state.log.replication.factor": 1,
                "transaction.state.log.min.isr": 1,
                "group.initial.rebalance.delay.ms": 0,
                "log.cleaner.dedupe.buffer.size": 16 << 20,
                "log.retention.ms": -1,
                **self._settings,
            },
        )
        return jvm(self.name, self.root, jars(self._set), ["kafka.Kafka", conf], _FLAGS)

    def is_ready(self) -> bool:
        """Whether it logged its start and knows a controller: clients that it told of none wait for one in vain."""
        output = self.process.output()
        if "started (kafka.server.KafkaServer)" not in output and "] started" not in output:
            return False
        try:
            return bool(AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(timeout=5).controller_id >= 0)
        except KafkaException:
            return False

    def close(self) -> None:
        """Kill both servers and release their ports."""
        super().close()
        self._zookeeper.close()
        self._port.release()
