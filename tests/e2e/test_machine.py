"""The machine of the application fails: its disk, its processes, its checkpoint, its journal. The tests depend on their
order.

TRUEUP_STOPPED_S sets how long everything is stopped, TRUEUP_KILLS how often the embedded broker is killed.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from tests.e2e.trueup import SETTINGS, Trueup, Witness, on_one_rack, words
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.demo.volumes import Volumes
from trueup.sandbox.writer import LedgerWriter

pytestmark = [pytest.mark.servers, pytest.mark.release]
LEDGERS, ENTRIES = 10, 5
DISK = 500 << 20
STOPPED_S, KILLS = float(os.environ.get("TRUEUP_STOPPED_S", "20")), int(os.environ.get("TRUEUP_KILLS", "3"))
MODE = "approve"


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., SandboxCluster]) -> SandboxCluster:
    return start_cluster(racks={"/rack1": 2, "/rack2": 2}, daemons=False, settings=SETTINGS)


@pytest.fixture(scope="module")
def narrow(cluster: SandboxCluster, writer: LedgerWriter) -> list[int]:
    return on_one_rack(cluster, writer, LEDGERS, ENTRIES)


@pytest.fixture(scope="module")
def disk(new_root: Callable[[], Path]) -> Iterator[Volumes]:
    with Volumes(new_root(), {"data": DISK}) as made:
        yield made


@pytest.fixture(scope="module")
def trueup(cluster: SandboxCluster, narrow: list[int], disk: Volumes) -> Iterator[Trueup]:
    (data,) = disk.sizes
    with Trueup(cluster, data.parent, placement={"mode": MODE, "grace_s": 60}) as made:
        made.process.within(disk.enter)
        made.start()
        yield made


@pytest.fixture(autouse=True)
def well(trueup: Trueup, narrow: list[int], witness: Witness) -> Iterator[None]:
    """Every test begins and ends with the same view: nothing was marked, and nothing was logged as a stack trace."""
    as_before(trueup, narrow)
    yield
    as_before(trueup, narrow)
    assert (witness.marks(), "Traceback" in trueup.process.output()) == ({}, False), trueup.process.tail(60)


def as_before(trueup: Trueup, narrow: list[int]) -> None:
    def same(status: dict[str, Any]) -> bool:
        return bool(status["ready"]) and status["counts"] == {"true": 0, "drifted": LEDGERS, "blocked": 0, "unknown": 0}

    trueup.wait("the view of before", same)
    assert sorted(trueup.findings()) == sorted(narrow)


def place(disk: Volumes) -> Path:
    """The data directory, as this process sees it."""
    (data,) = disk.sizes
    return disk.path(str(data))


def checkpoint(disk: Volumes) -> Path:
    (found,) = (path for path in (place(disk) / "checkpoints").glob("placement-*") if ".aside-" not in path.name)
    return found


def broker(trueup: Trueup) -> psutil.Process:
    """The embedded journal."""
    return next(process for process in trueup.processes() if "kafka.Kafka" in words(process))


def newest(folder: Path) -> Path:
    return max((file for file in folder.iterdir() if file.name.isdecimal()), key=lambda file: int(file.name))


def no_offsets(path: Path) -> None:
    for file in (path / "offsets").iterdir():
        file.unlink()


def empty_offsets(path: Path) -> None:
    newest(path / "offsets").write_bytes(b"")


def no_metadata(path: Path) -> None:
    (path / "metadata").unlink()


def no_state(path: Path) -> None:
    """Delete the files of the state of all buckets."""
    files = [file for file in (path / "state").rglob("*") if file.suffix in (".changelog", ".zip", ".sst")]
    assert files
    for file in files:
        file.unlink()


@pytest.mark.parametrize("harm", [no_offsets, empty_offsets, no_metadata, no_state])
def test_a_damaged_checkpoint_is_set_aside_and_the_view_is_built_again(
    trueup: Trueup, disk: Volumes, harm: Callable[[Path], None]
) -> None:
    trueup.kill()
    path = checkpoint(disk)
    before = set(path.parent.glob("*.aside-*"))
    harm(path)
    with trueup.sampled("status") as seen:
        trueup.start()
    aside = set(path.parent.glob("*.aside-*")) - before
    assert (len(aside), "checkpoint set aside" in trueup.process.output()) == (1, True)
    assert {status["counts"]["true"] for _, status in seen} <= {0}, "an unseen ledger counted as true"
    for one in path.parent.glob("*.aside-*"):
        one.rename(place(disk) / f"{harm.__name__}-{one.name}")  # the next case begins without any


def test_a_checkpoint_that_is_deleted_under_the_running_application_is_built_again(
    cluster: SandboxCluster, trueup: Trueup, disk: Volumes
) -> None:
    path = checkpoint(disk)
    with trueup.sampled("status") as seen:
        path.rename(place(disk) / "moved")
        cluster.stop("/rack2")  # a batch
        cluster.start("/rack2")
        trueup.until("another checkpoint", lambda: path.exists() and (path / "commits").is_dir())
        trueup.wait("readiness", lambda status: status["ready"] and status["counts"]["drifted"] == LEDGERS)
    assert {status["counts"]["true"] for _, status in seen} <= {0}, "an unseen ledger counted as true"


@pytest.mark.timeout(600 + STOPPED_S)
def test_everything_stopped_for_a_while_goes_on(trueup: Trueup) -> None:
    stopped = trueup.processes()
    for process in stopped:
        process.send_signal(signal.SIGSTOP)
    time.sleep(STOPPED_S)  # nothing can be waited for: all is stopped
    for process in stopped:
        process.send_signal(signal.SIGCONT)


@pytest.mark.timeout(600 + 20 * KILLS)
def test_the_embedded_journal_survives_repeated_kills(trueup: Trueup) -> None:
    for number in range(KILLS):
        found = broker(trueup)
        found.kill()
        trueup.until("the loss to be noticed", lambda pid=found.pid: broker_of(trueup) not in (pid, 0))
        trueup.wait(f"the journal after kill {number}", lambda _: trueup.source("journal")["state"] == "up")
    trueup.set("placement.grace_s", "62")
    assert trueup.api("config")["live"]["placement.grace_s"]["value"] == 62


def broker_of(trueup: Trueup) -> int:
    """The process of the embedded journal; 0 while there is none."""
    return next((one.pid for one in trueup.processes() if "kafka.Kafka" in words(one)), 0)


def test_a_full_disk_is_told_and_when_there_is_room_all_goes_on(trueup: Trueup, disk: Volumes) -> None:
    ballast = place(disk) / "ballast"
    fill(ballast)
    broker(trueup).kill()  # it could go on in its files for long
    trueup.wait(
        "the problem", lambda status: any("data_dir" in one and "free at least" in one for one in status["problems"])
    )
    trueup.wait("the journal to be down", lambda _: trueup.source("journal")["state"] == "down")
    trueup.until("the reason", lambda: "free in data_dir" in trueup.process.output())
    ballast.unlink()
    trueup.wait("the journal", lambda _: trueup.source("journal")["state"] == "up")


def fill(path: Path) -> None:
    """Write until nothing fits any more, in ever smaller pieces."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with suppress(OSError):
                while file.write(bytes(size)):
                    pass


def test_a_deleted_config_topic_ends_the_application_and_no_mode_applies_until_it_is_confirmed(
    trueup: Trueup, disk: Volumes
) -> None:
    admin = AdminClient(trueup.embedded(place(disk)))
    trueup._wanted = False
    admin.delete_topics(["trueup.e2e.config"])["trueup.e2e.config"].result(60)
    trueup.until("the end", lambda: not trueup.process.alive)
    assert "topics of the journal changed" in trueup.process.output()
    assert trueup.process.exit_code == 1
    trueup.start()
    status = trueup.api("status")
    (problem,) = (one for one in status["problems"] if "settings may have been lost" in one)
    assert status["mode"] == "observe"
    command = problem.rpartition("`trueup ")[2].rstrip("`").split()
    assert trueup.run(*command).code == 0
    trueup.wait("the mode of the file", lambda status: status["mode"] == MODE)
