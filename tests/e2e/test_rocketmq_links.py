"""Links between RocketMQ clusters and Kafka in the application, end to end: `trueup run` with a link each way between
two clusters of RocketMQ, one from it to Kafka, and one from Kafka to it. East has one broker and ACL 2.0, west two
brokers and TLS. The Kafka broker also has the journal.

Tests run in this order; the last ones kill servers.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.conformance.rocketmq import KEYS, MAIN, NARROW, USER, RocketMqCluster, RocketMqPair
from tests.conformance.rocketmq import sections as rocketmq_sections
from tests.e2e.trueup import Trueup, command
from tests.integration.rocketmq.test_admin import HEARTBEAT, joining
from tests.replication.pair import QUICK, create
from tests.replication.reading import committed
from trueup.connectors.contract import LogId
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.rocketmq.client import group_offsets, messages, topics
from trueup.connectors.rocketmq.client.connection import RocketMqRequest
from trueup.connectors.rocketmq.protocol import batch, properties

pytestmark = [pytest.mark.servers, pytest.mark.release]
ORDERS, NEW, ASKED, EVENTS = "e2e_orders", "e2e_pay_new", "e2e_pay_asked", "e2e_events"
QUEUES, MORE, GROUP = 4, 6, "e2e-billing"
THERE, BACK, LAKE, EVENT = "east-west", "west-east", "east-lake", "lake-east"
LINKS = (THERE, BACK, LAKE, EVENT)
NARROWED = 2
"""A queue of east whose target is on the second broker of west, which kills concern."""


@dataclass
class World:
    """All clusters and the application between them. Bodies are unique."""

    east: RocketMqCluster
    west: RocketMqCluster
    lake: Kafka
    trueup: Trueup
    written: int = 0

    def link(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.trueup.api(f"links/{name}")
        return found

    def pairs(self, link: str) -> dict[LogId, LogId]:
        """The target of each source log of which a link has copied something."""
        return {
            LogId(row["topic"], row["partition"], row["place"]): LogId(
                row["target_topic"], row["target_partition"], row["target_place"]
            )
            for row in self.link(link)["copies"]
            if row["path"]
        }

    def send(self, cluster: RocketMqCluster, log: LogId, count: int) -> list[bytes]:
        """Send messages to a queue and return their bodies."""
        bodies = [b"%s %d" % (log.topic.encode(), self.written + n) for n in range(count)]
        self.written += count
        props = [properties.encoded({"KEYS": f"k{n}", "TAGS": "t"}) for n in range(count)]
        body = batch.encode(bodies, props, [0] * count)
        cluster.client.ask(log.place, messages.send_batch(log, body, int(time.time() * 1000)))
        return bodies

    def bodies(self, side: str, log: LogId) -> list[bytes]:
        """All bodies of a log, in order."""
        if side == "lake":
            return [message.value() or b"" for message in committed(self.lake.bootstrap, log.topic, [log.number])]
        cluster = self.east if side == "east" else self.west
        return [bytes(body) for stored in cluster.stored(log) for body in stored.bodies]

    def count(self, side: str, topic: str) -> int:
        """The number of logs of a topic; 0 if it does not exist."""
        if side == "lake":
            found = Consumer({"bootstrap.servers": self.lake.bootstrap, "group.id": "look"}).list_topics(timeout=30)
            return len(found.topics[topic].partitions) if topic in found.topics else 0
        cluster = self.east if side == "east" else self.west
        return len(cluster.client.logs(topic)) if topic in cluster.client.topics() else 0

    def arrive(self, link: str, source: LogId, bodies: Sequence[bytes]) -> list[bytes]:
        """Wait until the last of these is at the target of its queue. Returns all bodies there."""
        target = self.trueup.until(f"{source} to be copied", lambda: self.pairs(link).get(source))
        side = self.link(link)["target"]

        def arrived() -> list[bytes] | None:
            found = self.bodies(side, target) if target.number < self.count(side, target.topic) else []
            return found if bodies[-1] in found else None

        found: list[bytes] = self.trueup.until(f"{source} to arrive by {link}", arrived)
        return found

    def offset(self, group: str, log: LogId) -> int | None:
        """The committed offset of a group at west."""
        return group_offsets.offset(self.west.client, group, log)


@pytest.fixture(scope="module")
def lake(new_root: Callable[[], Path]) -> Iterator[Kafka]:
    with Kafka(new_root(), settings=QUICK) as broker:
        broker.start()
        yield broker


@pytest.fixture(scope="module")
def world(lake: Kafka, rocketmq: RocketMqPair, new_root: Callable[[], Path]) -> Iterator[World]:
    east, west = rocketmq.east, rocketmq.west
    common = {"mode": "enforce", "lease_s": 2, "heartbeat_s": 1, "slow_s": 2.5}
    orders = {**common, "topics": [ORDERS, "/e2e_pay_.*/"], "groups": [GROUP]}
    sections: dict[str, dict[str, object]] = {
        "rocketmq": rocketmq_sections(rocketmq),
        "kafka": {"lake": {"bootstrap": lake.bootstrap, "bit": 2}},
        "links": {
            THERE: {"source": "east", "target": "west", **orders},
            BACK: {"source": "west", "target": "east", **orders},
            LAKE: {"source": "east", "target": "lake", **orders},
            EVENT: {"source": "lake", "target": "east", "topics": [EVENTS], **common},
        },
        "journal": {"bootstrap": lake.bootstrap},
    }
    topics.put_topic(east.client, MAIN, topics.RocketMqTopic(ORDERS, QUEUES, QUEUES))
    topics.put_group(east.client, MAIN, {"groupName": GROUP, "retryMaxTimes": 7})
    lake.wait_ready()
    create(lake, EVENTS, 2, {})
    with pytest.MonkeyPatch.context() as patch:
        for name, value in zip(KEYS.values(), USER, strict=True):
            patch.setenv(name, value)
        with Trueup(None, new_root(), **sections) as trueup:
            trueup.start()
            yield World(east, west, lake, trueup)


def east(queue: int, topic: str = ORDERS) -> LogId:
    return LogId(topic, queue, MAIN)


def test_a_topic_is_created_with_the_queues_of_its_source(world: World) -> None:
    def counts() -> list[int]:
        return [world.count(side, ORDERS) for side in ("west", "lake")]

    # A route appears broker by broker.
    assert world.trueup.until("all queues of the topics", lambda: counts() == [QUEUES, QUEUES])


@pytest.mark.parametrize("link", [THERE, LAKE])
def test_messages_arrive_once_and_in_the_order_of_their_queue(world: World, link: str) -> None:
    sent = {queue: [world.send(world.east, east(queue), 100) for _ in range(3)][-1] for queue in range(QUEUES)}
    found = {queue: world.arrive(link, east(queue), bodies) for queue, bodies in sent.items()}
    assert found == {queue: world.bodies("east", east(queue)) for queue in range(QUEUES)}


def test_records_of_kafka_become_messages(world: World) -> None:
    producer = Producer({"bootstrap.servers": world.lake.bootstrap})
    for number in range(50):
        producer.produce(EVENTS, b"event %d" % number, b"key", number % 2)
    assert producer.flush(60) == 0
    wanted = {n: [b"event %d" % each for each in range(n, 50, 2)] for n in range(2)}
    assert {n: world.arrive(EVENT, LogId(EVENTS, n), wanted[n]) for n in range(2)} == wanted


def test_a_copy_goes_to_the_declared_target_and_never_back_into_the_source(world: World) -> None:
    before = len(world.bodies("east", east(0)))
    there = world.arrive(THERE, east(0), world.send(world.east, east(0), 10))

    def passed() -> bool:
        rows = world.link(BACK)["copies"]
        return any((row["topic"], row["target_partition"], row["offset"]) == (ORDERS, 0, len(there)) for row in rows)

    world.trueup.until("the other link to pass them", passed)
    assert (len(world.bodies("east", east(0))), world.link(BACK)["copied"]) == (before + 10, 0)


def skewed(world: World) -> tuple[LogId, list[bytes], list[bytes]]:
    """A queue of west whose offsets differ from those of its source, and the bodies of both."""
    target = world.pairs(THERE)[east(1)]
    for _ in range(10):  # both sides must be written before the links copy
        west, own = world.send(world.west, target, 7), world.send(world.east, east(1), 20)
        here, there = world.arrive(BACK, target, west), world.arrive(THERE, east(1), own)
        if here.index(own[-1]) != there.index(own[-1]):
            break
    return target, world.bodies("east", east(1)), there


def commit(world: World, here: Sequence[bytes], at: int) -> int:
    """Commit the place before a message at east. Returns its offset there."""
    offset = len(here) + at
    group_offsets.commit(world.east.client, GROUP, east(1), offset)
    return offset


def test_offsets_of_a_group_are_translated_and_not_copied(world: World) -> None:
    group_offsets.commit(world.east.client, GROUP, east(1), 1)
    target, here, there = skewed(world)
    committed_at = commit(world, here, -5)
    wanted = there.index(here[committed_at])
    world.trueup.until("the offset at west", lambda: world.offset(GROUP, target) == wanted)
    settings = topics.groups(world.west.client, MAIN)[GROUP]
    assert (committed_at != wanted, settings["retryMaxTimes"]) == (True, 7)


def test_a_group_goes_on_in_kafka_with_the_message_that_it_would_have_read_next(world: World) -> None:
    here, partition = world.bodies("east", east(1)), world.pairs(LAKE)[east(1)].number
    at = group_offsets.offset(world.east.client, GROUP, east(1)) or 0
    world.arrive(LAKE, east(1), here)
    wanted = world.bodies("lake", LogId(ORDERS, partition)).index(here[at])
    consumer = Consumer({"bootstrap.servers": world.lake.bootstrap, "group.id": GROUP})
    place = TopicPartition(ORDERS, partition)
    try:
        world.trueup.until("its offset", lambda: consumer.committed([place], 30)[0].offset == wanted)
    finally:
        consumer.close()


def test_a_group_with_members_at_the_target_is_left_alone_until_they_leave(world: World) -> None:
    target, here = world.pairs(THERE)[east(1)], world.bodies("east", east(1))
    there, before = world.bodies("west", target), world.offset(GROUP, target)

    def active() -> bool:
        rows = world.link(THERE)["checkpoints"]
        return any((row["target"], row["action"]) == (str(target), "active") for row in rows)

    with world.west.client.connect(NARROW) as member:
        member.ask(RocketMqRequest(HEARTBEAT, "join a group", {}, json.dumps(joining(GROUP)).encode()))  # type: ignore[arg-type]
        wanted = there.index(here[commit(world, here, -2)])
        world.trueup.until("the members to be seen", active)
        assert world.offset(GROUP, target) == before
    world.trueup.until("the offset once they left", lambda: world.offset(GROUP, target) == wanted)


def test_settings_of_a_group_follow_the_cluster_where_it_runs(world: World) -> None:
    def settings(cluster: RocketMqCluster, broker: str) -> tuple[object, object]:
        found = topics.groups(cluster.client, broker)[GROUP]
        return found["retryMaxTimes"], found["consumeEnable"]

    for broker in (MAIN, NARROW):
        topics.put_group(world.west.client, broker, {"groupName": GROUP, "retryMaxTimes": 5, "consumeEnable": False})
    with world.east.client.connect(MAIN) as member:
        member.ask(RocketMqRequest(HEARTBEAT, "join a group", {}, json.dumps(joining(GROUP)).encode()))  # type: ignore[arg-type]
        wanted = {(7, False)}
        world.trueup.until("them", lambda: {settings(world.west, broker) for broker in (MAIN, NARROW)} == wanted)
    assert settings(world.east, MAIN) == (7, True)


def test_a_group_that_read_on_at_the_target_goes_back_to_where_it_is(world: World) -> None:
    target, here = world.pairs(THERE)[east(1)], world.bodies("east", east(1))
    group_offsets.commit(world.west.client, GROUP, target, len(world.bodies("west", target)))

    def back() -> bool:
        return group_offsets.offset(world.east.client, GROUP, east(1)) == len(here)

    world.trueup.until("the offset at east", back)


def test_a_new_topic_is_found(world: World) -> None:
    topics.put_topic(world.east.client, MAIN, topics.RocketMqTopic(NEW, 2, 2))
    sent = world.send(world.east, east(1, NEW), 10)
    assert [world.arrive(link, east(1, NEW), sent) for link in (THERE, LAKE)] == [sent, sent]


def test_added_queues_are_found(world: World) -> None:
    topics.put_topic(world.east.client, MAIN, topics.RocketMqTopic(ORDERS, MORE, MORE))
    sent = world.send(world.east, east(MORE - 1), 10)
    found = [world.arrive(link, east(MORE - 1), sent) for link in (THERE, LAKE)]
    assert (found, [world.count(side, ORDERS) for side in ("west", "lake")]) == ([sent, sent], [MORE, MORE])


def test_links_are_listed_and_up(world: World) -> None:
    def up() -> list[str]:
        return [row["link"] for row in world.trueup.json("get", "links") if row["state"] == "up"]

    world.trueup.until("all links to be up", lambda: len(up()) == len(LINKS))
    assert up() == [*LINKS]


def test_a_queue_is_shown_with_its_broker(world: World) -> None:
    target = world.pairs(THERE)[east(NARROWED)]
    shown = world.trueup.run("describe", "link", THERE).out
    assert (target.place, f"{ORDERS}@{NARROW}-{target.number}" in shown) == (NARROW, True), shown


def test_a_queue_is_reset_by_its_name(world: World) -> None:
    end = len(world.bodies("east", east(3)))
    (row,) = world.trueup.json("link", "reset", LAKE, "--partition", str(east(3)), "--to", "latest", "--yes")
    assert (row["partition"], row["offset"]) == (f"{ORDERS}@{MAIN}-3", end)


def test_in_approve_a_topic_waits_in_the_plan(world: World) -> None:
    def waiting() -> list[str]:
        rows = world.trueup.json("plan")
        return [row["id"] for row in rows if (row["topic"], row["stage"]) == (ASKED, "awaiting approval")]

    world.trueup.set(f"links.{THERE}.mode", "approve")
    try:
        topics.put_topic(world.east.client, MAIN, topics.RocketMqTopic(ASKED, 1, 1))
        ids = world.trueup.until("the topic to be asked for", waiting)
        before = world.count("west", ASKED)
        assert world.trueup.run("approve", *ids).code == 0
        world.trueup.until("the topic", lambda: world.count("west", ASKED))
    finally:
        world.trueup.set(f"links.{THERE}.mode", "enforce")
    assert before == 0


def test_a_paused_link_copies_nothing_until_it_is_resumed(world: World) -> None:
    world.trueup.run("link", "pause", THERE)
    world.trueup.until("the leases to end", lambda: world.link(THERE)["leases"] == 0)
    before = world.bodies("west", world.pairs(THERE)[east(0)])
    sent = world.send(world.east, east(0), 30)
    world.trueup.until("the messages to be missed", lambda: world.link(THERE)["lag_records"] == 30)
    meanwhile = world.bodies("west", world.pairs(THERE)[east(0)])
    world.trueup.run("link", "resume", THERE)
    assert (meanwhile, world.arrive(THERE, east(0), sent)) == (before, [*before, *sent])


@pytest.mark.parametrize("link", LINKS)
def test_heartbeats_arrive_and_their_lag_is_shown(world: World, link: str) -> None:
    found = world.trueup.until("a heartbeat", lambda: beaten(world.link(link)))
    assert (0 <= found["heartbeat_lag_ms"] < 60_000, found["heartbeat_error"]) == (True, "")


def beaten(found: dict[str, Any]) -> dict[str, Any] | None:
    return found if found["heartbeat_lag_ms"] >= 0 else None


@pytest.mark.parametrize("link", LINKS)
def test_a_link_has_its_metrics(world: World, link: str) -> None:
    metric = world.trueup.metric
    copied = metric("trueup_link_records_total", link=link, outcome="copied")
    shown = world.trueup.get("metrics")[1].splitlines()  # all states at one time
    states = sum(f'link="{link}"' in line and line.endswith(" 1.0") for line in shown if "trueup_link_state{" in line)
    lags = [metric(f"trueup_link_{name}", link=link) for name in ("lag_records", "heartbeat_lag_seconds")]
    assert (copied > 0, states, all(lag >= 0 for lag in lags)) == (True, 1, True)


def test_doctor_looks_at_every_cluster_and_link(world: World) -> None:
    rows = json.loads(command("doctor", "-c", str(world.trueup.file), "--skip-spark", "-o", "json").out)
    found = {row["name"]: (row["status"], row["found"]) for row in rows}
    wanted = ["rocketmq.east", "rocketmq.west", "kafka.lake", *(f"links.{link}" for link in LINKS)]
    assert [name for name in wanted if found[name][0] != "ok"] == [], found
    notes = found["rocketmq.east"][1], found["rocketmq.west"][1]
    assert ["ACL 2.0" in notes[0], "no ACL" in notes[1], "heartbeats in" in notes[0]] == [True] * 3, notes


@dataclass
class Outage:
    """``here`` and ``there``: bodies of the queue of east and of its target. ``late``: rows of the link to west while
    messages waited for its broker; ``down``: states of the links of east without its broker."""

    late: list[dict[str, Any]]
    down: dict[str, str]
    here: list[bytes]
    there: list[bytes]


@pytest.fixture(scope="module")
def outage(world: World) -> Outage:
    """The second broker of west is killed, then that of east and the application; all return."""
    trueup, log = world.trueup, east(NARROWED)
    world.west.kill_one(NARROW)
    world.send(world.east, log, 100)

    def behind() -> dict[str, Any] | None:
        row = world.link(THERE)
        return row if row["state"] not in ("up", "starting", "catching-up") and row["lag_records"] > 0 else None

    late = [trueup.until("the state of the link and how far it is behind", behind)]
    world.east.kill()
    down = {}
    for link in (THERE, BACK, LAKE):
        trueup.until(f"{link} to be down", lambda link=link: world.link(link)["state"] == "down")
        down[link] = world.link(link)["state"]
    trueup.kill()
    world.west.up()
    world.east.up()
    trueup.start()
    there = world.arrive(THERE, log, world.send(world.east, log, 100))
    return Outage(late, down, world.bodies("east", log), there)


def test_a_failed_link_is_not_shown_as_running(outage: Outage) -> None:
    [row] = outage.late
    assert (row["state"], NARROW in row["error"] + row["reason"]) == ("slow", True), row


def test_a_link_without_its_cluster_is_down(outage: Outage) -> None:
    assert outage.down == dict.fromkeys((THERE, BACK, LAKE), "down")


def test_nothing_is_lost_or_doubled_when_brokers_and_the_application_are_killed(outage: Outage) -> None:
    assert outage.there == outage.here


def test_links_are_up_again_after_an_outage(world: World, outage: Outage) -> None:
    assert outage.here
    world.trueup.until("all links to be up", lambda: {world.link(link)["state"] for link in LINKS} == {"up"})
