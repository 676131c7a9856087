"""Racks of bookies, as BookKeeper's rack-aware policy sees them.

A rack is a network location such as ``/rack1``. None: the map does not contain the bookie, and BookKeeper puts it into
its default rack. "": the map contains a location that BookKeeper cannot use, so it excludes the bookie from its
topology (NodeBase.normalize, NetworkTopologyImpl.add): such a bookie gives no rack to any ensemble.
"""

import ipaddress
import json
import logging
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from trueup.state.bookkeeper.topology import UNKNOWN_RACK
from trueup.state.common.counts import many
from trueup.state.common.errors import BadBytes, BadSettings, Retry
from trueup.state.placement.policy.bookie_classes import depth

log = logging.getLogger(__name__)
REMEDY = "correct the script of racks.script"
SHOWN = 64
NO_HOSTS: Mapping[str, str] = {}
SCRIPT_S = 5.0
MOST_BYTES = 1 << 20
"""Limit of a script's output: a thousand times the size of a hundred locations."""


class _Late(Retry):
    """The script timed out. A retry for single bookies would take the same time for each."""


class RackMap(Protocol):
    """A rack map."""

    znode: str
    """The path of the znode to watch and to `load` from; empty if the map is not in ZooKeeper."""

    def resolve(self, bookies: Iterable[str], hosts: Mapping[str, str] = NO_HOSTS) -> dict[str, str | None]:
        """The rack of each bookie id. ``hosts``: the hosts that bookies published, by id."""

    def named(self, bookie: str) -> str | None:
        """The rack of a bookie id whose host is not known; `UNKNOWN_RACK` if it depends on the host."""

    def groups(self, bookie: str) -> tuple[str, ...] | None:
        """The groups of the map that list a bookie id; None if the map has no groups or was not read yet."""

    def load(self, data: bytes | None) -> None:
        """Load the content of ``znode`` (None: it does not exist). Raises `BadBytes` and keeps the old content."""


def racks_of(
    racks: RackMap, bookies: Sequence[str], hosts: Mapping[str, str], hidden: Collection[str]
) -> dict[str, str | None]:
    """The rack of each bookie id. ``hidden``: bookies whose registration, and so their host, may not be read."""
    blind = {bookie for bookie in hidden if bookie not in hosts}
    named = {bookie: racks.named(bookie) for bookie in blind}
    return racks.resolve([bookie for bookie in bookies if bookie not in blind], hosts) | named


def normal(location: str | None) -> str | None:
    """A location in BookKeeper's form: one trailing slash is removed; an unusable one is ""."""
    if location is None:
        return None
    path = location.removesuffix("/")
    return path if depth(path) > 0 else ""


def host_of(bookie: str, hosts: Mapping[str, str] = NO_HOSTS) -> str:
    """The host of a bookie: published by it, otherwise from its id, otherwise the id."""
    published = hosts.get(bookie)
    if published:
        return published
    host, colon, port = bookie.rpartition(":")
    return host.strip("[]") if colon and port.isdigit() else bookie


def address_of(host: str) -> str | None:
    """The result of Java's InetAddress.getByName(host).getHostAddress(); None if no address was found."""
    try:
        entries = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    first = min(entries, key=lambda entry: entry[0] != socket.AF_INET)
    text = str(first[4][0])
    if first[0] == socket.AF_INET6:
        words = ipaddress.IPv6Address(text.partition("%")[0]).exploded.split(":")
        return ":".join(f"{int(word, 16):x}" for word in words)
    return text


class WithoutGroups:
    """A rack map that is not in ZooKeeper and has no groups."""

    znode = ""

    def groups(self, bookie: str) -> tuple[str, ...] | None:  # noqa: ARG002
        """None."""
        return None

    def load(self, data: bytes | None) -> None:
        """No operation: the map is not in ZooKeeper."""


class Unmapped(WithoutGroups):
    """No rack map: every bookie is in the default rack, as in BookKeeper without a resolver."""

    def resolve(self, bookies: Iterable[str], hosts: Mapping[str, str] = NO_HOSTS) -> dict[str, str | None]:  # noqa: ARG002
        """None for each."""
        return dict.fromkeys(bookies)

    def named(self, bookie: str) -> str | None:  # noqa: ARG002
        """None."""
        return None


