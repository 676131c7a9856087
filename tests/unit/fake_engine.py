"""A small cluster in memory behind the API that the web page and the command line read."""

import time
from copy import deepcopy
from typing import Any

from state.errors import BadSettings, Refused
from state.settings import Settings, change, live_keys, parse, value_of

NOW = time.time_ns() // 1_000_000
MINUTE = 60_000


def finding(ledger: int, verdict: str, rule: str, reason: str, **more: Any) -> dict[str, Any]:
    return {
        "ledger": ledger, "verdict": verdict, "rule": rule, "reason": reason, "copies": 1, "racks": 1,
        "since_ms": NOW - 3 * MINUTE - ledger * 1000, "version": 3, "stage": "", "marked": False, **more,
    }  # fmt: skip


def healthy_status() -> dict[str, Any]:
    return {
        "version": "0.1.0", "cluster": "east", "mode": "observe", "paused": False, "ready": True,
        "started_ms": NOW - 5 * 60 * MINUTE, "now_ms": NOW, "problems": [], "waiting": {},
        "streams": [{"name": "placement", "state": "running", "batch": 812, "rows_per_s": 5120.4, "batch_ms": 183,
                     "behind": 0, "restarts": 0, "error": ""}],
        "sources": [
            {"name": "zookeeper", "state": "up", "age_ms": 312, "detail": "1204 ledgers, 0 unreadable"},
            {"name": "journal", "state": "up", "age_ms": 40, "detail": "127.0.0.1:19092"},
            {"name": "vote", "state": "up", "age_ms": 0, "detail": "ar1"},
            {"name": "spark", "state": "up", "age_ms": 180, "detail": "local[2]"},
        ],
        "counts": {"true": 1204, "drifted": 0, "blocked": 0, "unknown": 0}, "ledgers": 1204, "oldest_drift_ms": None,
        "marks": {"outstanding": 0, "ours": 0, "cap": 200}, "held": "", "spark_ui": "http://127.0.0.1:4040",
    }  # fmt: skip


