import re

import pytest

from trueup.connectors.contract import LogId
from trueup.connectors.rocketmq.client import messages
from trueup.connectors.rocketmq.client.connection import RocketMqRequest, RocketMqResponse
from trueup.state.common.errors import Stop

LOG = LogId("orders", 2, "broker-a")


def test_only_the_bits_of_the_body_are_sent_again() -> None:
    assert messages.send_batch(LOG, b"", 1, sys=0x7FF).fields["f"] == 0x701


def test_a_send_names_its_queue_and_its_broker() -> None:
    fields = messages.send(LOG, b"x", 5, b"a\x011\x02", 7).fields
    assert [fields[name] for name in "beghimn"] == ["orders", 2, 5, 7, "a\x011\x02", False, "broker-a"]


@pytest.mark.parametrize("request_", [messages.send(LOG, b"x", 1), messages.send_batch(LOG, b"x", 1)])
def test_no_topic_is_created_for_a_message(request_: RocketMqRequest) -> None:
    """The template of new topics is none: its name is not one that a topic can have."""
    assert re.search(r"[^%|a-zA-Z0-9_-]", str(request_.fields["c"]))


def test_properties_that_are_not_text_need_a_batch() -> None:
    with pytest.raises(Stop, match="in a batch"):
        messages.send(LOG, b"x", 1, b"a\x01\xff\x02")


@pytest.mark.parametrize(("code", "durable"), [(0, True), (10, False), (11, False), (12, False)])
def test_a_message_that_is_not_on_disk_or_slave_yet_is_sent(code: int, durable: bool) -> None:
    fields = {"msgId": "A,B", "queueId": "2", "queueOffset": "7"}
    found = messages.sent(RocketMqResponse(code, fields, memoryview(b""), "here"))
    assert found == messages.SendResult(2, 7, ("A", "B"), durable)


@pytest.mark.parametrize(("wait_s", "flag"), [(0.0, 4), (1.5, 6)])
def test_a_pull_that_may_wait_is_held(wait_s: float, flag: int) -> None:
    request = messages.pull(LOG, 0, 1, wait_s)
    assert (request.fields["sysFlag"], request.fields["suspendTimeoutMillis"]) == (flag, int(wait_s * 1000))


@pytest.mark.parametrize(("wait_s", "answered_s"), [(0.0, 0.0), (5.0, 10.0)])
def test_a_held_pull_may_be_answered_when_the_broker_looks_at_it_next(wait_s: float, answered_s: float) -> None:
    assert messages.pull(LOG, 0, 1, wait_s).wait_s == answered_s


@pytest.mark.parametrize(("commit", "kind"), [(True, 8), (False, 12)])
def test_a_transaction_ends_either_way(commit: bool, kind: int) -> None:
    half = messages.SendResult(0, 3, ("7F00000100002A9F0000000000001000",), True)
    fields = messages.end_transaction(half, "p", "U", commit).fields
    assert (fields["commitOrRollback"], fields["commitLogOffset"], fields["tranStateTableOffset"]) == (kind, 4096, 3)
