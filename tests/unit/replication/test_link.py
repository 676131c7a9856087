"""Leases that a link grants, and the state that it keeps of ended leases."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType, SimpleNamespace

import pytest

from tests.configuration import Effective, parse
from tests.journals import FakeJournal
from tests.unit.replication.fake_connector import NAME
from trueup.connectors.contract import LogId, Position, Progress, Run
from trueup.state.common.errors import Refused, Retry, Stop
from trueup.state.replication.anomalies import PathChoice, anomalies
from trueup.state.replication.settings import LinkSettings as Declared
from trueup.state.replication.verdicts import LinkState, PartitionStage
from trueup.state.settings.settings import Settings, change
from trueup.streams.replication.leases import Report
from trueup.streams.replication.links import link as module
from trueup.streams.replication.links.checkpoints import Copy, load
from trueup.streams.replication.links.link import Link
from trueup.streams.replication.links.orders import Reporting
from trueup.streams.replication.links.snapshot import ClusterSnapshot, LinkFacts, TargetHold, look
from trueup.streams.replication.links.status import LinkStatus
from trueup.streams.replication.links.worker import ALONE_S, LeaseOrder, LeaseResult

ZERO, ONE = LogId("orders", 0), LogId("orders", 1)
NOW = 1_000_000
COMPARED = frozenset({"orders", "pays", "new"})


class Rig:
    """A link from east to west with a topic of two partitions on both sides."""

    def __init__(self, **keys: object) -> None:
        common = {"source": "east", "target": "west", "topics": ["orders"], "mode": "enforce", "tasks": 2}
        self.settings: Settings = parse(
            {
                "kafka": {"east": {"bootstrap": "e:9092", "bit": 0}, "west": {"bootstrap": "w:9092", "bit": 1}},
                "links": {"east-west": {**common, **keys}},
            }
        )
        self.journal, self.now, self.counted = FakeJournal(), NOW, list[Progress]()
        self.first, self.ended = 0, 0
        self.starts: Callable[[Declared, Iterable[LogId]], dict[LogId, int]] = self._starts
        self.link = self.restarted()

    def _starts(self, _declared: Declared, sources: Iterable[LogId]) -> dict[LogId, int]:
        return dict.fromkeys(sources, self.first)

    def _round_ended(self) -> None:
        self.ended += 1

    def restarted(self, silent_ms: int = 0, unreadable: Mapping[LogId, str] = MappingProxyType({})) -> Link:
        """The link after a restart of the application, or after a takeover."""
        known: dict[LogId, Copy] = load(self.journal).get("east-west", {})  # type: ignore[arg-type]
        link = Link(
            "east-west",
            Effective(lambda: self.settings),
            self.journal,
            known,  # type: ignore[arg-type]
            lambda declared, sources: self.starts(declared, sources),
            self.counted.append,
            lambda: self.now,
            lambda *_path: NAME,
            Reporting(ended=self._round_ended, silent_ms=silent_ms),
            unreadable,
        )
        link.update(facts=facts(), waiting={}, compared=COMPARED, choice=PathChoice("batches", ""))
        link.begin()
        return link

    def set(self, key: str, value: object) -> None:
        self.settings = change(self.settings, f"links.east-west.{key}", value)

    def round(self, *offsets: int, **more: object) -> list[LeaseOrder]:
        """One round that copies every partition up to an offset."""
        orders = self.link.orders()
        self.link.take([result(o, offsets, **more) for o in orders])
        return orders


def facts(partitions: int = 2, there: int = 2) -> LinkFacts:
    logs = {LogId("orders", n): (0, 100) for n in range(partitions)}
    names = frozenset({"orders", "pays"})
    return LinkFacts(ClusterSnapshot(orders(partitions), logs=logs, names=names), ClusterSnapshot(orders(there)), NOW)


def orders(logs: int) -> dict[str, tuple[LogId, ...]]:
    """A topic with this number of partitions."""
    return {"orders": tuple(LogId("orders", number) for number in range(logs))}


def done(order: LeaseOrder, source: LogId, offsets: tuple[int, ...], **more: object) -> Progress:
    held = next(a for a in order.lease.assignments if a.source == source)
    before = max(held.position.offset, held.start, 0)
    at = offsets[source.number] if offsets else before
    runs = (Run(before, before, at - before),) if at > before else ()
    made = Progress(
        source, held.target, Position(at, {"count": at}), runs, copied=at - before, path=order.lease.path, target_end=at
    )
    return replace(made, **more)  # type: ignore[arg-type]


def result(order: LeaseOrder, offsets: tuple[int, ...], **more: object) -> LeaseResult:
    return LeaseResult(
        [Report("a", 1, [done(order, a.source, offsets, **more) for a in order.lease.assignments])], None
    )


@pytest.fixture
def rig() -> Rig:
    return Rig()


def sources(orders: Iterable[LeaseOrder]) -> list[LogId]:
    return sorted(a.source for order in orders for a in order.lease.assignments)


def test_every_partition_is_leased_once(rig: Rig) -> None:
    orders = rig.link.orders()
    assert (len(orders), sources(orders)) == (2, [ZERO, ONE])


def test_where_a_partition_begins_is_on_the_journal_before_it_is_copied(rig: Rig) -> None:
    rig.first = 7
    rig.link.orders()
    assert rig.journal.taken["links", b"east-west/orders-1"]["start"] == 7


def test_the_journal_must_know_where_a_partition_begins(rig: Rig) -> None:
    rig.journal.down = True
    with pytest.raises(Retry):
        rig.link.orders()


def test_the_next_lease_begins_where_the_last_ended(rig: Rig) -> None:
    rig.round(10, 20)
    held = {a.source: a.position for order in rig.link.orders() for a in order.lease.assignments}
    assert held == {ZERO: Position(10, {"count": 10}), ONE: Position(20, {"count": 20})}


def test_another_run_continues_at_the_position_in_the_journal(rig: Rig) -> None:
    rig.round(10, 20)
    copies = rig.restarted().copies
    assert (copies[ONE].position, list(copies[ONE].map)) == (Position(20, {"count": 20}), [(0, 0, 20)])


def test_a_journal_that_is_down_costs_no_position(rig: Rig) -> None:
    rig.round(10, 20)
    rig.journal.down = True
    rig.round(30, 40)
    problem, rig.journal.down = rig.link.problem, False
    rig.link.orders()
    assert (bool(problem), rig.restarted().copies[ONE].position.offset, rig.link.problem) == (True, 40, "")


@pytest.mark.parametrize("key", [("mode", "observe"), ("paused", True), ("paused_topics", ["orders"])])
def test_what_may_not_be_copied_is_closed_once_and_rests(rig: Rig, key: tuple[str, object]) -> None:
    rig.round(10, 20)
    rig.set(*key)
    closing = rig.round(11, 21)
    assert ([(o.last, o.lease_s) for o in closing], rig.link.orders(), rig.link.copies[ONE].offset) == (
        [(True, 0.0)] * 2,
        [],
        21,
    )


def test_nothing_is_copied_before_the_target_was_compared(rig: Rig) -> None:
    rig.link.update(compared=frozenset())
    assert rig.link.orders() == []


def test_a_topic_that_was_observed_after_the_comparison_is_not_copied() -> None:
    rig, there = Rig(topics=["/.*/"]), {**orders(2), "later": (LogId("later", 0),)}
    rig.link.update(facts=LinkFacts(ClusterSnapshot(there), ClusterSnapshot(there), NOW))
    assert sources(rig.link.orders()) == [ZERO, ONE]
    rig.link.update(compared=frozenset(there))
    rig.round(5, 5)
    assert LogId("later", 0) in sources(rig.link.orders())


def test_a_topic_that_is_not_fit_yet_is_not_copied(rig: Rig) -> None:
    rig.link.update(waiting={"orders": TargetHold("planned: it does not exist")})
    assert rig.link.orders() == []


def test_partitions_without_a_place_at_the_target_wait(rig: Rig) -> None:
    rig.link.update(facts=facts(partitions=2, there=1))
    assert sources(rig.link.orders()) == [ZERO]


def test_new_partitions_are_found_at_the_next_round(rig: Rig) -> None:
    rig.round(10, 20)
    rig.link.update(facts=facts(3, 3))
    assert len(sources(rig.link.orders())) == 3


def test_live_settings_hold_from_the_next_lease_on(rig: Rig) -> None:
    rig.round(10, 20)
    rig.set("records_per_s", 100)
    assert [order.lease.limits.records_per_s for order in rig.link.orders()] == [50, 50]


def test_tasks_stay_within_the_slots(rig: Rig) -> None:
    rig.link.update(slots=1)
    assert len(rig.link.orders()) == 1


def test_only_one_task_lingers(rig: Rig) -> None:
    several = [order.lingers for order in rig.link.orders()]
    rig.set("tasks", 1)
    one = [order.lingers for order in rig.link.orders()]
    assert (several, one) == ([False, False], [True])


@pytest.mark.parametrize(
    ("path", "later_s", "alone_s"),
    [("records", 1.0, ALONE_S - 1.0), ("records", 60.0, 0.0), ("batches", 1.0, 0.0)],
    ids=["somebody may linger", "nobody does", "two at once are harmless"],
)
@pytest.mark.parametrize("set_ms", [0, 3_600_000], ids=["", "the clock was set"])
def test_a_copier_is_opened_after_a_lingering_one_has_ended(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, path: str, later_s: float, alone_s: float, set_ms: int
) -> None:
    times = iter([100.0, 100.0 + later_s])
    rig.link.update(choice=PathChoice(path, ""))
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(times)))
    rig.round(10, 20)
    rig.now += set_ms
    assert {order.alone_s for order in rig.link.orders()} == {alone_s}


@pytest.mark.parametrize(
    ("path", "silent_s", "alone_s"),
    [("records", 12.0, 10.0 + ALONE_S - 12.0), ("records", 60.0, 0.0), ("batches", 12.0, 0.0)],
    ids=["a lease may go on", "none does", "two at once are harmless"],
)
def test_a_copier_is_opened_after_the_leases_of_a_silent_leader(
    rig: Rig, path: str, silent_s: float, alone_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the clock of the machine is set meanwhile."""
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 100.0))
    link = rig.restarted(silent_ms=NOW - int(1000 * silent_s))
    rig.now += 3_600_000
    link.update(choice=PathChoice(path, ""))
    assert {order.alone_s for order in link.orders()} == {alone_s}


