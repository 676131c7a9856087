"""The replication stream: every declared link, which copies the records of one cluster to another."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from trueup.state.replication.settings import LinkSettings
from trueup.streams.replication.links.ends import LinkEnds
from trueup.streams.replication.manager import LinkManager
from trueup.streams.replication.metrics import LinkMetrics
from trueup.streams.replication.signs import LinkFields
from trueup.streams.rows import Names, Row, RowQuery
from trueup.streams.runtime.context import Context
from trueup.streams.runtime.spark.cluster import task_slots
from trueup.streams.runtime.stream import Filter, Finding, PlanRow, Session, Stream, StreamStatus

SLOTS_S = 5.0


class ReplicationStream(Stream):
    """All links. If the executors run on this machine, a stop file ends their leases at once."""

    name = "replication"

    def __init__(self, context: Context) -> None:
        self._context = context
        self._here = not context.settings.spark.on_cluster
        metrics = context.metrics.of(LinkMetrics).declare(context.settings.table(LinkSettings))
        self.links = LinkManager(
            context.live,
            context.journal,
            metrics,
            context.clock,
            LinkEnds,
            history=context.history,
            stop=context.data / "stopping" if self._here else None,
            silent_ms=self._silent_ms(),
        )
        self._slots: list[str] = []

    def _silent_ms(self) -> int:
        """The last time at which another process may have granted a lease. The executors of an application whose
        machine failed run for a while, and neither they nor the journal tell whether they ended."""
        return self._context.silent_ms or (0 if self._here else self._context.clock())

    def load(self) -> None:
        """Load the positions of earlier runs from the journal."""
        self.links.load()

    def watch(self) -> None:
        """Start to observe both clusters of every link."""
        self.links.watch(self._context.supervisor)

    def begin(self, spark: Session) -> None:
        """Start the query of every link, with the task slots that the query over ledgers does not use."""
        supervisor = self._context.supervisor
        if self._here:
            self._fit(spark)
        else:  # executors come and go
            supervisor.loop("task slots", lambda: self._fit(spark), SLOTS_S)
        self.links.copy(spark, supervisor, f"{self._context.rounds}/links")

    def _fit(self, spark: Session) -> None:
        settings = self._context.settings
        taken = settings.spark.partitions if settings.cluster.zookeeper else 0
        slots = task_slots(spark(), settings.spark.on_cluster)
        self._slots = self.links.fit(slots - taken) if slots else []  # without executors, the application says so

    def end(self) -> None:
        """Stop copying."""
        self.links.end()

    def status(self, now_ms: int) -> StreamStatus:
        """The status, with one row per link."""
        links, rows = self.links, self.links.rows()
        modes, late = {row.mode for row in rows}, [row.lag_ms for row in rows if row.lag_ms > 0]
        return StreamStatus(
            modes.pop() if len(modes) == 1 else "",
            all(row.paused for row in rows) and bool(rows),
            Counter(row.state for row in rows),
            max(late, default=None),
            links.sources(now_ms),
            self._slots,
            links.not_ready(),
            silent_ms=links.longest_ms(),
            fields=LinkFields(rows),
        )

    def incomplete(self, noun: str) -> Sequence[str]:
        """Problems of links whose clusters were not observed yet."""
        return self.links.not_ready() if noun in ("links", "plan") else []

    def rows(self, noun: str, query: RowQuery) -> list[Row]:  # noqa: ARG002 - its only noun is links
        """All links."""
        return [asdict(row) for row in self.links.rows()]

    def describe(self, noun: str, names: Names) -> Row | list[Row]:
        """The details of one link, or the rows that a refill would copy."""
        link = str(names["name"])
        return self.links.refill(link, False) if noun == "refill" else self.links.describe(link)

    def execute(self, verb: str, names: Names, arguments: Row) -> list[Row]:
        """Reset a link to other source offsets, or refill its target."""
        if verb == "refill":
            return self.links.refill(str(names["name"]), True)
        return self.links.reset(str(names["name"]), **arguments)

    def findings(self, filter_: Filter) -> tuple[Sequence[Finding], int]:
        """The reasons of links that are not up, by rule."""
        findings = self.links.findings(filter_)
        return findings[: filter_.limit], len(findings)

    def plan(self) -> list[PlanRow]:
        """Changes at the targets that are due or wait for approval."""
        return self.links.plan()

    def approve(self, rows: Sequence[PlanRow]) -> Sequence[PlanRow]:
        """Approve changes at the targets."""
        self.links.approve(rows)
        return rows
