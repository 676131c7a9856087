"""A link in the application, end to end: two Kafka clusters, `trueup run`, SIGKILL, and changes by an operator.

At the start of each test, both links have copied all records and report this.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.e2e.planted import MARK, secret, shown
from tests.e2e.trueup import Trueup
from tests.replication.audit import ends, read
from tests.replication.pair import Pair
from trueup.streams.replication.links.worker import ENVIRONMENT

pytestmark = pytest.mark.servers
PARTITIONS = 2
LEASE_S, SLOW_S = 2, 1.5
NOTICED_S = LEASE_S + SLOW_S + 4.0
"""Time to observe a record, to end a lease that may have copied it without a report, and to exceed the delay."""
END_S = 40.0
"""Ten seconds on a machine with four times the load that it can handle."""


@pytest.fixture(scope="module")
def topics(pair: Pair) -> dict[str, str]:
    """A topic for each link, on both clusters."""
    return {link: pair.topic(PARTITIONS) for link in ("whole", "single", "quiet")}


@pytest.fixture(scope="module")
def trueup(pair: Pair, topics: dict[str, str], new_root: Callable[[], Path]) -> Iterator[Trueup]:
    common = {
        "source": "east",
        "target": "west",
        "lease_s": LEASE_S,
        "mode": "enforce",
        "heartbeat_s": 1,
        "slow_s": SLOW_S,
    }
    links = {
        "whole": {**common, "topics": [topics["whole"]], "copy": "batches"},
        "single": {**common, "topics": [topics["single"]], "copy": "records"},
        "quiet": {"source": "west", "target": "east", "topics": [topics["quiet"], "nowhere"], "lease_s": 2},
    }
    kafka = {
        "east": {"bootstrap": pair.east.bootstrap, "bit": 0, "options": {"sasl.password": secret("kafka")}},
        "west": {"bootstrap": pair.west.bootstrap, "bit": 1, "options": {"ssl.key.password": secret("key")}},
    }
    journal, spark = {"options": {"client.rack": secret("journal")}}, {"conf": {"spark.planted": secret("spark")}}
    with Trueup(None, new_root(), kafka=kafka, links=links, journal=journal, spark=spark) as made:
        made.start()
        yield made


class Stream:
    """Records written to a topic of one cluster, and their copies at the other."""

    def __init__(self, pair: Pair, topic: str, back: bool = False) -> None:
        self.topic = topic
        sides = ("west", "east") if back else ("east", "west")
        self.here, self.there = (pair.site(side, topic, PARTITIONS) for side in sides)
        self._producer = Producer({"bootstrap.servers": self.here.bootstrap, "enable.idempotence": True})
        self._written = 0

    def write(self, records: int) -> None:
        """Write in batches of 100, so that the batches path has batches to copy."""
        for number in range(self._written, self._written + records):
            key = f"{self.here.name}|idempotent|{number}".encode()
            self._producer.produce(self.topic, b"x" * 100, key, number // 100 % PARTITIONS)
            if number % 100 == 99:
                self._producer.flush()
        self._producer.flush()
        self._written += records

    def arrived(self) -> bool:
        """Whether the target has at least as many records as the source."""
        return sum(ends(self.there)) >= sum(ends(self.here))

    def same(self) -> bool:
        """Whether both sides contain the same records in the same order, each once."""
        return read(self.here) == read(self.there) and ends(self.here) == ends(self.there)


@pytest.fixture(scope="module")
def whole(pair: Pair, topics: dict[str, str]) -> Stream:
    return Stream(pair, topics["whole"])


@pytest.fixture(scope="module")
def single(pair: Pair, topics: dict[str, str]) -> Stream:
    return Stream(pair, topics["single"])


@pytest.fixture(params=["whole", "single"])
def stream(request: pytest.FixtureRequest) -> Stream:
    found: Stream = request.getfixturevalue(request.param)
    return found


@pytest.fixture(autouse=True)
def calm(trueup: Trueup, whole: Stream, single: Stream) -> None:
    """Resets the state that the previous test left. A new link reports its lag after its first lease."""
    if not trueup.process.alive:
        trueup.start()
    if link(trueup, "whole")["paused"]:
        trueup.run("link", "resume", "whole")
    for name, stream in (("whole", whole), ("single", single)):
        trueup.until(f"{name} to be at the end", lambda name=name, stream=stream: caught_up(trueup, name, stream))


def link(trueup: Trueup, name: str) -> dict[str, Any]:
    found: dict[str, Any] = trueup.api(f"links/{name}")
    return found


def caught_up(trueup: Trueup, name: str, stream: Stream) -> bool:
    """Whether a link has copied all records and the application has its positions."""
    found = link(trueup, name)
    return found["rounds"] > 0 and found["lag_records"] == 0 and stream.arrived()


def test_what_is_written_arrives(trueup: Trueup, stream: Stream) -> None:
    stream.write(2_000)
    trueup.until("the records to arrive", stream.arrived)
    assert stream.same()


def test_the_link_knows_what_it_copied(trueup: Trueup, whole: Stream) -> None:
    before = link(trueup, "whole")["copied"]
    whole.write(200)
    trueup.until("the count", lambda: link(trueup, "whole")["copied"] == before + 200)
    found = link(trueup, "whole")
    assert (found["lag_records"], [copy["runs"] for copy in found["copies"]]) == (0, [1, 1])


@pytest.mark.parametrize("name", ["whole", "single"])
def test_the_link_knows_what_a_lease_copied_while_it_runs(
    trueup: Trueup, request: pytest.FixtureRequest, name: str
) -> None:
    stream: Stream = request.getfixturevalue(name)

    def known_within_a_lease() -> bool:
        before = link(trueup, name)
        stream.write(100)
        trueup.until("the count", lambda: link(trueup, name)["copied"] >= before["copied"] + 100)
        return bool(link(trueup, name)["rounds"] == before["rounds"])

    trueup.until("a lease that reports before it ends", known_within_a_lease)


def test_its_own_records_are_never_taken_for_those_of_others(trueup: Trueup, whole: Stream) -> None:
    rounds = link(trueup, "whole")["rounds"]
    trueup.until("three more leases", lambda: link(trueup, "whole")["rounds"] >= rounds + 3)
    assert link(trueup, "whole")["foreign"] == 0


def test_workers_keep_the_memory_of_large_buffers(trueup: Trueup) -> None:
    workers = trueup.until("leases that are held", trueup.workers)
    assert [name for worker in workers for name in ENVIRONMENT if worker.environ().get(name) != ENVIRONMENT[name]] == []


def test_a_killed_worker_doubles_and_loses_nothing(trueup: Trueup, stream: Stream) -> None:
    victims = trueup.until("leases that are held", trueup.workers)
    stream.write(500)
    for victim in victims:
        victim.kill()
    stream.write(500)
    trueup.until("the records to arrive", stream.arrived)
    assert stream.same()


@pytest.fixture(scope="module")
def before_the_kill(trueup: Trueup) -> dict[str, Any]:
    """Actions of an earlier run."""
    found: dict[str, Any] = trueup.json("get", "actions", "--limit", "10000")[-1]
    return found


@pytest.mark.usefixtures("before_the_kill")
def test_a_killed_application_doubles_and_loses_nothing(trueup: Trueup, whole: Stream, single: Stream) -> None:
    for stream in (whole, single):
        stream.write(500)
    trueup.kill()
    for stream in (whole, single):
        stream.write(500)
    trueup.start()
    trueup.until("the records to arrive", lambda: whole.arrived() and single.arrived())
    assert (whole.same(), single.same()) == (True, True)


def test_what_was_done_outlives_a_killed_application(trueup: Trueup, before_the_kill: dict[str, Any]) -> None:
    assert before_the_kill in trueup.json("get", "actions", "--limit", "10000")


def test_a_paused_link_copies_nothing_until_it_is_resumed(trueup: Trueup, whole: Stream) -> None:
    assert trueup.run("link", "pause", "whole").out == "whole is paused\n"
    trueup.until("the leases to end", lambda: link(trueup, "whole")["leases"] == 0)
    before = ends(whole.there)
    whole.write(300)
    trueup.until("the records to be missed", lambda: link(trueup, "whole")["lag_records"] == 300)
    assert ends(whole.there) == before
    trueup.run("link", "resume", "whole")
    trueup.until("the records to arrive", whole.arrived)
    assert whole.same()


def test_a_rate_holds_from_the_next_lease_on(trueup: Trueup, whole: Stream) -> None:
    trueup.set("links.whole.records_per_s", 10)
    try:
        rounds = link(trueup, "whole")["rounds"]
        trueup.until("two leases", lambda: link(trueup, "whole")["rounds"] >= rounds + 2)
        whole.write(2_000)
        trueup.until("two more", lambda: link(trueup, "whole")["rounds"] >= rounds + 4)
        assert not whole.arrived()
    finally:
        trueup.run("config", "set", "links.whole.records_per_s", "--default")
    trueup.until("the records to arrive", whole.arrived)


def test_a_link_in_observe_writes_nothing(trueup: Trueup, pair: Pair, topics: dict[str, str]) -> None:
    quiet = Stream(pair, topics["quiet"], back=True)
    quiet.write(200)
    trueup.until("the records to be seen", lambda: link(trueup, "quiet")["lag_records"] == 200)
    assert sum(ends(quiet.there)) == 0


def test_a_reset_is_a_record_and_holds(trueup: Trueup, whole: Stream) -> None:
    before = ends(whole.there)
    result = trueup.json("link", "reset", "whole", "--partition", f"{whole.topic}-0", "--to", "earliest", "--yes")
    assert [row["offset"] for row in result] == [0]
    wanted = before[0] + ends(whole.here)[0]
    trueup.until("all of the partition to be written again", lambda: ends(whole.there)[0] == wanted)
    assert (link(trueup, "whole")["copies"][0]["reset"], ends(whole.there)[1]) == ("earliest", before[1])


def test_a_reset_fills_a_deleted_target_topic(trueup: Trueup, pair: Pair, whole: Stream, single: Stream) -> None:
    streams = {"whole": whole, "single": single}
    topics = [stream.topic for stream in streams.values()]
    admin = AdminClient({"bootstrap.servers": pair.west.bootstrap})  # unreferenced clients cancel requests
    for deleted in admin.delete_topics(topics).values():
        deleted.result(30)

    def excluded(name: str) -> bool:
        """Whether the link stopped because its target topic was replaced."""
        return all("recreated" in copy["error"] for copy in link(trueup, name)["copies"])

    for name, stream in streams.items():
        trueup.until(f"{name} to stop", lambda name=name: excluded(name))
        assert trueup.run("link", "reset", name, "--to", "earliest", "--yes").code == 0
        trueup.until("all records to be there again", stream.arrived)
    rounds = {name: link(trueup, name)["rounds"] for name in streams}
    for name, before in rounds.items():
        trueup.until("two more leases", lambda name=name, before=before: link(trueup, name)["rounds"] >= before + 2)
    stopped = [copy["stopped"] for name in streams for copy in link(trueup, name)["copies"]]
    assert ([stream.same() for stream in streams.values()], any(stopped)) == ([True, True], False)


def test_other_writers_at_the_target_are_reported(trueup: Trueup, single: Stream) -> None:
    other = Producer({"bootstrap.servers": single.there.bootstrap})
    other.produce(single.topic, b"not of the link", partition=0)
    other.flush()
    single.write(200)
    trueup.until("the records to arrive", single.arrived)
    trueup.until("it to be told", lambda: "replication.target-written" in str(trueup.json("get", "actions")))
    assert (link(trueup, "single")["foreign"], link(trueup, "whole")["foreign"]) == (1, 0)


def test_no_secret_is_shown_anywhere(trueup: Trueup) -> None:
    result = trueup.run("config", "set", "kafka.east.options", f'{{"sasl.password": "{secret("live")}"}}')
    assert (shown(trueup), MARK.decode() in result.out + result.err) == (
        {"arguments": [], "files": [], "api": [], "spark": []},
        False,
    )


def test_status_counts_links(trueup: Trueup) -> None:
    result = trueup.run("get", "links").out.splitlines()
    assert [line.split()[0] for line in result] == ["LINK", "whole", "single", "quiet"]


def test_a_killed_jvm_is_replaced_and_links_go_on_copying(trueup: Trueup, whole: Stream, single: Stream) -> None:
    pid, streams = trueup.process.pid, (whole, single)
    wanted = [sum(ends(stream.there)) + 300 for stream in streams]
    trueup.jvm().kill()
    trueup.until("the loss to be told", lambda: trueup.source("spark")["state"] == "down")
    early = trueup.get("readyz")[0], "SIGKILL" in trueup.source("spark")["detail"]
    for stream in streams:
        stream.write(300)
    written_s = time.monotonic()
    with trueup.sampled("links") as seen:
        trueup.until("what was written", lambda: [sum(ends(stream.there)) for stream in streams] >= wanted)
    trueup.wait("readiness", lambda status: status["ready"])
    arrived = [sum(ends(stream.there)) for stream in streams]
    late = {
        row["state"] for at_s, rows in seen for row in rows if row["lag_records"] > 0 and at_s > written_s + NOTICED_S
    }
    assert (*early, trueup.process.pid, arrived, "up" in late) == (503, True, pid, wanted, False)


def test_it_ends_long_before_its_leases_would(trueup: Trueup) -> None:
    for name in ("whole", "single"):
        trueup.set(f"links.{name}.lease_s", 60)
        rounds = link(trueup, name)["rounds"]
        trueup.until("a lease of a minute", lambda name=name, rounds=rounds: link(trueup, name)["rounds"] > rounds)
    begun_s = time.monotonic()
    code = trueup.end()
    assert (code, time.monotonic() - begun_s < END_S) == (0, True), trueup.diagnostics()
