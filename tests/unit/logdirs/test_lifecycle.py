"""State transitions of a move, and their dependence on broker responses."""

from dataclasses import replace

import pytest

from trueup.state.common.errors import Refused
from trueup.state.common.lifecycle import diagram
from trueup.state.logdirs.lifecycle import (
    ENDS,
    FREED_MS,
    REST_MS,
    TRANSITIONS,
    MoveEvent,
    MoveStage,
    Relocation,
    advance,
    follow,
)
from trueup.state.logdirs.model import Broker, LogDir, Row, replicas, skew

GB = 1 << 30
HERE: Row = ("t", 0, 0, 20 * GB, 0, False)
THERE: Row = ("t", 0, 1, 20 * GB, 0, False)
COPY: Row = ("t", 0, 1, GB, 9, True)
ELSEWHERE: Row = ("t", 0, 2, GB, 9, True)
DIRS = (LogDir("/a", 100 * GB, 60 * GB), LogDir("/b", 100 * GB, 99 * GB), LogDir("/c", 90 * GB, 90 * GB))
MOVE = Relocation("t", 0, "/a", "/b", 20 * GB, MoveStage.ORDERED, beside=20 * GB)


def broker(*rows: Row, **more: object) -> Broker:
    return replace(Broker(1, DIRS, replicas(rows)), **more)  # type: ignore[arg-type]


def stage(move: Relocation, found: Broker, now_ms: int = 1) -> MoveStage:
    return follow([move], found, now_ms)[0][0].stage


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ((HERE,), MoveStage.FORGOTTEN),
        ((HERE, COPY), MoveStage.COPYING),
        ((THERE,), MoveStage.ARRIVED),
        ((HERE, ELSEWHERE), MoveStage.DROPPED),
        ((("u", 0, 0, 1, 0, False),), MoveStage.DROPPED),
    ],
)
def test_an_order_has_the_state_that_the_broker_reports(rows: tuple[Row, ...], wanted: MoveStage) -> None:
    assert stage(MOVE, broker(*rows)) is wanted


def test_a_copy_that_vanished_was_forgotten() -> None:
    assert stage(replace(MOVE, stage=MoveStage.COPYING), broker(HERE)) is MoveStage.FORGOTTEN


def test_what_is_taken_back_is_cancelled_once_nothing_is_under_way() -> None:
    leaving = replace(MOVE, stage=MoveStage.LEAVING)
    assert (stage(leaving, broker(HERE, COPY)), stage(leaving, broker(HERE))) == (
        MoveStage.LEAVING,
        MoveStage.CANCELLED,
    )


def test_an_offline_directory_proves_nothing() -> None:
    assert stage(MOVE, broker(HERE, dirs=(*DIRS[:2], DIRS[2]._replace(online=False)))) is MoveStage.ORDERED


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ((THERE,), MoveStage.ARRIVED),
        ((HERE, COPY), MoveStage.COPYING),
        ((("t", 0, 2, GB, 0, False),), MoveStage.DROPPED),
    ],
)
def test_what_a_broker_reports_counts_while_another_directory_is_offline(
    rows: tuple[Row, ...], wanted: MoveStage
) -> None:
    offline = LogDir("/d", online=False)
    assert stage(MOVE, broker(*rows, dirs=(*DIRS, offline))) is wanted


def test_a_refused_move_rests() -> None:
    refused = replace(MOVE, stage=MoveStage.REFUSED)
    assert (stage(refused, broker(HERE), REST_MS), stage(refused, broker(HERE), REST_MS + 1)) == (
        MoveStage.REFUSED,
        MoveStage.DROPPED,
    )


def test_what_it_left_behind_counts_until_it_is_deleted() -> None:
    arrived = replace(MOVE, stage=MoveStage.ARRIVED)
    assert follow([arrived], broker(THERE), 1) == ((arrived,), (20 * GB, 0, 0))
    freed = broker(THERE, dirs=(DIRS[0]._replace(usable=80 * GB), *DIRS[1:]))
    assert (stage(arrived, freed), follow([arrived], freed, 1)[1]) == (MoveStage.DONE, (0, 0, 0))


def test_equal_disks_that_counted_as_one_volume_have_nothing_left_to_delete() -> None:
    arrived = replace(MOVE, stage=MoveStage.ARRIVED, beside=-20 * GB, shared=2)
    used = (DIRS[0]._replace(usable=97 * GB), *DIRS[1:])
    assert follow([arrived], broker(THERE, dirs=used), 1)[1] == (0, 0, 0)


def test_an_arrival_is_reported_although_the_source_is_deleted_at_once() -> None:
    freed = broker(THERE, dirs=(DIRS[0]._replace(usable=80 * GB), *DIRS[1:]))
    arrived = follow([MOVE], freed, 1)[0][0]
    assert (arrived.stage, stage(arrived, freed)) == (MoveStage.ARRIVED, MoveStage.DONE)


def test_of_two_that_arrived_the_first_is_deleted_first() -> None:
    first, later = (
        replace(MOVE, stage=MoveStage.ARRIVED, at_ms=1),
        replace(MOVE, partition=1, stage=MoveStage.ARRIVED, at_ms=2),
    )
    moves, left = follow([first, later], broker(THERE), 3)
    assert ([move.stage for move in moves], left) == ([MoveStage.DONE, MoveStage.ARRIVED], (20 * GB, 0, 0))


def test_what_is_being_deleted_is_no_skew() -> None:
    dirs = (LogDir("/a", 100 * GB, 60 * GB), LogDir("/b", 101 * GB, 81 * GB))
    found = Broker(1, dirs, replicas((THERE,)))
    assert skew(found) > 0.2 > skew(replace(found, freeing=(20 * GB, 0)))


def test_waiting_for_a_deletion_has_a_limit() -> None:
    assert stage(replace(MOVE, stage=MoveStage.ARRIVED), broker(THERE), FREED_MS + 1) is MoveStage.DONE


def test_an_event_that_the_table_does_not_know_is_refused() -> None:
    with pytest.raises(Refused, match="an event permitted in stage arrived"):
        advance(replace(MOVE, stage=MoveStage.ARRIVED), MoveEvent.ORDER, 1)


def test_every_stage_is_reached_and_left() -> None:
    reached, left = set(TRANSITIONS.values()), {before for before, _ in TRANSITIONS}
    assert (set(MoveStage) - reached, set(MoveStage) - left) == ({MoveStage.PLANNED}, set(ENDS))


def test_the_diagram_has_every_step() -> None:
    assert diagram(TRANSITIONS, ENDS).count(" --> ") == 1 + len(TRANSITIONS) + len(ENDS)


def test_a_copy_that_comes_further_is_noted() -> None:
    begun = follow([MOVE], broker(HERE, COPY), 1)[0][0]
    later = follow([begun], broker(HERE, COPY), 2)[0][0]
    further = follow([later], broker(HERE, ("t", 0, 1, 2 * GB, 9, True)), 3)[0][0]
    assert [(m.copied // GB, m.further_ms) for m in (begun, later, further)] == [(1, 1), (1, 1), (2, 3)]
