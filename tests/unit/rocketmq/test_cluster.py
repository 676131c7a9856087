import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.unit.rocketmq.peers import Handler, Peer, answer
from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.rocketmq.client.cluster import RocketMqClient
from trueup.connectors.rocketmq.client.codes import NoRoute, RequestCode
from trueup.connectors.rocketmq.client.connection import RocketMqRequest
from trueup.state.common.errors import BadBytes, Retry, Stop, Unknown

READ = RocketMqRequest(RequestCode.MAX_OFFSET, "read", {})


def route(brokers: dict[str, str], queues: int = 2, perm: int = 6) -> bytes:
    told = {
        "brokerDatas": [{"brokerName": name, "brokerAddrs": {"0": address}} for name, address in brokers.items()],
        "queueDatas": [
            {"brokerName": name, "readQueueNums": queues, "writeQueueNums": 1, "perm": perm}
            for name in [*brokers, "slave"]
        ],
    }
    return json.dumps(told).encode()


def table(brokers: dict[str, str]) -> bytes:
    """As RocketMQ writes it: ids without quotes."""
    each = ",".join(f'"{name}":{{"brokerName":"{name}","brokerAddrs":{{0:"{at}"}}}}' for name, at in brokers.items())
    return f'{{"brokerAddrTable":{{{each}}}}}'.encode()


def name_server(brokers: dict[str, str], topics: tuple[str, ...] = ("t",)) -> Handler:
    def handler(request: dict[str, Any]) -> bytes:
        if request["code"] == RequestCode.CLUSTER:
            return answer(request, body=table(brokers))
        if request["code"] == RequestCode.TOPICS:
            return answer(request, body=json.dumps({"topicList": topics}).encode())
        known = request["extFields"]["topic"] in topics
        return answer(request, body=route(brokers)) if known else answer(request, 17, remark="No topic route info")

    return handler


@pytest.fixture
def start() -> Iterator[Any]:
    with ExitStack() as stack:

        def make(*handlers: Handler) -> tuple[RocketMqClient, list[Peer]]:
            peers = [stack.enter_context(Peer(handler)) for handler in handlers]
            address = ";".join(peer.address for peer in peers)
            return stack.enter_context(RocketMqClient(Endpoint("east", address, 0))), peers

        yield make


def test_queues_of_brokers_without_a_master_are_left_out(start: Any) -> None:
    client, _ = start(name_server({"b": "127.0.0.1:1", "a": "127.0.0.1:2"}))
    assert client.logs("t") == [LogId("t", n, broker) for broker in ("a", "b") for n in (0, 1)]


def test_a_topic_that_one_name_server_does_not_know_is_asked_for_at_the_next(start: Any) -> None:
    client, _ = start(name_server({}, ()), name_server({"a": "127.0.0.1:2"}))
    assert list(client.route("t")) == ["a"]


def test_queues_that_only_one_name_server_knows_count(start: Any) -> None:
    client, _ = start(name_server({"a": "127.0.0.1:2"}), name_server({"b": "127.0.0.1:3"}))
    assert list(client.route("t")) == ["a", "b"]


def test_a_topic_that_none_knows_is_missing(start: Any) -> None:
    client, peers = start(name_server({}, ()), name_server({}, ()))
    with pytest.raises(NoRoute):
        client.route("t")
    assert [len(peer.requests) for peer in peers] == [1, 1]


def test_a_name_server_that_is_down_is_passed_over(start: Any) -> None:
    client, peers = start(name_server({"a": "127.0.0.1:2"}), name_server({"b": "127.0.0.1:3"}))
    peers[0].close()
    assert (client.masters(), client.topics(), list(client.route("t"))) == ({"b": "127.0.0.1:3"}, ["t"], ["b"])


def test_brokers_of_all_name_servers_are_known(start: Any) -> None:
    client, _ = start(name_server({}), name_server({"a": "127.0.0.1:2"}))
    assert client.masters() == {"a": "127.0.0.1:2"}


