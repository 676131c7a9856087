"""Trueup's rules for zones and regions, compared with the policies of BookKeeper 4.17.3 in a JVM."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError

from tests.integration.placement.policy_jvm import RackMap, policy_gateway
from trueup.state.placement.policy.adherence import Adherence
from trueup.state.placement.policy.regions import (
    DEFAULT_PLACE,
    RegionCondition,
    RegionRules,
    broken_guarantees,
    region_adherence,
    region_place,
)
from trueup.state.placement.policy.zones import zone_adherence, zone_place

pytestmark = pytest.mark.servers

SEED = 20_260_822
CLIENT = "org.apache.bookkeeper.client."
HERE = "/default-region/default-rack"
ANSWERS = {"FAIL": Adherence.FAIL, "MEETS_SOFT": Adherence.SOFT, "MEETS_STRICT": Adherence.STRICT}


@pytest.fixture(scope="module")
def gateway() -> Iterator[JavaGateway]:
    with policy_gateway() as gateway:
        yield gateway


@dataclass
class Bookies:
    """Bookies by location. The second and third part of an address are the location and the number of the bookie."""

    locations: list[str] = field(default_factory=list)

    def at(self, location: str, number: int) -> str:
        if location not in self.locations:
            self.locations.append(location)
        return f"127.{self.locations.index(location) + 1}.{number}.1:3181"

    def location(self, address: str) -> str:
        net, place = address.split(".")[:2]
        return self.locations[int(place) - 1] if net == "127" and 0 < int(place) <= len(self.locations) else HERE


class OtherPolicy:
    """A policy object of the class ``name`` with these settings."""

    def __init__(self, gateway: JavaGateway, name: str, bookies: Bookies, settings: Mapping[str, object]) -> None:
        self._jvm, self._ids = gateway.jvm, dict[str, Any]()
        bookkeeper = self._jvm.org.apache.bookkeeper
        conf = bookkeeper.conf.ClientConfiguration()
        for key, value in settings.items():
            conf.setProperty(key, value)
        resolver = bookkeeper.net.CachedDNSToSwitchMapping(RackMap(gateway, bookies.location))
        java_class = self._jvm.java.lang.Class.forName(CLIENT + name)
        self._policy = bookkeeper.common.util.ReflectionUtils.newInstance(java_class)
        self._policy.initialize(
            conf,
            self._jvm.java.util.Optional.of(resolver),
            None,
            bookkeeper.feature.SettableFeatureProvider.DISABLE_ALL,
            bookkeeper.stats.NullStatsLogger.INSTANCE,
            bookkeeper.net.BookieSocketAddress.LEGACY_BOOKIEID_RESOLVER,
        )

    def _id(self, bookie: str) -> Any:
        if bookie not in self._ids:
            self._ids[bookie] = self._jvm.org.apache.bookkeeper.net.BookieId.parse(bookie)
        return self._ids[bookie]

    def _list(self, bookies: Sequence[str]) -> Any:
        ids = self._jvm.java.util.ArrayList()
        for bookie in bookies:
            ids.add(self._id(bookie))
        return ids

    def join(self, bookies: Sequence[str]) -> None:
        new = self._jvm.java.util.HashSet
        self._policy.onClusterChanged(new(self._list(bookies)), new())

    def adherence(self, ring: Sequence[str], quorum: int) -> Adherence:
        return ANSWERS[self._policy.isEnsembleAdheringToPlacementPolicy(self._list(ring), quorum, quorum).toString()]

    def form(self, size: int, quorum: int, acks: int) -> list[str]:
        """The result of `newEnsemble`."""
        new, none = self._jvm.java.util.HashSet, self._jvm.java.util.HashMap()
        text = self._policy.newEnsemble(size, quorum, acks, none, new()).getResult().toString()
        return _listed(text)

    def replace(self, ring: Sequence[str], at: int, quorum: int) -> tuple[str, Adherence]:
        """The result of `replaceBookie` and the answer about the new ensemble."""
        old, none = self._id(ring[at]), self._jvm.java.util.HashMap()
        excluded = self._jvm.java.util.HashSet(self._list([ring[at]]))
        members = self._list(ring)
        result = self._policy.replaceBookie(len(ring), quorum, quorum, none, members, old, excluded)
        return result.getResult().toString(), ANSWERS[result.getAdheringToPolicy().toString()]

    def adhere(self, ring: Sequence[str], quorum: int) -> list[str]:
        """The result of `replaceToAdherePlacementPolicy`. By reflection, since py4j finds no methods of interfaces."""
        name, new = "replaceToAdherePlacementPolicy", self._jvm.java.util.HashSet
        interface = self._jvm.java.lang.Class.forName(CLIENT + "EnsemblePlacementPolicy")
        (method,) = [method for method in interface.getMethods() if method.getName() == name]
        values = [len(ring), quorum, quorum, new(), self._list(ring)]
        result = method.invoke(self._policy, self._jvm.java.util.ArrayList(values).toArray())
        return _listed(result.getResult().toString())


def _listed(text: str) -> list[str]:
    return [word for word in text.strip("[]").split(", ") if word]


def _thrown(error: Py4JJavaError) -> str:
    return str(error.java_exception.getClass().getSimpleName())


ZONES = [(2, 3, True), (1, 2, True), (1, 3, False), (2, 2, True), (0, 4, True)]
"""Minimum of zones, desired zones, enforceStrictZoneawarePlacement."""
ODD = ["/default-zone/default-upgradedomain", "/default-zone//default-upgradedomain", "/z", "/z1/u1/x", ""]


def _zone_policy(gateway: JavaGateway, bookies: Bookies, least: int, desired: int, strict: bool) -> OtherPolicy:
    settings = {
        "minNumZonesPerWriteQuorum": least,
        "desiredNumZonesPerWriteQuorum": desired,
        "enforceStrictZoneawarePlacement": strict,
    }
    return OtherPolicy(gateway, "ZoneawareEnsemblePlacementPolicy", bookies, settings)


def _zone_verdict(bookies: Bookies, ring: Sequence[str], quorum: int, least: int, desired: int) -> Adherence:
    places = [zone_place(bookies.location(bookie)) for bookie in ring]
    code = {part: at for at, part in enumerate(sorted({part for place in places if place for part in place}))}
    zones, domains = ([[code[place[at]] if place else -1 for place in places]] for at in (0, 1))
    placed = np.array([[place is not None for place in places]])
    return Adherence(zone_adherence(np.array(zones), np.array(domains), placed, quorum, least, desired)[0])


@pytest.mark.parametrize(("least", "desired", "strict"), ZONES)
def test_zones_are_judged_as_the_policy_does(gateway: JavaGateway, least: int, desired: int, strict: bool) -> None:
    rng, bookies, tally, wrong = random.Random(SEED), Bookies(), Counter[Adherence](), []
    level = [f"/z{zone}/u{domain}" for zone in range(4) for domain in range(3)] + ["/z0//u1/"]
    policy = _zone_policy(gateway, bookies, least, desired, strict)
    for _ in range(120):
        size = rng.choice([1, 2, 3, 4, 6, 6, 6])
        quorum = rng.choice([part for part in range(1, size + 1) if size % part == 0 or rng.random() < 0.1])
        places = rng.sample(level, rng.randint(3, 8)) + (ODD if rng.random() < 0.2 else [])
        ring = [bookies.at(rng.choice(places), number) for number in range(size)]
        answer = policy.adherence(ring, quorum)
        tally[answer] += 1
        if answer is not _zone_verdict(bookies, ring, quorum, least, desired):
            wrong.append((ring, quorum, answer))
    assert not wrong, f"seed {SEED}: {bookies.locations}"
    assert len(tally) > 1, tally


@pytest.mark.parametrize(("least", "desired", "strict"), ZONES)
def test_replacements_under_zones_are_judged_alike(
    gateway: JavaGateway, least: int, desired: int, strict: bool
) -> None:
    rng, bookies, wrong, tally = random.Random(SEED), Bookies(), [], Counter[str]()
    level = [f"/z{zone}/u{domain}" for zone in range(3) for domain in range(2)]
    writable = [bookies.at(location, number) for location in level for number in range(2)]
    policy = _zone_policy(gateway, bookies, least, desired, strict)
    policy.join(writable)
    for _ in range(40):
        quorum = rng.randint(max(least, 1), 3)
        ring = rng.sample(writable, quorum * rng.randint(1, 2))
        ring[0] = bookies.at(rng.choice(level), 9)
        try:
            candidate, answer = policy.replace(ring, 0, quorum)
        except Py4JJavaError as error:
            tally[_thrown(error)] += 1
            continue
        tally[answer.name] += 1
        if answer is not _zone_verdict(bookies, [candidate, *ring[1:]], quorum, least, desired):
            wrong.append((ring, candidate, quorum, answer))
    assert not wrong, f"seed {SEED}: {tally}"
    assert tally.total() > tally["BKNotEnoughBookiesException"], tally


def test_zones_have_no_repair_of_placement(gateway: JavaGateway) -> None:
    bookies = Bookies()
    policy = _zone_policy(gateway, bookies, 1, 2, True)
    ring = [bookies.at("/z0/u0", 0), bookies.at("/z0/u0", 1)]
    with pytest.raises(Py4JJavaError, match=r"java\.lang\.UnsupportedOperationException"):
        policy.adhere(ring, 2)


@dataclass(frozen=True)
class Regions:
    """A cluster by region: the number of bookies in each rack. And the settings of its clients."""

    racks: Mapping[str, Sequence[int]]
    listed: tuple[str, ...]
    min_regions: int = 2
    min_racks: int = 2
    enforce: bool = False
    validated: bool = True

    @property
    def names(self) -> list[str]:
        return sorted({*self.racks, *self.listed, DEFAULT_PLACE[0]})

    @property
    def rules(self) -> RegionRules:
        codes = tuple(self.names.index(name) for name in self.listed)
        default = self.names.index(DEFAULT_PLACE[0])
        return RegionRules(codes, self.min_regions, self.min_racks, self.enforce, self.validated, default)

    @property
    def stock(self) -> Any:
        return np.array([len(self.racks.get(name, ())) for name in self.names])

    def locations(self) -> list[str]:
        return [
            HERE if region == DEFAULT_PLACE[0] else f"/{region}/r{rack}"
            for region, racks in self.racks.items()
            for rack, count in enumerate(racks)
            for _ in range(count)
        ]

    def policy(self, gateway: JavaGateway, bookies: Bookies) -> OtherPolicy:
        settings: dict[str, object] = {
            "minNumRacksPerWriteQuorum": self.min_racks,
            "enforceMinNumRacksPerWriteQuorum": self.enforce,
            "reppEnableValidation": self.validated,
            "reppMinimumRegionsForDurability": self.min_regions,
        }
        if self.listed:
            settings["reppRegionsToWrite"] = ";".join(self.listed)
        policy = OtherPolicy(gateway, "RegionAwareEnsemblePlacementPolicy", bookies, settings)
        policy.join([bookies.at(location, number) for number, location in enumerate(self.locations())])
        return policy

    def members(self, bookies: Bookies, ring: Sequence[str]) -> tuple[Any, Any, Any]:
        places = [region_place(bookies.location(bookie)) or ("", "") for bookie in ring]
        racks = sorted({rack for _, rack in places})
        return (
            np.array([[self.names.index(region) for region, _ in places]]),
            np.array([[racks.index(rack) for _, rack in places]]),
            np.ones((1, len(ring)), bool),
        )

    def judge(self, bookies: Bookies, ring: Sequence[str], quorum: int, acks: int) -> Adherence:
        members = self.members(bookies, ring)
        return Adherence(region_adherence(*members, quorum, acks, self.rules, self.stock)[0])

    def failed(self, bookies: Bookies, ring: Sequence[str], quorum: int, acks: int) -> RegionCondition:
        members = self.members(bookies, ring)
        return RegionCondition(broken_guarantees(*members, quorum, acks, self.rules, self.stock)[0][0])


def _drawn(rng: random.Random) -> Regions:
    names = rng.sample("abcd", rng.randint(1, 4))
    racks = {name: [rng.randint(1, 3) for _ in range(rng.choice([1, 1, 2, 3]))] for name in names}
    if rng.random() < 0.1:
        racks[DEFAULT_PLACE[0]] = [2]
    listed = tuple(rng.sample("abcd", rng.randint(2, 4))) if rng.random() < 0.4 else tuple(names)
    listed = listed if rng.random() < 0.75 else ()
    least = rng.randint(0, min(3, len(listed)))
    return Regions(racks, listed, least, rng.randint(1, 3), rng.random() < 0.3, rng.random() < 0.9)


def _quorums(rng: random.Random, regions: Regions) -> tuple[int, int, int]:
    size = rng.randint(1, 7)
    quorum = size if rng.random() < 0.4 else rng.randint(1, size)
    least = quorum - quorum // regions.min_regions + 1 if regions.min_regions and regions.listed else 1
    return size, quorum, rng.randint(min(quorum, max(1, least, regions.min_regions)), quorum)


def test_what_the_policy_forms_under_regions_never_fails(gateway: JavaGateway) -> None:
    rng, wrong, tally = random.Random(SEED), [], Counter[str]()
    for _ in range(80):
        regions, bookies = _drawn(rng), Bookies()
        policy = regions.policy(gateway, bookies)
        for _ in range(8):
            size, quorum, acks = _quorums(rng, regions)
            try:
                ring = policy.form(size, quorum, acks)
            except Py4JJavaError as error:
                tally[_thrown(error)] += 1
                continue
            verdict = regions.judge(bookies, ring, quorum, acks)
            tally[verdict.name] += 1
            if verdict is Adherence.FAIL:
                where = [bookies.location(bookie) for bookie in ring]
                wrong.append((regions, where, quorum, acks, regions.failed(bookies, ring, quorum, acks)))
    assert not wrong, f"seed {SEED}: {tally}"
    assert min(tally["SOFT"], tally["STRICT"]) > 50, tally


def test_a_single_region_is_accepted_only_with_one_rack(gateway: JavaGateway) -> None:
    for racks, verdict in (((4,), Adherence.SOFT), ((2, 2), Adherence.FAIL)):
        regions, bookies = Regions({"a": racks}, ("a", "b")), Bookies()
        policy = regions.policy(gateway, bookies)
        ring = [bookies.at(location, number) for number, location in enumerate(regions.locations())]
        assert regions.judge(bookies, ring, 4, 3) is verdict
        if verdict is Adherence.FAIL:
            with pytest.raises(Py4JJavaError, match="BKNotEnoughBookiesException"):
                policy.form(4, 4, 3)
        else:
            assert sorted(policy.form(4, 4, 3)) == sorted(ring)


BROKEN = [
    (Regions({"a": (2, 2), "b": (2, 2)}, ("a", "b")), (4, 2, 2), "aabb", RegionCondition.DURABLE),
    (Regions({"a": (2, 2), "b": (2, 2)}, ("a", "b"), min_regions=0), (4, 2, 2), "aabb", RegionCondition.SPREAD),
    (Regions({"a": (2, 2), "b": (2, 2)}, (), enforce=True), (4, 2, 2), "aabb", RegionCondition.SPREAD),
    (Regions({"a": (3, 3), "b": (3, 3)}, ("a", "b"), min_racks=1), (4, 4, 3), "aaab", RegionCondition.DURABLE),
    (Regions({"a": (3, 3), "b": (2, 2), "c": (1,)}, ("a", "b", "c")), (3, 3, 3), "aab", RegionCondition.COVERED),
]
"""Clusters, (E, Qw, Qa), the regions of a ring, and what it breaks."""


@pytest.mark.parametrize(("regions", "quorums", "ring", "condition"), BROKEN)
def test_a_ring_that_breaks_a_guarantee_is_never_formed(
    gateway: JavaGateway, regions: Regions, quorums: tuple[int, int, int], ring: str, condition: RegionCondition
) -> None:
    bookies, formed = Bookies(), set()
    policy = regions.policy(gateway, bookies)
    for _ in range(20):
        try:
            members = policy.form(*quorums)
        except Py4JJavaError as error:
            formed.add(_thrown(error))
            continue
        formed.add("".join(bookies.location(bookie)[1] for bookie in members))
    members = [bookies.at(f"/{region}/r{at % 2 if region != 'c' else 0}", at) for at, region in enumerate(ring)]
    assert regions.failed(bookies, members, *quorums[1:]) == condition
    assert ring not in formed


def test_regions_repair_no_placement_and_prefer_the_region_of_a_lost_bookie(gateway: JavaGateway) -> None:
    regions, bookies = Regions({"a": (2, 2), "b": (2, 2)}, ("a", "b")), Bookies()
    policy = regions.policy(gateway, bookies)
    writable = [bookies.at(location, number) for number, location in enumerate(regions.locations())]
    ring = writable[:3]
    assert regions.judge(bookies, ring, 3, 3) is Adherence.FAIL
    assert policy.adhere(ring, 3) == ring
    assert policy.adherence(ring, 3) is Adherence.STRICT
    assert {policy.replace([bookies.at("/a/r9", 9), *writable[1:3]], 0, 3)[0] for _ in range(9)} <= set(writable[:4])


def test_a_location_of_another_depth_stops_the_policy(gateway: JavaGateway) -> None:
    regions, bookies = Regions({"a": (2, 2), "b": (2, 2)}, ("a", "b")), Bookies()
    policy = regions.policy(gateway, bookies)
    for location in ("/a", "/a/r0/x", "a/r0"):
        assert region_place(location) is None
        with pytest.raises(Py4JJavaError, match=r"InvalidTopologyException|IllegalArgumentException"):
            policy.join([bookies.at("/a/r0", 0), bookies.at(location, 0)])
