import pytest

from trueup.state.common.errors import Refused
from trueup.state.common.lifecycle import diagram
from trueup.state.placement.lifecycle import ENDS, TRANSITIONS, Repair, RepairEvent, RepairStage, advance, declined

WANTED = Repair(ledger=7, rule="placement.too-few-racks", version=3, since_ms=1_000)


def after(*events: RepairEvent) -> Repair:
    repair = WANTED
    for event in events:
        repair = advance(repair, event, 2_000)
    return repair


def test_a_repair_is_safe_only_when_it_heals():
    assert after(RepairEvent.ORDER, RepairEvent.APPEAR, RepairEvent.LOCK, RepairEvent.HEAL).stage is RepairStage.SAFE


def test_a_mark_that_vanished_proves_nothing():
    assert after(RepairEvent.ORDER, RepairEvent.APPEAR, RepairEvent.VANISH).stage is RepairStage.UNMARKED


def test_a_mark_that_stays_away_without_change_is_declined():
    assert (
        after(RepairEvent.ORDER, RepairEvent.APPEAR, RepairEvent.VANISH, RepairEvent.VANISH).stage
        is RepairStage.DECLINED
    )


def test_an_event_the_table_does_not_know_is_refused():
    with pytest.raises(Refused, match="stage planned"):
        advance(WANTED, RepairEvent.LOCK, 2_000)


def test_each_wait_after_a_decline_is_twice_the_one_before():
    once = declined(after(RepairEvent.ORDER), 10_000, 1_000)
    twice = declined(advance(once, RepairEvent.ORDER, 0), 20_000, 1_000)
    assert (once.next_ms, twice.next_ms) == (11_000, 22_000)


def test_a_wait_is_a_day_at_most():
    tired = after(RepairEvent.ORDER)._replace(attempts=99)
    assert declined(tired, 0, 60_000).next_ms == 86_400_000


def test_every_stage_that_is_not_an_end_can_reach_one():
    reach = set(ENDS)
    while more := {before for (before, _), then in TRANSITIONS.items() if then in reach} - reach:
        reach |= more
    assert reach == set(RepairStage)


def test_nothing_leaves_an_end():
    assert not [step for step in TRANSITIONS if step[0] in ENDS]


def test_the_diagram_has_every_step_of_the_table():
    assert diagram(TRANSITIONS, ENDS).count(" --> ") == len(TRANSITIONS) + len(ENDS) + 1