def test_a_partition_that_stopped_is_tried_again_later_or_when_something_changes(rig: Rig) -> None:
    rig.round(10, 20, error="too large", stopped=True)
    resting = rig.link.orders()
    rig.link.wake()
    assert (all(order.last for order in resting), sources(rig.link.orders())) == (True, [ZERO, ONE])


def test_an_error_of_a_lease_is_that_of_its_partitions(rig: Rig) -> None:
    orders = rig.link.orders()
    rig.link.take([LeaseResult([], Retry("a broker", "none", "wait")) for _ in orders])
    assert ({bool(c.error) for c in rig.link.copies.values()}, LinkStatus(rig.link).state(NOW)[0]) == (
        {True},
        LinkState.SLOW,
    )


def test_a_refused_lease_stops_its_partitions(rig: Rig) -> None:
    orders = rig.link.orders()
    rig.link.take([LeaseResult([], Stop("two clusters", "one", "correct it")) for _ in orders])
    assert LinkStatus(rig.link).state(NOW)[0] is LinkState.STOPPED


def test_a_reset_holds_though_a_lease_ends_after_it(rig: Rig) -> None:
    rig.round(10, 20)
    orders = rig.link.orders()
    rig.link.reset({ONE: 3}, "3")
    rig.link.take([result(o, (30, 40)) for o in orders])
    held = {a.source: a.position for order in rig.link.orders() for a in order.lease.assignments}
    assert held == {ZERO: Position(30, {"count": 30}), ONE: Position(3, chosen=True)}


