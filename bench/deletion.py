"""Deletion: the full diff of ledgers and owners, the time from a leak to its report, and deletions a second.

    python -m bench.deletion [--only diff|report|delete] [--quick] [-o table|json]

Ledgers are generated records of 10,000 owners. The report is measured through Kafka and the stream. Deletions run on a
real ZooKeeper; the peer sends the same transactions without reads or checks. Writes bench/results/deletion.json. With
--only, figures that were not measured are kept. The exit code is 0 if everything was measured, even if targets are
missed, and 1 if a measurement failed.
"""

import argparse
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from pyspark.sql import DataFrame

from bench.common import rows
from bench.common.keeping import keep
from bench.common.measure import Failed, tell
from bench.common.rows import Row
from trueup.connectors.bookkeeper.metadata import metadata, queries
from trueup.connectors.bookkeeper.metadata.layout import BookKeeperPaths as LedgerPaths
from trueup.connectors.bookkeeper.metadata.metadata import ZnodeSource
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.pulsar import messages
from trueup.connectors.pulsar.guarded_delete import DeleteOrder, Deleter
from trueup.connectors.pulsar.layout import PulsarPaths
from trueup.connectors.pulsar.offload_verify import Tiered
from trueup.connectors.zookeeper.client import CommittedNode, ZooKeeperClient, check, deletion
from trueup.connectors.zookeeper.requests import Stat
from trueup.sandbox.servers.zookeeper import ZooKeeper
from trueup.state.bookkeeper.observations import LedgerRecord, LedgerState
from trueup.state.bookkeeper.topology import Topology
from trueup.state.deletion.owned_ledgers import NODE, OWNED, OwnedLedgerTable, nodes_of
from trueup.state.deletion.owners import Claim, Component, OwnerStatus, Pointers
from trueup.state.deletion.verdicts import judge
from trueup.state.settings.settings import parse
from trueup.streams.bookkeeper.codec import topology_record
from trueup.streams.deletion import query as stream
from trueup.streams.deletion.owners import record_of
from trueup.streams.journal.codec import ledger_key
from trueup.streams.journal.journal import Journal
from trueup.streams.runtime.spark.session import session
from trueup.streams.runtime.supervisor import drain

RESULTS = Path(__file__).parent / "results" / "deletion.json"
OWNERS, BUCKETS, ROUNDS = 10_000, 64, 3
SIZES = (100_000, 1_000_000)
LEDGERS, DELETED = 100_000, 5_000
LIMIT_S, START_S = 300.0, 4.0
MEMBERS = ("127.0.0.1:3181", "127.0.0.2:3181")


def main() -> int:
    """Measure, print, and write the results."""
    chosen = _arguments()
    parts = {"diff": diff, "report": report, "delete": deletes}

    def measure(root: Path) -> list[Row]:
        return [row for name in chosen.only or parts for row in parts[name](chosen.quick, root / name)]

    return keep(measure, None if chosen.quick else RESULTS, chosen.output, part=bool(chosen.only))


def owner(number: int) -> str:
    """A managed ledger's name of realistic length."""
    return f"tenant-{number % 40}/namespace-{number % 400}/persistent/topic-{number:06d}"


def diff(quick: bool, _root: Path) -> Iterator[Row]:
    """Compare all buckets, one after the other. One ledger in 1,000 is not listed by its owner."""
    for size in SIZES[: 1 if quick else None]:
        made = [bucket(number, size) for number in range(BUCKETS)]
        held = sum(len(ledgers.to_bytes()) + len(nodes.to_bytes()) for ledgers, nodes in made)
        spent = []
        for _ in range(ROUNDS):
            begun, leaks = time.process_time(), 0
            for ledgers, nodes in made:
                leaks += len(judge(ledgers, nodes)[0])
            spent.append(size / (time.process_time() - begun))
        wanted = size - sum(len(nodes.listed) for _, nodes in made)
        if leaks != wanted:
            raise Failed(f"expected {wanted} forgotten ledgers, found {leaks}")
        yield rows.alone(f"Diff of {size:,} ledgers, {OWNERS:,} owners", "1/CPU s", spent)
        yield rows.alone(f"State of {size:,} ledgers, each", "bytes", [held / size])


