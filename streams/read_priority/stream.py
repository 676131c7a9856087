"""The read priority stream: the read priority of Pulsar's brokers, and the fallback to the other tier."""

import os
from collections.abc import Mapping, Sequence

from trueup.connectors.bookkeeper.bookie.security import bookie_tls
from trueup.connectors.pulsar.admin.client import PulsarAdmin
from trueup.connectors.pulsar.admin.http import AdminHttp
from trueup.connectors.pulsar.layout import PulsarPaths
from trueup.connectors.pulsar.offload_verify import Tiered
from trueup.connectors.s3.store import store_of
from trueup.state.common.counts import many
from trueup.state.common.errors import Refused
from trueup.state.deletion.settings import DeletionSettings
from trueup.state.deletion.stores import StoreSettings
from trueup.state.read_priority.lifecycle import Change
from trueup.state.read_priority.settings import ReadPrioritySettings
from trueup.state.settings.settings import Settings
from trueup.streams.bookkeeper.cluster import bookkeeper
from trueup.streams.config.live import LiveSection
from trueup.streams.journal.history_row import HistoryRow
from trueup.streams.read_priority import report
from trueup.streams.read_priority.copies import VERIFIED, Cluster, CopyChecker
from trueup.streams.read_priority.executor import PolicyWriter
from trueup.streams.read_priority.metrics import ReadPriorityMetrics
from trueup.streams.read_priority.observer import Observer
from trueup.streams.read_priority.reconciler import ReadPriorityReconciler
from trueup.streams.read_priority.signs import ReadPriorityFields
from trueup.streams.rows import Names, Row, RowQuery
from trueup.streams.runtime.context import Context
from trueup.streams.runtime.stream import Filter, Finding, ObservationSource, PlanRow, Session, Stream, StreamStatus

SILENT_FACTOR = 5
"""Number of intervals without a complete pass after which the observations count as outdated."""


def admin_of(settings: ReadPrioritySettings, environment: Mapping[str, str] = os.environ) -> PulsarAdmin:
    """The admin API that the settings name. Raises `BadSettings` for an unreadable PEM file."""
    token = environment.get(settings.token_env, "") if settings.token_env else ""
    return PulsarAdmin(AdminHttp(settings.admin, token.strip(), settings.ca))


class ReadPriorityStream(Stream):
    """The stream of one Pulsar cluster."""

    name = "read_priority"

    def __init__(self, context: Context) -> None:
        self._context, self._policy = context, LiveSection.of(context.live, ReadPrioritySettings)
        self._metrics = context.metrics.of(ReadPriorityMetrics)
        self._admin = admin_of(self._policy.current)
        observer = observer_of(context.settings, context.resource(bookkeeper), self._admin, context)
        self.found = ReadPriorityReconciler(
            self._policy,
            observer,
            lambda keep: PolicyWriter(self._admin, keep, context.clock),
            context.journal,
            self._told,
        )

    def _told(self, change: Change) -> None:
        """Add a transition to the history and the metrics."""
        self._metrics.step(change.purpose, change.stage)
        now_ms, detail = self._context.clock(), f"{change.target}: {change.detail}"
        entry = HistoryRow(now_ms, change.id, report.POLICY, str(change.stage), rule=change.rule, detail=detail)
        self._context.history.add(entry)

    def load(self) -> None:
        """Load the changes and switches of earlier runs."""
        self.found.load()

    def begin(self, spark: Session) -> None:  # noqa: ARG002 - it has no query
        """Start the loop."""
        self._context.supervisor.loop(self.name, self.found.reconcile, self._policy.current.interval_s)

    def close(self) -> None:
        """Close the connections to brokers."""
        self._admin.close()

    def status(self, now_ms: int) -> StreamStatus:
        """Counts by rule and by state of copies, and problems."""
        settings, reconciler, seen = self._policy.current, self.found, self.found.seen
        status = report.status(reconciler, settings)
        age_ms = now_ms - seen.at_ms if seen else None
        late = age_ms is None or age_ms > SILENT_FACTOR * 1000 * settings.interval_s
        state = "down" if status.problem else "slow" if late else "up"
        source = ObservationSource("pulsar admin", state, age_ms, status.problem or many(status.brokers, "broker"))
        not_ready = [] if seen else [f"read_priority: {reconciler.problem or 'not observed yet'}"]
        return StreamStatus(
            settings.mode, counts=status.rules, sources=[source], not_ready=not_ready, fields=ReadPriorityFields(status)
        )

    def incomplete(self, noun: str) -> Sequence[str]:
        """Why topics may be missing or outdated."""
        if noun not in ("read-priorities", "plan"):
            return []
        seen = self.found.seen
        reasons = [self.found.problem, seen.problem, seen.incomplete] if seen else ["not observed yet"]
        return [f"read_priority: {reason}" for reason in reasons if reason]

    def rows(self, noun: str, query: RowQuery) -> list[Row]:  # noqa: ARG002 - its only noun is read-priorities
        """Managed namespaces and topics."""
        return report.rows(self.found)

    def describe(self, noun: str, names: Names) -> Row:  # noqa: ARG002 - its only noun is topic
        """One topic with its ledgers. Raises `Refused` if it is not observed."""
        seen, name = self.found.seen, str(names["name"]).removeprefix("persistent://")
        for topic in seen.topics if seen else ():
            if topic.name == name:
                assert seen is not None, "it has topics"
                return report.described(self.found, seen, topic, self._context.history.rows())
        todo = (
            "only topics of read_priority.declared with an offloaded ledger are observed; "
            "see `trueup get read-priorities`"
        )
        raise Refused(f"an observed topic {name[:200]}", "none", todo)

    def findings(self, filter_: Filter) -> tuple[Sequence[Finding], int]:
        """Findings about namespaces and topics."""
        findings = report.findings(self.found.decided.findings, filter_)
        return findings[: filter_.limit], len(findings)

    def plan(self) -> list[PlanRow]:
        """Changes that are due, that wait for approval, or that were sent."""
        return report.plan_rows(self.found)

    def approve(self, rows: Sequence[PlanRow]) -> Sequence[PlanRow]:
        """Approve changes. The next pass executes them if they are still due."""
        self.found.approve(row.id for row in rows)
        return rows


def observer_of(settings: Settings, cluster: Cluster, admin: PulsarAdmin, context: Context) -> Observer:
    """The observer of the configured cluster."""
    stores = {name: store_of(store) for name, store in settings.table(StoreSettings).items()}
    checker = CopyChecker(
        cluster, Tiered(stores, VERIFIED, untagged=True), lambda: bookie_tls(settings.cluster.bookies), context.clock
    )
    paths = PulsarPaths(settings.section(DeletionSettings).root)
    return Observer(admin, cluster.session, paths, checker, context.clock)