def test_a_reset_outlives_the_application(rig: Rig) -> None:
    rig.round(10, 20)
    rig.link.reset({ONE: 3}, "3")
    copy = rig.restarted().copies[ONE]
    assert (copy.position, copy.reset) == (Position(3, chosen=True), "3")


def test_what_the_target_has_is_on_the_journal_before_a_chosen_position_is_copied(rig: Rig) -> None:
    rig.round(10, 20)
    rig.link.reset({ONE: 3}, "3")
    first = [(order.lease_s, order.lingers) for order in rig.round(10, 3)]
    assert (set(first), {order.lease_s > 0 for order in rig.link.orders()}) == ({(0.0, False)}, {True})


def test_a_chosen_position_whose_target_does_not_answer_does_not_hold_up_the_others(rig: Rig) -> None:
    rig.round(10, 20)
    rig.link.reset({ONE: 3}, "3")
    rig.link.take(
        [
            LeaseResult(
                [Report("a", 1, [Progress(a.source, a.target, a.position) for a in order.lease.assignments])], None
            )
            for order in rig.link.orders()
        ]
    )
    assert [(sources([order]), order.lease_s > 0) for order in rig.link.orders()] == [([ZERO], True)]


def test_no_copier_goes_on_after_a_reset(rig: Rig) -> None:
    before = rig.round(10, 20)
    rig.link.reset({ONE: 3}, "3")
    assert before[0].term != rig.link.orders()[0].term


