"""A planned change of masters: the former one stays up as a replica, which refuses to be read and written."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from tests.unit.rocketmq.broker import BROKER, ID, LOG, lease
from tests.unit.rocketmq.peers import Peer, answer
from tests.unit.rocketmq.stored_messages import Message
from tests.unit.rocketmq.test_cluster import table
from tests.unit.rocketmq.test_ends import TOPIC
from trueup.connectors.replication.ports import Columns, Written
from trueup.connectors.replication.tail import Bounds, TailSearch
from trueup.connectors.rocketmq.client.codes import RequestCode, ResponseCode
from trueup.connectors.rocketmq.replication.reader import RocketMqReader
from trueup.connectors.rocketmq.replication.writer import RocketMqWriter

RECORDS = Columns([0], [None], [b"a"], [5], [()])
GROUPS = {"subscriptionGroupTable": {f"trueup-cluster-{ID}": {"groupName": f"trueup-cluster-{ID}"}}}
FIGURES = {"table": {"commitLogMaxOffset": "5", "dispatchBehindBytes": "0"}}


class Masters:
    """Two machines of a broker, and its name server. The messages of each are called like the machine."""

    def __init__(self, stack: ExitStack) -> None:
        self.former, self.present = (
            stack.enter_context(Peer(lambda request, name=name: self._respond(request, name)))
            for name in (b"former", b"present")
        )
        self._registered = {BROKER: self.former.address}
        self.names = stack.enter_context(Peer(lambda request: answer(request, body=table(self._registered))))
        self._master = b"former"

    def change(self) -> None:
        self._registered[BROKER], self._master = self.present.address, b"present"

    def _respond(self, request: dict[str, Any], name: bytes) -> bytes:
        fields = request.get("extFields") or {}
        match request["code"]:
            case RequestCode.PULL | RequestCode.SEND_BATCH if name != self._master:
                return answer(request, ResponseCode.BUSY, remark="[REJECTREQUEST]system busy")
            case RequestCode.PULL:
                at = int(fields["queueOffset"])
                places = {"nextBeginOffset": str(at + 1), "minOffset": "0", "maxOffset": "100"}
                return answer(request, body=Message(name, offset=at).encoded(), **places)
            case RequestCode.SEND_BATCH:
                return answer(request, queueId="0", queueOffset="7", msgId="A")
            case RequestCode.MIN_OFFSET | RequestCode.MAX_OFFSET:
                return answer(request, offset="0" if request["code"] == RequestCode.MIN_OFFSET else "100")
        bodies = {RequestCode.ALL_GROUPS: GROUPS, RequestCode.BROKER_RUNTIME: FIGURES, RequestCode.TOPIC_CONFIG: TOPIC}
        return answer(request, body=json.dumps(bodies[request["code"]]).encode())


@pytest.fixture
def masters() -> Iterator[Masters]:
    with ExitStack() as stack:
        yield Masters(stack)


def test_a_queue_is_read_from_the_new_master_after_its_bounds(masters: Masters) -> None:
    with closing(RocketMqReader(lease(masters.names))) as reader:
        reader.seek({LOG: 0})
        found = [*reader.poll(1, 5.0)[LOG].records.values]
        masters.change()
        assert reader.bounds([LOG]) == {LOG: Bounds(0, 100)}
        reader.seek({LOG: 1})
        for _ in range(2):  # the first response of a connection repeats the last message
            found += reader.poll(1, 5.0)[LOG].records.values
    assert found == [b"former", b"present"]


def test_a_queue_is_written_at_the_new_master_after_its_bounds(masters: Masters) -> None:
    with closing(RocketMqWriter(lease(masters.names, "kafka"))) as writer:
        writer.write({LOG: RECORDS})
        masters.change()
        writer.bounds([LOG])
        assert writer.write({LOG: RECORDS})[LOG] == Written(range(7, 8))


def test_the_tail_of_a_queue_is_read_from_the_new_master_after_its_bounds(masters: Masters) -> None:
    with closing(RocketMqWriter(lease(masters.names, "kafka"))) as writer:
        for change in (lambda: None, masters.change):
            change()
            writer.bounds([LOG])
            assert writer.tails().run({LOG: TailSearch(Bounds(0, 1), {b"a prefix": 0})}) == {}


def test_bounds_are_read_while_no_name_server_responds(masters: Masters) -> None:
    with closing(RocketMqReader(lease(masters.names))) as reader:
        reader.bounds([LOG])
        masters.names.close()
        assert reader.bounds([LOG]) == {LOG: Bounds(0, 100)}
