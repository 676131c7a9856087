"""A lease in a worker: the copier stays open between leases, unless another worker may have copied meanwhile."""

import pickle
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.unit.replication import fake_connector
from tests.unit.replication.fake_connector import World, failing, order
from trueup.connectors.contract import Limits, LogId, Position, Progress, Run
from trueup.connectors.embedded.processes import wait_until
from trueup.state.common.errors import Retry, Stop
from trueup.streams.journal.channel import Channel
from trueup.streams.journal.codec import decode, encode
from trueup.streams.replication import leases
from trueup.streams.replication.leases import ReportMessage
from trueup.streams.replication.links import worker
from trueup.streams.replication.links.worker import LeaseResult, hold, release

ORDERS = LogId("orders", 0)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World()
    monkeypatch.setattr(fake_connector, "WORLD", made)
    yield made
    release(["east-west"])


def copied(answer: LeaseResult) -> list[int]:
    return [progress.copied for progress in answer.progress if progress.copied]


def test_copied_records_are_reported(world: World) -> None:
    world.write(ORDERS, 5)
    answer = hold(order())
    assert (copied(answer), answer.error, world.has(ORDERS)) == ([5], None, 5)


def test_what_is_copied_is_reported_while_the_lease_runs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[ReportMessage] = []
    read = lambda body: leases.message_of(decode("reports", body))  # noqa: E731
    monkeypatch.setattr(leases, "publish", lambda _channel, _key, body: found.append(read(body)))
    monkeypatch.setattr(leases, "REPORT_S", 0.05)
    with ThreadPoolExecutor(1) as pool:
        lease = pool.submit(hold, order(lease_s=60.0, channel=Channel("reports", ())))
        world.write(ORDERS, 5)
        wait_until(lambda: any(p.copied for received in found for p in received.report.progress), 180.0, "a report")
        early = not lease.done()
        failing(Retry("a leader", "none", "so that the lease ends"))
        world.write(ORDERS, 0)
        answer = lease.result(60)
    assert (early, [received.report for received in found]) == (True, answer.reports[: len(found)])


def test_a_report_reads_back_as_it_was_written(world: World) -> None:
    world.write(ORDERS, 5)
    whole = hold(order()).reports[-1]
    one = replace(whole.progress[0], lag_ms=7, dropped=2, error="too large", stopped=True)
    received = ReportMessage("east-west", "a", 3, 1, whole._replace(progress=[one]))
    assert leases.message_of(decode("reports", encode("reports", leases.record_of(received)))) == received


def test_a_report_is_divided_where_it_would_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "RUNS", 10)
    made = leases.Reporter(None, lambda report: ReportMessage("", "", 0, 0, report))
    made.report([Progress(LogId("orders", n), LogId("orders", n), Position(), (Run(0, 0, 1),) * 6) for n in range(3)])
    assert [(report.at, len(report.progress)) for report in made.reports] == [(1, 1), (2, 1), (3, 1)]


def test_what_did_not_change_is_not_reported_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "REPORT_S", 0.0)
    made = leases.Reporter(None, lambda report: ReportMessage("", "", 0, 0, report))
    for _ in range(2):
        made.report_if_due(lambda: [Progress(ORDERS, ORDERS, Position(5))])
    assert [len(report.progress) for report in made.reports] == [1]


def test_the_next_lease_goes_on_with_the_same_copier(world: World) -> None:
    hold(order(1))
    world.write(ORDERS, 3)
    answer = hold(order(2))
    assert (len(world.opened), copied(answer)) == (1, [3])


def test_between_two_leases_it_goes_on_copying(world: World) -> None:
    hold(order(1))
    world.write(ORDERS, 3)
    wait_until(lambda: world.has(ORDERS) == 3, 180.0, "the records to arrive without a lease")
    assert copied(hold(order(2))) == [3]


