"""Where bookies listen: what they registered with, or what their id says (BookieServiceInfoFormat, BookieId.java).

An id is ``host:port`` or any name. Only registered bookies have an address: behind that of one that went away somebody
else may listen, who says of every ledger that there is none. (Cookies tell nothing that the id does not.)
"""

import re
from typing import Any

from google.protobuf.message import DecodeError

from trueup.connectors.bookkeeper.messages import ServiceInfo
from trueup.connectors.bookkeeper.metadata.layout import Paths
from trueup.connectors.zookeeper.client import Client

Address = tuple[str, int]
_ADDRESS = re.compile(r"(?P<host>[^:]+):(?P<port>\d{1,5})\Z", re.ASCII)
_PORTS = range(1, 1 << 16)
_RPC = b"bookie-rpc"


def endpoint(data: bytes) -> Address | None:
    """Where a bookie's registration says that it serves reads; None if it names no such place."""
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
    """Where a registered bookie listens; None if neither its registration nor its id says so."""
    found = _ADDRESS.match(bookie)
    named = (found["host"], int(found["port"])) if found and int(found["port"]) in _PORTS else None
    return endpoint(registration) or named


class Addresses:
    """Addresses as ZooKeeper has them, read once for each bookie; make a new one to look again."""

    def __init__(self, client: Client, paths: Paths) -> None:
        self._client, self._paths = client, paths
        self._known: dict[str, Address | None] = {}

    def __call__(self, bookie: str) -> Address | None:
        """Where this bookie listens; None if it is not registered. Raises `Retry`."""
        if bookie not in self._known:
            found = self._registration(bookie)
            self._known[bookie] = None if found is None else address_of(bookie, found)
        return self._known[bookie]

    def _registration(self, bookie: str) -> bytes | None:
        # One that turns read-only is registered as such before it is no longer registered as writable.
        for parent in (self._paths.available, self._paths.readonly, self._paths.available):
            found = self._client.look(f"{parent}/{bookie}")
            if found is not None:
                return found[0]
        return None
