"""A znode whose version stands for the epoch of a leader: changes of an earlier leader fail.

The leader writes its epoch to the znode once, which changes the version. Each of its transactions checks this version,
so a transaction that an earlier leader sends late, or that waited in its queue, has no effect.
"""

import json
import threading
from collections.abc import Callable
from typing import Any, Protocol

from trueup.connectors.zookeeper.errors import NodeExists, NoNode
from trueup.connectors.zookeeper.requests import Stat, check
from trueup.state.common.errors import Stop


class Nodes(Protocol):
    """What a fence needs of `ZooKeeperClient`."""

    def look(self, path: str) -> tuple[bytes, Stat] | None:
        """Data and stat of a znode."""

    def make(self, path: str, data: bytes = b"") -> str:
        """Create a znode."""

    def put(self, path: str, data: bytes, version: int) -> int:
        """Set the data of a znode of this version."""


class Fence:
    """The fence of one leader. ``path``: the path of the znode; ``run``: the id of this leader's run; ``fenced``: the
    function that is called, with a reason, if another instance leads."""

    def __init__(self, path: str, epoch: int, run: str, fenced: Callable[[str], object]) -> None:
        self._path, self._epoch, self._run, self._fenced = path, epoch, run, fenced
        self._data = json.dumps({"epoch": epoch, "run": run}).encode()
        self._lock = threading.Lock()
        self._version: int | None = None

    def check(self, client: Nodes) -> bytes:
        """The operation that precedes those of a transaction. The first call writes the epoch. Raises `Stop` if another
        one leads, and errors of the client."""
        with self._lock:
            if self._version is None:
                self._version = self._taken(client)
            return check(self._path, self._version)

    def refused(self) -> Stop:
        """The error for a transaction whose check failed."""
        cause = f"another version of {self._path}"
        self._fenced(f"ZooKeeper refused a change: {cause}")
        return Stop(f"this leader, of epoch {self._epoch}, to lead", cause, "none: another instance leads")

    def _taken(self, client: Nodes) -> int:
        """Write the epoch if the znode has none or an earlier one. Returns the version."""
        znode = client.look(self._path)
        if znode is None:
            self._create(client)
            znode = client.look(self._path)
            if znode is None:
                raise NoNode(f"the znode {self._path}", "none", "it is created again")
        data, stat = znode
        if data == self._data:
            return stat.version
        if self._number(data) >= self._epoch:
            raise self.refused()
        return client.put(self._path, self._data, stat.version)

    def _create(self, client: Nodes) -> None:
        for path, data in ((self._path.rpartition("/")[0], b""), (self._path, self._data)):
            try:
                client.make(path, data)
            except NodeExists:
                continue

    def _number(self, data: bytes) -> int:
        try:
            content: Any = json.loads(data)
            return int(content["epoch"])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise Stop(
                f"an epoch in the znode {self._path}", repr(data[:80]), "delete the znode while no instance runs"
            ) from error
