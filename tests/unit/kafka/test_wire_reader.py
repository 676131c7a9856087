"""The reader of the generic pump, with brokers that respond as told."""

import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest

from tests.unit.descriptors import taken
from tests.unit.kafka.test_pending import batch, values
from trueup.connectors.contract import Assignment, Endpoint, Lease, LogId, Position
from trueup.connectors.kafka.client.cluster import KafkaClient
from trueup.connectors.kafka.client.fetch_produce import OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC, FetchStart, problem, text
from trueup.connectors.kafka.replication.records import reader as wire
from trueup.connectors.kafka.replication.records.reader import WireReader
from trueup.connectors.replication.ports import Read
from trueup.connectors.replication.track import PLACE
from trueup.state.common.errors import Retry, Stop

LOG = LogId("orders", 0)
NOT_LEADER, LOST = 6, -100


class Broker:
    """A leader with one log. ``errors``: of its next responses."""

    buffered = True

    def __init__(self) -> None:
        self.log, self.end, self.errors, self.asked = b"", 0, list[int](), list[int]()
        self._ends = socket.socketpair()
        self.broken = False

    def fileno(self) -> int:
        return self._ends[0].fileno()

    def takes(self, _key: int, _version: int) -> bool:
        return False

    def send(self, _key: int, _version: int, body: bytes) -> None:
        if self.errors and self.errors[0] == LOST:
            self.errors.pop(0)
            raise Retry("a response", "the connection broke", "it is retried")
        self.asked.append(struct.unpack_from(">q", body, len(body) - 4 - 20)[0])

    def receive(self) -> memoryview:
        error = self.errors.pop(0) if self.errors else 0
        records = b"" if error or self.asked[-1] >= self.end else self.log
        head = struct.pack(">ihii", 0, 0, 0, 1) + text("orders") + struct.pack(">i", 1)
        part = struct.pack(">ihqqq", 0, error, self.end, self.end, 0) + struct.pack(">ii", 0, len(records))
        return memoryview(bytearray(head + part + records))

    def close(self) -> None:
        """The test closes the sockets."""

    def end_test(self) -> None:
        for each in self._ends:
            each.close()


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    with taken():
        yield


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    made = Broker()
    monkeypatch.setattr(KafkaClient, "refresh", lambda *_: None)
    monkeypatch.setattr(KafkaClient, "leader", lambda *_: 1)
    monkeypatch.setattr(KafkaClient, "take", lambda *_: made)
    yield made
    made.end_test()


def reader_at(position: Position, at: int) -> WireReader:
    """A reader of a lease from this position, which reads from an offset on."""
    ends = (Endpoint(name, "localhost:1", bit) for bit, name in enumerate(("east", "west")))
    made = WireReader(Lease("link", *ends, 1, "records", (Assignment(LOG, LogId("copy", 0), position, 0),)))
    made.seek({LOG: at})
    return made


@pytest.fixture
def reader(broker: Broker) -> Iterator[WireReader]:
    with closing(reader_at(Position(), 0)) as made:
        yield made


def polled(reader: WireReader) -> Read:
    """The result of the first poll that has one."""
    for _ in range(100):
        if found := reader.poll(100, 0.05):
            return found[LOG]
    raise AssertionError("nothing was read")


def test_the_next_records_are_asked_for_while_others_are_written(broker: Broker, reader: WireReader) -> None:
    broker.log, broker.end = batch(0, [b"a", b"b"]), 2
    assert values(polled(reader)) == [b"a", b"b"]
    assert broker.asked == [0, 2]


@pytest.mark.usefixtures("many_descriptors", "broker")
def test_a_poll_waits_for_a_leader_behind_many_descriptors(reader: WireReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Broker, "buffered", False)
    assert reader.poll(100, 0.01) == {}


def test_a_seek_to_the_next_record_keeps_what_was_read(broker: Broker, reader: WireReader) -> None:
    broker.log, broker.end = batch(0, [b"a", b"b"]), 2
    assert values(reader.poll(1, 0.05)[LOG]) == [b"a"]
    reader.seek({LOG: 1})
    assert values(polled(reader)) == [b"b"]
    assert broker.asked == [0, 2]


def test_a_seek_to_another_record_reads_again(broker: Broker, reader: WireReader) -> None:
    broker.log, broker.end = batch(0, [b"a", b"b"]), 2
    polled(reader)
    reader.seek({LOG: 1})
    assert values(polled(reader)) == [b"b"]


@pytest.mark.parametrize("error", [NOT_LEADER, LOST, UNKNOWN_TOPIC])
def test_an_error_that_passes_is_not_told(broker: Broker, reader: WireReader, error: int) -> None:
    broker.log, broker.end, broker.errors = batch(0, [b"a"]), 1, [error]
    assert values(polled(reader)) == [b"a"]


def test_an_error_that_does_not_pass_is_told(
    broker: Broker, reader: WireReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "_PATIENCE_S", -1.0)
    broker.errors = [NOT_LEADER]
    assert isinstance(polled(reader).error, Retry)


def test_a_topic_that_stays_unknown_stops_the_log(
    broker: Broker, reader: WireReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "_PATIENCE_S", -1.0)
    broker.errors = [UNKNOWN_TOPIC]
    assert isinstance(polled(reader).error, Stop)


def test_an_offset_that_is_gone_is_told_at_once(broker: Broker, reader: WireReader) -> None:
    broker.errors = [OFFSET_OUT_OF_RANGE]
    assert isinstance(polled(reader).error, Retry)


def test_a_partition_without_a_leader_is_waited_for(
    broker: Broker, reader: WireReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([5, 5])

    def leader(*_: Any) -> int:
        if (code := next(answers, None)) is not None:
            raise problem(code, "find the leader")
        return 1

    monkeypatch.setattr(KafkaClient, "leader", leader)
    broker.log, broker.end = batch(0, [b"a"]), 1
    assert values(polled(reader)) == [b"a"]


def test_a_damaged_batch_stops_the_log_if_it_stays_damaged(
    broker: Broker, reader: WireReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = bytearray(batch(0, [b"a"]))
    bad[-1] ^= 1
    broker.log, broker.end = bytes(bad), 1
    monkeypatch.setattr(wire, "_PATIENCE_S", 0.1)
    assert isinstance(polled(reader).error, Stop)


@pytest.fixture
def epochs(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The leader epochs that the broker is asked for."""
    asked, by_name = list[int](), wire.fetch_body

    def body(wanted: Mapping[str, Iterable[FetchStart]], *more: int) -> bytes:
        asked.extend(place.epoch for places in wanted.values() for place in places)
        return by_name(wanted, *more)

    monkeypatch.setattr(wire, "fetch_body", body)
    broker.log, broker.end = batch(5, [b"a", b"b"], epoch=4), 7
    return asked


@pytest.mark.parametrize(("known", "expected"), [({PLACE: 3}, [3, 4]), ({}, [-1, 4])])
def test_a_fetch_has_the_leader_epoch_of_the_records_before_it(
    epochs: list[int], known: dict[str, int], expected: list[int]
) -> None:
    with closing(reader_at(Position(5, known), 5)) as reader:
        read = polled(reader)
    assert (epochs, read.place) == (expected, 4)


def test_a_leader_that_may_not_know_the_epoch_is_asked_without_it(broker: Broker, epochs: list[int]) -> None:
    broker.errors = [OFFSET_OUT_OF_RANGE]
    with closing(reader_at(Position(5, {PLACE: 3}), 5)) as reader:
        assert isinstance(polled(reader).error, Retry)
        reader.seek({LOG: 5})
        polled(reader)
    assert epochs == [3, -1, 4]
