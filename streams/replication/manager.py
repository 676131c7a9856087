"""All links of the application: their state and the commands of operators."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from zlib import crc32

from pyspark.sql import SparkSession

from trueup.connectors.contract import LogId, Progress
from trueup.state.common.counts import many
from trueup.state.common.errors import Refused
from trueup.state.replication.rules import LINK_RULES
from trueup.state.replication.settings import LinkSettings as Declared
from trueup.state.replication.verdicts import PartitionStage
from trueup.streams.config.live import Live
from trueup.streams.journal.history import History
from trueup.streams.journal.history_row import HistoryRow
from trueup.streams.journal.journal import Journal, JournalRecord
from trueup.streams.replication.clusters import connector_of
from trueup.streams.replication.links import checkpoints
from trueup.streams.replication.links.link import COUNTED, Link
from trueup.streams.replication.links.monitor import LinkMonitor, Sides
from trueup.streams.replication.links.orders import Reporting
from trueup.streams.replication.links.refill import Refilling
from trueup.streams.replication.links.reset import Resetting
from trueup.streams.replication.links.snapshot import NOTHING
from trueup.streams.replication.links.standing import RecoveryOption, ways_out
from trueup.streams.replication.links.status import beat_error
from trueup.streams.replication.metrics import LinkMetrics
from trueup.streams.replication.query import Replication
from trueup.streams.replication.report import by_topic, checkpoint, partition, remedies, total
from trueup.streams.replication.signs import LinkRow
from trueup.streams.replication.topics import MEMORY, REPORTS
from trueup.streams.rows import Row
from trueup.streams.runtime.stream import Filter, Finding, ObservationSource, PlanRow
from trueup.streams.runtime.supervisor import Supervisor

log = logging.getLogger(__name__)
SLOW_MS = 10_000
OPERATOR = "needs an operator"
"""The stage of a row of the plan that Trueup does not execute."""


class LinkManager:
    """Every declared link. Safe to use from several threads. ``stop``: the path of a file whose existence ends the
    leases in the workers; ``silent_ms``: the last time at which another process may have granted a lease, in ms since
    the epoch, 0 if there is none."""

    def __init__(
        self,
        live: Live,
        journal: Journal,
        metrics: LinkMetrics,
        clock: Callable[[], int],
        sides: Callable[[Link], Sides],
        connectors: Callable[[str, str, str], str] = connector_of,
        history: History | None = None,
        stop: Path | None = None,
        silent_ms: int = 0,
    ) -> None:
        self._stop, self._silent_ms = stop, silent_ms
        self._live, self._journal, self._metrics, self._clock = live, journal, metrics, clock
        self._make_sides, self._connectors = sides, connectors
        self.by_name: dict[str, Link] = {}
        self.watches: dict[str, LinkMonitor] = {}
        self.history = history or History()

    def load(self) -> None:
        """Load the positions of earlier runs from the journal."""
        if self._stop is not None:
            self._stop.unlink(missing_ok=True)
        if not self._live.now.table(Declared):
            return
        problems = dict[bytes, str]()
        copies = checkpoints.load(self._journal, problems)
        unreadable = checkpoints.unreadable(problems)
        memory = {record["name"]: record["value"] for record in self._journal.newest(MEMORY).values()}
        for name in self._live.now.table(Declared):
            link = Link(
                name,
                self._live,
                self._journal,
                copies.get(name, {}),
                self._starts(name),
                self._counted(name),
                self._clock,
                self._connectors,
                Reporting(
                    self._journal.channel(REPORTS),
                    str(self._stop or ""),
                    partial(self._metrics.round, name),
                    self._silent_ms,
                ),
                unreadable.get(name, {}),
            )
            self.by_name[name] = link
            self.watches[name] = LinkMonitor(
                link, self._make_sides(link), self.watches, memory, self.note, self._remember
            )
            self._live.listeners.append(link.wake)

    def _remember(self, link: str, text: str) -> None:
        record = {"name": link, "value": text, "at_ms": self._clock()}
        self._journal.put([(MEMORY, link.encode(), record)])

    def _starts(self, name: str) -> Callable[[Declared, Iterable[LogId]], Mapping[LogId, int]]:
        return lambda declared, partitions: self.watches[name].sides.starts(declared, partitions)

    def _counted(self, name: str) -> Callable[[Progress], None]:
        return lambda progress: self._metrics.copied(name, progress)

    def watch(self, supervisor: Supervisor) -> None:
        """Start to observe both clusters of every link and to receive reports of leases."""
        if self.by_name:
            supervisor.loop("reports of links", lambda: self._follow_reports(supervisor.stop))
        for watch in self.watches.values():
            watch.begin(supervisor)

    def _follow_reports(self, stop: threading.Event) -> None:
        self._journal.follow(REPORTS, stop, self._receive, old=False)

    def _receive(self, record: JournalRecord) -> None:
        message = record.value
        if message is not None and message.link in self.by_name:
            self.by_name[message.link].receive(message)

    def copy(self, spark: Callable[[], SparkSession], supervisor: Supervisor, checkpoints: str) -> None:
        """Keep the query of every link running, in the session that ``spark`` returns."""
        for link in self.by_name.values():
            query = Replication(spark, link, f"{checkpoints}/{link.name}")
            supervisor.query(query.name, query.start)

    def fit(self, slots: int) -> list[str]:
        """Divide the task slots among the links, whose leases hold them permanently. Returns problems."""
        tasks = sum(link.declared.tasks for link in self._all())
        for link in self._all():
            link.update(slots=max(1, min(link.declared.tasks, slots * link.declared.tasks // max(tasks, 1))))
        if slots >= tasks:
            return []
        return [f"spark.master: expected {many(tasks, 'task slot')} for links; found {slots}; links run fewer tasks"]

    def longest_ms(self) -> int:
        """The longest lease in ms: a query reports no progress during a lease."""
        return int(1000 * max((link.declared.lease_s for link in self._all()), default=0.0))

    def end(self) -> None:
        """Stop copying."""
        if self._stop is not None:
            self._stop.touch()
        for link in self.by_name.values():
            link.end()

    def not_ready(self) -> list[str]:
        """Problems of links whose clusters were not observed yet."""
        return [
            f"link {link.name}: {side.problem}"
            for link in self._all()
            if not link.snapshot.facts.complete
            for side in (link.snapshot.facts.source, link.snapshot.facts.target)
            if side.problem
        ]

    def sources(self, now_ms: int) -> list[ObservationSource]:
        """The sources of observations, one per link."""
        return [self._source(link, now_ms) for link in self._all()]

    def _source(self, link: Link, now_ms: int) -> ObservationSource:
        facts, declared = link.snapshot.facts, link.declared
        problem = facts.source.problem or facts.target.problem
        state = "down" if problem else "up" if now_ms - facts.at_ms < SLOW_MS else "slow"
        detail = problem or f"{declared.source} and {declared.target}"
        return ObservationSource(
            f"link {link.name}", state, max(0, now_ms - facts.at_ms) if facts.at_ms else None, detail
        )

    def rows(self) -> list[LinkRow]:
        """One row per link."""
        return [self._row(link) for link in self._all()]

    def _row(self, link: Link) -> LinkRow:
        declared, seen, now_ms = link.declared, link.snapshot, self._clock()
        watch = self.watches[link.name]
        status, beat, changes = watch.status, watch.beat, watch.rows()
        with link.lock:
            state, reasons = status.state(now_ms)
            rows = status.rows(now_ms)
            totals = {name: link.totals[name] for name in COUNTED}
        errors = [row.error for row in rows.values() if row.error]
        return LinkRow(
            link=link.name,
            source=declared.source,
            target=declared.target,
            mode=declared.mode,
            paused=declared.paused,
            state=state.value,
            reason="; ".join(reason.text for reason in reasons),
            down={
                name: side.problem
                for name, side in ((declared.source, seen.facts.source), (declared.target, seen.facts.target))
                if side.problem and seen.facts is not NOTHING
            },
            path=link.path,
            path_reason=seen.choice.reason if seen.choice else "",
            topics=len({source.topic for source in rows}),
            partitions=len(rows),
            lag_records=total((row.stage, row.left) for row in rows.values()),
            lag_ms=total(((row.stage, row.lag_ms) for row in rows.values()), max),
            leases=link.leases,
            rounds=link.rounds,
            taken_ms=link.taken_ms,
            **totals,
            stopped=sum(row.stage is PartitionStage.STOPPED for row in rows.values()),
            error=link.problem or seen.blocked_reason or next(iter(errors), "") or beat_error(beat),
            heartbeat_age_ms=now_ms - beat.arrived_ms if beat.arrived_ms else -1,
            heartbeat_lag_ms=beat.lag_ms,
            differences=len(changes) if watch.aligner.seen is not None else -1,
            groups=len({row.group for row in watch.mover.checkpoints}),
            group_lag=watch.mover.lag(),
        )

    def describe(self, name: str) -> Row:
        """The details of one link. Raises `Refused` if it does not exist."""
        link, watch = self._link(name), self.watches[name]
        with link.lock:
            rows = watch.status.rows(self._clock())
            copies = [partition(link, source, row) for source, row in rows.items()]
            summary = {**asdict(self._row(link)), "by_topic": by_topic(copies), "copies": copies}
            reasons = watch.status.state(self._clock())[1]
        rules = [*(reason.rule for reason in reasons), *(copy["error"].partition(": ")[0] for copy in copies)]
        return {
            **summary,
            "heartbeat_error": beat_error(watch.beat),
            "remedies": remedies(rules),
            "checkpoints": [checkpoint(row) for row in watch.mover.checkpoints],
            "unreadable": [f"{topic}: {why}" for topic, why in watch.aligner.problems.items()],
            "untranslated": [{"group": group, "reason": why} for group, why in watch.mover.untranslated().items()],
            "ways": [asdict(way) for way in ways_out(watch)],
        }

    def reset(self, name: str, partitions: list[str] | None, to: str, certain: bool) -> list[Row]:
        """The rows of a reset to other source offsets: earliest, latest or a number; with ``certain``, set them. Raises
        `Refused`."""
        self._link(name)
        resetting = Resetting(self.watches[name], partitions, to)
        return resetting.begin() if certain else resetting.rows()

    def refill(self, name: str, certain: bool) -> list[Row]:
        """The rows that a refill of the link's target would copy; with ``certain``, start it. Raises `Refused`."""
        self._link(name)
        refilling = Refilling(self.watches[name])
        return refilling.begin() if certain else refilling.rows()

    def findings(self, filter_: Filter) -> list[Finding]:
        """The reasons of links that are not up, by rule, and groups without an offset at the target."""
        findings = list[Finding]()
        for link in self._all():
            with link.lock:
                _, reasons = self.watches[link.name].status.state(self._clock())
            for reason in reasons:
                rule = LINK_RULES.find(reason.rule)
                verdict = rule.verdict.name.lower() if rule else "unknown"
                findings.append(Finding({"link": link.name}, verdict, reason.rule, reason.text, None))
            for group, why in self.watches[link.name].mover.untranslated().items():
                text = f"group {group}: {why}"
                findings.append(Finding({"link": link.name}, "unknown", "replication.group-untranslated", text, None))
        return [
            finding
            for finding in findings
            if filter_.verdict in (None, finding.verdict) and filter_.rule in (None, finding.rule)
        ]

    def plan(self) -> list[PlanRow]:
        """Changes at the targets that are due or wait for approval, and the commands that partitions wait for."""
        return [row for watch in self.watches.values() for row in (*watch.rows(), *_waiting_for(watch))]

    def approve(self, rows: Iterable[PlanRow]) -> None:
        """Approve these actions of the plan."""
        for row in rows:
            self.watches[row.about["link"]].approve([row.id])

    def note(self, link: str, kind: str, outcome: str, detail: str, rule: str = "") -> None:
        """Add a row to the history."""
        self.history.add(
            HistoryRow(self._clock(), f"{kind}-{link}", kind, outcome, link=link, rule=rule, detail=detail)
        )
        log.info(kind, extra={"link": link, "outcome": outcome, "detail": detail})

    def _all(self) -> list[Link]:
        return list(self.by_name.values())

    def _link(self, name: str) -> Link:
        if name not in self.by_name:
            raise Refused(
                f"a link {name}",
                f"links {', '.join(self.by_name)}" if self.by_name else "no link",
                "see `trueup get links`",
            )
        return self.by_name[name]


def _waiting_for(watch: LinkMonitor) -> list[PlanRow]:
    """The recommended command of each stopped topic."""
    return [_command(watch.link.name, way) for way in ways_out(watch) if way.recommended]


def _command(link: str, way: RecoveryOption) -> PlanRow:
    identity = f"{way.topic} {way.command}".encode()
    return PlanRow(
        f"command-{link}-{crc32(identity):08x}",
        "command",
        "replication.partition-stopped",
        f"`{way.command}`, {many(way.partitions, 'partition')}: {way.does}",
        OPERATOR,
        {"link": link, "topic": way.topic},
        evidence={"command": way.command},
    )
