import numpy as np
import pytest

from trueup.state.placement.policy.adherence import Adherence
from trueup.state.placement.policy.regions import (
    RegionCondition,
    RegionRules,
    broken_guarantees,
    region_adherence,
    region_place,
)

ABC = RegionRules(listed=(0, 1, 2))
AB = RegionRules(listed=(0, 1))
UNLISTED = RegionRules()
DEFAULT = 4  # "e"
ABSENT = "--"
PLENTY = "3 3 3 0 0"


def columns(*rings: str):
    """Rings of members such as "a1": region a, rack 1."""
    members = [ring.split() for ring in rings]
    regions = np.array([[-1 if member == ABSENT else ord(member[0]) - ord("a") for member in ring] for ring in members])
    racks = np.array([[ord(member[1]) for member in ring] for ring in members])
    return regions, racks, regions >= 0


def broken(ring: str, rules: RegionRules, quorum: int = 3, acks: int = 3, stock: str = PLENTY):
    """(conditions that must hold, others)."""
    racks = np.array([int(count) for count in stock.split()])
    failed, tolerated = broken_guarantees(*columns(ring), quorum, acks, rules, racks)
    return RegionCondition(int(failed[0])), RegionCondition(int(tolerated[0]))


HOLDS = (RegionCondition(0), RegionCondition(0))


def fails(condition: RegionCondition):
    return condition, RegionCondition(0)


def tolerated(condition: RegionCondition):
    return RegionCondition(0), condition


def test_a_member_in_each_region_is_strict():
    assert broken("a1 b1 c1", ABC) == HOLDS


def test_any_copies_that_acknowledge_must_span_the_regions():
    assert broken("a1 a2 b1", AB, acks=3) == HOLDS
    assert broken("a1 a2 b1 b2", AB, 4, 3, "2 2 0 0 0") == HOLDS
    assert broken("a1 a2 a3 b1", AB, 4, 3, "3 2 0 0 0") == fails(RegionCondition.DURABLE)


def test_three_regions_are_required_of_all_pairs_of_regions():
    three = RegionRules(listed=(0, 1, 2), min_regions=3)
    assert broken("a1 a2 b1 c1", three, 4, 4) == HOLDS
    assert broken("a1 a2 a3 b1 b2 c1", three, 6, 5) == fails(RegionCondition.DURABLE)


def test_each_window_must_be_durable():
    assert broken("a1 b1 a2 b2", AB, 2, 2) == HOLDS
    assert broken("a1 a2 b1 b2", AB, 2, 2) == fails(RegionCondition.DURABLE)


def test_durability_is_not_guaranteed_in_a_region_with_one_rack():
    assert broken("a1 b1 a1 a1 b1", AB, 2, 2, "1 3 0 0 0")[0] == RegionCondition(0)
    assert broken("b1 a1 b2 b3 a1", AB, 2, 2, "1 3 0 0 0")[0] == RegionCondition.DURABLE


def test_durability_is_not_guaranteed_in_a_region_that_is_not_listed():
    assert broken("a1 c1 c2 b1", AB, 2, 2) == tolerated(RegionCondition.DURABLE | RegionCondition.LISTED)


def test_without_listed_regions_there_is_no_durability():
    assert broken("a1 a2 a3", UNLISTED) == tolerated(RegionCondition.SPREAD)


@pytest.mark.parametrize(("quorum", "acks"), [(3, 1), (3, 2), (2, 1)])
def test_quorums_that_are_not_durable_in_any_ring_fail(quorum, acks):
    assert RegionCondition.QUORUMS in broken("a1 b1 c1", ABC, quorum, acks)[0]


def test_quorums_are_free_without_durability():
    assert broken("a1 b1 c1", RegionRules(listed=(0, 1, 2), min_regions=0), 3, 1) == HOLDS


def test_every_listed_region_is_covered():
    assert broken("a1 b1 a2", ABC) == fails(RegionCondition.COVERED)


def test_a_listed_region_without_writable_bookies_is_not_covered():
    assert broken("a1 b1 a2", ABC, stock="3 3 0 0 0") == tolerated(RegionCondition.COVERED)


def test_an_ensemble_smaller_than_the_number_of_regions_covers_some():
    assert broken("a1 b1", ABC, 2, 2) == tolerated(RegionCondition.COVERED)


def test_regions_that_are_not_listed_may_be_used():
    assert broken("a1 b1 c1", AB) == tolerated(RegionCondition.LISTED)


def test_a_single_region_with_one_rack_is_accepted():
    alone = broken("a1 a1 a1", AB, stock="1 0 0 0 0")
    assert alone[0] == RegionCondition(0)
    assert RegionCondition.DURABLE | RegionCondition.REGIONS in alone[1]


