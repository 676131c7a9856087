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
        for kafka, observation in seen.values():
            if (dirs := self.by_name.get(kafka)) is not None:
                dirs.known = {
                    **dirs.known,
                    observation.broker: BrokerState(observation, None, dirs.balancer.of(observation.broker)),
                }

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
        for broker, state in dirs.known.items():
            if state.observed is not None and state.decision is not None:
                key, record = f"{dirs.name}/{broker}".encode(), observed_record(dirs.name, state.observed)
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
        return [f"logdirs: {problem}" for dirs in self._all() for problem in dirs.left()]

    def sources(self, now_ms: int) -> list[ObservationSource]:
        """The sources of observations, one per cluster."""
        sources = []
        for dirs in self._all():
            age_ms = now_ms - dirs.at_ms if dirs.at_ms else None
            slow = age_ms is None or age_ms > 3_000 * dirs.policy.poll_s + 10_000
            state = "down" if dirs.problem else "slow" if slow else "up"
            detail = dirs.problem or many(len(dirs.known), "broker")
            sources.append(ObservationSource(f"logdirs {dirs.name}", state, age_ms, detail))
        return sources

    def status(self) -> list[LogDirsStatus]:
        """The status of every cluster."""
        return [cluster_status(dirs) for dirs in self._all()]

    def directories(self) -> list[Row]:
        """One row per directory."""
        return [
            directory_row(dirs, state, d)
            for dirs in self._all()
            for state in dirs.known.values()
            if state.observed is not None
            for d in state.observed.directories
        ]

    def broker(self, name: str, broker: int) -> Row:
        """The details of one broker; its largest replicas are queried now. Raises `Refused`, and errors of the
        broker."""
        dirs = self._named(name)
        state = dirs.known.get(broker)
        if state is None or state.observed is None:
            ids = ", ".join(map(str, dirs.known)) or "none yet"
            raise Refused(f"a broker {broker} of {name}", f"brokers {ids}", "see `trueup get dirs`")
        now = dirs.client.look([broker])[0]
        return {
            "kafka": name,
            "broker": broker,
            "mode": dirs.policy.mode,
            "strategy": strategy_of(dirs, state),
            "skew": state.observed.skew,
            "after": state.decision.after if state.decision else state.observed.skew,
            "rule": state.rule,
            "reason": state.reason,
            "at_ms": state.observed.at_ms,
            "throttles": sorted(state.ours.throttles),
            "directories": [directory_row(dirs, state, d) for d in state.observed.directories],
            "moves": [plan_json(row) for row in plan_rows(dirs) if row.evidence["broker"] == broker],
            "largest": [r._asdict() for r in largest(now.broker, LARGEST)] if now.broker else [],
        }

    def findings(self, filter_: Filter) -> list[Finding]:
        """Brokers that violate a rule."""
        findings = [
            Finding(
                {"broker": f"{dirs.name}/{number}"},
                rule.verdict.name.lower(),
                rule.id,
                state.reason,
                state.observed.at_ms if state.observed else None,
            )
            for dirs in self._all()
            for number, state in dirs.known.items()
            if (rule := LOGDIR_RULES.find(state.rule))
        ]
        return [
            finding
            for finding in findings
            if filter_.verdict in (None, finding.verdict) and filter_.rule in (None, finding.rule)
        ]

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
        seen = [described.broker for described in client.look(racks) if described.broker is not None]
        if any(topic in broker.replicas.topics for broker in seen):  # selecting directories would move its replicas
            raise Refused(f"a new topic on {name}", f"{topic}, which exists", "use another name")
        assigned = seats(seen, racks, partitions, replicas, dirs.policy.strategy, dirs.policy.exclude_dirs)
        places = [ReplicaLocation(b, topic, number, path) for number, row in enumerate(assigned) for b, path in row]
        for outcome in client.place(places):
            if outcome.result not in ("started", "recorded"):
                where = (
                    f"broker {outcome.place.broker} to accept {topic}-{outcome.place.partition} in {outcome.place.path}"
                )
                raise Refused(where, outcome.detail, "the topic was not created; try again")
        client.create_topic(topic, {number: [b for b, _ in row] for number, row in enumerate(assigned)}, configs)
        self.note(name, -1, "topic", "created", "", f"{topic}, {many(partitions, 'partition')} of {replicas}")
        return [{"partition": p.partition, "broker": p.broker, "path": p.path} for p in places]

    def note(self, name: str, broker: int, kind: str, outcome: str, rule: str, detail: str) -> None:
        """Add a row to the history."""
        about = f"{name}/{broker}" if broker >= 0 else name
        entry = HistoryRow(self._clock(), f"{kind}-{about}", kind, str(outcome), broker=about, rule=rule, detail=detail)
        self.history.add(entry)
        log.info(kind, extra={"broker": about, "outcome": str(outcome), "detail": detail})

    def _all(self) -> list[LogDirsReconciler]:
        return list(self.by_name.values())

    def _named(self, name: str) -> LogDirsReconciler:
        if name not in self.by_name:
            names = ", ".join(self.by_name) or "none"
            raise Refused(f"log directories of a cluster {name}", f"clusters {names}", "declare it in section logdirs")
        return self.by_name[name]
