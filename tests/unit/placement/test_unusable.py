from trueup.state.bookkeeper.ledgers import row
from trueup.state.bookkeeper.topology import Bookie, Status, Topology
from trueup.state.placement.rules import RULES
from trueup.state.placement.verdicts import judge

RACKS = {"a:1": "/a", "b:1": "/b", "c:1": ""}
TOPOLOGY = Topology(1, 0, tuple(Bookie(bookie, rack, Status.WRITABLE, 0) for bookie, rack in RACKS.items()))


def test_a_bookie_at_an_unusable_location_gives_no_rack():
    verdicts = judge(row(1, ["a:1", "c:1"], quorum=2), TOPOLOGY)
    assert (int(verdicts.racks[0]), RULES[int(verdicts.rule[0])].id) == (1, "placement.odd-rack-depth")