def test_only_what_is_copied_can_be_reset(rig: Rig) -> None:
    with pytest.raises(Refused):
        rig.link.reset({LogId("pays", 0): 3}, "3")


def test_another_path_is_taken_when_the_last_one_is_closed(rig: Rig) -> None:
    rig.round(10, 20)
    rig.link.update(choice=PathChoice("records", "small batches"))
    closing = rig.round(11, 21)
    taken = rig.link.orders()
    place = taken[0].lease.assignments[0].position
    assert ([o.last for o in closing], taken[0].lease.path, place) == (
        [True, True],
        "records",
        Position(11, {}, chosen=True),
    )


def test_the_last_path_is_closed_at_the_positions_that_were_reported(rig: Rig) -> None:
    rig.round(30, 40)
    rig.link.update(choice=PathChoice("records", "small batches"))
    assert [e.position.offset for order in rig.link.orders() for e in order.lease.assignments] == [30, 40]


def test_a_path_that_is_used_again_has_its_resume_state(rig: Rig) -> None:
    for path, offset in (("batches", 10), ("records", 11), ("batches", 12)):
        rig.link.update(choice=PathChoice(path, ""))
        while rig.round(offset, offset)[0].lease.path != path:
            pass
        rig.round(offset, offset)
    assert rig.link.copies[ZERO].resume_states.keys() == {"batches", "records"}


def test_after_a_crash_the_old_path_closes_before_another_is_taken(rig: Rig) -> None:
    rig.round(10, 20)
    link = rig.link = rig.restarted()
    link.update(choice=PathChoice("records", "small batches"))
    assert [rig.round(11, 21)[0].lease.path for _ in range(3)] == ["batches", "batches", "records"]


def test_a_target_that_was_moved_begins_anew(rig: Rig) -> None:
    rig.round(10, 20)
    copy = rig.link.copies[ONE]
    copy.moved(LogId("other", 1))
    assert (copy.position, len(copy.map), copy.offset) == (Position(), 0, 0)


def left(rig: Rig) -> dict[LogId, int]:
    return {source: row.left for source, row in LinkStatus(rig.link).rows(rig.now).items()}


def test_lag_counts_partitions_that_nothing_copies_yet() -> None:
    assert left(Rig(mode="observe")) == {ZERO: 100, ONE: 100}


def test_a_paused_link_falls_behind_what_the_source_has_now(rig: Rig) -> None:
    rig.round(10, 20, source_end=20)
    running = left(rig)[ONE]
    rig.set("paused", True)
    assert (running, left(rig)[ONE]) == (0, 80)


def test_a_topic_that_left_the_link_is_not_counted(rig: Rig) -> None:
    rig.round(10, 20)
    rig.set("topics", ["pays"])
    rig.link.update(facts=facts(0, 0))
    assert (left(rig), rig.link.current()) == ({LogId("pays", 0): -1}, [])


def remade(rig: Rig, ids: tuple[str, str], end: int) -> LinkFacts:
    """Both clusters with these topic ids and this end offset of every target partition."""
    source, target, at_ms = facts()
    return LinkFacts(
        source._replace(ids={"orders": ids[0]}),
        target._replace(ids={"orders": ids[1]}, logs={LogId("orders", n): (0, end) for n in range(2)}),
        at_ms,
    )


def found(rig: Rig, link: Link) -> list[str]:
    """Anomalies of partition 1 over two observations."""
    now = look(link.copies[ONE], link.snapshot.facts)
    return [anomaly.rule for anomaly in anomalies(now, now)]