def bucket(number: int, size: int) -> tuple[OwnedLedgerTable, OwnedLedgerTable]:
    """Ledgers and owner nodes of one bucket."""
    mine, each = range(number, OWNERS, BUCKETS), size // OWNERS
    names = ("", *(owner(n) for n in mine))
    table = np.zeros(len(mine) * each, OWNED)
    table["ledger"] = (np.array(mine)[:, None] + OWNERS * np.arange(each)).ravel()
    table["owner"] = np.repeat(np.arange(1, len(mine) + 1), each)
    table["state"], table["component"], table["last_entry"] = LedgerState.CLOSED, Component.DATA, 9
    listed = [tuple(n + OWNERS * k for k in range(each) if (n + OWNERS * k) % 1000 or k == each - 1) for n in mine]
    nodes = nodes_of(_node(owner(n), ids) for n, ids in zip(mine, listed, strict=True))
    assert nodes.rows.dtype == NODE
    return OwnedLedgerTable(table, names), nodes


def _node(name: str, ledgers: Sequence[int], version: int = 1) -> Pointers:
    path = f"/managed-ledgers/{name}"
    return Pointers(path, name, "", OwnerStatus.READABLE, version, version, 1_000, tuple(ledgers))


def report(quick: bool, root: Path) -> Iterator[Row]:
    """Time from the publication of an owner node with one ledger fewer to the finding in the driver."""
    size = LEDGERS // 10 if quick else LEDGERS
    with Kafka(root / "kafka") as kafka:
        kafka.up()
        settings = parse({"cluster": {"zookeeper": "127.0.0.1:1", "name": "bench"}, "spark": {"buckets": 16}}, ())
        journal = Journal(kafka.bootstrap, settings.journal, "bench")
        journal.create()
        each = size // OWNERS
        tell(f"{size:,} ledgers of {OWNERS:,} owners into the journal")
        journal.put(("ledgers", ledger_key(i), _record(i)) for i in range(size))
        journal.put(
            ("owners", owner(n).encode(), record_of(_node(owner(n), [n + OWNERS * k for k in range(each)])))
            for n in range(OWNERS)
        )
        journal.put([("topology", b"topology", topology_record(Topology(1, 1, ())))])
        spark = session(settings, root)
        starts, taken = list[float](), list[float]()
        for number in range(ROUNDS + 1):
            begun, seen = time.monotonic(), Seen()
            query = stream.start(spark, journal, settings.spark, seen.sink, f"file://{root}/checkpoint-{number}")
            seen.wait(seen.complete(size), "all ledgers in the view")
            starts.append(time.monotonic() - begun)
            if number < ROUNDS:
                drain(query)
        for number in range(ROUNDS + 1):
            begun = time.monotonic()
            left = [number + OWNERS * k for k in range(1, each)]
            journal.put([("owners", owner(number).encode(), record_of(_node(owner(number), left, 2 + number)))])
            seen.wait(seen.reported(number), "the report of the forgotten ledger")
            taken.append(seen.reported_s[number] - begun)
        drain(query)
        spark.stop()
        what = f"Cold start to the view of {size:,} ledgers; peer: the limit"
        yield rows.less(what, "s", [START_S], starts[1:], 1.0)
        yield rows.alone("  the first in a new Spark session", "s", starts[:1])
        yield rows.alone(f"Leak to report, {size:,} ledgers in the view", "s", taken[1:])


