"""The writer of the generic pump, with brokers that respond as told."""

import socket
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from tests.unit.descriptors import taken
from trueup.connectors.contract import Assignment, Endpoint, Lease, LogId, Position
from trueup.connectors.kafka.client.cluster import KafkaClient
from trueup.connectors.kafka.client.fetch_produce import problem, text
from trueup.connectors.kafka.protocol.compression import opened
from trueup.connectors.kafka.protocol.record_batch import CODEC, HEADER_BYTES, BatchHeader, walk
from trueup.connectors.kafka.protocol.records import parsed
from trueup.connectors.kafka.replication.records import producers
from trueup.connectors.kafka.replication.records import writer as wire
from trueup.connectors.kafka.replication.records.encode import BATCH_BYTES
from trueup.connectors.kafka.replication.records.topic_identity import Identity
from trueup.connectors.kafka.replication.records.writer import WireWriter
from trueup.connectors.readiness import readable
from trueup.connectors.replication.ports import Columns
from trueup.state.common.errors import Retry, Stop
from trueup.state.replication.provenance import HEADER, SINGLE, Tag, producer_id, tag_of

SENT_AGAIN = 6
A, B = LogId("copy", 0), LogId("copy", 1)
LOST, TOO_LARGE, TIMED_OUT, UNKNOWN, INVALID, DENIED = -100, 10, 7, 3, 87, 29


class Broker:
    """A leader. ``errors``: its next responses, by partition; afterwards it accepts batches of at most ``most`` bytes
    without a value of ``bad`` bytes."""

    buffered = True

    def __init__(self) -> None:
        self.errors: dict[int, list[int]] = {}
        self.stored: dict[int, list[BatchHeader]] = {0: [], 1: []}
        self.ends = {0: 0, 1: 0}
        self.closed = 0
        self.most, self.bad = 1 << 30, -1
        self.asked = 0
        self.epochs: dict[int, int] = {}
        self._responses: list[bytes | None] = []

    def takes(self, _key: int, _version: int) -> bool:
        return False

    def send(self, _key: int, _version: int, *parts: Any) -> None:
        found, lost = [], False
        for place, batch in zip(parts[2::2], parts[3::2], strict=True):
            number = struct.unpack_from(">i", place)[0]
            [(header, body)] = walk(memoryview(bytes(batch)))
            self.asked += 1
            left = self.errors.get(number, [])
            error = left.pop(0) if left else self._judged(header, body)
            lost |= error == LOST
            found.append(struct.pack(">ihqqq", number, max(0, error), self.ends[number], -1, 0))
            if error in (0, LOST):
                self.stored[number].append(header)
                self.ends[number] += header.records
        body = struct.pack(">i", 1) + text("copy") + struct.pack(">i", len(found)) + b"".join(found) + bytes(4)
        self._responses.append(None if lost else body)

    def _judged(self, header: BatchHeader, batch: memoryview) -> int:
        raw = opened(header.attributes & CODEC, batch[HEADER_BYTES:], "a batch")
        records = parsed([(header, raw)], "a batch")
        if (records.value_end - records.value_at == self.bad).any():
            return INVALID
        return TOO_LARGE if len(raw) > self.most else 0

    def receive(self) -> memoryview:
        body = self._responses.pop(0)
        if body is None:
            raise Retry("a response", "the connection broke", "it is retried")
        return memoryview(body)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()
    monkeypatch.setattr(wire, "readable", lambda *_: [])
    monkeypatch.setattr(wire, "_AGAIN_S", 0.0)
    monkeypatch.setattr(KafkaClient, "refresh", lambda *_: None)
    monkeypatch.setattr(KafkaClient, "leader", lambda *_: 1)
    monkeypatch.setattr(KafkaClient, "take", lambda *_: made)
    monkeypatch.setattr(KafkaClient, "epochs", lambda _, logs: dict.fromkeys(logs, made.epochs))
    monkeypatch.setattr(Identity, "unsure", lambda *_: {})
    return made


@pytest.fixture
def writer(broker: Broker) -> Iterator[WireWriter]:
    ends = (Endpoint(name, "localhost:1", bit) for bit, name in enumerate(("east", "west")))
    assignments = tuple(Assignment(LogId("orders", log.number), log, Position(), 0) for log in (A, B))
    made = WireWriter(Lease("link", *ends, 1, "records", assignments))
    yield made
    made.close()


def columns(count: int, size: int = 1) -> Columns:
    rows = range(count)
    return Columns(rows, [None] * count, [b"v" * size] * count, [1_700_000_000_000] * count, [()] * count)


def places(headers: Iterable[BatchHeader]) -> list[tuple[int, int, int]]:
    return [(header.epoch, header.sequence, header.records) for header in headers]


