"""The wait for messages that were acknowledged and are in no queue yet."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.unit.rocketmq.peers import Peer, answer
from tests.unit.rocketmq.test_cluster import table
from trueup.connectors.contract import Endpoint
from trueup.connectors.rocketmq.client.cluster import RocketMqClient
from trueup.connectors.rocketmq.client.codes import RequestCode
from trueup.connectors.rocketmq.client.dispatch import wait_dispatched
from trueup.state.common.errors import BadBytes, Retry


def ask(figures: Sequence[dict[str, str]], wait_s: float = 10.0) -> int:
    """The number of questions to a broker that reports these figures one after another, the last one for ever."""
    left = list(figures)

    def broker(request: dict[str, Any]) -> bytes:
        return answer(request, body=json.dumps({"table": left.pop(0) if len(left) > 1 else left[0]}).encode())

    with Peer(broker) as peer, Peer(lambda r: answer(r, body=table({"a": peer.address}))) as names:
        with RocketMqClient(Endpoint("east", names.address, 0)) as client:
            wait_dispatched(client, "a", wait_s)
        assert {request["code"] for request in peer.requests} == {RequestCode.BROKER_RUNTIME}
        return len(peer.requests)


def figures(end: int, behind: int) -> dict[str, str]:
    return {"commitLogMaxOffset": str(end), "dispatchBehindBytes": str(behind)}


@pytest.mark.parametrize(
    ("reported", "questions"),
    [
        ([figures(100, 0)], 1),
        ([figures(100, 60), figures(100, 10), figures(100, 0)], 3),
        ([figures(100, 60), figures(200, 110), figures(300, 200), figures(400, 0)], 3),
    ],
)
def test_what_was_acknowledged_before_is_waited_for_and_later_messages_are_not(
    reported: list[dict[str, str]], questions: int
) -> None:
    assert ask(reported) == questions


def test_a_broker_that_does_not_come_to_it_is_retried() -> None:
    with pytest.raises(Retry, match="60 bytes of its commit log that are in no queue yet"):
        ask([figures(100, 60)], wait_s=0.05)


def test_a_broker_without_these_figures_is_refused() -> None:
    with pytest.raises(BadBytes, match="dispatchBehindBytes"):
        ask([{"commitLogMaxOffset": "1"}])