class StaticRacks(WithoutGroups):
    """A static map from bookie ids or hosts to racks."""

    def __init__(self, table: Mapping[str, str]) -> None:
        self._table = {name: normal(rack) for name, rack in table.items()}
        self._addresses: dict[str, str] = {}

    def resolve(self, bookies: Iterable[str], hosts: Mapping[str, str] = NO_HOSTS) -> dict[str, str | None]:
        """By id, else by host, else by address."""
        return {bookie: self._one(bookie, hosts) for bookie in bookies}

    def _one(self, bookie: str, hosts: Mapping[str, str]) -> str | None:
        host = host_of(bookie, hosts)
        for name in (bookie, host):
            if name in self._table:
                return self._table[name]
        address = address_of(host)
        if address is not None:
            self._addresses[host] = address
        # A lookup that fails says nothing about the rack: the last address holds.
        return self._table.get(self._addresses.get(host, host))

    def named(self, bookie: str) -> str | None:
        """By id."""
        return self._table.get(bookie, UNKNOWN_RACK)


class Script(WithoutGroups):
    """The script of networkTopologyScriptFileName, called as ScriptBasedMapping calls it.

    Arguments are addresses, at most ``most`` per call; the output is one location for each. A call that exceeds
    ``limit_s`` is terminated with all its child processes.
    """

    def __init__(self, path: str | os.PathLike[str], most: int = 100, limit_s: float = SCRIPT_S) -> None:
        self._path, self._most, self._limit_s = str(Path(path).absolute()), most, limit_s
        self._known: dict[str, str] = {}
        self._addresses: dict[str, str] = {}
        try:
            self._run([])
        except Retry as error:
            # BookKeeper makes this call first, and puts all bookies in the default rack if it fails.
            expected = "expected a script that exits with 0 without arguments"
            raise BadSettings([f"racks.script: {str(path)!r}: {expected}; found {error.found}"]) from error

    def resolve(self, bookies: Iterable[str], hosts: Mapping[str, str] = NO_HOSTS) -> dict[str, str | None]:
        """By host; queries hosts without an answer. None for those without a location. Blocks."""
        by_bookie = {bookie: host_of(bookie, hosts) for bookie in bookies}
        locations, problem = self.locations(sorted({*by_bookie.values()} - self._known.keys()))
        if problem:
            log.warning("rack of a bookie not resolved", extra={"problem": problem})
        self._known.update(locations)
        return {bookie: self._known.get(host) for bookie, host in by_bookie.items()}

    def named(self, bookie: str) -> str | None:  # noqa: ARG002
        """Unknown: scripts map hosts."""
        return UNKNOWN_RACK

    def locations(self, hosts: Sequence[str]) -> tuple[dict[str, str], str]:
        """The locations that the script returns, by host, and the problem with any other host. Blocks.

        A host whose lookup fails keeps its last address: BookKeeper looks it up once, and what the script returns for
        a name that it does not know would replace the location. The script is called with the name of a host that
        never had an address, as by BookKeeper (NetUtils.resolveNetworkLocation).
        """
        for host in hosts:
            if (address := address_of(host)) is not None:
                self._addresses[host] = address
        addresses = {host: self._addresses.get(host, host) for host in hosts}
        distinct, locations, problem = sorted({*addresses.values()}), dict[str, str](), ""
        for at in range(0, len(distinct), self._most):
            try:
                locations |= self._ask(distinct[at : at + self._most])
            except Retry as error:
                problem = error.found
                if isinstance(error, _Late):
                    break
        missing = [host for host, address in addresses.items() if address not in locations]
        if missing and not problem:
            problem = f"no location for {missing[0]}"
        return {host: locations[address] for host, address in addresses.items() if address in locations}, problem

    def _ask(self, addresses: Sequence[str]) -> dict[str, str]:
        """Those of these addresses that have a usable location. Raises `Retry` if none has one."""
        try:
            words = self._run(addresses)
            if len(words) != len(addresses):
                raise Retry(many(len(addresses), "location"), many(len(words), "word"), REMEDY)
            locations = {
                address: place for address, word in zip(addresses, words, strict=True) if (place := normal(word))
            }
            if not locations:
                raise Retry("a location such as /rack1", repr(words[0][:SHOWN]), REMEDY)
        except _Late:
            raise
        except Retry:
            if len(addresses) == 1:
                raise
            # BookKeeper queries bookies one by one, so one invalid address must not affect the others.
            return self._ask_singly(addresses)
        return locations

    def _ask_singly(self, addresses: Sequence[str]) -> dict[str, str]:
        locations, last = dict[str, str](), None
        for address in addresses:
            try:
                locations |= self._ask([address])
            except Retry as error:
                last = error
        if last is not None and not locations:
            raise last
        return locations

    def _run(self, addresses: Sequence[str]) -> list[str]:
        """The words of its output. Raises `Retry`."""
        expected = "the rack script to exit with 0"
        try:
            # The output goes to a file: a child process that outlives the script could keep a pipe open.
            with (
                tempfile.TemporaryFile() as output,
                subprocess.Popen(
                    [self._path, *addresses],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                ) as process,
            ):
                code = self._ended(process)
                output.seek(0)
                content = output.read(MOST_BYTES + 1)
        except OSError as error:
            raise Retry(expected, str(error), REMEDY) from error
        if code:
            raise Retry(expected, f"exit code {code}", REMEDY)
        if len(content) > MOST_BYTES:
            raise Retry(expected, f"more than {MOST_BYTES} bytes of output", REMEDY)
        return content.decode(errors="replace").split()

    def _ended(self, process: "subprocess.Popen[bytes]") -> int:
        try:
            return process.wait(self._limit_s)
        except subprocess.TimeoutExpired as error:
            raise _Late("the rack script to end", f"a time-out after {self._limit_s:g} s", REMEDY) from error
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