@pytest.mark.parametrize(("old", "new"), [(("s", "t"), ("s", "u")), (("", ""), ("", ""))], ids=["ids", "no ids"])
def test_a_reset_frees_a_partition_whose_target_was_made_anew(
    rig: Rig, old: tuple[str, str], new: tuple[str, str]
) -> None:
    rig.link.update(facts=remade(rig, old, 100))
    orders = rig.link.orders()
    rig.link.update(facts=remade(rig, new, 0))
    rig.link.reset({ONE: 0}, "earliest")
    # The running lease acknowledges records that were written to the deleted log.
    late = [done(o, a.source, (10, 20)) for o in orders for a in o.lease.assignments]
    rig.link.take(
        [LeaseResult([Report("a", 1, [row for row in late if row.source in sources([o])])], None) for o in orders]
    )
    again = rig.restarted()
    again.facts = rig.link.snapshot.facts
    assert (found(rig, rig.link), found(rig, again), rig.link.copies[ONE].stopped) == ([], [], False)


def test_a_reset_forgets_where_records_of_a_former_source_stand(rig: Rig) -> None:
    rig.link.update(facts=remade(rig, ("s", "t"), 100))
    rig.round(10, 20)
    rig.link.update(facts=remade(rig, ("other", "t"), 100))
    rig.link.reset({ONE: 0}, "earliest")
    assert len(rig.link.copies[ONE].map) == 0


def test_a_reset_keeps_the_map_of_a_target_that_has_everything(rig: Rig) -> None:
    rig.link.update(facts=remade(rig, ("s", "t"), 100))
    rig.round(10, 20)
    rig.link.reset({ONE: 30}, "30")
    assert list(rig.link.copies[ONE].map) == [(0, 0, 20)]


def test_a_reset_needs_both_clusters(rig: Rig) -> None:
    rig.round(10, 20)
    rig.link.update(facts=LinkFacts(rig.link.snapshot.facts.source, ClusterSnapshot(problem="no answer"), NOW))
    with pytest.raises(Refused, match="both clusters"):
        rig.link.reset({ONE: 0}, "earliest")


def test_a_lease_is_for_the_topics_that_were_seen(rig: Rig) -> None:
    rig.link.update(facts=remade(rig, ("s", "t"), 0))
    assert {(a.source_id, a.target_id) for o in rig.link.orders() for a in o.lease.assignments} == {("s", "t")}


def test_a_round_that_ended_is_reported(rig: Rig) -> None:
    rig.round(10, 20)
    assert rig.ended == 1


def test_what_was_copied_is_counted(rig: Rig) -> None:
    rig.round(10, 20)
    assert (rig.link.totals["copied"], sum(p.copied for p in rig.counted)) == (30, 30)


@pytest.mark.parametrize(
    ("keys", "state"),
    [({"mode": "observe"}, LinkState.OBSERVING), ({"paused": True}, LinkState.PAUSED), ({}, LinkState.UP)],
)
def test_the_state_is_derived(keys: dict[str, object], state: LinkState) -> None:
    rig = Rig(**keys)
    rig.link.update(arrived_ms=NOW)
    rig.round(100, 100)
    assert LinkStatus(rig.link).state(NOW)[0] is state


def state_and_reason(rig: Rig, later_ms: int = 0) -> tuple[LinkState, str]:
    """State and first reason of a link with current heartbeats, this long after its first observation."""
    status = LinkStatus(rig.link, unreadable=lambda: {"secret": "no right to read it"})
    status.observe(rig.now)
    rig.now += later_ms
    rig.link.update(arrived_ms=rig.now)
    state, reasons = status.state(rig.now)
    return state, reasons[0].text if reasons else ""


def test_a_link_that_no_task_has_copied_is_not_up(rig: Rig) -> None:
    assert [state_and_reason(rig, later_ms)[0] for later_ms in (0, 31_000, 121_000)] == [
        LinkState.STARTING,
        LinkState.SLOW,
        LinkState.STALLED,
    ]


def test_after_a_restart_a_link_is_not_up_before_a_task_reports(rig: Rig) -> None:
    rig.round(100, 100)
    rig.link = rig.restarted()
    assert state_and_reason(rig) == (
        LinkState.STARTING,
        "2 of 2 partitions are not copied yet; orders-0: no task has reported yet",
    )


