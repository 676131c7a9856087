"""When group offsets are synchronized."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.kafka.test_group_sync import Cluster
from tests.unit.replication.test_link import Rig
from trueup.connectors.contract import Endpoint, LogId, Position, Progress, Run
from trueup.connectors.replication.group_sync import GroupSync
from trueup.connectors.replication.ports import Capabilities
from trueup.state.common.errors import Retry
from trueup.state.replication.offset_map import OffsetMap
from trueup.streams.replication.leases import Report, ReportMessage
from trueup.streams.replication.links.ends import LinkEnds
from trueup.streams.replication.links.group_sync import PART, Mover

ZERO = LogId("orders", 0)


class Dying(Cluster):
    """A cluster that may stop responding."""

    dead = False

    def states(self) -> dict[str, str]:
        if self.dead:
            raise Retry("an answer", "none", "wait")
        return dict.fromkeys(self.committed, "stable")

    def offsets(self, groups: Any) -> dict[str, Any]:
        if self.dead:
            raise Retry("an answer", "none", "wait")
        return super().offsets(groups)


class Shop:
    """A link with a running lease, and a group at its source."""

    def __init__(self, mode: str = "enforce") -> None:
        self.rig = Rig(groups=["/g.*/"], tasks=1, mode=mode)
        self.east, self.west = Dying({"g": {ZERO: 40}}), Cluster({})
        self.notes: list[tuple[str, ...]] = []
        there, back = GroupSync(self.east, self.west), GroupSync(self.west, self.east)  # type: ignore[arg-type]
        self.mover = Mover(self.rig.link, there, back, lambda: None, lambda: (), lambda *note: self.notes.append(note))
        (self.order,) = self.rig.link.orders()
        self._at = 0

    def report(self, offset: int) -> None:
        """The lease reports this offset."""
        before, self._at = self.rig.link.copies[ZERO].offset, self._at + 1
        run = (Run(before, before, offset - before),)
        rows = [Progress(ZERO, ZERO, Position(offset), run, offset - before, path="batches")]
        order = self.order
        self.rig.link.receive(
            ReportMessage("east-west", order.term, order.number, order.part, Report("a", self._at, rows))
        )

    def reconcile(self) -> None:
        self.mover.look()
        self.mover.reconcile()


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_a_group_is_synced_while_the_lease_runs(shop: Shop) -> None:
    shop.report(10)
    shop.reconcile()
    assert shop.west.commits == [("g", {ZERO: 10})]


def test_a_group_goes_on_with_the_map_though_the_source_is_dead(shop: Shop) -> None:
    shop.report(10)
    shop.reconcile()
    shop.east.dead = True
    shop.report(30)
    shop.reconcile()
    shop.report(50)
    shop.reconcile()
    assert [offsets[ZERO] for _, offsets in shop.west.commits] == [10, 30, 40]


def test_new_offsets_at_the_source_wake_the_pass(shop: Shop) -> None:
    shop.mover.look()
    shop.rig.link.grown.clear()
    shop.mover.look()
    quiet = shop.rig.link.grown.is_set()
    shop.east.committed["g"] = {ZERO: 41}
    shop.mover.look()
    assert (quiet, shop.rig.link.grown.is_set()) == (False, True)


def test_observations_during_one_part_apply_to_the_next(shop: Shop) -> None:
    shop.east.committed = {f"g-{number:02}": {ZERO: 40} for number in range(PART + 1)}
    shop.report(10)
    commit = shop.west.commit

    def slow(offsets: Any) -> Any:
        shop.west.commit = commit  # type: ignore[method-assign]
        shop.report(30)
        return commit(offsets)

    shop.west.commit = slow  # type: ignore[method-assign]
    shop.reconcile()
    assert [offsets[ZERO] for _, offsets in shop.west.commits] == [10] * PART + [30]


def test_no_group_is_set_in_a_target_that_comes_back_empty_during_the_pass(shop: Shop) -> None:
    """The maps are valid when the pass begins. The target loses its data before it responds."""
    shop.rig.link.copies[ZERO].target_id = "old"
    shop.west.topic_ids = {"orders": "old"}
    shop.report(10)
    answer = shop.west.offsets

    def lost(groups: Any) -> dict[str, Any]:
        shop.west.topic_ids = {"orders": "new"}
        return answer(groups)

    shop.west.offsets = lost  # type: ignore[method-assign]
    shop.reconcile()
    assert (shop.west.commits, [row.action for row in shop.mover.checkpoints]) == ([], ["waiting"])


def test_offsets_of_a_lost_source_are_not_translated_by_the_map_of_its_new_log(shop: Shop) -> None:
    shop.east.topic_ids = {"orders": "old"}
    shop.reconcile()
    shop.east.dead = True
    copy = shop.rig.link.copies[ZERO]
    copy.map, copy.source_id = OffsetMap().extend([(0, 0, 50)], 50), "new"
    shop.reconcile()
    assert shop.west.commits == []


def test_a_group_that_is_followed_is_news_once(shop: Shop) -> None:
    for offset in (10, 20, 30):
        shop.report(offset)
        shop.reconcile()
    assert [note[:3] for note in shop.notes] == [("east-west", "group", "moved")]


def test_in_approve_each_move_needs_approval() -> None:
    shop = Shop("approve")
    shop.report(10)
    shop.reconcile()
    (row,) = shop.mover.rows()
    shop.mover.approve([row.id])
    shop.reconcile()
    shop.report(20)
    shop.reconcile()
    assert (row.stage, shop.west.commits, len(shop.mover.rows())) == ("awaiting approval", [("g", {ZERO: 10})], 1)


@pytest.mark.parametrize(("source_s", "expected"), [(1e9, 40), (0.0, 50)])
def test_offsets_of_a_source_that_returns_all_together_are_not_read_each_time(source_s: float, expected: int) -> None:
    source = Dying({"g": {ZERO: 40}})
    groups = GroupSync(source, Cluster({}), source_s)  # type: ignore[arg-type]
    groups.committed(["g"], {"orders"})
    source.committed = {"g": {ZERO: 50}}
    assert groups.committed(["g"], {"orders"}).groups == {"g": {ZERO: expected}}


@pytest.mark.parametrize(("patterns", "topics"), [(["/g.*/"], {"orders"}), (["g"], {"orders", "payments"})])
def test_offsets_are_read_again_when_others_are_wanted(patterns: list[str], topics: set[str]) -> None:
    source = Dying({"g": {ZERO: 40}})
    groups = GroupSync(source, Cluster({}), 1e9)  # type: ignore[arg-type]
    groups.committed(["g"], {"orders"})
    source.committed = {"g": {ZERO: 50}}
    assert groups.committed(patterns, topics).groups == {"g": {ZERO: 50}}


@pytest.mark.parametrize(("back", "expected"), [(True, 40), (False, 50)])
def test_the_interval_is_that_of_the_cluster_whose_offsets_are_read(back: bool, expected: int) -> None:
    source = Dying({"g": {ZERO: 40}})
    every_s = {"east": 0.0, "west": 1e9}

    def admin_of(end: Endpoint) -> Any:
        return SimpleNamespace(can=Capabilities(groups_s=every_s[end.name]), groups=lambda: source)

    groups = LinkEnds(Rig(groups=["g"]).link, admin_of).groups(back)
    groups.committed(["g"], {"orders"})
    source.committed = {"g": {ZERO: 50}}
    assert groups.committed(["g"], {"orders"}).groups == {"g": {ZERO: expected}}
