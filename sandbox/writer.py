"""Ledgers with known content, written and read back by BookKeeper's client.

The content of an entry is a function of its ledger and entry id, so that a reader needs no record of the writes.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType, TracebackType
from typing import Any, Self

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JJavaError

from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.gateway import Gateway
from trueup.sandbox.policies import ISOLATED, PULSAR
from trueup.state.common.counts import many
from trueup.state.common.errors import Stop, Unknown

PASSWORD = b"sandbox"
CHUNK = 200
READ_TIMEOUT_S, ADD_TIMEOUT_S = 3, 5
QUORUM_TIMEOUT_S, ANSWER_S = 30, 60
"""Seconds after which the client gives up an entry that has not enough acknowledgements, and after which a call of the
client is given up. By default an entry that waits for the replacement of a bookie waits forever; a replacement can fail
without a trace when several bookies are lost at once."""

# Classes of BKException.java, by name prefix
_NO_SUCH_LEDGER = "BKNoSuchLedgerExists"
_DIGEST_MISMATCH = "BKDigestMatch"


def payload(ledger: int, entry: int, size: int = 256) -> bytes:
    """The ``size`` bytes of entry ``entry`` of ledger ``ledger``."""
    return hashlib.shake_128(f"{ledger}:{entry}".encode()).digest(size)


@dataclass(slots=True)
class LedgerHandle:
    """A ledger that is open for writing."""

    ledger: int
    entries: int
    """The number of acknowledged entries."""
    java: Any


@dataclass(frozen=True, slots=True)
class Readback:
    """The result of reading a ledger."""

    ledger: int
    read: int
    """The number of correct entries."""
    lost: tuple[int, ...] = ()
    """The ids of lost entries, see `LedgerWriter.verify`."""
    corrupt: tuple[int, ...] = ()
    """The ids of entries whose content is not the expected one."""


class LedgerWriter:
    """A BookKeeper client in its own JVM, with the settings of the cluster.

    ``entry_size``: the size of an entry in bytes. ``digest``: CRC32, CRC32C, MAC or DUMMY. ``settings`` override those
    of the cluster. Open ledgers remain open when the client closes, as after a crash.
    """

    def __init__(
        self,
        cluster: SandboxCluster,
        entry_size: int = 256,
        name: str = "writer",
        digest: str = "CRC32C",
        settings: Mapping[str, str] = MappingProxyType({}),
        group: str = "",
    ) -> None:
        if group and group not in cluster.policy.groups:
            groups = ", ".join(cluster.policy.groups) or "none"
            raise Stop(f"one of the groups {groups}", group, "name a group of a sandbox with --policy isolation")
        self.open_handles: dict[int, LedgerHandle] = {}
        self._entry_size = entry_size
        self._cluster, self._group = cluster, group
        self._gateway = Gateway(name, cluster.root / name, PULSAR if group else cluster.jar_set)
        try:
            self._client = self._connect(cluster, settings)
        except BaseException:
            self._gateway.close()
            raise
        digest_types = JavaClass("org.apache.bookkeeper.client.BookKeeper$DigestType", self._gateway.client)
        self._digest = getattr(digest_types, digest)
        self._seconds = self._gateway.java.java.util.concurrent.TimeUnit.SECONDS

    def create(self, ensemble: int, write_quorum: int, ack_quorum: int) -> LedgerHandle:
        """Create a ledger. Raises `Unknown` on failure."""
        java = self._created(ensemble, write_quorum, ack_quorum)
        while self._group and not self._is_in_group(java):
            # Pulsar's class reads the groups in another thread, and excludes no bookie before.
            self.delete(java.getId())
            java = self._created(ensemble, write_quorum, ack_quorum)
        handle = LedgerHandle(java.getId(), 0, java)
        self.open_handles[handle.ledger] = handle
        return handle

    def _created(self, *sizes: int) -> Any:
        custom = self._gateway.java.java.util.HashMap()
        if self._group:
            config = {"policyClass": ISOLATED, "properties": {"isolationBookieGroups": self._group}}
            custom.put("EnsemblePlacementPolicyConfig", json.dumps(config).encode())
        return _call("a new ledger", lambda: self._client.createLedger(*sizes, self._digest, PASSWORD, custom))

    def _is_in_group(self, java: Any) -> bool:
        text = str(java.getLedgerMetadata().getAllEnsembles().toString())
        policy, cluster = self._cluster.policy, self._cluster
        others = [n for n in cluster.bookies if policy.group_of(cluster.rack_of(n)) != self._group]
        return not any(cluster.bookie_id(number) in text for number in others)

    def add(self, handle: LedgerHandle, count: int) -> None:
        """Append the next ``count`` entries and wait until all are acknowledged. Raises `Unknown` if one is not."""
        what = f"{many(count, 'more entry', 'more entries')} in ledger {handle.ledger}"
        try:
            for first, last in _chunks(handle.entries, handle.entries + count):
                contents = [payload(handle.ledger, entry, self._entry_size) for entry in range(first, last + 1)]
                futures = [handle.java.appendAsync(content) for content in contents]
                _call(what, partial(futures[-1].get, ANSWER_S, self._seconds))  # entries are acknowledged in order
        finally:
            handle.entries = handle.java.getLastAddConfirmed() + 1

    def close(self, handle: LedgerHandle) -> None:
        """Close a ledger. Raises `Unknown` on failure; it may be closed then."""
        _call(f"ledger {handle.ledger} closed", partial(handle.java.closeAsync().get, ANSWER_S, self._seconds))
        del self.open_handles[handle.ledger]

    def write(self, ensemble: int, write_quorum: int, ack_quorum: int, count: int) -> int:
        """Write a closed ledger of ``count`` entries and return its id."""
        handle = self.create(ensemble, write_quorum, ack_quorum)
        self.add(handle, count)
        self.close(handle)
        return handle.ledger

    def verify(self, ledger: int, entries: int) -> Readback:
        """Read entries 0 to ``entries`` - 1 and compare them with the expected content. Never fences the ledger.

        An entry is lost if no bookie of its write quorum returned it in two attempts. Raises `Unknown` if the
        ledger cannot be opened although its metadata exist.
        """
        try:
            java = _call(f"ledger {ledger} open", lambda: self._open(ledger))
        except _NoSuchLedger:
            return Readback(ledger, 0, lost=tuple(range(entries)))
        contents: dict[int, bytes | None] = {}
        for first, last in _chunks(0, entries):
            contents |= _read(java, first, last)
        java.close()
        lost = [entry for entry in range(entries) if entry not in contents]
        corrupt = [entry for entry, got in contents.items() if got != payload(ledger, entry, self._entry_size)]
        return Readback(ledger, entries - len(lost) - len(corrupt), tuple(lost), tuple(sorted(corrupt)))

    def delete(self, ledger: int) -> None:
        """Delete the metadata of a ledger; bookies collect its entries later."""
        _call(f"ledger {ledger} deleted", lambda: self._client.deleteLedger(ledger))

    def shutdown(self) -> None:
        """End the client as in a crash: open ledgers remain open."""
        self._gateway.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def _connect(self, cluster: SandboxCluster, settings: Mapping[str, str]) -> Any:
        java = self._gateway.java
        conf = java.org.apache.bookkeeper.conf.ClientConfiguration()
        conf.loadConf(java.java.io.File(str(cluster.client_conf)).toURI().toURL())
        conf.setAddEntryTimeout(ADD_TIMEOUT_S)
        conf.setReadEntryTimeout(READ_TIMEOUT_S)
        conf.setAddEntryQuorumTimeout(QUORUM_TIMEOUT_S)
        for key, value in {**settings, **(cluster.policy.isolated(self._group) if self._group else {})}.items():
            conf.setProperty(key, value)
        if self._group:
            conf.setProperty("METADATA_STORE_INSTANCE", self._groups(cluster))
        return _call("a BookKeeper client", lambda: java.org.apache.bookkeeper.client.BookKeeper(conf))

    def _groups(self, cluster: SandboxCluster) -> Any:
        """A metadata store with Pulsar's znode /bookies, as brokers pass it to the client."""
        metadata = self._gateway.java.org.apache.pulsar.metadata.api
        config = metadata.MetadataStoreConfig.builder().build()
        return metadata.MetadataStoreFactory.create(f"zk:{cluster.zookeeper.address}", config)

    def _open(self, ledger: int) -> Any:
        return self._client.openLedgerNoRecovery(ledger, self._digest, PASSWORD)


