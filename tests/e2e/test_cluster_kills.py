"""Placement, ordered deletions, two links and log directories on a Spark cluster, with checkpoints in a bucket. Workers
and the driver are killed, and the driver's data directory is lost.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import test_cluster
from tests.e2e.test_cluster import LIMIT_S, PER_S, between, bucket, copying, grown, link, on, whole
from tests.e2e.test_links import Stream
from tests.e2e.trueup import SETTINGS, Trueup, Witness, on_one_rack
from tests.replication.pair import Pair
from tests.replication.writers import Writer
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.demo.leak import instance
from trueup.sandbox.demo.truth import Truth
from trueup.sandbox.servers.objects import Objects
from trueup.sandbox.servers.spark import StandaloneSpark
from trueup.sandbox.writer import LedgerWriter
from trueup.streams.runtime.spark.cluster import NO_EXECUTOR

pytestmark = [pytest.mark.servers, pytest.mark.release]
LEDGERS, ENTRIES = 8, 5
WAITS = 4
"""Exit code of a command whose deletion is not confirmed yet."""
spark = test_cluster.spark


@pytest.fixture(scope="module")
def topics(pair: Pair) -> dict[str, str]:
    return {path: pair.topic(2) for path in ("batches", "records")}


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., SandboxCluster]) -> SandboxCluster:
    return start_cluster(racks={"/rack1": 2, "/rack2": 2}, daemons=False, settings=SETTINGS)


@pytest.fixture(scope="module")
def narrow(cluster: SandboxCluster, writer: LedgerWriter) -> list[int]:
    written = on_one_rack(cluster, writer, LEDGERS, ENTRIES)
    cluster.start("autorecovery")
    return written


@pytest.fixture(scope="module")
def objects(new_root: Callable[[], Path]) -> Iterator[Objects]:
    with Objects(new_root(), buckets=["states"]) as made, pytest.MonkeyPatch.context() as patch:
        made.up()
        for name in ("KEY", "SECRET"):
            patch.setenv(name, "any")
        yield made


@pytest.fixture(scope="module")
def trueup(
    pair: Pair,
    topics: dict[str, str],
    cluster: SandboxCluster,
    narrow: list[int],
    spark: StandaloneSpark,
    objects: Objects,
    new_root: Callable[[], Path],
) -> Iterator[Trueup]:
    sections: dict[str, dict[str, Any]] = {
        "spark": {**on(spark, new_root())["spark"], **bucket(objects)},
        "links": {path: link(topic, path) for path, topic in topics.items()},
        "placement": {"mode": "enforce", "grace_s": 1, "max_marks": 1, "marks_per_s": 0.1, "paused": True},
        "deletion": {
            "owners": "operator",
            "instance": instance(cluster.zookeeper.address),
            "mode": "approve",
            "confirm_s": 0.5,
        },
        "logdirs": {"east": {}, "west": {}},
    }
    with Trueup(cluster, new_root(), **sections, **between(pair)) as made:
        made.start()
        made.wait("the narrow ledgers to be found", lambda status: status["counts"]["drifted"] == len(narrow))
        yield made


@contextmanager
def written(pair: Pair, topics: dict[str, str]) -> Iterator[None]:
    """Write to the topics of both links."""
    writers = [Writer(pair.site("east", topic, 2), "idempotent", PER_S) for topic in topics.values()]
    for writer in writers:
        writer.start()
    try:
        yield
    finally:
        for writer in writers:
            writer.stop()


def deleted(trueup: Trueup, ledgers: list[int]) -> int:
    """Order the deletion of a ledger; returns its number."""
    ledger = ledgers.pop()
    assert trueup.run("delete", "ledger", str(ledger), "--yes", "--wait", "0.1").code in (0, WAITS)
    return ledger


def killed(trueup: Trueup, spark: StandaloneSpark, ledgers: list[int]) -> None:
    """Kill both workers in turn, the driver, whose data directory is lost, and the worker that copies then. A deletion
    is ordered before each."""
    for worker in spark.workers.values():
        deleted(trueup, ledgers)
        worker.kill()
        grown(trueup)
        worker.up()
        whole(spark, trueup)
    deleted(trueup, ledgers)
    trueup.kill()
    shutil.rmtree(trueup.data)
    trueup.start()
    grown(trueup)
    deleted(trueup, ledgers)
    lost = copying(spark)[0]
    lost.kill()
    grown(trueup)
    lost.up()


def test_kills_of_workers_and_of_the_driver_lose_nothing_and_do_nothing_twice(
    trueup: Trueup,
    pair: Pair,
    topics: dict[str, str],
    spark: StandaloneSpark,
    writer: LedgerWriter,
    narrow: list[int],
    witness: Witness,
    truth: Truth,
) -> None:
    ordered = [writer.write(2, 2, 2, ENTRIES) for _ in range(4)]
    with witness.counting() as marked, written(pair, topics):
        grown(trueup)
        trueup.set("placement.paused", "false")
        killed(trueup, spark, list(ordered))
        trueup.set("placement.max_marks", 50)
        trueup.set("placement.marks_per_s", 50)
        trueup.wait("no repair", lambda status: not status["counts"]["drifted"] and not status["marks"]["ours"])
        trueup.until("no deletion", lambda: not trueup.api("deletions"))
    streams = [Stream(pair, topic) for topic in topics.values()]
    trueup.until("the records to arrive", lambda: all(stream.arrived() for stream in streams))
    assert [stream.same() for stream in streams] == [True, True]
    assert (truth.on_one_rack(), dict(marked)) == (set(), dict.fromkeys(narrow, 1)), trueup.diagnostics()
    assert [ledger for ledger in ordered if witness.client.look(witness.paths.ledger(ledger))] == []


def test_after_that_every_verdict_is_true_and_every_stream_runs(trueup: Trueup, truth: Truth) -> None:
    status = trueup.wait(
        "readiness", lambda status: status["ready"] and not status["problems"] and not status["not_judged"]
    )
    assert (status["counts"]["true"], {row["state"] for row in status["streams"]}) == (
        len(truth.ledgers()),
        {"running"},
    ), json.dumps(status)


def test_a_cluster_without_workers_is_shown_and_everything_goes_on_when_one_returns(
    trueup: Trueup, pair: Pair, topics: dict[str, str], spark: StandaloneSpark
) -> None:
    for worker in spark.workers.values():
        worker.kill()
    trueup.wait("the problem", lambda status: NO_EXECUTOR in status["problems"], LIMIT_S)
    spark.workers[1].up()
    trueup.wait("no problem of executors", lambda status: NO_EXECUTOR not in status["problems"], LIMIT_S)
    with written(pair, topics):
        grown(trueup)
    trueup.wait("a batch", lambda status: status["ready"])
    assert {row["state"] for row in trueup.api("links")} == {"up"}
