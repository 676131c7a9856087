"""Re-replication of the ledgers of a lost bookie: Trueup's copies, and AutoRecovery as shipped and at its best tuning.

    python -m bench.copy [--ledgers N] [--rounds N] [--quick] [-o table|json]

All contenders alternate on one cluster of real servers, each with ledgers of its own. Time is measured from the end of
the bookie's registration until no ledger names the bookie, so it includes detection. Then entries of some ledgers are
read back by BookKeeper's client while the bookie is still away. Writes bench/results/copy.json. The exit code is 0 if
everything was measured, even if targets are missed, and 1 if a measurement failed.
"""

import argparse
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, Self

import urllib3

from bench.common import rows
from bench.common.application import Application
from bench.common.keeping import keep
from bench.common.measure import Failed, cpu_s, tell
from bench.common.rows import Row
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths
from trueup.connectors.embedded.processes import Port, wait_until
from trueup.connectors.embedded.server import DEFAULT_JVM
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.servers.bookkeeper import AutoRecovery, BookKeeperSite
from trueup.sandbox.writer import LedgerWriter
from trueup.state.common.counts import many

RESULTS = Path(__file__).parent / "results" / "copy.json"
LEDGERS, LEDGER_BYTES, BIG_BYTES = 20, 10 << 20, 40 << 20
ENTRY_BYTES = (1 << 10, 10 << 10)
RACKS = {"/rack1": 3, "/rack2": 3}
LOST, SPARED = 1, (2, 3)
"""The bookie that is lost. All ledgers are on it, because the others of its rack are read-only while they are
written."""
DAEMONS, READ_BACK = 2, 5
LIMIT_S, POLL_S = 1_800.0, 0.1
SHIPPED: Mapping[str, object] = {"lostBookieRecoveryDelay": 0}
TUNED: Mapping[str, object] = {
    **SHIPPED,
    "rereplicationEntryBatchSize": 500,
    "useV2WireProtocol": "true",
    "batchReadEnabled": "true",
    "recoveryBatchReadEnabled": "true",
}
COPY: Mapping[str, Mapping[str, object]] = {
    "placement": {"executor": "copy", "copy_enabled": True},
    "spark": {"master": "local[4]"},
}
FASTER = {"shipped": 5.0, "tuned": 1.5}
NAMES = (*FASTER, "copy")
ROUNDS = 3


class Work(NamedTuple):
    """What a round repairs."""

    ledgers: int
    ledger_bytes: int
    entry_bytes: int

    @property
    def megabytes(self) -> float:
        """The size of all ledgers."""
        return self.ledgers * self.ledger_bytes / (1 << 20)

    @property
    def what(self) -> str:
        """As text."""
        ledgers, size = many(self.ledgers, "ledger"), self.ledger_bytes >> 20
        return f"{ledgers} of {size} MB in entries of {self.entry_bytes >> 10} KB"


class Repaired(NamedTuple):
    """How long a contender took, and the CPU seconds of the contender and of all bookies for each MB."""

    seconds: float
    cpu_s: float
    bookies_cpu_s: float


