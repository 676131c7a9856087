"""The measured cluster: ZooKeeper, four bookies in two racks and one AutoRecovery daemon, as real servers.

All JVMs use Java's default heap and compiler settings. The ledgers consist of metadata only, so the daemon's worker
cannot read them. Its backoff after the first attempt is set longer than any round.
"""

import re
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import urllib3

from bench.common.measure import cpu_s, tell
from bench.placement.znodes import Znodes
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.embedded.server import DEFAULT_JVM
from trueup.sandbox.cluster import SandboxCluster

BACKOFF_MS = 3_600_000
LOST, WARM = 4, 2
"""The lost bookie stores a quarter of the ledgers. The warm-up bookie stores one in 100."""
LIMIT_S = 900.0
IDLE_S = 3.0
INDEX_TIME = "BOOKIE_TO_LEDGERS_MAP_CREATION_TIME"


class Loss(NamedTuple):
    """The loss of one bookie: CPU seconds, and seconds from the end of its registration to the first and last mark."""

    marks: int
    first_s: float
    last_s: float
    cpu_s: float
    zookeeper_cpu_s: float


class Site:
    """The cluster and its ledgers."""

    def __init__(self, root: Path, flags: Sequence[str] = DEFAULT_JVM) -> None:
        self.root = root
        settings = {"lostBookieRecoveryDelay": 0, "rwRereplicateBackoffMs": BACKOFF_MS}
        racks = {"/rack1": 2, "/rack2": 2}
        self.cluster = SandboxCluster(root / "cluster", racks, autorecovery=1, settings=settings, flags=flags)
        self.ledgers = 0

    def __enter__(self) -> Self:
        tell("starting ZooKeeper and four bookies")
        self.cluster.up(autorecovery=False)
        self.znodes = Znodes(self.cluster.zookeeper.address)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if hasattr(self, "znodes"):
            self.znodes.close()
        self.cluster.close()

    @property
    def daemon(self) -> int:
        """Process id of the AutoRecovery daemon."""
        return self.cluster.autorecoveries[0].pid or 0

    def fill(self, ledgers: int) -> None:
        """Create ledgers up to this number."""
        if ledgers > self.ledgers:
            tell(f"writing ledgers up to {ledgers:,}")
            self.znodes.write(range(self.ledgers, ledgers), self.members)
            self.ledgers = ledgers

    def members(self, ledger: int) -> Sequence[str]:
        """Ensemble of a ledger: one bookie in each rack, so that every ledger adheres to the policy."""
        first = self.cluster.bookie_id(WARM if ledger % 100 == 1 else 1)
        return first, self.cluster.bookie_id(LOST if ledger % 4 == 0 else 3)

    def holding(self, bookie: int) -> set[int]:
        """Ledgers of the lost bookie or of the warm-up bookie. No ledger has both."""
        return set(range(1, self.ledgers, 100) if bookie == WARM else range(0, self.ledgers, 4))

    def lose(self, bookie: int, root: int) -> Loss:
        """Kill a bookie and wait until all of its ledgers are marked. CPU is measured below process ``root``."""
        wanted, before = self.holding(bookie), self.znodes.count()
        zookeeper = self.cluster.zookeeper.pid or 0
        spent, zookeeper_spent, killed = cpu_s(root), cpu_s(zookeeper), time.time()
        self.cluster.kill(f"bookie{bookie}")
        gone = self.znodes.gone_s(self.cluster.bookie_id(bookie), killed)
        times = self.znodes.wait_marks(wanted, before - 1, LIMIT_S)
        return Loss(
            len(times),
            float(times[0]) - gone,
            float(times[-1]) - gone,
            cpu_s(root) - spent,
            cpu_s(zookeeper) - zookeeper_spent,
        )

    def bring_back(self, bookie: int) -> None:
        """Start a bookie again."""
        self.cluster.start(f"bookie{bookie}")

    def wait_audited(self) -> None:
        """Wait until the Auditor has no running audit. It runs one audit for every change that it observes."""
        wait_until(self._idle, LIMIT_S, "the Auditor to be done")

    def _idle(self) -> bool:
        before = self._audits()
        time.sleep(IDLE_S)
        return before == self._audits() and before[0] == before[1]

    def _audits(self) -> tuple[int, int]:
        output = self.cluster.autorecoveries[0].process.output()
        return output.count("Starting auditBookies"), output.count("Completed auditBookies")

    def index_s(self) -> tuple[float, int]:
        """Total seconds and number of the Auditor's bookie-to-ledgers index builds since its start."""
        text = urllib3.request("GET", f"{self.cluster.autorecovery_urls[0]}/metrics", timeout=5.0).data.decode()
        return _metric(text, "sum") / 1000, int(_metric(text, "count"))


def _metric(text: str, part: str) -> float:
    """One part of the summary of successful index builds (ms), 0 before the first."""
    found = re.findall(rf'^\S*{INDEX_TIME}_{part}{{[^}}]*success="true"[^}}]*}} (\S+)$', text, re.MULTILINE)
    return sum(map(float, found))
