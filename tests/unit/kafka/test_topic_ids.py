"""Fetch and Produce by topic id, compared with another encoder of the protocol."""

from random import Random
from typing import Any
from uuid import UUID

import pytest
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from trueup.connectors.contract import LogId
from trueup.connectors.kafka.client.fetch_produce import FETCH_VERSION, Fetched, FetchStart, Produced, fetched
from trueup.connectors.kafka.client.topic_ids import (
    BY_ID,
    IDS,
    fetch_by_id,
    fetched_by_id,
    id_of,
    ids_body,
    ids_found,
    produce_by_id,
    produced_by_id,
    text_of,
)
from trueup.state.common.errors import BadBytes, Retry, Stop, TrueupError

ONE, TWO = bytes(range(16)), bytes(range(200, 216))
ODD = b"\xfb\xef\xbe" * 5 + b"\xfb"
NAMES = {ONE: "one", TWO: "two"}
HEADER = b"\0"
"""The tagged fields after the correlation id of a response."""


def encoded(message: Any, version: int = BY_ID) -> bytes:
    return bytes(message.encode(version=version))


def fetch_answer() -> bytes:
    topic, part = FetchResponse.FetchableTopicResponse, FetchResponse.FetchableTopicResponse.PartitionData
    lost = part.AbortedTransaction(producer_id=9, first_offset=3)
    parts = [
        part(
            partition_index=n,
            error_code=error,
            high_watermark=50,
            last_stable_offset=40,
            log_start_offset=2,
            aborted_transactions=[lost] if n else None,
            preferred_read_replica=-1,
            records=b"x" * (300 * n),
        )
        for n, error in ((0, 100), (1, 0))
    ]
    topics = [topic(topic_id=UUID(bytes=each), partitions=parts) for each in (ONE, TWO)]
    return HEADER + encoded(FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=topics))


def test_a_fetch_is_asked_by_id() -> None:
    topic = FetchRequest.FetchTopic
    places = [
        topic.FetchPartition(
            partition=n,
            current_leader_epoch=-1,
            fetch_offset=offset,
            last_fetched_epoch=epoch,
            log_start_offset=-1,
            partition_max_bytes=1_000,
        )
        for n, offset, epoch in ((0, 5, -1), (7, 1 << 40, 3))
    ]
    theirs = FetchRequest(
        replica_id=-1,
        max_wait_ms=250,
        min_bytes=1,
        max_bytes=9_000,
        isolation_level=1,
        session_id=0,
        session_epoch=-1,
        topics=[topic(topic_id=UUID(bytes=ONE), partitions=places)],
        forgotten_topics_data=[],
        rack_id="",
    )
    ours = fetch_by_id({ONE: [FetchStart(0, 5), FetchStart(7, 1 << 40, 3)]}, 1_000, 9_000, 250, 1)
    assert ours[1:] == encoded(theirs)


def test_a_fetch_is_answered_by_id() -> None:
    found = fetched_by_id(memoryview(fetch_answer()), NAMES)
    none, some = (100, 50, 2, [], b""), (0, 50, 2, [(9, 3)], b"x" * 300)
    wanted = {LogId(name, n): Fetched(*want) for name in ("one", "two") for n, want in ((0, none), (1, some))}
    assert found == wanted


def answer_of(*parts: dict[str, object]) -> FetchResponse:
    """The response for partitions of a topic."""
    topic, part = FetchResponse.FetchableTopicResponse, FetchResponse.FetchableTopicResponse.PartitionData
    common = {
        "error_code": 0,
        "high_watermark": 50,
        "last_stable_offset": 40,
        "log_start_offset": 2,
        "aborted_transactions": None,
        "preferred_read_replica": -1,
    }
    made = [part(partition_index=number, **common, **own) for number, own in enumerate(parts)]
    one = topic(topic="one", topic_id=UUID(bytes=ONE), partitions=made)
    return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=[one])


@pytest.mark.parametrize(("end", "expected"), [(17, 17), (-1, 0)], ids=["an earlier epoch", "no earlier epoch"])
def test_a_leader_says_from_where_on_it_has_other_records(end: int, expected: int) -> None:
    differs = FetchResponse.FetchableTopicResponse.PartitionData.EpochEndOffset(epoch=3, end_offset=end)
    answer = answer_of({"records": b""}, {"records": b"", "diverging_epoch": differs})
    found = fetched_by_id(memoryview(HEADER + encoded(answer)), NAMES)
    assert [found[LogId("one", n)].differs_from for n in (0, 1)] == [-1, expected]


@pytest.mark.parametrize("by_id", [True, False])
def test_a_small_part_of_a_response_does_not_keep_the_rest_in_memory(by_id: bool) -> None:
    answer = answer_of({"records": b"x" * 100}, {"records": b"x" * (1 << 20)})
    body = memoryview(bytearray(HEADER + encoded(answer) if by_id else encoded(answer, FETCH_VERSION)))
    found = fetched_by_id(body, NAMES) if by_id else fetched(body)
    views = [found[LogId("one", n)].records.obj is body.obj for n in (0, 1)]
    assert (views, found[LogId("one", 0)].records) == ([False, True], b"x" * 100)