class FakeEngine:
    """Implements `streams.web.engine.Engine`. Change its fields to change the cluster."""

    def __init__(self) -> None:
        self.state = healthy_status()
        self.upcoming: list[dict[str, Any]] = []
        self.rows: list[dict[str, Any]] = []
        self.members = [
            {"bookie": f"127.0.0.{n}:3181", "rack": "/rack1" if n <= 3 else "/rack2", "status": "writable",
             "since_ms": NOW - 60 * MINUTE, "ledgers": None} for n in range(1, 7)
        ]  # fmt: skip
        self.done: list[dict[str, Any]] = []
        self.approved: list[str] = []
        self.settings: Settings = parse({"cluster": {"zookeeper": "127.0.0.1:2181"}})
        self.fail: Exception | None = None

    def drill(self) -> "FakeEngine":
        """One rack came back after its ledgers were refilled into the other."""
        many = "a write quorum stands on too few racks"
        self.rows = [
            finding(7, "blocked", "placement.all-copies-lost", "some entries have no live copy", copies=0, racks=0),
            finding(21, "drifted", "placement.lost-member", "a member is lost and can be replaced", marked=True,
                    stage="working"),
            *(finding(100 + n, "drifted", "placement.too-few-racks", many, copies=2) for n in range(16)),
            finding(300, "blocked", "placement.cannot-adhere", "no arrangement of the writable bookies adheres",
                    copies=2),
            finding(301, "unknown", "placement.unreadable", "the metadata cannot be read", copies=0, racks=0),
        ]  # fmt: skip
        self.members[4] |= {"status": "lost", "since_ms": NOW - 4 * MINUTE}
        self.members[5] |= {"status": "readonly", "since_ms": NOW - 2 * MINUTE}
        self.state |= {
            "mode": "approve", "counts": {"true": 1184, "drifted": 17, "blocked": 2, "unknown": 1},
            "oldest_drift_ms": 4 * MINUTE, "marks": {"outstanding": 31, "ours": 30, "cap": 200},
            "waiting": {"approval": 16},
        }  # fmt: skip
        self.done = [
            {"at_ms": NOW - 4000, "id": "repair-21-v3", "kind": "repair", "ledger": 21,
             "rule": "placement.lost-member", "outcome": "working", "detail": "ar1 took it"},
            {"at_ms": NOW - 9000, "id": "repair-20-v3", "kind": "repair", "ledger": 20,
             "rule": "placement.too-few-racks", "outcome": "safe", "detail": "metadata and liveness say so"},
        ]  # fmt: skip
        return self

    def status(self) -> dict[str, Any]:
        if self.upcoming:
            self.state = self.upcoming.pop(0)
        return deepcopy(self.state)

    def findings(self, verdict: str | None, rule: str | None, limit: int) -> list[dict[str, Any]]:
        self._check()
        return [r for r in self.rows if verdict in (None, r["verdict"]) and rule in (None, r["rule"])][:limit]

    def ledgers(self, limit: int, every: bool) -> list[dict[str, Any]]:
        self._check()
        shape = {"state": "closed", "ensemble": 3, "quorum": 2, "fragments": 1}
        named = ("ledger", "verdict", "rule", "copies", "racks", "since_ms", "marked")
        rows = [{**{name: row[name] for name in named}, **shape} for row in self.rows]
        good = {"ledger": 1, "verdict": "true", "rule": "placement.adheres", "copies": 2, "racks": 2,
                "since_ms": None, "marked": False, **shape}  # fmt: skip
        return [*rows, *([good] if every else [])][:limit]

    def ledger(self, ledger: int) -> dict[str, Any]:
        row = next((row for row in self.rows if row["ledger"] == ledger), None)
        if row is None:
            raise Refused(f"a ledger {ledger}", "no such znode", "look at `trueup get ledgers`")
        members = [
            {**{n: b[n] for n in ("bookie", "rack", "status")}, "counts": b["status"] == "writable"}
            for b in (self.members[0], self.members[4])
        ]
        return {
            **{n: row[n] for n in ("ledger", "verdict", "rule", "reason", "version", "since_ms", "stage")},
            "state": "closed", "ensemble": 2, "quorum": 2, "ack_quorum": 2, "mzxid": 4294967396, "error": "",
            "ctime_ms": NOW - 90 * MINUTE, "last_entry": 99, "length": 51200,
            "fragments": [{
                "first_entry": 0, "last_entry": 99, "bookies": members, "rule": row["rule"], "verdict": row["verdict"],
                "racks": 1, "copies": 1, "empty": False, "refusing": [],
                "failing_windows": [
                    {"bookies": [m["bookie"] for m in order], "racks": ["/rack1"], "copies": 1}
                    for order in (members, members[::-1])
                ],
                "repair": "every attempt succeeds and moves at least 1 copy",
            }],
            "changes": ["the return of 127.0.0.5:3181"],
            "mark": {"ledger": ledger, "ours": True, "locked_by": "ar1", "ctime_ms": NOW - MINUTE, "replicas": [],
                     "verdict": row["verdict"], "stage": row["stage"]} if row["marked"] else None,
            "history": [{"at_ms": NOW - MINUTE, "event": "marked", "detail": ""}],
        }  # fmt: skip

    def bookies(self) -> list[dict[str, Any]]:
        self._check()
        return deepcopy(self.members)

    def marks(self) -> list[dict[str, Any]]:
        return [
            {"ledger": row["ledger"], "ours": True, "locked_by": "ar1", "ctime_ms": NOW - MINUTE, "replicas": [],
             "verdict": row["verdict"], "stage": row["stage"]} for row in self.rows if row["marked"]
        ]  # fmt: skip

    def plan(self) -> list[dict[str, Any]]:
        self._check()
        asking = self.state["mode"] == "approve"
        return [
            {"id": f"repair-{row['ledger']}-v{row['version']}", "kind": "mark", "ledger": row["ledger"],
             "rule": row["rule"], "reason": row["reason"], "copies": row["copies"], "racks": row["racks"],
             "stage": row["stage"] or ("awaiting approval" if asking else "planned"), "next_ms": None,
             "requirements": {"version": row["version"], "epoch": 4}, "evidence": {"fragment": 0}}
            for row in self.rows if row["verdict"] == "drifted"
        ]  # fmt: skip

    def approve(self, ids: list[str] | None) -> list[dict[str, Any]]:
        rows = {row["id"]: row for row in self.plan() if row["stage"] == "awaiting approval"}
        if strange := sorted(set(ids or []) - set(rows)):
            raise Refused("ids of the present plan", ", ".join(strange), "look at `trueup plan` again")
        chosen = [rows[i] for i in (rows if ids is None else ids)]
        self.approved += [row["id"] for row in chosen]
        return chosen

    def config(self) -> dict[str, Any]:
        live = {
            name: {"value": value_of(self.settings, name), "default": spec.default, "doc": spec.metadata["doc"]}
            for name, spec in live_keys().items()
        }
        return {
            "live": live,
            "fixed": {"cluster.zookeeper": self.settings.cluster.zookeeper, "data_dir": "trueup-data"},
        }

    def set_config(self, name: str, value: object) -> dict[str, Any]:
        try:
            self.settings = change(self.settings, name, live_keys()[name].default if value is None else value)
        except KeyError as error:
            raise BadSettings([f"{name}: expected a live key"]) from error
        return {"name": name, "value": value_of(self.settings, name)}

    def actions(self, limit: int) -> list[dict[str, Any]]:
        return self.done[:limit]

    def _check(self) -> None:
        if self.fail is not None:
            raise self.fail
