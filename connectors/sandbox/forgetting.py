"""Makes a Pulsar cluster forget ledgers as it does by itself: what it no longer lists stays in BookKeeper.

A broker first takes a ledger off its topic's list and then deletes it, three times at most, and what it meant to
delete is in its memory alone (ManagedLedgerImpl.internalTrimLedgers and asyncDeleteLedger). `forget` lets every
deletion fail and kills the broker before it gives up. `plant` leaves what a broker leaves that made a ledger for a
topic that was closed meanwhile (ManagedLedgerImpl.createComplete): an empty ledger, closed, on no list.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

from kazoo.client import KazooClient
from kazoo.security import ACL, ANYONE_ID_UNSAFE, OPEN_ACL_UNSAFE, Permissions

from trueup.connectors.sandbox.jvm.processes import wait_until
from trueup.connectors.sandbox.pulsar import Pulsar
from trueup.state.common.errors import Stop, Unknown

LEDGERS = "/ledgers"
_ALL_BUT_DELETE = [ACL(Permissions.READ | Permissions.WRITE | Permissions.CREATE | Permissions.ADMIN, ANYONE_ID_UNSAFE)]
_LISTED_S, _OFFLOADED_S = 60.0, 180.0
_DROPPED = b"\x18\x01\x20\x01"
"""Complete and bookkeeperDeleted, both true, one after the other (OffloadContext of MLDataFormats.proto)."""
_CLOSED, _CRC32C, _NO_ENTRY = 3, 3, -1


def listed(pulsar: Pulsar, topic: str) -> list[int]:
    """Ledgers on the list of a topic (``tenant/namespace/name``), the open one last. Loads the topic."""
    stats = pulsar.ask("GET", f"persistent/{topic}/internalStats")
    return [int(ledger["ledgerId"]) for ledger in stats["ledgers"]]


def truncate(pulsar: Pulsar, topic: str) -> list[int]:
    """Let a topic drop all ledgers but the open one; those that left its list."""
    before = listed(pulsar, topic)
    pulsar.ask("DELETE", f"persistent/{topic}/truncate")
    wait_until(lambda: not set(before[:-1]) & set(listed(pulsar, topic)), _LISTED_S, f"a shorter list of {topic}")
    return before[:-1]


def unload(pulsar: Pulsar, topic: str) -> None:
    """Let the broker close a topic, and with it the open ledger."""
    pulsar.ask("PUT", f"persistent/{topic}/unload")


def offload(pulsar: Pulsar, topic: str) -> list[int]:
    """Let a topic copy all ledgers but the open one to tiered storage, which must have a message; which."""
    unoffloaded = listed(pulsar, topic)
    position = {"ledgerId": unoffloaded[-1], "entryId": 0, "partitionIndex": -1, "batchIndex": -1}
    pulsar.ask("PUT", f"persistent/{topic}/offload", position)
    wait_until(lambda: _offloaded(pulsar, topic), _OFFLOADED_S, f"{topic} to be offloaded")
    return unoffloaded[:-1]


def drop_offloaded(pulsar: Pulsar, topic: str) -> list[int]:
    """The same, and wait until the topic counts the copies in BookKeeper as deleted."""
    copied = offload(pulsar, topic)
    namespace, _, name = topic.rpartition("/")
    node = f"/managed-ledgers/{namespace}/persistent/{name}"
    with session(pulsar.zookeeper.address) as zookeeper:
        wait_until(
            lambda: zookeeper.get(node)[0].count(_DROPPED) >= len(copied), _LISTED_S, f"{topic} to drop {copied}"
        )
    return copied


def forget(
    pulsar: Pulsar, topics: Iterable[str], drop: Callable[[Pulsar, str], list[int]] = truncate
) -> dict[str, list[int]]:
    """Let topics forget all of their ledgers but the open one, which `drop` has them do; which, by topic.

    Kills the broker and starts it again; writers that wait for it go on. Raises `Unknown` when a ledger was deleted
    all the same.
    """
    with session(pulsar.zookeeper.address) as zookeeper:
        with _undeletable(zookeeper):
            forgotten = {topic: drop(pulsar, topic) for topic in topics}
            pulsar.kill("broker")
        gone = [ledger for ledgers in forgotten.values() for ledger in ledgers if not zookeeper.exists(path(ledger))]
    pulsar.start("broker")
    if gone:
        raise Unknown("every ledger off the lists to be left in BookKeeper", f"none of {gone}", "see the broker's log")
    return forgotten


def plant(pulsar: Pulsar, custom: Mapping[str, str]) -> int:
    """An empty ledger, closed, with this custom metadata, that nobody lists; its id."""
    members = [bookie.id for bookie in pulsar.bookies.values()][: pulsar.replicas]
    with session(pulsar.zookeeper.address) as zookeeper:
        ledger = _next_id(zookeeper)
        zookeeper.create(path(ledger), empty_ledger(members, custom), makepath=True)
    return ledger


def data_of(managed_ledger: str) -> dict[str, str]:
    """Custom metadata of a topic's data; ``managed_ledger``: ``tenant/namespace/persistent/name``, the name encoded."""
    return {"application": "pulsar", "component": "managed-ledger", "pulsar/managed-ledger": managed_ledger}


def _offloaded(pulsar: Pulsar, topic: str) -> bool:
    """Whether an offload came to its end. Raises `Stop` when it failed."""
    said = pulsar.ask("GET", f"persistent/{topic}/offload")
    if said["status"] == "ERROR":
        raise Stop(f"{topic} to be offloaded", str(said["lastError"]), "see the broker's log")
    return bool(said["status"] == "SUCCESS")


def path(ledger: int) -> str:
    """The znode of a ledger with an id below 2^31 - 1 (StringUtils.getShortHierarchicalLedgerPath)."""
    digits = f"{ledger:010d}"
    return f"{LEDGERS}/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"


def empty_ledger(members: Sequence[str], custom: Mapping[str, str]) -> bytes:
    """What BookKeeper 4.17 writes of a ledger that was closed without an entry, with a replica on each of ``members``
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
    """A session with the ZooKeeper at this address, as an operator would open one."""
    zookeeper = KazooClient(address)
    with closing(zookeeper):
        zookeeper.start(timeout=30.0)
        yield zookeeper
        zookeeper.stop()


@contextmanager
def _undeletable(zookeeper: KazooClient) -> Iterator[None]:
    """Within this no ledger can be deleted; who may delete a znode is said by its parent."""
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
    """As ZkLedgerIdGenerator: the number of a znode made for that."""
    made = zookeeper.create(f"{LEDGERS}/idgen/ID-", ephemeral=True, sequence=True)
    zookeeper.delete(made)
    return int(made.rpartition("-")[2])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value & (1 << 64) - 1)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])
