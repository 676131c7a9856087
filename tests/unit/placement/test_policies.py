"""Ledgers under the policies of regions and zones, from metadata to verdict and evidence."""

from dataclasses import replace

import pytest

from trueup.state.bookkeeper.ledgers import Ledgers, concat, row
from trueup.state.bookkeeper.observations import LedgerState
from trueup.state.bookkeeper.topology import UNKNOWN_RACK, Bookie, PlacementPolicy, Status, Topology
from trueup.state.placement.rules import RULES
from trueup.state.placement.verdicts import evidence, judge

ZONES = {"a": "/z1/u1", "b": "/z2/u1", "c": "/z3/u1", "d": "/z1/u1", "e": "/z1/u2"}
REGIONS = {"a": "/east/r1", "b": "/east/r2", "c": "/west/r1", "d": "/west/r2", "e": "/west/r2"}
ZONE = PlacementPolicy("zone", min_zones=2, desired_zones=3)
REGION = PlacementPolicy("region", regions=("east", "west"), min_regions=2)


def topology(policy: PlacementPolicy, *gone: str, **racks: str) -> Topology:
    places = (ZONES if policy is ZONE else REGIONS) | racks
    bookies = (
        Bookie(name, place, Status.LOST if name in gone else Status.WRITABLE, 0) for name, place in places.items()
    )
    return Topology(1, 0, tuple(bookies), policy=policy)


def rules(ledgers: Ledgers, seen: Topology) -> list[str]:
    return [RULES[code].id.removeprefix("placement.") for code in judge(ledgers, seen).rule.tolist()]


@pytest.mark.parametrize(
    ("members", "rule"),
    [("abc", "adheres"), ("abe", "adheres-softly"), ("abd", "too-few-zones"), ("ade", "too-few-zones")],
)
def test_an_ensemble_under_zones(members: str, rule: str) -> None:
    assert rules(row(1, [*members], quorum=3), topology(ZONE)) == [rule]


@pytest.mark.parametrize(
    ("members", "acks", "rule"),
    [
        ("abc", 3, "adheres"),
        ("abc", 2, "too-few-regions"),  # both acknowledged replicas may be in the east
        ("cde", 3, "too-few-regions"),
    ],
)
def test_an_ensemble_under_regions(members: str, acks: int, rule: str) -> None:
    assert rules(row(1, [*members], quorum=3, acks=acks), topology(REGION)) == [rule]


def test_ledgers_of_one_shape_are_judged_by_their_own_ack_quorum() -> None:
    ledgers = concat([row(number, ["a", "b", "c"], quorum=3, acks=acks) for number, acks in ((1, 3), (2, 2))])
    assert rules(ledgers, topology(REGION)) == ["adheres", "too-few-regions"]


@pytest.mark.parametrize("policy", [ZONE, REGION])
def test_a_lost_member_is_replaced_under_every_policy(policy: PlacementPolicy) -> None:
    assert rules(row(1, ["a", "b", "c"], quorum=3), topology(policy, "c")) == ["lost-member"]


@pytest.mark.parametrize("policy", [ZONE, REGION])
def test_a_lost_member_without_a_replacement_is_blocked(policy: PlacementPolicy) -> None:
    assert rules(row(1, ["a", "b", "c"], quorum=3), topology(policy, "c", "d", "e")) == ["too-few-bookies"]


@pytest.mark.parametrize("policy", [ZONE, REGION])
def test_a_member_whose_location_has_not_answered_is_unknown(policy: PlacementPolicy) -> None:
    assert rules(row(1, ["a", "b", "c"], quorum=3), topology(policy, c=UNKNOWN_RACK)) == ["unknown-rack"]


def test_an_open_ledger_that_does_not_adhere_waits() -> None:
    assert rules(row(1, ["a", "b", "d"], quorum=3, state=LedgerState.OPEN), topology(ZONE)) == ["open-not-adhering"]


def test_racks_do_not_count_under_zones() -> None:
    seen = replace(topology(ZONE), min_racks=3, enforce_min_racks=True)
    assert rules(row(1, ["a", "b", "e"], quorum=3), seen) == ["adheres-softly"]


@pytest.mark.parametrize(
    ("policy", "members", "broken"),
    [
        (ZONE, "abd", ["members of a write quorum in one zone share their upgrade domain"]),
        (
            ZONE,
            "abe",
            ["a write quorum spans fewer zones than desiredNumZonesPerWriteQuorum (placement.desired_zones)"],
        ),
        (ZONE, "abc", []),
        (REGION, "abc", []),
        (
            REGION,
            "cde",
            [
                "the ensemble spans fewer regions than placement.min_regions",
                "a region of placement.regions has no member",
                "Qa members of a write quorum lie in fewer regions than placement.min_regions",
            ],
        ),
    ],
)
def test_the_evidence_names_the_broken_conditions(policy: PlacementPolicy, members: str, broken: list[str]) -> None:
    shown = evidence(row(1, [*members], quorum=3), 0, topology(policy))
    assert shown["fragments"][0]["broken"] == broken
