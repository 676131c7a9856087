"""The read priority stream in the catalog."""

from typing import TYPE_CHECKING

from trueup.streams.read_priority.topics import TOPICS
from trueup.streams.rows import Names, Row
from trueup.streams.runtime.descriptor import Descriptor, LazyObjects, Noun, PageSection, ResourceKind
from trueup.streams.runtime.named import imported

if TYPE_CHECKING:
    from trueup.streams.read_priority.stream import ReadPriorityStream
    from trueup.streams.runtime.context import Context


_SLASHES = 2


def _make(context: "Context") -> "ReadPriorityStream | None":
    from trueup.state.read_priority.settings import ReadPrioritySettings

    if not context.settings.section(ReadPrioritySettings).admin:
        return None
    from trueup.streams.read_priority.stream import ReadPriorityStream

    return ReadPriorityStream(context)


def _shown(status: Row) -> bool:
    return status.get("read_priority") is not None


def _topic(row: Row) -> Names | None:
    """The topic of a finding or an action; the history has it in the id. Namespaces have no page."""
    if not str(row.get("rule")).startswith("read_priority."):
        return None
    name = row.get("topic") or str(row.get("id", "")).partition("/")[2].rpartition("/")[0]
    return {"name": name} if str(name).count("/") >= _SLASHES else None


PAGE = PageSection("read_priority", "read_priority/templates/read_priority.html", "read-priorities", card=_shown)

READ_PRIORITY = Descriptor(
    name="read_priority",
    topics=TOPICS,
    fields="trueup.streams.read_priority.signs:ReadPriorityFields",
    page=(PAGE,),
    metrics=LazyObjects("trueup.streams.read_priority.metrics:ReadPriorityMetrics"),
    settings=LazyObjects("trueup.state.read_priority.settings:READ_PRIORITY", "trueup.state.deletion.stores:STORES"),
    rules=LazyObjects("trueup.state.read_priority.rules:READ_RULES"),
    commands=lambda: imported("trueup.streams.read_priority.commands:COMMANDS"),
    checks=lambda settings: imported("trueup.streams.read_priority.checks:all_of")(settings),
    make=_make,
    todo="set read_priority.admin",
    lists=(Noun("read-priorities"),),
    selectors=("namespace",),
    things=(ResourceKind("topic", "read-priorities/<path:name>", names=_topic),),
    kinds={
        "read priority": "changes the offload policy of {topic}: {reason}",
        "unload": "unloads {topic} from its broker; clients connect again: {reason}",
    },
)
