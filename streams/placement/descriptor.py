"""The placement stream in the catalog."""

from typing import TYPE_CHECKING

from trueup.state.settings.roles import Role
from trueup.streams.bookkeeper.topics import TOPICS as BOOKKEEPER
from trueup.streams.placement.page import PAGE
from trueup.streams.placement.topics import TOPICS
from trueup.streams.rows import Row
from trueup.streams.runtime.descriptor import Descriptor, LazyObjects, Noun, ResourceKind, Verb, by_field
from trueup.streams.runtime.named import imported

if TYPE_CHECKING:
    from trueup.state.settings.settings import Settings
    from trueup.streams.journal.journal import Journal
    from trueup.streams.placement.stream import PlacementStream
    from trueup.streams.runtime.context import Context
    from trueup.streams.runtime.stream import Session
    from trueup.streams.runtime.warm import View


def _make(context: "Context") -> "PlacementStream | None":
    if not context.settings.cluster.zookeeper:
        return None
    from trueup.streams.placement.stream import PlacementStream

    return PlacementStream(context)


def _view(spark: "Session", journal: "Journal", settings: "Settings") -> "View | None":
    from trueup.streams.placement.view import view

    return view(spark, journal, settings.spark) if settings.cluster.zookeeper else None


def _replicas(body: Row) -> Row | None:
    from trueup.state.placement.damage import reported

    replicas = reported(body)
    return None if replicas is None else {"replicas": replicas}


PLACEMENT = Descriptor(
    name="placement",
    topics=(*BOOKKEEPER, *TOPICS),
    fields="trueup.streams.placement.signs:PlacementFields",
    page=PAGE,
    settings=LazyObjects("trueup.state.placement.settings:PLACEMENT"),
    rules=LazyObjects("trueup.state.placement.rules:RULES", "trueup.state.placement.rules:DAMAGE_RULES"),
    commands=lambda: imported("trueup.streams.placement.commands:COMMANDS"),
    checks=lambda settings: imported("trueup.streams.bookkeeper.checks:all_of")(settings),
    make=_make,
    metrics=LazyObjects(
        "trueup.streams.placement.metrics:PlacementMetrics", "trueup.streams.bookkeeper.metrics:ZooKeeperMetrics"
    ),
    view=_view,
    todo="set cluster.zookeeper",
    lists=(
        Noun("ledgers", 100, {"all": ("true", "false")}, selectors=("bookie", "namespace")),
        Noun("bookies"),
        Noun("marks"),
        Noun("drains"),
    ),
    selectors=("bookie", "namespace"),
    things=(
        ResourceKind(
            "ledger",
            "ledgers/<ledger>",
            ids=("ledger",),
            names=by_field("ledger"),
            template="placement/templates/ledger.html",
            shown=("fragments", "changes", "mark", "owned", "claim", "held", "isolation"),
        ),
        ResourceKind(
            "bookie",
            "bookies/<bookie>",
            names=by_field("bookie"),
            template="placement/templates/bookie.html",
            shown=("if_lost",),
        ),
        ResourceKind("what-if", "what-if/<kind>"),
    ),
    kinds={
        "mark": "writes an under-replication mark for ledger {ledger}. BookKeeper's workers then copy its entries",
        "copy": "copies entries of ledger {ledger} to other bookies, and lets its metadata name these",
        "withdraw": "deletes its under-replication mark of ledger {ledger}",
    },
    units={
        **dict.fromkeys(("drifted", "blocked", "unknown"), "ledgers"),
        "marks outstanding": "marks",
        "lost bookies": "bookies",
    },
    verbs=(
        Verb(
            "replica-reports",
            "replica-reports",
            '{"replicas": [{"ledger": 7, "bookie": "bookie1:3181", "first": 0, "last": 9, "found": "missing"}]}',
            _replicas,
            "found is missing or digest; report at most 100 at once",
            role=Role.REPORTER,
        ),
    ),
)
