"""A standalone ZooKeeper server on 127.0.0.1."""

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from trueup.connectors.embedded.jars import jars
from trueup.connectors.embedded.processes import Port, Process
from trueup.connectors.embedded.server import LocalServer, jvm, log4j2, write_properties

SET = "bookkeeper-4.17.3"
# A sandbox need not survive a power failure, but it must not wait for a busy disk.
JVM = ("-Xms48m", "-Xmx512m", "-XX:+UseSerialGC", "-Dzookeeper.forceSync=no")


class ZooKeeper(LocalServer):
    """``jar_set`` is one of BookKeeper's, which contain the server's jars. ``settings`` are added to zoo.cfg."""

    def __init__(
        self,
        root: Path,
        jar_set: str = SET,
        port: Port | None = None,
        flags: Sequence[str] = JVM,
        settings: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        super().__init__("zookeeper", root.absolute())
        self._jar_set, self._port, self._flags, self._settings = jar_set, port or Port(), flags, settings

    @property
    def address(self) -> str:
        """host:port."""
        return str(self._port)

    def make(self) -> Process:
        """Session time-outs can be as short as 1 s (2 ticks), so that a lost bookie is detected soon."""
        settings = write_properties(
            self.root / "zoo.cfg",
            {
                "tickTime": 500,
                "dataDir": self.root / "data",
                "clientPort": self._port.number,
                "clientPortAddress": self._port.host,
                "maxClientCnxns": 0,
                "maxSessionTimeout": 60_000,
                "admin.enableServer": "false",
                "4lw.commands.whitelist": "*",
                **self._settings,
            },
        )
        main = [
            "-Dlog4j2.configurationFile=" + str(log4j2(self.root)),
            "org.apache.zookeeper.server.ZooKeeperServerMain",
        ]
        return jvm(self.name, self.root, jars(self._jar_set), [*main, settings], self._flags)

    def close(self) -> None:
        """Kill it and release its port."""
        super().close()
        self._port.release()

    def is_ready(self) -> bool:
        """Whether it responds with imok."""
        return self._ask(b"ruok") == b"imok"

    def ephemerals(self) -> set[str]:
        """Paths of all ephemeral znodes (the command ``dump``); none while it does not respond."""
        return {line.strip() for line in self._ask(b"dump").decode().splitlines() if line.startswith("\t")}

    def _ask(self, word: bytes) -> bytes:
        """The response to a four-letter word, empty if there is none."""
        try:
            with socket.create_connection((self._port.host, self._port.number), 2.0) as connection:
                connection.sendall(word)
                return b"".join(iter(lambda: connection.recv(65_536), b""))
        except OSError:
            return b""
