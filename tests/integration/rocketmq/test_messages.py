"""Messages and offsets on a real broker, without and with a Java client at the other end."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from tests.integration.rocketmq import administration
from tests.integration.rocketmq.clusters import BORN_MS, Cluster, read, running, wait_for_end
from tests.integration.rocketmq.java_client import passes
from tests.proxy import Proxy
from trueup.connectors.contract import LogId
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.rocketmq.client import group_offsets, messages, rights, topics
from trueup.connectors.rocketmq.client.cluster import RocketMqClient
from trueup.connectors.rocketmq.client.codes import NoGroup, NoRoute
from trueup.connectors.rocketmq.client.connection import ConnectionOptions, RocketMqConnection
from trueup.connectors.rocketmq.protocol import batch, properties
from trueup.connectors.rocketmq.protocol.compression import LZ4, ZLIB, ZSTD, closed, opened
from trueup.connectors.rocketmq.protocol.flags import COMMITTED
from trueup.sandbox.gateway import Gateway
from trueup.sandbox.servers.rocketmq import SET
from trueup.state.common.errors import BadBytes, Retry, Stop, Unknown

pytestmark = pytest.mark.servers
BODY = bytes(range(256)) * 4
PROPERTIES = {"KEYS": "k1 k2", "TAGS": "tagA", "own": "ü€𝄞", "UNIQ_KEY": "7F00", "__SHARDINGKEY": "fifo", "eq": "a=b;c"}
BROKER = "broker-a"


@pytest.fixture(scope="module")
def cluster(new_root: Callable[[], Path]) -> Iterator[Cluster]:
    with running(new_root) as started:
        yield started


@pytest.fixture(scope="module")
def connection(cluster: Cluster) -> Iterator[RocketMqConnection]:
    with cluster.client.connect(BROKER) as made:
        yield made


@pytest.fixture
def log(cluster: Cluster, request: pytest.FixtureRequest) -> LogId:
    """A queue that no other test uses."""
    return cluster.new_topic("".join(c if c.isalnum() else "-" for c in request.node.name)[:100])[0]


@pytest.fixture(scope="module")
def java(new_root: Callable[[], Path]) -> Iterator[Any]:
    """RocketMQ's classes in a JVM, with its logs in its own directory."""
    root = new_root()
    gateway = Gateway("java", root, SET)
    gateway.java.java.lang.System.setProperty("user.home", str(root))
    yield gateway.java
    gateway.close()


def send(connection: RocketMqConnection, request: messages.RocketMqRequest) -> messages.SendResult:
    return messages.sent(connection.ask(request))


def send_texts(connection: RocketMqConnection, log: LogId, count: int) -> messages.SendResult:
    body = batch.encode([b"%d" % n for n in range(count)], [b""] * count, [0] * count)
    place = send(connection, messages.send_batch(log, body, BORN_MS))
    wait_for_end(connection, log, place.offset + count)
    return place


def test_a_message_comes_back_with_everything_that_it_had(connection: RocketMqConnection, log: LogId) -> None:
    place = send(connection, messages.send(log, BODY, BORN_MS, properties.encoded(PROPERTIES), 7))
    wait_for_end(connection, log, 1)
    found = read(connection, log, place.offset)
    kept = properties.decoded(found.properties[0])
    assert (bytes(found.bodies[0]), found.born[0], found.flags[0]) == (BODY, BORN_MS, 7)
    assert {name: kept[name] for name in PROPERTIES} == PROPERTIES
    assert (found.message_id(0),) == place.message_ids


def test_a_batch_is_stored_in_order_with_properties_byte_for_byte(connection: RocketMqConnection, log: LogId) -> None:
    bodies = [b"%d\x00\xff" % n for n in range(4)] + [b""]
    props = [b"n\x01%d\x02TAGS\x01t\x02" % n for n in range(4)] + [b""]
    place = send(connection, messages.send_batch(log, batch.encode(bodies, props, [*range(5)]), BORN_MS))
    wait_for_end(connection, log, 5)
    found = read(connection, log, 0)
    assert [*map(bytes, found.bodies)] == bodies
    assert [*map(bytes, found.properties)] == props
    assert ([*found.flags], [*found.offsets]) == ([*range(5)], [*range(place.offset, place.offset + 5)])
    assert tuple(found.message_id(row) for row in range(5)) == place.message_ids


