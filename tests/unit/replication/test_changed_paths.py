"""The copy path of a link that was restarted, or whose settings exclude the path that it had."""

import pytest

from tests.unit.replication.test_link import ONE, ZERO, Rig, done
from trueup.connectors.contract import LogId, Position
from trueup.state.common.errors import Stop
from trueup.state.replication.anomalies import PathChoice
from trueup.streams.replication.leases import Report
from trueup.streams.replication.links.link import LATE_MS, STOPPED_AGAIN_MS, UNCOUNTED_AGAIN_MS
from trueup.streams.replication.links.worker import ALONE_S, LeaseResult


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


def round_of(rig: Rig, **more: object) -> list[tuple[str, bool, list[int]]]:
    """The path, whether its copiers are closed, and the partitions of the next round, in which copiers report this."""
    orders = rig.round(**more)
    parts = sorted(each.source.number for order in orders for each in order.lease.assignments)
    return [(orders[0].lease.path, orders[0].last, parts)] if orders else []


@pytest.fixture
def killed() -> Rig:
    """A link after a kill whose path was changed. The killed copiers may have written records that are not counted."""
    rig = Rig()
    rig.round(10, 20)
    rig.link._save((), must=True)
    rig.link = rig.restarted()
    rig.link.update(choice=PathChoice("records", "small batches"))
    return rig


def test_a_copier_that_counts_the_records_of_a_killed_one_keeps_its_lease(killed: Rig) -> None:
    found = [round_of(killed, target_end=end) for end in (-1, -1, 20, 20)]
    assert [row for (row,) in found] == [("batches", False, [0, 1])] * 3 + [("batches", True, [0, 1])]
    assert round_of(killed) == [("records", False, [0, 1])]


def test_a_copier_that_ends_before_it_counted_all_records_does_not_free_its_partitions(killed: Rig) -> None:
    found = [round_of(killed, target_end=end) for end in (20, -1)]
    assert [row for (row,) in found] == [("batches", False, [0, 1]), ("batches", True, [0, 1])]
    assert round_of(killed) == [("batches", False, [0, 1])]


def ended(rig: Rig, **zero: object) -> list[tuple[str, list[LogId]]]:
    """The path and the partitions of the next round, in which the copier of `ZERO` reports this."""
    orders = rig.link.orders()
    every = [(order, [each.source for each in order.lease.assignments]) for order in orders]
    rig.link.take(
        [
            LeaseResult([Report("a", 1, [done(order, one, (), **(zero if one == ZERO else {})) for one in logs])], None)
            for order, logs in every
        ]
    )
    return [(orders[0].lease.path, sorted(one for _, logs in every for one in logs))] if orders else []


def test_a_partition_that_is_away_with_uncounted_records_waits_and_stops_no_other(killed: Rig) -> None:
    away = {"target_end": -1, "error": "no leader"}
    found = [ended(killed, **away) for _ in range(4)]
    killed.now += UNCOUNTED_AGAIN_MS
    later = [ended(killed) for _ in range(4)]
    assert found == [[("batches", [ZERO, ONE])]] * 2 + [[("records", [ONE])]] * 2
    assert later == [[("records", [ONE])], [("batches", [ZERO])], [("batches", [ZERO])], [("records", [ZERO, ONE])]]


def test_a_stopped_partition_may_change_its_path(killed: Rig) -> None:
    found = [ended(killed, target_end=-1, error="set copy: records", stopped=True) for _ in range(2)]
    killed.now += STOPPED_AGAIN_MS
    assert [*found, ended(killed)] == [[("batches", [ZERO, ONE])]] * 2 + [[("records", [ZERO, ONE])]]


def test_a_stopped_partition_alone_on_its_path_is_closed_before_the_others_continue(killed: Rig) -> None:
    for _ in range(2):
        round_of(killed, target_end=20)
    killed.link._closed.discard(ZERO)  # its closing order was lost with the query
    killed.link._hold([])
    stopped = {"stopped": True, "error": "the target refuses a batch", "target_end": -1}
    found = [ended(killed, **stopped) for _ in range(2)]
    killed.now += STOPPED_AGAIN_MS
    assert [*found, ended(killed)] == [[("batches", [ZERO])]] * 2 + [[("records", [ZERO, ONE])]]


def test_a_closing_order_in_another_process_waits_for_the_copier_that_it_ends(killed: Rig) -> None:
    killed.round(target_end=20)
    assert {(order.last, order.alone_s) for order in killed.link.orders()} == {(True, ALONE_S)}


def test_a_lease_that_a_path_refuses_as_a_whole_does_not_keep_the_link_on_it(killed: Rig) -> None:
    refused = Stop("a link that path batches can copy", "another", "set copy: records")
    killed.link.take([LeaseResult([], refused) for _ in killed.link.orders()])
    killed.now += STOPPED_AGAIN_MS
    assert round_of(killed) == [("records", False, [0, 1])]


def test_a_partition_that_is_away_on_the_present_path_is_tried_again_soon() -> None:
    rig = Rig()
    rig.round(10, 20)
    rig.link.reset({ZERO: 0, ONE: 0}, "earliest")
    away = {"target_end": -1, "error": "no leader", "position": Position(0, chosen=True)}
    for _ in range(2):
        rows = [
            [done(order, each.source, (), **away) for each in order.lease.assignments] for order in rig.link.orders()
        ]
        rig.link.take([LeaseResult([Report("a", 1, row)], None) for row in rows])
    rig.now += LATE_MS
    assert round_of(rig) == [("batches", False, [0, 1])]
