"""Reports the ledgers of a BookKeeper cluster: findings, marks, plan."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from trueup.connectors.bookkeeper.metadata.capture import CaptureHealth
from trueup.connectors.bookkeeper.metadata.mark_codec import Mark
from trueup.connectors.bookkeeper.metadata.rack_source import RackHealth
from trueup.state.bookkeeper.ledgers import Column, Ledgers, concat
from trueup.state.bookkeeper.marks import HIDDEN, MARK
from trueup.state.bookkeeper.observations import LedgerRecord, LedgerState
from trueup.state.bookkeeper.topology import Status, Topology
from trueup.state.common.counts import many
from trueup.state.common.errors import Refused
from trueup.state.common.rules import Verdict
from trueup.state.deletion.owners import claim_of
from trueup.state.placement.board import Board, by_rule, repairable, riskiest, wanted, without_copies
from trueup.state.placement.lifecycle import Repair, RepairStage
from trueup.state.placement.policy.declared import policy_text
from trueup.state.placement.progress import counted
from trueup.state.placement.readiness import Readiness, few
from trueup.state.placement.rules import RULES
from trueup.state.placement.settings import PlacementSettings
from trueup.state.placement.verdicts import Verdicts, evidence, judge
from trueup.state.placement.view import Rows
from trueup.streams.bookkeeper.cluster import BookKeeper
from trueup.streams.bookkeeper.keeper import TopologyKeeper
from trueup.streams.bookkeeper.selection import ANY, LedgerSelection
from trueup.streams.config.live import LiveSection
from trueup.streams.placement.judging import Judging
from trueup.streams.placement.reconciler import PlacementReconciler, action_id
from trueup.streams.placement.repairs.auditor_role import AuditorRole
from trueup.streams.placement.repairs.repair_workers import RepairWorkers
from trueup.streams.placement.signs import MarkCounts, PlacementFields
from trueup.streams.rows import Row
from trueup.streams.runtime.format import ago
from trueup.streams.runtime.stream import AWAITING, Finding, LimitedRows, ObservationSource, PlanRow

SLOW_MS = 5_000
UNKNOWN_RACK = "placement.unknown-rack"
NOT_JUDGED = {"verdict": "unknown", "rule": "", "copies": None, "racks": None, "held": False}


class PlacementReport:
    """The placement stream's part of `streams.web.engine.Engine`."""

    def __init__(
        self,
        policy: LiveSection[PlacementSettings],
        cluster: BookKeeper,
        auditor: AuditorRole,
        keeper: TopologyKeeper,
        judging: Judging,
        reconciler: PlacementReconciler,
        workers: RepairWorkers,
        clock: Callable[[], int],
    ) -> None:
        self._cluster, self._auditor, self._keeper = cluster, auditor, keeper
        self._policy, self._judging = policy, judging
        self._reconciler, self._workers, self._clock = reconciler, workers, clock
        self._readiness = Readiness()

    @property
    def _board(self) -> Board:
        return self._reconciler.board

    @property
    def _topology(self) -> Topology:
        topology = self._keeper.topology
        if topology is None:
            raise Refused("an observation of the bookies", "none yet", "try again when /readyz returns 200")
        return topology

    def status(self, now_ms: int, runs: bool, damages: Mapping[str, int]) -> PlacementFields:
        """Its fields of the status. ``runs``: whether the query is running; ``damages``: reported replicas by state."""
        topology, policy = self._keeper.topology, self._policy.current
        counts, not_judged = self._counts(now_ms, runs)
        with self._reconciler.lock:
            oldest = self._oldest(now_ms)
            marks, repairs = self._board.marks, dict(self._reconciler.repairs)
            waiting = dict(self._reconciler.waiting)
            lost = without_copies(self._board.findings, self._board.outdated)
        return PlacementFields(
            watches_ledgers=True,
            mode=policy.mode,
            paused=policy.paused,
            damages=damages,
            counts=counts,
            not_judged=not_judged,
            ledgers=sum(counts.values()),
            oldest_drift_ms=oldest,
            waiting=waiting,
            without_copies=lost,
            marks=MarkCounts(
                outstanding=int((marks["version"] >= 0).sum()),
                ours=sum(r.stage in (RepairStage.MARKED, RepairStage.WORKING) for r in repairs.values()),
                cap=policy.max_marks,
                idle_ms=self._workers.idle_ms(now_ms),
            ),
            held=topology.held if topology else "",
            unbound=self._auditor.unbound(),
            bookies=_bookies(topology),
            policy=policy_text(policy),
        )

    def tick(self, runs: bool) -> None:
        """Update the readiness; called periodically, so that readiness does not depend on requests."""
        self._judging.tick()
        now_ms, health = self._clock(), self._cluster.health()
        if self._reconciler.complete and health.connected and health.synced:
            counts, not_judged = self._counts(now_ms, runs)
            ledgers = sum(counts.values())
            not_judged = not_judged if self._seen(now_ms, runs) else ledgers
            self._readiness.update(not_judged, ledgers, self._judging.oldest_ms, now_ms)

    def not_ready(self) -> list[str]:
        """Why findings are not reliable yet."""
        health = self._cluster.health()
        reasons = []
        if not (health.connected and health.synced):
            reasons.append(
                f"ZooKeeper is not connected or not synchronized{f': {health.problem}' if health.problem else ''}"
            )
        if not self._reconciler.complete:
            reasons.append("the view is not complete yet")
        elif silent := self._reconciler.silent():
            reasons.append(silent)
        elif not self._readiness.ready(self._clock()):
            reasons.append("ledgers wait too long for their verdict, or not all were judged in this run yet")
        return reasons

    def stopped(self) -> list[str]:
        """Why repairs are blocked, and what is skipped."""
        acting = self._policy.current.mode != "observe" and not self._policy.current.paused
        blocked_reason = self._reconciler.blocked_reason
        stopped = [f"changes are blocked: {blocked_reason}"] if blocked_reason and acting else []
        stopped += self._workers.lacking() if acting else []
        return [*stopped, *self._cluster.problems(), *self._auditor.problems(), *self._workers.problems(self._clock())]

    def _seen(self, now_ms: int, runs: bool) -> bool:
        """Whether verdicts are current, except those of ledgers that wait for one."""
        return runs and self._reconciler.complete and not (self._cluster.blind(now_ms) or self._reconciler.silent())

    def _counts(self, now_ms: int, runs: bool) -> tuple[dict[str, int], int]:
        """Ledgers by verdict, and the number of unknown ones that wait for the stream."""
        # The order matters: a ledger that the capture counts is already waiting or judged at the second read.
        health, waiting = self._cluster.health(), self._judging.waiting
        ledgers = health.ledgers + health.hidden
        with self._reconciler.lock:
            findings, settled = self._board.findings, self._reconciler.settled
            outdated = self._board.outdated
        if waiting is None or not settled:
            return {"true": 0, "drifted": 0, "blocked": 0, "unknown": ledgers}, ledgers
        if not self._seen(now_ms, runs):
            return {"true": 0, "drifted": 0, "blocked": 0, "unknown": ledgers}, min(waiting.present, ledgers)
        counts = counted(findings, waiting, health.ledgers, outdated)
        return counts | {"unknown": counts["unknown"] + health.hidden}, min(waiting.present, ledgers)

    def _oldest(self, now_ms: int) -> int | None:
        drifted = self._board.findings[self._board.findings["verdict"] == Verdict.DRIFTED]
        since_ms = drifted["since_ms"][~np.isin(drifted["ledger"], self._board.outdated)]
        return now_ms - int(since_ms.min()) if len(since_ms) else None

    def sources(self, now_ms: int) -> list[ObservationSource]:
        """ZooKeeper, the Auditor's vote, the rack map and the AutoRecovery daemons."""
        health = self._cluster.health()
        age_ms = health.age_ms(now_ms)
        current = health.synced and age_ms is not None and age_ms < SLOW_MS
        # Before the first observation, only an error shows that something is wrong.
        down = not health.connected and (health.problem or age_ms is not None)
        zookeeper = "down" if down else "up" if current and health.connected else "slow"
        return [
            ObservationSource(
                "zookeeper", zookeeper, age_ms, health.problem if down and health.problem else _seen(health)
            ),
            ObservationSource("vote", "up", age_ms, self._auditor.vote_holder()),
            *_racks(self._cluster.racks, health.rack_problem, now_ms),
            *(
                ObservationSource(*fields)
                for fields in self._workers.source(now_ms, self._policy.current.mode != "observe")
            ),
        ]

    def incomplete(self, judged: bool, runs: bool = True) -> str:
        """Why a list of observations, or of verdicts (``judged``), may be incomplete; empty if it is complete except
        for a `few` ledgers."""
        now_ms, reasons = self._clock(), []
        health = self._cluster.health()
        if not (health.connected and health.synced):
            reasons.append("ZooKeeper is not connected or not synchronized")
        elif self._cluster.blind(now_ms):
            age_ms = health.age_ms(now_ms)
            reasons.append(
                "ZooKeeper was not observed yet"
                if age_ms is None
                else f"the last observation of ZooKeeper is {age_ms // 1000} s old"
            )
        if health.forbidden:
            reasons.append(f"no permission to read {many(health.forbidden, 'ledger')}")
        if judged and not runs:
            reasons.append("the placement stream is not running")
        elif judged and not self._reconciler.complete:
            reasons.append("the view is not complete yet")
        elif judged and (silent := self._reconciler.silent()):
            reasons.append(silent)
        elif judged:
            counts, not_judged = self._counts(now_ms, runs)
            if not few(not_judged, ledgers := sum(counts.values())):
                reasons.append(f"{not_judged:,} of {many(ledgers, 'ledger')} not judged yet")
        return "; ".join(reasons)

    def unknown(self, runs: bool) -> str:
        """Why a ledger may have no finding that should have one, or cannot be read; empty if there is none."""
        if reason := self.incomplete(judged=True, runs=runs):
            return reason
        if not_judged := self._counts(self._clock(), runs)[1]:
            return f"the verdict on {many(not_judged, 'ledger')}"
        unreadable = self._cluster.health().unreadable
        return f"{many(unreadable, 'ledger')} to be readable" if unreadable else ""

    def found(self) -> Column:
        """The ids of the ledgers with a verdict other than true: int64."""
        with self._reconciler.lock:
            ledgers: Column = self._board.findings["ledger"]
        return ledgers

    def findings(
        self, verdict: str | None, rule: str | None, limit: int, where: LedgerSelection = ANY
    ) -> tuple[list[Finding], int]:
        """Ledgers with a verdict other than true, highest risk first, and their number without the limit."""
        with self._reconciler.lock:
            rows = self._board.findings
        if verdict is not None:
            rows = rows[rows["verdict"] == Verdict[verdict.upper()]]
        if rule is not None:
            rows = rows[rows["rule"] == RULES.code(rule)] if RULES.find(rule) else rows[:0]
        rows = self._matching(rows, where)
        with self._reconciler.lock:
            return [self._finding(row) for row in riskiest(rows)[:limit]], len(rows)

    def _matching(self, rows: Rows, where: LedgerSelection) -> Rows:
        """The findings whose ledgers match now."""
        return rows[np.isin(rows["ledger"], self._cluster.select(rows["ledger"], where))] if where else rows

    def grouped(self) -> dict[tuple[str, str], int]:
        """The number of ledgers with a verdict other than true, by rule and verdict."""
        with self._reconciler.lock:
            counts = by_rule(self._board.findings)
        return {(rule, verdict.name.lower()): count for (rule, verdict), count in counts.items()}

    def _finding(self, row: Rows) -> Finding:
        rule, ledger = RULES[int(row["rule"])], int(row["ledger"])
        mark, repair = self._board.mark(ledger), self._reconciler.repairs.get(ledger)
        numbers = {name: int(row[name]) for name in ("copies", "racks", "version", "fragment")}
        return Finding(
            {"ledger": ledger},
            Verdict(int(row["verdict"])).name.lower(),
            rule.id,
            rule.title,
            int(row["since_ms"]),
            repair.stage.value if repair else "",
            {**numbers, "marked": mark is not None and int(mark["version"]) >= 0, "held": bool(row["held"])},
        )

    def ledgers(self, limit: int, every: bool, where: LedgerSelection = ANY) -> LimitedRows:
        """Ledgers with a verdict other than true, highest risk first; with ``every`` then the others, by id. Current
        reads."""
        with self._reconciler.lock:
            findings = self._board.findings
        findings = riskiest(self._matching(findings, where))["ledger"]
        rows, total = self._cluster.readable(findings[:limit].tolist()), len(findings)
        if every:
            others, total = self._cluster.search(limit, where) if where else self._first(limit)
            rows = concat([rows, others.take(~np.isin(others.ledger, rows.ledger))])
        place = {ledger: at for at, ledger in enumerate(findings[:limit].tolist())}
        order = sorted(range(len(rows)), key=lambda at: (place.get(int(rows.ledger[at]), limit), rows.ledger[at]))
        ledgers = rows.take(np.array(order[:limit], np.int64))
        unjudged = self._unjudged()
        with self._reconciler.lock:
            return LimitedRows(self._judged(ledgers, unjudged), total)

    def _first(self, limit: int) -> tuple[Ledgers, int]:
        rows = self._cluster.first(limit)
        return rows, max(len(rows), self._cluster.health().ledgers)

    def _unjudged(self) -> Callable[[int], bool]:
        """Whether the present version of a ledger is not judged yet, by the bookies of now."""
        waiting = self._judging.waiting
        with self._reconciler.lock:
            settled = self._reconciler.settled
        if waiting is None or not settled or not self._seen(self._clock(), runs=True):
            return lambda _: True
        return {*waiting.ledgers.tolist()}.__contains__

    def _judged(self, rows: Ledgers, unjudged: Callable[[int], bool]) -> list[Row]:
        verdicts = judge(rows, self._topology, self._board.former.at(self._clock()))
        return [
            {
                **_shape(rows, at),
                **(NOT_JUDGED if unjudged(int(rows.ledger[at])) else _verdict(verdicts, at)),
                **self._known(int(rows.ledger[at])),
            }
            for at in range(len(rows))
        ]

    def _known(self, ledger: int) -> Row:
        finding, mark = self._board.finding(ledger), self._board.mark(ledger)
        since_ms = int(finding["since_ms"]) if finding is not None else None
        return {"since_ms": since_ms, "marked": mark is not None}

    def ledger(self, ledger: int) -> Row:
        """All details of one ledger, from a current read. ``claim``: the owner that its metadata names. Raises
        `Refused` if it does not exist."""
        record, row = self._cluster.describe(ledger)
        with self._reconciler.lock:
            former, finding = self._board.former.at(self._clock()), self._board.finding(ledger)
            mark, repair = self._board.mark(ledger), self._reconciler.repairs.get(ledger)
            history = self._reconciler.history.rows(ledger)
        component, owner, cursor = claim_of(record["custom"])
        shown = evidence(row, 0, self._topology, former)
        match = RULES.find(shown["rule"])
        assert match is not None, "evidence names a rule of the table"
        rule = match
        verdict, reason = shown["verdict"], rule.title
        if self._unjudged()(ledger):
            verdict, reason = "unknown", f"not judged yet; by this reading: {reason}"
        fragments = record["fragments"]
        ends = [*(f["first_entry"] - 1 for f in fragments[1:]), record["last_entry"]][: len(fragments)]
        numbers = ("ledger", "ensemble", "quorum", "ack_quorum", "version", "mzxid", "ctime_ms", "last_entry", "length")
        return {
            **{name: record[name] for name in numbers},  # type: ignore[literal-required]
            "state": LedgerState(record["state"]).name.lower(),
            "error": record["error"],
            "fragments": [
                {"first_entry": f["first_entry"], "last_entry": end, **fragment}
                for f, end, fragment in zip(fragments, ends, shown["fragments"], strict=True)
            ],
            "verdict": verdict,
            "rule": rule.id,
            "reason": reason,
            "held": shown["held"],
            "isolation": shown["isolation"],
            "changes": [*shown["changes"], *self._rack_problem(rule.id)],
            "copy": self._copy(record, row.isolations[int(row.isolation[0])], rule.id),
            "since_ms": int(finding["since_ms"]) if finding is not None else None,
            "mark": self._marks(np.array([mark], MARK))[0] if mark is not None else None,
            "stage": repair.stage.value if repair else "",
            "history": [{"at_ms": e.at_ms, "event": e.outcome, "detail": e.detail, "by": e.who} for e in history],
            "claim": {"component": component.name.lower(), "owner": owner, "cursor": cursor},
        }

    def _copy(self, record: LedgerRecord, isolation: str, rule: str) -> Row | None:
        """What a copy of the ledger would move; None if it needs none, or Trueup does not copy it."""
        needs = repairable(self._policy.current)[RULES.code(rule)]
        planned = self._reconciler.copy_of(record, isolation) if needs else None
        if planned is None:
            return None
        moves, used = planned
        entry_bytes = record["length"] / max(1, record["last_entry"] + 1)
        return {
            "moves": [
                {**move._asdict(), "bytes": round(move.entries * entry_bytes), "used": used.get(move.after)}
                for move in moves.moves
            ],
            "stuck": list(moves.stuck),
            "unadhering": list(moves.unadhering),
            "complete": moves.complete,
        }

    def _rack_problem(self, rule: str) -> Iterator[str]:
        """Why the rack map has no answer, if the verdict waits for one."""
        asked = self._cluster.racks
        problem = asked.problem if asked is not None else self._cluster.health().rack_problem
        if rule == UNKNOWN_RACK and problem:
            yield f"a response of the rack map, which failed: {problem}"

    def bookies(self) -> list[Row]:
        """All bookies that ever registered."""
        return [
            {
                "bookie": b.id,
                "rack": b.rack or "",
                "groups": list(b.groups or ()),
                "status": b.status.name.lower(),
                "draining": b.id in self._topology.policy.drain,
                "since_ms": b.since_ms,
                "ledgers": None,
            }
            for b in self._topology.bookies
        ]

    def bookie(self, bookie: str) -> Row:
        """One bookie. Raises `Refused` if it never registered."""
        if match := next((row for row in self.bookies() if row["bookie"] == bookie), None):
            return match
        raise Refused(f"a bookie {bookie[:200]}", "none that ever registered", "see `trueup get bookies`")

    def marks(self) -> list[Row]:
        """All under-replication marks, of Trueup and of other processes."""
        with self._reconciler.lock:
            rows = self._board.marks
        return self._marks(rows)

    def _marks(self, rows: Rows) -> list[Row]:
        """Rows of these marks, with the current contents of their znodes."""
        unjudged = self._unjudged()
        written = self._auditor.marked(rows["ledger"][rows["version"] >= 0].tolist())
        owners = self._auditor.locks(rows["ledger"][rows["locked"] > 0].tolist())
        with self._reconciler.lock:
            repairs = self._reconciler.repairs
            marks = [self._mark(row, repairs.get(int(row["ledger"])), owners, written) for row in rows]
        return [row | {"verdict": "unknown"} if unjudged(row["ledger"]) else row for row in marks]

    def _mark(self, row: Rows, repair: Repair | None, owners: dict[int, str], written: dict[int, Mark | None]) -> Row:
        ledger, mark = int(row["ledger"]), written.get(int(row["ledger"]))
        hidden = int(row["version"]) == HIDDEN
        ours = None if hidden else repair is not None and repair.mark_ctime_ms == int(row["ctime_ms"])
        finding = self._board.finding(ledger)
        return {
            "ledger": ledger,
            "ours": ours,
            "locked_by": owners.get(ledger, ""),
            "ctime_ms": int(row["ctime_ms"]),
            "version": int(row["version"]),
            "replicas": list(mark.replicas) if mark is not None else [],
            "verdict": Verdict(int(finding["verdict"])).name.lower() if finding is not None else "true",
            "stage": repair.stage.value if repair else "",
        }

    def plan(self) -> list[PlanRow]:
        """Ordered repairs and the next ones, highest risk first."""
        with self._reconciler.lock:
            now_ms, repairs = self._clock(), dict(self._reconciler.repairs)
            due = wanted(self._board, repairs, self._policy.current, now_ms)
            under_way = [r for r in repairs.values() if r.stage is not RepairStage.APPROVED]
            findings = {
                int(row["ledger"]): row
                for row in self._board.findings[np.isin(self._board.findings["ledger"], [r.ledger for r in under_way])]
            }
        ask = self._policy.current.mode == "approve"
        rows = [self._planned(row, repairs.get(int(row["ledger"])), ask) for row in due]
        return rows + [self._under_way(r, findings.get(r.ledger)) for r in under_way]

    def _planned(self, row: Rows, repair: Repair | None, ask: bool) -> PlanRow:
        rule, ledger, at = RULES[int(row["rule"])], int(row["ledger"]), int(row["version"])
        stage = "approved" if repair and repair.stage is RepairStage.APPROVED else AWAITING if ask else "planned"
        stage = "held" if row["held"] else stage
        return PlanRow(
            action_id(ledger, at),
            self._action(repair),
            rule.id,
            rule.title,
            stage,
            {"ledger": ledger},
            requirements={"version": at, "epoch": self._topology.epoch},
            evidence={"fragment": int(row["fragment"]), "since_ms": int(row["since_ms"])},
            measured=_measured(row),
        )

    def _action(self, repair: Repair | None) -> str:
        """What is done for a ledger: copy, unless its mark may exist."""
        copies = self._policy.current.executor == "copy" and not (repair and repair.mark_ctime_ms)
        return "copy" if copies else "mark"

    def _under_way(self, repair: Repair, row: Rows | None) -> PlanRow:
        rule = RULES.find(repair.rule)
        return PlanRow(
            action_id(repair.ledger, repair.version),
            "withdraw" if repair.stage in (RepairStage.LEAVING, RepairStage.STUCK) else self._action(repair),
            repair.rule,
            rule.title if rule else "",
            repair.stage.value,
            {"ledger": repair.ledger},
            repair.next_ms or None,
            {"version": repair.version, "epoch": self._topology.epoch},
            {"attempts": repair.attempts, "detail": repair.detail, "since_ms": repair.since_ms},
            _measured(row) if row is not None else {},
        )