@pytest.mark.parametrize("kind", [LZ4, ZSTD, ZLIB])
def test_a_compressed_body_stays_as_it_is(connection: RocketMqConnection, log: LogId, kind: int) -> None:
    raw, sys = closed(BODY, kind)
    send(connection, messages.send(log, raw, BORN_MS, sys=sys))
    wait_for_end(connection, log, 1)
    found = read(connection, log, 0)
    assert (bytes(found.bodies[0]), found.sys[0]) == (raw, sys)
    assert bytes(opened(found.bodies[0], int(found.sys[0]), "here")) == BODY


def test_a_delayed_message_keeps_the_marks_of_its_delay(connection: RocketMqConnection, log: LogId) -> None:
    send(connection, messages.send(log, b"later", BORN_MS, properties.encoded({"DELAY": "1"})))
    wait_for_end(connection, log, 1)
    found = properties.decoded(read(connection, log, 0).properties[0])
    assert (found["DELAY"], found["REAL_TOPIC"], found["REAL_QID"]) == ("1", log.topic, "0")


def test_a_transactional_message_appears_when_it_is_committed(connection: RocketMqConnection, log: LogId) -> None:
    marks = {"TRAN_MSG": "true", "PGROUP": "p", "UNIQ_KEY": "0A0B"}
    half = send(connection, messages.send(log, b"paid", BORN_MS, properties.encoded(marks)))
    before = messages.offset_of(connection.ask(messages.end_offset(log)))
    connection.ask(messages.end_transaction(half, "p", "0A0B"))
    wait_for_end(connection, log, 1)
    found = read(connection, log, 0)
    assert (before, bytes(found.bodies[0]), found.sys[0]) == (0, b"paid", COMMITTED)


def test_a_pull_tells_where_the_queue_starts_and_ends(connection: RocketMqConnection, log: LogId) -> None:
    send_texts(connection, log, 5)
    asked = [messages.pulled(connection.ask(messages.pull(log, offset, 2))) for offset in (0, 5, 99, -7)]
    assert [(len(p.messages or ()), p.next, p.start, p.end, p.moved) for p in asked] == [
        (2, 2, 0, 5, False),
        (0, 5, 0, 5, False),
        (0, 5, 0, 5, True),
        (0, 0, 0, 5, True),
    ]


def test_a_pull_waits_for_the_next_message(cluster: Cluster, connection: RocketMqConnection, log: LogId) -> None:
    with cluster.client.connect(BROKER) as reader:
        flight = reader.submit(messages.pull(log, 0, 10, wait_s=30.0))
        early = reader.arrived(flight)
        send_texts(connection, log, 1)
        found = messages.pulled(reader.wait(flight))
    assert (early, len(found.messages or ())) == (False, 1)


def test_offsets_are_found_by_place_and_time(connection: RocketMqConnection, log: LogId) -> None:
    send_texts(connection, log, 3)
    stored = int(read(connection, log, 0).stored[0])
    asked = [
        messages.first_offset(log),
        messages.end_offset(log),
        messages.offset_at(log, stored),
        messages.offset_at(log, stored + 60_000),
    ]
    assert [messages.offset_of(connection.ask(each)) for each in asked] == [0, 3, 0, 3]


def test_pulls_in_flight_together_find_their_responses(connection: RocketMqConnection, log: LogId) -> None:
    send_texts(connection, log, 60)
    flights = [connection.submit(messages.pull(log, offset, 1)) for offset in range(60)]
    found = [messages.pulled(connection.wait(flight)).messages for flight in reversed(flights)]
    assert [bytes(each.bodies[0]) for each in found if each] == [b"%d" % n for n in reversed(range(60))]


def test_an_empty_body_and_one_that_is_too_large_are_refused(connection: RocketMqConnection, log: LogId) -> None:
    for body in (b"", bytes((4 << 20) + 1)):
        with pytest.raises(Stop):
            send(connection, messages.send(log, body, BORN_MS))


def test_a_queue_that_does_not_exist_is_refused(connection: RocketMqConnection, log: LogId) -> None:
    with pytest.raises(Stop, match="29 INVALID"):
        connection.ask(messages.pull(log._replace(number=9), 0, 1))


