"""Tails of queues, of which a user may not read all."""

from base64 import b64encode
from contextlib import closing
from typing import Any

from tests.unit.rocketmq.broker import LOG, broker, endpoint
from tests.unit.rocketmq.peers import answer
from tests.unit.rocketmq.stored_messages import Message
from trueup.connectors.replication.headers import marks
from trueup.connectors.replication.tail import Bounds, Met, TailSearch
from trueup.connectors.rocketmq.client.cluster import RocketMqClient
from trueup.connectors.rocketmq.client.codes import RequestCode, ResponseCode
from trueup.connectors.rocketmq.replication.records import names
from trueup.connectors.rocketmq.replication.tails import RocketMqTails

SECRET, PREFIX = LOG._replace(topic="secret"), b"a prefix"


def pull(request: dict[str, Any]) -> bytes:
    """A copy of offset 5 at offset 0; nothing of the other topic."""
    if request["extFields"]["topic"] == SECRET.topic:
        return answer(request, ResponseCode.NO_PERMISSION)
    [(_, mark)] = marks(PREFIX, [5])
    copy = Message(properties=names.OFFSET + b"\x01" + b64encode(mark or b"") + b"\x02", offset=0)
    return answer(request, body=copy.encoded(), nextBeginOffset="1", minOffset="0", maxOffset="1")


def test_a_queue_that_may_not_be_read_stops_no_other() -> None:
    searches = {log: TailSearch(Bounds(0, 1), {PREFIX: 0}) for log in (SECRET, LOG)}
    with (
        broker({RequestCode.PULL: pull}) as peer, RocketMqClient(endpoint(peer)) as client,
        closing(RocketMqTails(client)) as tails,
    ):  # fmt: skip
        refused = tails.run(searches)
    assert ([*refused], "error 16" in str(refused[SECRET])) == ([SECRET], True)
    assert searches[LOG].met == {PREFIX: [Met(5, 0)]}
