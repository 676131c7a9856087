"""The list of streams, and what the application derives from it."""

from typing import TYPE_CHECKING

from trueup.state.common.rules import Rules
from trueup.state.settings.settings import Sections
from trueup.streams.deletion.descriptor import DELETION
from trueup.streams.logdirs.descriptor import LOGDIRS
from trueup.streams.placement.descriptor import PLACEMENT
from trueup.streams.replication.descriptor import REPLICATION
from trueup.streams.runtime.descriptor import Descriptor

if TYPE_CHECKING:
    from trueup.streams.runtime.metrics import Metrics

STREAMS: list[Descriptor] = [PLACEMENT, DELETION, REPLICATION, LOGDIRS]
"""Streams are created, started and reported in this order. A stream may use earlier ones."""


def rules() -> Rules:
    """The rules of all streams."""
    return Rules([rule for stream in STREAMS for rule in stream.rules])


def sections() -> Sections:
    """The settings sections that streams declare."""
    return {stream.name: stream.settings for stream in STREAMS if stream.settings is not None}


def declare_topics() -> None:
    """Declare the topics of all streams to the journal."""
    from trueup.streams.journal.codec import declare

    for stream in STREAMS:
        for topic, schema in stream.topics.items():
            declare(topic, schema)


def all_metrics(cluster: str = "bookkeeper") -> "Metrics":
    """The metrics of an application with those of all streams, including streams that are not configured."""
    from trueup.streams.runtime.metrics import Metrics

    made = Metrics(cluster=cluster)
    for stream in STREAMS:
        for part in stream.metrics():
            made.of(part)
    return made
