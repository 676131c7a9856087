"""Garbage in every topic of the journal, written by others while Trueup runs and before a start: it is skipped, shown
and removed by a command."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.e2e.trueup import SETTINGS, Trueup, command
from tests.garbage import TOPICS, of
from trueup.connectors.embedded.kafka import Kafka
from trueup.sandbox.cluster import SandboxCluster
from trueup.sandbox.writer import LedgerWriter

pytestmark = [pytest.mark.servers, pytest.mark.release]
BROKEN = ("an empty body", "JSON", "bytes")
NOT_READABLE = "journal record not readable"
TOPIC = "orders"
POSITION = b"east-west/orders-0"
"""The key of the link's position in the journal."""


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


@pytest.fixture(scope="module")
def west(new_root: Callable[[], Path]) -> Iterator[Kafka]:
    made = Kafka(new_root())
    made.up()
    yield made
    made.kill()
    made.close()


def write(broker: Kafka, count: int) -> None:
    """Write records to the topic that the link copies."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number in range(count):
        producer.produce(TOPIC, b"%d" % number)
    assert producer.flush(60) == 0


def spoil(broker: Kafka, cluster: str, round_: int) -> None:
    """Write every kind of garbage into every topic, each with another key in another round; the lengths of the keys
    stay, as some readers choose by them."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for what in TOPICS:
        for one in of(what):
            producer.produce(f"trueup.{cluster}.{what}", one.body, one.key[:-1] + bytes([round_]))
    producer.produce(f"trueup.{cluster}.links", b"garbage", POSITION)
    assert producer.flush(60) == 0


def found(trueup: Trueup) -> int:
    """The number of records that are not readable, as in the metrics."""
    lines = trueup.get("metrics")[1].splitlines()
    return int(float(next(line for line in lines if line.startswith("trueup_journal_unreadable")).rpartition(" ")[2]))


def judged(status: dict[str, Any]) -> int:
    """The number of ledgers with a verdict."""
    return sum(count for verdict, count in status["counts"].items() if verdict != "unknown")


def copied(trueup: Trueup) -> tuple[str, int]:
    """The state of the link, and the end of its copy."""
    row = trueup.api("links/east-west")
    return row["state"], min((copy["offset"] for copy in row["copies"]), default=-1)


@pytest.fixture(params=[False, True], ids=["unsigned", "signed"])
def made(
    request: pytest.FixtureRequest, cluster: SandboxCluster, broker: Kafka, west: Kafka, new_root: Callable[[], Path]
) -> Iterator[Trueup]:
    """An application that reads every topic of its journal at a start."""
    root, signed = new_root(), request.param
    root.mkdir(parents=True, exist_ok=True)
    (root / "key").write_text("k" * 32)
    journal: dict[str, object] = {"bootstrap": broker.bootstrap, "replication": 1}
    journal |= {"key_file": str(root / "key")} if signed else {}
    brokers = {"east": broker, "west": west}
    kafka = {name: {"bootstrap": one.bootstrap, "bit": bit} for bit, (name, one) in enumerate(brokers.items())}
    link = {"source": "east", "target": "west", "topics": [TOPIC], "mode": "enforce", "lease_s": 2, "heartbeat_s": 1}
    sections: dict[str, dict[str, object]] = {
        "cluster": {"name": f"garbage{int(signed)}"},
        "journal": journal,
        "deletion": {"owners": "pulsar"},
        "read_priority": {},
        "kafka": kafka,
        "logdirs": {"east": {}},
        "links": {"east-west": link},
    }
    for one in brokers.values():
        client = AdminClient({"bootstrap.servers": one.bootstrap})
        if TOPIC not in client.list_topics(timeout=30).topics:
            client.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
    with Trueup(cluster, root, **sections) as trueup:
        trueup.start()
        yield trueup


def test_garbage_in_every_topic_ends_nothing_and_a_command_removes_it(
    made: Trueup, broker: Kafka, writer: LedgerWriter
) -> None:
    trueup, least, name = made, len(TOPICS) * len(BROKEN), made.api("status")["cluster"]
    write(broker, 10)
    trueup.until("the copy", lambda: copied(trueup)[0] == "up" and copied(trueup)[1] >= 10)
    trueup.set("placement.mode", "approve")
    spoil(broker, name, 1)
    trueup.wait("the garbage to be found", lambda _: found(trueup) >= least)
    before = judged(trueup.api("status"))
    ledger = writer.write(2, 2, 2, 5)
    trueup.wait("a new ledger to be judged", lambda status: judged(status) > before)
    assert trueup.api("status")["ready"], trueup.diagnostics()
    assert {stream["restarts"] for stream in trueup.api("status")["streams"]} == {0}, trueup.diagnostics()
    trueup.end()
    spoil(broker, name, 2)
    trueup.start()
    trueup.wait("the garbage of before the start to be found", lambda _: found(trueup) >= 2 * least)
    assert any(NOT_READABLE in problem for problem in trueup.api("status")["problems"])
    end = copied(trueup)[1]
    write(broker, 10)
    trueup.until("the copy to continue", lambda: copied(trueup)[0] == "up" and copied(trueup)[1] >= end + 10)
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
