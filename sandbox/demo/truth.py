"""The state in the cluster's own metadata, read directly from ZooKeeper and not through Trueup."""

from types import TracebackType
from typing import Self

from trueup.connectors.bookkeeper.metadata import queries
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.sandbox.cluster import SandboxCluster
from trueup.state.bookkeeper.ledgers import Ledgers, concat
from trueup.state.bookkeeper.observations import LedgerState


class Truth:
    """Ledgers of a sandbox cluster in ZooKeeper."""

    def __init__(self, cluster: SandboxCluster) -> None:
        self._cluster = cluster
        self._client = ZooKeeperClient(str(cluster.zookeeper.address)).open()
        self._paths = queries.paths_of(self._client, "/ledgers")
        bookies = range(1, 1 + sum(name.startswith("bookie") for name in cluster.servers))
        self._rack = {cluster.bookie_id(n): cluster.rack_of(n) for n in bookies}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.shut()

    def ledgers(self) -> Ledgers:
        """All ledgers, from a current read."""
        batches = queries.snapshot(self._client, self._paths, 0)
        return concat([batch.ledgers for batch in batches])

    def registered(self, rack: str) -> int:
        """Number of bookies of a rack that are registered as writable."""
        writable = queries.registered(self._client, self._paths).writable
        return sum(self._rack.get(bookie) == rack for bookie in writable)

    def on_one_rack(self) -> set[int]:
        """Closed ledgers with a write set in a single rack: the loss of that rack loses entries."""
        rows = self.ledgers()
        return {
            int(rows.ledger[at])
            for at in range(len(rows))
            if rows.state[at] == LedgerState.CLOSED
            and any(self._narrow(ensemble, int(rows.quorum[at])) for ensemble in rows.ensembles(at))
        }

    def _narrow(self, ensemble: list[str], quorum: int) -> bool:
        racks = [self._rack[bookie] for bookie in ensemble]
        return any(len({racks[(at + k) % len(racks)] for k in range(quorum)}) == 1 for at in range(len(racks)))

    def short_of(self, rack: str, most: int) -> set[int]:
        """Closed ledgers with at most this many members, of which one is in this rack."""
        rows = self.ledgers()
        return {
            int(rows.ledger[at])
            for at in range(len(rows))
            if rows.state[at] == LedgerState.CLOSED
            and rows.ensemble[at] <= most
            and any(self._rack[bookie] == rack for ensemble in rows.ensembles(at) for bookie in ensemble)
        }

    def not_open(self, ledgers: set[int]) -> set[int]:
        """Those of these ledgers that are not open."""
        rows = self.ledgers()
        still = set(rows.ledger[rows.state == LedgerState.OPEN].tolist())
        return ledgers - still

    def racks(self, ledger: int) -> list[str]:
        """Rack of each member of a ledger's first fragment."""
        rows = self.ledgers()
        at = rows.ledger.tolist().index(ledger)
        return [self._rack[bookie] for bookie in rows.ensembles(at)[0]]
