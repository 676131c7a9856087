"""`trueup run` on a Spark cluster of two workers, of which one is killed. `test_cluster_kills` has all streams."""

import json
import shlex
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import urllib3

from tests.configuration import parse
from tests.e2e.test_links import Stream
from tests.e2e.trueup import Trueup, until
from tests.replication.pair import Pair
from tests.replication.writers import Writer
from trueup.connectors.s3.store import BucketLocation, ObjectStore
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.servers.objects import REGION, Objects
from trueup.sandbox.servers.spark import Daemon, StandaloneSpark
from trueup.sandbox.writer import LedgerWriter
from trueup.streams.cli import machine
from trueup.streams.replication.query import POOL

pytestmark = [pytest.mark.servers, pytest.mark.release]
PER_S, LIMIT_S, LEASES = 100.0, 180.0, 5
ON_LOOPBACK = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
}


@pytest.fixture(scope="module")
def spark(new_root: Callable[[], Path]) -> Iterator[StandaloneSpark]:
    with StandaloneSpark(new_root(), cores=2) as made:
        made.up()
        yield made


@pytest.fixture(scope="module")
def topic(pair: Pair) -> str:
    return pair.topic(2)


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., SandboxCluster]) -> SandboxCluster:
    return start_cluster(racks={"/rack1": 1, "/rack2": 1}, daemons=False)


@pytest.fixture(scope="module")
def trueup(
    pair: Pair, topic: str, cluster: SandboxCluster, spark: StandaloneSpark, new_root: Callable[[], Path]
) -> Iterator[Trueup]:
    chosen = on(spark, new_root())
    chosen["spark"]["conf"] |= {"spark.archives": f"{archive(new_root())}#environment"}
    with (
        pytest.MonkeyPatch.context() as patch,
        Trueup(cluster, new_root(), links={"link": link(topic, "records")}, **chosen, **between(pair)) as made,
    ):
        patch.setenv("PYSPARK_PYTHON", "./environment/bin/python")
        made.start()
        yield made


def archive(root: Path) -> Path:
    """An archive of a Python environment, as workers that have none receive it. It leads to the one of this test."""
    python, packed = root / "python", root / "environment.tar.gz"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    with tarfile.open(packed, "w:gz") as made:
        made.add(python, "bin/python")
    return packed


def link(topic: str, path: str) -> dict[str, object]:
    """The settings of a link."""
    return {"source": "east", "target": "west", "topics": [topic], "copy": path, "mode": "enforce", "lease_s": 3}


def between(pair: Pair) -> dict[str, dict[str, object]]:
    """The sections of both clusters, and of a journal at the first."""
    sides = {"east": (pair.east.bootstrap, 0), "west": (pair.west.bootstrap, 1)}
    return {
        "kafka": {name: {"bootstrap": bootstrap, "bit": bit} for name, (bootstrap, bit) in sides.items()},
        "journal": {"bootstrap": pair.east.bootstrap},
    }


def on(spark: StandaloneSpark, checkpoints: Path) -> dict[str, dict[str, Any]]:
    """The section of a Spark cluster, with a directory that its workers share."""
    return {"spark": {"master": spark.url, "checkpoint": f"file://{checkpoints}", "conf": dict(ON_LOOPBACK)}}


def bucket(objects: Objects) -> dict[str, object]:
    """The settings of checkpoints in a bucket of this server, which accepts any credentials."""
    return {
        "checkpoint": "s3a://states/trueup",
        "checkpoint_endpoint": objects.endpoint,
        "checkpoint_key_env": "KEY",
        "checkpoint_secret_env": "SECRET",
    }


def grown(trueup: Trueup) -> None:
    """Wait until every link has copied more."""
    before = {row["link"]: row["copied"] for row in trueup.api("links")}

    def more() -> bool:
        return all(row["copied"] > before[row["link"]] for row in trueup.api("links"))

    trueup.until("links to copy", more, LIMIT_S)


def cores(spark: StandaloneSpark) -> tuple[int, int]:
    """The task slots that applications use, and all of the workers that live."""
    found = json.loads(urllib3.request("GET", f"{spark.ui}/json/", retries=False, timeout=10.0).data)
    return int(found["coresused"]), int(found["cores"])


def whole(spark: StandaloneSpark, trueup: Trueup) -> None:
    """Wait until the application uses every core of all workers."""
    until(lambda: cores(spark) == (4, 4), LIMIT_S, "its executors", trueup.diagnostics)


def copying(spark: StandaloneSpark) -> list[Daemon]:
    """The workers on which a link copies, or copied a short time ago."""

    def copies(process: psutil.Process) -> bool:
        try:
            return POOL in process.environ()
        except psutil.NoSuchProcess:
            return False

    return [
        worker
        for worker in spark.workers.values()
        if any(map(copies, psutil.Process(worker.pid).children(recursive=True)))
    ]


def test_the_doctor_tries_a_batch_on_the_executors_and_in_the_bucket(
    spark: StandaloneSpark, new_root: Callable[[], Path]
) -> None:
    """Before the application takes all cores."""
    journal = {"bootstrap": "127.0.0.1:1"}
    kafka = {"kafka": {"east": {"bootstrap": "127.0.0.1:1", "bit": 0}}, "logdirs": {"east": {}}, "journal": journal}
    with Objects(new_root(), buckets=["states"]) as objects, pytest.MonkeyPatch.context() as patch:
        objects.up()
        for name in ("KEY", "SECRET"):
            patch.setenv(name, "any")
        section = {**on(spark, new_root())["spark"], **bucket(objects)}
        found = machine.spark(parse({**kafka, "spark": section}))
        store = ObjectStore(BucketLocation("states", REGION, objects.endpoint, "KEY", "SECRET"))
        left = [each.key for page in store.objects() for each in page if "doctor" in each.key]
    assert (found.status, spark.url in found.found, left) == ("ok", True, []), found


def test_every_core_of_the_cluster_is_a_task_slot(trueup: Trueup, spark: StandaloneSpark) -> None:
    whole(spark, trueup)
    trueup.until("no problem", lambda: not trueup.api("status")["problems"], LIMIT_S)
    assert trueup.api("links")[0]["state"] == "up"


def test_leases_stay_on_the_worker_that_has_their_copier(trueup: Trueup, spark: StandaloneSpark) -> None:
    begun = trueup.api("links")[0]["rounds"]
    trueup.until("leases", lambda: trueup.api("links")[0]["rounds"] >= begun + LEASES, LIMIT_S)
    assert len(copying(spark)) == 1


def test_a_link_and_verdicts_go_on_when_the_worker_that_copies_is_killed(
    trueup: Trueup, pair: Pair, topic: str, spark: StandaloneSpark, writer: LedgerWriter
) -> None:
    source = Writer(pair.site("east", topic, 2), "idempotent", PER_S)
    source.start()
    try:
        grown(trueup)
        lost = copying(spark)[0]
        lost.kill()
        writer.write(2, 2, 2, 5)
        trueup.wait("its verdict", lambda status: status["counts"]["true"] == 1)
        grown(trueup)
        lost.up()
        whole(spark, trueup)
    finally:
        source.stop()
    stream = Stream(pair, topic)
    trueup.until("the records to arrive", stream.arrived, LIMIT_S)
    assert stream.same()
