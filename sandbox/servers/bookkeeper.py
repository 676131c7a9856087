"""Bookies, AutoRecovery daemons and the formatting of a BookKeeper cluster, each in its own JVM.

Bookie N listens on 127.0.0.N, because BookKeeper's script mapping receives only addresses: the address is the host.
Settings: conf/bk_server.conf and ServerConfiguration.java of BookKeeper.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import urllib3

from trueup.connectors.embedded.jars import jars
from trueup.connectors.embedded.processes import Port, Process
from trueup.connectors.embedded.server import SMALL_JVM, LocalServer, jvm, log4j2, write_properties, write_whole

SESSION_MS = 4_000


@dataclass(frozen=True, slots=True)
class BookKeeperSite:
    """The common properties of one BookKeeper cluster."""

    root: Path
    jar_set: str
    zookeeper: str
    rack_script: Path
    flags: Sequence[str] = SMALL_JVM
    settings: Mapping[str, object] = field(default_factory=dict)
    policy: Mapping[str, object] = field(default_factory=dict)
    """Settings of the placement policy."""

    def common(self) -> dict[str, object]:
        """Settings of every bookie, daemon, shell and client."""
        return {
            "metadataServiceUri": f"zk+hierarchical://{self.zookeeper}/ledgers",
            "zkTimeout": SESSION_MS,
            "allowLoopback": "true",
            **self.policy,
            "reppDnsResolverClass": "org.apache.bookkeeper.net.ScriptBasedMapping",
            "networkTopologyScriptFileName": self.rack_script,
            "minNumRacksPerWriteQuorum": 2,
            "statsProviderClass": "org.apache.bookkeeper.stats.prometheus.PrometheusMetricsProvider",
            "httpServerClass": "org.apache.bookkeeper.http.vertx.VertxHttpServer",
            "httpServerHost": "127.0.0.1",
            "prometheusStatsHttpEnable": "false",
            "zkEnableSecurity": self.settings.get("zkEnableSecurity", "false"),
        }

    def jvm(self, name: str, root: Path, settings: Mapping[str, object], main: str, option: str) -> Process:
        """A process of this cluster; ``settings`` override the common ones."""
        conf = write_properties(root / f"{name}.conf", {**self.common(), **settings, **self.settings})
        flags = [*self.flags, f"-Dlog4j2.configurationFile={log4j2(self.root)}"]
        return jvm(name, root, jars(self.jar_set), [main, option, conf], flags)


def client_conf(site: BookKeeperSite) -> Path:
    """A configuration file for BookKeeper's client and shell."""
    directories = {"journalDirectory": site.root / "shell", "ledgerDirectories": site.root / "shell"}
    return write_properties(site.root / "client.conf", {**site.common(), **directories, "httpServerEnabled": "false"})


def metaformat(site: BookKeeperSite) -> None:
    """Create /ledgers. Raises `Stop` with the shell's output on failure."""
    shell(site, "metaformat", "-nonInteractive", "-force")


def shell(site: BookKeeperSite, *words: str) -> None:
    """Run a command of BookKeeper's shell (bin/bookkeeper shell). Raises `Stop` with its output on failure."""
    java = [f"-Dlog4j2.configurationFile={log4j2(site.root)}", "org.apache.bookkeeper.bookie.BookieShell"]
    command = [*java, "-conf", client_conf(site), *words]
    jvm(words[0], site.root / words[0], jars(site.jar_set), command, SMALL_JVM).run(120.0)


