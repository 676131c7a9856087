"""Deletion of ledgers without an owner on a real ZooKeeper. Each ledger is deleted only in its ordered version."""

import pytest
from kazoo.security import ACL, ANYONE_ID_UNSAFE, Permissions

from tests.integration.bookkeeper.tree import Tree
from trueup.connectors.bookkeeper.deletion.remove import RemovalOrder, remove
from trueup.connectors.bookkeeper.metadata.queries import one
from trueup.state.bookkeeper.observations import LedgerState

pytestmark = pytest.mark.servers


def order(tree: Tree, ledger: int) -> RemovalOrder:
    """An order to delete a ledger in its current version."""
    found = one(tree.client, tree.paths, ledger, 0)
    assert found is not None
    return RemovalOrder(ledger, found[0]["version"], found[0]["ctime_ms"])


def outcomes(tree: Tree, *orders: RemovalOrder) -> list[str]:
    return [each.result for each in remove(tree.client, tree.paths, orders, 0)]


def there(tree: Tree, ledger: int) -> bool:
    return tree.client.look(tree.paths.ledger(ledger)) is not None


def test_what_is_ordered_is_gone_and_nothing_else(tree: Tree) -> None:
    tree.ledgers([1, 2, 2**40])
    assert (outcomes(tree, order(tree, 1), order(tree, 2**40)), there(tree, 1), there(tree, 2)) == (
        ["deleted"] * 2,
        False,
        True,
    )


def test_what_was_written_since_stays(tree: Tree) -> None:
    tree.ledgers([1])
    before = order(tree, 1)
    tree.ledger(1, "c:1", "d:1")
    assert (outcomes(tree, before), there(tree, 1)) == (["refused"], True)


def test_what_was_made_anew_stays(tree: Tree) -> None:
    tree.ledgers([1])
    before = order(tree, 1)
    assert (outcomes(tree, before._replace(ctime_ms=before.ctime_ms + 1)), there(tree, 1)) == (["refused"], True)


@pytest.mark.parametrize("state", [LedgerState.OPEN, LedgerState.IN_RECOVERY])
def test_what_is_not_closed_stays(tree: Tree, state: LedgerState) -> None:
    tree.ledger(1, state=state)
    assert (outcomes(tree, order(tree, 1)), there(tree, 1)) == (["refused"], True)


def test_what_cannot_be_read_stays(tree: Tree) -> None:
    tree.make(tree.paths.ledger(1), b"no metadata")
    assert (outcomes(tree, order(tree, 1)), there(tree, 1)) == (["refused"], True)


def test_a_missing_ledger_is_reported_and_blocks_no_other_deletion(tree: Tree) -> None:
    tree.ledgers([1, 2])
    orders = [order(tree, 1), order(tree, 2)]
    tree.delete(1)
    assert outcomes(tree, *orders) == ["gone", "deleted"]


def test_without_permission_it_stays(tree: Tree) -> None:
    tree.ledgers([1])
    parent, rights = tree.paths.ledger(1).rpartition("/")[0], Permissions.ALL & ~Permissions.DELETE
    tree.client.set_acls(parent, [ACL(rights, ANYONE_ID_UNSAFE)])
    assert (outcomes(tree, order(tree, 1)), there(tree, 1)) == (["refused"], True)


def test_a_ledger_that_may_not_be_read_blocks_no_other_deletion(tree: Tree) -> None:
    tree.ledgers([1, 2])
    orders = [order(tree, 1), order(tree, 2)]
    tree.client.set_acls(tree.paths.ledger(1), [ACL(Permissions.ALL & ~Permissions.READ, ANYONE_ID_UNSAFE)])
    assert outcomes(tree, *orders) == ["refused", "deleted"]
