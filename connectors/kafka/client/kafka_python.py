"""kafka-python's administrative client with corrections."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka import errors as kafka_errors
from kafka.admin import KafkaAdminClient
from kafka.protocol.admin import DescribeClusterRequest
from kafka.protocol.consumer import OffsetCommitRequest

from trueup.connectors.contract import LogId
from trueup.connectors.kafka.client import versions as versions
from trueup.connectors.kafka.client.commit_marks import mark, path_of
from trueup.connectors.replication.ports import GroupCommits

AT_ONCE = 32
"""Maximum requests in flight to a broker, for requests that wait only for the network."""
_Topic = OffsetCommitRequest.OffsetCommitRequestTopic


class _Place:
    """OffsetCommit's fields of one partition, for kafka-python's encoder. kafka-python's own class takes five times as
    long to create."""

    __slots__ = ("committed_metadata", "committed_offset", "partition_index")
    committed_leader_epoch = commit_timestamp = -1
    tags = unknown_tags = None

    def __init__(self, number: int, offset: int, metadata: str) -> None:
        self.partition_index, self.committed_offset, self.committed_metadata = number, offset, metadata


class CleanClient(KafkaAdminClient):  # type: ignore[misc]
    """An admin client that leaves no thread behind when it cannot connect, that refreshes its metadata for unknown
    brokers and the controller, that raises refusals to describe or alter settings, and that sets the offsets of many
    groups at once.

    Its metadata are at most five minutes old. A broker that was down when they were read is not in them, and every
    request to it would fail until the next read. The cached controller is used until it reports that it is not the
    controller any more, which a controller that is down never does.
    """

    def __init__(self, **configs: object) -> None:
        try:
            # A connection refuses requests at its limit.
            super().__init__(**{"max_in_flight_requests_per_connection": 2 * AT_ONCE, **configs})
        except kafka_errors.KafkaError:
            if hasattr(self, "_net"):
                self._client.close()
                self._net.stop()
            raise
        self._send = self._manager.send
        self._manager.send = self._send_known

    async def _send_known(self, request: Any, node_id: Any = None, request_timeout_ms: int | None = None) -> Any:
        await self._know(node_id)
        return await self._send(request, node_id, request_timeout_ms)

    async def _know(self, node_id: Any) -> None:
        cluster = self._manager.cluster
        if node_id is not None and cluster.broker_metadata(node_id) is None:
            await cluster.refresh_metadata()

    async def _send_request_to_controller(self, *request: Any, **more: Any) -> Any:
        self._controller_id = None
        return await super()._send_request_to_controller(*request, **more)

    async def _describe_cluster(self) -> dict[str, Any]:
        """kafka-python's own requires the field EndpointType, which brokers before 3.7 do not return (KIP-919)."""
        request = DescribeClusterRequest(include_cluster_authorized_operations=True, include_fenced_brokers=True)
        try:
            answer = await self._manager.send(request)
        except kafka_errors.IncompatibleBrokerVersion:  # before 2.8 there is no such request (KIP-700)
            cluster: dict[str, Any] = await super()._describe_cluster()
            return cluster
        if answer.error_code:
            raise kafka_errors.for_code(answer.error_code)(answer.error_message)
        described: dict[str, Any] = answer.to_dict()
        return described

    @staticmethod
    def _alter_configs_process_responses(responses: Iterable[Any]) -> None:
        """kafka-python's own returns a refusal as text that looks like a result."""
        _raise_refused(responses)

    @classmethod
    def _describe_configs_process_responses(
        cls, responses: Sequence[Any], config_filter: str = "modified"
    ) -> dict[str, Any]:
        """kafka-python's own returns a refused resource as one without settings."""
        _raise_refused(result for response in responses for result in response.results)
        configs: dict[str, Any] = super()._describe_configs_process_responses(responses, config_filter)
        return configs

    @staticmethod
    def _parse_group_offsets(group: Any) -> GroupCommits:
        """Use Trueup's types immediately: there are thousands of items, in the thread that all responses wait for."""
        refused = kafka_errors.for_code(group.error_code)
        if refused.errno:
            raise refused(f"for group {group.group_id!r}")
        offsets, paths = {}, {}
        for topic in group.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    raise kafka_errors.for_code(partition.error_code)(f"for partition {partition.partition_index}")
                if (offset := partition.committed_offset) >= 0:
                    offsets[log := LogId(topic.name, partition.partition_index)] = offset
                    if path := path_of(partition.metadata, offset):
                        paths[log] = path
        return GroupCommits(offsets, paths)

    def alter_offsets(self, asked: Mapping[str, GroupCommits]) -> dict[str, dict[LogId, str]]:
        """`alter_group_offsets` for several groups; the reason by partition, empty if it was not refused. Requests are
        sent concurrently: a thread that waits for a hundred responses one by one waits for the interpreter's lock as
        often."""
        answers: dict[str, dict[LogId, str]] = self._manager.run(self._alter_offsets, asked)
        return answers

    async def _alter_offsets(self, asked: Mapping[str, GroupCommits]) -> dict[str, dict[LogId, str]]:
        coordinators = await self._find_coordinator_ids(list(asked))
        sent: deque[tuple[str, Any]] = deque()
        answers = {}

        async def take() -> None:
            group, answer = sent.popleft()
            answers[group] = _refusals(await answer)

        for group, offsets in asked.items():
            if len(sent) == AT_ONCE:
                await take()
            await self._know(coordinators[group])
            sent.append((group, self._send(commit_request(group, offsets), coordinators[group])))
        while sent:
            await take()
        return answers


def commit_request(group: str, offsets: GroupCommits) -> Any:
    """An OffsetCommit of a client without a generation. At most version 7: version 8 only adds tagged
    fields, which double the encoding time."""
    topics: dict[str, list[_Place]] = {}
    for log, offset in offsets.items():
        path = offsets.paths.get(log, 0)
        topics.setdefault(log.topic, []).append(_Place(log.number, offset, mark(path, offset) if path else ""))
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        retention_time_ms=-1,
        topics=[_Topic(name=topic, partitions=places) for topic, places in topics.items()],
        max_version=7,
    )


def _raise_refused(results: Iterable[Any]) -> None:
    for result in results:
        if result.error_code:
            refused = kafka_errors.for_code(result.error_code)
            raise refused(result.error_message or refused.description)


def _refusals(answer: Any) -> dict[LogId, str]:
    return {
        LogId(topic.name, partition.partition_index): _refusal(partition.error_code) if partition.error_code else ""
        for topic in answer.topics
        for partition in topic.partitions
    }


def _refusal(code: int) -> str:
    error = kafka_errors.for_code(code)
    return f"{error.message}: {error.description}"
