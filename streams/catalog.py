"""The list of streams. A new stream is one more line of it."""

from trueup.state.common.rules import Rules
from trueup.streams.deletion.descriptor import DELETION
from trueup.streams.logdirs.descriptor import LOGDIRS
from trueup.streams.placement.descriptor import PLACEMENT
from trueup.streams.replication.descriptor import REPLICATION
from trueup.streams.runtime.descriptor import Descriptor

STREAMS: list[Descriptor] = [PLACEMENT, DELETION, REPLICATION, LOGDIRS]
"""In the order in which they are made, begun and reported."""


def rules() -> Rules:
    """The rules of all streams."""
    return Rules([rule for stream in STREAMS for rule in stream.rules])
