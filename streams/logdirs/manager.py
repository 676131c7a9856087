"""Log directories of all declared clusters: their state and the commands of operators."""

import logging
from collections.abc import Callable, Iterable
from functools import partial

from trueup.connectors.contract import Endpoint
from trueup.connectors.kafka.client.options import endpoint_of
from trueup.connectors.kafka.logdirs.client import LogDirsClient as Directories
from trueup.connectors.kafka.logdirs.client import ReplicaLocation
from trueup.state.common.counts import many
from trueup.state.common.errors import Refused
from trueup.state.logdirs.assignment import seats
from trueup.state.logdirs.rules import LOGDIR_RULES
from trueup.state.logdirs.settings import LogDirsSettings
from trueup.state.logdirs.snapshot import largest
from trueup.state.logdirs.verdicts import OwnChanges
from trueup.state.settings.kafka import KafkaCluster
from trueup.streams.config.live import Live, LiveSection
from trueup.streams.journal.history import History
from trueup.streams.journal.history_row import HistoryRow
from trueup.streams.journal.journal import Journal
from trueup.streams.logdirs.executor import DirectoryBalancer, record_of
from trueup.streams.logdirs.metrics import LogDirMetrics
from trueup.streams.logdirs.reconciler import BrokerState, Client, LogDirsReconciler, observed_record
from trueup.streams.logdirs.report import cluster_status, directory_row, plan_rows, strategy_of
from trueup.streams.logdirs.signs import LogDirsStatus
from trueup.streams.logdirs.topics import CHANGES, DIRECTORIES
from trueup.streams.rows import Row
from trueup.streams.runtime.stream import Filter, Finding, ObservationSource, PlanRow, plan_json
from trueup.streams.runtime.supervisor import Supervisor

log = logging.getLogger(__name__)
LARGEST = 20


