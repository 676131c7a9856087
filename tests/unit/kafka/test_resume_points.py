"""The state of a target partition, read from a broker that limits its clients (KIP-219)."""

import struct
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.kafka.client.cluster import KafkaClient
from trueup.connectors.kafka.protocol.record_batch import BatchHeader, assemble
from trueup.connectors.kafka.replication.batches.position import BatchPosition
from trueup.connectors.kafka.replication.batches.resume import ResumePoint, resume_points
from trueup.state.common.errors import Retry, TrueupError
from trueup.state.replication.provenance import producer_id

ORDERS = LogId("orders", 0)
WRITER_ID = 9
OURS = producer_id(1, WRITER_ID)
LIMITED = struct.pack(">ihii", 900, 0, 0, 0)
"""A response with a throttle time and without topics."""


class LimitedBroker(KafkaClient):
    """The leader of a partition with batches of one record of this link. It gives ``responses`` in turn."""

    def __init__(self, end: int, responses: Iterator[bytes]) -> None:
        super().__init__(Endpoint("west", "west:1", 1))
        self._leaders[ORDERS], self._nodes, self._end = 1, {1: ("west", 1)}, end
        self._connection_of_all: Any = SimpleNamespace(
            send=lambda *_: None, receive=lambda: memoryview(bytearray(next(responses)))
        )

    def asking(self, node: int) -> Any:
        return self._connection_of_all

    def ends(
        self, partitions: Iterable[LogId], which: int = -1, replica_id: int = -1
    ) -> dict[LogId, int | TrueupError]:
        return dict.fromkeys(partitions, 0 if which == -2 else self._end)

    def producers(self, partitions: Iterable[LogId]) -> dict[LogId, dict[int, int] | TrueupError]:
        return {partition: {OURS: self._end - 1} for partition in partitions}

    def resume_point(self) -> ResumePoint | TrueupError:
        return resume_points(self, {ORDERS: BatchPosition(0, {}, 0)}, WRITER_ID)[ORDERS]


def response(offset: int) -> bytes:
    """A response with the batch at an offset."""
    batch = bytes(assemble(BatchHeader(offset, 0, 0, 2, 0, 0, 0, 0, 0, OURS, 0, offset, 1), b"record"))
    topic = struct.pack(">h6si", 6, b"orders", 1)
    partition = struct.pack(">ihqqqii", 0, 0, offset + 1, offset + 1, 0, -1, len(batch))
    return struct.pack(">ihii", 0, 0, 0, 1) + topic + partition + batch


def test_a_limited_response_is_followed_by_another_request() -> None:
    found = LimitedBroker(1, iter([LIMITED, response(0)])).resume_point()
    assert isinstance(found, ResumePoint)
    assert [batch.offset for batch in found.own[OURS]] == [0]


def test_limited_responses_between_batches_do_not_add_up() -> None:
    responses = (each for offset in range(40) for each in (LIMITED, response(offset)))
    found = LimitedBroker(40, responses).resume_point()
    assert isinstance(found, ResumePoint)
    assert len(found.own[OURS]) == 40


def test_a_broker_that_gives_only_limited_responses_is_asked_later() -> None:
    found = LimitedBroker(10, iter([LIMITED] * 100)).resume_point()
    assert isinstance(found, Retry)