class BookieServer(LocalServer):
    """Bookie ``number``, at 127.0.0.<number> on ``port``; its admin API on ``http``."""

    def __init__(self, site: BookKeeperSite, number: int, port: Port, http: Port) -> None:
        super().__init__(f"bookie{number}", site.root / f"bookie{number}")
        self._site, self._port, self._http = site, port, http

    @property
    def id(self) -> str:
        """BookieId: 127.0.0.N:port."""
        return str(self._port)

    @property
    def url(self) -> str:
        """Address of its admin API."""
        return f"http://{self._http}"

    def make(self) -> Process:
        """Small caches and few threads; DbLedgerStorage as in Pulsar; BookKeeper's default deletion delays."""
        settings = {
            "bookiePort": self._port.number,
            "advertisedAddress": self._port.host,
            "listeningInterface": "lo",
            "journalDirectory": self.root / "journal",
            "ledgerDirectories": self.root / "ledgers",
            "diskUsageThreshold": 0.99,
            "diskUsageWarnThreshold": 0.98,
            "journalSyncData": "false",
            "journalPreAllocSizeMB": 4,
            "entryLogFilePreallocationEnabled": "false",
            "logSizeLimit": 16 << 20,
            "numReadWorkerThreads": 1,
            "numAddWorkerThreads": 1,
            "numHighPriorityWorkerThreads": 1,
            "serverNumIOThreads": 1,
            "gcWaitTime": 3_000,
            "minorCompactionThreshold": 0,  # no compaction; BookKeeper before 4.15 refuses intervals of 0
            "majorCompactionThreshold": 0,
            "flushInterval": 2_000,
            "allocatorPoolingPolicy": "UnpooledHeap",
            "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
            "dbStorage_writeCacheMaxSizeMb": 8,
            "dbStorage_readAheadCacheMaxSizeMb": 8,
            "dbStorage_rocksDB_blockCacheSize": 4 << 20,
            "autoRecoveryDaemonEnabled": "false",
            "httpServerEnabled": "true",
            "httpServerPort": self._http.number,
        }
        return self._site.jvm(self.name, self.root, settings, "org.apache.bookkeeper.server.Main", "--conf")

    def is_ready(self) -> bool:
        """Whether its admin API reports readiness (it is registered then)."""
        return _answers(f"{self.url}/api/v1/bookie/is_ready")


class AutoRecovery(LocalServer):
    """AutoRecovery daemon ``number``: Auditor elector and replication worker.

    ``repairs``: whether the worker repairs fragments that do not adhere to the placement policy (BP-54).
    """

    def __init__(self, site: BookKeeperSite, number: int, http: Port, repairs: bool) -> None:
        super().__init__(f"autorecovery{number}", site.root / f"autorecovery{number}")
        self._site, self._http, self._repairs = site, http, repairs

    @property
    def url(self) -> str:
        """Address of its admin API."""
        return f"http://{self._http}"

    def make(self) -> Process:
        """The Auditor's periodic tasks are disabled, so that it acts only on losses."""
        settings = {
            "bookieId": self.name,
            "bookiePort": self._http.number,
            "advertisedAddress": "127.0.0.1",
            "journalDirectory": self.root / "journal",
            "ledgerDirectories": self.root / "ledgers",
            "auditorPeriodicBookieCheckInterval": 0,
            "auditorPeriodicCheckInterval": 0,
            "auditorPeriodicPlacementPolicyCheckInterval": 0,
            "openLedgerRereplicationGracePeriod": 10_000,
            "repairedPlacementPolicyNotAdheringBookieEnabled": str(self._repairs).lower(),
            "numIOThreads": 1,
            "httpServerEnabled": "true",
            "httpServerPort": self._http.number,
        }
        main = "org.apache.bookkeeper.replication.AutoRecoveryMain"
        return self._site.jvm(self.name, self.root, settings, main, "--conf")

    def is_ready(self) -> bool:
        """Whether its admin API responds."""
        return _answers(f"{self.url}/heartbeat")


def rack_script(path: Path, racks: Mapping[str, str]) -> Path:
    """A networkTopologyScriptFileName: one rack per argument; an unknown address is in the first rack."""
    other = next(iter(racks.values()), "/default-rack")
    cases = "".join(f"    {address}) echo {rack} ;;\n" for address, rack in racks.items())
    case = f'case "$address" in\n{cases}    *) echo {other} ;;\n  esac'
    return write_whole(path, f'#!/bin/sh\nfor address in "$@"; do\n  {case}\ndone\nexit 0\n', 0o755)


def _answers(url: str) -> bool:
    try:
        return urllib3.request("GET", url, timeout=5.0, retries=False).status == 200
    except urllib3.exceptions.HTTPError:
        return False
