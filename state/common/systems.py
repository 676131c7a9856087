"""The log systems that settings can name: valid names of their topics, and names that are reserved.

The key of a system is the section of the settings that declares its clusters.
"""

import re
from typing import NamedTuple


class System(NamedTuple):
    """``title``: its name in messages; ``topic``: valid topic names; ``internal``: internal topics of the system and of
    its tools; ``address``: the settings key of a cluster's servers, host:port[,host:port...]."""

    title: str
    topic: re.Pattern[str]
    internal: re.Pattern[str]
    address: str

    def allows(self, topic: str) -> bool:
        """Whether this is a valid topic name."""
        return self.topic.fullmatch(topic) is not None


SYSTEMS = {
    # Valid names: org.apache.kafka.common.internals.Topic. Internal: topics of Kafka and of MirrorMaker 2.
    "kafka": System(
        "Kafka", re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}"),
        re.compile(r"__.*|mm2-.*\.internal|.*\.checkpoints\.internal"), "bootstrap",
    ),
    # Valid names: TopicValidator.java. Further internal topics, whose names other systems may use, or which are those
    # of brokers and clusters, are left out by the cluster's client.
    "rocketmq": System(
        "RocketMQ", re.compile(r"[%|a-zA-Z0-9_-]{1,127}"),
        re.compile(
            r"(?:rmq_sys|RMQ_SYS)_.*|%(?:RETRY|DLQ|SYS)%.*|SCHEDULE_TOPIC_XXXX(?:_V2)?|TBW102|SELF_TEST_TOPIC"
            r"|OFFSET_MOVED_EVENT|TRANS_CHECK_MAX_TIME_TOPIC"
        ),
        "namesrv",
    ),
}  # fmt: skip


def internal(name: str, prefix: str = "trueup") -> bool:
    """Whether a topic is internal to Trueup or to any system: the internal topics of one system have no meaning in
    another. ``prefix``: journal.prefix."""
    ours = tuple(f"{own}{end}" for own in ("trueup", prefix) for end in ".-")
    return name.startswith(ours) or any(system.internal.fullmatch(name) for system in SYSTEMS.values())
