from dataclasses import replace

import pytest

from trueup.state.bookkeeper.membership import MembershipPolicy, SettledTopology, settle
from trueup.state.bookkeeper.observations import Sighting
from trueup.state.bookkeeper.topology import Bookie, Status, Topology

POLICY = MembershipPolicy(grace_ms=1_000, hold_share=0.5)
ALL = ("b1", "b2", "b3", "b4")


def sight(bookie: str, registered: str = "writable", rack: str | None = "/r", cookie: bool = True, zxid: int = 1):
    return Sighting(bookie, rack, registered, cookie, zxid if registered else 0)


def seen(*away: str, readonly: tuple[str, ...] = (), names=ALL) -> list[Sighting]:
    return [sight(b, "" if b in away else "readonly" if b in readonly else "writable") for b in names]


def started(now_ms: int = 0, policy: MembershipPolicy = POLICY) -> Topology:
    return settle(seen(), None, policy, now_ms).topology


def started_with(*more: str) -> Topology:
    return settle(seen(names=(*ALL, *more)), None, POLICY, 0).topology


def run(
    *steps: tuple[int, list[Sighting]], policy: MembershipPolicy = POLICY, before: Topology | None = None
) -> SettledTopology:
    settled = SettledTopology(before or started(policy=policy), False, None, ())
    for now_ms, sightings in steps:
        settled = settle(sightings, settled.topology, policy, now_ms)
    return settled


def bookie(settled: SettledTopology, name: str = "b1") -> Bookie:
    return next(b for b in settled.topology.bookies if b.id == name)


def test_registered_bookies_live():
    first = settle(seen(readonly=("b2",)), None, POLICY, 7)
    assert [(b.status, b.since_ms) for b in first.topology.bookies[:2]] == [(Status.WRITABLE, 7), (Status.READONLY, 7)]


def test_the_policy_travels_with_the_topology():
    after = settle(seen(), None, MembershipPolicy(min_racks=3, enforce_min_racks=True), 0).topology
    assert (after.min_racks, after.enforce_min_racks) == (3, True)


@pytest.mark.parametrize("registered", ["writable", "readonly", ""])
def test_groups_hold_until_the_rack_map_answers(registered: str):
    grouped = [sight("b1")._replace(groups=("a",))]
    assert bookie(run((0, grouped), (1, [sight("b1", registered)]))).groups == ("a",)
    assert bookie(run((0, grouped), (1, [sight("b1", registered)._replace(groups=())]))).groups == ()


def test_a_registration_that_may_not_be_read_is_no_restart():
    before = started()
    after = run((5, [sight("b1", zxid=0), *seen(names=ALL[1:])]), before=before)
    assert (after.changed, after.topology) == (False, before)


def test_the_same_again_changes_nothing():
    before = started()
    settled = settle(seen(), before, POLICY, 99)
    assert settled.topology is before
    assert not settled.changed


def test_a_change_raises_the_epoch():
    assert run((5, seen("b1"))).topology.epoch > started().epoch


def test_the_first_epoch_is_above_those_of_a_topology_that_was_lost():
    lost = run((1_005, seen("b1")), (1_010, seen()), before=started(1_000)).topology
    assert started(1_020).epoch > lost.epoch


def test_the_epoch_after_an_old_topology_is_above_those_of_newer_ones_that_were_lost():
    old = started(1_000)
    lost = run((1_005, seen("b1")), (1_010, seen()), before=old).topology
    assert run((1_020, seen("b1")), before=old).topology.epoch > lost.epoch


def test_the_epoch_rises_when_the_clock_was_set_back():
    before = started(1_000)
    assert run((5, seen("b1")), before=before).topology.epoch > before.epoch


def test_a_change_of_policy_is_a_change():
    assert settle(seen(), started(), replace(POLICY, min_racks=3), 5).changed


def test_a_bookie_that_goes_is_pending_and_remembers_what_it_was():
    settled = run((3, seen(readonly=("b1",))), (5, seen("b1")))
    assert bookie(settled) == Bookie("b1", "/r", Status.PENDING, 5, 1, Status.READONLY, 1)


def test_the_end_of_the_grace_is_reported():
    assert run((5, seen("b1"))).next_ms == 1_005


def test_a_bookie_is_lost_when_the_grace_has_passed():
    settled = run((5, seen("b1")), (1_005, seen("b1")))
    assert (bookie(settled).status, bookie(settled).since_ms, settled.next_ms) == (Status.LOST, 1_005, None)


def test_a_bookie_is_not_lost_a_moment_earlier():
    assert bookie(run((5, seen("b1")), (1_004, seen("b1")))).status is Status.PENDING


def test_a_bookie_that_returns_in_time_was_never_lost():
    settled = run((5, seen("b1")), (1_004, seen()), (5_000, seen()))
    assert bookie(settled).status is Status.WRITABLE