def _shape(rows: Ledgers, at: int) -> Row:
    return {
        "ledger": int(rows.ledger[at]),
        "state": LedgerState(int(rows.state[at])).name.lower(),
        "ensemble": int(rows.ensemble[at]),
        "quorum": int(rows.quorum[at]),
        "fragments": int(rows.fragments[at]),
    }


def _verdict(verdicts: Verdicts, at: int) -> Row:
    rule = RULES[int(verdicts.rule[at])]
    return {
        "verdict": Verdict(int(verdicts.verdict[at])).name.lower(),
        "rule": rule.id,
        "copies": int(verdicts.copies[at]),
        "racks": int(verdicts.racks[at]),
        "held": bool(verdicts.held[at]),
    }


def _measured(row: Rows) -> dict[str, int | None]:
    return {"copies": int(row["copies"]), "racks": int(row["racks"])}


def _seen(health: CaptureHealth) -> str:
    forbidden = f", {health.forbidden} without read permission" if health.forbidden else ""
    return f"{many(health.ledgers, 'ledger')}, {health.unreadable} unreadable{forbidden}"


def _bookies(topology: Topology | None) -> dict[str, list[str]]:
    """Names of bookies by status."""
    names: dict[str, list[str]] = {status.name.lower(): [] for status in Status}
    for bookie in topology.bookies if topology else ():
        names[bookie.status.name.lower()].append(bookie.id)
    return names


def _racks(asked: RackHealth | None, problem: str, now_ms: int) -> list[ObservationSource]:
    """The rack map, if it can fail."""
    if asked is None:
        return [ObservationSource("racks", "slow", None, f"the last racks apply: {problem}")] if problem else []
    age_ms = now_ms - asked.answered_ms if asked.answered_ms else None
    if asked.unknown:
        why = asked.problem or "script is running"
        detail = f"no rack known for {many(asked.unknown, 'host')} of {asked.hosts}: {why}"
        return [ObservationSource("racks", "down" if asked.problem else "slow", age_ms, detail)]
    if asked.problem:
        return [ObservationSource("racks", "slow", age_ms, f"racks of {ago(age_ms)} apply: {asked.problem}")]
    return [ObservationSource("racks", "up", age_ms, many(asked.hosts, "host"))]
