from types import SimpleNamespace
from typing import Any

from tests.journals import FakeJournal
from trueup.state.bookkeeper.observations import Sighting
from trueup.state.bookkeeper.topology import Bookie, Status, Topology
from trueup.state.placement.settings import PLACEMENT, PlacementSettings
from trueup.state.settings.settings import ClusterSettings, Settings
from trueup.streams.bookkeeper.codec import topology_bytes, topology_from
from trueup.streams.bookkeeper.keeper import AGAIN_MS, TopologyKeeper

SEEN = [Sighting("b:1", "/r", "writable", True, 1)]


class Driven:
    """A keeper that has published its first topology."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        live: Any = SimpleNamespace(
            now=Settings(ClusterSettings("none:0"), sections={PLACEMENT: PlacementSettings()}), listeners=[]
        )
        journal: Any = FakeJournal()
        self.keeper = TopologyKeeper(journal, live, lambda: self.now_ms)
        self.keeper.seen(SEEN)

    def epoch(self, wait_ms: int) -> int:
        """Epoch of the topology after this wait."""
        self.now_ms += wait_ms
        self.keeper.tick()
        assert self.keeper.topology is not None
        return self.keeper.topology.epoch


def test_nothing_is_judged_again_for_nothing():
    driven = Driven()
    assert driven.epoch(10 * AGAIN_MS) == driven.epoch(0)


def test_all_is_judged_again_when_time_alone_may_change_a_verdict():
    driven = Driven()
    before, driven.keeper.again_ms = driven.epoch(0), driven.now_ms + 2 * AGAIN_MS
    assert driven.epoch(2 * AGAIN_MS - 1) == before < driven.epoch(1)


def test_all_is_not_judged_again_too_often():
    driven = Driven()
    before, driven.keeper.again_ms = driven.epoch(0), driven.now_ms
    assert driven.epoch(AGAIN_MS - 1) == before < driven.epoch(1) == driven.epoch(1)


def test_every_bucket_is_asked_again_when_a_view_was_lost():
    driven = Driven()
    before = driven.epoch(0)
    driven.keeper.publish_again()
    assert driven.keeper.first_epoch is None
    assert before < driven.epoch(0) == driven.keeper.first_epoch


def test_the_first_epoch_of_a_run_is_above_one_that_was_lost_from_the_journal():
    driven = Driven()
    old = driven.keeper.topology
    driven.now_ms += AGAIN_MS
    driven.keeper.publish_again()
    lost = driven.epoch(0)
    driven.now_ms += AGAIN_MS
    driven.keeper.topology = old
    driven.keeper.publish_again()
    assert driven.epoch(0) > lost


def test_a_topology_is_read_as_it_was_written():
    bookies = (Bookie("a:1", "/r", Status.LOST, 3, 4, Status.READONLY, 5, True), Bookie("b:1", None, Status.PENDING, 6))
    written = Topology(7, 8, bookies, held="too many", released=2, restarted=1)
    assert topology_from(topology_bytes(written)) == written
