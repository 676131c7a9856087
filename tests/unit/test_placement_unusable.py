from state.ledgers import row
from state.placement import judge
from state.rules import RULES
from state.topology import Bookie, Status, Topology

RACKS = {"a:1": "/a", "b:1": "/b", "c:1": ""}
TOPOLOGY = Topology(1, 0, tuple(Bookie(bookie, rack, Status.WRITABLE, 0) for bookie, rack in RACKS.items()))


def test_a_bookie_at_an_unusable_location_gives_no_rack():
    verdicts = judge(row(1, ["a:1", "c:1"], quorum=2), TOPOLOGY)
    assert (int(verdicts.racks[0]), RULES[int(verdicts.rule[0])].id) == (1, "placement.odd-rack-depth")
