"""Changes in a real ZooKeeper carry the epoch of the leader: those of an earlier leader fail."""

from collections.abc import Callable

import pytest

from tests.integration.bookkeeper.tree import Tree
from trueup.connectors.bookkeeper.placement.mark_creations import MarkOrder
from trueup.connectors.bookkeeper.placement.marks import Marks
from trueup.connectors.zookeeper.errors import NoNode
from trueup.connectors.zookeeper.fence import Fence
from trueup.state.common.errors import Stop

pytestmark = pytest.mark.servers


@pytest.fixture
def reasons() -> list[str]:
    return []


@pytest.fixture
def lead(tree: Tree, reasons: list[str]) -> Callable[[int], Marks]:
    """Marks of the leader of an epoch. Both leaders have the session of the tree."""

    def make(epoch: int) -> Marks:
        fence = Fence(f"{tree.paths.root}/fences/t", epoch, f"run {epoch}", reasons.append)
        fence.check(tree.client)
        tree.client.fence = fence
        return Marks(tree.client, tree.paths)

    return make


def test_a_leader_marks_and_withdraws(tree: Tree, lead: Callable[[int], Marks], reasons: list[str]) -> None:
    tree.ledgers([1, 2])
    marks = lead(1)
    written = marks.mark([MarkOrder(1, 0, ("a:1",), 9), MarkOrder(2, 7, ("a:1",), 9)])
    withdrawn = marks.withdraw([(1, 0)])
    assert [outcome.result for outcome in (*written, *withdrawn)] == ["written", "refused", "withdrawn"]
    assert (marks.look([1, 2]), reasons) == ({}, [])


def test_an_earlier_leader_changes_nothing(tree: Tree, lead: Callable[[int], Marks], reasons: list[str]) -> None:
    tree.ledgers([1])
    lead(1)
    earlier = tree.client.fence
    marks = lead(2)
    tree.client.fence = earlier
    outcome = marks.mark([MarkOrder(1, 0, ("a:1",), 9)])[0]
    with pytest.raises(Stop):
        tree.client.drop(tree.paths.ledger(1), -1)
    found = tree.client.look(tree.paths.ledger(1)) is not None
    assert (outcome.result, marks.look([1]), found, len(reasons) > 0) == ("failed", {}, True, True)


def test_an_earlier_epoch_cannot_be_written_over_a_later_one(lead: Callable[[int], Marks], reasons: list[str]) -> None:
    lead(2)
    with pytest.raises(Stop, match="another version"):
        lead(1)
    assert len(reasons) == 1


def test_errors_of_single_deletions_are_told(tree: Tree, lead: Callable[[int], Marks]) -> None:
    lead(1)
    with pytest.raises(NoNode):
        tree.client.drop(f"{tree.paths.root}/nothing", -1)
