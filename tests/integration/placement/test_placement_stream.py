"""The placement stream on a real broker: despite kills, the result equals that of one bucket in one process."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.configuration import parse
from tests.memory_store import MemoryStore
from trueup.connectors.embedded.kafka import Kafka
from trueup.sandbox.servers.spark import StandaloneSpark
from trueup.state.bookkeeper.ledgers import Ledgers, concat, row
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.bookkeeper.topology import Bookie, Status, Topology
from trueup.state.placement.board import Board
from trueup.state.placement.view import Bucket, Rows
from trueup.streams.bookkeeper.codec import topology_bytes, topology_from, topology_record
from trueup.streams.journal.codec import ledger_key
from trueup.streams.journal.journal import Journal

pytestmark = [pytest.mark.servers, pytest.mark.release]

LEDGERS, BOOKIES, SEED = 4_000, 12, 20261121
ON_CLUSTER = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
}
COMPARED = ["ledger", "mzxid", "version", "verdict", "rule", "copies", "racks", "fragment"]


def settings(master: str = "local[2]") -> dict[str, object]:
    conf = {} if master.startswith("local") else ON_CLUSTER
    size = 1_100 if conf else 600  # a batch has more overhead on a cluster
    spark = {"master": master, "buckets": 8, "max_records": size, "trigger_ms": 0, "memory": "1g", "conf": conf}
    spark |= {"checkpoint": "file:///unused"} if conf else {}  # the driver chooses its own
    others = {"journal": {"bootstrap": "127.0.0.1:1"}} if conf else {}
    return {"cluster": {"zookeeper": "127.0.0.1:1", "name": "c"}, "spark": spark, **others}


def topology(epoch: int) -> Topology:
    lost = {3}
    bookies = (
        Bookie(f"bookie-{i}.example.internal:3181", f"/r{i % 3}", Status.LOST if i in lost else Status.WRITABLE, 0)
        for i in range(BOOKIES)
    )
    return Topology(epoch, 1_000, tuple(bookies))


def records() -> list[dict[str, object]]:
    """Ledgers in every state, some with several versions, some deleted, in random order with duplicates.

    A later version keeps the fragments of the previous one, because the bookies that a ledger left depend on the order
    of arrival, and batches differ.
    """
    rng = np.random.default_rng(SEED)
    names = [b.id for b in topology(1).bookies]
    out: list[dict[str, object]] = []
    for ledger in range(LEDGERS):
        versions, size = 1 + int(rng.integers(0, 3) == 0), int(rng.choice([2, 3, 3, 4]))
        ensembles = [rng.choice(BOOKIES, size, replace=False) for _ in range(int(rng.choice([1, 1, 1, 2])) + versions)]
        for version in range(versions):
            state = int(rng.choice([LedgerState.OPEN, LedgerState.CLOSED, LedgerState.CLOSED, LedgerState.CLOSED]))
            gone = version == 1 and ledger % 7 == 0
            out.append(
                {
                    "ledger": ledger,
                    "mzxid": ledger * 10 + version,
                    "version": version,
                    "ctime_ms": ledger,
                    "seen_ms": 1,
                    "state": int(LedgerState.GONE) if gone else state,
                    "ensemble": size,
                    "quorum": 2,
                    "ack_quorum": 2,
                    "last_entry": 9,
                    "length": 1,
                    "custom": {},
                    "error": "",
                    "fragments": [
                        {"first_entry": 2 * i, "bookies": [names[m] for m in e]}
                        for i, e in enumerate(ensembles[: len(ensembles) - versions + 1 + version])
                    ],
                }
            )
    order = rng.permutation(len(out))
    return [out[i] for i in [*order, *order[:500]]]


def oracle() -> Rows:
    """The expected result: the same records through one bucket in this process."""
    rows = [
        row(
            r["ledger"],
            *[f["bookies"] for f in r["fragments"]],
            quorum=2,
            state=r["state"],
            mzxid=r["mzxid"],
            version=r["version"],
            ctime_ms=r["ctime_ms"],
            seen_ms=1,
        )
        for r in records()
    ]
    batches: list[Ledgers] = [concat(rows[k : k + 700]) for k in range(0, len(rows), 700)]
    store = MemoryStore()
    for batch in batches:
        Bucket(store, topology_bytes, topology_from).step(batch)
    answer = Bucket(store, topology_bytes, topology_from).step(concat([]), topology=topology(9))
    assert answer is not None
    board = Board()
    board.apply(0, answer)
    return board.findings


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Journal]:
    broker = Kafka(tmp_path_factory.mktemp("journal"))
    broker.up()
    made = Journal(broker.bootstrap, parse(settings()).journal, "c")
    made.create()
    made.put(("ledgers", ledger_key(r["ledger"]), r) for r in records())
    made.put([("topology", b"topology", topology_record(topology(1)))])
    yield made
    broker.kill()
    broker.close()


class Driver:
    """The driver process of one job."""

    def __init__(self, journal: Journal, root: Path, master: str = "local[2]", epoch: int = 2) -> None:
        self.data, self.out, self.log = root / "data", root / "out.npy", root / "driver.log"
        job = {
            "settings": settings(master),
            "bootstrap": journal.bootstrap,
            "data": str(self.data),
            "epoch": epoch,
            "out": str(self.out),
        }
        self._job = root / "job.json"
        self._job.write_text(json.dumps(job))

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.integration.placement.drive_placement", str(self._job)]
        with self.log.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def committed(self) -> int:
        """The newest committed batch, -1 before the first."""
        done = self.data / "checkpoint" / "commits"
        return max((int(p.name) for p in done.glob("[0-9]*")), default=-1) if done.is_dir() else -1

    def reach_the_middle(self, process: subprocess.Popen[bytes], after: int) -> None:
        """Wait until a batch after ``after`` is in progress."""
        begun = self.data / "checkpoint" / "offsets"
        wait_for(lambda: self.committed() >= after and (begun / str(self.committed() + 1)).exists(), process, self.log)

    def kill_in_the_middle(self, process: subprocess.Popen[bytes], after: int) -> None:
        """SIGKILL driver, JVM and workers while a batch after ``after`` is in progress."""
        self.reach_the_middle(process, after)
        for each in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
            kill(each)
        process.wait()

    def finish(self, process: subprocess.Popen[bytes]) -> Rows:
        assert process.wait(600) == 0, self.log.read_text()[-3_000:]
        found: Rows = np.load(self.out)
        return found


def kill(process: psutil.Process) -> None:
    try:
        process.send_signal(signal.SIGKILL)
    except psutil.NoSuchProcess:
        return


def wait_for(condition: object, process: subprocess.Popen[bytes], log: Path, limit_s: float = 420.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert process.poll() is None, log.read_text()[-3_000:]
        assert time.monotonic() < deadline, log.read_text()[-3_000:]
        time.sleep(0.02)


def same(found: Rows, wanted: Rows) -> bool:
    return len(found) == len(wanted) and all(bool((found[c] == wanted[c]).all()) for c in COMPARED)


def test_a_driver_killed_in_the_middle_of_a_batch_changes_nothing(journal: Journal, tmp_path: Path) -> None:
    driver = Driver(journal, tmp_path)
    driver.kill_in_the_middle(driver.start(), after=2)
    assert same(driver.finish(driver.start()), oracle())


def test_a_cluster_that_loses_a_worker_and_then_the_driver_is_exact(journal: Journal, tmp_path: Path) -> None:
    with StandaloneSpark(tmp_path / "spark") as cluster:
        cluster.up()
        driver = Driver(journal, tmp_path, cluster.url, epoch=3)
        first = driver.start()
        driver.reach_the_middle(first, after=1)
        cluster.workers[1].kill()
        driver.kill_in_the_middle(first, after=driver.committed() + 1)
        assert same(driver.finish(driver.start()), oracle())
