"""Two RocketMQ clusters and a Kafka cluster of one broker each, with topics to copy between them."""

import shutil
import struct
import time
from itertools import cycle
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from confluent_kafka.admin import AdminClient

from bench.common.measure import cpu_s, tell
from bench.replication import clusters as topics_of_kafka
from bench.replication.clusters import FIRST_MS, VALUES, Load, values_of
from bench.replication.contenders import TO, Counted
from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.rocketmq.client import messages, topics
from trueup.connectors.rocketmq.client.cluster import RocketMqClient
from trueup.connectors.rocketmq.client.dispatch import wait_dispatched
from trueup.connectors.rocketmq.protocol import batch, properties
from trueup.sandbox.servers.rocketmq import NameServer, RocketMqBroker
from trueup.streams.replication.clusters import KAFKA, ROCKETMQ

QUEUES, BROKER = 4, "broker-a"
FILLED = 500
"""Messages of a request that fills the source."""
WARM, WARM_REQUESTS = "warm", 400
"""A topic, and the requests that it gets before a measurement."""
SHORT = tuple(f"{source}>{target}" for source, target in ((ROCKETMQ, ROCKETMQ), (ROCKETMQ, KAFKA), (KAFKA, ROCKETMQ)))
"""Short names of the directions."""
LARGE_FILES = {"mappedFileSizeCommitLog": 256 << 20, "mappedFileSizeConsumeQueue": 6_000_000}


class Side(Protocol):
    """One end of a copy. ``place``: that of its logs, see `LogId`."""

    system: str
    place: str

    @property
    def address(self) -> str: ...
    @property
    def pid(self) -> int: ...
    def fill(self, load: Load) -> None: ...
    def empty(self) -> None: ...
    def ends(self, topic: str) -> Counted: ...


class Direction(NamedTuple):
    """A copy from one side to the other. See `bench.replication.contenders.Measured`."""

    source: Side
    target: Side

    @property
    def short(self) -> str:
        """One of `SHORT`."""
        return f"{self.source.system}>{self.target.system}"

    def cpu_s(self) -> float:
        """CPU seconds of both brokers."""
        return cpu_s(self.source.pid, self.target.pid)

    def ends(self, topic: str) -> Counted:
        """The end offsets of a topic of the target."""
        return self.target.ends(topic)


class Cluster:
    """A name server, a broker and a client."""

    system, place = ROCKETMQ, BROKER

    def __init__(self, root: Path, name: str, bit: int) -> None:
        self.root, self._name, self._bit = root, name, bit
        self.names = NameServer(root / "names")
        self.broker = RocketMqBroker(root / "broker", [self.names], BROKER, settings=LARGE_FILES)
        self.client = RocketMqClient(self.endpoint())

    @property
    def address(self) -> str:
        """The name server's host:port."""
        return self.names.address

    @property
    def pid(self) -> int:
        """Process id of the broker."""
        return self.broker.pid or 0

    def endpoint(self) -> Endpoint:
        return Endpoint(self._name, self.address, self._bit, {}, ROCKETMQ)

    def up(self) -> None:
        self.names.up()
        self.broker.up()

    def create(self, topic: str) -> list[LogId]:
        """A topic with `QUEUES` queues."""
        topics.put_topic(self.client, BROKER, topics.RocketMqTopic(topic, QUEUES, QUEUES))
        wait_until(lambda: topic in self.client.topics() and len(self.client.logs(topic)) == QUEUES, 60.0, topic)
        return self.client.logs(topic)

    def renew(self) -> None:
        """Start the broker again without its data, and let it compile its code for storing messages."""
        self.broker.kill()
        shutil.rmtree(self.broker.root / "store", ignore_errors=True)
        self.broker.up()
        log = self.create(WARM)[0]
        body = batch.encode([bytes(100)] * FILLED, [_properties(0)] * FILLED, [0] * FILLED)
        with self.client.connect(BROKER) as connection:
            for _ in range(WARM_REQUESTS):
                messages.sent(connection.ask(messages.send_batch(log, body, FIRST_MS)))

    def empty(self) -> None:
        """Delete everything, and create `TO`."""
        self.renew()
        self.create(TO)

    def fill(self, load: Load) -> None:
        """Replace everything by a load: bodies of ``load.size`` bytes, with five properties."""
        self.renew()
        logs, bodies = self.create(load.topic), values_of(load.size)
        with self.client.connect(BROKER) as connection:
            for first, log in zip(range(0, load.records, FILLED), cycle(logs), strict=False):
                rows = range(first, first + FILLED)
                body = batch.encode(
                    [bodies[number * 2_654_435_761 % VALUES] for number in rows],
                    [_properties(number) for number in rows],
                    [0] * FILLED,
                )
                messages.sent(connection.ask(messages.send_batch(log, body, FIRST_MS + first)))
        wait_dispatched(self.client, BROKER, 60.0)

    def ends(self, topic: str) -> "Ends":
        """The end offsets of a topic."""
        return Ends(self, topic)

    def close(self) -> None:
        self.client.close()
        self.broker.close()
        self.names.close()


