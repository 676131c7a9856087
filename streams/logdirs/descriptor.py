"""The log directories' stream in the catalog."""

from typing import TYPE_CHECKING

from trueup.state.logdirs.rules import LOGDIR_RULES
from trueup.streams.runtime.descriptor import Descriptor, Noun, Thing

if TYPE_CHECKING:
    from trueup.streams.logdirs.stream import LogDirsStream
    from trueup.streams.runtime.context import Context


def _make(context: "Context") -> "LogDirsStream":
    from trueup.streams.logdirs.stream import LogDirsStream

    return LogDirsStream(context)


LOGDIRS = Descriptor(
    name="logdirs", rules=LOGDIR_RULES, told=True, make=_make, absent=lambda _: {"logdirs": []},
    lists=(Noun("directories"),),
    things=(Thing("broker", "brokers/<kafka>/<int:broker>"),),
)  # fmt: skip
