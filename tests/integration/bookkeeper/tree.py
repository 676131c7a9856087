"""Creates BookKeeper's znodes under a separate root. Also contains a journal in memory."""

import threading
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from trueup.connectors.bookkeeper.metadata import mark_codec, metadata, queries
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.zookeeper.client import CommittedNode, ZooKeeperClient
from trueup.connectors.zookeeper.errors import NodeExists
from trueup.state.bookkeeper.observations import LedgerRecord, LedgerState, Observation, Sighting
from trueup.state.common.errors import Retry

LAYOUT = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
PASSWORD = b"~password~"


class Tree:
    """Writes through ``client``, which no test disconnects."""

    def __init__(self, client: ZooKeeperClient, root: str) -> None:
        self.client, self.paths = client, BookKeeperPaths(root)
        p = self.paths
        for path in (root, p.available, p.readonly, p.cookies, p.replication, p.marks, p.locks, f"{root}/idgen"):
            self.make(path)
        self.make(f"{root}/LAYOUT", LAYOUT)

    def make(self, path: str, data: bytes = b"") -> None:
        """Create a znode and its parents, or overwrite it."""
        parent = path.rpartition("/")[0]
        if parent and self.client.look(parent) is None:
            self.make(parent)
        try:
            self.client.make(path, data)
        except NodeExists:
            self.client.put(path, data, -1)

    def ledger(self, ledger: int, *bookies: str, state: LedgerState = LedgerState.CLOSED, length: int = 0) -> None:
        """Write a ledger's metadata, whether the ledger exists or not."""
        self.make(self.paths.ledger(ledger), encoded(ledger, bookies or ("a:1", "b:1"), state, length))

    def owned(self, ledger: int, owner: str, *bookies: str) -> None:
        """Write a ledger's metadata as a Pulsar broker does for this managed ledger."""
        self.make(self.paths.ledger(ledger), encoded(ledger, bookies or ("a:1", "b:1"), custom=claim(owner)))

    def ledgers(self, ids: Iterable[int]) -> None:
        """Create many ledgers in a few transactions."""
        wanted = list(ids)
        for parent in sorted({self.paths.ledger(i).rpartition("/")[0] for i in wanted}):
            self.make(parent)
        creations = [self.client.creation(self.paths.ledger(i), encoded(i, ("a:1", "b:1"))) for i in wanted]
        for answer in self.client.commit([creations[at : at + 200] for at in range(0, len(creations), 200)]):
            assert isinstance(answer, CommittedNode)
            assert not any(answer.codes)

    def delete(self, ledger: int) -> None:
        self.client.drop(self.paths.ledger(ledger), -1)

    def mark(self, ledger: int, *replicas: str, ctime_ms: int = 5) -> None:
        self.make(self.paths.mark(ledger), mark_codec.encode(replicas, ctime_ms))

    def lock(self, ledger: int, worker: str) -> None:
        self.make(self.paths.lock(ledger), mark_codec.vote(worker))

    def actual(self) -> dict[int, tuple[int, int]]:
        """mzxid and state of every existing ledger."""
        return {
            record["ledger"]: (record["mzxid"], record["state"])
            for batch in queries.snapshot(self.client, self.paths, 0)
            for record in batch.records()
        }


def claim(owner: str) -> dict[str, bytes]:
    """Custom metadata of a ledger of this managed ledger."""
    return {"application": b"pulsar", "component": b"managed-ledger", "pulsar/managed-ledger": owner.encode()}


def encoded(
    ledger: int,
    bookies: Iterable[str],
    state: LedgerState = LedgerState.CLOSED,
    length: int = 0,
    custom: Mapping[str, bytes] = MappingProxyType({"application": b"test"}),
) -> bytes:
    """Metadata of a ledger with one fragment."""
    members = list(bookies)
    record: LedgerRecord = {
        "ledger": ledger,
        "mzxid": 0,
        "version": 0,
        "ctime_ms": 7,
        "seen_ms": 0,
        "state": int(state),
        "ensemble": len(members),
        "quorum": min(2, len(members)),
        "ack_quorum": 1,
        "last_entry": 9,
        "length": length,
        "fragments": [{"first_entry": 0, "bookies": members}],
        "custom": dict(custom),
        "error": "",
    }
    return metadata.encode(record, password=PASSWORD)


class MemoryJournal:
    """Keeps the newest version of each published record. Fails the next ``failures`` calls of publish."""

    def __init__(self) -> None:
        self.all: list[Observation] = []
        self.ledgers: dict[int, LedgerRecord] = {}
        self.bookies: list[list[Sighting]] = []
        self.failures = 0
        self.gate = threading.Event()
        self.gate.set()

    def publish(self, observations: list[Observation]) -> None:
        self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise Retry("a journal", "none", "try again")
        self.all += observations
        for topic, key, value in observations:
            ledger = int.from_bytes(key, "big")
            if topic == "ledgers" and value["mzxid"] >= self.ledgers.get(ledger, {"mzxid": -1})["mzxid"]:
                self.ledgers[ledger] = value

    def seen(self, sightings: list[Sighting]) -> None:
        self.bookies.append(sightings)

    def snapshot(self) -> dict[int, tuple[int, int]]:
        """mzxid and state of every ledger that is not gone."""
        known = dict(self.ledgers)
        return {i: (r["mzxid"], r["state"]) for i, r in known.items() if r["state"] != LedgerState.GONE}

    def published(self, topic: str = "ledgers") -> list[int]:
        """Ids in order of publication."""
        return [int.from_bytes(key, "big") for name, key, _ in self.all if name == topic]
