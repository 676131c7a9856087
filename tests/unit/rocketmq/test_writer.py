"""The writer of links, on a broker whose responses a test sets."""

import itertools
import json
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import pytest

from tests.unit.rocketmq.broker import LOG, broker, lease
from tests.unit.rocketmq.peers import answer
from tests.unit.rocketmq.test_ends import TOPIC
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.replication.ports import Columns, Written
from trueup.connectors.replication.tail import Bounds
from trueup.connectors.rocketmq.client.codes import RequestCode, ResponseCode
from trueup.connectors.rocketmq.replication import writer as writer_module
from trueup.connectors.rocketmq.replication.records import names
from trueup.connectors.rocketmq.replication.writer import BATCH_BYTES, RocketMqWriter
from trueup.state.common.errors import Retry, Stop, Unknown

PLACE = {"queueId": "0", "msgId": "A"}
FIGURES = json.dumps({"table": {"commitLogMaxOffset": "100", "dispatchBehindBytes": "0"}}).encode()


def write(
    respond: Callable[[dict[str, Any]], bytes | None], columns: Columns, source: str = "kafka"
) -> tuple[Written, list[dict[str, Any]]]:
    """The result of a write to the queue, and the requests."""
    with broker({RequestCode.SEND_BATCH: respond}) as peer:
        writer = RocketMqWriter(lease(peer, source))
        written = writer.write({LOG: columns})[LOG]
        writer.close()
        return written, [request for request in peer.requests if request["code"] == RequestCode.SEND_BATCH]


def of(values: Sequence[bytes], headers: Sequence[tuple[str, bytes | None]] = ()) -> Columns:
    rows = len(values)
    return Columns(range(rows), [None] * rows, values, [5] * rows, [headers] * rows)


def stored(first: int = 10) -> Callable[[dict[str, Any]], bytes]:
    ends = itertools.count(first, 2)
    return lambda request: answer(request, queueOffset=str(next(ends)), **PLACE)


def test_offsets_of_a_batch_follow_the_first() -> None:
    assert write(stored(), of([b"a", b"b"]))[0] == Written(range(10, 12))


def test_large_messages_are_sent_in_several_batches() -> None:
    written, requests = write(stored(), of([bytes(BATCH_BYTES // 3)] * 4))
    assert ([*written.offsets], len(requests)) == ([10, 11, 12, 13], 2)


def test_bodies_of_different_compression_are_not_in_one_batch() -> None:
    raw = [((names.RAW, b""), (names.FLAGS, sys.to_bytes(8, "big"))) for sys in (0x101, 0x101, 0, 0)]
    written, requests = write(stored(), of([b"v"] * 4)._replace(headers=raw), "rocketmq")
    assert [request["extFields"]["f"] for request in requests] == [str(0x101), "0"]
    assert [*written.offsets] == [10, 11, 12, 13]


def hidden(*ends: int, code: int = ResponseCode.FLUSH_DISK_TIMEOUT) -> dict[RequestCode, Callable[..., bytes]]:
    """A broker that stores a message at offset 3 without confirming it. ``ends``: the ends of the queue that it reports
    one after another, the last one for ever."""
    left = list(ends)
    return {
        RequestCode.SEND_BATCH: lambda request: answer(request, code, queueOffset="3", **PLACE),
        RequestCode.MAX_OFFSET: lambda request: answer(request, offset=str(left.pop(0) if len(left) > 1 else left[0])),
        RequestCode.MIN_OFFSET: lambda request: answer(request, offset="0"),
        RequestCode.BROKER_RUNTIME: lambda request: answer(request, body=FIGURES),
        RequestCode.TOPIC_CONFIG: lambda request: answer(request, body=json.dumps(TOPIC).encode()),
    }


@pytest.mark.parametrize(
    "code", [ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE]
)
@pytest.mark.parametrize("ends", [(4,), (3, 3, 4)])
def test_what_is_not_yet_on_disk_or_slave_is_acknowledged_when_its_queue_shows_it(code: int, ends: list[int]) -> None:
    with broker(hidden(*ends, code=code)) as peer, closing(RocketMqWriter(lease(peer, "kafka"))) as writer:
        assert writer.write({LOG: of([b"a"])})[LOG] == Written(range(3, 4))


def test_what_its_queue_does_not_show_is_not_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "SHOWN_S", 0.05)
    with broker(hidden(3)) as peer, closing(RocketMqWriter(lease(peer, "kafka"))) as writer:
        written = writer.write({LOG: of([b"a"])})[LOG]
    assert ([*written.offsets], type(written.error), "ends at 3" in str(written.error)) == ([], Retry, True)


def test_all_queues_of_a_write_wait_together_for_what_they_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one is asked for once: the time of the write is over."""
    monkeypatch.setattr(writer_module, "SHOWN_S", 0.05)
    with broker(hidden(3)) as peer, closing(RocketMqWriter(lease(peer, "kafka"))) as writer:
        second = LOG._replace(topic="other")
        writer.write(dict.fromkeys((LOG, second), of([b"a"])))
        asked = [
            request["extFields"]["topic"] for request in peer.requests if request["code"] == RequestCode.MAX_OFFSET
        ]
    assert asked.count(second.topic) == 1


def test_a_queue_has_no_end_until_it_shows_what_was_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the same messages would be sent again."""
    monkeypatch.setattr(writer_module, "SHOWN_S", 0.0)
    with broker(hidden(3, 3, 4)) as peer, closing(RocketMqWriter(lease(peer, "kafka"))) as writer:
        writer.write({LOG: of([b"a"])})
        ends = [writer.bounds([LOG])[LOG] for _ in range(2)]
    assert (type(ends[0]), ends[1]) == (Retry, Bounds(0, 4))


def test_a_broker_that_started_again_may_have_lost_what_its_queue_did_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "SHOWN_S", 0.0)
    with broker(hidden(3)) as peer, closing(RocketMqWriter(lease(peer, "kafka"))) as writer:
        writer.write({LOG: of([b"a"])})
        peer.cut()
        wait_until(lambda: isinstance(writer.bounds([LOG])[LOG], Bounds), 60.0, "an end of the queue")


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (ResponseCode.MESSAGE_ILLEGAL, "the message is illegal"),
        (ResponseCode.SYSTEM_ERROR, "java.lang.RuntimeException: message body size exceeded"),
    ],
)
def test_a_message_that_the_broker_refuses_is_refused_with_the_reason(code: int, remark: str) -> None:
    written, _ = write(lambda request: answer(request, code, remark=remark), of([b"a"]))
    assert ([*written.offsets], remark in written.refused, written.error) == ([], True, None)


