"""Decisions about the directories of a broker: moves, cordons, and no action."""

from dataclasses import replace

import pytest

from trueup.state.logdirs.lifecycle import MoveStage, Relocation
from trueup.state.logdirs.model import Broker, LogDir, Row, replicas
from trueup.state.logdirs.settings import LogDirsSettings, within
from trueup.state.logdirs.verdicts import Decision, OwnChanges, decide

GB = 1 << 30
NIGHT = ["22:00-06:00"]
POLICY = LogDirsSettings(mode="enforce", headroom_bytes=0, band=0.0)
SMALL, LARGE = LogDir("/small", 100 * GB, 10 * GB), LogDir("/large", 300 * GB, 280 * GB)
ROWS: tuple[Row, ...] = tuple(("t", n, 0, 10 * GB, 0, False) for n in range(8))
NOTHING = OwnChanges()
UNEVEN = Broker(1, (SMALL, LARGE), replicas(ROWS))


def at(clock: str) -> int:
    hours, minutes = clock.split(":")
    return (int(hours) * 60 + int(minutes)) * 60_000


def decided(
    broker: Broker = UNEVEN,
    ours: OwnChanges = NOTHING,
    now: str = "12:00",
    throttled: int | None = None,
    **policy: object,
) -> Decision:
    return decide(broker, replace(POLICY, **policy), ours, at(now), throttled)  # type: ignore[arg-type]


def test_new_partitions_are_kept_out_of_the_fuller_directory() -> None:
    assert decided().cordon == frozenset({"/small"})


def test_the_last_directory_is_never_cordoned() -> None:
    assert decided(Broker(1, (SMALL,), replicas(ROWS))).cordon is None


def test_strategy_partition_leaves_new_partitions_to_the_broker() -> None:
    assert decided(strategy="partition").cordon is None


def test_strategy_partition_takes_our_cordons_back() -> None:
    shut = Broker(1, (SMALL._replace(cordoned=True), LARGE), replicas(ROWS))
    assert decided(shut, OwnChanges(frozenset({"/small"})), strategy="partition").cordon == frozenset()


def test_a_cordon_of_others_stays() -> None:
    third = LogDir("/third", 300 * GB, 290 * GB, cordoned=True)
    assert decided(Broker(1, (SMALL, LARGE, third), replicas(ROWS))).cordon == frozenset({"/small", "/third"})


def test_nothing_is_moved_to_what_others_cordoned() -> None:
    shut = Broker(1, (SMALL, LARGE._replace(cordoned=True)), replicas(ROWS))
    assert decided(shut).moves == ()


def test_a_directory_that_we_cordoned_is_opened_for_a_move() -> None:
    dirs = (SMALL, LARGE._replace(cordoned=True), LogDir("/huge", 900 * GB, 300 * GB))
    found = decided(Broker(1, dirs, replicas(ROWS)), OwnChanges(frozenset({"/large"})))
    assert {move.target for move in found.moves} & (found.cordon or frozenset()) == set()


def test_a_move_waits_until_its_target_is_open() -> None:
    dirs = (SMALL, LARGE._replace(cordoned=True))
    found = decided(Broker(1, dirs, replicas(ROWS)), OwnChanges(frozenset({"/large"})))
    assert (bool(found.moves), found.start) == (True, ())


def test_the_plan_reaches_the_target() -> None:
    assert decided().after <= POLICY.target_skew


def test_one_move_starts_and_the_throttle_comes_first() -> None:
    found = decided()
    assert (len(found.start), found.throttle) == (1, POLICY.throttle_bytes_per_s)


def test_our_throttle_goes_with_the_last_move() -> None:
    even = Broker(1, (LARGE, LARGE._replace(path="/other")), replicas(()))
    assert decided(even, OwnChanges(throttles=frozenset({7}))).throttle is None


def test_a_throttle_of_others_is_left_alone() -> None:
    even = Broker(1, (LARGE, LARGE._replace(path="/other")), replicas(()))
    assert decided(even, OwnChanges()).throttle == 0


def test_paused_starts_nothing() -> None:
    assert decided(paused=True).start == ()


def test_moves_start_within_the_window_alone() -> None:
    assert (decided(windows=NIGHT).start, len(decided(windows=NIGHT, now="23:00").start)) == ((), 1)


