"""The replication stream in the catalog."""

from typing import TYPE_CHECKING

from trueup.state.replication.changes import ChangeKind
from trueup.streams.replication.topics import TOPICS
from trueup.streams.rows import Row
from trueup.streams.runtime.descriptor import (
    Descriptor,
    LazyObjects,
    Noun,
    PageSection,
    ResourceKind,
    Verb,
    by_field,
    certain,
)
from trueup.streams.runtime.named import imported

if TYPE_CHECKING:
    from trueup.state.settings.settings import Settings


def _reset(body: Row) -> Row | None:
    partitions = body.get("partitions")
    right = partitions is None or (
        isinstance(partitions, list) and partitions and all(isinstance(p, str) for p in partitions)
    )
    right = right and set(body) <= {"to", "partitions", "certain"} and isinstance(body.get("to"), str)
    right = right and isinstance(body.get("certain", False), bool)
    return {"partitions": partitions, "to": body["to"], "certain": body.get("certain", False)} if right else None


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
    metrics=LazyObjects("trueup.streams.replication.metrics:LinkMetrics"),
    settings=LazyObjects("trueup.streams.replication.clusters:SECTIONS", "trueup.state.replication.validation:LINKS"),
    rules=LazyObjects("trueup.state.replication.rules:LINK_RULES"),
    commands=lambda: imported("trueup.streams.replication.commands:COMMANDS"),
    checks=lambda settings: imported("trueup.streams.replication.checks:all_of")(settings),
    make=lambda context: imported("trueup.streams.replication.stream:ReplicationStream")(context),
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
