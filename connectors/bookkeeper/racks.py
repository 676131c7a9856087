"""Where a bookie stands, as BookKeeper's rack-aware policy would see it.

A rack is a network location such as ``/rack1``. None: the map does not know the bookie, BookKeeper puts it in its
default rack. "" : the map names a location that BookKeeper cannot use, so it leaves the bookie out of its topology
(NodeBase.normalize, NetworkTopologyImpl.add): such a bookie gives no rack to any ensemble.
"""

import ipaddress
import json
import logging
import os
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from state.errors import BadBytes, BadSettings
from state.standing import depth

log = logging.getLogger(__name__)
NOBODY: Mapping[str, str] = {}
SCRIPT_S = 60.0


class Racks(Protocol):
    """A rack map. ``znode``: what to watch and `load` from, empty if the map does not live in ZooKeeper."""

    znode: str

    def resolve(self, bookies: Iterable[str], hosts: Mapping[str, str] = NOBODY) -> dict[str, str | None]:
        """Rack of each bookie id. ``hosts``: hosts that bookies themselves published, by id."""

    def load(self, data: bytes | None) -> None:
        """Take over the content of ``znode`` (None: it does not exist). Raises `BadBytes` and keeps what it had."""

    def reload(self) -> None:
        """Ask whoever knows again, where nobody tells of changes."""


def normal(location: str | None) -> str | None:
    """A location as BookKeeper's topology takes it: one trailing slash goes; unusable ones are ""."""
    if location is None:
        return None
    found = location.removesuffix("/")
    return found if depth(found) > 0 else ""


def host_of(bookie: str, hosts: Mapping[str, str] = NOBODY) -> str:
    """Host of a bookie: what it published, else what its id says, else the id."""
    published = hosts.get(bookie)
    if published:
        return published
    host, colon, port = bookie.rpartition(":")
    return host.strip("[]") if colon and port.isdigit() else bookie


