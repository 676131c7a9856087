"""Two name servers and two brokers, which stop and return."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.rocketmq.clusters import BORN_MS, Cluster, read, running, wait_for_end, wait_for_queues
from trueup.connectors.contract import LogId
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.rocketmq.client import messages
from trueup.connectors.rocketmq.client.cluster import WRITABLE
from trueup.connectors.rocketmq.client.codes import NoRoute
from trueup.state.common.errors import Retry

pytestmark = [pytest.mark.servers, pytest.mark.release]


@pytest.fixture(scope="module")
def cluster(new_root: Callable[[], Path]) -> Iterator[Cluster]:
    with running(new_root, 2, ("broker-a", "broker-b")) as started:
        yield started


def test_queues_of_both_brokers_are_found(cluster: Cluster) -> None:
    cluster.new_topic("spread", 2)
    assert cluster.client.logs("spread", WRITABLE) == [
        LogId("spread", number, broker) for broker in ("broker-a", "broker-b") for number in (0, 1)
    ]


def test_a_killed_broker_leaves_the_routes_and_returns_with_its_messages(cluster: Cluster) -> None:
    client, broker = cluster.client, cluster.brokers["broker-b"]
    cluster.new_topic("orders")
    log = LogId("orders", 0, "broker-b")
    connection = client.connect("broker-b")
    place = messages.sent(connection.ask(messages.send(log, b"kept", BORN_MS)))
    broker.kill()
    with pytest.raises(Retry):
        connection.ask(messages.pull(log, 0, 1))
    assert wait_for_queues(client, "orders", 1) == [LogId("orders", 0, "broker-a")]
    with pytest.raises(Retry, match="to accept a connection"):
        client.ask("broker-b", messages.end_offset(log))
    with pytest.raises(Retry, match="a master of broker broker-b"):
        client.ask("broker-b", messages.end_offset(log))
    broker.up()
    wait_for_queues(client, "orders", 2)
    with client.connect("broker-b") as connection:
        wait_for_end(connection, log, 1)
        assert bytes(read(connection, log, place.offset).bodies[0]) == b"kept"


def test_a_topic_of_which_all_brokers_are_down_is_missing(cluster: Cluster) -> None:
    client = cluster.client
    cluster.new_topic("unserved")
    for broker in cluster.brokers.values():
        broker.kill()
    wait_until(lambda: not client.masters(), 180.0, "no broker")
    with pytest.raises(NoRoute):
        client.route("unserved")
    for broker in cluster.brokers.values():
        broker.start()
    for broker in cluster.brokers.values():
        broker.wait_ready()
    wait_for_queues(client, "unserved", 2)


def test_one_name_server_is_enough(cluster: Cluster) -> None:
    cluster.new_topic("still-known")
    first = cluster.name_servers[0]
    first.kill()
    found = (sorted(cluster.client.masters()), len(cluster.client.logs("still-known")))
    first.up()  # it knows no broker until they register again
    assert found == (["broker-a", "broker-b"], 2)
    assert len(cluster.client.logs("still-known")) == 2
