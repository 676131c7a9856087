"""Garbage in every topic of the journal of a real broker: it is found while others write it, and repaired."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.configuration import parse
from tests.garbage import TOPICS, of
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import wait_until
from trueup.streams.journal import repair
from trueup.streams.journal.journal import Journal

pytestmark = pytest.mark.servers
BROKEN = 3
"""Kinds that no topic can read."""
SETTING = {"name": "placement.mode", "value": '"approve"', "at_ms": 5, "by": "ada"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    made = Kafka(tmp_path_factory.mktemp("journal"))
    made.up()
    yield made
    made.kill()
    made.close()


@pytest.mark.parametrize("signed", [False, True])
def test_garbage_is_found_as_it_is_written_and_a_repair_leaves_none(
    broker: Kafka, signed: bool, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("k" * 32)
    key_file = str(tmp_path / "key") if signed else ""
    settings = parse({"cluster": {"name": f"c{signed}", "zookeeper": "127.0.0.1:1"}, "journal": {"key_file": key_file}})

    def journal() -> Journal:
        return Journal(broker.bootstrap, settings.journal, settings.cluster.name)

    made, stop = journal(), threading.Event()
    made.create()
    made.put([("config", b"placement.mode", SETTING), ("config", b"other", None)])
    thread = threading.Thread(target=made.inspect, args=(stop,), daemon=True)
    thread.start()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for what in TOPICS:
        for one in of(what):
            producer.produce(made.topic(what), one.body, one.key)
    producer.produce(made.topic("config"), b"garbage", b"placement.mode")
    assert producer.flush(60) == 0
    wait_until(lambda: len(made.unreadable) >= BROKEN * len(TOPICS) + 1, 120.0, "the garbage to be found")
    stop.set()
    thread.join(30)
    assert not thread.is_alive()
    planned = repair.plan(journal())
    assert [one.before is not None for one in planned if one.bad.key == b"placement.mode"] == [True]
    repair.execute(journal(), planned)
    later = journal()
    assert (repair.find(later), later.newest("config")) == (([], True), {b"placement.mode": SETTING})