class PulsarRacks:
    """Pulsar's znode: ``{"<group>": {"<bookie id>": {"rack": "/r1"}}}`` (BookieRackAffinityMapping)."""

    def __init__(self, znode: str = "/bookies") -> None:
        self.znode = znode
        self._racks: dict[str, str | None] | None = None
        self._groups: dict[str, tuple[str, ...]] = {}

    def resolve(self, bookies: Iterable[str], hosts: Mapping[str, str] = NO_HOSTS) -> dict[str, str | None]:
        """By id, otherwise by host."""
        racks = self._racks
        if racks is None:
            return dict.fromkeys(bookies, UNKNOWN_RACK)
        return {b: racks.get(b, racks.get(host_of(b, hosts))) for b in bookies}

    def named(self, bookie: str) -> str | None:
        """By id."""
        return (self._racks or {}).get(bookie, UNKNOWN_RACK)

    def groups(self, bookie: str) -> tuple[str, ...] | None:
        """By id (IsolatedBookieEnsemblePlacementPolicy)."""
        return None if self._racks is None else self._groups.get(bookie, ())

    def load(self, data: bytes | None) -> None:
        """Load the JSON. A missing leading slash is added; an empty rack or "/" is none, as in Pulsar."""
        try:
            groups = json.loads(data) if data else {}
            entries = {bookie: entry.get("rack") for group in groups.values() for bookie, entry in group.items()}
            racks = {bookie: _pulsar_rack(rack) for bookie, rack in entries.items()}
        except (ValueError, AttributeError, TypeError, RecursionError) as error:
            at = error.pos if isinstance(error, json.JSONDecodeError) else 0
            expected = "groups of bookies with their racks as JSON"
            raise BadBytes(self.znode, at, expected, str(error), "set racks with pulsar-admin bookies") from error
        members = dict[str, tuple[str, ...]]()
        for name in sorted(groups):
            members |= {bookie: (*members.get(bookie, ()), name) for bookie in groups[name]}
        self._groups = members
        self._racks = {host_of(bookie): rack for bookie, rack in racks.items()} | racks


def _pulsar_rack(rack: str | None) -> str | None:
    if not rack or rack.strip() == "/":
        return None
    return normal(rack if rack.startswith("/") else f"/{rack}")
