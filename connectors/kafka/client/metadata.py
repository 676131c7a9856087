"""Metadata of a cluster: topics and their settings, start and end of partitions, committed offsets of groups.

Every call takes a few requests, for any number of topics or partitions: one for the list of topics, one for
descriptions, one per broker for offsets. An error of one topic or partition is returned with it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import ClusterMetadata, ConfigResource, ConfigSource, OffsetSpec, ResourceType

from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.kafka.client.admin import Admin, missing
from trueup.connectors.kafka.client.group_offsets import KafkaGroups
from trueup.connectors.replication.ports import NEVER, Log
from trueup.state.common.errors import Retry, TrueupError
from trueup.state.replication.config_sync import Setting
from trueup.state.replication.settings import Start

_NO_TOPIC = "/"
"""A name that every broker rejects: the response describes only the cluster, and no topic is created."""
_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """A topic in the metadata of its cluster."""

    name: str
    id: str = ""
    """The id of the topic, which changes when the topic is deleted and recreated. Empty before Kafka 2.8."""
    internal: bool = False
    leaders: tuple[int, ...] = ()
    """The node of the leader of each partition, in the order of the partitions. -1: the partition has no leader."""
    replicas: int = 0
    configs: Mapping[str, Setting] = field(default_factory=dict)
    """All effective settings, if they were requested."""
    error: str = ""
    """Why the topic or its settings could not be read. Empty if there was no error."""

    @property
    def partitions(self) -> list[LogId]:
        """The partitions of the topic."""
        return [LogId(self.name, number) for number in range(len(self.leaders))]


class Discovery:
    """Reads one cluster and never changes it. Errors are those of `Admin`."""

    def __init__(self, endpoint: Endpoint, admin: Admin | None = None) -> None:
        self.admin = admin or Admin(endpoint)

    def close(self) -> None:
        """Close all connections."""
        self.admin.close()

    def cluster_id(self) -> str:
        """The id with which the cluster was formatted; it is unique."""
        # Not describe_cluster: librdkafka 2.16 terminates the process by an assertion (rd_kafka_admin_response_parse)
        # if a broker that has just started knows no broker yet.
        cluster_id: object = self._listed(_NO_TOPIC).cluster_id
        if not cluster_id:
            raise Retry(f"{self.admin.name} to have a cluster id", "none yet", "retrying; Kafka 2.8 has one")
        return str(cluster_id)

    def names(self) -> list[str]:
        """Names of all visible topics, including internal ones, sorted. Patterns are matched against this list."""
        return sorted(self._listed().topics)

    def _listed(self, *topic: str) -> ClusterMetadata:
        try:
            return self.admin.client.list_topics(*topic, timeout=self.admin.timeout_s)
        except KafkaException as error:
            raise self.admin.error("list its topics", error.args[0]) from error

    def topics(self, names: Iterable[str], configs: bool = True) -> dict[str, KafkaTopic]:
        """Those of ``names`` that exist, with all effective settings unless ``configs`` is false."""
        asked = sorted(set(names))
        if not asked:
            return {}
        answers = self.admin.ask_each("describe topic", self.admin.client.describe_topics, TopicCollection(asked))
        topics = {name: _topic(name, answer) for name, answer in answers.items() if not _absent(answer)}
        readable = [name for name, topic in topics.items() if not topic.error]
        settings = self.configs(readable) if configs else {}
        return {name: _configured(topic, settings.get(name, {})) for name, topic in topics.items()}

    def configs(self, names: Sequence[str]) -> dict[str, dict[str, Setting] | TrueupError]:
        """All effective settings of each topic, or the error (they require DESCRIBE_CONFIGS)."""
        if not names:
            return {}
        asked = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        answers = self.admin.ask_each("describe the settings of topic", self.admin.client.describe_configs, asked)
        return {
            resource.name: answer if isinstance(answer, TrueupError) else _configs(answer)
            for resource, answer in answers.items()
        }

    def logs(self, partitions: Iterable[LogId], committed_only: bool = True) -> dict[LogId, Log]:
        """Start and end of each partition. ``committed_only``: the end is before the first open transaction, as for
        readers of committed records; otherwise it is the offset of the next record (high watermark)."""
        asked = list(partitions)
        level = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
        starts = self._offsets(asked, _EARLIEST, IsolationLevel.READ_UNCOMMITTED)
        ends = self._offsets(asked, _LATEST, level)
        return {partition: _log(starts[partition], ends[partition]) for partition in asked}

    def starts(self, partitions: Iterable[LogId], start: Start) -> dict[LogId, int | TrueupError]:
        """The first offset to copy of each partition: `earliest`, `latest`, the first record at or after a `time` (the
        end if there is none), or the committed offset of a `group` (earliest if there is none). None is behind the
        first open transaction: its records are committed later."""
        asked = list(partitions)
        if start.kind == "earliest":
            return self._offsets(asked, _EARLIEST, IsolationLevel.READ_UNCOMMITTED)
        # Read first: records that arrive during the next request are copied.
        ends = self._offsets(asked, _LATEST, IsolationLevel.READ_COMMITTED)
        if start.kind == "latest":
            return ends
        if start.kind == "time":
            offsets = self._offsets(asked, OffsetSpec.for_timestamp(start.at_ms), IsolationLevel.READ_UNCOMMITTED)
        else:
            offsets = self._or_earliest(self._committed(start.group, asked))
        return {partition: _within(offsets[partition], end) for partition, end in ends.items()}

    def _committed(self, group: str, partitions: Sequence[LogId]) -> dict[LogId, int | TrueupError]:
        with KafkaGroups(self.admin.endpoint) as groups:
            offsets = groups.offsets([group])[group]
        if isinstance(offsets, TrueupError):
            raise offsets
        return {partition: offsets.get(partition, NEVER) for partition in partitions}

    def _or_earliest(self, offsets: Mapping[LogId, int | TrueupError]) -> dict[LogId, int | TrueupError]:
        """The offsets, with the earliest one for partitions without an offset."""
        none = [partition for partition, offset in offsets.items() if offset == NEVER]
        return {**offsets, **self._offsets(none, _EARLIEST, IsolationLevel.READ_UNCOMMITTED)}

    def _offsets(
        self, partitions: Sequence[LogId], spec: OffsetSpec, level: IsolationLevel
    ) -> dict[LogId, int | TrueupError]:
        if not partitions:
            return {}
        asked = {TopicPartition(topic, number): spec for topic, number, _ in partitions}
        answers = self.admin.ask_each("list offsets of", self.admin.client.list_offsets, asked, isolation_level=level)
        or_none = spec is not _EARLIEST and spec is not _LATEST
        return {
            LogId(place.topic, place.partition): self._offset(place, answer, or_none)
            for place, answer in answers.items()
        }

    def _offset(self, place: TopicPartition, answer: Any, or_none: bool) -> int | TrueupError:
        """The offset in a response. ``or_none``: it may be `NEVER`."""
        if isinstance(answer, TrueupError):
            return answer
        if answer.offset >= 0 or (or_none and answer.offset == NEVER):
            return int(answer.offset)
        # librdkafka 2.16 returned OFFSET_INVALID (-1001) without an error for partitions without a leader.
        expected = f"{self.admin.name} to list an offset of {place.topic}-{place.partition}"
        return Retry(expected, str(answer.offset), "retrying; the partition may have no leader yet")


def _within(offset: int | TrueupError, end: int | TrueupError) -> int | TrueupError:
    if isinstance(offset, TrueupError):
        return offset
    if isinstance(end, TrueupError):
        return end
    return end if offset == NEVER else min(offset, end)


def _absent(answer: object) -> bool:
    return isinstance(answer, TrueupError) and missing(answer)


def _topic(name: str, answer: Any) -> KafkaTopic:
    if isinstance(answer, TrueupError):
        return KafkaTopic(name, error=str(answer))
    ordered = sorted(answer.partitions, key=lambda partition: partition.id)
    leaders = tuple(-1 if partition.leader is None else partition.leader.id for partition in ordered)
    replicas = max((len(partition.replicas) for partition in ordered), default=0)
    return KafkaTopic(name, str(answer.topic_id), answer.is_internal, leaders, replicas)


def _configured(topic: KafkaTopic, settings: dict[str, Setting] | TrueupError) -> KafkaTopic:
    if isinstance(settings, TrueupError):
        return replace(topic, error=str(settings))
    return replace(topic, configs=settings)


def _configs(answer: Any) -> dict[str, Setting]:
    return {
        name: Setting(entry.value, entry.source == _OWN)
        for name, entry in answer.items()
        if entry.value is not None and not entry.is_sensitive
    }


def _log(start: int | TrueupError, end: int | TrueupError) -> Log:
    for bound in (start, end):
        if isinstance(bound, TrueupError):
            return Log(error=str(bound))
    return Log(int(start), int(end))  # type: ignore[arg-type]


_OWN = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
