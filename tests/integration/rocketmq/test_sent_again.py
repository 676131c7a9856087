"""Copies that an application sends again with all their properties are its own messages: RocketMQ's Java client sends
them, and its brokers move them for retries. No link takes them for what it wrote."""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from py4j.protocol import Py4JJavaError

from tests.conformance.harness import contents, numbered
from tests.conformance.kafka import KafkaCluster
from tests.conformance.memory import pump
from tests.conformance.rocketmq import MAIN, USER, RocketMqCluster, RocketMqPair
from tests.integration.rocketmq.java_client import passes
from tests.integration.rocketmq.test_between_systems import end_of
from tests.integration.rocketmq.test_copies import copied
from tests.replication.pair import Copy, Pair
from trueup.connectors.contract import Assignment, Lease, LogId, Position
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.replication.headers import MARK
from trueup.connectors.rocketmq.client import messages, topics
from trueup.connectors.rocketmq.protocol import properties
from trueup.connectors.rocketmq.replication.records.columns import DecodedMessages, Decoder
from trueup.sandbox.gateway import Gateway
from trueup.sandbox.servers.rocketmq import SET
from trueup.state.replication.provenance import HEADER, Refill

pytestmark = pytest.mark.servers
COUNT, GROUP = 40, "forwarder"
TOPIC, OTHER, FRESH = "sent-again", "sent-to-another-topic", "sent-before-the-first-copy"
LAKE = "from-kafka"
RETRY, DEAD = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"


class Application:
    """A consumer and producer of RocketMQ's Java client at one cluster."""

    def __init__(self, root: Path, cluster: RocketMqCluster) -> None:
        self._gateway = Gateway("forwarder", root, SET)
        self._gateway.java.java.lang.System.setProperty("user.home", str(root))
        self._rocketmq = rocketmq = self._gateway.java.org.apache.rocketmq
        hook = rocketmq.acl.common.AclClientRPCHook(rocketmq.acl.common.SessionCredentials(*USER))
        self._consumer = rocketmq.client.consumer.DefaultMQPullConsumer(GROUP, hook)
        self._producer = rocketmq.client.producer.DefaultMQProducer(GROUP, hook)
        for each in (self._consumer, self._producer):
            each.setNamesrvAddr(cluster.endpoint().address)
            each.start()

    def queue(self, topic: str) -> Any:
        """The first queue of a topic."""
        return self._rocketmq.common.message.MessageQueue(topic, MAIN, 0)

    def read(self, topic: str, count: int) -> list[Any]:
        """The first messages of a queue."""
        found = list[Any]()

        def all_read() -> bool:
            try:
                pulled = self._consumer.pull(self.queue(topic), "*", len(found), count - len(found))
            except Py4JJavaError as error:
                if not passes(error):
                    raise
                return False
            found.extend(pulled.getMsgFoundList() or ())
            return len(found) >= count

        wait_until(all_read, 180.0, f"{count} messages of {topic}")
        return found

    def send(self, topic: str, some: Sequence[Any], body: str = "") -> None:
        """Send messages with all properties that they have; with this body, if it is given."""
        for old in some:
            new = self._rocketmq.common.message.Message(topic, body.encode() if body else old.getBody())
            self._rocketmq.common.message.MessageAccessor.setProperties(new, old.getProperties())
            self._producer.send(new, self.queue(topic))

    def send_itself(self, some: Sequence[Any]) -> None:
        """Send the objects that were received."""
        for old in some:
            self._producer.send(old, self.queue(old.getTopic()))

    def send_back(self, some: Sequence[Any], delay: int) -> None:
        """Have messages delivered again after a delay; negative: make them dead letters."""
        for each in some:
            self._consumer.sendMessageBack(each, delay)

    def close(self) -> None:
        self._gateway.close()


class World(NamedTuple):
    """West and a Kafka cluster are copied to east, where the application sends the copies again."""

    rocketmq: RocketMqPair
    lake: KafkaCluster

    def lease(self, source: str, topic: str, into: str = "", **more: Any) -> Copy:
        here, there = (self.rocketmq.east, self.rocketmq.west)[:: 1 if source == "east" else -1]
        held = Assignment(here.log(topic, 0), there.log(into or topic, 0), Position(), 0, **more)
        lease = Lease(f"from-{source}", here.endpoint(), there.endpoint(), 7, "records", (held,))
        return Copy(pump(), lease, here.end)


@pytest.fixture(scope="module")
def world(rocketmq: RocketMqPair, pair: Pair, new_root: Callable[[], Path]) -> World:
    for cluster in (rocketmq.east, rocketmq.west):
        for topic in (TOPIC, OTHER, FRESH):
            cluster.create(topic, 1)
    topics.put_group(rocketmq.east.client, MAIN, {"groupName": GROUP, "consumeEnable": True})
    rocketmq.west.write(TOPIC, {0: numbered(COUNT)})
    made = World(rocketmq, KafkaCluster("west", pair.west))
    made.lease("west", TOPIC).to_the_end()
    for place in (made.lake, rocketmq.east):
        place.create(LAKE, 1)
    made.lake.write(LAKE, {0: numbered(COUNT)})
    copied(end_of(made.lake), made.lake, rocketmq.east.endpoint(), rocketmq.east, LAKE)
    with closing(Application(new_root(), rocketmq.east)) as application:
        copies = application.read(TOPIC, COUNT)
        application.send_itself(copies)
        application.send(TOPIC, copies)
        application.send(TOPIC, copies, "changed")
        application.send_itself(application.read(LAKE, COUNT))
        for topic in (OTHER, FRESH):
            application.send(topic, copies)
        application.send_back(copies, 1)
        application.send_back(copies, -1)
        for topic in (DEAD, RETRY):
            wait_until(lambda topic=topic: end(rocketmq.east, topic) == COUNT, 180.0, f"{COUNT} messages in {topic}")
            application.send(OTHER, application.read(topic, COUNT))
    # those of the retry topic are delayed once more: they have the property
    wait_until(lambda: end(rocketmq.east, OTHER) == 3 * COUNT, 180.0, f"{3 * COUNT} messages in {OTHER}")
    return made


