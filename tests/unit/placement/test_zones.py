import numpy as np
import pytest

from trueup.state.placement.policy.adherence import Adherence
from trueup.state.placement.policy.zones import ZoneCondition, broken_conditions, zone_adherence, zone_place

UNKNOWN = "--"


def columns(*rings: str):
    """Rings of members such as "a1": zone a, upgrade domain 1."""
    members = [ring.split() for ring in rings]
    zones = np.array([[ord(member[0]) - ord("a") for member in ring] for ring in members])
    domains = np.array([[ord(member[1]) for member in ring] for ring in members])
    return zones, domains, np.array([[member != UNKNOWN for member in ring] for ring in members])


def judged(ring: str, quorum: int = 3, min_zones: int = 2, desired_zones: int = 3) -> Adherence:
    return Adherence(zone_adherence(*columns(ring), quorum, min_zones, desired_zones)[0])


def broken(ring: str, quorum: int = 3, min_zones: int = 2, desired_zones: int = 3) -> ZoneCondition:
    return ZoneCondition(int(broken_conditions(*columns(ring), quorum, min_zones, desired_zones)[0]))


def test_the_desired_zones_are_strict():
    assert judged("a1 b1 c1") is Adherence.STRICT


def test_fewer_zones_than_desired_are_soft():
    assert judged("a1 a2 b1") is Adherence.SOFT


def test_no_more_zones_are_desired_than_a_window_has_members():
    assert judged("a1 b1 a2 b2", quorum=2, min_zones=1) is Adherence.STRICT


def test_one_window_decides_for_the_ring():
    assert judged("a1 b1 c1 c2 b2 a2") is Adherence.SOFT
    assert broken("a1 b1 b2 b3 b4 c1") == ZoneCondition.ZONES | ZoneCondition.DESIRED


def test_members_of_a_zone_need_two_upgrade_domains():
    assert judged("a1 a1 b1") is Adherence.FAIL
    assert broken("a1 a1 b1") == ZoneCondition.DOMAINS | ZoneCondition.DESIRED
    assert judged("a1 a1 a2 b1", quorum=4) is Adherence.SOFT


def test_equal_domains_of_different_zones_differ():
    assert judged("a1 b1 a2", min_zones=1, desired_zones=2) is Adherence.STRICT


def test_the_ensemble_size_must_be_a_multiple_of_the_write_quorum():
    assert broken("a1 b1 c1 d1") == ZoneCondition.SIZE


def test_the_write_quorum_must_exceed_the_minimum_of_zones():
    assert broken("a1 b1", quorum=2) == ZoneCondition.QUORUM


def test_a_member_without_a_place_fails():
    assert judged(f"a1 b1 c1 d1 {UNKNOWN} f1") is Adherence.FAIL
    assert ZoneCondition.PLACE in broken(f"a1 b1 {UNKNOWN}")


def test_rings_are_judged_apart():
    columns_of_both = columns("a1 b1 c1", "a1 a2 a3")
    assert zone_adherence(*columns_of_both, 3, 2, 3).tolist() == [Adherence.STRICT, Adherence.FAIL]


def test_an_empty_ensemble_fails():
    empty = np.zeros((1, 0), np.int32)
    assert zone_adherence(empty, empty, empty.astype(bool), 3, 2, 3).tolist() == [Adherence.FAIL]


@pytest.mark.parametrize(
    ("location", "place"),
    [
        ("/z/u", ("z", "u")),
        ("/z//u/", ("z", "u")),
        ("/z", None),
        ("/z/u/r", None),
        ("z/u", None),
        ("", None),
        ("/default-zone/default-upgradedomain", None),
    ],
)
def test_a_location_has_a_zone_and_a_domain(location, place):
    assert zone_place(location) == place
