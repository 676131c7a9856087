from state.ledgers import concat, row
from state.topology import Bookie, Status, Topology
from streams.reconciler import lost_members

TOPOLOGY = Topology(1, 0, (
    Bookie("a:1", "/a", Status.WRITABLE, 0), Bookie("b:1", "/b", Status.LOST, 0),
    Bookie("c:1", "/c", Status.LOST, 0), Bookie("d:1", "/d", Status.PENDING, 0),
))  # fmt: skip


def test_a_mark_names_the_lost_members_of_all_fragments_once():
    rows = concat([
        row(1, ["a:1", "b:1"], ["c:1", "b:1"], quorum=2), row(2, ["a:1", "d:1"], quorum=2), row(3, ["c:1"], quorum=1),
    ])  # fmt: skip
    assert lost_members(rows, TOPOLOGY) == [("b:1", "c:1"), (), ("c:1",)]


def test_no_ledgers_name_nobody():
    assert lost_members(concat([]), TOPOLOGY) == []
