"""The log directory stream: balances the log directories of Kafka brokers by moving replicas."""

from collections.abc import Sequence

from trueup.state.logdirs.settings import LogDirsSettings
from trueup.streams.logdirs.manager import LogDirsManager
from trueup.streams.logdirs.metrics import LogDirMetrics
from trueup.streams.logdirs.signs import LogDirFields
from trueup.streams.rows import Names, Row, RowQuery
from trueup.streams.runtime.context import Context
from trueup.streams.runtime.stream import Filter, Finding, PlanRow, Session, Stream, StreamStatus


class LogDirsStream(Stream):
    """The stream of all declared clusters."""

    name = "logdirs"

    def __init__(self, context: Context) -> None:
        self._context = context
        metrics = context.metrics.of(LogDirMetrics).declare(context.settings.table(LogDirsSettings))
        self.logdirs = LogDirsManager(context.live, context.journal, metrics, context.clock, history=context.history)

    def load(self) -> None:
        """Load the observations and changes of earlier runs."""
        self.logdirs.load()

    def begin(self, spark: Session) -> None:  # noqa: ARG002 - it has no query
        """Start the loop of every cluster."""
        self.logdirs.begin(self._context.supervisor)

    def status(self, now_ms: int) -> StreamStatus:
        """The status, with the one of every cluster."""
        manager, clusters = self.logdirs, self.logdirs.status()
        modes = {cluster.mode for cluster in clusters}
        rules = {rule: sum(e.rules.get(rule, 0) for e in clusters) for cluster in clusters for rule in cluster.rules}
        return StreamStatus(
            modes.pop() if len(modes) == 1 else "",
            all(cluster.paused for cluster in clusters) and bool(clusters),
            rules,
            sources=manager.sources(now_ms),
            problems=[*manager.left, *manager.problems()],
            not_ready=manager.not_ready(),
            fields=LogDirFields(clusters),
        )

    def incomplete(self, noun: str) -> Sequence[str]:
        """Problems of clusters whose directories may be missing or outdated."""
        return self.logdirs.incomplete() if noun in ("directories", "plan") else []

    def rows(self, noun: str, query: RowQuery) -> list[Row]:  # noqa: ARG002 - its only noun is directories
        """All log directories."""
        return self.logdirs.directories()

    def describe(self, noun: str, names: Names) -> Row:  # noqa: ARG002 - its only noun is broker
        """The details of the log directories of one broker."""
        return self.logdirs.broker(str(names["kafka"]), int(names["broker"]))

    def execute(self, verb: str, names: Names, arguments: Row) -> list[Row]:  # noqa: ARG002
        """Create a topic in directories selected by the strategy."""
        return self.logdirs.create_topic(str(names["kafka"]), **arguments)

    def findings(self, filter_: Filter) -> tuple[Sequence[Finding], int]:
        """Brokers that violate a rule of log directories."""
        findings = self.logdirs.findings(filter_)
        return findings[: filter_.limit], len(findings)

    def plan(self) -> list[PlanRow]:
        """Moves in progress, and changes that are due or wait for approval."""
        return self.logdirs.plan()

    def approve(self, rows: Sequence[PlanRow]) -> Sequence[PlanRow]:
        """Approve moves and cordons."""
        self.logdirs.approve(rows)
        return rows
