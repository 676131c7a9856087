"""The copy path of a link that was restarted, or whose settings exclude the path that it had."""

import pytest

from tests.unit.replication.test_link import ONE, ZERO, Rig
from trueup.state.replication.anomalies import PathChoice


@pytest.mark.parametrize("setting", [{"transform": "mask:record"}, {"failures": "dead-letter"}])
def test_a_path_that_refuses_the_settings_is_left_at_the_positions_of_the_journal(setting: dict[str, str]) -> None:
    before = Rig()
    before.round(10, 20)
    after = Rig(dead_letter_topic="letters", **setting)
    after.journal = before.journal
    after.link = after.restarted()
    after.link.update(choice=PathChoice("records", "transform processes every record"))
    orders = after.link.orders()
    found = [(order.lease.path, each.position.offset) for order in orders for each in order.lease.assignments]
    assert found == [("records", 10), ("records", 20)]


@pytest.fixture
def mixed() -> Rig:
    """A link after a kill: one of its partitions was copied on its present path, the other one on an earlier path."""
    rig = Rig()
    rig.round(10, 20)
    rig.link.copies[ONE].path = "records"
    rig.link._save(list(rig.link.copies.values()), must=True)
    rig.link = rig.restarted()
    rig.link.update(choice=PathChoice("records", "small batches"))
    return rig


def leased(rig: Rig, rounds: int) -> list[tuple[str, list[int]]]:
    """The path and the partitions of each round."""
    made = [rig.round() for _ in range(rounds)]
    return [
        (orders[0].lease.path, sorted(each.source.number for one in orders for each in one.lease.assignments))
        for orders in made
    ]


def test_a_partition_on_an_earlier_path_gets_a_lease_there_first(mixed: Rig) -> None:
    assert leased(mixed, 3) == [("batches", [0]), ("batches", [0]), ("records", [0, 1])]


def test_a_partition_on_the_present_path_resumes_there_whatever_a_waiting_one_has(mixed: Rig) -> None:
    mixed.link.copies[ZERO].exclude("waits")
    (order,) = mixed.link.orders()
    place = order.lease.assignments[0].position
    assert (order.lease.path, place.offset, place.chosen) == ("records", 20, False)


def test_leases_on_a_new_path_last_although_a_partition_does_not_report(mixed: Rig) -> None:
    leased(mixed, 3)
    mixed.link.copies[ZERO].path = "batches"  # as while its target is away
    assert [order.last for order in mixed.link.orders()] == [False, False]
