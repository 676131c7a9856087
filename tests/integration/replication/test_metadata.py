"""Discovery of a real cluster."""

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from tests.integration.replication.mirror import coordinated
from tests.proxy import Proxy
from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import free_port, wait_until
from trueup.connectors.kafka.client.admin import Admin
from trueup.connectors.kafka.client.group_offsets import KafkaGroups
from trueup.connectors.kafka.client.metadata import Discovery
from trueup.connectors.replication.ports import GroupCommits, Log
from trueup.sandbox.servers.security import Security
from trueup.state.common.errors import Retry, Stop
from trueup.state.replication.config_sync import Setting
from trueup.state.replication.settings import Start

pytestmark = pytest.mark.servers

ORDERS = [LogId("orders", number) for number in range(3)]


@pytest.fixture(scope="module")
def broker(new_root: Callable[[], Path]) -> Iterator[Kafka]:
    root = new_root()
    with Kafka(root, security=Security(root / "keys")) as server:
        server.up()
        yield server


@pytest.fixture(scope="module")
def east(broker: Kafka) -> Iterator[Discovery]:
    """A cluster with a topic of three partitions: five records from time 1000 on in each of the first two."""
    found = Discovery(Endpoint("east", broker.bootstrap, 0))
    new = [NewTopic("orders", 3, 1, config={"retention.ms": "-1", "cleanup.policy": "compact"})]
    for future in found.admin.client.create_topics(new).values():
        future.result()
    writer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        writer.produce("orders", b"value", b"key", partition=number % 2, timestamp=1_000 + number)
    writer.flush()
    yield found
    found.close()


def test_a_cluster_has_one_id(broker: Kafka, east: Discovery) -> None:
    written = (broker.root / "data" / "meta.properties").read_text()
    assert f"cluster.id={east.cluster_id()}\n" in written


def test_a_broker_that_knows_of_no_broker_yet_is_asked_again(broker: Kafka) -> None:
    """A KRaft broker may send this response during its start. librdkafka's describe_cluster then aborts the process."""
    asked: dict[bytes, int] = {}
    begins = Event()

    def changed(frame: bytes) -> bytes:
        """A header of version 1 (no tagged fields), then the body."""
        answer = MetadataResponse.decode(frame[5:], version=asked[frame[:4]])
        if begins.is_set():
            answer.brokers, answer.topics = [], []
        for node in answer.brokers:
            node.port = int(proxy.address.split(":")[1])
        return frame[:5] + bytes(answer.encode())

    def change(direction: str, data: bytes) -> bytes:
        out = b""
        while data:
            size = 4 + int.from_bytes(data[:4])
            frame, data = data[4:size], data[size:]
            if direction == "asked" and int.from_bytes(frame[:2]) == MetadataRequest.API_KEY:
                asked[frame[4:8]] = int.from_bytes(frame[2:4])
            elif direction == "said" and frame[:4] in asked:
                frame = changed(frame)
            out += len(frame).to_bytes(4) + frame
        return out

    with Proxy(broker.bootstrap) as proxy:
        proxy.change = change
        with Admin(Endpoint("east", proxy.address, 0), 5.0) as admin:
            discovery = Discovery(admin.endpoint, admin)
            discovery.cluster_id()
            begins.set()
            with pytest.raises(Retry, match="east to"):
                discovery.cluster_id()


def test_topics_are_described_with_partitions_and_settings(east: Discovery) -> None:
    topic = east.topics(["orders"])["orders"]
    assert (topic.leaders, topic.replicas, topic.internal, topic.error) == ((1, 1, 1), 1, False, "")


def test_settings_in_force_distinguish_those_of_the_topic(east: Discovery) -> None:
    configs = east.topics(["orders"])["orders"].configs
    assert (configs["retention.ms"], configs["compression.type"]) == (Setting("-1", True), Setting("producer", False))


def test_a_topic_made_anew_has_another_id(east: Discovery) -> None:
    def create() -> str:
        east.admin.client.create_topics([NewTopic("short", 1, 1)])["short"].result()
        wait_until(lambda: east.topics(["short"], configs=False), 180.0, "the broker to know its new topic")
        return east.topics(["short"], configs=False)["short"].id

    before = create()
    east.admin.client.delete_topics(["short"])["short"].result()
    assert create() != before


