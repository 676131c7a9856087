"""Rows of the API as an in-memory cluster shows them."""

import time
from typing import Any

from trueup.state.common.counts import many

STATUSES = ("writable", "readonly", "pending", "lost")
NOW = time.time_ns() // 1_000_000
MINUTE = 60_000
DAY = 1440 * MINUTE


def finding(ledger: int, verdict: str, rule: str, reason: str, **more: Any) -> dict[str, Any]:
    return {
        "ledger": ledger,
        "verdict": verdict,
        "rule": rule,
        "reason": reason,
        "copies": 1,
        "racks": 1,
        "since_ms": NOW - 3 * MINUTE - ledger * 1000,
        "version": 3,
        "stage": "",
        "marked": False,
        "held": False,
        **more,
    }


def healthy_status() -> dict[str, Any]:
    return {
        "version": "0.1.0",
        "cluster": "east",
        "mode": "observe",
        "paused": False,
        "ready": True,
        "starting": False,
        "started_ms": NOW - 5 * 60 * MINUTE,
        "now_ms": NOW,
        "problems": [],
        "waiting": {},
        "without_copies": 0,
        "policy": "rack: 2 racks per write quorum",
        "streams": [
            {
                "name": "placement",
                "state": "running",
                "batch": 812,
                "rows_per_s": 5120.4,
                "batch_ms": 183,
                "behind": 0,
                "restarts": 0,
                "error": "",
            }
        ],
        "sources": [
            {"name": "zookeeper", "state": "up", "age_ms": 312, "detail": "1204 ledgers, 0 unreadable"},
            {"name": "journal", "state": "up", "age_ms": 40, "detail": "127.0.0.1:19092"},
            {"name": "vote", "state": "up", "age_ms": 0, "detail": "ar1"},
            {"name": "spark", "state": "up", "age_ms": 180, "detail": "local[2]"},
        ],
        "counts": {"true": 1204, "drifted": 0, "blocked": 0, "unknown": 0},
        "ledgers": 1204,
        "oldest_drift_ms": None,
        "marks": {"outstanding": 0, "ours": 0, "cap": 200, "idle_ms": 0},
        "held": "",
        "unbound": "",
        "not_judged": 0,
        "bookies": {"writable": ["b1:3181", "b2:3181"], "readonly": [], "pending": [], "lost": []},
        "spark_ui": "http://127.0.0.1:4040",
        "watches_ledgers": True,
        "links": [],
        "logdirs": [],
        "deletion": None,
        "read_priority": None,
        "damages": {"reported": 0, "confirmed": 0},
    }


def link_row(name: str, **more: Any) -> dict[str, Any]:
    counted = ("bytes", "dropped", "skipped", "dismissed", "filtered", "lost", "repeated", "foreign", "foreign_tags")
    return {
        "link": name,
        "source": "east",
        "target": "west",
        "mode": "enforce",
        "paused": False,
        "state": "up",
        "reason": "",
        "down": {},
        "path": "batches",
        "path_reason": "",
        "topics": 1,
        "partitions": 2,
        "stopped": 0,
        "heartbeat_age_ms": 3000,
        "heartbeat_lag_ms": 12,
        "differences": 0,
        "groups": 1,
        "group_lag": 0,
        "lag_records": 0,
        "lag_ms": 0,
        "leases": 1,
        "rounds": 7,
        "taken_ms": NOW - 4000,
        "copied": 5000,
        "error": "",
        **dict.fromkeys(counted, 0),
        **more,
    }


def directory(path: str, usable: int, **more: Any) -> dict[str, Any]:
    return {
        "kafka": "east",
        "broker": 1,
        "path": path,
        "volume": 0,
        "total": 100 << 30,
        "usable": usable,
        "used": (100 << 30) - usable,
        "bytes": 20 << 30,
        "partitions": 12,
        "incoming": 0,
        "outgoing": 0,
        "online": True,
        "cordoned": "",
        "strategy": "size",
        "skew": 0.6,
        "rule": "logdirs.uneven",
        "reason": "replicas must be moved",
        "at_ms": NOW - 2000,
        **more,
    }


def drain_row(name: str, closed: int, opened: int) -> dict[str, Any]:
    """A bookie that is drained."""
    waits = "copies of " + many(closed, "ledger") if closed else ""
    waits = waits or ("the writers of " + many(opened, "ledger") + " to close them" if opened else "")
    return {
        "bookie": name,
        "status": "readonly",
        "ledgers": closed + opened,
        "closed": closed,
        "open": opened,
        "open_ledgers": [
            {"ledger": 40 + at, "owner": "tenant/ns/persistent/orders" if at else ""} for at in range(min(opened, 2))
        ],
        "removable": not waits,
        "waits_for": waits,
    }


