"""The deletion stream: deletes ledgers and objects that no owner references, until storage confirms the deletion."""

from collections.abc import Mapping, Sequence

from trueup.state.deletion.owners import Claim, Component
from trueup.state.deletion.settings import OPERATOR, DeletionSettings
from trueup.state.deletion.stores import StoreSettings
from trueup.streams.bookkeeper.cluster import bookkeeper
from trueup.streams.config.live import LiveSection
from trueup.streams.deletion import query
from trueup.streams.deletion.manual import NoOwners, OrderedDeletions
from trueup.streams.deletion.metrics import DeletionMetrics
from trueup.streams.deletion.orphan_objects import OrphanObjects
from trueup.streams.deletion.owners import Pulsar
from trueup.streams.deletion.reconciler import DeletionReconciler
from trueup.streams.deletion.report import DeletionReport
from trueup.streams.deletion.signs import DeletionFields
from trueup.streams.deletion.view import view
from trueup.streams.journal.catch_up import CatchUp
from trueup.streams.journal.history_row import HistoryRow
from trueup.streams.progress import QueryProgress
from trueup.streams.rows import Names, Row, RowQuery
from trueup.streams.runtime.context import Context
from trueup.streams.runtime.stream import Filter, Finding, PlanRow, Session, Stream, StreamStatus

DELETE_S = 1.0


class DeletionStream(Stream):
    """Deletion in one BookKeeper cluster: of ledgers that their owners do not reference, or of those that operators
    name."""

    name = "deletion"

    def __init__(self, context: Context) -> None:
        self._context, policy = context, LiveSection.of(context.live, DeletionSettings)
        self._owners: Pulsar | NoOwners
        self._orphans: OrphanObjects | None = None
        self._orders: OrderedDeletions | None = None
        settings, journal, clock = context.settings, context.journal, context.clock
        stores = settings.table(StoreSettings)
        cluster = context.resource(bookkeeper)
        self._keeper, self._read = cluster.keeper, CatchUp(journal, query.TOPICS)
        step = context.metrics.of(DeletionMetrics).step
        if policy.current.owners == OPERATOR:
            orders = self._orders = OrderedDeletions(cluster, journal, policy, step, clock, context.history)
            self._owners, self._deletions = orders.owners, orders.reconciler
            self._report = DeletionReport(policy, self._deletions, self._owners, clock, orders.order)
        else:
            owners = self._owners = Pulsar(cluster, journal, policy, clock, stores)
            self._deletions = DeletionReconciler(
                owners,
                journal,
                policy,
                lambda: cluster.keeper.first_epoch,
                step,
                clock,
                settings.spark.buckets,
                owners.check,
                history=context.history,
                caught_up=lambda: self._read.done,
            )
            self._orphans = OrphanObjects(owners.stores, stores, owners, journal, policy, step, clock, context.history)
            self._report = DeletionReport(policy, self._deletions, owners, clock, orphans=self._orphans)

    def load(self) -> None:
        """Load the deletions of earlier runs."""
        self._read.begin()
        (self._orders or self._deletions).load()
        if self._orphans:
            self._orphans.load()

    def watch(self) -> None:
        """Start observing the owners."""
        self._owners.start(self._context.supervisor.run)

    def begin(self, spark: Session) -> None:
        """Start the query that finds unreferenced ledgers, and the loops that delete."""
        supervisor, context = self._context.supervisor, self._context
        if self._orders is None:
            ledger_view = view(spark, context.journal, context.settings.spark)
            context.query(ledger_view, self._deletions.batch, self._lose_view, self._keeper.publish_again)
        supervisor.loop("delete", (self._orders or self._deletions).reconcile, DELETE_S)
        if self._orphans and context.settings.table(StoreSettings):
            supervisor.loop("objects", self._orphans.reconcile, DELETE_S)

    def _lose_view(self) -> None:
        """Let no ledger be known as unreferenced until the query has read the journal again. Raises `Retry`."""
        self._read.begin()
        self._deletions.lose_view()
        self._keeper.publish_again()

    def progressed(self, query: str, progress: QueryProgress) -> None:
        """Handle a progress report of the query."""
        if query == self.name:
            self._read.progress(progress)

    def end(self) -> None:
        """Stop observing the owners, and therefore deleting."""
        self._owners.close()

    def status(self, now_ms: int) -> StreamStatus:
        """Ledgers by namespace and rule, deletions by stage, and problems."""
        report = self._report
        deletions = report.status()
        return StreamStatus(
            deletions.mode,
            deletions.paused,
            deletions.deletions,
            deletions.oldest_ms,
            report.sources(now_ms),
            report.stopped(),
            report.not_ready(),
            fields=DeletionFields(deletions),
        )

    def incomplete(self, noun: str) -> Sequence[str]:
        """Why the unreferenced ledgers and objects are not known yet."""
        if noun == "deletions":
            return self._report.not_ready()
        return self._report.incomplete() if noun in ("unreferenced", "plan") else []

    def rows(self, noun: str, query: RowQuery) -> list[Row]:
        """Unreferenced ledgers, or pending deletions."""
        namespace = query.namespace
        if noun == "unreferenced":
            return self._report.rows(query.limit, namespace)
        return self._report.deletions(namespace)

    def describe(self, noun: str, names: Names) -> Row:  # noqa: ARG002 - its only noun is deletion
        """The pending deletion of a ledger. Raises `Refused`."""
        return self._report.deletion(int(names["ledger"]))

    def added(self, noun: str, described: Row) -> Row:
        """Why a ledger may or may not be deleted."""
        if noun != "ledger":
            return {}
        claim = described["claim"]
        named = Claim(Component[claim["component"].upper()], claim["owner"], claim["cursor"])
        return {"owned": self._report.ledger(described["ledger"], named)}

    def execute(self, verb: str, names: Names, arguments: Row) -> Row:  # noqa: ARG002 - one
        """Delete a ledger by an operator's order; returns its row of the list of deletions."""
        row = self._report.order(int(names["ledger"]))
        now_ms = self._context.clock()
        entry = HistoryRow(now_ms, row["id"], "deletion", "ordered", row["ledger"], rule=row["rule"])
        self._context.history.add(entry)
        return row

    def findings(self, filter_: Filter) -> tuple[Sequence[Finding], int]:
        """Unreferenced ledgers and objects, oldest finding first."""
        return self._report.findings(filter_)

    def grouped(self) -> Mapping[tuple[str, str], int]:
        """The number of findings by rule and verdict."""
        return self._report.grouped()

    def plan(self) -> list[PlanRow]:
        """Deletions that wait and that are in progress; in mode observe those that would be created."""
        return self._report.plan()

    def approve(self, rows: Sequence[PlanRow]) -> list[PlanRow]:
        """Approve deletions."""
        return self._report.approve(rows)