def address_of(host: str) -> str:
    """The address that Java's InetAddress.getByName(host).getHostAddress() gives; the host if it has none."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return host
    first = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    text = str(first[4][0])
    if first[0] == socket.AF_INET6:
        words = ipaddress.IPv6Address(text.partition("%")[0]).exploded.split(":")
        return ":".join(f"{int(word, 16):x}" for word in words)
    return text


class Unmapped:
    """No rack map: every bookie stands in the default rack, as in BookKeeper without a resolver."""

    znode = ""

    def resolve(self, bookies: Iterable[str], hosts: Mapping[str, str] = NOBODY) -> dict[str, str | None]:  # noqa: ARG002
        """None for each."""
        return dict.fromkeys(bookies)

    def load(self, data: bytes | None) -> None:
        """Nothing to take over."""

    def reload(self) -> None:
        """Nothing to ask."""


class Static:
    """A table of bookie ids or hosts and their racks."""

    znode = ""

    def __init__(self, table: Mapping[str, str]) -> None:
        self._table = {name: normal(rack) for name, rack in table.items()}

    def resolve(self, bookies: Iterable[str], hosts: Mapping[str, str] = NOBODY) -> dict[str, str | None]:
        """By id, else by host, else by address."""
        return {bookie: self._one(bookie, hosts) for bookie in bookies}

    def _one(self, bookie: str, hosts: Mapping[str, str]) -> str | None:
        host = host_of(bookie, hosts)
        for name in (bookie, host):
            if name in self._table:
                return self._table[name]
        return self._table.get(address_of(host))

    def load(self, data: bytes | None) -> None:
        """Nothing to take over."""

    def reload(self) -> None:
        """Nothing to ask."""


class Script:
    """The script of networkTopologyScriptFileName, called as ScriptBasedMapping calls it.

    Arguments are addresses, at most ``most`` a call; output is one location for each. What it said once holds until
    `reload`, as it does in BookKeeper until a restart.
    """

    znode = ""

    def __init__(self, path: str | os.PathLike[str], most: int = 100) -> None:
        self._path, self._most = str(Path(path).absolute()), most
        self._known: dict[str, str | None] = {}
        self._addresses: dict[str, str] = {}
        if self._run([]) is None:
            # BookKeeper calls it like this first, and else puts all bookies in the default rack.
            raise BadSettings([f"racks.script: {str(path)!r}: expected a script that exits with 0 without arguments"])

    def resolve(self, bookies: Iterable[str], hosts: Mapping[str, str] = NOBODY) -> dict[str, str | None]:
        """By address; the script is only called for addresses it was not asked about yet."""
        addresses = {bookie: self._address(host_of(bookie, hosts)) for bookie in bookies}
        self._ask(sorted({address for address in addresses.values() if address not in self._known}))
        return {bookie: self._known.get(address) for bookie, address in addresses.items()}

    def reload(self) -> None:
        """Ask about every known address again. An address that the script fails on now keeps its rack."""
        self._addresses.clear()
        self._ask(sorted(self._known))

    def load(self, data: bytes | None) -> None:
        """Nothing to take over."""

    def _address(self, host: str) -> str:
        if host not in self._addresses:
            found = address_of(host)
            if found == host and not _is_address(host):
                return host  # its name may resolve next time
            self._addresses[host] = found
        return self._addresses[host]

    def _ask(self, addresses: Sequence[str]) -> None:
        for at in range(0, len(addresses), self._most):
            some = addresses[at : at + self._most]
            locations = self._run(some)
            if locations is not None and len(locations) == len(some):
                self._known.update({address: normal(place) for address, place in zip(some, locations, strict=True)})
            elif len(some) > 1:
                # BookKeeper asks for one bookie at a time, so one bad address must not take the others along.
                for address in some:
                    self._ask([address])
            else:
                log.warning("the rack script has no location for a bookie", extra={"address": some[0]})

    def _run(self, addresses: Sequence[str]) -> list[str] | None:
        """Its words, None if it failed."""
        try:
            done = subprocess.run(
                [self._path, *addresses], capture_output=True, stdin=subprocess.DEVNULL, timeout=SCRIPT_S, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            log.warning("the rack script failed", extra={"script": self._path, "problem": str(error)})
            return None
        return done.stdout.decode(errors="replace").split()


class Pulsar:
    """Pulsar's znode: ``{"<group>": {"<bookie id>": {"rack": "/r1"}}}`` (BookieRackAffinityMapping)."""

    def __init__(self, znode: str = "/bookies") -> None:
        self.znode = znode
        self._racks: dict[str, str | None] = {}

    def resolve(self, bookies: Iterable[str], hosts: Mapping[str, str] = NOBODY) -> dict[str, str | None]:
        """By id, else by host."""
        return {b: self._racks.get(b, self._racks.get(host_of(b, hosts))) for b in bookies}

    def load(self, data: bytes | None) -> None:
        """Take over the JSON. A missing leading slash is added; an empty rack or "/" is none, as in Pulsar."""
        try:
            groups = json.loads(data) if data else {}
            entries = {bookie: entry.get("rack") for group in groups.values() for bookie, entry in group.items()}
            racks = {bookie: _pulsar_rack(rack) for bookie, rack in entries.items()}
        except (ValueError, AttributeError, TypeError, RecursionError) as error:
            at = error.pos if isinstance(error, json.JSONDecodeError) else 0
            expected = "groups of bookies with their racks as JSON"
            raise BadBytes(self.znode, at, expected, str(error), "set racks with pulsar-admin bookies") from error
        self._racks = {host_of(bookie): rack for bookie, rack in racks.items()} | racks

    def reload(self) -> None:
        """Nothing to ask: the watch tells."""


def _pulsar_rack(rack: str | None) -> str | None:
    if not rack or rack.strip() == "/":
        return None
    return normal(rack if rack.startswith("/") else f"/{rack}")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
