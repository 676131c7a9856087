"""The placement stream: checks whether the ledgers of a BookKeeper cluster are placed as declared, and repairs them."""

from collections import Counter
from collections.abc import Mapping, Sequence

from trueup.state.placement.settings import PlacementSettings
from trueup.streams.bookkeeper.cluster import bookkeeper
from trueup.streams.bookkeeper.selection import LedgerSelection
from trueup.streams.bookkeeper.worker_versions import outdated
from trueup.streams.config.live import LiveSection
from trueup.streams.journal.catch_up import CatchUp
from trueup.streams.journal.history import WHO
from trueup.streams.placement import query
from trueup.streams.placement.damages import DamageReports
from trueup.streams.placement.drains import drains
from trueup.streams.placement.judging import Judging
from trueup.streams.placement.metrics import PlacementMetrics
from trueup.streams.placement.reconciler import PlacementReconciler
from trueup.streams.placement.repairs.auditor_role import AuditorRole
from trueup.streams.placement.repairs.copying import CopiesUnderWay
from trueup.streams.placement.repairs.repair_workers import RepairWorkers
from trueup.streams.placement.report import PlacementReport
from trueup.streams.placement.view import view
from trueup.streams.placement.what_if import job
from trueup.streams.progress import QueryProgress
from trueup.streams.rows import Names, Row, RowQuery
from trueup.streams.runtime.context import Context
from trueup.streams.runtime.stream import Filter, Finding, PlanRow, Session, Stream, StreamStatus

TICK_S, LOOK_S, DAMAGE_S, USAGE_S = 0.2, 10.0, 1.0, 30.0
JUDGED = ("findings", "ledgers", "marks", "plan", "drains")
"""Nouns whose rows contain verdicts."""
OBSERVED = ("bookies", "all ledgers")
"""Nouns whose rows are current reads."""