def test_messages_before_a_refused_one_are_stored() -> None:
    rows = of([b"a", b"b", b"c"])._replace(headers=[(), (("long", bytes(40_000)),), ()])
    written, _ = write(stored(), rows)
    assert ([*written.offsets], "31743" in written.refused) == ([10], True)


@pytest.mark.parametrize(
    ("code", "remark", "kind"),
    [
        (ResponseCode.BUSY, "[TIMEOUT_CLEAN_QUEUE]broker busy", Retry),
        (ResponseCode.SERVICE_NOT_AVAILABLE, "", Retry),
        (ResponseCode.FLOW_CONTROL, "", Retry),
        (ResponseCode.SYSTEM_ERROR, "[PC_SYNCHRONIZED]broker busy", Retry),
        (ResponseCode.NO_PERMISSION, "no matched policies", Stop),
    ],
)
def test_an_error_is_that_of_the_queue(code: int, remark: str, kind: type[Exception]) -> None:
    written, _ = write(lambda request: answer(request, code, remark=remark), of([b"a"]))
    assert ([*written.offsets], written.refused, type(written.error)) == ([], "", kind)


def test_nothing_is_sent_after_a_lost_response() -> None:
    responses = iter([lambda request: answer(request, queueOffset="10", **PLACE), lambda _: None])
    written, requests = write(lambda request: next(responses)(request), of([bytes(BATCH_BYTES)] * 3))
    assert ([*written.offsets], type(written.error), len(requests)) == ([10], Unknown, 2)


def test_a_queue_has_one_request_in_flight_and_others_have_theirs() -> None:
    other = LOG._replace(number=1)
    with broker({RequestCode.SEND_BATCH: lambda r: answer(r, queueOffset="0", queueId=r["extFields"]["e"])}) as peer:
        writer = RocketMqWriter(lease(peer, "kafka"))
        found = writer.write(dict.fromkeys((LOG, other), of([bytes(BATCH_BYTES)] * 2)))
        writer.close()
        queues = [r["extFields"]["e"] for r in peer.requests if r["code"] == RequestCode.SEND_BATCH]
    assert (queues, [written.error for written in found.values()]) == (["0", "1", "0", "1"], [None, None])


def test_a_write_is_prepared_while_another_is_in_flight_and_sends_nothing_before_it_is_told_to() -> None:
    with broker({RequestCode.SEND_BATCH: stored()}) as peer:
        writer = RocketMqWriter(lease(peer, "kafka"))
        first = writer.prepare({LOG: of([b"a", b"b"])})
        first.send()
        second = writer.prepare({LOG: of([b"c", b"d"])})
        done = first.written()[LOG]
        before = len(peer.requests)
        second.send()
        found = [[*done.offsets], [*second.written()[LOG].offsets]]
        writer.close()
        sends = [request["code"] for request in peer.requests[before:]]
    assert (found, sends) == ([[10, 11], [12, 13]], [RequestCode.SEND_BATCH])
