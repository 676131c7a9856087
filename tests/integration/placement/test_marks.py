"""Marks on a real ZooKeeper: each order gets its own result, independent of concurrent changes in the tree."""

import threading

import pytest
from kazoo.security import make_acl, make_digest_acl

from tests.integration.bookkeeper.tree import Tree
from tests.proxy import Proxy
from trueup.connectors.bookkeeper.metadata import mark_codec
from trueup.connectors.bookkeeper.placement.mark_creations import MarkOrder
from trueup.connectors.bookkeeper.placement.marks import Marks
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.zookeeper.client import ZooKeeperClient, deletion
from trueup.sandbox.servers.zookeeper import ZooKeeper

pytestmark = pytest.mark.servers


@pytest.fixture
def writer(tree: Tree) -> Marks:
    return Marks(tree.client, tree.paths)


def stored(tree: Tree, ledger: int) -> mark_codec.Mark | None:
    found = tree.client.look(tree.paths.mark(ledger))
    return None if found is None else mark_codec.decode(found[0])


def results(writer: Marks, orders: list[MarkOrder]) -> list[str]:
    return [outcome.result for outcome in writer.mark(orders)]


def test_marks_are_written_with_all_their_parents(tree: Tree, writer: Marks) -> None:
    ids = [0, 1, 70_000, 2**40]
    tree.ledgers(ids)
    reported = results(writer, [MarkOrder(i, 0, ("a:1",), 9) for i in ids])
    assert (reported, [stored(tree, i) for i in ids]) == (["written"] * 4, [mark_codec.Mark(("a:1",), 9)] * 4)


def test_marks_are_looked_up_as_they_are(tree: Tree, writer: Marks) -> None:
    tree.ledgers([1, 2])
    tree.mark(1, "a:1", ctime_ms=9)
    assert writer.look([1, 2, 3]) == {1: mark_codec.Mark(("a:1",), 9)}


def test_holders_of_the_locks_are_reported(tree: Tree, writer: Marks) -> None:
    tree.lock(5, "w:1")
    assert writer.holders([5, 6]) == {5: "w:1"}


CLOSED = [make_digest_acl("else", "secret", all=True)]


def test_a_lock_that_may_not_be_read_is_held(tree: Tree, writer: Marks) -> None:
    tree.lock(5, "w:1")
    tree.client.set_acls(tree.paths.lock(5), CLOSED)
    assert writer.holders([5, 6]) == {5: "?"}


def test_a_mark_that_may_not_be_read_is_not_taken_for_gone(tree: Tree, writer: Marks) -> None:
    tree.mark(1, "a:1")
    tree.mark(2, "a:1", ctime_ms=9)
    tree.client.set_acls(tree.paths.mark(1), CLOSED)
    assert writer.look([1, 2, 3]) == {1: None, 2: mark_codec.Mark(("a:1",), 9)}


def test_a_mark_that_may_not_be_deleted_is_named_and_others_are_withdrawn(tree: Tree, writer: Marks) -> None:
    tree.ledgers([1, 70_000])
    writer.mark([MarkOrder(1, 0), MarkOrder(70_000, 0)])
    tree.client.set_acls(tree.paths.mark_parent(1), [make_acl("world", "anyone", read=True)])
    refused, done = writer.withdraw([(1, 0), (70_000, 0)])
    assert (refused.result, tree.paths.mark(1) in refused.detail, done.result) == ("failed", True, "withdrawn")


def test_where_no_daemon_ever_ran_the_roots_are_made_too(tree: Tree, writer: Marks) -> None:
    tree.ledgers([3])
    tree.client.delete(tree.paths.replication, recursive=True)
    reported = results(writer, [MarkOrder(3, 0, ("a:1",), 9)])
    assert (reported, stored(tree, 3)) == (["written"], mark_codec.Mark(("a:1",), 9))


def test_an_outcome_has_version_and_zxid_of_the_mark(tree: Tree, writer: Marks) -> None:
    tree.ledgers([4])
    (outcome,) = writer.mark([MarkOrder(4, 0, (), 9)])
    found = tree.client.look(tree.paths.mark(4))
    assert found is not None
    assert (outcome.version, outcome.zxid) == (found[1].version, found[1].mzxid)


def test_each_order_is_answered_by_itself(tree: Tree, writer: Marks) -> None:
    tree.ledgers(i for i in range(250) if i != 120)
    tree.mark(7, "a:1", ctime_ms=3)
    orders = [MarkOrder(i, 5 if i % 50 == 33 else 0, ("a:1",), 9) for i in range(250)]
    expected = ["written"] * 250
    for i in range(33, 250, 50):
        expected[i] = "refused"
    expected[120], expected[7] = "gone", "already"
    assert results(writer, orders) == expected


def test_missing_replicas_are_added_to_a_mark(tree: Tree, writer: Marks) -> None:
    tree.ledgers([4])
    tree.mark(4, "a:1", ctime_ms=3)
    (outcome,) = writer.mark([MarkOrder(4, 0, ("b:1", "a:1"), 9)])
    assert (outcome.result, outcome.version, stored(tree, 4)) == ("written", 1, mark_codec.Mark(("a:1", "b:1"), 9))


