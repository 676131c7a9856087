"""Status of the application and operators' requests: the API behind web page and command line."""

import shlex
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from types import MappingProxyType

from trueup.state.common.errors import Refused
from trueup.state.common.options import default_of
from trueup.state.settings.settings import all_keys, live_keys, value_of
from trueup.streams.catalog import STREAMS
from trueup.streams.config.live import Live
from trueup.streams.instance.election import Election
from trueup.streams.journal.history import History
from trueup.streams.journal.history_row import HistoryRow
from trueup.streams.journal.journal import Journal
from trueup.streams.rows import Names, Row, RowQuery
from trueup.streams.runtime.approvals import Approvals
from trueup.streams.runtime.descriptor import Descriptor
from trueup.streams.runtime.spark.listener import Listener
from trueup.streams.runtime.stream import (
    Filter,
    LimitedRows,
    ObservationSource,
    Stream,
    StreamStatus,
    finding_json,
    plan_json,
    source_json,
)
from trueup.streams.runtime.supervisor import Supervisor
from trueup.streams.runtime.trends import Trends

STARTING_MS = 600_000  # a start that takes longer is blind
SILENT_MS = 30_000  # a query without input still reports every 10 s
STARTING = "starting"


class Application:
    """Implements `streams.web.engine.Engine` over the streams of one running application. ``election``: the election of
    the leader, None without section ha. A standby has no streams: requests that need one are refused, and lists are
    reported as incomplete."""

    def __init__(
        self,
        live: Live,
        journal: Journal,
        streams: Mapping[str, Stream],
        supervisor: Supervisor,
        listener: Listener,
        clock: Callable[[], int],
        history: History,
        election: Election | None = None,
    ) -> None:
        self._election = election
        self._live, self._journal, self._streams = live, journal, streams
        self._supervisor, self._listener, self._clock, self._history = supervisor, listener, clock, history
        self._started_ms, self._heard_ms, self._trends = clock(), 0, Trends()
        self._begun_ms, self._was_ready = self._started_ms, False
        self._approvals = Approvals(history, clock)
        self.spark_ui, self.spark_ended = "", ""
        self.other_problems: Callable[[], Iterable[str]] = tuple
        self.obstacles: Callable[[], Iterable[str]] = tuple
        """Problems with which an instance cannot lead."""

    def lead(self, streams: Mapping[str, Stream]) -> None:
        """These streams run from now on."""
        self._streams, self._begun_ms, self._was_ready = streams, self._clock(), False

    @property
    def _standby(self) -> Election | None:
        """The election if this instance does not lead, or does not have its streams yet."""
        return self._election if self._election is not None and not self._streams else None

    def _ha(self) -> Row | None:
        election = self._election
        if election is None:
            return None
        role = "starting" if self._standby and election.leads else "leader" if election.leads else "standby"
        return {
            "id": self._live.now.ha.id,
            "role": role,
            "epoch": election.epoch,
            "leader": election.leader,
            "standbys": election.standbys(),
            "unable": [*self._supervisor.failing(), *self.obstacles()] if role == "standby" else [],
        }

    def status(self) -> Row:
        """Status of the whole application."""
        now_ms, now = self._clock(), self._live.now
        statuses = {name: stream.status(now_ms) for name, stream in self._streams.items()}
        not_ready = [reason for status in statuses.values() for reason in status.not_ready] + self._supervisor.failing()
        if (standby := self._standby) is not None:
            not_ready.insert(0, standby.unable())
        fields = [
            statuses[stream.name].fields if stream.name in statuses else stream.fields_class.absent(now)
            for stream in STREAMS
            if stream.fields
        ]
        sources = self._sources(statuses, now_ms)
        self._was_ready = self._was_ready or not not_ready
        return {
            "version": version("trueup"),
            "cluster": now.cluster.name,
            "ready": not not_ready,
            "started_ms": self._started_ms,
            "now_ms": now_ms,
            "problems": [*not_ready, *self._problems(statuses)],
            "streams": self._queries(),
            "sources": sources,
            "spark_ui": self.spark_ui,
            "starting": self._starting(sources, now_ms),
            "subjects": [_subject(name, status) for name, status in statuses.items()],
            **{name: value for part in fields if part is not None for name, value in part.json().items()},
            "ha": self._ha(),
        }

    def _starting(self, sources: list[Row], now_ms: int) -> bool:
        """Whether the streams have not seen everything yet since they were started, and nothing prevents it."""
        stops = self._supervisor.failing() or any(s["state"] == "down" and s["detail"] != STARTING for s in sources)
        return not (self._was_ready or stops) and now_ms - self._begun_ms < STARTING_MS

    def _problems(self, statuses: Mapping[str, StreamStatus]) -> list[str]:
        refused = [
            f"config record refused, {where}: {why}; `trueup config set {shlex.quote(name)} --default` removes it"
            for name, (where, why) in list(self._live.refused.items())
        ]
        others = [*self.obstacles(), *self.other_problems()]
        return [*refused, *others, *(problem for status in statuses.values() for problem in status.problems)]

    def _queries(self) -> list[Row]:
        out = []
        for task in self._supervisor.tasks.values():
            if task.query is None and task.name not in self._listener.last:
                continue
            last = self._listener.last.get(task.name, {})
            behind = [
                int(float(s.get("metrics", {}).get("maxOffsetsBehindLatest") or 0)) for s in last.get("sources", [])
            ]
            out.append(
                {
                    "name": task.name,
                    "state": task.state,
                    "batch": last.get("batchId", -1),
                    "rows_per_s": last.get("processedRowsPerSecond", 0.0),
                    "batch_ms": last.get("durationMs", {}).get("triggerExecution", 0),
                    "behind": max(behind, default=0),
                    "restarts": task.restarts,
                    "error": task.error,
                }
            )
        return out

    def _sources(self, statuses: Mapping[str, StreamStatus], now_ms: int) -> list[Row]:
        shared = [self._journal_source(now_ms), self._spark(statuses, now_ms)]
        return [
            source_json(source) for source in [*(s for status in statuses.values() for s in status.sources), *shared]
        ]

    def _journal_source(self, now_ms: int) -> ObservationSource:
        if self._journal.reachable():
            self._heard_ms = now_ms
            return ObservationSource("journal", "up", 0, self._journal.bootstrap)
        age_ms = now_ms - self._heard_ms if self._heard_ms else None
        return ObservationSource("journal", "down", age_ms, self._journal.bootstrap)

    def _spark(self, statuses: Mapping[str, StreamStatus], now_ms: int) -> ObservationSource:
        """The Spark session, judged by its queries: a session hangs if a query does not report for long."""
        event_ms = self._listener.last_event_ms
        if self.spark_ended:
            ago_ms = now_ms - max(event_ms.values(), default=self._started_ms)
            return ObservationSource("spark", "down", ago_ms, f"{self.spark_ended}; a new session starts")
        if not self.spark_ui:
            return ObservationSource("spark", "down", None, STARTING)
        if self._standby is not None or not self._supervisor.queries:  # nothing shows that it hangs
            return ObservationSource("spark", "up", None, self.spark_ui)
        query = next((status.query for status in statuses.values() if status.query), "")
        last_ms = event_ms.get(query) if query else max(event_ms.values(), default=None)
        age_ms = now_ms - (self._started_ms if last_ms is None else last_ms)
        silent = age_ms > SILENT_MS + max((status.silent_ms for status in statuses.values()), default=0)
        return ObservationSource("spark", "slow" if silent else "up", age_ms, self.spark_ui)

    def incomplete(self, noun: str) -> str:
        """Why the list of this noun may be incomplete or outdated; empty if it is complete."""
        if (standby := self._standby) is not None:
            return "" if noun == "actions" else standby.unable()
        reasons = (reason for stream in self._streams.values() for reason in stream.incomplete(noun))
        return "; ".join(filter(None, reasons))

    def findings(
        self,
        verdict: str | None,
        rule: str | None,
        limit: int,
        stream: str = "placement",
        where: Mapping[str, str] = MappingProxyType({}),
    ) -> list[Row]:
        """Findings of a stream, the most urgent first."""
        if stream not in self._streams:
            return []
        findings, total = self._streams[stream].findings(Filter(verdict, rule, limit, **where))
        return LimitedRows(map(finding_json, findings), total)

    def rows(self, noun: str, query: RowQuery) -> list[Row]:
        """Rows of a noun; empty if its stream is not running."""
        stream = self._streams.get(
            next(descriptor.name for descriptor in STREAMS if noun in (n.name for n in descriptor.lists))
        )
        return stream.rows(noun, query) if stream else []

    def describe(self, noun: str, names: Names) -> Row | list[Row]:
        """All details of one resource: those of its stream, and what other streams add."""
        owner = next(descriptor for descriptor in STREAMS if noun in (thing.name for thing in descriptor.things))
        described = self._running(owner, noun).describe(noun, names)
        if isinstance(described, Mapping):
            for stream in self._streams.values():
                described = {**described, **stream.added(noun, described)}
        return described

    def execute(self, verb: str, names: Names, arguments: Row) -> Row | list[Row]:
        """Execute a verb."""
        owner = next(descriptor for descriptor in STREAMS if verb in (entry.name for entry in descriptor.verbs))
        return self._running(owner, verb).execute(verb, names, arguments)

    def _leading(self, what: str) -> None:
        """Raises `Refused` if this instance does not lead."""
        if self._election is not None:
            self._election.refuse(what)

    def _running(self, owner: Descriptor, what: str) -> Stream:
        if self._standby is not None:
            self._standby.refuse(what)
        if owner.name not in self._streams:
            raise Refused(f"{what}: the stream {owner.name}", "it is not running", owner.todo)
        return self._streams[owner.name]

    def plan(self) -> list[Row]:
        """Planned actions: of each stream in turn, the most urgent first."""
        return [plan_json(row) for stream in self._streams.values() for row in stream.plan()]

    def approve(self, ids: list[str] | None) -> list[Row]:
        """Approve actions of the current plan (None: all); returns the approved ones."""
        self._leading("an approval")
        return [plan_json(row) for row in self._approvals.approve(self._streams, ids)]

    def config(self) -> Row:
        """Live keys with value, default and description; other keys with their value; keys of records that are refused,
        with the reason."""
        now = self._live.now
        live = live_keys(now)
        return {
            "live": {
                name: {"value": value_of(now, name), "default": default_of(spec), "doc": spec.metadata["doc"]}
                for name, spec in live.items()
            },
            "refused": {name: why for name, (_, why) in list(self._live.refused.items())},
            "fixed": {
                name: value_of(now, name)
                for name, spec, _ in all_keys(now)
                if name not in live and not spec.metadata["secret"]
            },
        }

    def set_config(self, name: str, value: object) -> Row:
        """Change a live key, in this application and in all that follow the config topic."""
        self._leading("a change of a setting")
        before = value_of(self._live.now, name) if name in live_keys(self._live.now) else None
        after = self._live.set(name, value)
        link = name.split(".")[1] if name.startswith("links.") else None
        outcome, detail = "set" if value is not None else "default", f"{name}: {before} > {after}"
        self._history.add(HistoryRow(self._clock(), f"config-{name}", "config", outcome, link=link, detail=detail))
        return {"name": name, "value": after}

    def actions(self, limit: int, predicate: Callable[[Row], bool] | None = None) -> list[Row]:
        """Executed actions, newest first; with ``predicate`` those of the newest ones that it selects."""
        rows = self._history.latest(limit, predicate)
        return rows if predicate else LimitedRows(rows, max(len(rows), len(self._history.rows())))

    def grouped(self, stream: str) -> Mapping[tuple[str, str], int]:
        """Findings of a stream by rule and verdict."""
        return self._streams[stream].grouped() if stream in self._streams else {}

    def trends(self, stream: str) -> Row:
        """The numbers of a stream in the last hours."""
        trends, descriptor = self._trends.of(stream), next(entry for entry in STREAMS if entry.name == stream)
        return {**trends, "units": {name: descriptor.unit(name) for name in trends["series"]}}

    def sample(self) -> None:
        """Remember the numbers of now."""
        status = self.status()
        running = [stream for stream in STREAMS if stream.name in self._streams]
        self._trends.add(status["now_ms"], {stream.name: stream.numbers(status) for stream in running})


def _subject(name: str, status: StreamStatus) -> Row:
    """A stream in the JSON of the status."""
    return {
        "name": name,
        "mode": status.mode,
        "paused": status.paused,
        "counts": dict(status.counts),
        "oldest_ms": status.oldest_ms,
    }
