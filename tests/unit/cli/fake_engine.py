"""An in-memory cluster behind the API that the status page and the command line use."""

from collections import Counter
from collections.abc import Callable, Mapping
from copy import deepcopy
from types import MappingProxyType
from typing import Any

from tests.configuration import parse
from tests.unit.cli.fake_rows import (
    MINUTE,
    NOW,
    STATUSES,
    copy,
    deletion_move,
    deletion_row,
    deletion_status,
    directory,
    drain_row,
    finding,
    healthy_status,
    link_row,
    loss,
    move,
    unreferenced_ledgers,
)
from trueup.state.common.errors import BadSettings, Refused
from trueup.state.common.options import default_of
from trueup.state.placement.settings import PlacementSettings
from trueup.state.settings.settings import Settings, change, live_keys, value_of
from trueup.streams.catalog import STREAMS
from trueup.streams.replication.report import by_topic
from trueup.streams.rows import RowQuery
from trueup.streams.runtime.stream import LimitedRows
from trueup.streams.web.engine import SELECTORS


class FakeEngine:
    """Implements `streams.web.engine.Engine`. Tests change its fields to change the cluster."""

    def __init__(self) -> None:
        self.state = healthy_status()
        self.upcoming: list[dict[str, Any]] = []
        self.judged: list[dict[str, Any]] = []
        self.reported: list[Any] = []
        self.places: dict[int, tuple[str, str]] = {}
        self.found: dict[str, list[dict[str, Any]]] = {}
        self.kept_open = 3
        self.members = [
            {
                "bookie": f"127.0.0.{n}:3181",
                "rack": "/rack1" if n <= 3 else "/rack2",
                "groups": [],
                "status": "writable",
                "draining": False,
                "since_ms": NOW - 60 * MINUTE,
                "ledgers": None,
            }
            for n in range(1, 7)
        ]
        self.done: list[dict[str, Any]] = []
        self.unclaimed: list[dict[str, Any]] = []
        self.in_progress: list[dict[str, Any]] = []
        self.owned: dict[str, Any] | None = None
        self.approved: list[str] = []
        self.connected: list[dict[str, Any]] = []
        self.shelves: list[dict[str, Any]] = []
        self.moves: list[dict[str, Any]] = []
        self.topics: list[tuple[str, str, int, int, dict[str, str]]] = []
        self.resets: list[tuple[str, list[str] | None, str]] = []
        self.refills: list[str] = []
        self.refill_stages = ["waiting", "copying"]
        self.settings: Settings = parse({"cluster": {"zookeeper": "127.0.0.1:2181"}})
        self.fail: Exception | None = None
        self.lacking: dict[str, str] = {}
        self.priorities: list[dict[str, Any]] = []
        self.course: dict[str, dict[str, Any]] = {}

    def linked(self) -> "FakeEngine":
        """A lagging link with one stopped partition."""
        self.connected = [link_row("east-west", lag_records=1200, lag_ms=65_000, stopped=1, error="too large")]
        self.state |= {"links": self.connected}
        self.settings = parse(
            {
                "kafka": {"east": {"bootstrap": "e:9092", "bit": 0}, "west": {"bootstrap": "w:9092", "bit": 1}},
                "links": {"east-west": {"source": "east", "target": "west", "topics": ["orders"]}},
            }
        )
        return self

    def shelved(self) -> "FakeEngine":
        """A broker with a full, cordoned directory and an empty one, and a move that awaits approval."""
        self.shelves = [directory("/small", 5 << 30, cordoned="ours"), directory("/large", 65 << 30, volume=1)]
        self.moves = [move("awaiting approval")]
        self.state |= {
            "logdirs": [
                {
                    "kafka": "east",
                    "mode": "approve",
                    "strategy": "size",
                    "paused": False,
                    "brokers": 1,
                    "directories": 2,
                    "skew": 0.6,
                    "rules": {"logdirs.uneven": 1},
                    "planned": 1,
                    "planned_bytes": 10 << 30,
                    "moving": 0,
                    "at_ms": NOW - 2000,
                    "reason": "replicas must be moved",
                }
            ]
        }
        self.settings = parse({"kafka": {"east": {"bootstrap": "e:9092", "bit": 0}}, "logdirs": {"east": {}}})
        return self

    def forgotten(self) -> "FakeEngine":
        """A topic with two unreferenced ledgers: one awaits approval, the deletion of the other is unconfirmed on one
        bookie. The topic of a third ledger does not exist."""
        waits = deletion_row()
        gone = {"id": "delete-20-v2", "ledger": 20, "stage": "gone-from-metadata", "pending": ["b:1"], "attempts": 3}
        self.unclaimed, self.moves = unreferenced_ledgers(), [deletion_move()]
        self.in_progress = [waits, waits | gone | {"detail": "b:1: no answer"}]
        self.state |= {"deletion": deletion_status()}
        return self

    def drill(self) -> "FakeEngine":
        """One rack returned after its ledgers were re-replicated to the other rack."""
        many = "a write quorum stands on too few racks"
        self.judged = [
            finding(7, "blocked", "placement.all-copies-lost", "some entries have no live copy", copies=0, racks=0),
            finding(
                21,
                "drifted",
                "placement.lost-member",
                "a member is lost and can be replaced",
                marked=True,
                stage="working",
            ),
            *(finding(100 + n, "drifted", "placement.too-few-racks", many, copies=2) for n in range(16)),
            finding(
                300, "blocked", "placement.cannot-adhere", "no arrangement of the writable bookies adheres", copies=2
            ),
            finding(301, "unknown", "placement.unreadable", "the metadata cannot be read", copies=0, racks=0),
        ]
        self.members[4] |= {"status": "lost", "since_ms": NOW - 4 * MINUTE}
        self.members[5] |= {"status": "readonly", "since_ms": NOW - 2 * MINUTE}
        self.state["bookies"] = {
            status: [b["bookie"] for b in self.members if b["status"] == status] for status in STATUSES
        }
        self.state |= {
            "mode": "approve",
            "counts": {"true": 1184, "drifted": 17, "blocked": 2, "unknown": 1},
            "oldest_drift_ms": 4 * MINUTE,
            "marks": {"outstanding": 31, "ours": 30, "cap": 200, "idle_ms": 0},
            "waiting": {"approval": 16},
            "without_copies": 1,
            "policy": "rack: 2 racks per write quorum",
        }
        about = {"link": None, "broker": None, "who": "trueup"}
        self.done = [
            {
                **about,
                "at_ms": NOW - 4000,
                "id": "repair-21-v3",
                "kind": "repair",
                "ledger": 21,
                "rule": "placement.lost-member",
                "outcome": "working",
                "detail": "ar1 took it",
            },
            {
                **about,
                "at_ms": NOW - 9000,
                "id": "repair-20-v3",
                "kind": "repair",
                "ledger": 20,
                "rule": "placement.too-few-racks",
                "outcome": "safe",
                "detail": "metadata and liveness show that the ledger is true",
            },
        ]
        return self

    def status(self) -> dict[str, Any]:
        if self.upcoming:
            self.state = self.upcoming.pop(0)
        return deepcopy(self.state)

    def rows(self, noun: str, query: RowQuery) -> list[dict[str, Any]]:
        asked: dict[str, Any] = {"limit": query.limit} if query.limit else {}
        asked |= {"every": query.choices["all"] == "true"} if noun == "ledgers" else {}
        asked |= {name: value for name in SELECTORS if (value := getattr(query, name)) is not None}
        found: list[dict[str, Any]] = getattr(self, noun.replace("-", "_"))(**asked)
        return found

    def describe(self, noun: str, names: Mapping[str, Any]) -> Any:
        return (
            self.refill(**names, certain=False) if noun == "refill" else getattr(self, noun.replace("-", "_"))(**names)
        )

    def execute(self, verb: str, names: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
        methods = {
            "reset": "reset_link",
            "deletion": "order_deletion",
            "topic": "create_topic",
            "replica-reports": "replica_reports",
        }
        return getattr(self, methods.get(verb, verb))(**names, **arguments)

    def replica_reports(self, replicas: list[Any]) -> dict[str, int]:
        self.reported += replicas
        return {"new": len(replicas)}

    def findings(
        self,
        verdict: str | None,
        rule: str | None,
        limit: int,
        stream: str = "placement",
        where: Mapping[str, str] = MappingProxyType({}),
    ) -> LimitedRows:
        self._check()
        rows = self.judged if stream == "placement" else self.found.get(stream, [])
        rows = [row for row in rows if self._placed(row["ledger"], **where)] if where else rows
        found = [r for r in rows if verdict in (None, r["verdict"]) and rule in (None, r["rule"])]
        return LimitedRows(found[:limit], len(found))

    def incomplete(self, noun: str) -> str:
        return self.lacking.get(noun, "")

    def read_priorities(self) -> list[dict[str, Any]]:
        return self.priorities

    def _placed(self, ledger: int, bookie: str = "", namespace: str = "") -> bool:
        """Whether the ledger is on this bookie and belongs to this namespace, as `places` has it."""
        on, within = self.places.get(ledger, ("", ""))
        return bookie in ("", on) and namespace in ("", within)

    def ledgers(self, limit: int, every: bool, **where: str) -> list[dict[str, Any]]:
        self._check()
        shape = {"state": "closed", "ensemble": 3, "quorum": 2, "fragments": 1}
        named = ("ledger", "verdict", "rule", "copies", "racks", "since_ms", "marked", "held")
        rows = [{**{name: row[name] for name in named}, **shape} for row in self.judged]
        good = {
            "ledger": 1,
            "verdict": "true",
            "rule": "placement.adheres",
            "copies": 2,
            "racks": 2,
            "since_ms": None,
            "marked": False,
            "held": False,
            **shape,
        }
        return [row for row in [*rows, *([good] if every else [])] if self._placed(row["ledger"], **where)][:limit]

    def _copy(self) -> dict[str, Any]:
        move = {
            "first_entry": 0,
            "place": 1,
            "before": self.members[4]["bookie"],
            "after": self.members[2]["bookie"],
            "entries": 100,
            "bytes": 51200,
            "used": 0.41,
        }
        return {"moves": [move], "stuck": [], "unadhering": [], "complete": True}

    def ledger(self, ledger: int) -> dict[str, Any]:
        row = next((row for row in self.judged if row["ledger"] == ledger), None)
        if row is None:
            raise Refused(f"a ledger {ledger}", "no such znode", "look at `trueup get ledgers`")
        members = [
            {**{n: b[n] for n in ("bookie", "rack", "groups", "status")}, "counts": b["status"] == "writable"}
            for b in (self.members[0], self.members[4])
        ]
        return {
            **{n: row[n] for n in ("ledger", "verdict", "rule", "reason", "version", "since_ms", "stage")},
            "state": "closed",
            "ensemble": 2,
            "quorum": 2,
            "ack_quorum": 2,
            "mzxid": 4294967396,
            "error": "",
            "owned": deepcopy(self.owned),
            "claim": {"component": "data", "owner": "", "cursor": ""},
            "isolation": None,
            "ctime_ms": NOW - 90 * MINUTE,
            "last_entry": 99,
            "length": 51200,
            "fragments": [
                {
                    "first_entry": 0,
                    "last_entry": 99,
                    "bookies": members,
                    "rule": row["rule"],
                    "verdict": row["verdict"],
                    "racks": 1,
                    "copies": 1,
                    "empty": False,
                    "refusing": [],
                    "failing_windows": [
                        {"bookies": [m["bookie"] for m in order], "racks": ["/rack1"], "copies": 1}
                        for order in (members, members[::-1])
                    ],
                    "repair": "every attempt succeeds and moves at least 1 copy",
                }
            ],
            "changes": ["the return of 127.0.0.5:3181"],
            "copy": self._copy(),
            "mark": {
                "ledger": ledger,
                "ours": True,
                "locked_by": "ar1",
                "ctime_ms": NOW - MINUTE,
                "replicas": [],
                "verdict": row["verdict"],
                "stage": row["stage"],
            }
            if row["marked"]
            else None,
            "history": [{"at_ms": NOW - MINUTE, "event": "marked", "detail": ""}],
            "damages": [],
        }

    def unreferenced(self, limit: int, namespace: str = "") -> list[dict[str, Any]]:
        self._check()
        return deepcopy([row for row in self.unclaimed if row["owner"].startswith(namespace)][:limit])

    def deletions(self, namespace: str = "") -> list[dict[str, Any]]:
        self._check()
        return deepcopy([row for row in self.in_progress if row["owner"].startswith(namespace)])

    def bookies(self) -> list[dict[str, Any]]:
        self._check()
        drain = self.settings.section(PlacementSettings).drain
        return deepcopy([{**row, "draining": row["bookie"] in drain} for row in self.members])

    def drains(self) -> list[dict[str, Any]]:
        self._check()
        names = self.settings.section(PlacementSettings).drain
        return [drain_row(name, closed=3 if at else 0, opened=self.kept_open) for at, name in enumerate(names)]

    def marks(self) -> list[dict[str, Any]]:
        return [
            {
                "ledger": row["ledger"],
                "ours": True,
                "locked_by": "ar1",
                "ctime_ms": NOW - MINUTE,
                "replicas": [],
                "verdict": row["verdict"],
                "stage": row["stage"],
            }
            for row in self.judged
            if row["marked"]
        ]

    def links(self) -> list[dict[str, Any]]:
        self._check()
        return deepcopy(self.connected)

    def link(self, name: str) -> dict[str, Any]:
        row = next((row for row in self.connected if row["link"] == name), None)
        if row is None:
            raise Refused(f"a link {name}", "no link", "look at `trueup get links`")
        checkpoint = {
            "group": "billing",
            "source": "orders-0",
            "target": "orders-0",
            "committed": 2400,
            "translated": 2400,
            "present": 2400,
            "lag": 0,
            "action": "kept",
            "reason": "",
        }
        copies = [copy(number) for number in range(row["partitions"])]
        return {
            **row,
            "by_topic": by_topic(copies),
            "copies": copies,
            "checkpoints": [checkpoint],
            "unreadable": [],
            "heartbeat_error": "",
            "remedies": [],
            "untranslated": [{"group": "share", "reason": "a share group has no offset per partition"}],
            "ways": [
                {
                    "topic": "orders",
                    "partitions": 1,
                    "command": f"trueup link refill {name} --yes",
                    "does": "all records of the source are copied to the target again",
                    "recommended": True,
                }
            ],
        }

    def reset_link(self, name: str, partitions: list[str] | None, to: str, certain: bool) -> list[dict[str, Any]]:
        chosen = partitions or ("orders-0", "orders-1")
        rows = [{"partition": p, "offset": 0, "was": 7, "reason": "", "gone": False} for p in chosen]
        self.resets += [(name, partitions, to)] if certain else []
        return rows

    def refill(self, name: str, certain: bool = True) -> list[dict[str, Any]]:
        """Each call returns the next stage."""
        stage = self.refill_stages[min(len(self.refills), 1)] if certain else "planned"
        self.refills += [name] if certain else []
        return [
            {
                "link": name,
                "topic": "orders",
                "target_topic": "orders",
                "partitions": 3,
                "records": 4000,
                "bytes": 1 << 20,
                "stage": stage,
                "reason": "the target topic was deleted",
            }
        ]

    def directories(self) -> list[dict[str, Any]]:
        self._check()
        return deepcopy(self.shelves)

    def broker(self, kafka: str, broker: int) -> dict[str, Any]:
        rows = [row for row in self.shelves if (row["kafka"], row["broker"]) == (kafka, broker)]
        if not rows:
            raise Refused(f"a broker {broker} of {kafka}", "no brokers", "look at `trueup get dirs`")
        return {
            "kafka": kafka,
            "broker": broker,
            "mode": "approve",
            "strategy": "size",
            "skew": 0.6,
            "after": 0.1,
            "rule": "logdirs.uneven",
            "reason": "replicas must be moved",
            "at_ms": NOW - 2000,
            "throttles": [],
            "directories": rows,
            "moves": deepcopy(self.moves),
            "largest": [{"topic": "orders", "partition": 0, "path": "/small", "bytes": 10 << 30}],
        }

    def create_topic(
        self, kafka: str, topic: str, partitions: int, replicas: int, configs: dict[str, str]
    ) -> list[dict[str, Any]]:
        self.topics.append((kafka, topic, partitions, replicas, configs))
        return [{"partition": number, "broker": 1, "path": "/large"} for number in range(partitions)]

    def plan(self) -> list[dict[str, Any]]:
        self._check()
        asking = self.state["mode"] == "approve"
        return [*deepcopy(self.moves), *self._marks(asking)]

    def _marks(self, asking: bool) -> list[dict[str, Any]]:
        return [
            {
                "id": f"repair-{row['ledger']}-v{row['version']}",
                "kind": "mark",
                "ledger": row["ledger"],
                "rule": row["rule"],
                "reason": row["reason"],
                "copies": row["copies"],
                "racks": row["racks"],
                "stage": row["stage"] or ("awaiting approval" if asking else "planned"),
                "next_ms": None,
                "requirements": {"version": row["version"], "epoch": 4},
                "evidence": {"fragment": 0},
            }
            for row in self.judged
            if row["verdict"] == "drifted"
        ]

    def order_deletion(self, ledger: int) -> dict[str, Any]:
        if ledger != 100:
            raise Refused("a closed ledger", "open", "open it with recovery first")
        return {
            "id": "delete-100-v3",
            "ledger": ledger,
            "owner": "",
            "rule": "deletion.ordered",
            "stage": "suspected",
            "bytes": 51200,
            "since_ms": NOW,
            "at_ms": NOW,
            "approved": False,
            "attempts": 0,
            "next_ms": None,
            "bookies": ["b:1"],
            "pending": [],
            "detail": "",
        }

    def approve(self, ids: list[str] | None) -> list[dict[str, Any]]:
        rows = {row["id"]: row for row in self.plan() if row["stage"] == "awaiting approval"}
        if invalid := sorted(set(ids or []) - set(rows)):
            raise Refused("ids of the current plan", ", ".join(invalid), "run `trueup plan` again")
        chosen = [rows[i] for i in (rows if ids is None else ids)]
        self.approved += [row["id"] for row in chosen]
        return chosen

    def config(self) -> dict[str, Any]:
        live = {
            name: {"value": value_of(self.settings, name), "default": default_of(spec), "doc": spec.metadata["doc"]}
            for name, spec in live_keys(self.settings).items()
        }
        return {
            "live": live,
            "refused": {},
            "fixed": {"cluster.zookeeper": self.settings.cluster.zookeeper, "data_dir": "trueup-data"},
        }

    def set_config(self, name: str, value: object) -> dict[str, Any]:
        try:
            spec = live_keys(self.settings)[name]
            self.settings = change(self.settings, name, default_of(spec) if value is None else value)
        except KeyError as error:
            raise BadSettings([f"{name}: expected a live key"]) from error
        return {"name": name, "value": value_of(self.settings, name)}

    def actions(self, limit: int, predicate: Callable[[dict[str, Any]], bool] | None = None) -> list[dict[str, Any]]:
        return [row for row in self.done if predicate is None or predicate(row)][:limit]

    def grouped(self, stream: str) -> Mapping[tuple[str, str], int]:
        self._check()
        rows = self.judged if stream == "placement" else self.found.get(stream, [])
        return dict(Counter((row["rule"], row["verdict"]) for row in rows).most_common())

    def trends(self, stream: str) -> dict[str, Any]:
        found = self.course.get(stream, {"every_ms": 15_000, "at_ms": [], "series": {}})
        known = next(each for each in STREAMS if each.name == stream)
        return {**found, "units": {name: known.unit(name) for name in found["series"]}}

    def bookie(self, bookie: str) -> dict[str, Any]:
        found = next(row for row in self.members if row["bookie"] == bookie)
        return {**found, "if_lost": {"at_ms": NOW - 20_000, "error": "", "loss": loss(bookie, lost=2)}}

    def deletion(self, ledger: int) -> dict[str, Any]:
        if found := next((row for row in self.in_progress if row["ledger"] == ledger), None):
            return found
        raise Refused(f"a deletion of ledger {ledger} in progress", "none", "see `trueup get deletions`")

    def what_if(self, kind: str) -> dict[str, Any]:
        names = sorted({b["rack" if kind == "rack" else "bookie"] for b in self.members})
        rows = [loss(name, lost=at, one_copy=300 * at) for at, name in enumerate(names)][::-1]
        return {
            "kind": kind,
            "state": "ready",
            "at_ms": NOW - 20_000,
            "took_ms": 412,
            "again": False,
            "read": 0,
            "error": "",
            "ledgers": 1204,
            "missing": ["127.0.0.5:3181"],
            "writable": 4,
            "unread": 0,
            "failures": rows,
            "now": loss("now", lost=0, one_copy=17),
        }

    def _check(self) -> None:
        if self.fail is not None:
            raise self.fail