def test_without_a_name_server_there_is_nothing_to_do_but_wait(start: Any) -> None:
    client, peers = start(name_server({}))
    peers[0].close()
    with pytest.raises(Retry):
        client.masters()


def test_a_broker_that_nobody_registered_is_named(start: Any) -> None:
    client, _ = start(name_server({}))
    with pytest.raises(Retry, match="broker a in east"):
        client.ask("a", READ)


def test_a_broker_that_moved_is_found_again(start: Any) -> None:
    brokers: dict[str, str] = {}
    client, _ = start(name_server(brokers))
    with Peer(lambda r: answer(r)) as old:
        brokers["a"] = old.address
        client.ask("a", READ)
    with Peer(lambda r: answer(r)) as new:
        brokers["a"] = new.address
        with pytest.raises(Retry):
            client.ask("a", READ)
        assert client.ask("a", READ).code == 0


def test_a_kept_connection_that_was_closed_is_opened_again_for_a_read(start: Any) -> None:
    with Peer(lambda r: answer(r) if r["opaque"] == 1 else None) as broker:
        client, _ = start(name_server({"a": broker.address}))
        client.ask("a", READ)
        assert client.ask("a", READ).code == 0


def test_a_change_is_not_sent_on_a_connection_that_was_closed(start: Any) -> None:
    with Peer(answer) as broker:
        client, _ = start(name_server({"a": broker.address}))
        client.ask("a", READ)
        broker.cut()
        wait_until(client._open[broker.address].ended, 60.0, "the end of the connection")
        assert client.ask("a", READ._replace(changes=True)).code == 0


def test_a_change_is_never_sent_twice(start: Any) -> None:
    with Peer(lambda r: answer(r) if r["opaque"] == 1 else None) as broker:
        client, _ = start(name_server({"a": broker.address}))
        client.ask("a", READ)
        with pytest.raises(Unknown):
            client.ask("a", READ._replace(changes=True))
        assert len(broker.requests) == 2


@pytest.mark.parametrize(
    "body", [b"[]", b"{}", b'{"brokerDatas":[1],"queueDatas":[]}', b'{"brokerDatas":{},"queueDatas":{"a":1}}']
)
def test_another_route_is_refused(start: Any, body: bytes) -> None:
    client, _ = start(lambda request: answer(request, body=body))
    with pytest.raises(BadBytes):
        client.route("t")


@pytest.mark.parametrize("queues", [-1, 1 << 40])
def test_a_number_of_queues_that_cannot_be_is_refused(start: Any, queues: int) -> None:
    client, _ = start(lambda request: answer(request, body=route({"a": "127.0.0.1:1"}, queues)))
    with pytest.raises(BadBytes):
        client.logs("t")


def test_many_questions_are_in_flight_together_and_each_has_its_own_error(start: Any) -> None:
    with ExitStack() as stack:
        broker = stack.enter_context(
            Peer(
                lambda r: (
                    answer(r, 16, remark="no") if r["extFields"]["n"] == "7" else answer(r, offset=r["extFields"]["n"])
                )
            )
        )
        client, _ = start(name_server({"a": broker.address}))
        asked = [RocketMqRequest(RequestCode.MAX_OFFSET, "read", {"n": n}) for n in range(600)]
        found = client.ask_each("a", asked)
    assert isinstance(found[7], Stop)
    assert [one.number("offset") for one in found if not isinstance(one, Stop)] == [n for n in range(600) if n != 7]


def test_questions_to_a_broker_that_closes_are_retried_together(start: Any) -> None:
    with ExitStack() as stack:
        broker = stack.enter_context(Peer(lambda r: answer(r) if r["opaque"] < 3 else None))
        client, _ = start(name_server({"a": broker.address}))
        with pytest.raises(Retry):
            client.ask_each("a", [READ] * 5)


def test_names_of_clusters_and_brokers_are_told_by_name_servers(start: Any) -> None:
    client, _ = start(lambda r: answer(r, body=b'{"topicList":["sandbox","broker-a"]}'))
    assert client.own_names() == {"sandbox", "broker-a"}
