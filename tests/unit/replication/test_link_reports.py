"""Processing of the reports that leases send while they run."""

import pytest

from tests.unit.replication.test_link import NOW, ONE, Rig, facts, left
from trueup.connectors.contract import Position, Progress, Run
from trueup.streams.replication.leases import Report, ReportMessage
from trueup.streams.replication.links.worker import LeaseOrder, LeaseResult


@pytest.fixture
def rig() -> Rig:
    return Rig()


def reported(order: LeaseOrder, at: int, offset: int, attempt: str = "a") -> ReportMessage:
    """A report of the first partition of an order, ten records after the previous one."""
    source = order.lease.assignments[0].source
    runs = (Run(offset - 10, offset - 10, 10),)
    progress = [Progress(source, source, Position(offset), runs, copied=10, path="batches")]
    return ReportMessage("east-west", order.term, order.number, order.part, Report(attempt, at, progress))


def test_what_a_lease_reports_is_known_while_it_runs(rig: Rig) -> None:
    order = rig.link.orders()[0]
    rig.link.receive(reported(order, 1, 10))
    copy = rig.link.copies[order.lease.assignments[0].source]
    assert (copy.offset, copy.map.until, rig.link.totals["copied"], rig.link.grown.is_set()) == (10, 10, 10, True)


@pytest.mark.parametrize(
    ("received", "offset"),
    [
        ([(1, 10, "a"), (2, 20, "a")], 20),
        ([(1, 10, "a"), (1, 10, "a")], 10),
        ([(1, 10, "a"), (3, 30, "a")], 10),
        ([(2, 20, "a")], 0),
        ([(1, 10, "a"), (2, 20, "b")], 10),
        ([(1, 10, "a"), (1, 10, "b"), (2, 20, "b"), (2, 20, "a")], 20),
    ],
    ids=["in turn", "twice", "one was lost", "the first was lost", "of no attempt", "a task that was run again"],
)
def test_a_report_counts_only_if_it_is_the_next(rig: Rig, received: list[tuple[int, int, str]], offset: int) -> None:
    order = rig.link.orders()[0]
    for at, to, attempt in received:
        rig.link.receive(reported(order, at, to, attempt))
    assert rig.link.copies[order.lease.assignments[0].source].offset == offset


def test_received_reports_are_not_counted_again_with_the_result(rig: Rig) -> None:
    orders = rig.link.orders()
    received = [reported(orders[0], at, 10 * at) for at in (1, 2, 3)]
    rig.link.receive(received[0])
    rig.link.take([LeaseResult([each.report for each in received], None), LeaseResult([], None)])
    assert (rig.link.totals["copied"], rig.journal.taken["links", b"east-west/orders-0"]["offset"]) == (30, 30)


def test_a_report_of_another_order_is_ignored(rig: Rig) -> None:
    old = rig.round(10, 20)[0]
    rig.link.orders()
    rig.link.receive(reported(old, 1, 90))
    assert {copy.offset for copy in rig.link.copies.values()} == {10, 20}


def test_reported_progress_reaches_the_journal_though_the_task_fails(rig: Rig) -> None:
    rig.link.receive(reported(rig.link.orders()[0], 1, 10))
    rig.link.begin()
    assert rig.journal.taken["links", b"east-west/orders-0"]["offset"] == 10


def test_a_report_hides_no_later_observation_and_none_if_its_task_could_not_read(rig: Rig) -> None:
    rig.round(10, 20, source_end=20)
    rig.link.update(facts=facts()._replace(at_ms=NOW + 1))
    later = left(rig)[ONE]
    rig.now += 1
    rig.round(10, 20, source_end=20)
    newest = left(rig)[ONE]
    rig.round(10, 20, source_end=20, error="no leader")
    assert (later, newest, left(rig)[ONE]) == (80, 0, 80)
