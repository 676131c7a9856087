"""The replication stream in the catalog."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from trueup.state.replication.changes import ChangeKind
from trueup.streams.replication.topics import TOPICS
from trueup.streams.rows import Row
from trueup.streams.runtime.descriptor import (
    Commands,
    Descriptor,
    LazyObjects,
    Noun,
    PageSection,
    ResourceKind,
    Verb,
    by_field,
    certain,
)

if TYPE_CHECKING:
    from trueup.state.settings.settings import Settings
    from trueup.streams.replication.stream import ReplicationStream
    from trueup.streams.runtime.checks import Check
    from trueup.streams.runtime.context import Context
    from trueup.streams.runtime.metrics import Metrics, StreamMetrics


def _make(context: "Context") -> "ReplicationStream":
    from trueup.streams.replication.stream import ReplicationStream

    return ReplicationStream(context)


def _commands() -> Commands:
    from trueup.streams.replication.commands import COMMANDS

    return COMMANDS


def _checks(settings: "Settings") -> Iterable["Check"]:
    from trueup.streams.replication import checks

    return checks.all_of(settings)


def _reset(body: Row) -> Row | None:
    chosen = body.get("partitions")
    right = chosen is None or (isinstance(chosen, list) and chosen and all(isinstance(p, str) for p in chosen))
    right = right and set(body) <= {"to", "partitions", "certain"} and isinstance(body.get("to"), str)
    right = right and isinstance(body.get("certain", False), bool)
    return {"partitions": chosen, "to": body["to"], "certain": body.get("certain", False)} if right else None


def _metrics() -> Sequence[Callable[["Metrics"], "StreamMetrics"]]:
    from trueup.streams.replication.metrics import LinkMetrics

    return (LinkMetrics,)


def _tasks(settings: "Settings") -> int:
    from trueup.state.replication.settings import LinkSettings

    return sum(link.tasks for link in settings.table(LinkSettings).values())


PAGE = PageSection("links", "replication/templates/links.html", card=lambda status: bool(status["links"]))

REPLICATION = Descriptor(
    name="replication",
    topics=TOPICS,
    tasks=_tasks,
    fields="trueup.streams.replication.signs:LinkFields",
    page=(PAGE,),
    metrics=_metrics,
    settings=LazyObjects("trueup.streams.replication.clusters:SECTIONS", "trueup.state.replication.validation:LINKS"),
    rules=LazyObjects("trueup.state.replication.rules:LINK_RULES"),
    commands=_commands,
    checks=_checks,
    make=_make,
    lists=(Noun("links"),),
    things=(
        ResourceKind("link", "links/<name>", names=by_field("name", "link")),
        ResourceKind("refill", "links/<name>/refill"),
    ),
    kinds=dict.fromkeys((kind.name.lower() for kind in ChangeKind), "changes the target of link {link}: {reason}")
    | {
        "group": "commits offsets at the target of link {link}: {reason}",
        "command": "an operator has to decide about link {link}: {reason}",
    },
    verbs=(
        Verb(
            "reset",
            "links/<name>/reset",
            '{"to": "earliest, latest or an offset", "partitions": ["topic-0"], "certain": true}',
            _reset,
            "without partitions, the reset applies to all partitions of the link; without certain, nothing is set",
        ),
        Verb("refill", "links/<name>/refill", '{"certain": true}', certain, "GET shows what would be copied"),
    ),
)
