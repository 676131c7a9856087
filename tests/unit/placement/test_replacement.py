import pytest

from trueup.state.placement.policy.replacement import (
    LARGEST,
    Certainty,
    RepairReach,
    colourable,
    reach,
    reachable,
    refill,
)

A, B, C = "/a", "/b", "/c"


def test_an_ensemble_that_adheres_needs_no_move():
    assert reach((A, B), 2, {}) == RepairReach(Certainty.ALWAYS, 0)


def test_one_copy_moves_where_one_is_enough():
    assert reach((A, A), 2, {A: 1, B: 1}) == RepairReach(Certainty.ALWAYS, 1)


@pytest.mark.parametrize("size", [3, 5, 7])
def test_an_odd_ring_of_two_racks_has_no_colouring(size):
    assert not reach((A,) * size, 2, {A: 9, B: 9})
    assert not colourable(size, 2, {A: 9, B: 9})


# Ensemble size, Qw, racks. All racks have spares, all members are in one. BookKeeper 4.17.3 never reaches adherence.
@pytest.mark.parametrize(
    ("size", "quorum", "racks"),
    [(4, 3, 2), (5, 4, 2), (6, 5, 2), (7, 6, 2), (7, 3, 2), (6, 4, 3), (6, 5, 3), (7, 6, 3)],
)
def test_what_could_be_coloured_may_still_be_out_of_reach(size, quorum, racks):
    spares = {f"/r{n}": 9 for n in range(racks)}
    assert colourable(size, quorum, spares, racks)
    assert not reach(("/r0",) * size, quorum, spares, racks)
    assert not reachable(("/r0",) * size, quorum, spares, racks)


def test_the_same_rings_are_reached_with_one_more_rack():
    assert reach((A,) * 4, 3, {A: 4, B: 4, C: 4}) == RepairReach(Certainty.ALWAYS, 2)


def test_writable_bookies_in_one_rack_only_are_never_enough_even_for_one_copy():
    assert not reach((A,), 1, {A: 5}, unknown=[0])


def test_fewer_racks_than_a_window_needs_are_never_enough():
    assert not reach((A, A, A), 3, {A: 3, B: 3}, 3)


def test_a_member_that_is_not_known_is_replaced_though_its_rack_would_do():
    assert reach((A, B), 2, {B: 1}, unknown=[1]) == RepairReach(Certainty.ALWAYS, 1)


def test_there_is_no_way_without_a_bookie_for_a_member_that_is_not_known():
    assert not reach((A, B, B), 2, {}, unknown=[2])


def test_the_default_rack_is_a_rack_like_any_other_until_it_is_forbidden():
    assert reach((None, A), 2, {}) == RepairReach(Certainty.ALWAYS, 0)
    assert reach((None, A), 2, {B: 1}, enforce=True) == RepairReach(Certainty.ALWAYS, 1)


def test_bookies_of_a_forbidden_default_rack_are_no_targets_but_count_as_a_rack():
    assert not reach((A, A), 2, {None: 3}, enforce=True)
    assert reach((A,), 1, {None: 1, A: 1}, 1, enforce=True, unknown=[0]) == RepairReach(Certainty.ALWAYS, 1)


def test_what_depends_on_chance_is_sometimes():
    assert reach(("/r2", "/r3", "/r1", "/r1", "/r3", "/r1"), 2, {None: 1}, 3, True).sure is Certainty.SOMETIMES


def test_members_may_change_places_when_no_spare_fits():
    assert reach((A, A, B, B), 2, {}) == RepairReach(Certainty.ALWAYS, 2)


def test_a_target_that_refuses_is_no_way():
    assert not reach((A, A), 2, {B: 1}, refusing={B: 1})


def test_a_target_that_refuses_makes_a_sure_way_a_chance():
    assert reach((A, A), 2, {B: 2}, refusing={B: 1}) == RepairReach(Certainty.SOMETIMES, 1)


def test_a_worker_in_a_rack_without_bookies_finds_no_first_one_where_racks_do_not_matter():
    assert reach((A, B), 1, {A: 1, B: 2}, 1, unknown=[0, 1]) == RepairReach(Certainty.ALWAYS, 2)
    assert not reach((A, B), 1, {A: 1, B: 2}, 1, unknown=[0, 1], local="/elsewhere")


def test_a_ring_larger_than_any_real_one_is_not_searched():
    assert reach((A,) * (LARGEST + 1), 2, {B: 100}) == RepairReach(Certainty.NEVER, 0, cut=True)


def test_a_truncated_search_is_reported(monkeypatch):
    monkeypatch.setattr("trueup.state.placement.policy.replacement.STATES", 40)
    found = reach([f"/r{n % 5}" for n in range(11)], 7, {f"/r{n}": n for n in range(9)}, 5, unknown=[0, 4, 5])
    assert found.cut
    assert found.sure is not Certainty.ALWAYS


def test_a_lost_member_is_replaced_by_any_bookie():
    assert refill((A, B), [0], {B: 1}) == RepairReach(Certainty.ALWAYS, 1)


def test_as_many_bookies_as_lost_members_are_needed():
    assert not refill((A, B, C), [0, 1], {B: 1})


def test_enforced_racks_forbid_the_rack_of_another_member():
    assert not refill((A, B), [0], {B: 5}, enforce=True)
    assert refill((A, B), [0], {C: 1}, enforce=True) == RepairReach(Certainty.ALWAYS, 1)


def test_enforced_racks_still_prefer_the_rack_of_the_lost_member():
    assert refill((A, A), [0], {A: 1}, enforce=True) == RepairReach(Certainty.ALWAYS, 1)


def test_the_second_of_two_lost_members_may_find_nothing_left():
    assert not refill((A, A, B), [0, 1], {A: 1, B: 3}, enforce=True)


def test_the_first_choice_may_take_what_the_second_needs():
    # The first lost member is in the default rack: any bookie fits except B and /d. The second needs C.
    found = refill((None, B, "/d"), [0, 1], {C: 1, "/e": 1}, enforce=True)
    assert found.sure is Certainty.ALWAYS
    assert not refill((None, B, "/d"), [0, 1], {C: 1}, enforce=True)


def test_a_refusing_bookie_in_the_rack_of_the_lost_one_is_always_asked_first():
    assert not refill((A, B), [0], {A: 1, C: 3}, refusing={A: 1})


def test_a_refusing_bookie_among_others_makes_it_a_chance():
    assert refill((A, B), [0], {A: 2}, refusing={A: 1}) == RepairReach(Certainty.SOMETIMES, 1)


def test_forbidden_bookies_colour_nothing():
    assert not colourable(2, 2, {A: 2, None: 2}, enforce=True)


def test_a_ring_needs_as_many_bookies_as_places():
    assert not colourable(3, 2, {A: 1, B: 1})


def test_one_rack_colours_a_ring_that_needs_one():
    assert colourable(3, 2, {A: 3}, 1)