class PlacementStream(Stream):
    """Placement in one BookKeeper cluster."""

    name = "placement"

    def __init__(self, context: Context) -> None:
        self._context, live, journal, clock = context, context.live, context.journal, context.clock
        self._policy = LiveSection.of(live, PlacementSettings)
        self._cluster = context.resource(bookkeeper)
        self._keeper = self._cluster.keeper
        self._judging = Judging(journal, clock)
        self._judging.load()
        self._cluster.published.append(self._judging.published)
        self._auditor = AuditorRole(self._cluster, self._policy, context.supervisor.run)
        self._read = CatchUp(journal, query.TOPICS)
        daemons = context.settings.cluster.autorecovery
        self._workers = RepairWorkers(self._auditor.voters, len(daemons), clock, lambda: outdated(daemons))
        self._copying = self._made_copying(context)
        self._reconciler = PlacementReconciler(
            self._auditor,
            journal,
            self._policy,
            self._keeper,
            context.metrics.of(PlacementMetrics),
            clock,
            context.settings.spark.buckets,
            context.history,
            lambda: self._read.done,
            self._workers.may_be_old,
            self._copying,
        )
        self._report = PlacementReport(
            self._policy,
            self._cluster,
            self._auditor,
            self._keeper,
            self._judging,
            self._reconciler,
            self._workers,
            clock,
        )
        self.damages = DamageReports(self._cluster, journal, context.metrics.of(PlacementMetrics), clock)
        self._what_if = job.WhatIfJob(context.settings, clock)

    def load(self) -> None:
        """Load the repairs and the reports of damaged replicas of earlier runs."""
        self._read.begin()
        self._reconciler.load()
        self.damages.load()

    def watch(self) -> None:
        """Start the loop of what-if answers."""
        self._context.supervisor.loop("what if", self._what_if.step, job.LOOK_S)

    def begin(self, spark: Session) -> None:
        """Start the query and the loops."""
        supervisor, journal, options = self._context.supervisor, self._context.journal, self._context.settings.spark
        ledger_view = view(spark, journal, options)
        self._context.query(ledger_view, self._reconciler.batch, self._lose_view, self._keeper.publish_again)
        supervisor.loop("reconcile", self._tick, TICK_S)
        supervisor.loop("judging", lambda: self._report.tick(self._runs()), TICK_S)
        supervisor.loop("autorecovery", self._workers.look, LOOK_S)
        supervisor.loop("damaged replicas", self.damages.reconcile, DAMAGE_S)
        if self._copying is not None:
            supervisor.loop("bookie usage", self._copying.look, USAGE_S)

    def _lose_view(self) -> None:
        """Let every ledger be unknown until the query has judged it again. Raises `Retry`."""
        self._read.begin()
        self._judging.restart()
        self._reconciler.lose_view()
        self._keeper.publish_again()

    def _tick(self) -> None:
        """Do what is due."""
        self._auditor.tick()
        self._keeper.name_lost(self._reconciler.unnamed())
        self._reconciler.reconcile()
        self._workers.step(self._reconciler.board.marks)

    def _runs(self) -> bool:
        return self._context.supervisor.runs(self.name)

    def _made_copying(self, context: Context) -> CopiesUnderWay | None:
        """Copies, if the settings permit them."""
        if not self._policy.current.copy_enabled:
            return None
        slots = context.settings.spark.slots
        return CopiesUnderWay(self._cluster, lambda: context.live.now.cluster, context.session, slots)

    def close(self) -> None:
        """Return the vote."""
        if self._copying is not None:
            self._copying.close()
        self._auditor.close()

    def progressed(self, query: str, progress: QueryProgress) -> None:
        """Handle a progress report of the query."""
        if query == self.name:
            self._judging.progress(progress)
            self._read.progress(progress)

    def alive(self, query: str) -> None:
        """The query reported that it is alive."""
        if query == self.name:
            self._reconciler.alive()

    def status(self, now_ms: int) -> StreamStatus:
        """Ledgers by verdict, marks, bookies, and problems."""
        policy, report = self._policy.current, self._report
        not_ready = report.not_ready()
        fields = report.status(now_ms, self._runs(), self.damages.counts())
        return StreamStatus(
            policy.mode,
            policy.paused,
            fields.counts,
            fields.oldest_drift_ms,
            report.sources(now_ms),
            report.stopped(),
            not_ready,
            query=self.name,
            fields=fields,
        )

    def incomplete(self, noun: str) -> Sequence[str]:
        """Why a list of verdicts, or of observations, may be incomplete."""
        if noun in JUDGED:
            return [self._report.incomplete(judged=True, runs=self._runs())]
        return [self._report.incomplete(judged=False)] if noun in OBSERVED else []

    def rows(self, noun: str, query: RowQuery) -> list[Row]:
        """Ledgers, bookies, drains or marks."""
        if noun == "ledgers":
            where = LedgerSelection(query.bookie, query.namespace)
            return self._report.ledgers(query.limit, query.choices.get("all") == "true", where)
        if noun == "drains":
            return self._drains()
        return self._report.bookies() if noun == "bookies" else self._report.marks()

    def _drains(self) -> list[Row]:
        findings, unknown = self._report.found, lambda: self._report.unknown(self._runs())
        return drains(self._cluster, self._policy.current, self._keeper.topology, findings, unknown)

    def describe(self, noun: str, names: Names) -> Row:
        """All details of one ledger, from a current read; a bookie; or what failures would do."""
        if noun == "what-if":
            return self._what_if.describe(str(names["kind"]))
        if noun == "bookie":
            bookie = str(names["bookie"])
            return {**self._report.bookie(bookie), "if_lost": self._what_if.loss(bookie)}
        ledger = int(names["ledger"])
        return {**self._report.ledger(ledger), "owned": None, "damages": self.damages.of(ledger)}

    def execute(self, verb: str, names: Names, arguments: Row) -> Row:  # noqa: ARG002
        """Remember replicas that a reader reported as damaged; they are read before anything is known of them."""
        return {"new": self.damages.report(arguments["replicas"], WHO.get())}

    def findings(self, filter_: Filter) -> tuple[Sequence[Finding], int]:
        """Damaged replicas, ledgers with a verdict other than true, highest risk first, and unread reports."""
        confirmed, reported = (self.damages.findings(filter_, confirmed) for confirmed in (True, False))
        where = LedgerSelection(filter_.bookie, filter_.namespace)
        some, total = self._report.findings(filter_.verdict, filter_.rule, filter_.limit, where)
        findings = [*confirmed, *some, *reported]
        return findings[: filter_.limit], total + len(confirmed) + len(reported)

    def grouped(self) -> Mapping[tuple[str, str], int]:
        """The number of findings by rule and verdict."""
        replicas = Counter(
            (finding.rule, finding.verdict)
            for confirmed in (True, False)
            for finding in self.damages.findings(Filter(), confirmed)
        )
        return dict((Counter(self._report.grouped()) + replicas).most_common())

    def plan(self) -> list[PlanRow]:
        """Ordered repairs and the next ones, highest risk first."""
        return self._report.plan()

    def approve(self, rows: Sequence[PlanRow]) -> list[PlanRow]:
        """Approve repairs."""
        versions = {row.about["ledger"]: row.requirements["version"] for row in rows}
        approved = set(self._reconciler.approve(versions))
        return [row for row in rows if row.about["ledger"] in approved]