def loss(name: str, **more: Any) -> dict[str, Any]:
    counted = ("lost", "one_copy", "fewer", "open", "unwritable", "unrepairable")
    return {
        "name": name,
        "bookies": 3,
        "ledgers": 700,
        **dict.fromkeys(counted, 0),
        "to_copy": float(5 << 30),
        "named": [7, 21],
        **more,
    }


def move(stage: str) -> dict[str, Any]:
    return {
        "id": "east/move-1-orders-0-0badcafe",
        "kind": "move",
        "ledger": None,
        "link": None,
        "topic": "orders-0",
        "broker": "east/1",
        "rule": "logdirs.uneven",
        "reason": "10 GiB from /small to /large; skew 60%, then 40%",
        "copies": None,
        "racks": None,
        "stage": stage,
        "next_ms": None,
        "requirements": {},
        "evidence": {
            "broker": 1,
            "from": "/small",
            "to": "/large",
            "bytes": 10 << 30,
            "copied": 0,
            "skew_before": 0.6,
            "skew_after": 0.4,
        },
    }


def copy(number: int) -> dict[str, Any]:
    return {
        "topic": "orders",
        "place": "",
        "partition": number,
        "target_topic": "orders",
        "target_place": "",
        "target_partition": number,
        "stage": "stopped" if number else "copying",
        "start": 0,
        "offset": 2500,
        "source_end": 2600,
        "target_end": 2500,
        "lag_records": 100,
        "lag_ms": 65_000,
        "path": "batches",
        "runs": 1,
        "reset": "",
        "at_ms": NOW - 4000,
        "error": "too large" if number else "",
        "refill_until": -1,
        "stopped": bool(number),
    }


OWNER = "public/default/persistent/orders"
FORGOTTEN_FOR_MS = 31 * DAY // 2
"""Keeps the displayed age constant however long the tests take."""


def unreferenced_ledgers() -> list[dict[str, Any]]:
    more = {
        "cursor": "",
        "component": "data",
        "state": "closed",
        "bytes": 3 << 20,
        "since_ms": NOW - FORGOTTEN_FOR_MS,
        "ctime_ms": NOW - 60 * MINUTE,
        "version": 2,
    }
    return [
        {
            "ledger": 21,
            "owner": OWNER,
            "rule": "deletion.forgotten",
            "verdict": "drifted",
            "stage": "marked",
            "reason": "the owner lists later ledgers and not this one",
            **more,
        },
        {
            "ledger": 30,
            "owner": "public/old/persistent/bills",
            "rule": "deletion.owner-gone",
            "verdict": "blocked",
            "stage": "",
            "reason": "its managed ledger is not there",
            **more,
        },
    ]


def deletion_row() -> dict[str, Any]:
    return {
        "id": "delete-21-v2",
        "ledger": 21,
        "owner": OWNER,
        "rule": "deletion.forgotten",
        "stage": "marked",
        "bytes": 3 << 20,
        "since_ms": NOW - FORGOTTEN_FOR_MS,
        "at_ms": NOW,
        "approved": False,
        "attempts": 0,
        "next_ms": None,
        "bookies": ["a:1", "b:1"],
        "pending": [],
        "detail": "",
    }


def deletion_move() -> dict[str, Any]:
    return {
        "id": "delete-21-v2",
        "kind": "delete",
        "ledger": 21,
        "rule": "deletion.forgotten",
        "copies": None,
        "racks": None,
        "reason": f"{3 << 20} bytes of {OWNER}: the owner lists later ledgers and not this one",
        "stage": "awaiting approval",
        "next_ms": None,
        "requirements": {"version": 2},
        "evidence": {"owner": OWNER, "bytes": 3 << 20, "since_ms": NOW - FORGOTTEN_FOR_MS},
    }


def deletion_status() -> dict[str, Any]:
    counted = {"ledgers": 1, "bytes": 3 << 20}
    return {
        "mode": "approve",
        "paused": False,
        "unreferenced": 2,
        "bytes": 6 << 20,
        "complete": True,
        "forgotten": [
            {"namespace": "public/default", "rule": "deletion.forgotten", **counted},
            {"namespace": "public/old", "rule": "deletion.owner-gone", **counted},
        ],
        "deletions": {"marked": 1, "gone-from-metadata": 1},
        "oldest_ms": 15 * MINUTE,
        "executing_ms": 15 * MINUTE,
    }
