"""Ledgers are selected by bookie and by namespace from the metadata in ZooKeeper."""

import numpy as np
import pytest

from tests.integration.bookkeeper.tree import Tree
from trueup.connectors.zookeeper.client import ZooKeeperClient
from trueup.state.bookkeeper.observations import LedgerState
from trueup.streams.bookkeeper.selection import LedgerSelection, search, select

pytestmark = pytest.mark.servers

ORDERS, BILLS = "public/default/persistent/orders", "public/billing/persistent/bills"


@pytest.fixture
def tree(client: ZooKeeperClient, own_root: str) -> Tree:
    """Ledgers 1 to 3 of two topics, ledger 4 of another application, ledger 5 without readable metadata."""
    made = Tree(client, own_root)
    made.owned(1, ORDERS, "a:1", "b:1")
    made.owned(2, ORDERS, "b:1", "c:1")
    made.owned(3, BILLS, "c:1", "a:1")
    made.ledger(4, "a:1", "c:1", state=LedgerState.OPEN)
    made.make(made.paths.ledger(5), b"no metadata")
    return made


@pytest.mark.parametrize(
    ("where", "chosen"),
    [
        (LedgerSelection(bookie="a:1"), [1, 3, 4]),
        (LedgerSelection(bookie="a:"), []),
        (LedgerSelection(namespace="public/default"), [1, 2]),
        (LedgerSelection(namespace="public/def"), []),
        (LedgerSelection("a:1", "public/billing"), [3]),
    ],
)
def test_all_ledgers_are_searched(tree: Tree, where: LedgerSelection, chosen: list[int]) -> None:
    rows, total = search(tree.client, tree.paths, 100, where)
    assert (rows.ledger.tolist(), total) == (chosen, len(chosen))


def test_a_limit_does_not_change_the_number_of_matches(tree: Tree) -> None:
    rows, total = search(tree.client, tree.paths, 2, LedgerSelection(bookie="a:1"))
    assert (rows.ledger.tolist(), total) == ([1, 3], 3)


@pytest.mark.parametrize(
    ("where", "chosen"),
    [(LedgerSelection(bookie="c:1"), [2, 4]), (LedgerSelection(namespace="public/default"), [1, 2])],
)
def test_given_ledgers_are_selected_and_deleted_ones_are_not(
    tree: Tree, where: LedgerSelection, chosen: list[int]
) -> None:
    assert select(tree.client, tree.paths, np.array([9, 4, 2, 1, 5]), where).tolist() == chosen


def test_nothing_is_read_where_nothing_is_asked(tree: Tree) -> None:
    assert select(tree.client, tree.paths, np.zeros(0, np.int64), LedgerSelection(bookie="a:1")).tolist() == []


def test_many_ledgers_are_read_in_several_batches(tree: Tree) -> None:
    ids = range(100, 12_100)
    tree.ledgers(ids)
    tree.owned(12_000, ORDERS, "a:1", "d:1")
    assert select(tree.client, tree.paths, np.array(ids), LedgerSelection(bookie="d:1")).tolist() == [12_000]