class Lake:
    """A Kafka broker."""

    system, place = KAFKA, ""

    def __init__(self, root: Path) -> None:
        self._broker = Kafka(root, "512m")

    @property
    def address(self) -> str:
        """Its bootstrap address."""
        return self._broker.bootstrap

    @property
    def pid(self) -> int:
        """Process id of the broker."""
        return self._broker.pid or 0

    def up(self) -> None:
        self._broker.up()

    def empty(self) -> None:
        """Create `TO` without records."""
        admin = AdminClient({"bootstrap.servers": self.address})
        if TO in admin.list_topics(timeout=60).topics:
            admin.delete_topics([TO])[TO].result(60)
            wait_until(lambda: TO not in admin.list_topics(timeout=60).topics, 60.0, f"{TO} deleted")
        topics_of_kafka.create(self.address, TO)

    def fill(self, load: Load) -> None:
        """Write a load to a new topic."""
        topics_of_kafka.create(self.address, load.topic)
        topics_of_kafka.write(self.address, load)

    def ends(self, topic: str) -> Counted:
        """The end offsets of a topic."""
        return topics_of_kafka.Ends(self.address, topic)

    def close(self) -> None:
        self._broker.close()


class Clusters:
    """The source, the target with the same settings, and the lake."""

    def __init__(self, root: Path) -> None:
        self.source, self.target = Cluster(root / "source", "source", 0), Cluster(root / "target", "target", 1)
        self.lake = Lake(root / "lake")

    def __enter__(self) -> Self:
        for each in (self.source, self.target, self.lake):
            each.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in (self.source, self.target, self.lake):
            each.close()

    @property
    def directions(self) -> dict[str, Direction]:
        """All copies to measure, by name."""
        return {
            "RocketMQ to RocketMQ": Direction(self.source, self.target),
            "RocketMQ to Kafka": Direction(self.source, self.lake),
            "Kafka to RocketMQ": Direction(self.lake, self.target),
        }

    def fill(self, load: Load) -> None:
        """Write a load to the source and the lake."""
        tell(f"writing {load.records:,} messages of {load.size} B")
        self.source.fill(load)
        self.lake.fill(load)


class Ends:
    """The number of messages of a topic, for frequent polling."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._client, self._logs = cluster.client, cluster.client.logs(topic)

    def records(self) -> int:
        return sum(messages.offset_of(self._client.ask(BROKER, messages.end_offset(log))) for log in self._logs)

    def close(self) -> None:
        """The client belongs to the cluster."""


def stamped() -> bytes:
    """A body of 100 B that contains the time."""
    return struct.pack(">d", time.time()) + b"x" * 92


def _properties(number: int) -> bytes:
    return properties.encoded(
        {
            "KEYS": f"{number:08d}",
            "TAGS": "order",
            "UNIQ_KEY": f"{number:032X}",
            "__SHARDINGKEY": str(number % 97),
            "trace": "abcdef",
        }
    )