def test_what_does_not_exist_is_left_out_and_not_created(east: Discovery) -> None:
    assert (east.topics(["orders", "nothing"]).keys(), "nothing" in east.names()) == ({"orders"}, False)


def test_logs_start_and_end(east: Discovery) -> None:
    assert east.logs(ORDERS) == dict(zip(ORDERS, [Log(0, 5), Log(0, 5), Log(0, 0)], strict=True))


def test_one_bad_partition_spoils_no_other(east: Discovery) -> None:
    found = east.logs([ORDERS[0], LogId("nothing", 0)])
    assert (found[ORDERS[0]], found[LogId("nothing", 0)].error.count("nothing-0")) == (Log(0, 5), 1)


def test_an_open_transaction_ends_what_can_be_read(broker: Kafka, east: Discovery) -> None:
    east.admin.client.create_topics([NewTopic("open", 1, 1)])["open"].result()
    writer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "open"})
    writer.init_transactions()
    writer.begin_transaction()
    writer.produce("open", b"x")
    writer.flush()
    place = LogId("open", 0)
    ends = east.logs([place])[place].end, east.logs([place], committed_only=False)[place].end
    writer.abort_transaction()
    assert ends == (0, 1)


@pytest.mark.parametrize(
    ("start", "offsets"),
    [
        (Start("earliest"), [0, 0, 0]),
        (Start("latest"), [5, 5, 0]),
        (Start("time", at_ms=1_004), [2, 2, 0]),
        (Start("time", at_ms=9_000), [5, 5, 0]),
    ],
)
def test_starts(east: Discovery, start: Start, offsets: list[int]) -> None:
    assert list(east.starts(ORDERS, start).values()) == offsets


def test_a_start_where_a_group_is_and_the_first_record_where_it_never_was(east: Discovery) -> None:
    with KafkaGroups(east.admin.endpoint) as groups:
        wait_until(lambda: coordinated(groups), 180.0, "a coordinator")
        groups.commit({"readers": GroupCommits({ORDERS[1]: 3})})
    assert list(east.starts(ORDERS, Start("group", group="readers")).values()) == [0, 3, 0]


def test_a_cluster_that_does_not_answer_is_tried_again() -> None:
    with Admin(Endpoint("gone", f"127.0.0.1:{free_port()}", 1), 0.5) as admin, pytest.raises(Retry, match="gone to"):
        Discovery(admin.endpoint, admin).cluster_id()


def test_a_wrong_password_is_reported_as_such(broker: Kafka) -> None:
    options = {**broker.client("SASL_PLAINTEXT"), "sasl.password": "wrong"}
    endpoint = Endpoint("east", options.pop("bootstrap.servers"), 0, options)
    result: list[str] = []

    def reported() -> bool:
        try:
            Discovery(endpoint, admin).cluster_id()
        except Retry:  # the broker did not respond in time
            return False
        except Stop as stop:
            result.append(str(stop))
        return True

    with Admin(endpoint, 2.0) as admin:
        wait_until(reported, 180.0, "to be refused")
    assert "Authentication failed" in "".join(result)


def test_a_topic_without_rights_is_not_taken_for_absent(broker: Kafka, east: Discovery) -> None:
    options = broker.client("SASL_SSL", "guest")
    endpoint = Endpoint("east", options.pop("bootstrap.servers"), 0, options)
    with Admin(endpoint) as admin:
        assert "TOPIC_AUTHORIZATION_FAILED" in Discovery(endpoint, admin).topics(["orders"])["orders"].error


def test_groups_are_listed_over_tls_with_refusals_by_group(broker: Kafka, east: Discovery) -> None:
    def groups(user: str) -> KafkaGroups:
        options = broker.client("SASL_SSL", user)
        return KafkaGroups(Endpoint("east", options.pop("bootstrap.servers"), 0, options))

    place = ORDERS[2]
    with groups("admin") as admin, groups("guest") as guest:
        wait_until(lambda: coordinated(admin), 180.0, "a coordinator")
        admin.commit({"secret": GroupCommits({place: 1})})
        reported, refused = admin.offsets(["secret"])["secret"], guest.offsets(["secret", "other"])["secret"]
    assert (reported, isinstance(refused, Stop), "GroupAuthorizationFailed" in str(refused)) == ({place: 1}, True, True)
