"""The replication stream in the catalog."""

from typing import TYPE_CHECKING

from trueup.state.replication.rules import LINK_RULES
from trueup.streams.runtime.descriptor import Descriptor, Noun, Thing

if TYPE_CHECKING:
    from trueup.streams.replication.stream import ReplicationStream
    from trueup.streams.runtime.context import Context


def _make(context: "Context") -> "ReplicationStream":
    from trueup.streams.replication.stream import ReplicationStream

    return ReplicationStream(context)


REPLICATION = Descriptor(
    name="replication", rules=LINK_RULES, told=True, make=_make, absent=lambda _: {"links": []}, lists=(Noun("links"),),
    things=(Thing("link", "links/<name>"),),
)  # fmt: skip
