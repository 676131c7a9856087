"""Heartbeats of links that copy nothing, because they are paused or observe."""

import pytest

from tests.unit.replication.test_link import NOW, Rig
from trueup.state.replication.verdicts import LinkState
from trueup.streams.replication.links.status import LinkStatus


def test_a_paused_link_whose_heartbeats_do_not_arrive_is_not_only_paused() -> None:
    rig = Rig(paused=True)
    rig.link.update(arrived_ms=NOW)
    status, found = LinkStatus(rig.link), []
    for later_ms in (0, 31_000, 121_000):
        status.observe(NOW + later_ms)
        found.append(status.state(NOW + later_ms))
    assert [state for state, _ in found] == [LinkState.PAUSED, LinkState.SLOW, LinkState.STALLED]
    assert found[-1][1][0] == ("replication.stalled", "the newest heartbeat at the target is 121 s old")


@pytest.mark.parametrize("keys", [{"mode": "observe"}, {"mode": "observe", "paused": True}])
def test_a_link_that_writes_no_heartbeats_waits_for_none(keys: dict[str, object]) -> None:
    rig = Rig(**keys)
    status = LinkStatus(rig.link)
    status.observe(NOW)
    assert status.state(NOW + 600_000)[0] in (LinkState.OBSERVING, LinkState.PAUSED)


def test_heartbeats_of_a_paused_link_count_from_when_its_clusters_respond() -> None:
    rig = Rig(paused=True)
    status, whole = LinkStatus(rig.link), rig.link.snapshot.facts
    rig.link.update(facts=whole._replace(target=whole.target._replace(problem="timed out")))
    status.observe(NOW)
    rig.link.update(facts=whole)
    status.observe(NOW + 600_000)
    assert status.state(NOW + 601_000)[0] is LinkState.PAUSED
