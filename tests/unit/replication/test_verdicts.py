"""The state of a link is derived from the progress of its partitions."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.connectors.replication.heartbeat import HeartbeatState
from trueup.state.common.errors import Stop
from trueup.state.replication.rules import LINK_RULES
from trueup.state.replication.verdicts import (
    MEANINGS,
    STAGES,
    LinkObservations,
    LinkState,
    PartitionObservation,
    PartitionStage,
    stage_of,
    state_of,
)
from trueup.state.replication.waits import Wait
from trueup.streams.replication.links.monitor import LinkMonitor
from trueup.streams.replication.links.status import beat_error
from trueup.streams.replication.report import remedies

NOW = 1_000_000
WELL = LinkObservations(
    parts=[PartitionObservation("orders-0"), PartitionObservation("orders-1", left=5)],
    arrived_ms=NOW - 1_000,
    reported_ms=NOW - 10,
    since_ms=1,
)


def state(**changes) -> LinkState:
    return state_of(replace(WELL, **changes), NOW)[0]


def rules(**changes) -> list[str]:
    return [reason.rule for reason in state_of(replace(WELL, **changes), NOW)[1]]


def test_a_link_is_up_when_all_its_parts_are():
    assert state_of(WELL, NOW) == (LinkState.UP, [])


def test_one_stopped_partition_stops_the_link_from_being_up():
    parts = [*WELL.parts, PartitionObservation("orders-2", "too large", stopped=True)]
    found, (reason,) = state_of(replace(WELL, parts=parts), NOW)
    assert (found, reason.text) == (LinkState.STOPPED, "1 of 3 partitions needs an operator; orders-2: too large")


def test_a_partition_that_is_tried_again_makes_the_link_slow():
    assert state(parts=[PartitionObservation("orders-0", "no leader")]) is LinkState.SLOW


@pytest.mark.parametrize(("age_s", "found"), [(30, LinkState.UP), (31, LinkState.SLOW), (121, LinkState.STALLED)])
def test_a_link_whose_heartbeats_arrive_late_is_slow_then_stalled(age_s: int, found: LinkState):
    assert state(arrived_ms=NOW - age_s * 1_000) is found


def test_heartbeats_that_never_arrived_count_from_when_the_link_began():
    assert [state(arrived_ms=0, since_ms=NOW - ms) for ms in (1_000, 200_000)] == [LinkState.UP, LinkState.STALLED]


def test_tasks_that_do_not_report_stall_the_link():
    assert state(reported_ms=NOW - 200_000) is LinkState.STALLED


def test_a_record_that_waits_too_long_is_reported_with_its_partition():
    _, (reason,) = state_of(replace(WELL, parts=[PartitionObservation("orders-1", left=9, wait_ms=145_000)]), NOW)
    assert reason == ("replication.slow", "a record of orders-1 has waited for 145 s; the copy continues")


@pytest.mark.parametrize("others", [[], [PartitionObservation("bills-0")]])
def test_a_link_with_a_paused_topic_is_paused_and_not_slow(others: list[PartitionObservation]):
    parts = [*others, PartitionObservation("orders-1", idle_ms=NOW, left=900, paused=True)]
    assert (state(parts=parts), rules(parts=parts)) == (LinkState.PAUSED, ["replication.paused"])


def test_a_cluster_that_does_not_answer_takes_the_link_down():
    assert state(target="timed out", arrived_ms=1) is LinkState.DOWN


def test_the_gravest_reason_comes_first():
    assert rules(target="timed out", arrived_ms=1, refused="one cluster") == [
        "replication.down",
        "replication.refused",
        "replication.stalled",
    ]


@pytest.mark.parametrize("held", [{"paused": True}, {"observing": True}, {"paused": True, "observing": True}])
@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ({"source": "timed out"}, LinkState.DOWN),
        ({"refused": "one cluster"}, LinkState.STOPPED),
        ({"parts": [PartitionObservation("p", "recreated", stopped=True, paused=True)]}, LinkState.STOPPED),
        ({"parts": [PartitionObservation("p", gone=True, paused=True)]}, LinkState.WAITING),
        ({"parts": []}, LinkState.WAITING),
        ({"looked": False}, LinkState.STARTING),
    ],
)
def test_a_link_that_is_held_still_reports_problems(held: dict[str, bool], wrong: dict, found: LinkState):
    assert state(**held, **wrong) is found


def test_a_paused_link_in_observe_shows_the_pause():
    paused = [PartitionObservation("p", paused=True, observed=True)]
    assert (state(paused=True, observing=True, parts=paused), rules(paused=True, observing=True, parts=paused)) == (
        LinkState.PAUSED,
        ["replication.paused"],
    )


@given(
    st.builds(
        PartitionObservation,
        st.just("p"),
        st.sampled_from(["", "wrong"]),
        stopped=st.booleans(),
        approval=st.sampled_from(["", "a"]),
        begun=st.booleans(),
        paused=st.booleans(),
        observed=st.booleans(),
        gone=st.booleans(),
        unknown=st.sampled_from(["", "timed out"]),
        backlog=st.booleans(),
        left=st.just(0),
        idle_ms=st.just(0),
        wait_ms=st.just(0),
    )
)
def test_a_link_with_a_partition_that_is_not_copied_is_never_up(part: PartitionObservation):
    copying = stage_of(part) is PartitionStage.COPYING
    assert (state(parts=[PartitionObservation("q"), part]) is LinkState.UP) == copying
    assert copying == (
        part == PartitionObservation("p")
        or not any(
            (
                part.error,
                part.stopped,
                part.approval,
                not part.begun,
                part.paused,
                part.observed,
                part.gone,
                part.unknown,
                part.backlog,
            )
        )
    )


def test_only_copying_partitions_make_a_link_up():
    assert [stage for stage, row in STAGES.items() if row.state is LinkState.UP] == [PartitionStage.COPYING]


def test_observing_is_no_reason_to_be_late():
    assert state_of(replace(WELL, observing=True, arrived_ms=0, reported_ms=0), NOW) == (LinkState.OBSERVING, [])


@pytest.mark.parametrize(
    ("part", "stage"),
    [
        (PartitionObservation("p"), PartitionStage.COPYING),
        (PartitionObservation("p", "no leader"), PartitionStage.RETRYING),
        (PartitionObservation("p", "too large", stopped=True), PartitionStage.STOPPED),
        (PartitionObservation("p", "too large", stopped=True, paused=True), PartitionStage.STOPPED),
        (PartitionObservation("p", "no leader", paused=True), PartitionStage.PAUSED),
        (PartitionObservation("p", observed=True), PartitionStage.OBSERVED),
        (PartitionObservation("p", unknown="no end"), PartitionStage.UNKNOWN),
        (PartitionObservation("p", begun=False), PartitionStage.NEW),
        (PartitionObservation("p", approval="retention.ms 1 > 2", begun=False), PartitionStage.WAITING),
        (PartitionObservation("p", backlog=True), PartitionStage.CATCHING_UP),
        (PartitionObservation("p", stopped=True, gone=True), PartitionStage.GONE),
    ],
)
def test_the_stage_of_a_partition_follows_from_what_is_known(part: PartitionObservation, stage: PartitionStage):
    assert stage_of(part) is stage


def test_every_state_and_stage_is_explained():
    assert (set(MEANINGS), set(STAGES)) == (set(LinkState), set(PartitionStage))


@pytest.mark.parametrize(
    ("part", "found"),
    [
        (PartitionObservation("p", "no task has reported yet", begun=False), LinkState.STARTING),
        (PartitionObservation("p", "no task has reported yet", begun=False, idle_ms=31_000), LinkState.SLOW),
        (PartitionObservation("p", "no task has reported yet", begun=False, idle_ms=121_000), LinkState.STALLED),
        (PartitionObservation("p", approval="the topic is missing", begun=False, idle_ms=NOW), LinkState.WAITING),
        (PartitionObservation("p", backlog=True, left=9, wait_ms=NOW), LinkState.CATCHING_UP),
        (PartitionObservation("p", left=9, wait_ms=NOW), LinkState.SLOW),
        (PartitionObservation("p", backlog=True, left=9, idle_ms=121_000), LinkState.STALLED),
        (PartitionObservation("p", gone=True), LinkState.WAITING),
        (PartitionObservation("p", unknown="no end", left=-1), LinkState.SLOW),
        (PartitionObservation("p", unknown="no end", left=-1, idle_ms=121_000), LinkState.STALLED),
    ],
)
def test_records_that_should_move_and_do_not_are_never_up(part: PartitionObservation, found: LinkState):
    assert state(parts=[PartitionObservation("q"), part]) is found


def test_a_link_whose_source_shows_no_topic_is_not_up():
    assert (state(parts=[]), rules(parts=[])) == (LinkState.WAITING, ["replication.no-topics"])


def test_clusters_that_were_not_asked_yet_are_not_down():
    assert state(looked=False, source="not observed yet") is LinkState.STARTING


def test_tasks_are_not_expected_to_report_where_nothing_may_move():
    assert state(parts=[PartitionObservation("p", approval="retention.ms 1 > 2")], reported_ms=1) is LinkState.WAITING


def test_a_link_that_goes_on_after_a_pause_is_not_late_for_the_pause():
    assert state(reported_ms=1, arrived_ms=1, since_ms=NOW - 1_000) is LinkState.UP


@pytest.mark.parametrize(("target", "found"), [("", LinkState.SLOW), ("timed out", LinkState.DOWN)])
def test_failing_alignment_is_reported_unless_a_cluster_is_down(target: str, found: LinkState):
    result = [reason.rule for reason in state_of(replace(WELL, target=target, failing=["groups: no right"]), NOW)[1]]
    assert (state(target=target, failing=["groups: no right"]), len(result)) == (found, 1)


def test_an_error_of_heartbeats_is_reported_with_their_absence():
    _, (reason,) = state_of(
        replace(WELL, arrived_ms=0, since_ms=NOW - 31_000, reported_ms=NOW, beat_error="no right"), NOW
    )
    assert reason.text == "no heartbeat has arrived for 31 s: no right"


def test_errors_of_both_ends_of_heartbeats_are_reported():
    assert (
        beat_error(HeartbeatState(source_error="no right", target_error="timed out"))
        == "source: no right; target: timed out"
    )


def test_an_applicable_rule_is_reported_once_with_its_remedy():
    (found,) = remedies(["replication.target-gone", "orders: no leader", "replication.target-gone"])
    assert found == {"rule": "replication.target-gone", "remedy": LINK_RULES[LINK_RULES.code(found["rule"])].remedy}


def wait(*seen: tuple[int, int, int], moving: bool = True) -> Wait:
    """A wait with these observations: offset, end of the source, time in s."""
    made = Wait(-1, 0)
    for offset, end, at_s in seen:
        made.observe(offset, end, moving, True, at_s * 1_000)
    return made


def test_a_wait_counts_from_when_the_record_was_first_observed():
    assert wait((5, 5, 0), (5, 8, 10), (7, 9, 20)).waited_ms(30_000) == 20_000


def test_nothing_waits_where_all_is_copied():
    assert wait((5, 5, 0), (5, 8, 10), (8, 8, 20)).waited_ms(30_000) == 0


def test_nothing_waits_beyond_the_end_of_a_log_that_was_recreated():
    made = wait((0, 9, 0), (5, 20, 10), (5, 3, 20), (0, 3, 30), (3, 3, 40))
    assert (made.waited_ms(50_000), made.backlog, made.moved_ms) == (0, False, 40_000)


def test_a_record_of_a_recreated_log_waits_from_its_own_first_observation():
    assert wait((5, 20, 0), (0, 3, 30)).waited_ms(50_000) == 20_000


def test_an_end_that_is_unknown_for_a_moment_ends_no_wait():
    made = wait((0, 20, 0), (5, 20, 10), (5, -1, 20))
    assert (made.waited_ms(50_000), made.backlog) == (50_000, True)


def test_what_was_there_when_the_copy_began_is_a_backlog_until_it_is_copied():
    assert [wait((0, 100, 0), (offset, 120, 10)).backlog for offset in (50, 100)] == [True, False]


@pytest.mark.parametrize(("offset", "idle_s"), [(0, 20), (1, 10)])
def test_only_progress_ends_idleness(offset: int, idle_s: int):
    assert 20_000 - wait((0, 100, 0), (offset, 200, 10)).moved_ms == idle_s * 1_000


def test_a_partition_that_no_task_copied_is_idle_though_it_is_empty():
    made = Wait(-1, 0)
    for at_ms in (0, 5_000):
        made.observe(0, 0, True, False, at_ms)
    assert made.moved_ms == 0


def test_idleness_counts_from_when_the_copy_may_go_on():
    made = wait((0, 100, 0), (0, 100, 50), moving=False)
    made.observe(0, 100, True, True, 60_000)
    assert made.moved_ms == 60_000


def test_ends_that_are_kept_stay_few():
    assert len(wait(*((0, end, end) for end in range(1, 1_000))).ends) <= 64


def test_the_state_of_a_link_reports_what_it_cannot_do():
    def refused() -> None:
        raise Stop("a right", "none", "give it")

    watch = SimpleNamespace(failing={})
    LinkMonitor._tried(watch, "groups", refused)
    during = dict(watch.failing)
    LinkMonitor._tried(watch, "groups", lambda: None)
    assert (list(during), watch.failing) == (["groups"], {})
