"""The placement report: a ledger counts as true only after it was judged in the version that the capture holds."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tests.unit.placement.test_reconciler import Driven, finding
from trueup.connectors.bookkeeper.metadata.capture import CaptureHealth
from trueup.connectors.bookkeeper.metadata.rack_source import RackHealth
from trueup.state.bookkeeper.ledgers import Ledgers, concat, row
from trueup.state.bookkeeper.marks import HIDDEN, MARK
from trueup.state.bookkeeper.observations import LedgerState, Observation
from trueup.state.bookkeeper.topology import UNKNOWN_RACK, Bookie, PlacementPolicy, Status, Topology
from trueup.streams.bookkeeper.selection import LedgerSelection
from trueup.streams.config.live import LiveSection
from trueup.streams.placement.judging import Judging
from trueup.streams.placement.repairs.repair_workers import RepairWorkers
from trueup.streams.placement.report import PlacementReport

RECORD: Any = {
    "ledger": 1,
    "mzxid": 1,
    "version": 0,
    "ctime_ms": 0,
    "state": LedgerState.CLOSED,
    "ensemble": 2,
    "quorum": 2,
    "ack_quorum": 2,
    "last_entry": 9,
    "length": 90,
    "error": "",
    "custom": {},
    "fragments": [{"first_entry": 0, "bookies": ["a1", "b1"]}],
}
ROW = row(1, ["a1", "b1"], quorum=2)


class Journal:
    """Initially empty; each publication is one record."""

    def __init__(self) -> None:
        self.end = 0

    def ends(self, what: str) -> dict[int, int]:
        return {0: self.end}


class ReportSetting:
    """The placement report over a capture and a stream that the test controls."""

    def __init__(self) -> None:
        self.driven, self.journal = Driven(mode="observe"), Journal()
        self.judging = Judging(self.journal, self.clock)
        self.judging.load()
        self.capture = SimpleNamespace(
            connected=True,
            synced=True,
            complete_ms=1,
            ledgers=0,
            hidden=0,
            forbidden=0,
            unreadable=0,
            rack_problem="",
            problem="",
            age_ms=lambda now_ms: CaptureHealth.age_ms(cast("CaptureHealth", self.capture), now_ms),
        )
        self.cluster = cluster = SimpleNamespace(
            health=lambda: self.capture,
            blind=lambda _: False,
            unbound=lambda: "",
            vote_holder=lambda: "",
            racks=None,
            describe=lambda _: (RECORD, ROW),
            readable=self.read,
            first=self.first,
        )
        policy = LiveSection(lambda: self.driven.policy)
        workers = RepairWorkers(list, 0, self.clock)
        parts: tuple[Any, ...] = (
            policy,
            cluster,
            cluster,
            self.driven.keeper,
            self.judging,
            self.driven.reconciler,
            workers,
            self.clock,
        )
        self.placed = PlacementReport(*parts)
        self.driven.answer()
        self.placed.tick(runs=True)

    def clock(self) -> int:
        return self.driven.now_ms

    def read(self, ledgers: Sequence[int]) -> Ledgers:
        """Ordered by id, as the cluster returns them."""
        return concat([row(ledger, ["a1", "b1"], quorum=2) for ledger in sorted(ledgers)])

    def first(self, limit: int) -> Ledgers:
        return self.read(range(min(limit, self.capture.ledgers)))

    def listed(self, limit: int = 10, every: bool = True) -> list[tuple[int, str]]:
        return [(found["ledger"], found["verdict"]) for found in self.placed.ledgers(limit, every)]

    def publish(self, *ledgers: int) -> None:
        """The capture publishes new ledgers."""
        for ledger in ledgers:
            value: Any = {"ledger": ledger, "state": int(LedgerState.CLOSED)}
            self.judging.published([Observation("ledgers", b"", value)])
        self.journal.end += len(ledgers)
        self.capture.ledgers += len(ledgers)
        self.placed.tick(runs=True)

    def take(self) -> None:
        """The stream has consumed all records."""
        self.judging.taken({0: self.journal.end})
        self.placed.tick(runs=True)

    def counts(self) -> tuple[int, int, int, int]:
        """Numbers of true, drifted, unknown and not judged ledgers."""
        found = self.placed.status(self.clock(), runs=True, damages={})
        return (*(found.counts[v] for v in ("true", "drifted", "unknown")), found.not_judged)


@pytest.fixture
def setting() -> ReportSetting:
    return ReportSetting()


def test_ledgers_that_no_batch_has_judged_are_unknown(setting: ReportSetting) -> None:
    setting.publish(*range(6))
    assert setting.counts() == (0, 0, 6, 6)


def test_what_was_judged_is_true_or_found(setting: ReportSetting) -> None:
    setting.publish(*range(6))
    setting.driven.answer(finding(3))
    setting.take()
    assert setting.counts() == (5, 1, 0, 0)


def test_a_ledger_that_lost_all_copies_of_a_fragment_counts_whatever_its_rule(setting: ReportSetting) -> None:
    setting.driven.answer(
        finding(1, "placement.lost-member", copies=0),
        finding(2, "placement.open-waits-for-writer", copies=0),
        finding(3, "placement.lost-member", copies=1),
        finding(4, "placement.unreadable", copies=0),
    )
    assert setting.placed.status(setting.clock(), runs=True, damages={}).without_copies == 1


def test_lists_are_in_the_order_of_risk_and_then_of_id(setting: ReportSetting) -> None:
    setting.publish(*range(6))
    setting.driven.answer(finding(3), finding(4, "placement.all-copies-lost", copies=0))
    setting.take()
    rows = [ledger for ledger, _ in setting.listed()]
    found = [ledger for ledger, _ in setting.listed(every=False)]
    assert (rows, found, [ledger for ledger, _ in setting.listed(3)]) == ([4, 3, 0, 1, 2, 5], [4, 3], [4, 3, 0])


def test_a_ledger_that_waits_for_its_verdict_is_listed_as_unknown(setting: ReportSetting) -> None:
    setting.publish(*range(2))
    setting.take()
    setting.publish(1)
    setting.capture.ledgers -= 1
    rows = setting.placed.ledgers(10, every=True)
    assert [(row["verdict"], row["rule"], row["copies"]) for row in rows] == [
        ("true", "placement.adheres", 2),
        ("unknown", "", None),
    ]


def test_nothing_is_listed_as_judged_before_the_stream_knows_the_bookies_as_they_are(setting: ReportSetting) -> None:
    setting.publish(*range(2))
    setting.take()
    setting.driven.keeper.topology = replace(setting.driven.keeper.topology, epoch=2)
    assert (setting.listed(), setting.placed.ledger(1)["verdict"]) == ([(0, "unknown"), (1, "unknown")], "unknown")


def test_a_finding_of_an_earlier_version_does_not_count(setting: ReportSetting) -> None:
    setting.publish(*range(6))
    setting.driven.answer(finding(3))
    setting.take()
    setting.publish(3)
    setting.capture.ledgers -= 1
    assert setting.counts() == (5, 0, 1, 1)


def test_nothing_is_judged_before_the_stream_knows_the_bookies_as_they_are(setting: ReportSetting) -> None:
    setting.publish(*range(6))
    setting.take()
    setting.driven.keeper.topology = replace(setting.driven.keeper.topology, epoch=2)
    assert setting.counts() == (0, 0, 6, 6)


def test_a_ledger_that_may_not_be_read_is_unknown(setting: ReportSetting) -> None:
    setting.publish(*range(6))
    setting.take()
    setting.capture.hidden = 2
    assert setting.counts() == (6, 0, 2, 0)


def test_a_ledger_that_may_not_be_read_any_more_is_unknown_whatever_its_last_verdict(setting: ReportSetting) -> None:
    setting.publish(*range(6))
    setting.driven.cluster.closed = np.array([2, 3])
    setting.driven.answer(finding(3), finding(4))
    setting.take()
    assert setting.counts() == (3, 1, 2, 0)


def test_lists_are_whole_when_all_was_judged(setting: ReportSetting) -> None:
    setting.publish(*range(6))
    setting.take()
    assert setting.placed.incomplete(judged=True) == ""


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda setting: setting.publish(1), "1 of 1 ledger not judged yet"),
        (
            lambda setting: vars(setting.capture).update(connected=False),
            "ZooKeeper is not connected or not synchronized",
        ),
        (lambda setting: vars(setting.capture).update(forbidden=2), "no permission to read 2 ledgers"),
    ],
    ids=["waits", "cut off", "forbidden"],
)
def test_lists_may_be_incomplete(setting: ReportSetting, change: Any, why: str) -> None:
    change(setting)
    assert setting.placed.incomplete(judged=True) == why


def test_a_stream_that_does_not_run_makes_lists_incomplete(setting: ReportSetting) -> None:
    assert setting.placed.incomplete(judged=True, runs=False) == "the placement stream is not running"


def test_a_list_that_a_limit_cuts_knows_how_long_it_is(setting: ReportSetting) -> None:
    setting.driven.answer(*(finding(ledger) for ledger in range(5)))
    found, total = setting.placed.findings(None, None, 2)
    assert (len(found), total) == (2, 5)


@pytest.fixture
def placed(setting: ReportSetting) -> ReportSetting:
    """Findings of ledgers 0 to 4. Those with odd ids match any selection; the cluster has 7 matches."""
    setting.driven.answer(*(finding(ledger) for ledger in range(5)))
    setting.cluster.select = lambda ledgers, where: ledgers[ledgers % 2 == 1]
    setting.cluster.readable = lambda ledgers: concat([row(ledger, ["a1", "b1"], quorum=2) for ledger in ledgers])
    setting.cluster.search = lambda limit, where: (setting.cluster.readable(list(range(limit))), 7)
    return setting


def test_findings_are_selected_before_the_limit(placed: ReportSetting) -> None:
    found, total = placed.placed.findings("drifted", None, 1, LedgerSelection(bookie="a1"))
    assert ([one.about["ledger"] for one in found], total) == ([1], 2)


def test_ledgers_are_selected_among_findings(placed: ReportSetting) -> None:
    rows = placed.placed.ledgers(1, every=False, where=LedgerSelection(namespace="public/default"))
    assert ([each["ledger"] for each in rows], rows.total) == ([1], 2)


def test_ledgers_are_selected_among_all(placed: ReportSetting) -> None:
    rows = placed.placed.ledgers(2, every=True, where=LedgerSelection(bookie="a1"))
    more = placed.placed.ledgers(4, every=True, where=LedgerSelection(bookie="a1"))
    assert ([each["ledger"] for each in rows], rows.total) == ([1, 3], 7)
    assert [each["ledger"] for each in more] == [1, 3, 0, 2]


def test_it_is_not_ready_before_all_was_judged() -> None:
    setting = ReportSetting()
    setting.journal.end = 6
    setting.judging.load()
    setting.placed = PlacementReport(
        *(
            getattr(setting.placed, n)
            for n in ("_policy", "_cluster", "_auditor", "_keeper", "_judging", "_reconciler", "_workers", "_clock")
        )
    )
    setting.capture.ledgers = 6
    setting.placed.tick(runs=True)
    before = setting.placed.not_ready()
    setting.take()
    assert (len(before), setting.placed.not_ready()) == (1, [])


@pytest.fixture
def unmapped(setting: ReportSetting) -> ReportSetting:
    """A rack map without a result for bookie b1, as its script failed."""
    racks = {"a1": "/a", "b1": UNKNOWN_RACK, "c1": "/c"}
    bookies = tuple(Bookie(name, rack, Status.WRITABLE, 0) for name, rack in racks.items())
    setting.driven.keeper.topology = Topology(1, 0, bookies)
    setting.cluster.racks = RackHealth(0, "racks.sh ended with status 1", 1, 3)
    return setting


def test_a_rack_map_that_cannot_be_read_is_a_source_that_is_down(unmapped: ReportSetting) -> None:
    states = {one.name: (one.state, one.detail) for one in unmapped.placed.sources(unmapped.clock())}
    assert states["racks"] == ("down", "no rack known for 1 host of 3: racks.sh ended with status 1")


def test_a_ledger_that_waits_for_the_rack_map_shows_its_problem(unmapped: ReportSetting) -> None:
    found = unmapped.placed.ledger(1)
    assert found["changes"][-1] == "a response of the rack map, which failed: racks.sh ended with status 1"


@pytest.fixture
def copying(setting: ReportSetting) -> ReportSetting:
    """Ledger 1 has a replica on a lost bookie, and Trueup copies."""
    driven = setting.driven
    driven.policy = replace(driven.policy, executor="copy", copy_enabled=True)
    bookies = tuple(
        Bookie(name, rack, status, 0)
        for name, rack, status in (
            ("a1", "/a", Status.WRITABLE),
            ("b1", "/b", Status.LOST),
            ("b2", "/b", Status.WRITABLE),
        )
    )
    driven.keeper.topology = Topology(1, 0, bookies, policy=PlacementPolicy(copies=True))
    copies = SimpleNamespace(used={"b2": 0.4}, refusing=lambda _: frozenset())
    driven.reconciler._copies = cast("Any", copies)
    return setting


def test_a_ledger_shows_what_a_copy_would_move(copying: ReportSetting) -> None:
    move = {"first_entry": 0, "place": 1, "before": "b1", "after": "b2", "entries": 10, "bytes": 90, "used": 0.4}
    assert copying.placed.ledger(1)["copy"] == {"moves": [move], "stuck": [], "unadhering": [], "complete": True}


def test_a_ledger_shows_that_no_bookie_is_left_for_a_copy(copying: ReportSetting) -> None:
    cast("Any", copying.driven.reconciler._copies).refusing = lambda _: frozenset({"b2"})
    assert copying.placed.ledger(1)["copy"]["stuck"] == [0]


def test_a_ledger_that_workers_repair_shows_no_copy(copying: ReportSetting) -> None:
    topology = copying.driven.keeper.topology
    assert topology is not None
    copying.driven.keeper.topology = replace(topology, policy=PlacementPolicy())
    assert copying.placed.ledger(1)["copy"] is None


def test_racks_in_zookeeper_that_cannot_be_read_are_a_slow_source(setting: ReportSetting) -> None:
    setting.capture.rack_problem = "/bookies holds no JSON"
    states = {one.name: (one.state, one.detail) for one in setting.placed.sources(setting.clock())}
    assert states["racks"] == ("slow", "the last racks apply: /bookies holds no JSON")


def test_a_list_made_before_the_first_observation_says_so(setting: ReportSetting) -> None:
    setting.capture.complete_ms, setting.cluster.blind = 0, lambda _: True
    assert setting.placed.incomplete(judged=False) == "ZooKeeper was not observed yet"


@pytest.mark.parametrize(
    ("problem", "observed", "state"), [("", 0, "slow"), ("refused", 0, "down"), ("", 1, "down"), ("refused", 1, "down")]
)
def test_before_the_first_observation_zookeeper_is_down_only_with_a_reason(
    setting: ReportSetting, problem: str, observed: int, state: str
) -> None:
    setting.capture.connected, setting.capture.complete_ms, setting.capture.problem = False, observed, problem
    assert next(one.state for one in setting.placed.sources(setting.clock()) if one.name == "zookeeper") == state


def test_a_cluster_that_was_never_observed_was_not_heard(setting: ReportSetting) -> None:
    setting.capture.connected, setting.capture.complete_ms = False, 0
    found = {one.name: one.age_ms for one in setting.placed.sources(setting.clock())}
    assert (found["zookeeper"], found["vote"]) == (None, None)


def test_a_mark_that_may_not_be_read_has_no_known_owner(setting: ReportSetting) -> None:
    setting.cluster.marked, setting.cluster.locks = lambda _: {1: None}, lambda _: {}
    setting.driven.answer(finding(1), marks=np.array([(1, -1, HIDDEN, 0)], MARK))
    (row,) = setting.placed.marks()
    assert (row["ours"], row["replicas"]) == (None, [])
