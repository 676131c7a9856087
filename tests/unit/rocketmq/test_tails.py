"""Tails of queues, of which a user may not read all."""

from contextlib import closing
from typing import Any

from tests.unit.rocketmq.broker import LOG, broker, endpoint
from tests.unit.rocketmq.peers import answer
from tests.unit.rocketmq.stored_messages import HERE, Message
from trueup.connectors.replication.headers import marks
from trueup.connectors.replication.ports import Columns
from trueup.connectors.replication.tail import Bounds, CopiedRecord, TailSearch
from trueup.connectors.rocketmq.client.cluster import RocketMqClient
from trueup.connectors.rocketmq.client.codes import RequestCode, ResponseCode
from trueup.connectors.rocketmq.replication.records.columns import Encoder
from trueup.connectors.rocketmq.replication.tails import RocketMqTails
from trueup.state.replication.provenance import HEADER

SECRET, PREFIX, BORN = LOG._replace(topic="secret"), b"a prefix", 1_700_000_000_000


def pull(request: dict[str, Any]) -> bytes:
    """A copy of offset 5 at offset 0, and what an application made of it; nothing of the other topic."""
    if request["extFields"]["topic"] == SECRET.topic:
        return answer(request, ResponseCode.NO_PERMISSION)
    headers = (HEADER, b"east"), *marks(PREFIX, [5])
    [properties] = Encoder().messages(Columns([5], [None], [b"body"], [BORN], [headers]), HERE).properties
    copy, again = (Message(properties=properties, offset=n, born=BORN + n) for n in range(2))
    return answer(request, body=copy.encoded() + again.encoded(), nextBeginOffset="2", minOffset="0", maxOffset="2")


def test_marks_are_those_of_messages_that_links_wrote_and_a_queue_that_may_not_be_read_stops_no_other() -> None:
    searches = {log: TailSearch(Bounds(0, 2), {PREFIX: 0}) for log in (SECRET, LOG)}
    with (
        broker({RequestCode.PULL: pull}) as peer,
        RocketMqClient(endpoint(peer)) as client,
        closing(RocketMqTails(client, lambda _: HERE)) as tails,
    ):
        refused = tails.run(searches)
    assert ([*refused], "error 16" in str(refused[SECRET])) == ([SECRET], True)
    assert searches[LOG].met == {PREFIX: [CopiedRecord(5, 0)]}
