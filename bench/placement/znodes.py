"""BookKeeper's znodes for a benchmark: writes ledgers, reads and removes marks, in a separate session."""

import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence, Set
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.common.measure import Failed
from trueup.connectors.bookkeeper.metadata import metadata, queries
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.zookeeper.client import CommittedNode, NodeEvent, ZooKeeperClient, deletion
from trueup.connectors.zookeeper.connection import Events
from trueup.state.bookkeeper.observations import LedgerRecord, LedgerState

TOGETHER = 100
ROOT = "/ledgers"
Times = NDArray[np.float64]
Members = Callable[[int], Sequence[str]]


class Znodes:
    """The metadata of one cluster, through ZooKeeper at ``address``."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._gone: dict[str, float] = {}
        self._removed = threading.Event()
        self.client = ZooKeeperClient(address, sink=self._on_events, timeout=30.0).open()
        self.paths = queries.paths_of(self.client, ROOT)
        self.client.add_watch(self.paths.available)

    def close(self) -> None:
        self.client.shut()

    def _on_events(self, events: Events) -> None:
        for _, kind, path in events:
            if kind == NodeEvent.DELETED:
                self._gone[path] = time.time()
                self._removed.set()

    def write(self, ids: Sequence[int], members: Members) -> None:
        """Create closed ledgers of one fragment, 100 per transaction."""
        for parent in sorted({self.paths.ledger(i).rpartition("/")[0] for i in ids}):
            self.client.ensure_path(parent)
        self._commit(self.client.creation(self.paths.ledger(i), encoded(i, members(i))) for i in ids)

    def touch(self, ids: Iterable[int], members: Members) -> None:
        """Write ledgers again unchanged. Only their version changes."""
        for ledger in ids:
            self.client.put(self.paths.ledger(ledger), encoded(ledger, members(ledger)), -1)

    def _commit(self, operations: Iterable[Any]) -> None:
        left = iter(operations)
        for answer in self.client.commit(iter(lambda: list(islice(left, TOGETHER)), [])):
            if not isinstance(answer, CommittedNode) or any(answer.codes):
                raise Failed(f"could not write znodes: {answer}")

    def gone_s(self, bookie: str, after_s: float) -> float:
        """Time at which the registration of a bookie ended, in seconds since the epoch. Waits for it."""
        path, deadline = f"{self.paths.available}/{bookie}", time.monotonic() + 60
        while self._gone.get(path, 0.0) < after_s:
            self._removed.clear()
            if self._gone.get(path, 0.0) < after_s and not self._removed.wait(deadline - time.monotonic()):
                raise Failed(f"the registration of {bookie} did not go")
        return self._gone[path]

    def count(self) -> int:
        """Number of znodes. The server answers this request at low cost."""
        host, port = self._address.split(":")
        with socket.create_connection((host, int(port)), 5.0) as connection:
            connection.sendall(b"mntr")
            response = b"".join(iter(lambda: connection.recv(65_536), b"")).decode()
        return int(next(line.split()[1] for line in response.splitlines() if line.startswith("zk_znode_count")))

    def marked_s(self, wanted: Set[int]) -> Times:
        """Creation times of the marks of these ledgers by ZooKeeper's clock, in seconds since the epoch, sorted."""
        below = len(ROOT) + 1
        ids = sorted(wanted & queries.marked(self.client, self.paths))
        names = [self.paths.mark(i)[below:].encode() for i in ids]
        parts = self.client.multi_read(ROOT, names)
        times = [part.stat(row).ctime / 1000 for part in parts for row in range(len(part)) if part.size[row] >= 0]
        return np.sort(np.array(times, np.float64))

    def wait_marks(self, wanted: Set[int], znodes_before: int, limit_s: float) -> Times:
        """Wait until these ledgers are marked and return the times. Sends no read before all marks can exist."""
        # A mark has two znodes: itself and the last level above it.
        wait_until(lambda: self.count() >= znodes_before + 2 * len(wanted) - TOGETHER, limit_s, f"{len(wanted)} marks")
        deadline = time.monotonic() + 30
        while len(found := self.marked_s(wanted)) < len(wanted):
            if time.monotonic() > deadline:
                raise Failed(f"expected {len(wanted)} marks, found {len(found)}")
            time.sleep(0.1)
        return found

    def clear_marks(self) -> None:
        """Remove all marks and their parents, as workers do after a repair."""
        for together in (TOGETHER, 1):  # a transaction fails if a worker removed one of its marks
            ids = sorted(queries.marked(self.client, self.paths))
            removals = [op for i in ids for op in self._removal(self.paths.mark(i))]
            step = 2 * together
            for _ in self.client.commit(removals[at : at + step] for at in range(0, len(removals), step)):
                pass
        wait_until(lambda: not queries.marked(self.client, self.paths), 30.0, "no marks left")

    @staticmethod
    def _removal(mark: str) -> list[Any]:
        return [deletion(mark, -1), deletion(mark.rpartition("/")[0], -1)]


def encoded(ledger: int, members: Sequence[str]) -> bytes:
    """Metadata of a closed ledger in BookKeeper's format (LedgerMetadataSerDe, version 3)."""
    record: LedgerRecord = {
        "ledger": ledger,
        "mzxid": 0,
        "version": 0,
        "ctime_ms": 1_700_000_000_000 + ledger,
        "seen_ms": 0,
        "state": int(LedgerState.CLOSED),
        "ensemble": len(members),
        "quorum": 2,
        "ack_quorum": 2,
        "last_entry": 999,
        "length": 1_000_000,
        "fragments": [{"first_entry": 0, "bookies": list(members)}],
        "custom": {"application": b"pulsar", "component": b"managed-ledger"},
        "error": "",
    }
    return metadata.encode(record, password=b"password")