def test_a_lease_ends_early_once_the_application_stops_and_its_copier_is_closed(world: World, tmp_path: Path) -> None:
    stop = tmp_path / "stopping"
    world.write(ORDERS, 3)
    held = order(1, lease_s=600.0)._replace(stop=str(stop))
    with ThreadPoolExecutor(1) as task:
        answer = task.submit(hold, held)
        wait_until(lambda: world.has(ORDERS) == 3, 180.0, "the records to be copied")
        stop.touch()
        assert (copied(answer.result(60.0)), world.closed) == ([3], 1)


def test_one_of_several_tasks_copies_nothing_without_a_lease(world: World) -> None:
    hold(order(1, lingers=False))
    world.write(ORDERS, 3)
    with world.changed:
        came = world.changed.wait_for(lambda: len(world.target[ORDERS]) > 0, 0.3)
    assert (came, copied(hold(order(2, lingers=False))), len(world.opened)) == (False, [3], 1)


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
def test_a_worker_waits_until_no_other_process_copies(
    world: World, monkeypatch: pytest.MonkeyPatch, following: worker.LeaseOrder, waited: list[float]
) -> None:
    found: list[float] = []
    hold(order(1))
    monkeypatch.setattr(worker, "time", SimpleNamespace(monotonic=time.monotonic, sleep=found.append))
    hold(following)
    assert sum(found) == sum(waited)


@pytest.mark.parametrize(
    "following",
    [order(3), order(2, term="b"), order(2, limits=Limits(records_per_s=5))],
    ids=["missed a lease", "another term", "other limits"],
)
def test_a_copier_is_opened_where_the_lease_does_not_follow(world: World, following: worker.LeaseOrder) -> None:
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
    wait_until(lambda: world.closed == 1, 180.0, "the copier to be closed")
    assert answer.progress[-1].position.offset == 2


def test_without_a_next_lease_the_copier_is_closed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "GRACE_S", 0.05)
    hold(order(1))
    wait_until(lambda: world.closed == 1, 180.0, "the copier to be closed")


def test_records_copied_after_the_last_lease_are_reported_though_the_copier_is_closed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "GRACE_S", 0.3)
    hold(order(1))
    world.write(ORDERS, 3)
    wait_until(lambda: world.closed == 1, 180.0, "the copier to be closed")
    world.write(ORDERS, 2)
    answer = hold(order(2))
    assert (copied(answer), world.opened[1].assignments[0].position.offset) == ([3, 2], 3)


def test_an_error_of_opening_is_reported(world: World) -> None:
    world.refuse = Stop("a link between two clusters", "one", "correct it")
    answer = hold(order())
    assert (answer.progress, str(answer.error)) == ([], str(world.refuse))


def test_records_copied_before_an_error_are_reported_with_it(world: World) -> None:
    hold(order(1))
    world.write(ORDERS, 4)
    wait_until(lambda: world.has(ORDERS) == 4, 180.0, "the records to arrive")
    worker._workers["east-west", 0].leave()
    failing(Retry("a leader", "none", "wait"))
    answer = hold(order(2))
    assert (copied(answer), type(answer.error), world.closed) == ([4], Retry, 1)


def test_an_error_between_leases_costs_a_copier_only(world: World) -> None:
    hold(order(1))
    failing(Retry("a leader", "none", "wait"))
    wait_until(lambda: world.closed == 1, 180.0, "the copier to be closed")
    assert (hold(order(2)).error, len(world.opened)) == (None, 2)


def test_a_defect_is_not_hidden(world: World) -> None:
    world.refuse = ZeroDivisionError("a defect")
    with pytest.raises(ZeroDivisionError):
        hold(order())


def test_answers_travel(world: World) -> None:
    world.write(ORDERS, 5)
    answer = LeaseResult(hold(order()).reports, Stop("a", "b", "c"))
    back = pickle.loads(pickle.dumps(answer))
    assert (back.progress, str(back.error)) == (answer.progress, str(answer.error))
