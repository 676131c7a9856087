"""A Kafka cluster of several brokers on 127.0.0.1, whose partitions change their leader when a broker is killed.

The controller is a separate process that is never killed: the smallest cluster in which every broker can fail.
"""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trueup.connectors.closing import Closing
from trueup.connectors.embedded.kafka import Kafka, new_id
from trueup.connectors.embedded.server import write_whole
from trueup.sandbox.servers.security import Security

CONTROLLER = 100
SESSION_MS = 4_000
"""A killed broker is detected after this time."""


class KafkaNode(Kafka):
    """One process of a cluster: the controller, or a broker."""

    def __init__(self, cluster: "Brokers", number: int, heap: str) -> None:
        self._cluster, self.number = cluster, number
        name = "controller" if number == CONTROLLER else f"broker{number}"
        super().__init__(cluster.root / name, heap, cluster.settings, security=cluster.security, name=name)

    def cluster_id(self) -> str:
        """The id shared by all nodes."""
        return self._cluster.id

    def layout(self) -> dict[str, object]:
        """Its only role, and the address of the controller."""
        ours = super().layout()
        listening = str(ours["listeners"]).split(",")
        voters = {"node.id": self.number, "controller.quorum.voters": f"{CONTROLLER}@{self._cluster.voter}"}
        if self.number == CONTROLLER:
            own = next(address for address in listening if address.startswith("CONTROLLER"))
            return {"process.roles": "controller", "listeners": own, **voters}
        return {**ours, "process.roles": "broker", "listeners": ours["advertised.listeners"], **voters}


class Brokers(Closing):
    """Brokers 1..N and a controller below ``root``; a root used before starts with its data, on the same ports.

    Topics are created with one replica per broker by default, and a record with acks=all is acknowledged
    by every in-sync replica, at least one. ``settings`` override the defaults on every node. ``security`` adds
    the listeners SASL_PLAINTEXT and SASL_SSL and an authorizer.
    """

    def __init__(
        self,
        root: Path,
        brokers: int = 2,
        settings: Mapping[str, object] | None = None,
        security: Security | None = None,
        heap: str = "256m",
    ) -> None:
        self.root, self.security = root.absolute(), security
        self.id = _kept_id(self.root / "cluster.json")
        copies = min(brokers, 3)
        self.settings = {
            "default.replication.factor": copies,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "share.coordinator.state.topic.replication.factor": copies,
            "broker.session.timeout.ms": SESSION_MS,
            **(settings or {}),
        }
        self.controller = KafkaNode(self, CONTROLLER, "128m")
        self.brokers = {number: KafkaNode(self, number, heap) for number in range(1, brokers + 1)}

    @property
    def voter(self) -> str:
        """host:port of the controller's listener."""
        return self.controller.address("CONTROLLER")

    @property
    def bootstrap(self) -> str:
        """host:port of every broker, for clients."""
        return self.address("PLAINTEXT")

    def address(self, listener: str) -> str:
        """host:port of a listener on every broker."""
        return ",".join(broker.address(listener) for broker in self.brokers.values())

    def client(self, listener: str = "PLAINTEXT", user: str = "admin") -> dict[str, str]:
        """Client options (librdkafka's names) for a user on a listener."""
        more = self.security.client(listener, user) if self.security else {}
        return {"bootstrap.servers": self.address(listener), **more}

    def up(self) -> None:
        """Format new directories, start all nodes and wait until they accept requests."""
        if self.security:
            self.security.make()
        nodes = [self.controller, *self.brokers.values()]
        with ThreadPoolExecutor(len(nodes)) as pool:
            list(pool.map(KafkaNode.start, nodes))
            list(pool.map(KafkaNode.wait_ready, nodes))

    def kill(self, number: int) -> None:
        """SIGKILL a broker; its partitions elect other leaders when its session ends."""
        self.brokers[number].kill()

    def start(self, number: int) -> None:
        """Start a stopped broker and wait until it accepts requests."""
        self.brokers[number].up()

    def close(self) -> None:
        """Kill everything and release the ports."""
        for node in [*self.brokers.values(), self.controller]:
            node.close()


def _kept_id(record: Path) -> str:
    """The cluster id of the last run, or a new one."""
    if not record.exists():
        write_whole(record, json.dumps(new_id()))
    return str(json.loads(record.read_text()))
