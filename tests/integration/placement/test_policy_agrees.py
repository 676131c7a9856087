"""Trueup's model of BookKeeper's placement policy, compared with RackawareEnsemblePlacementPolicy in a JVM."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError

from tests.integration.placement.policy_jvm import RackMap, policy_gateway
from trueup.connectors.bookkeeper.metadata.racks import normal
from trueup.state.bookkeeper.topology import Bookie, Status, Topology
from trueup.state.placement.policy.fragments import FragmentJudge
from trueup.state.placement.policy.replacement import DEFAULT_RACK, Certainty, RepairReach, reach, refill

pytestmark = pytest.mark.servers

SEED = 20_260_301
REPEATS = 12
RACKS = {
    1: "/r1",
    2: "/r2",
    3: "/r3",
    4: "/r4",
    5: "//r5",
    11: "/r11//",
    6: "/dc//r6",
    7: "/dc/r7",
    8: "/dc/r8",
    9: None,
}


def _locate(address: str, here: str | None) -> str | None:
    """127.RACK.x.y is in RACKS[RACK], any other address in ``here``."""
    net, rack = address.split(".")[:2]
    return RACKS[int(rack)] if net == "127" and int(rack) in RACKS else here


class Policy:
    """One BookKeeper policy object.

    ``silent``: its rack map returns null for the default rack, which BookKeeper's cache does not support.
    """

    def __init__(
        self, gateway: JavaGateway, min_racks: int, enforce: bool, here: str | None = None, silent: bool = False
    ) -> None:
        self._gateway, jvm, self._known = gateway, gateway.jvm, {}
        bookkeeper = jvm.org.apache.bookkeeper
        conf = bookkeeper.conf.ClientConfiguration()
        conf.setMinNumRacksPerWriteQuorum(min_racks)
        conf.setEnforceMinNumRacksPerWriteQuorum(enforce)
        unknown = None if silent else DEFAULT_RACK
        racks = RackMap(gateway, lambda address: _locate(address, here) or unknown)
        resolver = racks if silent else bookkeeper.net.CachedDNSToSwitchMapping(racks)
        self._policy = bookkeeper.client.RackawareEnsemblePlacementPolicy()
        self._policy.initialize(
            conf,
            jvm.java.util.Optional.of(resolver),
            None,
            None,
            bookkeeper.stats.NullStatsLogger.INSTANCE,
            bookkeeper.net.BookieSocketAddress.LEGACY_BOOKIEID_RESOLVER,
        )

    def _ids(self, bookies: Sequence[str], into: Any) -> Any:
        for bookie in bookies:
            into.add(self._id(bookie))
        return into

    def _id(self, bookie: str) -> Any:
        if bookie not in self._known:
            self._known[bookie] = self._gateway.jvm.org.apache.bookkeeper.net.BookieId.parse(bookie)
        return self._known[bookie]

    def set(self, *joining: Sequence[str], readonly: Sequence[str] = ()) -> None:
        """Remove all bookies, then add these groups of writable bookies one after the other."""
        new = self._gateway.jvm.java.util.HashSet
        self._policy.onClusterChanged(new(), new())
        writable: list[str] = []
        for group in joining:
            writable += group
            self._policy.onClusterChanged(self._ids(writable, new()), self._ids(readonly, new()))

    def adheres(self, ensemble: Sequence[str], quorum: int) -> bool:
        bookies = self._ids(ensemble, self._gateway.jvm.java.util.ArrayList())
        return bool(self._policy.isEnsembleAdheringToPlacementPolicy(bookies, quorum, quorum).toString() != "FAIL")

    def attempts(self, ensemble: Sequence[str], quorum: int, repeats: int) -> list[list[str]]:
        """Results of ``repeats`` calls of replaceToAdherePlacementPolicy. A failed call gives an empty list."""
        jvm = self._gateway.jvm
        bookies = self._ids(ensemble, jvm.java.util.ArrayList())
        out = []
        for _ in range(repeats):
            made = self._policy.replaceToAdherePlacementPolicy(
                len(ensemble), quorum, quorum, jvm.java.util.HashSet(), bookies
            )
            out.append(_listed(made.getResult().toString()))
        return out

    def replace(self, ensemble: Sequence[str], quorum: int, lost: Sequence[int]) -> list[str]:
        """The choice of BookKeeperAdmin.getReplacementBookiesByIndexes for these positions. Empty if it fails."""
        jvm = self._gateway.jvm
        bookies = self._ids(ensemble, jvm.java.util.ArrayList())
        excluded = self._ids([ensemble[at] for at in lost], jvm.java.util.HashSet())
        out = []
        for at in lost:
            taken = self._replaced(quorum, bookies, self._id(ensemble[at]), excluded)
            if taken is None:
                return []
            excluded.add(taken)
            out.append(taken.toString())
        return out

    def _replaced(self, quorum: int, bookies: Any, old: Any, excluded: Any) -> Any:
        metadata = self._gateway.jvm.java.util.HashMap()
        try:
            made = self._policy.replaceBookie(len(bookies), quorum, quorum, metadata, bookies, old, excluded)
        except Py4JJavaError as error:
            if "BKNotEnoughBookiesException" not in str(error.java_exception.toString()):
                raise
            return None
        return made.getResult()


def _listed(text: str) -> list[str]:
    return [word for word in text.strip("[]").split(", ") if word]


@pytest.fixture(scope="module")
def gateway() -> Iterator[JavaGateway]:
    with policy_gateway() as gateway:
        yield gateway


@dataclass(frozen=True)
class Case:
    """``members`` and ``spares``: (rack, status); statuses as in `Status`."""

    quorum: int
    min_racks: int
    enforce: bool
    members: tuple[tuple[int, Status], ...]
    spares: tuple[tuple[int, Status], ...]

    @property
    def bookies(self) -> list[tuple[str, int, Status]]:
        return [
            (f"127.{rack}.0.{at + 1}:3181", rack, status)
            for at, (rack, status) in enumerate((*self.members, *self.spares))
        ]

    @property
    def ensemble(self) -> list[str]:
        return [bookie for bookie, _, _ in self.bookies[: len(self.members)]]

    @property
    def free(self) -> dict[str | None, int]:
        return dict(Counter(RACKS[rack] for rack, status in self.spares if status is Status.WRITABLE))

    @property
    def unknown(self) -> list[int]:
        return [at for at, (_, status) in enumerate(self.members) if status is not Status.WRITABLE]

    def play(self, policy: Policy) -> None:
        writable = [b for b, _, status in self.bookies if status is Status.WRITABLE]
        policy.set(writable, readonly=[b for b, _, status in self.bookies if status is Status.READONLY])


def _generated(rng: random.Random, racks: Sequence[int], unhealthy: float) -> Case:
    size = rng.randint(1, 7)
    racks = rng.sample(racks, rng.randint(1, len(racks)))

    def bookie() -> tuple[int, Status]:
        bad = rng.random() < unhealthy
        return rng.choice(racks), rng.choice([Status.READONLY, Status.LOST]) if bad else Status.WRITABLE

    # Most members are in one rack, as after an outage. The replacement must correct this.
    lean = rng.random()
    members = tuple((racks[0], bookie()[1]) if rng.random() < lean else bookie() for _ in range(size))
    return Case(
        rng.randint(1, size),
        rng.choice([0, 1, 2, 2, 2, 3, 3, 4]),
        rng.random() < 0.25,
        members,
        tuple(bookie() for _ in range(rng.randint(0, 8))),
    )


def _cases(count: int, racks: Sequence[int], unhealthy: float, salt: int) -> list[Case]:
    rng = random.Random(SEED + salt)
    cases = [_generated(rng, racks, unhealthy) for _ in range(count)]
    return sorted(cases, key=lambda case: (case.min_racks, case.enforce))


def _policies(gateway: JavaGateway, here: str | None = None) -> Any:
    made: dict[tuple[int, bool], Policy] = {}

    def policy(case: Case) -> Policy:
        key = (case.min_racks, case.enforce)
        if key not in made:
            made[key] = Policy(gateway, *key, here)
        return made[key]

    return policy


def _topology(case: Case) -> Topology:
    bookies = tuple(
        Bookie(b, normal(RACKS[rack]), status, 0, at + 1) for at, (b, rack, status) in enumerate(case.bookies)
    )
    return Topology(1, 0, bookies, case.min_racks, case.enforce)


def test_adherence_agrees_with_the_policy(gateway: JavaGateway) -> None:
    policy, wrong = _policies(gateway), []
    for case in _cases(300, (1, 2, 3, 9), 0.15, 1):
        case.play(policy(case))
        bench = FragmentJudge(_topology(case))
        facts = bench.facts(bench.classes(tuple(case.ensemble))[None], case.quorum)
        if policy(case).adheres(case.ensemble, case.quorum) == bool(facts.fails[0]):
            wrong.append(case)
    assert not wrong, f"seed {SEED}"


def test_bookies_of_another_rack_depth_than_the_first_are_not_known(gateway: JavaGateway) -> None:
    rng, policy, wrong = random.Random(SEED), Policy(gateway, 2, False), []
    for _ in range(100):
        deep = rng.random() < 0.5
        most, odd = ((8,), (1, 2)) if deep else ((1, 2), (8,))
        members = [(rng.choice(most + odd), Status.WRITABLE) for _ in range(rng.randint(2, 5))]
        spares = [(rng.choice(most), Status.WRITABLE) for _ in range(6)]
        case = Case(2, 2, False, tuple(members), tuple(spares))
        policy.set([b for b, r, _ in case.bookies if r in most], [b for b, r, _ in case.bookies if r in odd])
        bench = FragmentJudge(_topology(case))
        facts = bench.facts(bench.classes(tuple(case.ensemble))[None], 2)
        if policy.adheres(case.ensemble, 2) == bool(facts.fails[0]):
            wrong.append(case)
    assert not wrong, f"seed {SEED}"


def _adheres(case: Case) -> bool:
    bench = FragmentJudge(_topology(case))
    return not bench.facts(bench.classes(tuple(case.ensemble))[None], case.quorum).fails[0]


def test_what_adheres_does_so_whichever_depth_joined_first(gateway: JavaGateway) -> None:
    rng, policy, wrong, tally = random.Random(SEED), Policy(gateway, 2, False), [], Counter[bool]()
    for _ in range(150):
        members = tuple((rng.choice((1, 2, 7, 8)), Status.WRITABLE) for _ in range(rng.randint(2, 7)))
        spares = ((1, Status.WRITABLE), (7, Status.WRITABLE))
        case = Case(len(members), 2, False, members, spares)
        flat = [bookie for bookie, rack, _ in case.bookies if rack < 5]
        deep = [bookie for bookie, rack, _ in case.bookies if rack > 5]
        answers = []
        for joining in ((flat, deep), (deep, flat)):
            policy.set(*joining)
            answers.append(policy.adheres(case.ensemble, case.quorum))
        tally[all(answers)] += 1
        if all(answers) != _adheres(case):
            wrong.append(case)
    assert not wrong, f"seed {SEED}"
    assert tally[True] > 5, tally


@pytest.mark.parametrize(("rack", "adheres"), [(5, False), (6, False), (11, True)])
def test_a_rack_with_an_empty_part_is_none_but_at_its_end(gateway: JavaGateway, rack: int, adheres: bool) -> None:
    case = Case(2, 2, False, ((1, Status.WRITABLE), (rack, Status.WRITABLE)), ((2, Status.WRITABLE),))
    policy = Policy(gateway, 2, False)
    for joining in (case.bookies, case.bookies[::-1]):
        policy.set(*([bookie] for bookie, _, _ in joining))
        assert (policy.adheres(case.ensemble, 2), _adheres(case)) == (adheres, adheres)


def test_a_bookie_that_the_map_does_not_know_stands_in_the_default_rack(gateway: JavaGateway) -> None:
    policy = Policy(gateway, 2, False, silent=True)
    policy.set(["127.1.0.1:3181", "127.9.0.1:3181", "127.9.0.2:3181"])
    assert policy.adheres(["127.1.0.1:3181", "127.9.0.1:3181"], 2)
    assert not policy.adheres(["127.9.0.1:3181", "127.9.0.2:3181"], 2)


def _reach(case: Case, local: str | None = None) -> RepairReach:
    return reach(
        [RACKS[rack] for rack, _ in case.members],
        case.quorum,
        case.free,
        case.min_racks,
        case.enforce,
        unknown=case.unknown,
        local=local,
    )


def _moves(case: Case, policy: Policy, repeats: int = REPEATS) -> list[int]:
    """Number of copies that each successful attempt moved."""
    made = policy.attempts(case.ensemble, case.quorum, repeats)
    return [sum(a != b for a, b in zip(case.ensemble, one, strict=True)) for one in made if one]


def _disagrees(case: Case, moves: list[int], found: RepairReach) -> bool:
    if found.sure is Certainty.NEVER:
        return bool(moves)
    if found.sure is Certainty.ALWAYS and len(moves) < REPEATS:
        return True
    return bool(moves) and min(moves) < found.moves


@pytest.mark.parametrize("here", [None, "/r2"])
def test_the_walk_is_what_the_policy_does(gateway: JavaGateway, here: str | None) -> None:
    policy, tally, wrong = _policies(gateway, here), Counter[Certainty](), []
    for case in _cases(200, (1, 2, 3, 4, 9), 0.1, 2):
        case.play(policy(case))
        found = _reach(case, here)
        tally[found.sure] += 1
        if _disagrees(case, _moves(case, policy(case)), found):
            wrong.append(case)
    assert not wrong, f"seed {SEED}: {tally}"
    assert min(tally[Certainty.NEVER], tally[Certainty.ALWAYS]) > 20, tally


CHANCY = [
    (2, 3, (2, 3, 1, 1, 3, 1), (9,)),
    (2, 3, (4, 2, 4, 1, 3, 4), (9,)),
    (4, 2, (2, 9, 3, 3, 3, 3, 9), (9, 9, 9, 9, 3, 3, 2)),
]


@pytest.mark.parametrize(("quorum", "min_racks", "members", "spares"), CHANCY)
def test_a_walk_that_depends_on_chance_does_both(
    gateway: JavaGateway, quorum: int, min_racks: int, members: Sequence[int], spares: Sequence[int]
) -> None:
    here, there = (tuple((rack, Status.WRITABLE) for rack in racks) for racks in (members, spares))
    case, policy = Case(quorum, min_racks, True, here, there), Policy(gateway, min_racks, True)
    case.play(policy)
    assert _reach(case).sure is Certainty.SOMETIMES
    assert 0 < len(_moves(case, policy, 60)) < 60


COLOURABLE_BUT_NOT_REACHED = [(4, 3, 2), (5, 4, 2), (6, 5, 2), (7, 6, 2), (7, 3, 2), (6, 4, 3), (6, 5, 3), (7, 6, 3)]


@pytest.mark.parametrize(("size", "quorum", "racks"), COLOURABLE_BUT_NOT_REACHED)
def test_rings_that_could_be_coloured_but_are_never_reached(
    gateway: JavaGateway, size: int, quorum: int, racks: int
) -> None:
    spares = tuple((rack, Status.WRITABLE) for rack in range(1, racks + 1) for _ in range(size))
    case = Case(quorum, racks, False, ((1, Status.WRITABLE),) * size, spares)
    policy = Policy(gateway, racks, False)
    case.play(policy)
    assert not any(policy.attempts(case.ensemble, quorum, REPEATS))
    assert not reach(["/r1"] * size, quorum, case.free, racks)


def test_replacements_are_what_the_policy_picks(gateway: JavaGateway) -> None:
    policy, tally = _policies(gateway), Counter[str]()
    wrong = []
    for case in _cases(200, (1, 2, 3, 9), 0.3, 3):
        lost = [at for at, (_, status) in enumerate(case.members) if status is Status.LOST]
        if not lost:
            continue
        case.play(policy(case))
        found = refill([RACKS[rack] for rack, _ in case.members], lost, case.free, case.enforce)
        made = [policy(case).replace(case.ensemble, case.quorum, lost) for _ in range(REPEATS)]
        tally[found.sure.name] += 1
        if (found.sure is Certainty.NEVER and any(made)) or (found.sure is Certainty.ALWAYS and not all(made)):
            wrong.append(case)
    assert not wrong, f"seed {SEED}: {tally}"
    assert min(tally["NEVER"], tally["ALWAYS"]) > 0, tally