class LogDirsManager:
    """Every cluster of section logdirs. Safe to use from several threads."""

    def __init__(
        self,
        live: Live,
        journal: Journal,
        metrics: LogDirMetrics,
        clock: Callable[[], int],
        connect: Callable[[Endpoint], Client] = Directories,
        history: History | None = None,
    ) -> None:
        self._live, self._journal, self._metrics, self._clock, self._connect = live, journal, metrics, clock, connect
        self.by_name: dict[str, LogDirsReconciler] = {}
        self.history = history or History()
        self.left: list[str] = []
        self._published: dict[bytes, Row] = {}

    def load(self) -> None:
        """Load the observations and changes of earlier runs from the journal."""
        ours: dict[str, dict[int, OwnChanges]] = {}
        for kafka, broker, changes in self._journal.newest(CHANGES).values():
            ours.setdefault(kafka, {})[broker] = changes
        declared = self._live.now.table(LogDirsSettings)
        for name in declared:
            self.by_name[name] = self._dirs(name, ours.get(name, {}))
        self.left = [
            f"logdirs.{name}: expected to be declared, as {many(len(brokers), 'broker')} may still have a throttle, "
            "cordons or moves of Trueup; found nothing; declare it in mode observe to revert them"
            for name, brokers in ours.items()
            if brokers and name not in declared
        ]
        seen = self._journal.newest(DIRECTORIES) if declared else {}
        for kafka, found in seen.values():
            if (dirs := self.by_name.get(kafka)) is not None:
                dirs.known = {**dirs.known, found.broker: BrokerState(found, None, dirs.balancer.of(found.broker))}

    def _dirs(self, name: str, ours: dict[int, OwnChanges]) -> LogDirsReconciler:
        say, settings = partial(self.note, name), self._live.now
        declared = settings.table(KafkaCluster)[name]
        endpoint = endpoint_of(name, declared)
        balancer = DirectoryBalancer(ours, partial(self._keep, name), say, partial(self._metrics.move, name))
        return LogDirsReconciler(
            name,
            LiveSection.of(self._live, LogDirsSettings, name),
            balancer,
            lambda: self._connect(endpoint),
            self._clock,
            say,
        )

    def _keep(self, name: str, broker: int, ours: OwnChanges) -> None:
        record = record_of(name, broker, ours, self._clock())
        self._journal.put([(CHANGES, f"{name}/{broker}".encode(), record)])

    def begin(self, supervisor: Supervisor) -> None:
        """Start the loop of every cluster."""
        for dirs in self._all():
            supervisor.loop(f"logdirs {dirs.name}", partial(self._pass, dirs), dirs.policy.poll_s)

    def _pass(self, dirs: LogDirsReconciler) -> None:
        dirs.reconcile()
        self._publish(dirs)

    def _publish(self, dirs: LogDirsReconciler) -> None:
        """Write changed observations to the journal."""
        records = []
        for broker, known in dirs.known.items():
            if known.observed is not None and known.decision is not None:
                key, record = f"{dirs.name}/{broker}".encode(), observed_record(dirs.name, known.observed)
                if {**record, "at_ms": 0} != self._published.get(key):
                    records.append((DIRECTORIES, key, record))
        self._journal.put(records)
        self._published |= {key: {**record, "at_ms": 0} for _, key, record in records}

    def not_ready(self) -> list[str]:
        """Problems of clusters that were not observed yet."""
        return [f"logdirs {d.name}: {d.problem or 'not observed yet'}" for d in self._all() if not d.at_ms]

    def incomplete(self) -> list[str]:
        """Problems of clusters whose directories may be missing or outdated."""
        some = (d for d in self._all() if d.problem or not d.at_ms)
        return [f"logdirs {d.name}: {d.problem or 'not observed yet'}" for d in some]

    def problems(self) -> list[str]:
        """Changes that cannot be reverted now."""
        return [f"logdirs: {each}" for dirs in self._all() for each in dirs.left()]

    def sources(self, now_ms: int) -> list[ObservationSource]:
        """The sources of observations, one per cluster."""
        found = []
        for dirs in self._all():
            age_ms = now_ms - dirs.at_ms if dirs.at_ms else None
            slow = age_ms is None or age_ms > 3_000 * dirs.policy.poll_s + 10_000
            state = "down" if dirs.problem else "slow" if slow else "up"
            detail = dirs.problem or many(len(dirs.known), "broker")
            found.append(ObservationSource(f"logdirs {dirs.name}", state, age_ms, detail))
        return found

    def status(self) -> list[LogDirsStatus]:
        """The status of every cluster."""
        return [cluster_status(dirs) for dirs in self._all()]

    def directories(self) -> list[Row]:
        """One row per directory."""
        return [
            directory_row(dirs, known, d)
            for dirs in self._all()
            for known in dirs.known.values()
            if known.observed is not None
            for d in known.observed.directories
        ]

    def broker(self, name: str, broker: int) -> Row:
        """The details of one broker; its largest replicas are queried now. Raises `Refused`, and errors of the
        broker."""
        dirs = self._named(name)
        known = dirs.known.get(broker)
        if known is None or known.observed is None:
            ids = ", ".join(map(str, dirs.known)) or "none yet"
            raise Refused(f"a broker {broker} of {name}", f"brokers {ids}", "see `trueup get dirs`")
        now = dirs.client.look([broker])[0]
        return {
            "kafka": name,
            "broker": broker,
            "mode": dirs.policy.mode,
            "strategy": strategy_of(dirs, known),
            "skew": known.observed.skew,
            "after": known.decision.after if known.decision else known.observed.skew,
            "rule": known.rule,
            "reason": known.reason,
            "at_ms": known.observed.at_ms,
            "throttles": sorted(known.ours.throttles),
            "directories": [directory_row(dirs, known, d) for d in known.observed.directories],
            "moves": [plan_json(row) for row in plan_rows(dirs) if row.evidence["broker"] == broker],
            "largest": [r._asdict() for r in largest(now.broker, LARGEST)] if now.broker else [],
        }

    def findings(self, wanted: Filter) -> list[Finding]:
        """Brokers that violate a rule."""
        found = [
            Finding(
                {"broker": f"{dirs.name}/{number}"},
                rule.verdict.name.lower(),
                rule.id,
                one.reason,
                one.observed.at_ms if one.observed else None,
            )
            for dirs in self._all()
            for number, one in dirs.known.items()
            if (rule := LOGDIR_RULES.find(one.rule))
        ]
        return [one for one in found if wanted.verdict in (None, one.verdict) and wanted.rule in (None, one.rule)]

    def plan(self) -> list[PlanRow]:
        """Moves in progress, and changes that are due or wait for approval."""
        return [row for dirs in self._all() for row in plan_rows(dirs)]

    def approve(self, rows: Iterable[PlanRow]) -> None:
        """Approve these actions of the plan."""
        for row in rows:
            name, _, action = row.id.partition("/")
            self.by_name[name].approve([action])

    def create_topic(self, name: str, topic: str, partitions: int, replicas: int, configs: dict[str, str]) -> list[Row]:
        """Create a topic in directories selected by the strategy. Returns rows of partition, broker, path. Raises
        `Refused`, and errors of the brokers."""
        dirs = self._named(name)
        if dirs.policy.mode == "observe":
            todo = f"trueup config set logdirs.{name}.mode approve"
            raise Refused(f"mode approve or enforce of logdirs.{name}", "mode observe, which changes nothing", todo)
        client = dirs.client
        racks = client.brokers()
        seen = [one.broker for one in client.look(racks) if one.broker is not None]
        if any(topic in broker.replicas.topics for broker in seen):  # selecting directories would move its replicas
            raise Refused(f"a new topic on {name}", f"{topic}, which exists", "use another name")
        chosen = seats(seen, racks, partitions, replicas, dirs.policy.strategy, dirs.policy.exclude_dirs)
        places = [ReplicaLocation(b, topic, number, path) for number, row in enumerate(chosen) for b, path in row]
        for outcome in client.place(places):
            if outcome.result not in ("started", "recorded"):
                where = (
                    f"broker {outcome.place.broker} to accept {topic}-{outcome.place.partition} in {outcome.place.path}"
                )
                raise Refused(where, outcome.detail, "the topic was not created; try again")
        client.create_topic(topic, {number: [b for b, _ in row] for number, row in enumerate(chosen)}, configs)
        self.note(name, -1, "topic", "created", "", f"{topic}, {many(partitions, 'partition')} of {replicas}")
        return [{"partition": p.partition, "broker": p.broker, "path": p.path} for p in places]

    def note(self, name: str, broker: int, kind: str, outcome: str, rule: str, detail: str) -> None:
        """Add a row to the history."""
        about = f"{name}/{broker}" if broker >= 0 else name
        made = HistoryRow(self._clock(), f"{kind}-{about}", kind, str(outcome), broker=about, rule=rule, detail=detail)
        self.history.add(made)
        log.info(kind, extra={"broker": about, "outcome": str(outcome), "detail": detail})

    def _all(self) -> list[LogDirsReconciler]:
        return list(self.by_name.values())

    def _named(self, name: str) -> LogDirsReconciler:
        if name not in self.by_name:
            known = ", ".join(self.by_name) or "none"
            raise Refused(f"log directories of a cluster {name}", f"clusters {known}", "declare it in section logdirs")
        return self.by_name[name]
