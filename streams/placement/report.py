"""What the running application says of the ledgers of its BookKeeper cluster: findings, marks, plan, approvals."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from trueup.connectors.bookkeeper.metadata.capture import CaptureHealth
from trueup.connectors.bookkeeper.metadata.mark_codec import Mark
from trueup.connectors.bookkeeper.metadata.rack_source import RackHealth
from trueup.state.bookkeeper.ledgers import Ledgers
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.bookkeeper.topology import Status, Topology
from trueup.state.common.errors import Refused
from trueup.state.common.rules import Verdict
from trueup.state.deletion.owners import Claim, claim_of
from trueup.state.placement.board import Board, riskiest, wanted
from trueup.state.placement.judging import counted
from trueup.state.placement.lifecycle import Repair, RepairStage
from trueup.state.placement.readiness import Readiness, few
from trueup.state.placement.rules import RULES
from trueup.state.placement.verdicts import evidence, judge
from trueup.state.placement.view import MARK, Rows
from trueup.streams.bookkeeper.cluster import BookKeeper
from trueup.streams.bookkeeper.repair_workers import RepairWorkers
from trueup.streams.bookkeeper.topology import Keeper
from trueup.streams.config.live import Live
from trueup.streams.placement.reconciler import PlacementReconciler, action_id
from trueup.streams.runtime.format import age, many
from trueup.streams.runtime.stream import AWAITING, Finding, Listing, PlanRow, Source, waiting

SLOW_MS = 5_000
UNKNOWN_RACK = "placement.unknown-rack"


class PlacementReport:
    """The placement stream's share of `streams.web.engine.Engine`."""

    def __init__(
        self,
        live: Live,
        cluster: BookKeeper,
        keeper: Keeper,
        reconciler: PlacementReconciler,
        workers: RepairWorkers,
        clock: Callable[[], int],
    ) -> None:
        self._live, self._cluster, self._keeper = live, cluster, keeper
        self._reconciler, self._workers, self._clock = reconciler, workers, clock
        self._readiness = Readiness()

    @property
    def _board(self) -> Board:
        return self._reconciler.board

    @property
    def _topology(self) -> Topology:
        topology = self._keeper.topology
        if topology is None:
            raise Refused("the bookies to have been seen", "no observation yet", "try again when /readyz answers 200")
        return topology

    def status(self, now_ms: int, runs: bool) -> dict[str, Any]:
        """Its part of the status. ``runs``: whether the query does."""
        topology = self._keeper.topology
        counts, not_judged = self._counts(now_ms, runs)
        with self._reconciler.lock:
            oldest = self._oldest(now_ms)
            marks, repairs = self._board.marks, dict(self._reconciler.repairs)
            waiting = dict(self._reconciler.waiting)
        return {
            "counts": counts, "not_judged": not_judged, "ledgers": sum(counts.values()), "oldest_drift_ms": oldest,
            "waiting": waiting,
            "marks": {
                "outstanding": int((marks["version"] >= 0).sum()),
                "ours": sum(r.stage in (RepairStage.MARKED, RepairStage.WORKING) for r in repairs.values()),
                "cap": self._live.now.placement.max_marks, "idle_ms": self._workers.idle_ms(now_ms),
            },
            "held": topology.held if topology else "", "unbound": self._cluster.unbound(),
            "bookies": _bookies(topology),
        }  # fmt: skip

    def tick(self, runs: bool) -> None:
        """Find out how far the stream has judged; often enough that readiness does not depend on who asks."""
        self._cluster.judging.tick()
        now_ms, health = self._clock(), self._cluster.health()
        if self._reconciler.complete and health.connected and health.synced:
            counts, not_judged = self._counts(now_ms, runs)
            ledgers = sum(counts.values())
            not_judged = not_judged if self._seen(now_ms, runs) else ledgers
            self._readiness.update(not_judged, ledgers, self._cluster.judging.oldest_ms, now_ms)

    def not_ready(self) -> list[str]:
        """Why findings cannot be relied upon yet."""
        health = self._cluster.health()
        reasons = []
        if not (health.connected and health.synced):
            reasons.append(f"ZooKeeper is not connected and in step{f': {health.problem}' if health.problem else ''}")
        if not self._reconciler.complete:
            reasons.append("the view is not complete yet")
        elif silent := self._reconciler.silent():
            reasons.append(silent)
        elif not self._readiness.ready(self._clock()):
            reasons.append("ledgers have waited for their verdict for too long, or were not all judged in this run yet")
        return reasons

    def stopped(self) -> list[str]:
        """Why nothing is changed though it should be, and what is passed over."""
        acting = self._live.now.placement.mode != "observe" and not self._live.now.placement.paused
        blocked_reason = self._reconciler.blocked_reason
        stopped = [f"nothing is changed now: {blocked_reason}"] if blocked_reason and acting else []
        return [*stopped, *self._cluster.problems(), *self._workers.problems(self._clock())]

    def _seen(self, now_ms: int, runs: bool) -> bool:
        """Whether verdicts are of the cluster as it is now, but for ledgers that wait for theirs."""
        return runs and self._reconciler.complete and not (self._cluster.blind(now_ms) or self._reconciler.silent())

    def _counts(self, now_ms: int, runs: bool) -> tuple[dict[str, int], int]:
        """Ledgers by verdict, and how many of the unknown ones wait for the stream."""
        # In this order: what the capture holds by the first answer waits by the second, or has been judged.
        health, waiting = self._cluster.health(), self._cluster.judging.waiting
        ledgers = health.ledgers + health.hidden
        with self._reconciler.lock:
            findings, settled = self._board.findings, self._reconciler.settled
        if waiting is None or not settled:
            return {"true": 0, "drifted": 0, "blocked": 0, "unknown": ledgers}, ledgers
        if not self._seen(now_ms, runs):
            return {"true": 0, "drifted": 0, "blocked": 0, "unknown": ledgers}, min(waiting.present, ledgers)
        counts = counted(findings, waiting, health.ledgers)
        return counts | {"unknown": counts["unknown"] + health.hidden}, min(waiting.present, ledgers)

    def _oldest(self, now_ms: int) -> int | None:
        drifted = self._board.findings["since_ms"][self._board.findings["verdict"] == Verdict.DRIFTED]
        return now_ms - int(drifted.min()) if len(drifted) else None

    def sources(self, now_ms: int) -> list[Source]:
        """ZooKeeper and the Auditor's vote."""
        health = self._cluster.health()
        age = self._cluster.age_ms(now_ms)
        zookeeper = "down" if not health.connected else "up" if health.synced and age < SLOW_MS else "slow"
        return [
            Source("zookeeper", zookeeper, age, _seen(health)),
            Source("vote", "up", 0, self._cluster.vote_holder()),
            *_racks(self._cluster.racks, health.rack_problem, now_ms),
            *(Source(*each) for each in self._workers.source(now_ms, self._live.now.placement.mode != "observe")),
        ]

    def incomplete(self, judged: bool, runs: bool = True) -> str:
        """Why a list of what was observed may be incomplete, or, with ``judged``, one of verdicts; empty if it is
        whole but for a `few` ledgers."""
        now_ms, reasons = self._clock(), []
        health = self._cluster.health()
        if not (health.connected and health.synced):
            reasons.append("ZooKeeper is not connected and in step")
        elif self._cluster.blind(now_ms):
            reasons.append(f"what was seen of ZooKeeper is {self._cluster.age_ms(now_ms) // 1000} s old")
        if health.forbidden:
            reasons.append(f"ZooKeeper forbids to read {many(health.forbidden, 'ledger')}")
        if judged and not runs:
            reasons.append("the placement stream does not run")
        elif judged and not self._reconciler.complete:
            reasons.append("the view is not complete yet")
        elif judged and (silent := self._reconciler.silent()):
            reasons.append(silent)
        elif judged:
            counts, not_judged = self._counts(now_ms, runs)
            if not few(not_judged, ledgers := sum(counts.values())):
                reasons.append(f"{not_judged:,} of {ledgers:,} ledgers are not judged yet")
        return "; ".join(reasons)

    def findings(self, verdict: str | None, rule: str | None, limit: int) -> tuple[list[Finding], int]:
        """What is not true, riskiest first."""
        with self._reconciler.lock:
            rows = self._board.findings
            if verdict is not None:
                rows = rows[rows["verdict"] == Verdict[verdict.upper()]]
            if rule is not None:
                rows = rows[rows["rule"] == RULES.code(rule)]
            return [self._finding(row) for row in riskiest(rows)[:limit]], len(rows)

    def _finding(self, row: Rows) -> Finding:
        rule, ledger = RULES[int(row["rule"])], int(row["ledger"])
        mark, repair = self._board.mark(ledger), self._reconciler.repairs.get(ledger)
        numbers = {name: int(row[name]) for name in ("copies", "racks", "version", "fragment")}
        return Finding(
            {"ledger": ledger}, rule.verdict.name.lower(), rule.id, rule.title, int(row["since_ms"]),
            repair.stage.value if repair else "",
            {**numbers, "marked": mark is not None and int(mark["version"]) >= 0},
        )  # fmt: skip

    def ledgers(self, limit: int, every: bool) -> Listing:
        """Ledgers that are not true; with ``every`` the first ``limit`` of all, read afresh."""
        if every:
            rows = self._cluster.first(limit)
            total = max(len(rows), self._cluster.health().ledgers)
        else:
            with self._reconciler.lock:
                found = self._board.findings
            rows, total = self._cluster.read(riskiest(found)["ledger"][:limit].tolist()), len(found)
        with self._reconciler.lock:
            return Listing(self._judged(rows), total)

    def _judged(self, rows: Ledgers) -> list[dict[str, Any]]:
        verdicts = judge(rows, self._topology, self._board.former.at(self._clock()))
        out = []
        for at in range(len(rows)):
            ledger, rule = int(rows.ledger[at]), RULES[int(verdicts.rule[at])]
            finding, mark = self._board.finding(ledger), self._board.mark(ledger)
            out.append({
                "ledger": ledger, "verdict": rule.verdict.name.lower(), "rule": rule.id,
                "state": LedgerState(int(rows.state[at])).name.lower(), "ensemble": int(rows.ensemble[at]),
                "quorum": int(rows.quorum[at]), "fragments": int(rows.fragments[at]),
                "copies": int(verdicts.copies[at]), "racks": int(verdicts.racks[at]),
                "since_ms": int(finding["since_ms"]) if finding is not None else None, "marked": mark is not None,
            })  # fmt: skip
        return out

    def ledger(self, ledger: int) -> tuple[dict[str, Any], Claim]:
        """Everything about one ledger, read afresh, and whose it says it is. Raises `Refused` when there is none."""
        record, row = self._cluster.describe(ledger)
        with self._reconciler.lock:
            former, finding = self._board.former.at(self._clock()), self._board.finding(ledger)
            mark, repair = self._board.mark(ledger), self._reconciler.repairs.get(ledger)
            history = self._reconciler.history.rows(ledger)
        shown = evidence(row, 0, self._topology, former)
        found = RULES.find(shown["rule"])
        assert found is not None, "evidence names a rule of the table"
        rule = found
        fragments = record["fragments"]
        ends = [*(f["first_entry"] - 1 for f in fragments[1:]), record["last_entry"]][: len(fragments)]
        numbers = ("ledger", "ensemble", "quorum", "ack_quorum", "version", "mzxid", "ctime_ms", "last_entry", "length")
        return {
            **{name: record[name] for name in numbers},  # type: ignore[literal-required]
            "state": LedgerState(record["state"]).name.lower(), "error": record["error"],
            "fragments": [
                {"first_entry": f["first_entry"], "last_entry": end, **said}
                for f, end, said in zip(fragments, ends, shown["fragments"], strict=True)
            ],
            "verdict": rule.verdict.name.lower(), "rule": rule.id, "reason": rule.title,
            "changes": [*shown["changes"], *self._rack_problem(rule.id)],
            "since_ms": int(finding["since_ms"]) if finding is not None else None,
            "mark": self._marks(np.array([mark], MARK))[0] if mark is not None else None,
            "stage": repair.stage.value if repair else "",
            "history": [
                {"at_ms": e.at_ms, "event": e.outcome, "detail": e.detail} for e in history
            ],
        }, claim_of(record["custom"])  # fmt: skip

    def _rack_problem(self, rule: str) -> Iterator[str]:
        """Why the rack map gives no answer, where the verdict waits for one."""
        asked = self._cluster.racks
        problem = asked.problem if asked is not None else self._cluster.health().rack_problem
        if rule == UNKNOWN_RACK and problem:
            yield f"an answer of the rack map, which failed: {problem}"

    def bookies(self) -> list[dict[str, Any]]:
        """All bookies ever registered."""
        return [
            {
                "bookie": b.id,
                "rack": b.rack or "",
                "status": b.status.name.lower(),
                "since_ms": b.since_ms,
                "ledgers": None,
            }
            for b in self._topology.bookies
        ]

    def marks(self) -> list[dict[str, Any]]:
        """All under-replication marks, ours and others'."""
        with self._reconciler.lock:
            rows = self._board.marks
        return self._marks(rows)

    def _marks(self, rows: Rows) -> list[dict[str, Any]]:
        """What is known of these marks, with what only their znodes say, as they are now."""
        waiting = self._cluster.judging.waiting
        written = self._cluster.marked(rows["ledger"][rows["version"] >= 0].tolist())
        owners = self._cluster.locks(rows["ledger"][rows["locked"] > 0].tolist())
        with self._reconciler.lock:
            repairs = self._reconciler.repairs
            made = [self._mark(row, repairs.get(int(row["ledger"])), owners, written) for row in rows]
            judged = waiting is not None and self._reconciler.settled
        late = set(waiting.ledgers.tolist()) if waiting else set()
        return [row | {"verdict": "unknown"} if not judged or row["ledger"] in late else row for row in made]

    def _mark(
        self, row: Rows, repair: Repair | None, owners: dict[int, str], written: dict[int, Mark]
    ) -> dict[str, Any]:
        ledger = int(row["ledger"])
        finding = self._board.finding(ledger)
        return {
            "ledger": ledger, "ours": repair is not None and repair.mark_ctime_ms == int(row["ctime_ms"]),
            "locked_by": owners.get(ledger, ""), "ctime_ms": int(row["ctime_ms"]), "version": int(row["version"]),
            "replicas": list(written[ledger].replicas) if ledger in written else [],
            "verdict": Verdict(int(finding["verdict"])).name.lower() if finding is not None else "true",
            "stage": repair.stage.value if repair else "",
        }  # fmt: skip

    def plan(self) -> list[PlanRow]:
        """What is ordered, what would be next, riskiest first."""
        with self._reconciler.lock:
            now_ms, repairs = self._clock(), dict(self._reconciler.repairs)
            due = wanted(self._board, repairs, now_ms)
            under_way = [r for r in repairs.values() if r.stage is not RepairStage.APPROVED]
            found = {int(row["ledger"]): row for row in self._board.findings[
                np.isin(self._board.findings["ledger"], [r.ledger for r in under_way])]}  # fmt: skip
        ask = self._live.now.placement.mode == "approve"
        rows = [self._planned(row, repairs.get(int(row["ledger"])), ask) for row in due]
        return rows + [self._under_way(r, found.get(r.ledger)) for r in under_way]

    def _planned(self, row: Rows, repair: Repair | None, ask: bool) -> PlanRow:
        rule, ledger, at = RULES[int(row["rule"])], int(row["ledger"]), int(row["version"])
        stage = "approved" if repair and repair.stage is RepairStage.APPROVED else AWAITING if ask else "planned"
        return PlanRow(
            action_id(ledger, at), "mark", rule.id, rule.title, stage, {"ledger": ledger},
            requirements={"version": at, "epoch": self._topology.epoch},
            evidence={"fragment": int(row["fragment"]), "since_ms": int(row["since_ms"])}, measured=_measured(row),
        )  # fmt: skip

    def _under_way(self, repair: Repair, row: Rows | None) -> PlanRow:
        rule = RULES.find(repair.rule)
        return PlanRow(
            action_id(repair.ledger, repair.version),
            "withdraw" if repair.stage in (RepairStage.LEAVING, RepairStage.STUCK) else "mark", repair.rule,
            rule.title if rule else "", repair.stage.value, {"ledger": repair.ledger}, repair.next_ms or None,
            {"version": repair.version, "epoch": self._topology.epoch},
            {"attempts": repair.attempts, "detail": repair.detail, "since_ms": repair.since_ms},
            _measured(row) if row is not None else {},
        )  # fmt: skip

    def approve(self, ids: Sequence[str] | None) -> list[PlanRow]:
        """Approve actions of the present plan (None: all of it); those that were approved."""
        rows = {row.id: row for row in waiting(self.plan(), ids)}
        if unknown := sorted(set(ids or ()) - set(rows)):
            raise Refused("ids of the present plan", ", ".join(unknown), "look at `trueup plan` again")
        given = set(self._reconciler.approve([row.about["ledger"] for row in rows.values()])) if rows else set()
        return [row for row in rows.values() if row.about["ledger"] in given]