def test_a_mark_that_has_all_replicas_is_not_written_again(tree: Tree, writer: Marks) -> None:
    tree.ledgers([4])
    tree.mark(4, "a:1", "b:1", ctime_ms=3)
    reported = results(writer, [MarkOrder(4, 0, ("b:1",), 9), MarkOrder(4, 0, (), 9)])
    assert (reported, stored(tree, 4)) == (["already", "already"], mark_codec.Mark(("a:1", "b:1"), 3))


def test_a_mark_that_cannot_be_read_is_left_alone(tree: Tree, writer: Marks) -> None:
    tree.ledgers([4])
    tree.make(tree.paths.mark(4), b"}{")
    assert results(writer, [MarkOrder(4, 0, ("b:1",), 9)]) == ["already"]


def test_workers_that_clear_empty_parents_do_not_keep_marks_from_being_written(tree: Tree, writer: Marks) -> None:
    ids = list(range(0, 40 * 65_536, 65_536))
    tree.ledgers(ids)
    stop = threading.Event()

    def clear() -> None:
        while not stop.wait(0.002):
            upper = [tree.paths.mark_parent(i) for i in ids]
            for level in (upper, [path.rpartition("/")[0] for path in upper]):
                for _ in tree.client.commit([[deletion(path, -1)] for path in level]):
                    pass

    clearing = threading.Thread(target=clear)
    clearing.start()
    try:
        reported = results(writer, [MarkOrder(i, 0, (), 9) for i in ids])
    finally:
        stop.set()
        clearing.join()
    assert (reported, {stored(tree, i) for i in ids}) == (["written"] * len(ids), {mark_codec.Mark((), 9)})


def test_a_session_without_permission_is_refused(tree: Tree, writer: Marks) -> None:
    tree.ledgers([4, 5])
    tree.client.set_acls(tree.paths.ledger(5), [make_digest_acl("u", "p", all=True)])
    assert results(writer, [MarkOrder(5, 0, (), 9), MarkOrder(4, 0, (), 9)]) == ["failed", "written"]


def test_a_mark_that_may_not_be_written_does_not_hold_up_others(tree: Tree, writer: Marks) -> None:
    tree.ledgers([4, 5, 6])
    tree.make(tree.paths.mark_parent(5))
    tree.client.set_acls(tree.paths.mark_parent(5), [make_acl("world", "anyone", read=True)])
    first, refused, last = writer.mark([MarkOrder(4, 0), MarkOrder(5, 0), MarkOrder(6, 0)])
    assert [first.result, refused.result, last.result] == ["written", "failed", "written"]
    assert tree.paths.mark(5) in refused.detail


def test_a_lost_answer_is_unknown_and_the_next_look_knows(zookeeper: ZooKeeper, tree: Tree) -> None:
    tree.ledgers([4])
    with Proxy(zookeeper.address) as proxy:
        far = ZooKeeperClient(proxy.address, timeout=6.0).open()
        writer = Marks(far, tree.paths)
        ready = writer._look([MarkOrder(4, 0, (), 9)], [0], {})
        done: dict = {}
        proxy.deaf = True
        lost = threading.Thread(target=writer._commit, args=([MarkOrder(4, 0, (), 9)], ready, done, 100))
        lost.start()
        wait_until(lambda: stored(tree, 4), 180.0, "the mark to be there")
        proxy.cut()
        lost.join()
        proxy.deaf = False
        wait_until(lambda: far.connected, 180.0, "a new connection")
        again = writer.mark([MarkOrder(4, 0, (), 9)])[0].result
        far.shut()
    assert (done[0].result, again) == ("unknown", "already")


def test_without_a_connection_nothing_is_written(zookeeper: ZooKeeper, tree: Tree) -> None:
    tree.ledgers([4])
    with Proxy(zookeeper.address) as proxy:
        far = ZooKeeperClient(proxy.address, timeout=6.0).open()
        proxy.open = False
        proxy.cut()
        wait_until(lambda: not far.connected, 180.0, "the loss to be noticed")
        writer = Marks(far, tree.paths)
        reported = [writer.mark([MarkOrder(4, 0, (), 9)])[0].result, writer.withdraw([(4, 0)])[0].result]
        far.shut()
    assert reported == ["retry", "retry"]


def test_a_withdrawal_takes_the_mark_and_its_empty_parents(tree: Tree, writer: Marks) -> None:
    tree.ledgers([1, 70_000])
    writer.mark([MarkOrder(1, 0), MarkOrder(70_000, 0)])
    reported = writer.withdraw([(1, 0)])[0].result
    left, _ = tree.client.listing(f"{tree.paths.marks}/0000/0000")
    assert (reported, left) == ("withdrawn", [b"0001"])


@pytest.mark.parametrize(("version", "result"), [(0, "refused"), (1, "withdrawn")])
def test_only_the_version_that_was_seen_is_withdrawn(tree: Tree, writer: Marks, version: int, result: str) -> None:
    tree.ledgers([1])
    tree.mark(1, "a:1")
    tree.mark(1, "a:1", "b:1")
    assert writer.withdraw([(1, version)])[0].result == result


def test_withdrawing_what_is_not_there_finds_it_gone(tree: Tree, writer: Marks) -> None:
    assert writer.withdraw([(1, 0)])[0].result == "gone"


def test_no_orders_need_no_answer(writer: Marks) -> None:
    assert writer.mark([]) == []
