"""Checkpoints in a bucket: after the loss of the machine, the application goes on elsewhere with the journal and the
bucket alone. The tests depend on their order.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.planted import secret, shown
from tests.e2e.test_standby_repairs import ages, batch
from tests.e2e.trueup import SETTINGS, Trueup, Witness, on_one_rack
from trueup.connectors.s3.store import BucketLocation, ObjectStore
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.demo.truth import Truth
from trueup.sandbox.servers.objects import REGION, Objects
from trueup.sandbox.writer import LedgerWriter

pytestmark = [pytest.mark.servers, pytest.mark.release]
LEDGERS, ENTRIES = 12, 5
BUCKET = "states"
KEYS = {"TRUEUP_TEST_KEY": secret("key"), "TRUEUP_TEST_SECRET": secret("secret")}


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., SandboxCluster]) -> SandboxCluster:
    return start_cluster(racks={"/rack1": 2, "/rack2": 2}, daemons=False, kafka=True, settings=SETTINGS)


@pytest.fixture(scope="module")
def narrow(cluster: SandboxCluster, writer: LedgerWriter) -> list[int]:
    written = on_one_rack(cluster, writer, LEDGERS, ENTRIES)
    cluster.start("autorecovery")
    return written


@pytest.fixture(scope="module")
def objects(new_root: Callable[[], Path]) -> Iterator[Objects]:
    with Objects(new_root(), buckets=[BUCKET]) as made:
        made.up()
        yield made


@pytest.fixture(scope="module", autouse=True)
def keys() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in KEYS.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def machine(cluster: SandboxCluster, objects: Objects, new_root: Callable[[], Path]) -> Callable[[], Trueup]:
    """Makes the application on another machine each time."""
    # A low mark rate, so that the first one is killed during the repairs.
    slow = {"mode": "enforce", "grace_s": 60, "max_marks": 3, "marks_per_s": 1, "paused": True}
    journal = {"bootstrap": cluster.kafka.bootstrap}
    return lambda: Trueup(cluster, new_root(), placement=slow, journal=journal, spark=kept(objects))


@pytest.fixture(scope="module")
def trueup(machine: Callable[[], Trueup], narrow: list[int]) -> Iterator[Trueup]:
    with machine() as made:
        made.start()
        made.wait("the narrow ledgers to be found", lambda status: status["counts"]["drifted"] == len(narrow))
        yield made


def kept(objects: Objects) -> dict[str, object]:
    """The settings of checkpoints in the bucket."""
    key, password = KEYS
    return {
        "checkpoint": f"s3a://{BUCKET}/trueup",
        "checkpoint_endpoint": objects.endpoint,
        "checkpoint_region": REGION,
        "checkpoint_key_env": key,
        "checkpoint_secret_env": password,
        "conf": {"spark.planted": secret("spark")},
    }


def test_checkpoints_are_in_the_bucket_alone(trueup: Trueup, objects: Objects) -> None:
    store = ObjectStore(BucketLocation(BUCKET, REGION, objects.endpoint, *KEYS))
    found = {each.key.split("/")[0] for page in store.objects() for each in page}
    assert (found, (trueup.data / "checkpoints").exists()) == ({"trueup"}, False)


def test_credentials_of_the_bucket_are_shown_nowhere(trueup: Trueup) -> None:
    assert shown(trueup) == {"arguments": [], "files": [], "api": [], "spark": []}


def test_after_the_loss_of_the_machine_it_goes_on_elsewhere_and_marks_nothing_twice(
    trueup: Trueup, machine: Callable[[], Trueup], narrow: list[int], witness: Witness, truth: Truth
) -> None:
    since = ages(trueup)
    with witness.counting() as marked, machine() as second:
        trueup.set("placement.paused", "false")
        trueup.until("a third to be true", lambda: len(truth.on_one_rack()) < 2 * LEDGERS // 3)
        before, left = batch(trueup), len(truth.on_one_rack())
        trueup.kill()
        shutil.rmtree(trueup.data)
        second.start()
        younger = [ledger for ledger, at in ages(second).items() if since.get(ledger) != at]
        second.wait("no repair", lambda status: not status["counts"]["drifted"] and not status["marks"]["ours"])
        after = batch(second)
    assert (left > 0, younger, after > before) == (True, [], True), (before, after)
    assert (truth.on_one_rack(), dict(marked)) == (set(), dict.fromkeys(narrow, 1))