def _measured(row: Rows) -> dict[str, int | None]:
    return {"copies": int(row["copies"]), "racks": int(row["racks"])}


def _seen(health: CaptureHealth) -> str:
    forbidden = f", {health.forbidden} that ZooKeeper forbids to read" if health.forbidden else ""
    return f"{health.ledgers} ledgers, {health.unreadable} unreadable{forbidden}"


def _bookies(topology: Topology | None) -> dict[str, list[str]]:
    """Names of bookies by status."""
    found: dict[str, list[str]] = {status.name.lower(): [] for status in Status}
    for bookie in topology.bookies if topology else ():
        found[bookie.status.name.lower()].append(bookie.id)
    return found


def _racks(asked: RackHealth | None, problem: str, now_ms: int) -> list[Source]:
    """The rack map, where it is one that can fail."""
    if asked is None:
        return [Source("racks", "slow", 0, f"the last racks hold: {problem}")] if problem else []
    age_ms = now_ms - asked.answered_ms if asked.answered_ms else 0
    if asked.unknown:
        why = asked.problem or "being asked"
        detail = f"no rack of {many(asked.unknown, 'host')} of {asked.hosts} is known: {why}"
        return [Source("racks", "down" if asked.problem else "slow", age_ms, detail)]
    if asked.problem:
        return [Source("racks", "slow", age_ms, f"racks of {age(age_ms)} ago hold: {asked.problem}")]
    return [Source("racks", "up", age_ms, many(asked.hosts, "host"))]
