"""The reader of links, on a broker whose responses a test sets."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.descriptors import taken
from tests.unit.rocketmq.broker import BROKER, LOG, broker, lease
from tests.unit.rocketmq.peers import answer
from tests.unit.rocketmq.stored_messages import Message
from trueup.connectors.contract import Position
from trueup.connectors.replication.ports import Read
from trueup.connectors.rocketmq.client.codes import RequestCode, ResponseCode
from trueup.connectors.rocketmq.protocol.compression import LZ4, closed
from trueup.connectors.rocketmq.replication.reader import RocketMqReader
from trueup.connectors.rocketmq.replication.records import columns
from trueup.state.common.errors import Retry, Stop

WAIT_S, MOST = 5.0, 5


def queue(messages: list[Message], start: int = 0) -> Callable[[dict[str, Any]], bytes]:
    """A queue of these messages: each response has one of them."""

    def pull(request: dict[str, Any]) -> bytes:
        at, end = int(request["extFields"]["queueOffset"]), start + len(messages)
        bounds = {"minOffset": str(start), "maxOffset": str(end)}
        if not start <= at <= end:
            return answer(request, ResponseCode.PULL_MOVED, nextBeginOffset=str(max(start, min(at, end))), **bounds)
        if at == end:
            return answer(request, ResponseCode.PULL_NOT_FOUND, nextBeginOffset=str(at), **bounds)
        return answer(request, body=messages[at - start].encoded(), nextBeginOffset=str(at + 1), **bounds)

    return pull


def of(*bodies: bytes, stored: int = 0, start: int = 0) -> list[Message]:
    return [Message(body, offset=start + n, stored=stored + n) for n, body in enumerate(bodies)]


def reads(reader: RocketMqReader, count: int) -> list[Read]:
    """The next reads of the queue."""
    return [reader.poll(1_000, WAIT_S)[LOG] for _ in range(count)]


def error_of(reader: RocketMqReader) -> Read:
    """The next read that failed. Pulls that were in flight before can precede it."""
    while (found := reader.poll(1_000, WAIT_S)[LOG]).error is None:
        assert not found.records.offsets
    return found


@pytest.fixture
def pulls() -> dict[RequestCode, Any]:
    return {RequestCode.PULL: queue(of(b"a", b"b"))}


def test_messages_are_read_to_the_end(pulls: dict[RequestCode, Any]) -> None:
    with broker(pulls) as peer:
        reader = RocketMqReader(lease(peer))
        reader.seek({LOG: 0})
        found = reads(reader, 2)
        reader.close()
    assert [(read.records.values, read.next, read.idle) for read in found] == [((b"a",), 1, False), ((b"b",), 2, True)]


def test_messages_are_read_behind_many_descriptors(pulls: dict[RequestCode, Any]) -> None:
    with taken(), broker(pulls) as peer:
        reader = RocketMqReader(lease(peer))
        reader.seek({LOG: 0})
        [read] = reads(reader, 1)
        reader.close()
    assert read.records.values == (b"a",)


def test_no_more_messages_are_given_than_were_asked_for() -> None:
    both = of(b"a", b"b")

    def pull(request: dict[str, Any]) -> bytes:
        body = b"".join(message.encoded() for message in both)
        return answer(request, body=body, nextBeginOffset="2", minOffset="0", maxOffset="2")

    with broker({RequestCode.PULL: pull}) as peer:
        reader = RocketMqReader(lease(peer))
        reader.seek({LOG: 0})
        found = [reader.poll(1, WAIT_S)[LOG] for _ in range(2)]
        reader.close()
    assert [(read.records.values, read.next, read.idle) for read in found] == [((b"a",), 1, False), ((b"b",), 2, True)]


@pytest.mark.parametrize(("at", "what"), [(1, "5 to 6"), (9, "5 to 6")])
def test_an_expired_or_missing_offset_is_looked_at(at: int, what: str) -> None:
    with broker({RequestCode.PULL: queue(of(b"a", start=5), 5)}) as peer:
        reader = RocketMqReader(lease(peer))
        reader.seek({LOG: at})
        [read] = reads(reader, 1)
        reader.close()
    assert (type(read.error), what in str(read.error), read.lost) == (Retry, True, 0)


def lossy(*there: int, next_: int) -> Callable[[dict[str, Any]], bytes]:
    """A queue up to offset 10 whose broker has only these messages of the first pull and has not moved its start."""

    def pull(request: dict[str, Any]) -> bytes:
        at, bounds = int(request["extFields"]["queueOffset"]), {"minOffset": "0", "maxOffset": "10"}
        if at >= next_:
            body = Message(b"%d" % at, offset=at).encoded()
            return answer(request, body=body, nextBeginOffset=str(at + 1), **bounds)
        body = b"".join(Message(b"%d" % offset, offset=offset).encoded() for offset in there)
        code = ResponseCode.OK if there else ResponseCode.PULL_AGAIN
        return answer(request, code, body=body, nextBeginOffset=str(next_), **bounds)

    return pull


@pytest.mark.parametrize(
    ("there", "next_", "found"),
    [
        ((), 5, [((), 5, 5), ((b"5",), 6, 0)]),
        ((3, 4), 5, [((), 3, 3), ((b"3", b"4"), 5, 0)]),
        ((0, 1, 4), 5, [((b"0", b"1"), 2, 0), ((), 4, 2), ((b"4",), 5, 0)]),
        ((0,), 5, [((b"0",), 1, 0), ((), 5, 4), ((b"5",), 6, 0)]),
    ],
)
def test_messages_that_expired_before_they_were_read_are_lost(
    there: tuple[int, ...], next_: int, found: list[Any]
) -> None:
    with broker({RequestCode.PULL: lossy(*there, next_=next_)}) as peer:
        reader = RocketMqReader(lease(peer))
        reader.seek({LOG: 0})
        given = reads(reader, len(found))
        reader.close()
    assert [(read.records.values, read.next, read.lost) for read in given] == found


@pytest.mark.parametrize(
    ("there", "next_", "lost", "then"), [((), 2, 0, (2,)), ((), 4, 2, (4,)), ((4,), 5, 2, (4,)), ((2,), 3, 0, (2,))]
)
def test_a_last_message_that_expired_is_no_sign_of_another_topic(
    there: tuple[int, ...], next_: int, lost: int, then: tuple[int, ...]
) -> None:
    """The pull of it finds nothing, or a later message."""
    pulls = {RequestCode.PULL: lossy(next_=0)}
    with broker(pulls) as peer:
        reader = RocketMqReader(lease(peer))
        reader.seek({LOG: 0})
        reads(reader, 2)
        pulls[RequestCode.PULL] = lossy(*there, next_=next_)
        reader.seek({LOG: 1})
        reader.seek({LOG: 2})
        found = reads(reader, 1)
        while found[-1].error is None and not found[-1].records.offsets:
            found += reads(reader, 1)
        reader.close()
    assert (found[-1].error, found[-1].records.offsets, sum(read.lost for read in found)) == (None, then, lost)


@pytest.mark.parametrize("left", [(b"c",), ()])
def test_a_queue_goes_on_when_all_that_was_read_has_expired(pulls: dict[RequestCode, Any], left: tuple[bytes]) -> None:
    with broker(pulls) as peer:
        reader = RocketMqReader(lease(peer, position=Position(2, {"place": 1})))
        pulls[RequestCode.PULL] = queue(of(*left, start=2), 2)
        reader.seek({LOG: 2})
        found = reads(reader, 2)
        reader.close()
    assert [(read.error, read.records.values, read.lost) for read in found] == [(None, (), 0), (None, left, 0)]


def test_a_queue_whose_offsets_go_back_stops() -> None:
    with broker({RequestCode.PULL: lossy(0, 1, 0, next_=5)}) as peer:
        reader = RocketMqReader(lease(peer))
        reader.seek({LOG: 0})
        [_, read] = reads(reader, 2)
        reader.close()
    assert (type(read.error), "in order" in str(read.error)) == (Stop, True)


def test_a_topic_made_anew_is_not_read(pulls: dict[RequestCode, Any]) -> None:
    with broker(pulls) as peer:
        reader = RocketMqReader(lease(peer))
        reader.seek({LOG: 0})
        reads(reader, 2)
        pulls[RequestCode.PULL] = queue(of(b"new a", b"new b", b"new c", stored=100))
        reader.seek({LOG: 2})
        reader.seek({LOG: 1})
        reader.seek({LOG: 2})
        [read] = reads(reader, 1)
        reader.close()
    assert (type(read.error), "recreated" in str(read.error)) == (Stop, True)


@pytest.mark.parametrize(("stored", "error"), [(0, type(None)), (100, Stop)])
def test_the_reader_of_the_next_lease_notices_a_topic_made_anew(
    pulls: dict[RequestCode, Any], stored: int, error: type
) -> None:
    with broker(pulls) as peer:
        reader = RocketMqReader(lease(peer))
        reader.seek({LOG: 0})
        place = reads(reader, 2)[-1].place
        reader.close()
        pulls[RequestCode.PULL] = queue(of(b"a", b"b", b"c", stored=stored))
        reader = RocketMqReader(lease(peer, position=Position(2, {"place": place})))
        reader.seek({LOG: 2})
        [read] = reads(reader, 1)
        reader.close()
    assert type(read.error) is error


def together(messages: list[Message]) -> Callable[[dict[str, Any]], bytes]:
    """A queue of these messages, which are all in one response."""

    def pull(request: dict[str, Any]) -> bytes:
        at, end = int(request["extFields"]["queueOffset"]), len(messages)
        body = b"".join(message.encoded() for message in messages[at:])
        code = ResponseCode.OK if body else ResponseCode.PULL_NOT_FOUND
        return answer(request, code, body=body, nextBeginOffset=str(end), minOffset="0", maxOffset=str(end))

    return pull


@pytest.mark.parametrize("count", [2, 40])
def test_every_message_of_a_pull_is_another_one(count: int) -> None:
    """Few messages are decoded one by one, more of them as arrays."""
    made = of(*(b"%d" % n for n in range(count)))
    with broker({RequestCode.PULL: together(made)}) as peer:
        reader = RocketMqReader(lease(peer))
        reader.seek({LOG: 0})
        read = reader.poll(1_000, WAIT_S)[LOG]
        reader.close()
    assert [*read.records.columns().values] == [message.body for message in made]


def test_a_body_that_cannot_be_opened_is_refused_for_another_system() -> None:
    """Messages before it are read with it, and those after it on their own, also by a connection that repeats it."""
    made = of(b"a", b"damaged", b"c")
    made[1] = replace(made[1], sys=closed(b"", LZ4)[1])
    with broker({RequestCode.PULL: together(made)}) as peer:
        held = lease(peer)
        reader = RocketMqReader(replace(held, target=replace(held.target, system="kafka")))
        reader.seek({LOG: 0})
        found = reads(reader, 1)
        reader.seek({LOG: 1})
        reader.seek({LOG: 2})
        found += reads(reader, 1)
        reader.close()
    assert [(read.records.values, read.next, bool(read.refused), read.idle) for read in found] == [
        ((b"a", b"damaged"), 2, True, False),
        ((b"c",), 3, False, True),
    ]


LIGHT = b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02"
IN_ITS_QUEUE = LIGHT + b"INNER_MULTI_QUEUE_OFFSET\x017\x02"


@pytest.mark.parametrize(
    ("properties", "system", "transform", "refused"),
    [
        (IN_ITS_QUEUE, "rocketmq", "", True),
        (IN_ITS_QUEUE, "rocketmq", "module:function", True),
        (IN_ITS_QUEUE, "kafka", "", False),
        (LIGHT, "rocketmq", "", False),
    ],
)
def test_a_message_in_light_queues_is_refused_for_a_system_that_has_them(
    properties: bytes, system: str, transform: str, refused: bool
) -> None:
    """A broker that has no light queues stores no offsets in them."""
    made = of(*(b"%d" % n for n in range(40)))
    made[39] = replace(made[39], properties=properties)
    with broker({RequestCode.PULL: together(made)}) as peer:
        held = lease(peer)
        reader = RocketMqReader(replace(held, target=replace(held.target, system=system), transform=transform))
        reader.seek({LOG: 0})
        read = reader.poll(1_000, WAIT_S)[LOG]
        reader.close()
    assert (len(read.records.offsets), "light queues" in read.refused) == (40, refused)


def test_only_the_last_of_the_records_is_refused() -> None:
    made = of(b"a", b"damaged")
    made[1] = replace(made[1], sys=closed(b"", LZ4)[1])
    with broker({RequestCode.PULL: together(made)}) as peer:
        held = lease(peer)
        reader = RocketMqReader(replace(held, target=replace(held.target, system="kafka")))
        reader.seek({LOG: 0})
        found = [reader.poll(1, WAIT_S)[LOG] for _ in range(2)]
        reader.close()
    assert [(read.records.values, bool(read.refused)) for read in found] == [((b"a",), False), ((b"damaged",), True)]


def test_messages_for_which_there_is_no_room_are_read_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "ROOM", 1)
    body, sys = closed(b"long" * 100, LZ4)
    with broker({RequestCode.PULL: together([replace(each, sys=sys) for each in of(body, body, body)])}) as peer:
        held = lease(peer)
        reader = RocketMqReader(replace(held, target=replace(held.target, system="kafka")))
        reader.seek({LOG: 0})
        found = reads(reader, 3)
        reader.close()
    assert [(read.records.offsets, read.idle) for read in found] == [((0,), False), ((1,), False), ((2,), True)]


def test_a_queue_goes_on_after_a_lost_connection() -> None:
    pull, lost = queue(of(b"a", b"b")), iter([True])

    def lose_once(request: dict[str, Any]) -> bytes | None:
        return None if request["extFields"]["queueOffset"] == "1" and next(lost, False) else pull(request)

    with broker({RequestCode.PULL: lose_once}) as peer:
        reader = RocketMqReader(lease(peer))
        reader.seek({LOG: 0})
        found = reads(reader, 2)
        reader.seek({LOG: 1})
        found += reads(reader, 2)
        reader.close()
    assert [(type(read.error), read.records.values) for read in found] == [
        (type(None), (b"a",)),
        (Retry, ()),
        (type(None), ()),
        (type(None), (b"b",)),
    ]


def test_a_queue_that_lost_its_end_and_grew_again_is_noticed_after_a_lost_connection(
    pulls: dict[RequestCode, Any],
) -> None:
    """As after a crash of its broker."""
    with broker(pulls) as peer:
        reader = RocketMqReader(lease(peer))
        reader.seek({LOG: 0})
        reads(reader, 2)
        pulls[RequestCode.PULL] = lambda _: None
        failed = [type(error_of(reader).error)]
        pulls[RequestCode.PULL] = queue(of(b"a", b"other b", b"c", stored=9_000))
        while failed[-1] is Retry and len(failed) < MOST:  # pulls that were sent before are also lost
            reader.seek({LOG: 2})
            failed += [type(read.error) for read in reads(reader, 1)]
        reader.close()
    assert (failed[0], failed[-1]) == (Retry, Stop)


def test_a_queue_that_lost_its_last_message_is_looked_at(pulls: dict[RequestCode, Any]) -> None:
    with broker(pulls) as peer:
        reader = RocketMqReader(lease(peer))
        reader.seek({LOG: 0})
        reads(reader, 2)
        pulls[RequestCode.PULL] = queue(of(b"a"))
        reader.seek({LOG: 1})
        reader.seek({LOG: 2})
        [read] = reads(reader, 1)
        reader.close()
    assert (type(read.error), "0 to 1" in str(read.error)) == (Retry, True)


def test_a_broker_that_is_not_there_is_named(pulls: dict[RequestCode, Any]) -> None:
    other = LOG._replace(place="broker-b")
    with broker(pulls) as peer:
        reader = RocketMqReader(lease(peer))
        reader.seek({LOG: 0, other: 0})
        found = reader.poll(1_000, WAIT_S)
        reader.close()
    assert (BROKER in str(found[other].error), "broker-b" in str(found[other].error)) == (False, True)
