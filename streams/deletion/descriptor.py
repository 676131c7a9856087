"""The deletion stream in the catalog."""

from typing import TYPE_CHECKING

from trueup.streams.deletion.topics import TOPICS
from trueup.streams.rows import Names, Row
from trueup.streams.runtime.descriptor import Descriptor, LazyObjects, Noun, PageSection, ResourceKind, Verb, certain
from trueup.streams.runtime.named import imported

if TYPE_CHECKING:
    from trueup.state.settings.settings import Settings
    from trueup.streams.deletion.stream import DeletionStream
    from trueup.streams.journal.journal import Journal
    from trueup.streams.runtime.context import Context
    from trueup.streams.runtime.stream import Session
    from trueup.streams.runtime.warm import View


def _make(context: "Context") -> "DeletionStream | None":
    from trueup.state.deletion.settings import DeletionSettings

    settings = context.settings
    if not settings.cluster.zookeeper or settings.section(DeletionSettings).owners == "none":
        return None
    from trueup.streams.deletion.stream import DeletionStream

    return DeletionStream(context)


def _view(spark: "Session", journal: "Journal", settings: "Settings") -> "View | None":
    """None if an operator knows the ledgers: nothing is searched then."""
    from trueup.state.deletion.settings import OPERATOR, DeletionSettings
    from trueup.streams.deletion.view import view

    searched = settings.cluster.zookeeper and settings.section(DeletionSettings).owners not in ("none", OPERATOR)
    return view(spark, journal, settings.spark) if searched else None


def _deletion(row: Row) -> Names | None:
    """The ledger of an action of this stream; its findings have the page of the ledger."""
    return {"ledger": row["ledger"]} if row.get("kind") in ("delete", "deletion") and "ledger" in row else None


PAGE = PageSection(
    "deletion", "deletion/templates/deletion.html", limit=24, card=lambda status: status["deletion"] is not None
)

DELETION = Descriptor(
    name="deletion",
    topics=TOPICS,
    fields="trueup.streams.deletion.signs:DeletionFields",
    page=(PAGE,),
    metrics=LazyObjects("trueup.streams.deletion.metrics:DeletionMetrics"),
    settings=LazyObjects("trueup.state.deletion.settings:DELETION", "trueup.state.deletion.stores:STORES"),
    rules=LazyObjects("trueup.state.deletion.rules:LEAK_RULES"),
    commands=lambda: imported("trueup.streams.deletion.commands:COMMANDS"),
    checks=lambda settings: imported("trueup.streams.deletion.checks:all_of")(settings),
    make=_make,
    view=_view,
    todo="set deletion.owners to operator if the cluster has no owners' metadata",
    lists=(Noun("unreferenced", 100, selectors=("namespace",)), Noun("deletions", selectors=("namespace",))),
    selectors=("namespace",),
    things=(ResourceKind("deletion", "ledgers/<ledger>/deletion", ids=("ledger",), names=_deletion),),
    kinds={"delete": "deletes ledger {ledger} and its entries. This cannot be undone"},
    verbs=(
        Verb(
            "deletion",
            "ledgers/<ledger>/deletion",
            '{"certain": true}',
            certain,
            "a deletion cannot be undone",
            ids=("ledger",),
        ),
    ),
)