class CopySite:
    """Six bookies in two racks."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cluster = SandboxCluster(root / "cluster", RACKS, autorecovery=0, flags=DEFAULT_JVM)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        tell("starting ZooKeeper and six bookies")
        self._open.callback(self.cluster.close)
        self.cluster.up()
        self.client = ZooKeeperClient(self.cluster.zookeeper.address).open()
        self._open.callback(self.client.shut)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def write(self, writer: LedgerWriter, ledgers: int, entries: int) -> list[int]:
        """Write closed ledgers with a replica on the bookie that will be lost."""
        for number in SPARED:
            self._read_only(number, True)
        written = [writer.write(2, 2, 2, entries) for _ in range(ledgers)]
        for number in SPARED:
            self._read_only(number, False)
        if self.naming(written) != ledgers:
            raise Failed("a ledger was written without the bookie that is to be lost")
        return written

    def _read_only(self, number: int, wanted: bool) -> None:
        url = f"{self.cluster.bookies[number].url}/api/v1/bookie/state/readonly"
        body = b'{"readOnly": true}' if wanted else b'{"readOnly": false}'
        if urllib3.request("PUT", url, body=body, timeout=10.0).status != 200:
            raise Failed(f"bookie {number} cannot be made read-only")
        path = f"/ledgers/available/{'readonly/' * wanted}{self.cluster.bookie_id(number)}"
        wait_until(lambda: self.client.present(path), 30.0, f"the registration of bookie {number}")

    def naming(self, ledgers: Sequence[int]) -> int:
        """The number of these ledgers whose metadata name the lost bookie."""
        paths, lost = BookKeeperPaths("/ledgers"), self.cluster.bookie_id(LOST).encode()
        names = [paths.relative(ledger).encode() for ledger in ledgers]
        return sum(lost in data for znodes in self.client.multi_read("/ledgers", names) for data, _ in znodes.rows())

    def bookies_cpu_s(self) -> float:
        """CPU seconds of the bookies that live on."""
        return cpu_s(*(bookie.pid or 0 for number, bookie in self.cluster.bookies.items() if number != LOST))

    def lose(self, ledgers: Sequence[int], megabytes: float, pids: Sequence[int]) -> Repaired:
        """Kill the bookie and wait until the contender with these processes has repaired all ledgers."""
        spent, bookies = cpu_s(*pids), self.bookies_cpu_s()
        self.cluster.kill(f"bookie{LOST}")
        self.cluster.wait_lost(f"bookie{LOST}")
        begun = time.monotonic()
        while left := self.naming(ledgers):
            if time.monotonic() - begun > LIMIT_S:
                raise Failed(f"{left} ledgers still name the lost bookie after {LIMIT_S:.0f} s")
            time.sleep(POLL_S)
        taken, spent, bookies = time.monotonic() - begun, cpu_s(*pids) - spent, self.bookies_cpu_s() - bookies
        return Repaired(taken, spent / megabytes, bookies / megabytes)


@contextmanager
def daemons(site: CopySite, settings: Mapping[str, object]) -> Iterator[list[int]]:
    """AutoRecovery with these settings; yields the process ids."""
    cluster = site.cluster
    own = BookKeeperSite(
        site.root / "daemons", cluster.jar_set, cluster.zookeeper.address, cluster.rack_script, DEFAULT_JVM, settings
    )
    made = [AutoRecovery(own, number, Port(), True) for number in range(1, DAEMONS + 1)]
    try:
        for daemon in made:
            daemon.up()
        yield [daemon.pid or 0 for daemon in made]
    finally:
        for daemon in made:
            daemon.stop(10.0)
        shutil.rmtree(own.root, ignore_errors=True)


@contextmanager
def trueup(site: CopySite, ledgers: int) -> Iterator[list[int]]:
    """The application with executor copy; yields its process id when all ledgers are true."""
    with Application(site, COPY) as application:
        wait_until(lambda: application.counts().get("true") == ledgers, LIMIT_S, "all ledgers to be true")
        yield [application.pid]
    shutil.rmtree(site.root / "trueup", ignore_errors=True)


def contender(site: CopySite, name: str, ledgers: int) -> AbstractContextManager[list[int]]:
    """Start one of `NAMES`."""
    if name == "copy":
        return trueup(site, ledgers)
    return daemons(site, TUNED if name == "tuned" else SHIPPED)


def measured(site: CopySite, name: str, work: Work) -> Repaired:
    """One round of one contender."""
    entries = work.ledger_bytes // work.entry_bytes
    with LedgerWriter(site.cluster, work.entry_bytes, "writer") as writer:
        written = site.write(writer, work.ledgers, entries)
        with contender(site, name, work.ledgers) as pids:
            found = site.lose(written, work.megabytes, pids)
        for ledger in written[:READ_BACK]:
            if writer.verify(ledger, entries).read != entries:
                raise Failed(f"entries of ledger {ledger} are lost after {name}")
        for ledger in written:
            writer.delete(ledger)
    site.cluster.start(f"bookie{LOST}")
    spent = f"CPU {found.cpu_s * 1000:.1f} ms/MB, of bookies {found.bookies_cpu_s * 1000:.1f} ms/MB"
    tell(f"{work.what}: {name} {found.seconds:.1f} s, {spent}")
    return found


def figures(site: CopySite, work: Work, rounds: int) -> Iterator[Row]:
    """The rows of one kind of ledgers."""
    found: dict[str, list[Repaired]] = {name: [] for name in NAMES}
    for _ in range(rounds):
        for name in NAMES:
            found[name].append(measured(site, name, work))
    for name, target in FASTER.items():
        titles = (
            (f"{work.what}, AutoRecovery {name}", "s", target if work.ledgers > 1 else 0.0),
            (f"  CPU of daemons or Trueup, {name}", "s/MB", 0.0),
            (f"  CPU of bookies, {name}", "s/MB", 0.0),
        )
        columns = (zip(*found[who], strict=True) for who in (name, "copy"))
        for (what, unit, least), peer, ours in zip(titles, *columns, strict=True):
            yield rows.less(what, unit, peer, ours, least)


def main() -> int:
    """Measure, print, and write the results."""
    chosen = _arguments()
    ledgers, rounds = (10, 1) if chosen.quick else (chosen.ledgers, chosen.rounds)
    works = [Work(ledgers, LEDGER_BYTES, size) for size in ENTRY_BYTES] + [Work(1, BIG_BYTES, 1 << 10)]

    def measure(root: Path) -> list[Row]:
        found = list[Row]()
        for number, work in enumerate(works):
            with CopySite(root / f"site{number}") as site:
                found += figures(site, work, rounds)
            shutil.rmtree(site.root, ignore_errors=True)
        return found

    return keep(measure, None if chosen.quick else RESULTS, chosen.output)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.copy", description="Benchmarks of copies of ledgers")
    parser.add_argument("--ledgers", type=int, default=LEDGERS, help=f"ledgers of 10 MB, not {LEDGERS}")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds of each contender, not {ROUNDS}")
    parser.add_argument("--quick", action="store_true", help="one round, ten ledgers; nothing is kept")
    parser.add_argument("-o", dest="output", choices=("table", "json"), default="table", help="what to print")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