def test_a_return_in_time_is_reported():
    assert run((5, seen("b1")), (905, seen())).notes == ("b1 is writable again after 900 ms and was never lost",)


def test_a_flapping_bookie_starts_its_grace_anew_each_time():
    settled = run((0, seen("b1")), (900, seen()), (1_000, seen("b1")), (1_900, seen("b1")))
    assert (bookie(settled).status, settled.next_ms) == (Status.PENDING, 2_000)


def test_a_lost_bookie_that_returns_is_registered():
    settled = run((0, seen("b1")), (1_000, seen("b1")), (9_000, seen()))
    assert (bookie(settled).status, bookie(settled).since_ms) == (Status.WRITABLE, 9_000)


def test_without_a_grace_a_bookie_is_lost_at_once():
    assert bookie(run((5, seen("b1")), policy=replace(POLICY, grace_ms=0))).status is Status.LOST


def test_a_shorter_grace_counts_for_those_that_are_away_already():
    before = run((5, seen("b1"))).topology
    assert bookie(settle(seen("b1"), before, replace(POLICY, grace_ms=10), 15)).status is Status.LOST


def test_a_clock_that_went_back_does_not_prolong_the_grace():
    settled = run((50_000, seen("b1")), (10, seen("b1")))
    assert settled.next_ms == 1_010


def test_a_cookie_that_never_registered_is_lost_after_the_grace():
    sightings = [*seen(), sight("b5", "", None)]
    settled = run((0, sightings), (1_000, sightings))
    assert bookie(settled, "b5").status is Status.LOST


def test_a_name_without_cookie_and_registration_is_lost_after_the_grace():
    sightings = [*seen(), sight("zz", "", None, cookie=False)]
    settled = run((0, sightings), (1_000, sightings))
    assert bookie(settled, "zz").status is Status.LOST


def test_a_decommissioned_bookie_stays_lost():
    rest = seen(names=ALL[1:])
    settled = run((0, rest), (1_000, rest), (900_000, rest))
    assert bookie(settled).status is Status.LOST


def test_a_bookie_that_is_away_keeps_its_rack_and_its_registration():
    settled = run((5, [sight("b1", "", None), *seen()[1:]]))
    assert (bookie(settled).rack, bookie(settled).registered_zxid) == ("/r", 1)


def test_a_new_rack_of_a_bookie_that_is_away_counts():
    assert bookie(run((5, [sight("b1", "", "/s"), *seen()[1:]]))).rack == "/s"


def test_a_bookie_that_lives_may_lose_its_rack():
    settled = run((5, [sight("b1", rack=None), *seen()[1:]]))
    assert bookie(settled).rack is None
    assert settled.changed


def test_a_restart_between_two_looks_is_seen():
    settled = run((5, [sight("b1", zxid=9), *seen()[1:]]))
    assert (bookie(settled).registered_zxid, settled.changed) == (9, True)
    assert settled.notes == ("b1 registered again",)


def test_half_of_the_bookies_is_not_too_many():
    assert run((5, seen("b1", "b2"))).topology.held == ""


def test_more_than_the_share_is_held():
    held = run((5, seen("b1", "b2", "b3"))).topology.held
    assert "3 of 4 bookies" in held
    assert "b1, b2, b3" in held
    assert "placement.release_hold" in held


def states(settled: SettledTopology) -> list[tuple[str, bool]]:
    return [(b.status.name.lower(), b.held) for b in settled.topology.bookies]


def test_bookies_are_lost_after_the_grace_while_their_loss_is_held():
    before = run((5, seen("b1", "b2", "b3")))
    settled = run((1_005, seen("b1", "b2", "b3")), before=before.topology)
    assert (states(before), before.next_ms) == ([("pending", True)] * 3 + [("writable", False)], 1_005)
    assert (states(settled), settled.next_ms) == ([("lost", True)] * 3 + [("writable", False)], None)
    assert settled.topology.held


def test_a_bookie_that_goes_later_belongs_to_the_hold():
    most, every = seen("b1", "b2", "b3"), seen(*ALL)
    settled = run((5, most), (1_005, most), (2_000, every), (3_000, every))
    assert states(settled) == [("lost", True)] * 4


def test_a_bookie_that_was_lost_before_is_not_held():
    settled = run((0, seen("b4")), (1_000, seen("b4")), (1_001, seen(*ALL)))
    assert states(settled) == [("pending", True)] * 3 + [("lost", False)]


def test_a_bookie_that_returns_from_a_hold_is_not_held():
    settled = run(
        (5, seen("b1", "b2", "b3", names=(*ALL, "b5"))),
        (1_005, seen("b1", "b2", "b3", names=(*ALL, "b5"))),
        (2_000, seen("b2", "b3", names=(*ALL, "b5"))),
        before=started_with("b5"),
    )
    assert states(settled)[0] == ("writable", False)


