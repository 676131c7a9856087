"""Makes a Pulsar cluster leave unreferenced ledgers in BookKeeper, as it does by itself.

A broker first removes a ledger from its topic's list and then deletes it, in at most three attempts; pending deletions
are only in its memory (ManagedLedgerImpl.internalTrimLedgers and asyncDeleteLedger). `forget` makes every
deletion fail and kills the broker before it gives up. `plant` creates what a broker leaves after it created a ledger
for a topic that was closed meanwhile (ManagedLedgerImpl.createComplete): an empty, closed, unlisted ledger.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

from kazoo.client import KazooClient
from kazoo.security import ACL, ANYONE_ID_UNSAFE, OPEN_ACL_UNSAFE, Permissions

from trueup.connectors.embedded.processes import SLOW_MACHINE_S, wait_until
from trueup.sandbox.pulsar import SandboxPulsar
from trueup.state.common.errors import Stop, Unknown

LEDGERS = "/ledgers"
_ALL_BUT_DELETE = [ACL(Permissions.READ | Permissions.WRITE | Permissions.CREATE | Permissions.ADMIN, ANYONE_ID_UNSAFE)]
_ATTEMPTS = 3
"""Offloads of a topic. The broker retries no response 500 of the object store, an operator does."""
_DROPPED = b"\x18\x01\x20\x01"
"""The fields complete and bookkeeperDeleted, both true (OffloadContext of MLDataFormats.proto)."""
_CLOSED, _CRC32C, _NO_ENTRY = 3, 3, -1


def listed(pulsar: SandboxPulsar, topic: str) -> list[int]:
    """Ledgers in the list of a topic (``tenant/namespace/name``), the open one last. Loads the topic."""
    stats = pulsar.ask("GET", f"persistent/{topic}/internalStats")
    return [int(ledger["ledgerId"]) for ledger in stats["ledgers"]]


def truncate(pulsar: SandboxPulsar, topic: str) -> list[int]:
    """Truncate a topic to the open ledger. Returns the ledgers that left its list."""
    before = listed(pulsar, topic)
    pulsar.ask("DELETE", f"persistent/{topic}/truncate")
    wait_until(lambda: not set(before[:-1]) & set(listed(pulsar, topic)), SLOW_MACHINE_S, f"a shorter list of {topic}")
    return before[:-1]


def unload(pulsar: SandboxPulsar, topic: str) -> None:
    """Make the broker close a topic and thus the open ledger."""
    pulsar.ask("PUT", f"persistent/{topic}/unload")


def offload(pulsar: SandboxPulsar, topic: str) -> list[int]:
    """Offload all ledgers of a topic except the open one; it must contain a message. Returns the ledgers."""
    unoffloaded = listed(pulsar, topic)
    position = {"ledgerId": unoffloaded[-1], "entryId": 0, "partitionIndex": -1, "batchIndex": -1}
    place, failures = f"persistent/{topic}/offload", 0

    def offloaded() -> bool:
        nonlocal failures
        status = pulsar.ask("GET", place)
        if status["status"] == "ERROR":
            failures += 1
            if failures == _ATTEMPTS:
                raise Stop(f"{topic} to be offloaded", str(status["lastError"]), "check the broker's log")
            pulsar.ask("PUT", place, position)
        return bool(status["status"] == "SUCCESS")

    pulsar.ask("PUT", place, position)
    wait_until(offloaded, SLOW_MACHINE_S, f"{topic} to be offloaded")
    return unoffloaded[:-1]


def drop_offloaded(pulsar: SandboxPulsar, topic: str) -> list[int]:
    """Like `offload`, and wait until the topic records the BookKeeper ledgers as deleted."""
    copied = offload(pulsar, topic)
    namespace, _, name = topic.rpartition("/")
    node = f"/managed-ledgers/{namespace}/persistent/{name}"
    with session(pulsar.zookeeper.address) as zookeeper:
        wait_until(
            lambda: zookeeper.get(node)[0].count(_DROPPED) >= len(copied), SLOW_MACHINE_S, f"{topic} to drop {copied}"
        )
    return copied


def forget(
    pulsar: SandboxPulsar, topics: Iterable[str], drop: Callable[[SandboxPulsar, str], list[int]] = truncate
) -> dict[str, list[int]]:
    """Make topics forget all of their ledgers except the open one, which ``drop`` removes. Returns them by topic.

    Kills the broker and starts it again; waiting writers continue. Raises `Unknown` if a ledger was deleted
    nevertheless.
    """
    with session(pulsar.zookeeper.address) as zookeeper:
        with _undeletable(zookeeper):
            forgotten = {topic: drop(pulsar, topic) for topic in topics}
            pulsar.kill("broker")
        gone = [ledger for ledgers in forgotten.values() for ledger in ledgers if not zookeeper.exists(path(ledger))]
    pulsar.start("broker")
    if gone:
        raise Unknown("all unlisted ledgers in BookKeeper", f"none of {gone}", "check the broker's log")
    return forgotten


def plant(pulsar: SandboxPulsar, custom: Mapping[str, str]) -> int:
    """Create an empty, closed, unlisted ledger with this custom metadata and return its id."""
    members = [bookie.id for bookie in pulsar.bookies.values()][: pulsar.replicas]
    with session(pulsar.zookeeper.address) as zookeeper:
        ledger = _next_id(zookeeper)
        zookeeper.create(path(ledger), empty_ledger(members, custom), makepath=True)
    return ledger


def data_of(managed_ledger: str) -> dict[str, str]:
    """Custom metadata of a topic's data; ``managed_ledger``: ``tenant/namespace/persistent/name``, the name encoded."""
    return {"application": "pulsar", "component": "managed-ledger", "pulsar/managed-ledger": managed_ledger}


