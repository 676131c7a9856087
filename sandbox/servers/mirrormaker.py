"""MirrorMaker 2 in its dedicated mode: the reference for measurements of links.

Settings: mm2.properties (MirrorMakerConfig and MirrorConnectorConfig of connect/mirror). ``TUNED`` has the settings
that matter on loopback: large fetches and polls, lz4 batches of 512 KiB that wait up to 50 ms.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from trueup.connectors.embedded.jars import jars
from trueup.connectors.embedded.processes import Process
from trueup.connectors.embedded.server import LocalServer, jvm, write_properties

SET = "mirror-4.3.1"
SOURCE, TARGET = "source", "target"
TASKS = 4
TUNED: Mapping[str, object] = MappingProxyType(
    {
        f"{SOURCE}.consumer.max.poll.records": 20_000,
        f"{SOURCE}.consumer.fetch.min.bytes": 200_000,
        f"{SOURCE}.consumer.fetch.max.wait.ms": 100,
        f"{SOURCE}.consumer.max.partition.fetch.bytes": 8 << 20,
        f"{SOURCE}.consumer.fetch.max.bytes": 50 << 20,
        f"{SOURCE}.consumer.receive.buffer.bytes": 1 << 20,
        f"{TARGET}.producer.compression.type": "lz4",
        f"{TARGET}.producer.batch.size": 512 << 10,
        f"{TARGET}.producer.linger.ms": 50,
        f"{TARGET}.producer.buffer.memory": 128 << 20,
        f"{TARGET}.producer.max.request.size": 4_000_000,
        f"{TARGET}.producer.send.buffer.bytes": 1 << 20,
    }
)


class Mirror(LocalServer):
    """Copies ``topics`` (a regular expression) from one cluster to another, as ``source.<topic>``.

    ``settings`` override the defaults here, which are MirrorMaker's except for one task per partition of a small topic.
    """

    def __init__(
        self, root: Path, source: str, target: str, topics: str, settings: Mapping[str, object] | None = None
    ) -> None:
        super().__init__("mirror", root.absolute())
        self._source, self._target, self._topics, self._settings = source, target, topics, dict(settings or {})

    def target_topic(self, topic: str) -> str:
        """The name of a topic at the target by DefaultReplicationPolicy."""
        return f"{SOURCE}.{topic}"

    def make(self) -> Process:
        """One flow, with Java's own compiler and collector and 1 GiB of heap."""
        copies = (
            "config.storage",
            "offset.storage",
            "status.storage",
            "offset-syncs.topic",
            "heartbeats.topic",
            "checkpoints.topic",
        )
        conf = write_properties(
            self.root / "mm2.properties",
            {
                "clusters": f"{SOURCE},{TARGET}",
                f"{SOURCE}.bootstrap.servers": self._source,
                f"{TARGET}.bootstrap.servers": self._target,
                f"{SOURCE}->{TARGET}.enabled": "true",
                f"{TARGET}->{SOURCE}.enabled": "false",
                f"{SOURCE}->{TARGET}.topics": self._topics,
                "replication.factor": 1,
                **{f"{what}.replication.factor": 1 for what in copies},
                "tasks.max": TASKS,
                **self._settings,
            },
        )
        flags = ["-Xmx1g", "-XX:+UseG1GC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        return jvm(self.name, self.root, jars(SET), ["org.apache.kafka.connect.mirror.MirrorMaker", conf], flags)

    def is_ready(self) -> bool:
        """Whether it runs: it does not report readiness; callers observe the target."""
        return self.alive
