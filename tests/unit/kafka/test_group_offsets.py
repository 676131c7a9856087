"""Consumer groups of an unreachable cluster."""

import struct
import threading

import pytest
from kafka import TopicPartition
from kafka import errors as kafka_errors
from kafka.protocol.consumer import OffsetFetchResponse
from kafka.structs import OffsetAndMetadata

from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.embedded.processes import free_port, wait_until
from trueup.connectors.kafka.client.commit_marks import mark
from trueup.connectors.kafka.client.group_offsets import KafkaGroups
from trueup.connectors.kafka.client.kafka_python import CleanClient, commit_request
from trueup.connectors.replication.ports import GroupCommits
from trueup.state.common.errors import BadBytes, BadSettings, Retry


def test_a_cluster_that_does_not_answer_is_tried_again_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    groups = KafkaGroups(Endpoint("gone", f"127.0.0.1:{free_port()}", 0), 0.2)
    for _ in range(2):
        with pytest.raises(Retry, match="gone to list its groups"):
            groups.states()
    wait_until(lambda: set(threading.enumerate()) <= before, 180.0, "no thread of ours")
    assert set(threading.enumerate()) <= before


def test_options_unknown_to_kafka_python_are_reported() -> None:
    options = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.config": "a=b"}
    with (
        KafkaGroups(Endpoint("east", "a:1", 0, options)) as groups,
        pytest.raises(BadSettings, match=r"sasl\.mechanism"),
    ):
        groups.offsets(["g"])


@pytest.mark.parametrize(
    "error", [IndexError("list index out of range"), TypeError("no buffer"), struct.error("short")]
)
def test_an_answer_that_kafka_python_cannot_read_is_one_error_and_ends_the_connection(error: Exception) -> None:
    class Unreadable:
        closed = False

        def list_groups(self) -> None:
            raise error

        def close(self) -> None:
            self.closed = True

    groups, client = KafkaGroups(Endpoint("east", "a:1", 0)), Unreadable()
    groups._client = client
    with pytest.raises(BadBytes, match="a response from east"):
        groups.states()
    assert client.closed


@pytest.mark.parametrize("version", range(2, 9))
def test_a_commit_has_the_bytes_of_the_client_library(version: int) -> None:
    marked = LogId("mail", 3)
    offsets = GroupCommits({LogId("orders", 0): 7, marked: 0, LogId("orders", 2): 1 << 40}, {marked: 5})
    notes = {marked: mark(5, 0)}
    theirs = {
        TopicPartition(*place[:2]): OffsetAndMetadata(offset, notes.get(place, ""), None)
        for place, offset in offsets.items()
    }
    known = CleanClient._alter_group_offsets_request("g", theirs)
    assert commit_request("g", offsets).encode(version=version) == known.encode(version=version)


def fetched(offset: int, error: int = 0, refused: int = 0, metadata: str | None = None) -> object:
    group = OffsetFetchResponse.OffsetFetchResponseGroup
    topic = group.OffsetFetchResponseTopics
    place = topic.OffsetFetchResponsePartitions(
        partition_index=3, committed_offset=offset, error_code=error, metadata=metadata
    )
    return group(group_id="g", error_code=refused, topics=[topic(name="mail", partitions=[place])])


@pytest.mark.parametrize(("offset", "expected"), [(7, {LogId("mail", 3): 7}), (-1, {})])
def test_a_partition_without_a_commit_has_no_place(offset: int, expected: dict[LogId, int]) -> None:
    assert CleanClient._parse_group_offsets(fetched(offset)) == expected


@pytest.mark.parametrize(("metadata", "paths"), [(mark(5, 7), {LogId("mail", 3): 5}), (mark(5, 6), {}), ("mine", {})])
def test_an_offset_that_a_link_committed_has_its_path(metadata: str, paths: dict[LogId, int]) -> None:
    assert CleanClient._parse_group_offsets(fetched(7, metadata=metadata)).paths == paths


@pytest.mark.parametrize(("error", "refused"), [(16, 0), (0, 16)])
def test_a_refused_group_or_partition_is_an_error(error: int, refused: int) -> None:
    with pytest.raises(kafka_errors.NotCoordinatorError):
        CleanClient._parse_group_offsets(fetched(7, error, refused))
