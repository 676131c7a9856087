"""The list of streams, and what the application derives from it."""

from typing import TYPE_CHECKING

from trueup.streams.deletion.descriptor import DELETION
from trueup.streams.logdirs.descriptor import LOGDIRS
from trueup.streams.placement.descriptor import PLACEMENT
from trueup.streams.read_priority.descriptor import READ_PRIORITY
from trueup.streams.replication.descriptor import REPLICATION
from trueup.streams.runtime.descriptor import Descriptor

if TYPE_CHECKING:
    from trueup.state.common.rules import Rules
    from trueup.state.settings.settings import Declared, Settings
    from trueup.streams.runtime.metrics import Metrics

STREAMS: list[Descriptor] = [PLACEMENT, DELETION, REPLICATION, LOGDIRS, READ_PRIORITY]
"""Streams are created, started and reported in this order. Findings are those of the first one unless another one is
named, and its sections begin the page."""


def rules() -> "Rules":
    """The rules of all streams."""
    from trueup.state.common.rules import Rules

    return Rules([rule for stream in STREAMS for rule in stream.rules])


def sections() -> "Declared":
    """The sections of the settings that streams declare, each once."""
    return list(dict.fromkeys(section for stream in STREAMS for section in stream.settings))


def permanent_tasks(settings: "Settings") -> int:
    """The maximum number of Spark tasks that all streams together occupy permanently."""
    return sum(stream.tasks(settings) for stream in STREAMS)


def observed_topics() -> list[str]:
    """The journal's topics with observations of ZooKeeper, and with decisions based on them."""
    return [topic.name for stream in STREAMS for topic in stream.topics if topic.observed]


def observing() -> list[str]:
    """The streams that have such topics. The checkpoints of their queries have their names."""
    return [stream.name for stream in STREAMS if any(topic.observed for topic in stream.topics)]


def all_metrics(cluster: str = "bookkeeper") -> "Metrics":
    """The metrics of an application with those of all streams, including streams that are not configured."""
    from trueup.streams.runtime.metrics import Metrics

    metrics = Metrics(cluster=cluster)
    for stream in STREAMS:
        for part in stream.metrics:
            metrics.of(part)
    return metrics
