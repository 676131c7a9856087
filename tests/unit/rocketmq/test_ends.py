"""The end of a queue is only believed after everything that was acknowledged is dispatched."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.unit.rocketmq.broker import BROKER, LOG, broker, endpoint
from tests.unit.rocketmq.peers import Peer, answer
from trueup.connectors.replication.tail import Bounds
from trueup.connectors.rocketmq.client import topics
from trueup.connectors.rocketmq.client.cluster import RocketMqClient
from trueup.connectors.rocketmq.client.codes import RequestCode, ResponseCode
from trueup.connectors.rocketmq.replication.ends import bounds
from trueup.state.common.errors import Stop

TOPIC = {"topicName": LOG.topic, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "order": False, "topicSysFlag": 0}


def without_single_topics(held: Mapping[str, Any]) -> Peer:
    """A broker of RocketMQ 4.9 with these topics: it does not have the request for one topic."""
    figures = {"table": {"commitLogMaxOffset": "100", "dispatchBehindBytes": "0"}}
    return broker(
        {
            RequestCode.BROKER_RUNTIME: lambda request: answer(request, body=json.dumps(figures).encode()),
            RequestCode.MIN_OFFSET: lambda request: answer(request, offset="3"),
            RequestCode.MAX_OFFSET: lambda request: answer(request, offset="9"),
            RequestCode.TOPIC_CONFIG: lambda request: answer(
                request, ResponseCode.UNSUPPORTED, remark="request type 351 not supported"
            ),
            RequestCode.ALL_TOPIC_CONFIGS: lambda request: answer(
                request, body=json.dumps({"topicConfigTable": held}).encode()
            ),
        }
    )


def with_figures(*figures: tuple[int, int], **settings: Any) -> Peer:
    """``figures``: end of the commit log and bytes behind it of each request; the last are repeated."""
    given = iter(figures)
    last = figures[-1]

    def runtime(request: dict[str, Any]) -> bytes:
        end, behind = next(given, last)
        table = {"commitLogMaxOffset": str(end), "dispatchBehindBytes": str(behind)}
        return answer(request, body=json.dumps({"table": table}).encode())

    topic = settings.get("topic", TOPIC)
    return broker(
        {
            RequestCode.BROKER_RUNTIME: runtime,
            RequestCode.MIN_OFFSET: lambda request: answer(request, offset="3"),
            RequestCode.MAX_OFFSET: lambda request: answer(request, offset="9"),
            RequestCode.TOPIC_CONFIG: lambda request: answer(
                request, 0 if topic else ResponseCode.NO_TOPIC, json.dumps(topic).encode() if topic else b""
            ),
        }
    )


@pytest.mark.parametrize(
    ("figures", "asked"),
    [([(100, 0)], 1), ([(100, 60), (100, 20), (100, 0)], 3), ([(100, 60), (140, 60), (160, 60)], 3)],
)
def test_ends_are_read_when_what_was_there_is_dispatched(figures: list[tuple[int, int]], asked: int) -> None:
    with with_figures(*figures) as peer, RocketMqClient(endpoint(peer)) as client:
        assert bounds(client, [LOG]) == {LOG: Bounds(3, 9)}
        codes = [request["code"] for request in peer.requests]
    assert (codes.count(RequestCode.BROKER_RUNTIME), codes.index(RequestCode.MAX_OFFSET)) == (asked, 2 + asked)


@pytest.mark.parametrize(
    ("topic", "found"), [({}, "no such topic"), ({**TOPIC, "readQueueNums": 0, "writeQueueNums": 0}, "0 queues")]
)
def test_the_end_of_a_queue_that_is_not_there_is_not_0(topic: dict[str, Any], found: str) -> None:
    with with_figures((100, 0), topic=topic) as peer, RocketMqClient(endpoint(peer)) as client:
        error = bounds(client, [LOG])[LOG]
    assert (type(error), found in str(error), BROKER in str(error)) == (Stop, True, True)


def test_a_broker_that_is_not_there_is_named() -> None:
    other = LOG._replace(place="broker-b")
    with with_figures((100, 0)) as peer, RocketMqClient(endpoint(peer)) as client:
        found = bounds(client, [LOG, other])
    assert (found[LOG], "broker-b" in str(found[other])) == (Bounds(3, 9), True)


def test_a_topic_that_may_not_be_asked_for_stops_no_other() -> None:
    other = LOG._replace(topic="secret")
    with with_figures((100, 0)) as peer, RocketMqClient(endpoint(peer)) as client:
        allowed = peer.handler

        def handler(request: dict[str, Any]) -> bytes | None:
            denied = (request.get("extFields") or {}).get("topic") == other.topic
            return answer(request, ResponseCode.NO_PERMISSION) if denied else allowed(request)

        peer.handler = handler
        ends = bounds(client, [LOG, other])
    assert (ends[LOG], type(ends[other]), "error 16" in str(ends[other])) == (Bounds(3, 9), Stop, True)


def test_a_broker_without_the_request_for_one_topic_lists_them_all() -> None:
    other = LOG._replace(topic="missing")
    with without_single_topics({LOG.topic: TOPIC}) as peer, RocketMqClient(endpoint(peer)) as client:
        ends = bounds(client, [LOG, other])
    assert (ends[LOG], "no such topic" in str(ends[other])) == (Bounds(3, 9), True)


def test_a_request_that_a_broker_does_not_have_is_sent_once_over_a_connection() -> None:
    with without_single_topics({LOG.topic: TOPIC}) as peer, RocketMqClient(endpoint(peer)) as client:
        found = [bounds(client, [LOG]), bounds(client, [LOG])]
        codes = [request["code"] for request in peer.requests]
    assert (found[0], codes.count(RequestCode.TOPIC_CONFIG)) == (found[1], 1)


def test_a_single_topic_of_a_broker_without_such_a_request_is_found() -> None:
    with without_single_topics({LOG.topic: TOPIC}) as peer, RocketMqClient(endpoint(peer)) as client:
        found = [topics.topic(client, BROKER, name) for name in (LOG.topic, "missing")]
    assert (found[0] is not None, found[1]) == (True, None)
