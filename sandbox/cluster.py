"""A BookKeeper cluster of real servers on loopback: ZooKeeper, bookies in racks, AutoRecovery, Kafka, RocketMQ."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from trueup.connectors.closing import Closing
from trueup.connectors.embedded.jars import jars
from trueup.connectors.embedded.kafka import SET as KAFKA_SET
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import Port, wait_until
from trueup.connectors.embedded.server import SMALL_JVM, LocalServer, write_whole
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.sandbox.policies import SandboxPolicy
from trueup.sandbox.servers.bookkeeper import (
    AutoRecovery,
    BookieServer,
    BookKeeperSite,
    client_conf,
    metaformat,
    rack_script,
    shell,
)
from trueup.sandbox.servers.rocketmq import SET as ROCKETMQ_SET
from trueup.sandbox.servers.rocketmq import RocketMq
from trueup.sandbox.servers.zookeeper import JVM as ZOOKEEPER_JVM
from trueup.sandbox.servers.zookeeper import ZooKeeper
from trueup.state.common.errors import Stop

Progress = Callable[[str, int, int], None]
"""Called with (what, done, total): bytes of jars, then the server that is awaited and how many are ready."""

LOST_S = 60.0
"""Sessions of bookies last 4 s; longer on a busy machine."""

ROCKETMQ = ("hangzhou", "shanghai")
"""The names of the RocketMQ clusters."""

RACKS: Mapping[str, int] = MappingProxyType({"/rack1": 3, "/rack2": 3})


class SandboxCluster(Closing):
    """Servers by name: zookeeper, bookie1..N, autorecovery1..K, kafka, and of each RocketMQ cluster NAME-names and
    NAME-broker.

    A name may also be a rack (all of its bookies), "bookies" (all bookies), "autorecovery" (all daemons) or a RocketMQ
    cluster (both of its servers). Bookies are numbered through the racks in order: with 3 and 3, bookies 4 to 6 are in
    the second rack.
    Several clusters can run at the same time on different roots; a root used before starts with its data, on the same
    ports. ``settings`` override those of every bookie and daemon; ``flags`` are JVM flags, also for ZooKeeper if given.
    ``policy``: the placement policy, with its locations in place of ``racks``.
    """

    product = "bookkeeper"

    def __init__(
        self,
        root: Path,
        racks: Mapping[str, int] = RACKS,
        autorecovery: int = 2,
        version: str = "4.17.3",
        kafka: bool = False,
        worker_repairs: bool = True,
        settings: Mapping[str, object] | None = None,
        flags: Sequence[str] = SMALL_JVM,
        rocketmq: bool = False,
        policy: SandboxPolicy | None = None,
    ) -> None:
        self.root, self.policy = root.absolute(), policy or SandboxPolicy()
        racks = policy.racks if policy else racks
        self.racks = dict(racks)
        self._rack_of = dict(enumerate((rack for rack, count in racks.items() for _ in range(count)), start=1))
        self._ports = _Ports(self.root / "ports.json")
        self._jar_set = f"{self.product}-{version}"
        big = ZOOKEEPER_JVM if flags == SMALL_JVM else flags
        self.zookeeper = ZooKeeper(self.root / "zookeeper", self._jar_set, self._ports.take("zookeeper"), big)
        script = rack_script(self.root / "racks.sh", {f"127.0.0.{n}": rack for n, rack in self._rack_of.items()})
        self._site = BookKeeperSite(
            self.root,
            self._jar_set,
            self.zookeeper.address,
            script,
            tuple(flags),
            dict(settings or {}),
            self.policy.settings,
        )
        self.bookies = {n: self._bookie(n) for n in self._rack_of}
        self.autorecoveries = [
            AutoRecovery(
                self._site, k, self._ports.take(f"autorecovery{k}"), worker_repairs and self.policy.workers_repair
            )
            for k in range(1, autorecovery + 1)
        ]
        self._kafka = Kafka(self.root / "kafka") if kafka else None
        self.rocketmq = {
            name: RocketMq(self.root, name, self._ports.take(f"{name}-names"))
            for name in (ROCKETMQ if rocketmq else ())
        }
        self._ports.save()

    @property
    def kafka(self) -> Kafka:
        """The broker. Raises `Stop` if the cluster has none."""
        if self._kafka is None:
            raise Stop("a sandbox with Kafka", "a sandbox without", "create it with kafka=True")
        return self._kafka

    @property
    def servers(self) -> dict[str, LocalServer]:
        """Every server by name, in start order."""
        rocketmq = [server for cluster in self.rocketmq.values() for server in cluster.servers]
        kafka = [self._kafka] if self._kafka else []
        servers = [self.zookeeper, *self.bookies.values(), *kafka, *rocketmq, *self.autorecoveries]
        return {server.name: server for server in servers}

    @property
    def rack_script(self) -> Path:
        """The networkTopologyScriptFileName for the whole cluster."""
        return self._site.rack_script

    @property
    def client_conf(self) -> Path:
        """Settings file for BookKeeper's client and shell."""
        return client_conf(self._site)

    @property
    def jar_set(self) -> str:
        """Name of the servers' jar set."""
        return self._jar_set

    @property
    def autorecovery_urls(self) -> list[str]:
        """Addresses of the AutoRecovery daemons' admin APIs."""
        return [daemon.url for daemon in self.autorecoveries]

    @property
    def bookie_clients(self) -> list[LocalServer]:
        """Servers that start when the bookies are registered. An Auditor that finds no bookie's cookie terminates its
        daemon."""
        return [*self.autorecoveries]

    def shell(self, *words: str) -> None:
        """Run a command of BookKeeper's shell. Raises `Stop` with its output on failure."""
        shell(self._site, *words)

    def bookie_id(self, number: int) -> str:
        """BookieId of a bookie: 127.0.0.N:port."""
        return self.bookies[number].id

    def rack_of(self, number: int) -> str:
        """The rack of a bookie."""
        return self._rack_of[number]

    def up(self, progress: Progress | None = None, autorecovery: bool = True) -> None:
        """Fetch jars, format a new cluster, start all servers and wait until they respond.

        Without ``autorecovery`` the daemons wait for ``start("autorecovery")``: a process that needs the Auditor role
        must vote before they do.
        """
        tell = progress or _ignore
        for name in [self._jar_set, *([KAFKA_SET] * bool(self._kafka)), *([ROCKETMQ_SET] * bool(self.rocketmq))]:
            jars(name, lambda done, total: tell("jars (bytes)", done, total))
        clients = self.bookie_clients
        later = [server for server in clients if autorecovery or server not in self.autorecoveries]
        others = [server for server in self.servers.values() if server not in (self.zookeeper, *clients)]
        total = 1 + len(others) + len(later)
        tell(_awaited("zookeeper"), 0, total)
        self.zookeeper.up()
        tell(_awaited("the format of the cluster"), 1, total)
        self._format_once()
        self._up(others, lambda name, ready: tell(_awaited(name), 1 + ready, total))
        self._up(later, lambda name, ready: tell(_awaited(name), 1 + len(others) + ready, total))

    def start(self, name: str) -> None:
        """Start a server, or all of a group in parallel, and wait until they respond."""
        self._up([server for server in self._named(name) if not server.alive])

    def kill(self, name: str) -> None:
        """SIGKILL a server or a group."""
        for server in self._named(name):
            server.kill()

    def wait_lost(self, name: str) -> None:
        """Wait until ZooKeeper has removed the registrations of the dead bookies of a name: clients avoid them then."""
        dead = [server for server in self._named(name) if isinstance(server, BookieServer) and not server.alive]
        registered = {f"/ledgers/available/{bookie.id}" for bookie in dead}
        wait_until(lambda: not registered & self.zookeeper.ephemerals(), LOST_S, f"the end of {name}'s sessions")

    def stop(self, name: str, grace_s: float = 10.0) -> None:
        """Shut down a server or a group, in order."""
        _stop(self._named(name), grace_s)

    def down(self, grace_s: float = 10.0) -> None:
        """Shut everything down, ZooKeeper last; with SIGKILL if ``grace_s`` is 0. The data remain."""
        *others, zookeeper = reversed(self.servers.values())
        _stop(others, grace_s)
        _stop([zookeeper], grace_s)

    def close(self) -> None:
        """Kill everything and release the ports."""
        self.down(0.0)
        for server in self.servers.values():
            server.kill()  # a server that died by itself still locks its directory
        self._ports.release()
        for others in (self._kafka, *self.rocketmq.values()):
            if others:
                others.close()

    def status(self) -> dict[str, bool]:
        """Whether each server runs."""
        return {name: server.alive for name, server in self.servers.items()}

    def _bookie(self, number: int) -> BookieServer:
        port = self._ports.take(f"bookie{number}", f"127.0.0.{number}")
        return BookieServer(self._site, number, port, self._ports.take(f"bookie{number}-http"))

    def _format_once(self) -> None:
        done = self.root / "formatted"
        if not done.exists():
            self.format()
            done.touch()

    def format(self) -> None:
        """Write the metadata of a new cluster to ZooKeeper. Raises `Stop` on failure."""
        metaformat(self._site)
        if self.policy.groups:
            self._list_groups()

    def _list_groups(self) -> None:
        """Write Pulsar's znode /bookies."""
        places = {bookie.id: self.rack_of(number) for number, bookie in self.bookies.items()}
        client = ZooKeeperClient(str(self.zookeeper.address)).open()
        try:
            client.make("/bookies", self.policy.mapping(places))
        finally:
            client.shut()

    def _named(self, name: str) -> list[LocalServer]:
        if name in self.servers:
            return [self.servers[name]]
        groups: dict[str, list[LocalServer]] = {
            "bookies": list(self.bookies.values()),
            "autorecovery": list(self.autorecoveries),
            **{name: [*cluster.servers] for name, cluster in self.rocketmq.items()},
            **{rack: [self.bookies[n] for n, at in self._rack_of.items() if at == rack] for rack in self.racks},
        }
        if name not in groups:
            raise Stop(f"one of {', '.join([*self.servers, *groups])}", repr(name), "use one of these names")
        return groups[name]

    @staticmethod
    def _up(servers: Sequence[LocalServer], wait: Callable[[str, int], None] = lambda _name, _ready: None) -> None:
        for server in servers:
            server.start()
        for ready, server in enumerate(servers):
            wait(server.name, ready)
            server.wait_ready()


class _Ports:
    """Ports by name, stored in a file: a bookie's port is part of its identity (its cookie)."""

    def __init__(self, record: Path) -> None:
        self._record = record
        self._numbers: dict[str, int] = json.loads(record.read_text()) if record.exists() else {}
        self._held: dict[str, Port] = {}

    def take(self, name: str, host: str = "127.0.0.1") -> Port:
        port = self._held[name] = Port(host, self._numbers.get(name, 0))
        self._numbers[name] = port.number
        return port

    def save(self) -> None:
        write_whole(self._record, json.dumps(self._numbers))

    def release(self) -> None:
        for port in self._held.values():
            port.release()


def _stop(servers: Iterable[LocalServer], grace_s: float) -> None:
    ending = [server for server in servers if server.alive]
    if grace_s:
        for server in ending:
            server.process.terminate()
    for server in ending:
        server.stop(grace_s)


def _awaited(name: str) -> str:
    return f"waiting for {name}; servers ready"


def _ignore(_what: str, _done: int, _total: int) -> None:
    pass
