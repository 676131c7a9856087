"""A Pulsar cluster of real servers on loopback: ZooKeeper, bookies and one broker, each in its own JVM.

Settings: conf/broker.conf and ServiceConfiguration.java of Pulsar. Every ledger has a replica on each of two bookies.
Ledgers are short and do not expire, so that topics have many ledgers and lose them only by truncation.
"""

import shutil
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

import urllib3

from trueup.connectors.embedded.jars import jars
from trueup.connectors.embedded.processes import Port, Process
from trueup.connectors.embedded.server import SMALL_JVM, LocalServer, jvm, log4j2, write_properties
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.servers.objects import CREDENTIALS, REGION, Objects
from trueup.state.common.errors import Retry, Stop

NAME = "lab"
"""The name of the cluster in Pulsar."""
REPLICAS = 2
ENTRIES_PER_LEDGER = 50
OFFLOADER, BUCKET, BLOCK_BYTES = "offloader-4.0.8", "offloaded", 5 << 20
"""Jar set of the offloader (its only jar is the NAR), its bucket, and its block size, the minimum."""
SESSION_MS = 10_000

_BROKER_JVM = (
    "-Xms128m",
    "-Xmx384m",
    "-XX:MaxDirectMemorySize=256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djute.maxbuffer=10485760",
    *(
        f"--add-opens={package}=ALL-UNNAMED"
        for package in (
            "java.base/java.io",
            "java.base/java.lang",
            "java.base/java.util.zip",
            "java.base/sun.net",
            "java.management/sun.management",
        )
    ),
)
_DRIVERS = (
    "-Dbookkeeper.metadata.bookie.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataBookieDriver",
    "-Dbookkeeper.metadata.client.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataClientDriver",
)
_ANSWER_S = 30.0
_REDIRECTS = urllib3.Retry(3, connect=0, read=0, redirect=3, remove_headers_on_redirect=(), raise_on_redirect=False)
"""To the broker that owns a topic."""
_LEADER = "NoNode for /loadbalance/leader"