def test_a_single_region_with_several_racks_is_not():
    assert broken("a1 a2 a3", AB, stock="3 0 0 0 0")[0] == RegionCondition.DURABLE


def test_with_validation_the_ring_spans_the_regions_even_if_they_have_one_rack():
    assert RegionCondition.REGIONS in broken("a1 a1 a1", AB, stock="1 1 0 0 0")[0]
    free = RegionRules(listed=(0, 1), validated=False)
    assert RegionCondition.REGIONS in broken("a1 a1 a1", free, stock="1 1 0 0 0")[1]


def test_listed_regions_without_durability_are_spread_as_racks_are():
    spread = RegionRules(listed=(0, 1), min_regions=0)
    assert broken("a1 a2 b1 b2", spread, 2, 2) == fails(RegionCondition.SPREAD)
    assert broken("a1 a1 b1 b1", spread, 2, 2, "1 1 0 0 0")[0] == RegionCondition(0)


def test_enforced_racks_keep_windows_out_of_one_region():
    enforced = RegionRules(enforce_min_racks=True)
    assert broken("a1 a2 b1 b2", enforced, 2, 2) == fails(RegionCondition.SPREAD)
    assert broken("a1 a2 b1", RegionRules(enforce_min_racks=True, min_racks=3)) == tolerated(RegionCondition.SPREAD)


def test_members_of_a_region_are_spread_over_its_racks():
    assert broken("a1 a1 b1", AB) == fails(RegionCondition.RACKS)
    assert broken("a1 a1 b1", AB, stock="1 3 0 0 0") == tolerated(RegionCondition.RACKS)
    assert broken("a1 a1 b1", UNLISTED) == tolerated(RegionCondition.RACKS)
    assert broken("a1 a1 b1", RegionRules(enforce_min_racks=True)) == fails(RegionCondition.RACKS)


def test_equal_racks_of_different_regions_differ():
    assert broken("a1 b1 c1", ABC) == HOLDS


def test_racks_of_windows_are_guaranteed_in_a_single_region_only():
    one_region = RegionRules(listed=(0,), min_regions=1)
    assert broken("a1 a1 a2 a2", one_region, 2, 2, "3 0 0 0 0") == fails(RegionCondition.RACKS)
    assert broken("a1 a1 a2 b1", one_region, 2, 2, "3 3 0 0 0")[1] & RegionCondition.RACKS


def test_enforced_racks_exclude_the_default_rack():
    assert RegionCondition.DEFAULT in broken("a1 b1 e1", RegionRules(enforce_min_racks=True, default=DEFAULT))[0]
    assert RegionCondition.DEFAULT not in broken("a1 b1 e1", RegionRules(default=DEFAULT))[0]


def test_a_lost_member_is_in_no_region():
    assert broken(f"a1 b1 {ABSENT}", AB, stock="3 3 0 0 0") == HOLDS
    assert broken(f"a1 a2 {ABSENT}", AB, stock="3 3 0 0 0")[0] == (
        RegionCondition.DURABLE | RegionCondition.REGIONS | RegionCondition.COVERED
    )


def test_the_answer_is_that_of_the_guaranteed_conditions():
    rings = columns("a1 b1 c1", "a1 b1 d1", "a1 a2 a3")
    answers = region_adherence(*rings, 3, np.array([3, 3, 3]), AB, np.array([3, 3, 0, 3, 0]))
    assert answers.tolist() == [Adherence.SOFT, Adherence.SOFT, Adherence.FAIL]
    assert region_adherence(*columns("a1 b1 a2"), 3, 3, AB, np.array([3, 3, 0, 0, 0])).tolist() == [Adherence.STRICT]


def test_acknowledgements_belong_to_a_ring():
    rings = columns("a1 b1 a2", "a1 b1 a2")
    answers = region_adherence(*rings, 3, np.array([3, 2]), AB, np.array([3, 3, 0, 0, 0]))
    assert answers.tolist() == [Adherence.STRICT, Adherence.FAIL]


@pytest.mark.parametrize(
    ("location", "place"),
    [
        ("/a/r1", ("a", "/a/r1")),
        ("/a/r1/", ("a", "/a/r1")),
        ("/default-region/default-rack", ("UnknownRegion", "/default-region/default-rack")),
        ("/default-region/r1", ("default-region", "/default-region/r1")),
        ("/r1", None),
        ("/a/r1/x", None),
        ("a/r1", None),
        ("/a//", None),
        ("", None),
    ],
)
def test_a_location_has_a_region_and_a_rack(location, place):
    assert region_place(location) == place