def test_one_bookie_is_never_too_many():
    before = settle(seen(names=("b1", "b2")), None, replace(POLICY, hold_share=0.1), 0).topology
    assert settle(seen("b1", names=("b1", "b2")), before, replace(POLICY, hold_share=0.1), 5).topology.held == ""


def test_a_hold_ends_when_enough_return():
    settled = run((5, seen("b1", "b2", "b3")), (90_000, seen("b1", "b2")))
    assert settled.topology.held == ""
    assert states(settled) == [("lost", False)] * 2 + [("writable", False)] * 2
    assert "the hold is over" in settled.notes


def test_an_operator_ends_a_hold_for_all_that_are_away():
    before = run((5, seen("b1", "b2", "b3"))).topology
    settled = settle(seen("b1", "b2", "b3"), before, replace(POLICY, release_hold=1), 6)
    assert (states(settled)[0], settled.topology.held) == (("lost", False), "")
    assert "the hold was released by an operator" in settled.notes


def test_an_earlier_release_does_not_end_a_later_hold():
    policy = replace(POLICY, release_hold=3)
    settled = run((5, seen("b1", "b2", "b3")), (6, seen("b1", "b2", "b3")), policy=policy)
    assert settled.topology.held


def test_a_hold_whose_start_was_forgotten_needs_a_new_release():
    before = replace(run((5, seen("b1", "b2", "b3"))).topology, released=-1)
    settled = settle(seen("b1", "b2", "b3"), before, replace(POLICY, release_hold=2), 6)
    assert (bool(settled.topology.held), settled.topology.released) == (True, 2)


def test_bookies_lost_long_ago_do_not_make_a_loss_look_small():
    lost = run((0, seen("b1", "b2")), (1_000, seen("b1", "b2"))).topology
    assert run((9_000, seen(*ALL)), before=lost).topology.held


def test_losses_one_after_the_other_are_not_held():
    first = run((0, seen("b1", "b2")), (1_000, seen("b1", "b2"))).topology
    assert run((9_000, seen("b1", "b2", "b3")), before=first).topology.held == ""


def test_a_first_observation_without_most_bookies_is_held():
    settled = settle(seen("b1", "b2", "b3"), None, POLICY, 0)
    assert states(settled)[0] == ("pending", True)
    assert states(settle(seen("b1", "b2", "b3"), settled.topology, POLICY, 99_000))[0] == ("lost", True)


def test_an_empty_observation_is_held():
    assert run((5, [])).topology.held


def test_long_lists_of_bookies_are_cut():
    names = tuple(f"n{n}" for n in range(9))
    before = settle(seen(names=names), None, POLICY, 0).topology
    assert "and 4 more" in settle(seen(*names, names=names), before, POLICY, 5).topology.held


def begun(*steps) -> int:
    return bookie(run(*steps)).begun_zxid


def registered(zxid: int, how: str = "writable") -> list[Sighting]:
    return [Sighting("b1", "/r", how, True, zxid)]


def test_turning_read_only_and_back_begins_nothing_anew():
    assert begun((1, registered(5)), (2, registered(7, "readonly")), (3, registered(9))) == 5


def test_a_registration_after_an_absence_begins_anew():
    assert begun((1, registered(5)), (2, registered(0, "")), (3, registered(9))) == 9


def test_a_registration_in_the_same_mode_that_was_never_seen_away_begins_anew():
    assert begun((1, registered(5)), (2, registered(9))) == 9


def test_a_registration_that_was_only_missed_goes_on():
    assert begun((1, registered(5)), (2, registered(0, "")), (3, registered(5))) == 5


def decommissioned(unnamed: bool) -> list[str]:
    policy = replace(POLICY, unnamed=unnamed)
    gone = [sight(name) for name in ALL[1:]]
    settled = run((5, seen("b1")), (2_000, seen("b1")), (3_000, gone), policy=policy)
    return [found.id for found in settled.topology.bookies]


def test_a_decommissioned_bookie_is_forgotten_once_no_ledger_names_it():
    assert (decommissioned(False), decommissioned(True)) == ([*ALL], [*ALL[1:]])


def test_a_lost_bookie_with_a_cookie_is_not_forgotten():
    settled = run((5, seen("b1")), (2_000, seen("b1")), policy=replace(POLICY, unnamed=True))
    assert bookie(settled).status is Status.LOST


def test_the_last_rack_of_a_bookie_holds_where_the_map_does_not_answer():
    silent = [sight(name, rack="?") for name in ("b1", "b2", "b3", "b4", "b5")]
    settled = run((5, silent))
    assert [found.rack for found in settled.topology.bookies] == ["/r", "/r", "/r", "/r", "?"]