class PulsarBroker(LocalServer):
    """A broker. ``settings`` override the defaults here (broker.conf). ``tiered``: whether the broker can offload
    ledgers. ``flags``: flags of its JVM, after the defaults."""

    ready_s = 180.0
    headers: Mapping[str, str] = MappingProxyType({})
    """Headers of requests to the admin API of the broker."""

    def __init__(
        self,
        root: Path,
        zookeeper: str,
        binary: Port,
        web: Port,
        jar_set: str,
        settings: Mapping[str, object],
        tiered: bool = False,
        flags: Sequence[str] = (),
        name: str = "broker",
    ) -> None:
        super().__init__(name, root.absolute())
        self._flags = flags
        self._zookeeper, self._binary, self._web = zookeeper, binary, web
        self._jar_set, self._settings, self._tiered = jar_set, settings, tiered

    @property
    def service_url(self) -> str:
        """Address for clients."""
        return f"pulsar://{self._binary}"

    @property
    def admin_url(self) -> str:
        """Address of its admin API."""
        return f"http://{self._web}"

    def make(self) -> Process:
        """Few threads and no cache, so that reads come from the bookies; no background balancing or compaction."""
        conf = write_properties(self.root / "broker.conf", {**self._layout(), **_SETTINGS, **self._settings})
        main = ["org.apache.pulsar.PulsarBrokerStarter", "--broker-conf", conf]
        if self._tiered:
            (nar,) = jars(OFFLOADER)
            (self.root / "offloaders").mkdir(exist_ok=True)
            shutil.copyfile(nar, self.root / "offloaders" / f"{nar.stem}.nar")
        return self.jvm(self.name, self.root, main)

    def wait_ready(self) -> None:
        """See `LocalServer`. The node by which a killed broker leads can expire while the next broker deletes it. The
        next broker ends then (LeaderElectionImpl.java), and is started again."""
        try:
            super().wait_ready()
        except Stop:
            if _LEADER not in self.process.output():
                raise
            self.start()
            super().wait_ready()

    def is_ready(self) -> bool:
        """Whether its health check succeeds: it wrote a message and read it."""
        try:
            url = f"{self.admin_url}/admin/v2/brokers/health"
            answer = urllib3.request("GET", url, timeout=20.0, retries=False, headers=self.headers)
        except urllib3.exceptions.HTTPError:
            return False
        return answer.status == 200

    def set_up_metadata(self) -> None:
        """Create the cluster, its tenants and namespaces, and the bookies' metadata. Raises `Stop` on failure."""
        options = {
            "--cluster": NAME,
            "--metadata-store": f"zk:{self._zookeeper}",
            "--configuration-metadata-store": f"zk:{self._zookeeper}",
            "--web-service-url": self.admin_url,
            "--broker-service-url": self.service_url,
        }
        main = ["org.apache.pulsar.PulsarClusterMetadataSetup", *chain.from_iterable(options.items())]
        self.jvm("metadata", self.root / "metadata", main).run(180.0)

    def jvm(self, name: str, root: Path, main: Sequence[object]) -> Process:
        """A Java process with Pulsar's jars."""
        flags = [*_BROKER_JVM, *self._flags, *_DRIVERS, f"-Dlog4j2.configurationFile={log4j2(root)}"]
        return jvm(name, root, jars(self._jar_set), main, flags, CREDENTIALS if self._tiered else None)

    def _layout(self) -> dict[str, object]:
        """Its identity and addresses."""
        return {
            "clusterName": NAME,
            "metadataStoreUrl": f"zk:{self._zookeeper}",
            "configurationMetadataStoreUrl": f"zk:{self._zookeeper}",
            "bindAddress": self._binary.host,
            "advertisedAddress": self._binary.host,
            "brokerServicePort": self._binary.number,
            "webServicePort": self._web.number,
            "narExtractionDirectory": self.root / "nar",
            "offloadersDirectory": self.root / "offloaders",
        }