def test_a_lost_acknowledgement_leaves_a_stored_message_unknown(
    cluster: Cluster, connection: RocketMqConnection, log: LogId
) -> None:
    with (
        Proxy(cluster.brokers[BROKER].address) as proxy,
        RocketMqConnection(proxy.address, ConnectionOptions(timeout_s=1.0)) as second,
    ):
        proxy.deaf = True
        with pytest.raises(Unknown):
            second.ask(messages.send(log, b"stored", BORN_MS))
    wait_for_end(connection, log, 1)
    assert bytes(read(connection, log, 0).bodies[0]) == b"stored"


@pytest.mark.parametrize("length", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x00\x00\x00\x01"])
def test_a_length_that_cannot_be_costs_the_connection(cluster: Cluster, log: LogId, length: bytes) -> None:
    with (
        Proxy(cluster.brokers[BROKER].address) as proxy,
        RocketMqConnection(proxy.address, ConnectionOptions()) as connection,
    ):
        proxy.change = lambda way, data: length + data[4:] if way == "said" else data
        with pytest.raises(BadBytes):
            connection.ask(messages.pull(log, 0, 1))
        assert connection.lost


def test_a_length_that_is_too_long_ends_with_the_time_out(cluster: Cluster, log: LogId) -> None:
    with (
        Proxy(cluster.brokers[BROKER].address) as proxy,
        RocketMqConnection(proxy.address, ConnectionOptions(timeout_s=1.0)) as connection,
    ):
        proxy.change = lambda way, data: b"\x03\xff\xff\xff" + data[4:] if way == "said" else data
        with pytest.raises(Retry, match="in time"):
            connection.ask(messages.pull(log, 0, 1))


def test_a_topic_is_created_changed_read_and_deleted(cluster: Cluster) -> None:
    client = cluster.client
    wanted = topics.RocketMqTopic("changing", 2, 2, attributes={"message.type": "FIFO"})
    topics.put_topic(client, BROKER, wanted)
    grown = topics.RocketMqTopic("changing", 4, 4, ordered=True)
    topics.put_topic(client, BROKER, grown)
    found = topics.topic(client, BROKER, "changing")
    listed = topics.topics(client, BROKER)["changing"]
    administration.drop_topic(client, "changing")
    administration.drop_topic(client, "changing")
    assert found == listed == topics.RocketMqTopic("changing", 4, 4, ordered=True, attributes={"message.type": "FIFO"})
    assert topics.topic(client, BROKER, "changing") is None
    with pytest.raises(NoRoute):
        client.route("changing")


def test_a_name_with_a_dot_is_refused(cluster: Cluster) -> None:
    with pytest.raises(Stop, match=r"primary\.orders"):
        topics.put_topic(cluster.client, BROKER, topics.RocketMqTopic("primary.orders", 1, 1))


def test_a_group_is_copied_with_its_settings(cluster: Cluster) -> None:
    client = cluster.client
    topics.put_group(client, BROKER, {"groupName": "billing", "retryQueueNums": 3, "retryMaxTimes": 5})
    found = topics.groups(client, BROKER)["billing"]
    topics.put_group(client, BROKER, {**found, "groupName": "billing-2"})
    assert topics.groups(client, BROKER)["billing-2"] == {**found, "groupName": "billing-2"}
    assert (found["retryQueueNums"], found["retryMaxTimes"]) == (3, 5)
    administration.drop_group(client, BROKER, "billing")
    assert "billing" not in topics.groups(client, BROKER)


def test_offsets_of_a_group_are_committed_and_read(
    cluster: Cluster, connection: RocketMqConnection, log: LogId
) -> None:
    client, group = cluster.client, "committing"
    send_texts(connection, log, 3)
    with pytest.raises(NoGroup):
        group_offsets.commit(client, group, log, 2)
    topics.put_group(client, BROKER, {"groupName": group})
    before = group_offsets.offset(client, group, log)
    group_offsets.commit(client, group, log, 2)
    assert (before, group_offsets.offset(client, group, log)) == (None, 2)


def test_settings_change_at_run_time(cluster: Cluster) -> None:
    administration.put_settings(cluster.client, BROKER, {"maxTransferCountOnMessageInMemory": 512})
    assert topics.settings(cluster.client, BROKER)["maxTransferCountOnMessageInMemory"] == "512"


def test_the_figures_of_a_broker_name_its_version(cluster: Cluster) -> None:
    assert topics.runtime(cluster.client, BROKER)["brokerVersionDesc"] == "V5_5_0"


def test_a_cluster_without_acl_says_so(cluster: Cluster) -> None:
    for read_them in (rights.users, rights.rights):
        with pytest.raises(rights.NoRights, match="no ACL"):
            read_them(cluster.client, BROKER)


def is_at_begin(consumer: Any, queue: Any) -> bool:
    """Move a Java consumer to the begin of a queue."""
    try:
        consumer.seekToBegin(queue)
    except Py4JJavaError as error:
        if not passes(error):
            raise
        return False
    return True


def test_java_reads_what_was_written_here(
    cluster: Cluster, connection: RocketMqConnection, log: LogId, java: Any
) -> None:
    raw, sys = closed(BODY, ZSTD)
    send(connection, messages.send(log, raw, BORN_MS, properties.encoded(PROPERTIES), sys=sys))
    bodies, props = [b"one", BODY], [properties.encoded({"TAGS": "t", "own": "ü"}), b""]
    send(connection, messages.send_batch(log, batch.encode(bodies, props, [1, 2]), BORN_MS))
    wait_for_end(connection, log, 3)
    consumer = java.org.apache.rocketmq.client.consumer.DefaultLitePullConsumer("java-reader")
    consumer.setNamesrvAddr(cluster.name_servers[0].address)
    consumer.start()
    try:
        queue = java.org.apache.rocketmq.common.message.MessageQueue(log.topic, BROKER, 0)
        consumer.assign([queue])
        wait_until(lambda: is_at_begin(consumer, queue), 180.0, "the client's route to the broker")
        found: list[Any] = []
        wait_until(lambda: found.extend(consumer.poll(500)) or len(found) >= 3, 180.0, "three messages")
    finally:
        consumer.shutdown()
    assert [each.getBody() for each in found] == [BODY, b"one", BODY]
    assert {name: found[0].getProperty(name) for name in PROPERTIES} == PROPERTIES
    assert (found[1].getTags(), found[1].getProperty("own"), found[2].getFlag()) == ("t", "ü", 2)


def test_what_java_writes_is_read_here(cluster: Cluster, connection: RocketMqConnection, log: LogId, java: Any) -> None:
    producer = java.org.apache.rocketmq.client.producer.DefaultMQProducer("java-writer")
    producer.setNamesrvAddr(cluster.name_servers[0].address)
    producer.setCompressMsgBodyOverHowmuch(1_000)
    producer.start()
    try:
        queue = java.org.apache.rocketmq.common.message.MessageQueue(log.topic, BROKER, 0)
        message = java.org.apache.rocketmq.common.message.Message(log.topic, "tagA", "k1 k2", BODY * 4)
        message.putUserProperty("own", "ü€")
        told = producer.send(message, queue)
    finally:
        producer.shutdown()
    wait_for_end(connection, log, 1)
    found = read(connection, log, told.getQueueOffset())
    kept = properties.decoded(found.properties[0])
    assert bytes(opened(found.bodies[0], int(found.sys[0]), "here")) == BODY * 4
    assert (kept["TAGS"], kept["KEYS"], kept["own"], kept["UNIQ_KEY"]) == ("tagA", "k1 k2", "ü€", told.getMsgId())
    assert (int(found.sys[0]) & 1, found.message_id(0)) == (1, told.getOffsetMsgId())


def test_members_of_a_group_are_seen_while_they_are_there(cluster: Cluster, log: LogId, java: Any) -> None:
    client: RocketMqClient = cluster.client
    consumer = java.org.apache.rocketmq.client.consumer.DefaultLitePullConsumer("java-member")
    consumer.setNamesrvAddr(cluster.name_servers[0].address)
    consumer.subscribe(log.topic, "*")
    consumer.start()
    try:
        wait_until(lambda: group_offsets.members(client, "java-member", [BROKER]), 180.0, "a member")
    finally:
        consumer.shutdown()
    wait_until(lambda: not group_offsets.members(client, "java-member", [BROKER]), 180.0, "no member")


@pytest.mark.parametrize("kind", [LZ4, ZSTD, ZLIB])
@pytest.mark.parametrize("body", [b"", BODY, b"a" * 10_000_000])
def test_java_clients_decompress_what_was_compressed(java: Any, kind: int, body: bytes) -> None:
    raw, sys = closed(body, kind)
    common = java.org.apache.rocketmq.common
    kind_of = common.sysflag.MessageSysFlag.getCompressionType
    assert bytes(common.compression.CompressorFactory.getCompressor(kind_of(sys)).decompress(raw)) == body
