"""The log systems that settings can name: valid names of their topics, and names that are reserved.

The key of a system is the section of the settings that declares its clusters.
"""

import re
from typing import Any, NamedTuple

from trueup.state.common.options import key

CLUSTERS = 32
"""The number of clusters that the path of a record can name; see `state.replication.provenance`."""


def cluster_bit() -> Any:
    """The key of a cluster with its number in the path of a record."""
    return key(
        doc="Number of this cluster in the path of a record; unique per cluster, identical in every configuration, "
        "and never changed",
        least=0,
        most=CLUSTERS - 1,
    )


class System(NamedTuple):
    """A log system that settings can name."""

    title: str
    """The name of the system in messages."""
    topic: re.Pattern[str]
    """The valid topic names."""
    internal: re.Pattern[str]
    """The names of topics of the system itself and of MirrorMaker 2."""
    address: str
    """The settings key with a cluster's servers, host:port[,host:port...]."""

    def allows(self, topic: str) -> bool:
        """Whether this is a valid topic name."""
        return self.topic.fullmatch(topic) is not None


SYSTEMS = {
    # Valid names: org.apache.kafka.common.internals.Topic. Internal: Topic.isInternal and the topics of KRaft and of
    # tiered storage; DefaultReplicationPolicy.isMM2InternalTopic.
    "kafka": System(
        "Kafka",
        re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}"),
        re.compile(
            r"__(?:consumer_offsets|transaction_state|share_group_state|cluster_metadata|remote_log_metadata)"
            r"|mm2.*\.internal|.*\.checkpoints\.internal"
        ),
        "bootstrap",
    ),
    # Valid names, and internal ones: TopicValidator.java, and that of its proxies: ProxyConfig.java. Further internal
    # topics, whose names other systems may use, or which are those of brokers and clusters, are left out by the
    # cluster's client.
    "rocketmq": System(
        "RocketMQ",
        re.compile(r"[%|a-zA-Z0-9_-]{1,127}"),
        re.compile(
            r"rmq_sys_.*|RMQ_SYS_(?:(?:ROCKSDB_)?TRANS_(?:OP_)?HALF|TRACE)_TOPIC|%(?:RETRY|DLQ|SYS)%.*"
            r"|SCHEDULE_TOPIC_XXXX(?:_V2)?|TBW102|SELF_TEST_TOPIC|OFFSET_MOVED_EVENT|TRANS_CHECK_MAX_TIME_TOPIC"
            r"|DefaultHeartBeatSyncerTopic"
        ),
        "namesrv",
    ),
}
TOOLS = "__"
"""Tools begin the names of their topics with this, and MirrorMaker leaves such topics out by default
(DefaultTopicFilter). For Kafka they are topics like others, so a setting may name them."""


def internal(name: str, prefix: str = "trueup") -> bool:
    """Whether a topic is internal to Trueup or to any system: the internal topics of one system have no meaning in
    another. ``prefix``: journal.prefix."""
    ours = tuple(f"{own}{end}" for own in ("trueup", prefix) for end in ".-")
    return name.startswith(ours) or any(system.internal.fullmatch(name) for system in SYSTEMS.values())