def end(cluster: RocketMqCluster, topic: str) -> int:
    return messages.offset_of(cluster.client.ask(MAIN, messages.end_offset(LogId(topic, 0, MAIN))))


def found(cluster: RocketMqCluster, topic: str, first: int = 0) -> list[DecodedMessages]:
    """What a reader finds in a queue."""
    log = LogId(topic, 0, MAIN)
    return [Decoder(raw=False).columns(stored, cluster.binding(log)) for stored in cluster.stored(log, first)]


def named(cluster: RocketMqCluster, topic: str, name: str) -> list[str]:
    """The values of a property in all messages of a queue."""
    stored = cluster.stored(cluster.log(topic, 0))
    return [properties.decoded(raw).get(name, "") for some in stored for raw in some.properties]


def test_what_the_application_sends_has_the_properties_of_the_copies(world: World) -> None:
    for name in (HEADER, MARK, "ROCKETMQ_REPLICATOR_SOURCE"):
        values = named(world.rocketmq.east, TOPIC, name)
        assert all(values)
        assert values == values[:COUNT] * 4


def test_messages_sent_again_are_copied_back_and_copies_are_not(world: World) -> None:
    copy = world.lease("east", TOPIC).to_the_end()
    assert (copy.totals["copied"], copy.totals["dropped"], copy.totals["foreign_tags"]) == (3 * COUNT, COUNT, 3 * COUNT)
    west = world.rocketmq.west
    assert named(west, TOPIC, HEADER) == [""] * COUNT + ["east#0"] * 3 * COUNT
    old, new = contents(west.read(TOPIC, 0))[:COUNT], contents(west.read(TOPIC, 0))[COUNT:]
    assert [each.value for each in new] == [each.value for each in old] * 2 + [b"changed"] * COUNT
    sent = [each.timestamp for each in contents(world.rocketmq.east.read(TOPIC, 0))[COUNT:]]
    assert [each.timestamp for each in new] == sent


def test_messages_sent_to_another_topic_are_copied(world: World) -> None:
    """Also those that the application found in the topics of retries and of dead letters."""
    copy = world.lease("east", OTHER).to_the_end()
    assert (copy.totals["copied"], copy.totals["dropped"], copy.totals["foreign_tags"]) == (3 * COUNT, 0, 3 * COUNT)
    assert named(world.rocketmq.west, OTHER, HEADER) == ["east#0"] * 3 * COUNT


def test_messages_sent_again_go_back_to_kafka_and_copies_do_not(world: World) -> None:
    east, lake = world.rocketmq.east, world.lake
    copy = copied(east.endpoint(), east, end_of(lake), lake, LAKE)
    assert (copy.totals["copied"], copy.totals["dropped"], copy.totals["foreign_tags"]) == (COUNT, COUNT, COUNT)
    there = contents(lake.read(LAKE, 0))
    assert [(each.key, each.value) for each in there] == [(each.key, each.value) for each in numbered(COUNT)] * 2


@pytest.mark.parametrize("topic", [RETRY, DEAD])
def test_what_a_broker_moves_for_a_retry_is_no_copy(world: World, topic: str) -> None:
    """Its time of birth stays."""
    copies = found(world.rocketmq.east, TOPIC)[0].columns.stamps[:COUNT]
    for each in found(world.rocketmq.east, topic):
        assert (len(each.foreign), each.columns.stamps) == (COUNT, (copies[0],) * COUNT)
        assert all(HEADER not in dict(headers) for headers in each.columns.headers)


def test_a_mark_that_was_sent_again_is_no_progress(world: World) -> None:
    """A copy into a topic to which the application sent copies of the same source."""
    copy = world.lease("west", TOPIC, into=FRESH).to_the_end()
    there = [each.value for each in contents(world.rocketmq.east.read(FRESH, 0))]
    assert (copy.totals["copied"], copy.totals["skipped"], copy.totals["repeated"]) == (COUNT, 0, 0)
    assert there == [each.value for each in numbered(COUNT)] * 2


def test_a_refill_restores_copies_and_messages_sent_again(world: World) -> None:
    """West lost the topic: it gets its own messages, and those of the application with a path that names only east."""
    into = "refilled"
    world.rocketmq.west.create(into, 1)
    copy = world.lease("east", TOPIC, into=into, refill=Refill(0, 4 * COUNT)).to_the_end()
    assert (copy.totals["copied"], copy.totals["dropped"]) == (4 * COUNT, 0)
    assert named(world.rocketmq.west, into, HEADER) == ["west#1,east#0"] * COUNT + ["east#0"] * 3 * COUNT
