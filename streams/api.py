"""What the running application says of itself and takes from operators: the API behind web page and command line."""

from collections.abc import Callable, Mapping
from importlib.metadata import version
from itertools import chain
from typing import Any

from trueup.state.common.errors import Refused
from trueup.state.common.options import default_of
from trueup.state.settings.settings import all_keys, live_keys, value_of
from trueup.streams.config.live import Live
from trueup.streams.deletion.report import Unreferenced
from trueup.streams.journal.history import History
from trueup.streams.journal.journal import Journal
from trueup.streams.logdirs.manager import LogDirs
from trueup.streams.placement.report import Placed
from trueup.streams.replication.manager import Links
from trueup.streams.runtime.listener import Listener
from trueup.streams.runtime.supervisor import Supervisor

SILENT_MS = 30_000  # a query without input still reports every 10 s
NOTHING = {
    "counts": {"true": 0, "drifted": 0, "blocked": 0, "unknown": 0}, "not_judged": 0, "ledgers": 0,
    "oldest_drift_ms": None, "waiting": {}, "marks": {"outstanding": 0, "ours": 0, "cap": 0, "idle_ms": 0}, "held": "",
    "unbound": "", "bookies": {},
}  # fmt: skip
"""What the status says of ledgers where no BookKeeper cluster is watched."""
Rows = list[dict[str, Any]]


