"""The rules for zones and regions, compared with slow ones that look at one ring and one window at a time."""

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trueup.state.placement.policy.adherence import Adherence
from trueup.state.placement.policy.regions import RegionCondition, RegionRules, broken_guarantees
from trueup.state.placement.policy.replacement import windows
from trueup.state.placement.policy.zones import zone_adherence

places = st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 4).map(bool))
rules = st.builds(
    RegionRules,
    st.lists(st.integers(0, 3), max_size=4, unique=True).map(tuple),
    st.integers(0, 4),
    st.integers(0, 4),
    st.booleans(),
    st.booleans(),
)


@st.composite
def rings(draw):
    """Rings of equal size, as lists of (region or zone, rack or domain, whether it counts), and their Qw."""
    size = draw(st.integers(1, 6))
    some = draw(st.lists(st.lists(places, min_size=size, max_size=size), min_size=1, max_size=3))
    return some, draw(st.integers(1, size))


def columns(some):
    return [np.array([[member[at] for member in ring] for ring in some]) for at in (0, 1, 2)]


def of_windows(ring, quorum):
    """The members of each window."""
    return [[ring[at] for at in window] for window in windows(len(ring), quorum)]


def zone_answer(ring, quorum, least, desired):
    if len(ring) % quorum or quorum <= least or not all(placed for _, _, placed in ring):
        return Adherence.FAIL
    answer = Adherence.STRICT
    for window in of_windows(ring, quorum):
        members = [member[:2] for member in window]
        zones = {zone for zone, _ in members}
        crowded = any(
            sum(zone == other for other, _ in members) > 1 and len({d for other, d in members if other == zone}) < 2
            for zone in zones
        )
        if len(zones) < least or crowded:
            return Adherence.FAIL
        if len(zones) < min(quorum, desired):
            answer = Adherence.SOFT
    return answer


@given(rings(), st.integers(0, 3), st.integers(0, 4))
def test_zones_are_judged_ring_by_ring(drawn, least, desired):
    some, quorum = drawn
    answers = zone_adherence(*columns(some), quorum, least, max(least, desired))
    assert answers.tolist() == [zone_answer(ring, quorum, least, max(least, desired)) for ring in some]


def durable(ring, quorum, acks, least):
    """Whether every Qa members of a window are in ``least`` regions; one that is not live may be anywhere."""
    return all(
        len({region for region, _, live in group if live}) >= least
        for window in of_windows(ring, quorum)
        for group in combinations(window, acks)
    )


def parts(members, width=1):
    """Regions (1) or racks (2) of the members that are live."""
    return {member[:width] for member in members if member[2]}


def spread_over_racks(ring, quorum, min_racks):
    if len(ring) > quorum:
        return all(len(parts(window, 2)) >= min(quorum, min_racks) for window in of_windows(ring, quorum))
    members = [[member for member in ring if member[2] and member[0] == region] for (region,) in parts(ring)]
    return all(len(parts(some, 2)) >= min(len(some), min_racks) for some in members)


def region_conditions(ring, quorum, acks, rules):
    """Conditions that the ring breaks, without that of the quorums."""
    listed, regions = {(region,) for region in rules.listed}, parts(ring)
    least, need = rules.min_regions if listed else 0, min(quorum, rules.min_racks)
    spread = all(len(parts(window)) >= need for window in of_windows(ring, quorum))
    checks = {
        RegionCondition.COVERED: listed <= regions,
        RegionCondition.LISTED: not listed or regions <= listed,
        RegionCondition.REGIONS: len(regions) >= least,
        RegionCondition.DURABLE: least < 2 or durable(ring, quorum, acks, least),
        RegionCondition.SPREAD: least > 0 or need < 2 or spread,
        RegionCondition.RACKS: spread_over_racks(ring, quorum, rules.min_racks),
    }
    return sum(condition for condition, holds in checks.items() if not holds)


@given(rings(), rules, st.lists(st.integers(0, 3), min_size=4, max_size=4), st.data())
def test_regions_are_judged_ring_by_ring(drawn, rules, stock, data):
    some, quorum = drawn
    acks = data.draw(st.integers(1, quorum))
    failed, tolerated = broken_guarantees(*columns(some), quorum, acks, rules, np.array(stock))
    assert not (failed & tolerated).any()
    broken = (failed | tolerated) & ~np.uint8(RegionCondition.QUORUMS)
    assert broken.tolist() == [region_conditions(ring, quorum, acks, rules) for ring in some]