def test_sequence_numbers_go_on_from_write_to_write(broker: Broker, writer: WireWriter) -> None:
    assert [*writer.write({A: columns(2), B: columns(3)})[B].offsets] == [0, 1, 2]
    assert [*writer.write({A: columns(4)})[A].offsets] == [2, 3, 4, 5]
    assert places(broker.stored[0]) == [(0, 0, 2), (0, 2, 4)]
    assert places(broker.stored[1]) == [(0, 0, 3)]


def test_a_connection_is_kept_behind_many_descriptors(
    broker: Broker, writer: WireWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "readable", readable)
    with taken():
        here, there = socket.socketpair()
        with here, there:
            monkeypatch.setattr(Broker, "fileno", lambda _: here.fileno(), raising=False)
            assert [[*writer.write({A: columns(1)})[A].offsets] for _ in range(2)] == [[0], [1]]
    assert broker.closed == 0


def test_a_write_that_is_prepared_while_another_is_in_flight_goes_on_after_it(
    broker: Broker, writer: WireWriter
) -> None:
    first = writer.prepare({A: columns(2)})
    first.send()
    second = writer.prepare({A: columns(3)})
    assert [*first.written()[A].offsets] == [0, 1]
    assert places(broker.stored[0]) == [(0, 0, 2)]
    second.send()
    assert [*second.written()[A].offsets] == [2, 3, 4]
    assert places(broker.stored[0]) == [(0, 0, 2), (0, 2, 3)]


def test_a_write_that_was_prepared_before_a_response_was_lost_has_the_next_epoch(
    broker: Broker, writer: WireWriter
) -> None:
    broker.errors[0] = [LOST]
    first, second = writer.prepare({A: columns(2)}), writer.prepare({A: columns(3)})
    first.send()
    assert isinstance(first.written()[A].error, Retry)
    second.send()
    second.written()
    assert places(broker.stored[0]) == [(0, 0, 2), (1, 0, 3)]


def test_large_writes_are_several_batches_one_after_another(broker: Broker, writer: WireWriter) -> None:
    done = writer.write({A: columns(3, BATCH_BYTES - 100)})[A]
    assert [*done.offsets] == [0, 1, 2]
    assert places(broker.stored[0]) == [(0, 0, 1), (0, 1, 1), (0, 2, 1)]


@pytest.mark.parametrize("error", [TOO_LARGE, TIMED_OUT])
def test_nothing_is_written_behind_a_batch_that_is_not_acknowledged(
    broker: Broker, writer: WireWriter, error: int
) -> None:
    broker.errors[0] = [0, error]
    done = writer.write({A: columns(3, BATCH_BYTES - 100), B: columns(1)})
    assert [*done[A].offsets] == [0]
    assert len(broker.stored[0]) == 1
    assert bool(done[A].refused) == (error == TOO_LARGE)
    assert isinstance(done[A].error, Retry) == (error == TIMED_OUT)
    assert [*done[B].offsets] == [0]
    assert done[B].error is None


def sizes(*sizes: int) -> Columns:
    given = columns(len(sizes))
    return given._replace(values=[b"v" * size for size in sizes])


def test_a_refused_batch_is_divided_until_the_refused_record_is_alone(broker: Broker, writer: WireWriter) -> None:
    broker.bad = 7
    done = writer.write({A: sizes(*[5] * 500, 7, *[5] * 499)})[A]
    assert ([*done.offsets], "Broker failed to validate record" in done.refused, done.alone) == (
        [*range(500)],
        True,
        True,
    )
    assert broker.asked < 30


def test_a_refused_record_takes_no_sequence_numbers(broker: Broker, writer: WireWriter) -> None:
    broker.bad = 7
    writer.write({A: columns(2)})
    writer.write({A: sizes(7)})
    writer.write({A: columns(1)})
    assert places(broker.stored[0]) == [(0, 0, 2), (0, 2, 1)]


def test_batches_that_are_too_large_for_a_topic_become_smaller_and_stay_so(broker: Broker, writer: WireWriter) -> None:
    broker.most = 100_000
    written = [writer.write({A: columns(1_000, 1_000)})[A] for _ in range(2)]
    assert [len(done.offsets) for done in written] == [1_000, 1_000]
    assert broker.asked == 2 + len(broker.stored[0])


def test_batches_become_no_smaller_because_of_one_large_record(broker: Broker, writer: WireWriter) -> None:
    broker.most = 100_000
    assert len(writer.write({A: sizes(1_000, 1_000, 200_000)})[A].offsets) == 2
    broker.most, before = 1 << 30, broker.asked
    writer.write({A: columns(1_000, 900)})
    assert broker.asked == before + 1


