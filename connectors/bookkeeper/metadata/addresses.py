"""Addresses of bookies: from their registration or from their id (BookieServiceInfoFormat, BookieId.java).

An id is ``host:port`` or any name. Only registered bookies have an address: another process may listen on the address
of a bookie that went away, and would report every ledger as absent. (Cookies contain no more than the id.)
"""

import re
from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError

from trueup.connectors.bookkeeper.messages import ServiceInfo
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.connectors.zookeeper.errors import Forbidden

Address = tuple[str, int]
_ADDRESS = re.compile(r"(?P<host>[^:]+):(?P<port>\d{1,5})\Z", re.ASCII)
_PORTS = range(1, 1 << 16)
_RPC = b"bookie-rpc"


def endpoint(data: bytes) -> Address | None:
    """The read address in a bookie's registration; None if there is none."""
    info = ServiceInfo()
    try:
        info.ParseFromString(data)
    except DecodeError:
        return None
    points = ((point.host.decode(errors="replace"), int(point.port)) for point in info.endpoints if _serves(point))
    return next(points, None)


def _serves(point: Any) -> bool:
    return bool(point.protocol == _RPC and point.host and point.port in _PORTS)


def address_of(bookie: str, registration: bytes) -> Address | None:
    """The address of a registered bookie; None if neither its registration nor its id contains one."""
    match = _ADDRESS.match(bookie)
    named = (match["host"], int(match["port"])) if match and int(match["port"]) in _PORTS else None
    return endpoint(registration) or named


def address_or_error(bookie: str, addresses: Callable[[str], Address | None]) -> Address | Forbidden | None:
    """The address of a bookie, or the error if its registration may not be read, which concerns no other bookie."""
    try:
        return addresses(bookie)
    except Forbidden as error:
        return error


class Addresses:
    """Addresses in ZooKeeper, read once for each bookie; create a new object to read them again. ``hidden``: bookies
    whose registration may not be read."""

    def __init__(self, client: ZooKeeperClient, paths: BookKeeperPaths) -> None:
        self._client, self._paths = client, paths
        self._known: dict[str, Address | None] = {}
        self.hidden: set[str] = set()

    def __call__(self, bookie: str) -> Address | None:
        """The address of this bookie; None if it is not registered. Raises `Retry`, `Forbidden`."""
        if bookie not in self._known:
            registration = self._registration(bookie)
            self._known[bookie] = None if registration is None else address_of(bookie, registration)
        return self._known[bookie]

    def _registration(self, bookie: str) -> bytes | None:
        # A bookie that turns read-only registers as such before its writable registration ends.
        for parent in (self._paths.available, self._paths.readonly, self._paths.available):
            try:
                znode = self._client.look(f"{parent}/{bookie}")
            except Forbidden:
                self.hidden.add(bookie)
                raise
            if znode is not None:
                return znode[0]
        return None
