"""The read priority stream in the catalog."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from trueup.streams.read_priority.topics import TOPICS
from trueup.streams.rows import Names, Row
from trueup.streams.runtime.descriptor import Commands, Descriptor, LazyObjects, Noun, PageSection, ResourceKind

if TYPE_CHECKING:
    from trueup.state.settings.settings import Settings
    from trueup.streams.read_priority.stream import ReadPriorityStream
    from trueup.streams.runtime.checks import Check
    from trueup.streams.runtime.context import Context
    from trueup.streams.runtime.metrics import Metrics, StreamMetrics


_SLASHES = 2


def _make(context: "Context") -> "ReadPriorityStream | None":
    from trueup.state.read_priority.settings import ReadPrioritySettings

    if not context.settings.section(ReadPrioritySettings).admin:
        return None
    from trueup.streams.read_priority.stream import ReadPriorityStream

    return ReadPriorityStream(context)


def _commands() -> Commands:
    from trueup.streams.read_priority.commands import COMMANDS

    return COMMANDS


def _checks(settings: "Settings") -> Iterable["Check"]:
    from trueup.streams.read_priority import checks

    return checks.all_of(settings)


def _metrics() -> Sequence[Callable[["Metrics"], "StreamMetrics"]]:
    from trueup.streams.read_priority.metrics import ReadPriorityMetrics

    return (ReadPriorityMetrics,)


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
    metrics=_metrics,
    settings=LazyObjects("trueup.state.read_priority.settings:READ_PRIORITY", "trueup.state.deletion.stores:STORES"),
    rules=LazyObjects("trueup.state.read_priority.rules:READ_RULES"),
    commands=_commands,
    checks=_checks,
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
