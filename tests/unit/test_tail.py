"""A lease in a worker: the copier stays open between leases and never where somebody else may have copied."""

import pickle
from collections.abc import Iterator

import pytest

from connectors.contract import Limits, Partition
from connectors.sandbox.processes import wait_until
from state.errors import Retry, Stop
from streams import tail
from streams.tail import Answer, hold, release
from tests.unit import fake_connector
from tests.unit.fake_connector import World, failing, order

ORDERS = Partition("orders", 0)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World()
    monkeypatch.setattr(fake_connector, "WORLD", made)
    yield made
    release(["east-west"])


def test_what_was_copied_is_told(world: World) -> None:
    world.write(ORDERS, 5)
    answer = hold(order())
    assert ([p.copied for p in answer.progress], answer.error, world.has(ORDERS)) == ([5], None, 5)


def test_the_next_lease_goes_on_with_the_same_copier(world: World) -> None:
    hold(order(1))
    world.write(ORDERS, 3)
    answer = hold(order(2))
    assert (len(world.opened), answer.progress[0].copied) == (1, 3)


def test_between_two_leases_it_goes_on_copying(world: World) -> None:
    hold(order(1))
    world.write(ORDERS, 3)
    wait_until(lambda: world.has(ORDERS) == 3, 60.0, "the records to arrive without a lease")
    assert hold(order(2)).progress[0].copied == 3


def test_one_of_several_tasks_copies_nothing_without_a_lease(world: World) -> None:
    hold(order(1, lingers=False))
    world.write(ORDERS, 3)
    with world.changed:
        came = world.changed.wait_for(lambda: len(world.target[ORDERS]) > 0, 0.3)
    assert (came, hold(order(2, lingers=False)).progress[0].copied, len(world.opened)) == (False, 3, 1)


@pytest.mark.parametrize(
    ("following", "waited"),
    [
        (order(2, alone_s=4.0), []),
        (order(2, alone_s=4.0, limits=Limits(records_per_s=5)), []),
        (order(3, alone_s=4.0), [4.0]),
        (order(2, alone_s=4.0, term="b"), [4.0]),
    ],
    ids=["goes on", "opens anew after itself", "missed a lease", "another term"],
)
def test_who_does_not_know_that_nobody_copies_waits(
    world: World, monkeypatch: pytest.MonkeyPatch, following: tail.Order, waited: list[float]
) -> None:
    found: list[float] = []
    hold(order(1))
    monkeypatch.setattr(tail.time, "sleep", found.append)
    hold(following)
    assert [seconds for seconds in found if seconds] == waited


@pytest.mark.parametrize(
    "following",
    [order(3), order(2, term="b"), order(2, limits=Limits(records_per_s=5))],
    ids=["missed a lease", "another term", "other limits"],
)
def test_a_copier_is_opened_where_the_lease_does_not_follow(world: World, following: tail.Order) -> None:
    hold(order(1))
    hold(following)
    assert (len(world.opened), world.closed) == (2, 1)


def test_a_part_that_went_elsewhere_is_let_go(world: World) -> None:
    hold(order(1, part=0))
    hold(order(2, part=1, topic="pays"))
    assert world.closed == 1


def test_the_last_lease_closes_the_copier(world: World) -> None:
    hold(order(1))
    world.write(ORDERS, 2)
    answer = hold(order(2, lease_s=0.0, last=True))
    wait_until(lambda: world.closed == 1, 60.0, "the copier to be closed")
    assert answer.progress[0].position.offset == 2


def test_without_a_next_lease_the_copier_is_closed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "GRACE_S", 0.05)
    hold(order(1))
    wait_until(lambda: world.closed == 1, 60.0, "the copier to be closed")


def test_what_was_copied_after_the_last_lease_is_told_though_the_copier_is_closed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "GRACE_S", 0.3)
    hold(order(1))
    world.write(ORDERS, 3)
    wait_until(lambda: world.closed == 1, 60.0, "the copier to be closed")
    world.write(ORDERS, 2)
    answer = hold(order(2))
    assert ([p.copied for p in answer.progress], world.opened[1].assignments[0].position.offset) == ([3, 2], 3)


def test_an_error_of_opening_is_told(world: World) -> None:
    world.refuse = Stop("a link between two clusters", "one", "correct it")
    answer = hold(order())
    assert (answer.progress, str(answer.error)) == ([], str(world.refuse))


def test_what_was_copied_before_an_error_is_told_with_it(world: World) -> None:
    hold(order(1))
    world.write(ORDERS, 4)
    wait_until(lambda: world.has(ORDERS) == 4, 60.0, "the records to arrive")
    tail._tails["east-west", 0].leave()
    failing(Retry("a leader", "none", "wait"))
    answer = hold(order(2))
    assert (answer.progress[0].copied, type(answer.error), world.closed) == (4, Retry, 1)


def test_an_error_between_leases_costs_a_copier_only(world: World) -> None:
    hold(order(1))
    failing(Retry("a leader", "none", "wait"))
    wait_until(lambda: world.closed == 1, 60.0, "the copier to be closed")
    assert (hold(order(2)).error, len(world.opened)) == (None, 2)


def test_a_defect_is_not_hidden(world: World) -> None:
    world.refuse = ZeroDivisionError("a defect")
    with pytest.raises(ZeroDivisionError):
        hold(order())


def test_answers_travel(world: World) -> None:
    world.write(ORDERS, 5)
    answer = Answer(hold(order()).progress, Stop("a", "b", "c"))
    back = pickle.loads(pickle.dumps(answer))
    assert (back.progress, str(back.error)) == (answer.progress, str(answer.error))