class SandboxPulsar(SandboxCluster):
    """Servers by name: zookeeper, bookie1..N, objects, broker. ``settings`` override the broker's (broker.conf).
    Only a ``tiered`` cluster has objects, to which its broker offloads ledgers on request; it deletes their
    BookKeeper ledgers immediately. ``broker_flags``: flags of the broker's JVM, after the defaults.

    See `SandboxCluster` for roots, names and ports. The broker is stopped before the other servers, because otherwise
    it would wait for ZooKeeper and bookies.
    """

    product = "pulsar"
    version = "4.2.4"

    def __init__(
        self,
        root: Path,
        bookies: int = REPLICAS,
        settings: Mapping[str, object] | None = None,
        tiered: bool = False,
        flags: Sequence[str] = SMALL_JVM,
        broker_flags: Sequence[str] = (),
    ) -> None:
        super().__init__(root, {"/rack1": bookies}, autorecovery=0, version=self.version, flags=flags)
        binary, web = self._ports.take("broker"), self._ports.take("broker-web")
        self._objects = Objects(self.root / "objects", self._ports.take("objects"), [BUCKET]) if tiered else None
        self._ports.save()
        self.replicas = min(bookies, REPLICAS)
        quorums = {
            f"managedLedgerDefault{what}": self.replicas for what in ("EnsembleSize", "WriteQuorum", "AckQuorum")
        }
        self.broker = PulsarBroker(
            self.root / "broker",
            self.zookeeper.address,
            binary,
            web,
            self.jar_set,
            {**quorums, **self._offloading(), **(settings or {})},
            tiered,
            broker_flags,
        )

    @property
    def servers(self) -> dict[str, LocalServer]:
        """Every server by name, in start order."""
        servers = [*([self._objects] if self._objects else []), self.broker]
        return {**super().servers, **{server.name: server for server in servers}}

    @property
    def bookie_clients(self) -> list[LocalServer]:
        """See `SandboxCluster`. A broker can miss a bookie that registers while it starts."""
        return [*super().bookie_clients, self.broker]

    @property
    def objects(self) -> Objects:
        """Tiered storage. Raises `Stop` if the cluster has none."""
        if self._objects is None:
            raise Stop("a sandbox with tiered storage", "a sandbox without", "create it with tiered=True")
        return self._objects

    def _offloading(self) -> dict[str, object]:
        """The driver S3 uses only the endpoint; aws-s3 would ask AWS for the bucket's location."""
        if self._objects is None:
            return {}
        return {
            "managedLedgerOffloadDriver": "S3",
            "managedLedgerOffloadBucket": BUCKET,
            "managedLedgerOffloadRegion": REGION,
            "managedLedgerOffloadServiceEndpoint": self._objects.endpoint,
            "managedLedgerOffloadMaxBlockSizeInBytes": BLOCK_BYTES,
            "managedLedgerOffloadDeletionLagMs": 0,
        }

    @property
    def service_url(self) -> str:
        """Address for clients of topics."""
        return self.broker.service_url

    @property
    def admin_url(self) -> str:
        """Address of the broker's admin API."""
        return self.broker.admin_url

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Send a request with the JSON ``body`` to the admin API below /admin/v2. Returns the JSON, None if empty.

        Raises `Stop` if it refuses, `Retry` if it does not respond.
        """
        what = f"{method} {path}"
        try:
            url = f"{self.admin_url}/admin/v2/{path}"
            headers = self.broker.headers
            answer = urllib3.request(method, url, timeout=_ANSWER_S, retries=_REDIRECTS, json=body, headers=headers)
        except urllib3.exceptions.HTTPError as error:
            raise Retry(f"a response of the broker to {what}", str(error), "check that it runs, and its log") from error
        if answer.status >= 300:
            response = f"{answer.status} {answer.data[:500].decode(errors='replace')}"
            raise Stop(f"the broker to do {what}", response, "check its log")
        return answer.json() if answer.data else None

    def format(self) -> None:
        """Write the metadata of a new cluster to ZooKeeper. Raises `Stop` on failure."""
        self.broker.set_up_metadata()

    def down(self, grace_s: float = 10.0) -> None:
        """Shut everything down, the broker first and ZooKeeper last; with SIGKILL if ``grace_s`` is 0."""
        if grace_s:
            self.broker.stop(grace_s)
        super().down(grace_s)


_SETTINGS: Mapping[str, object] = {
    "dispatcherReadFailureBackoffInitialTimeInMs": 500,
    "dispatcherReadFailureBackoffMaxTimeInMs": 1_000,
    "managedLedgerMaxEntriesPerLedger": ENTRIES_PER_LEDGER,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "managedLedgerCacheSizeMB": 0,
    "retentionCheckIntervalInSeconds": 5,
    "defaultRetentionTimeInMinutes": -1,
    "defaultRetentionSizeInMB": -1,
    "brokerDeleteInactiveTopicsEnabled": "false",
    "allowAutoTopicCreation": "true",
    "topicLevelPoliciesEnabled": "false",
    "systemTopicEnabled": "false",
    "transactionCoordinatorEnabled": "false",
    "functionsWorkerEnabled": "false",
    "webSocketServiceEnabled": "false",
    "loadBalancerEnabled": "false",
    "metadataStoreSessionTimeoutMillis": SESSION_MS,
    "brokerShutdownTimeoutMs": 3_000,
    "numIOThreads": 2,
    "numOrderedExecutorThreads": 2,
    "numHttpServerThreads": 8,
    "numExecutorThreadPoolSize": 2,
    "numCacheExecutorThreadPoolSize": 2,
    "bookkeeperClientNumWorkerThreads": 2,
    "bookkeeperClientNumIoThreads": 2,
    "managedLedgerNumSchedulerThreads": 2,
}