def path(ledger: int) -> str:
    """The znode of a ledger with an id below 2^31 - 1 (StringUtils.getShortHierarchicalLedgerPath)."""
    digits = f"{ledger:010d}"
    return f"{LEDGERS}/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"


def empty_ledger(members: Sequence[str], custom: Mapping[str, str]) -> bytes:
    """The metadata as BookKeeper 4.17 writes them for a ledger without entries, with a replica on each of ``members``
    (LedgerMetadataSerDe; LedgerMetadataFormat of DataFormats.proto)."""
    count = len(members)
    segment = b"".join(_bytes(1, member.encode()) for member in members) + _number(2, 0)
    pairs = [_bytes(1, key.encode()) + _bytes(2, value.encode()) for key, value in custom.items()]
    body = b"".join(
        [
            *(_number(1, count), _number(2, count), _number(3, 0), _number(4, _NO_ENTRY), _number(5, _CLOSED)),
            *(_bytes(6, segment), _number(7, _CRC32C), _bytes(8, b""), _number(9, count)),
            *(_bytes(11, pair) for pair in pairs),
            _number(12, 0),
        ]
    )
    return b"BookieMetadataFormatVersion\t3\n" + _varint(len(body)) + body


@contextmanager
def session(address: str) -> Iterator[KazooClient]:
    """A session with the ZooKeeper at this address."""
    zookeeper = KazooClient(address)
    with closing(zookeeper):
        zookeeper.start(timeout=30.0)
        try:
            yield zookeeper
        finally:
            zookeeper.stop()  # a session that was not stopped cannot be closed


@contextmanager
def _undeletable(zookeeper: KazooClient) -> Iterator[None]:
    """A context in which no ledger can be deleted: the parent's ACL controls the deletion of a znode."""
    _protect(zookeeper, _ALL_BUT_DELETE)
    try:
        yield
    finally:
        _protect(zookeeper, OPEN_ACL_UNSAFE)


def _protect(zookeeper: KazooClient, acls: list[ACL]) -> None:
    for first in zookeeper.get_children(LEDGERS):
        if first.isdigit():
            for second in zookeeper.get_children(f"{LEDGERS}/{first}"):
                zookeeper.set_acls(f"{LEDGERS}/{first}/{second}", acls)


def _next_id(zookeeper: KazooClient) -> int:
    """The next ledger id, as in ZkLedgerIdGenerator: the number of a sequential znode."""
    node = zookeeper.create(f"{LEDGERS}/idgen/ID-", ephemeral=True, sequence=True)
    zookeeper.delete(node)
    return int(node.rpartition("-")[2])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value & (1 << 64) - 1)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])