class Seen:
    """What the stream reported: ledgers by bucket, and the time of the first report of each finding."""

    def __init__(self) -> None:
        self.reported_s: dict[int, float] = {}
        self._counts: dict[int, int] = {}
        self._changed = threading.Condition()

    def sink(self, frame: DataFrame, _batch: int) -> None:
        """Sink of the stream."""
        for row in frame.toArrow().to_pylist():
            number, _, leaks = stream.leaks_of(row)
            with self._changed:
                self._counts[number] = leaks.ledgers
                for ledger in leaks.rows["ledger"].tolist():
                    self.reported_s.setdefault(ledger, time.monotonic())
                self._changed.notify_all()

    def complete(self, ledgers: int) -> Callable[[], bool]:
        """Whether all ledgers are in the view."""
        return lambda: sum(self._counts.values()) == ledgers

    def reported(self, ledger: int) -> Callable[[], bool]:
        """Whether a ledger was reported."""
        return lambda: ledger in self.reported_s

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until the condition is met."""
        with self._changed:
            if not self._changed.wait_for(condition, LIMIT_S):
                raise Failed(f"waited {LIMIT_S:.0f} s for {what}")


def _record(ledger: int) -> LedgerRecord:
    claim = {
        "application": b"pulsar",
        "component": b"managed-ledger",
        "pulsar/managed-ledger": owner(ledger % OWNERS).encode(),
    }
    return {
        "ledger": ledger,
        "mzxid": 1,
        "version": 1,
        "ctime_ms": 1,
        "seen_ms": 1,
        "state": 3,
        "ensemble": 2,
        "quorum": 2,
        "ack_quorum": 2,
        "last_entry": 9,
        "length": 100,
        "fragments": [{"first_entry": 0, "bookies": [*MEMBERS]}],
        "custom": claim,
        "error": "",
    }


def deletes(quick: bool, root: Path) -> Iterator[Row]:
    """Trueup reads every owner and every ledger again. The peer only sends the transactions."""
    count, ours, floor = DELETED // 5 if quick else DELETED, [], []
    with ZooKeeper(root) as server:
        server.up()
        client = ZooKeeperClient(server.address, timeout=30.0).open()
        for path in ("/ledgers", "/managed-ledgers"):
            client.ensure_path(path)
        site = Site(client)
        for number in range(ROUNDS):
            first = (2 * number + 1) * 10 * count
            floor.append(site.floor(range(first, first + count)))
            ours.append(site.ours(range(first + 5 * count, first + 6 * count)))
        client.shut()
    yield rows.more(f"Deletions, {count:,} of 100 owners (peer: the transactions alone)", "1/s", floor, ours)


class Site:
    """Ledgers of 100 owners. No owner lists them."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client, self._paths, self._ledgers = client, PulsarPaths(), LedgerPaths("/ledgers")
        for number in range(100):
            path = self._paths.node(owner(number))
            client.ensure_path(path.rpartition("/")[0])
            client.make(path, messages.ManagedLedger(ledgerInfo=[{"ledgerId": 1 << 30}]).SerializeToString())

    def fill(self, ids: Sequence[int]) -> None:
        """Create these ledgers."""
        for parent in sorted({self._ledgers.ledger(i).rpartition("/")[0] for i in ids}):
            self._client.ensure_path(parent)
        made = [self._client.creation(self._ledgers.ledger(i), encoded_for(i)) for i in ids]
        for answer in self._client.commit(made[at : at + 100] for at in range(0, len(made), 100)):
            if not isinstance(answer, CommittedNode) or any(answer.codes):
                raise Failed(f"could not write ledgers: {answer}")

    def floor(self, ids: Sequence[int]) -> float:
        """Deletions per second of prepared transactions."""
        self.fill(ids)
        batches = [[check(self._paths.node(owner(i % 100)), 0), deletion(self._ledgers.ledger(i), 0)] for i in ids]
        begun = time.monotonic()
        if not all(isinstance(a, CommittedNode) and not any(a.codes) for a in self._client.commit(batches)):
            raise Failed("a transaction of the floor was refused")
        return len(ids) / (time.monotonic() - begun)

    def ours(self, ids: Sequence[int]) -> float:
        """Deletions per second in portions of 500, the portion of the stream."""
        self.fill(ids)
        deleter = Deleter(
            self._client, self._paths, self._ledgers.ledger, self._decode, lambda: 1, Tiered({}).verify, lambda: ""
        )
        orders = [DeleteOrder(i, 0, 7, Claim(Component.DATA, owner(i % 100))) for i in ids]
        begun = time.monotonic()
        for at in range(0, len(orders), 500):
            wrong = [o for o in deleter.delete(orders[at : at + 500]) if o.result != "deleted"]
            if wrong:
                raise Failed(f"not deleted: {wrong[0]}")
        return len(ids) / (time.monotonic() - begun)

    def _decode(self, ledger: int, data: bytes, stat: Stat) -> LedgerRecord:
        where = ZnodeSource(ledger, self._ledgers.ledger(ledger), stat.mzxid, stat.version, stat.ctime, 0)
        return queries.decoded(data, where)


def encoded_for(ledger: int) -> bytes:
    """The metadata of a ledger, as stored in its znode."""
    return metadata.encode({**_record(ledger), "custom": _record(ledger % 100)["custom"], "ctime_ms": 7})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.deletion", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--only", action="append", choices=("diff", "report", "delete"), help="measure this part; may be given again"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of everything; nothing is kept")
    parser.add_argument("-o", dest="output", choices=("table", "json"), default="table", help="what to print")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