def test_a_topic_that_refuses_its_client_is_asked_once(broker: Broker, writer: WireWriter) -> None:
    broker.errors[0] = [DENIED] * 2
    done = writer.write({A: columns(9)})[A]
    assert (len(done.offsets), type(done.error), done.refused, broker.asked) == (0, Stop, "", 1)


def test_after_a_lost_response_the_producer_has_another_epoch(broker: Broker, writer: WireWriter) -> None:
    writer.write({B: columns(1)})
    broker.errors[0] = [LOST]
    lost = writer.write({A: columns(2)})[A]
    assert isinstance(lost.error, Retry)
    assert broker.closed == 1
    writer.write({A: columns(3), B: columns(1)})
    assert places(broker.stored[0]) == [(0, 0, 2), (1, 0, 3)]
    assert places(broker.stored[1]) == [(0, 0, 1), (1, 0, 1)]


def test_after_the_last_epoch_the_producer_has_another_id(
    broker: Broker, writer: WireWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "LAST_EPOCH", 0)
    broker.errors[0] = [LOST]
    writer.write({A: columns(1)})
    writer.write({A: columns(1)})
    assert [header.epoch for header in broker.stored[0]] == [0, 0]
    assert len({header.producer_id for header in broker.stored[0]}) == 2


def test_a_producer_begins_with_an_epoch_that_the_leader_has_not_seen(broker: Broker, writer: WireWriter) -> None:
    broker.epochs = {producer_id(1, 1, mark): 5 for mark in SINGLE}
    writer.write({A: columns(1)})
    assert places(broker.stored[0]) == [(6, 0, 1)]


def test_a_batch_says_which_clusters_its_records_passed(broker: Broker, writer: WireWriter) -> None:
    rows = columns(4)._replace(headers=[[(HEADER, b"east#0")], [(HEADER, b"east#0")], [(HEADER, b"west#1,east#0")], []])
    assert [*writer.write({A: rows})[A].offsets] == [0, 1, 2, 3]
    found = [(tag_of(header.producer_id), header.sequence, header.records) for header in broker.stored[0]]
    assert found == [(Tag(0b01, 1, False), 0, 2), (Tag(0b11, 1, False), 0, 1), (Tag(0b01, 1, False), 2, 1)]


def test_a_refused_record_among_those_of_several_paths_is_found(broker: Broker, writer: WireWriter) -> None:
    broker.bad = 7
    paths: list[list[tuple[str, bytes | None]]] = [[(HEADER, b"east#0")], [(HEADER, b"west#1,east#0")]]
    rows = sizes(5, 5, 5, 7, 5)._replace(headers=[paths[n // 2 % 2] for n in range(5)])
    done = writer.write({A: rows})[A]
    assert ([*done.offsets], done.alone) == ([0, 1, 2], True)


def test_a_leader_whose_producers_are_not_known_gets_no_batch(
    broker: Broker, writer: WireWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KafkaClient, "epochs", lambda _, logs: dict.fromkeys(logs, problem(29, "describe producers")))
    done = writer.write({A: columns(1)})[A]
    assert (broker.asked, "READ" in str(done.error)) == (0, True)


def test_a_batch_that_was_not_appended_is_sent_again(broker: Broker, writer: WireWriter) -> None:
    broker.errors[0] = [SENT_AGAIN, SENT_AGAIN]
    done = writer.write({A: columns(3, BATCH_BYTES - 100), B: columns(1)})
    assert [*done[A].offsets] == [0, 1, 2]
    assert places(broker.stored[0]) == [(0, 0, 1), (0, 1, 1), (0, 2, 1)]
    assert places(broker.stored[1]) == [(0, 0, 1)]


def test_a_partition_may_be_unknown_for_a_while(
    broker: Broker, writer: WireWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "_PATIENCE_S", 0.0)
    broker.errors[0] = [UNKNOWN] * 2
    assert isinstance(writer.write({A: columns(1)})[A].error, Retry)
    monkeypatch.setattr(wire, "_KNOWN_S", 0.0)
    assert isinstance(writer.write({A: columns(1)})[A].error, Stop)


def test_a_partition_without_a_leader_does_not_stop_others(
    broker: Broker, writer: WireWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leader(_client: KafkaClient, log: LogId) -> int:
        if log == A:
            raise problem(5, "find the leader")
        return 1

    monkeypatch.setattr(wire, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(KafkaClient, "leader", leader)
    done = writer.write({A: columns(1), B: columns(1)})
    assert isinstance(done[A].error, Retry)
    assert [*done[B].offsets] == [0]
    assert broker.closed == 0
