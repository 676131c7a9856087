"""Garbage in every topic of the journal, written by others while Trueup runs and before a start: it is skipped, shown
and removed by a command."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.e2e.trueup import SETTINGS, Trueup, command
from tests.garbage import TOPICS, of
from trueup.connectors.embedded.kafka import Kafka
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.writer import LedgerWriter

pytestmark = [pytest.mark.servers, pytest.mark.release]
BROKEN = ("an empty body", "JSON", "bytes")
NOT_READABLE = "journal record not readable"


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., SandboxCluster]) -> SandboxCluster:
    return start_cluster(racks={"/rack1": 2, "/rack2": 2}, settings=SETTINGS)


@pytest.fixture(scope="module")
def broker(new_root: Callable[[], Path]) -> Iterator[Kafka]:
    made = Kafka(new_root())
    made.up()
    yield made
    made.kill()
    made.close()


def spoil(broker: Kafka, cluster: str, round_: int) -> None:
    """Write every kind of garbage into every topic."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for what in TOPICS:
        for one in of(what):
            producer.produce(f"trueup.{cluster}.{what}", one.body, one.key + bytes([round_]))
    assert producer.flush(60) == 0


def found(trueup: Trueup) -> int:
    """The number of records that are not readable, as in the metrics."""
    lines = trueup.get("metrics")[1].splitlines()
    return int(float(next(line for line in lines if line.startswith("trueup_journal_unreadable")).rpartition(" ")[2]))


@pytest.mark.parametrize("signed", [False, True])
def test_garbage_in_every_topic_ends_nothing_and_a_command_removes_it(
    signed: bool, cluster: SandboxCluster, broker: Kafka, writer: LedgerWriter, new_root: Callable[[], Path]
) -> None:
    root, name = new_root(), f"garbage{int(signed)}"
    root.mkdir(parents=True, exist_ok=True)
    (root / "key").write_text("k" * 32)
    journal: dict[str, object] = {"bootstrap": broker.bootstrap, "replication": 1}
    journal |= {"key_file": str(root / "key")} if signed else {}
    bootstrap = {"bootstrap": broker.bootstrap, "bit": 0}
    sections: dict[str, dict[str, object]] = {
        "cluster": {"name": name},
        "journal": journal,
        "deletion": {"owners": "pulsar"},
        "kafka": {"east": bootstrap},
        "logdirs": {"east": {}},
    }
    least = len(TOPICS) * len(BROKEN)
    with Trueup(cluster, root, **sections) as trueup:
        trueup.start()
        trueup.set("placement.mode", "approve")
        spoil(broker, name, 1)
        trueup.wait("the garbage to be found", lambda _: found(trueup) >= least)
        ledger = writer.write(2, 2, 2, 5)
        trueup.wait("a new ledger to be judged", lambda status: status["ledgers"] >= 1)
        assert trueup.api("status")["ready"], trueup.diagnostics()
        assert {stream["restarts"] for stream in trueup.api("status")["streams"]} == {0}, trueup.diagnostics()
        trueup.end()
        spoil(broker, name, 2)
        trueup.start()
        trueup.wait("the garbage of before the start to be found", lambda _: found(trueup) >= 2 * least)
        assert any(NOT_READABLE in problem for problem in trueup.api("status")["problems"])
        doctor = command("doctor", "-c", str(trueup.file))
        assert "not readable" in doctor.out + doctor.err
        trueup.end()
        listed = command("journal", "repair", "-c", str(trueup.file))
        assert (listed.code, listed.out.count("the key is deleted") >= 2 * least) == (3, True), listed
        done = command("journal", "repair", "-c", str(trueup.file), "--yes")
        assert (done.code, done.out.splitlines()[-1][:9]) == (0, "Repaired:"), done
        trueup.start()
        trueup.wait("nothing to be found", lambda _: found(trueup) == 0)
        status = trueup.api("status")
        assert (status["mode"], [p for p in status["problems"] if NOT_READABLE in p]) == ("approve", [])
        assert trueup.json("describe", "ledger", str(ledger))
        trueup.end()