class Application:
    """Implements `streams.web.engine.Engine` over the parts of one running application. ``placed`` is None where no
    BookKeeper cluster is watched, ``unreferenced`` where nobody says which ledgers are in use."""

    def __init__(
        self,
        live: Live,
        journal: Journal,
        placed: Placed | None,
        unreferenced: Unreferenced | None,
        links: Links,
        logdirs: LogDirs,
        supervisor: Supervisor,
        listener: Listener,
        clock: Callable[[], int],
        history: History,
    ) -> None:
        self._live, self._journal, self._placed, self._links = live, journal, placed, links
        self._logdirs, self._unreferenced = logdirs, unreferenced
        self._supervisor, self._listener, self._clock, self._history = supervisor, listener, clock, history
        self._started_ms = clock()
        self.spark_ui, self.spark_ended = "", ""
        self.notes: list[str] = [*logdirs.left]

    def tick(self) -> None:
        """See how far verdicts can be relied upon."""
        if self._placed:
            self._placed.tick(self._supervisor.runs("placement"))

    def status(self) -> dict[str, Any]:
        """The whole application in one answer."""
        now_ms, now, placed = self._clock(), self._live.now, self._placed
        not_ready = [*(placed.not_ready() if placed else []), *self._links.not_ready(), *self._logdirs.not_ready()]
        not_ready += self._unreferenced.not_ready() if self._unreferenced else []
        not_ready += self._supervisor.failing()
        said = placed.status(now_ms, self._supervisor.runs("placement")) if placed else NOTHING
        return {
            "version": version("trueup"), "cluster": now.cluster.name, "watches_ledgers": placed is not None,
            "mode": now.placement.mode, "paused": now.placement.paused, "ready": not not_ready,
            "started_ms": self._started_ms, "now_ms": now_ms, "problems": [*not_ready, *self._problems()],
            "streams": self._streams(), "sources": self._sources(now_ms), **said,
            "links": self._links.rows(), "logdirs": self._logdirs.rows(), "spark_ui": self.spark_ui,
            "deletion": self._unreferenced.status() if self._unreferenced else None,
        }  # fmt: skip

    def _problems(self) -> list[str]:
        refused = [f"config record refused, {where}: {why}" for where, why in list(self._live.refused.values())]
        stopped = [part.stopped() for part in (self._placed, self._unreferenced) if part is not None]
        return [*self.notes, *refused, *chain(*stopped), *self._logdirs.problems()]

    def _streams(self) -> list[dict[str, Any]]:
        out = []
        for task in self._supervisor.tasks.values():
            if task.query is None and task.name not in self._listener.last:
                continue
            last = self._listener.last.get(task.name, {})
            behind = [
                int(float(s.get("metrics", {}).get("maxOffsetsBehindLatest") or 0)) for s in last.get("sources", [])
            ]
            out.append({
                "name": task.name, "state": task.state, "batch": last.get("batchId", -1),
                "rows_per_s": last.get("processedRowsPerSecond", 0.0),
                "batch_ms": last.get("durationMs", {}).get("triggerExecution", 0), "behind": max(behind, default=0),
                "restarts": task.restarts, "error": task.error,
            })  # fmt: skip
        return out

    def _sources(self, now_ms: int) -> Rows:
        journal = "up" if self._journal.reachable() else "down"
        rows = [*(self._placed.sources(now_ms) if self._placed else []), *self._links.sources(now_ms)]
        rows += [*self._logdirs.sources(now_ms), *(self._unreferenced.sources(now_ms) if self._unreferenced else [])]
        rows += [("journal", journal, 0, self._journal.bootstrap), self._spark(now_ms)]
        return [{"name": n, "state": s, "age_ms": a, "detail": d} for n, s, a, d in rows]

    def _spark(self, now_ms: int) -> tuple[str, str, int, str]:
        """The session, by the signs of life of its queries: one that is silent for long hangs."""
        if self.spark_ended:
            ago_ms = now_ms - max(self._listener.heard.values(), default=self._started_ms)
            return "spark", "down", ago_ms, f"{self.spark_ended}; another session is started"
        if not self.spark_ui:
            return "spark", "down", now_ms - self._started_ms, "starting"
        heard = self._listener.heard
        last_ms = heard.get("placement") if self._placed else max(heard.values(), default=None)
        age_ms = now_ms - (self._started_ms if last_ms is None else last_ms)
        silent = age_ms > SILENT_MS + max(self._links.longest_ms(), self._logdirs.longest_ms())
        return "spark", "slow" if silent else "up", age_ms, self.spark_ui

    def incomplete(self, noun: str) -> str:
        """Why the list of this noun may lack rows or show old ones; empty if it is whole."""
        reasons = []
        if self._placed and noun in ("findings", "ledgers", "marks", "plan"):
            reasons.append(self._placed.incomplete(judged=True, runs=self._supervisor.runs("placement")))
        elif self._placed and noun in ("bookies", "all ledgers"):
            reasons.append(self._placed.incomplete(judged=False))
        if self._unreferenced and noun in ("unreferenced", "markers", "plan"):
            reasons += self._unreferenced.not_ready()
        if noun in ("links", "plan"):
            reasons += self._links.not_ready()
        if noun in ("directories", "plan"):
            reasons += self._logdirs.incomplete()
        return "; ".join(filter(None, reasons))

    def findings(self, verdict: str | None, rule: str | None, limit: int) -> Rows:
        """What is not true, riskiest first."""
        return self._placed.findings(verdict, rule, limit) if self._placed else []

    def ledgers(self, limit: int, every: bool) -> Rows:
        """Ledgers that are not true, or with ``every`` the first of all."""
        return self._placed.ledgers(limit, every) if self._placed else []

    def ledger(self, ledger: int) -> dict[str, Any]:
        """Everything about one ledger, read afresh."""
        if self._placed is None:
            raise Refused("a BookKeeper cluster", "none is watched", "set cluster.zookeeper")
        found, claim = self._placed.ledger(ledger)
        owned = self._unreferenced.ledger(ledger, claim) if self._unreferenced else None
        return {**found, "owned": owned}

    def unreferenced(self, limit: int) -> Rows:
        """Ledgers that nobody points to, longest forgotten first."""
        return self._unreferenced.rows(limit) if self._unreferenced else []

    def markers(self) -> Rows:
        """Deletions under way."""
        return self._unreferenced.markers() if self._unreferenced else []

    def bookies(self) -> Rows:
        """All bookies ever registered."""
        return self._placed.bookies() if self._placed else []

    def marks(self) -> Rows:
        """All under-replication marks, ours and others'."""
        return self._placed.marks() if self._placed else []

    def links(self) -> Rows:
        """All links."""
        return self._links.rows()

    def link(self, name: str) -> dict[str, Any]:
        """Everything about one link."""
        return self._links.describe(name)

    def reset_link(self, name: str, partitions: list[str] | None, to: str) -> Rows:
        """Set where a link goes on copying."""
        return self._links.reset(name, partitions, to)

    def refill_link(self, name: str, certain: bool) -> Rows:
        """What a link's target would get back, or begin it."""
        return self._links.refill(name, certain)

    def directories(self) -> Rows:
        """All log directories."""
        return self._logdirs.directories()

    def broker(self, kafka: str, broker: int) -> dict[str, Any]:
        """Everything about the log directories of one broker."""
        return self._logdirs.broker(kafka, broker)

    def create_topic(self, kafka: str, topic: str, partitions: int, replicas: int, configs: dict[str, str]) -> Rows:
        """Make a topic in directories that the strategy chooses."""
        return self._logdirs.create_topic(kafka, topic, partitions, replicas, configs)

    def plan(self) -> Rows:
        """What is ordered, what would be next, riskiest first; then changes of links and log directories."""
        deletions = self._unreferenced.plan() if self._unreferenced else []
        ledgers = [*(self._placed.plan() if self._placed else []), *deletions]
        return [*ledgers, *self._links.plan(), *self._logdirs.plan()]

    def delete(self, ledger: int) -> dict[str, Any]:
        """Have a ledger deleted because an operator says so; its marker."""
        if self._unreferenced is None:
            raise Refused("deletion.owners operator", "none", "set it where no owner's metadata are to be asked")
        row = self._unreferenced.order(ledger)
        self._history.add({
            "at_ms": self._clock(), "id": row["id"], "kind": "deletion", "ledger": ledger, "rule": row["rule"],
            "outcome": "ordered",
        })  # fmt: skip
        return row

    def approve(self, ids: list[str] | None) -> Rows:
        """Say yes to actions of the present plan (None: to all of it); those it was said to."""
        waiting = {row["id"] for row in self.plan() if row["stage"] == "awaiting approval"}
        strange = [] if ids is None else sorted(set(ids) - waiting)
        if strange:
            raise Refused("ids of the present plan", ", ".join(strange), "look at `trueup plan` again")
        mine = [*self._links.approve(ids), *self._logdirs.approve(ids)]
        mine += self._unreferenced.approve(ids) if self._unreferenced else []
        self._history.add(*(self._approved(row) for row in mine))
        rest = None if ids is None else [i for i in ids if i not in {row["id"] for row in mine}]
        return [*(self._placed.approve(rest) if self._placed and rest != [] else []), *mine]

    def _approved(self, row: Mapping[str, Any]) -> dict[str, Any]:
        about = {name: row.get(name) for name in ("id", "kind", "ledger", "link", "rule")}
        kafka, broker = row["id"].partition("/")[0], row["evidence"].get("broker")
        about |= {"broker": f"{kafka}/{broker}"} if broker is not None else {}
        return {**about, "at_ms": self._clock(), "outcome": "approved", "detail": row["reason"]}

    def config(self) -> dict[str, Any]:
        """Live keys with value, default and meaning; the others as they are."""
        now = self._live.now
        live = live_keys(now)
        return {
            "live": {
                name: {"value": value_of(now, name), "default": default_of(spec), "doc": spec.metadata["doc"]}
                for name, spec in live.items()
            },
            "fixed": {
                name: value_of(now, name)
                for name, spec, _ in all_keys(now)
                if name not in live and not spec.metadata["secret"]
            },
        }

    def set_config(self, name: str, value: Any) -> dict[str, Any]:
        """Change a live key, here and wherever the config topic is followed."""
        before = value_of(self._live.now, name) if name in live_keys(self._live.now) else None
        after = self._live.set(name, value)
        link = name.split(".")[1] if name.startswith("links.") else None
        self._history.add({
            "at_ms": self._clock(), "id": f"config-{name}", "kind": "config", "link": link,
            "outcome": "set" if value is not None else "default", "detail": f"{name}: {before} > {after}",
        })  # fmt: skip
        return {"name": name, "value": after}

    def actions(self, limit: int) -> Rows:
        """What was done, newest first."""
        return self._history.latest(limit)