@pytest.mark.parametrize(("code", "kind"), [(6, Retry), (29, Stop)])
def test_an_error_of_the_whole_fetch_is_not_an_empty_response(code: int, kind: type[TrueupError]) -> None:
    answer = FetchResponse(throttle_time_ms=0, error_code=code, session_id=0, responses=[])
    for decode in (
        lambda: fetched_by_id(memoryview(HEADER + encoded(answer)), NAMES),
        lambda: fetched(memoryview(encoded(answer, FETCH_VERSION))),
    ):
        with pytest.raises(kind, match=f"error {code} "):
            decode()


def test_a_batch_is_written_by_id() -> None:
    topic = ProduceRequest.TopicProduceData
    data = [topic.PartitionProduceData(index=3, records=b"y" * 200)]
    theirs = ProduceRequest(
        transactional_id=None, acks=-1, timeout_ms=10, topic_data=[topic(name="two", partition_data=data)]
    )
    by_name = encoded(theirs, 12)
    ours = b"".join(produce_by_id({LogId("two", 3): b"y" * 200}, {"two": TWO}, 10))
    assert ours[1:] == by_name.replace(b"\x04two", TWO)


def test_a_write_is_answered_by_id() -> None:
    topic = ProduceResponse.TopicProduceResponse
    part = topic.PartitionProduceResponse
    wrong = part.BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message="bad")
    parts = [
        part(index=0, error_code=0, base_offset=77, log_append_time_ms=-1, log_start_offset=0, record_errors=[]),
        part(
            index=1,
            error_code=87,
            base_offset=-1,
            log_append_time_ms=-1,
            log_start_offset=-1,
            record_errors=[wrong],
            error_message="no key",
        ),
    ]
    by_name = encoded(ProduceResponse(responses=[topic(name="two", partition_responses=parts)]), 12)
    found = produced_by_id(memoryview(HEADER + by_name.replace(b"\x04two", TWO)), NAMES)
    assert found == {LogId("two", 0): Produced(0, 77), LogId("two", 1): Produced(87, -1)}


@pytest.mark.parametrize(("text", "wanted"), [("-" * 21 + "w", ODD), ("+" * 21 + "w", ODD), ("", b"")])
def test_an_id_is_read_in_either_alphabet(text: str, wanted: bytes) -> None:
    assert id_of(text) == wanted


def test_an_id_is_printed_as_brokers_print_it() -> None:
    assert text_of(ODD) == "-" * 21 + "w"


def test_damaged_responses_are_reported() -> None:
    chance, whole, reported = Random(6), fetch_answer(), 0
    for _ in range(3_000):
        raw = bytearray(whole[: chance.randrange(len(whole))] if chance.random() < 0.3 else whole)
        for _ in range(chance.randrange(1, 4)):
            if raw:
                raw[chance.randrange(min(len(raw), 120))] = chance.randrange(256)
        for decode in (fetched_by_id, produced_by_id):
            try:
                decode(memoryview(raw), NAMES)
            except TrueupError:
                reported += 1
    assert reported > 1_000


def metadata() -> bytes:
    topic, broker = MetadataResponse.MetadataResponseTopic, MetadataResponse.MetadataResponseBroker
    parts = [
        topic.MetadataResponsePartition(
            error_code=0,
            partition_index=n,
            leader_id=1,
            leader_epoch=3,
            replica_nodes=[1, 2],
            isr_nodes=[1],
            offline_replicas=[],
        )
        for n in range(200)
    ]
    given = [(0, "one", ONE), (3, "two", TWO), (0, "none", bytes(16))]
    topics = [
        topic(error_code=error, name=name, topic_id=UUID(bytes=each), is_internal=False, partitions=parts)
        for error, name, each in given
    ]
    brokers = [broker(node_id=n, host="h" * 200, port=n, rack=rack) for n, rack in ((1, None), (2, "r"))]
    answer = MetadataResponse(throttle_time_ms=0, brokers=brokers, cluster_id="c", controller_id=1, topics=topics)
    return HEADER + encoded(answer, IDS)


def test_ids_are_asked_for_without_creating_topics() -> None:
    asked = [MetadataRequest.MetadataRequestTopic(name=name) for name in ("one", "two")]
    assert ids_body(["one", "two"])[1:] == encoded(MetadataRequest(topics=asked, allow_auto_topic_creation=False), IDS)


def test_ids_of_topics_that_the_broker_has_are_found() -> None:
    assert ids_found(memoryview(metadata())) == {"one": ONE, "two": b"", "none": b""}


def test_ids_cut_off_are_an_error() -> None:
    whole = metadata()
    for size in range(0, len(whole), 37):
        with pytest.raises(BadBytes):
            ids_found(memoryview(whole[:size]))