def test_a_topic_that_waits_for_approval_is_named(rig: Rig) -> None:
    rig.round(10, 20)
    rig.link.update(waiting={"orders": TargetHold("retention.ms 1 > 2", approval=True)})
    assert state_and_reason(rig, 1_000_000) == (
        LinkState.WAITING,
        "2 of 2 partitions wait for `trueup approve`; orders-0: retention.ms 1 > 2",
    )


def test_a_topic_that_the_target_refuses_stops_the_link(rig: Rig) -> None:
    rig.link.update(waiting={"orders": TargetHold("refused: it does not exist; no right", stopped=True)})
    assert state_and_reason(rig)[0] is LinkState.STOPPED


def test_why_clusters_cannot_be_compared_is_reported_at_once(rig: Rig) -> None:
    rig.link.update(compared=frozenset(), unfit="expected a right; found none")
    assert state_and_reason(rig)[1].endswith("orders-0: expected a right; found none")


@pytest.mark.parametrize(
    "sides",
    [
        (ClusterSnapshot({"secret": ()}), ClusterSnapshot()),
        (ClusterSnapshot({"secret": [LogId("secret", 0)]}), ClusterSnapshot({"secret": ()})),
    ],
)
def test_a_topic_that_cannot_be_read_stops_the_link(sides: tuple[ClusterSnapshot, ClusterSnapshot]) -> None:
    rig = Rig(topics=["secret"])
    rig.link.update(facts=LinkFacts(*sides, NOW))
    assert state_and_reason(rig) == (
        LinkState.STOPPED,
        "1 of 1 partition needs an operator; secret-0: no right to read it",
    )


def test_a_backfill_that_runs_is_not_late_however_old_its_records_are(rig: Rig) -> None:
    status = LinkStatus(rig.link)
    for offset in range(10, 60, 10):
        rig.round(offset, offset, lag_ms=295_350_052_000, source_end=100)
        rig.now += 40_000
        rig.link.taken_ms = rig.now
        rig.link.update(arrived_ms=rig.now)
        status.observe(rig.now)
    assert status.state(rig.now)[0] is LinkState.CATCHING_UP


def test_a_copier_that_reports_and_does_not_move_is_not_up(rig: Rig) -> None:
    status = LinkStatus(rig.link)
    rig.round(10, 20, source_end=100)
    status.observe(rig.now)
    for _ in range(5):
        rig.now += 10_000
        rig.link.update(arrived_ms=rig.now)
        rig.round(10, 20, source_end=100)
    assert status.state(rig.now) == (
        LinkState.SLOW,
        [
            ("replication.slow", "no record of orders-0 was copied for 50 s, 90 wait"),
            ("replication.catching-up", "2 of 2 partitions copy existing records; 170 left"),
        ],
    )


def test_the_age_of_what_a_stopped_partition_has_not_copied_grows(rig: Rig) -> None:
    rig.round(10, 20, stopped=True, error="too large", lag_ms=5_000, source_end=100)
    status = LinkStatus(rig.link)
    ages = [status.rows(NOW + later_ms)[ZERO].lag_ms for later_ms in (0, 60_000)]
    assert ages == [5_000, 65_000]


def test_a_paused_topic_that_needs_an_operator_shows_that(rig: Rig) -> None:
    rig.round(10, 20, stopped=True, error="too large")
    rig.set("paused_topics", ["orders"])
    rows = LinkStatus(rig.link).rows(NOW)
    assert [row.stage for row in rows.values()] == [PartitionStage.STOPPED] * 2


def test_a_topic_that_the_source_has_no_longer_is_gone(rig: Rig) -> None:
    rig.round(10, 20)
    rig.link.update(facts=facts(0, 2)._replace(source=ClusterSnapshot({})))
    assert {row.stage for row in LinkStatus(rig.link).rows(NOW).values()} == {PartitionStage.GONE}


@pytest.mark.parametrize("topics", [{}, {"orders": ()}], ids=["gone", "not readable"])
def test_the_lag_of_a_topic_that_cannot_be_read_is_unknown_at_once(
    rig: Rig, topics: dict[str, tuple[LogId, ...]]
) -> None:
    rig.round(10, 20, source_end=10)
    rig.link.update(facts=facts()._replace(source=ClusterSnapshot(topics)))
    assert {row.left for row in LinkStatus(rig.link).rows(NOW).values()} == {-1}