class _NoSuchLedger(Unknown):
    """The ledger has no metadata."""


def _read(java: Any, first: int, last: int) -> dict[int, bytes | None]:
    """Contents by entry id, None if only corrupt replicas were returned; a lost entry is missing.

    All entries are read in one request, and one by one if it fails, so that a lost entry does not hide its neighbours.
    """
    try:
        return _contents(java.readUnconfirmedAsync(first, last).get(), range(first, last + 1))
    except Py4JJavaError:
        contents, failed = _read_singly(java, range(first, last + 1))
        again, still = _read_singly(java, failed)
        corrupt = {entry: None for entry, error in still.items() if _DIGEST_MISMATCH in _text(error)}
        return contents | again | corrupt


def _read_singly(java: Any, entries: Iterable[int]) -> tuple[dict[int, bytes | None], dict[int, Py4JJavaError]]:
    """Contents and errors by entry id."""
    contents: dict[int, bytes | None] = {}
    failed = {}
    for entry, future in [(entry, java.readUnconfirmedAsync(entry, entry)) for entry in entries]:
        try:
            contents |= _contents(future.get(), [entry])
        except Py4JJavaError as error:
            failed[entry] = error
    return contents, failed


def _contents(answer: Any, entries: Iterable[int]) -> dict[int, bytes | None]:
    contents: dict[int, bytes | None] = {entry: bytes(answer.getEntry(entry).getEntryBytes()) for entry in entries}
    answer.close()
    return contents


def _chunks(start: int, end: int) -> Iterator[tuple[int, int]]:
    """First and last entry of each piece of [start, end)."""
    for first in range(start, end, CHUNK):
        yield first, min(first + CHUNK, end) - 1


def _call(expected: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Py4JJavaError as error:
        text = _text(error)
        kind = _NoSuchLedger if _NO_SUCH_LEDGER in text else Unknown
        raise kind(expected, text, "check which bookies run, and the log of the writer") from None


def _text(error: Py4JJavaError) -> str:
    """The BKException, with the names of its wrappers."""
    return str(error.java_exception.toString())
