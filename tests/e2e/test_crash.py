"""SIGKILL of the application, ZooKeeper and the journal during repairs. The tests depend on their order."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.e2e.trueup import SETTINGS, Trueup, Witness, command, on_one_rack, source_of
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.demo.truth import Truth
from trueup.sandbox.writer import LedgerWriter
from trueup.state.common.errors import Retry, Unknown

pytestmark = pytest.mark.servers
ENTRIES = 10
LEDGERS = 20
STALE_S = 5


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., SandboxCluster]) -> SandboxCluster:
    return start_cluster(racks={"/rack1": 2, "/rack2": 2}, daemons=False, kafka=True, settings=SETTINGS)


@pytest.fixture(scope="module")
def narrow(cluster: SandboxCluster, writer: LedgerWriter) -> list[int]:
    return on_one_rack(cluster, writer, LEDGERS, ENTRIES)


@pytest.fixture(scope="module")
def workers(cluster: SandboxCluster, trueup: Trueup) -> None:
    """Starts the AutoRecovery daemons before any ledger is marked."""
    cluster.start("autorecovery")


@pytest.fixture(scope="module")
def trueup(cluster: SandboxCluster, narrow: list[int], new_root: Callable[[], Path]) -> Iterator[Trueup]:
    # A low mark rate, so that a kill happens during the repairs.
    slow = {"mode": "enforce", "grace_s": 60, "max_marks": 6, "marks_per_s": 6, "stale_s": STALE_S, "paused": True}
    with Trueup(cluster, new_root(), placement=slow, journal={"bootstrap": cluster.kafka.bootstrap}) as made:
        made.start()
        made.wait("the narrow ledgers to be found", lambda status: status["counts"]["drifted"] == len(narrow))
        yield made


@pytest.fixture
def well(cluster: SandboxCluster, trueup: Trueup, workers: None, witness: Witness, truth: Truth) -> int:
    """Restores the initial state: all servers are up and every ledger is true. Returns the number of ledgers."""
    for server in (cluster.zookeeper, cluster.kafka):
        if not server.alive:
            server.up()
    # After a loss of ZooKeeper, BookKeeper's Auditor may mark ledgers of bookies that are not registered yet.
    trueup.until("every bookie and no mark", lambda: all_registered(cluster, truth) and not witness.marks())
    if not trueup.process.alive:
        trueup.start()
    if trueup.api("status")["paused"]:
        trueup.set("placement.paused", "false")
    total = len(truth.ledgers())

    def repaired(status: dict[str, Any]) -> bool:
        # A server whose session expired can exit only now, and its registration of before was seen above.
        return all_registered(cluster, truth) and true(status, total)

    trueup.wait("all to be true", repaired)
    return total


def all_registered(cluster: SandboxCluster, truth: Truth) -> bool:
    """Start all servers and check their registrations. After an expired session, a server registers again or exits."""
    cluster.start("bookies")
    cluster.start("autorecovery")
    try:
        return all(truth.registered(rack) == bookies for rack, bookies in cluster.racks.items())
    except Retry:
        return False


def true(status: dict[str, Any], ledgers: int) -> bool:
    """Whether this number of ledgers is true, no repair is in progress, and every source is up."""
    connected = source_of(status, "journal")["state"] == "up" == source_of(status, "zookeeper")["state"]
    done = status["counts"]["true"] == ledgers == status["ledgers"] and not status["marks"]["outstanding"]
    return bool(status["ready"] and connected and done)


def written(cluster: SandboxCluster, truth: Truth, writer: LedgerWriter) -> bool:
    """Whether a ledger could be written. A client that lost ZooKeeper needs some time to find its bookies again.

    A bookie whose session expired can exit after ``well`` ended; it is started again.
    """
    if not all_registered(cluster, truth):
        return False
    try:
        writer.write(2, 2, 2, ENTRIES)
    except Unknown:
        return False
    return True


def test_a_kill_in_the_middle_of_repairs_loses_nothing_and_marks_nothing_twice(
    cluster: SandboxCluster, trueup: Trueup, workers: None, narrow: list[int], witness: Witness, truth: Truth
) -> None:
    before = trueup.findings()
    producer = Producer({"bootstrap.servers": cluster.kafka.bootstrap})
    producer.produce("trueup.e2e.config", b"\xff no Avro", b"placement.grace_s")
    assert producer.flush(120) == 0
    with witness.counting() as marked:
        trueup.set("placement.paused", "false")
        trueup.until("a third to be true", lambda: len(truth.on_one_rack()) < 2 * LEDGERS // 3)
        trueup.kill()
        left = truth.on_one_rack()
        trueup.start()
        after = trueup.findings()
        kept = [
            ledger for ledger in after if ledger in before and after[ledger]["since_ms"] != before[ledger]["since_ms"]
        ]
        trueup.wait("nothing to drift", lambda status: not status["counts"]["drifted"] and not status["marks"]["ours"])
    assert (len(left) > 0, kept) == (True, [])
    assert (truth.on_one_rack(), dict(marked)) == (set(), dict.fromkeys(narrow, 1)), trueup.diagnostics()


def test_a_bad_config_record_does_not_keep_it_from_starting(trueup: Trueup) -> None:
    """On a busy machine, ledgers that are not judged in time are another problem."""
    problems = trueup.api("status")["problems"]
    assert sum("journal record not readable" in problem for problem in problems) == 1, problems


def test_after_all_that_every_entry_is_there(well: int, narrow: list[int], writer: LedgerWriter) -> None:
    assert {writer.verify(ledger, ENTRIES).read for ledger in narrow} == {ENTRIES}


def test_without_zookeeper_nothing_is_green(cluster: SandboxCluster, trueup: Trueup, well: int) -> None:
    cluster.zookeeper.kill()
    trueup.until("the loss to be told", lambda: trueup.get("readyz")[0] == 503)
    blind = trueup.wait("blindness", lambda status: status["counts"]["unknown"] == well)
    assert (blind["counts"], source_of(blind, "zookeeper")["state"], trueup.run("status").code) == (
        {"true": 0, "drifted": 0, "blocked": 0, "unknown": well},
        "down",
        1,
    )


def test_when_zookeeper_is_back_all_is_as_before(
    cluster: SandboxCluster, trueup: Trueup, well: int, witness: Witness
) -> None:
    trueup.until("readiness", lambda: trueup.get("readyz")[0] == 200)
    # A newly elected BookKeeper Auditor may mark ledgers that it checked before every bookie had registered again.
    trueup.until("no mark", lambda: not witness.marks())
    assert trueup.api("status")["ledgers"] == well


def test_without_the_journal_the_status_shows_it_and_new_ledgers_are_not_true(
    cluster: SandboxCluster, trueup: Trueup, well: int, writer: LedgerWriter, truth: Truth
) -> None:
    cluster.kafka.kill()
    trueup.until("the loss to be told", lambda: trueup.source("journal")["state"] == "down")
    trueup.until("a ledger to be written", lambda: written(cluster, truth, writer))
    status = trueup.wait("blindness", lambda status: status["counts"]["true"] == 0)
    assert status["counts"]["unknown"] == status["ledgers"]


def test_when_the_journal_is_back_nothing_was_lost(trueup: Trueup, well: int, witness: Witness) -> None:
    assert (trueup.api("status")["ledgers"], trueup.findings(), witness.marks()) == (well, {}, {})


def test_the_stream_goes_on_after_the_journal(
    cluster: SandboxCluster, trueup: Trueup, well: int, writer: LedgerWriter, truth: Truth
) -> None:
    trueup.until("a ledger to be written", lambda: written(cluster, truth, writer))
    total = len(truth.ledgers())
    assert total > well
    trueup.wait("another ledger", lambda status: true(status, total))
    assert {stream["state"] for stream in trueup.api("status")["streams"]} == {"running"}


def test_a_second_application_on_the_same_data_is_refused(trueup: Trueup) -> None:
    result = command("run", "-c", str(trueup.file))
    assert (result.code, str(trueup.data) in result.err, "another Trueup" in result.err) == (2, True, True), result


def test_a_port_that_is_taken_is_reported(trueup: Trueup, tmp_path: Path) -> None:
    result = command("run", "-c", str(trueup.file), "--set", f"data_dir={tmp_path}")
    assert (result.code, f"127.0.0.1:{trueup.port}" in result.err, "http.port" in result.err) == (1, True, True), result


def test_everything_wrong_with_a_configuration_is_reported_at_once(tmp_path: Path) -> None:
    path = tmp_path / "trueup.yaml"
    path.write_text("placement: {mode: maybe, max_marks: -1}\nnonsense: 1\n")
    result = command("run", "-c", str(path))
    named = [
        key for key in ("cluster.zookeeper", "placement.mode", "placement.max_marks", "nonsense") if key in result.err
    ]
    assert (result.code, named) == (2, ["cluster.zookeeper", "placement.mode", "placement.max_marks", "nonsense"])