@pytest.mark.parametrize(("now", "inside"), [("21:59", False), ("22:00", True), ("05:59", True), ("06:00", False)])
def test_a_window_may_pass_midnight(now: str, inside: bool) -> None:
    assert within(NIGHT, at(now)) is inside


def test_without_sizes_nothing_is_moved_and_the_reason_is_given() -> None:
    blind = Broker(1, (LogDir("/a"), LogDir("/b")), replicas(ROWS))
    found = decided(blind)
    assert (found.strategy, found.cordon, found.moves, "not report" in found.reason) == ("partition", None, (), True)


def test_while_a_directory_is_offline_nothing_is_moved_and_the_reason_is_given() -> None:
    broken = Broker(1, (SMALL, LARGE, LogDir("/dead", online=False)), replicas(ROWS))
    found = decided(broken)
    assert (found.moves, found.start, found.rule, "/dead" in found.reason) == ((), (), "logdirs.offline", True)


def test_a_broker_without_cordons_falls_back_and_its_moves_go_on() -> None:
    found = decided(replace(UNEVEN, cordons=False))
    assert (found.strategy, found.cordon, bool(found.start)) == ("partition", None, True)


def test_observe_decides_and_starts_nothing() -> None:
    found = decided(mode="observe")
    assert (bool(found.moves), found.start, found.cordon, found.throttle) == (True, (), None, 0)


def test_a_limit_that_is_set_already_is_not_set_again() -> None:
    limit = POLICY.throttle_bytes_per_s
    assert decided(ours=OwnChanges(throttles=frozenset({limit})), throttled=limit).throttle == 0


def test_a_limit_that_we_were_about_to_change_is_ours_under_both_values() -> None:
    ours = OwnChanges(throttles=frozenset({5, 9}))
    assert [decided(ours=ours, throttled=now).throttle for now in (5, 9)] == [POLICY.throttle_bytes_per_s] * 2


def copying(usable: int, further_ms: int = 0) -> tuple[Broker, OwnChanges]:
    """Our move in progress, to a directory that other data also uses."""
    rows: tuple[Row, ...] = (*ROWS, ("t", 0, 1, GB, 9, True))
    move = Relocation("t", 0, "/small", "/large", 10 * GB, MoveStage.COPYING, further_ms=further_ms)
    return Broker(1, (SMALL, LARGE._replace(usable=usable)), replicas(rows)), OwnChanges(moves=(move,))


@pytest.mark.parametrize(("usable", "cancelled"), [(50 * GB, 0), (10 * GB, 1)])
def test_a_move_whose_target_fills_up_is_cancelled(usable: int, cancelled: int) -> None:
    assert len(decided(*copying(usable), now="00:05").cancel) == cancelled


def test_a_move_that_stands_still_is_cancelled() -> None:
    broker, ours = copying(280 * GB, further_ms=1)
    assert [len(decided(broker, ours, now=now).cancel) for now in ("00:10", "00:11")] == [0, 1]


@pytest.mark.parametrize("stage", [MoveStage.COPYING, MoveStage.LEAVING])
def test_the_source_of_a_move_to_cancel_is_opened(stage: MoveStage) -> None:
    broker, ours = copying(10 * GB)
    broker = replace(broker, dirs=(SMALL._replace(cordoned=True), broker.dirs[1], LogDir("/huge", 900 * GB, 800 * GB)))
    ours = ours._replace(cordoned=frozenset({"/small"}), moves=(replace(ours.moves[0], stage=stage),))
    found = decided(broker, ours, now="00:05")
    assert (len(found.cancel), found.cordon) == (1, frozenset({"/large"}))


def test_the_source_of_a_move_stays_closed_while_its_target_is_offline() -> None:
    broker, ours = copying(10 * GB)
    offline = broker.dirs[1]._replace(online=False)
    broker = replace(broker, dirs=(SMALL._replace(cordoned=True), offline, LogDir("/huge", 900 * GB, 800 * GB)))
    ours = ours._replace(cordoned=frozenset({"/small"}), moves=(replace(ours.moves[0], stage=MoveStage.LEAVING),))
    found = decided(broker, ours, now="00:05")
    assert (len(found.cancel), "/small" in found.steer) == (1, True)


def test_a_forgotten_move_is_approved_still() -> None:
    first = decided().moves[0]
    known = Relocation("t", first.partition, first.source, first.target, first.bytes, MoveStage.FORGOTTEN)
    assert decided(ours=OwnChanges(moves=(known,)), mode="approve").start == (first,)
